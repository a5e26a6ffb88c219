// What is written to a command's stdin where the other side is one of before, or knows the writer no more: a sandbox played by
// the test, over real connections.
import { expect, test } from "bun:test";
import { InvalidRequestError, newUuidV7 } from "../../../broker/contract/index.ts";
import { ConflictError } from "../mod.ts";
import { type Asked, played, SANDBOX } from "../testing/played.ts";

interface Said {
  writer: string;
  offset: number;
  data: Uint8Array;
  eof: boolean;
}

const saidOf = ({ body }: Asked): Said => body as unknown as Said;
const gap = () => ({ error: new InvalidRequestError("offset: a gap", { field: "offset" }).toWire() });
const textOf = (parts: Uint8Array[]) => Buffer.concat(parts).toString();

/** A daemon that knows of no writers: it counts all bytes together. */
function daemonOfBefore() {
  const taken: Uint8Array[] = [];
  let received = 0;
  const take = (text: string): void => {
    taken.push(Buffer.from(text));
    received += text.length;
  };
  const answer = (asked: Asked) => {
    if (asked.verb !== "stdin") return undefined;
    const { offset, data } = saidOf(asked);
    if (offset > received) return [gap()];
    const fresh = data.subarray(received - offset);
    taken.push(fresh);
    received += fresh.length;
    return [{ received }];
  };
  return { answer, take, text: () => textOf(taken) };
}

test("of a daemon that counts all together each write is taken, of one client and of several by turns", async () => {
  const daemon = daemonOfBefore();
  await using sandbox = await played(daemon.answer);
  const box = sandbox.mesh.sandbox(SANDBOX);
  const [first, next] = [box.command(newUuidV7()).stdin, box.command(newUuidV7()).stdin];
  for (const text of ["one ", "two "]) await first.write(text);
  for (const text of ["three ", "four "]) await next.write(text);
  await first.write("five ");
  // Nothing of it is lost by what comes last.
  daemon.take("six");
  await next.close();
  expect(daemon.text()).toBe("one two three four five six");
});

test("what such a daemon skips since another client wrote meanwhile is told where it can be seen; the next is taken", async () => {
  const daemon = daemonOfBefore();
  let meanwhile = "";
  await using sandbox = await played((asked) => {
    const answers = daemon.answer(asked);
    daemon.take(meanwhile);
    meanwhile = "";
    return answers;
  });
  const { stdin } = sandbox.mesh.sandbox(SANDBOX).command(newUuidV7());
  await stdin.write("one ");
  meanwhile = "two ";
  expect(await stdin.write("ab").catch((error) => error)).toBeInstanceOf(ConflictError);
  await stdin.write("three");
  expect(daemon.text()).toBe("one two three");
});

/** One that counts each writer's apart. */
function daemonOfNow() {
  const taken: Uint8Array[] = [];
  const counts = new Map<string, number>();
  const answer = (asked: Asked) => {
    if (asked.verb !== "stdin") return undefined;
    const { writer, offset, data } = saidOf(asked);
    const received = counts.get(writer) ?? 0;
    if (offset > received) return [gap()];
    const fresh = data.subarray(received - offset);
    taken.push(fresh);
    counts.set(writer, received + fresh.length);
    return [{ received: received + fresh.length, writer }];
  };
  return { answer, counts, text: () => textOf(taken) };
}

test("a writer that the daemon has given up goes on as another one, in the middle of a write, too", async () => {
  const daemon = daemonOfNow();
  let forgets = false;
  await using sandbox = await played((asked) => {
    if (forgets && asked.verb === "stdin" && saidOf(asked).offset > 0) {
      forgets = false;
      daemon.counts.clear();
    }
    return daemon.answer(asked);
  });
  const { stdin } = sandbox.mesh.sandbox(SANDBOX).command(newUuidV7());
  await stdin.write("one ");
  forgets = true;
  await stdin.write("two ");
  forgets = true;
  const long = "x".repeat(600_000);
  await stdin.write(long);
  await stdin.write(" three");
  expect(daemon.text() === `one two ${long} three`).toBe(true);
});

test("what is left of a write that was taken back takes no later byte's place, whenever it comes", async () => {
  const daemon = daemonOfNow();
  const late: Asked[] = [];
  await using sandbox = await played((asked) => {
    if (asked.verb === "stdin" && textOf([saidOf(asked).data]) === "lost") {
      late.push(asked);
      return undefined;
    }
    const answers = daemon.answer(asked);
    // Behind whatever the client asks next.
    for (const one of late) daemon.answer(one);
    return answers;
  });
  const { stdin } = sandbox.mesh.sandbox(SANDBOX).command(newUuidV7());
  await stdin.write("one ");
  const control = new AbortController();
  const writing = stdin.write("lost", { signal: control.signal }).catch((error) => error.code);
  while (late.length === 0) await Bun.sleep(5);
  control.abort();
  expect(await writing).toBe("canceled");
  await stdin.write("two ");
  await stdin.write("three");
  expect(daemon.text()).toBe("one two lostthree");
});

test("each writer is one of its own, and begins at 0", async () => {
  const daemon = daemonOfNow();
  await using sandbox = await played(daemon.answer);
  const box = sandbox.mesh.sandbox(SANDBOX);
  const id = newUuidV7();
  for (const text of ["a", "b", "c"]) await box.command(id).stdin.write(text);
  const parts = sandbox.asked.filter(({ verb }) => verb === "stdin").map(saidOf);
  const written = parts.filter(({ data }) => data.length > 0);
  expect(new Set(parts.map(({ writer }) => writer)).size).toBe(3);
  expect(written.map(({ offset }) => offset)).toEqual([0, 0, 0]);
  expect(daemon.text()).toBe("abc");
});
