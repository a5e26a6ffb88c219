// What the SDK does while things break: the broker restarts, a daemon dies or freezes, the pool goes.
import { expect, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import {
  CanceledError,
  newUuidV7,
  type SandboxLostError,
  type SandmeshError,
} from "../../../sdk/typescript/mod.ts";
import { liveMesh } from "./mesh.ts";

const SPEC = { image: "host" } as const;
const LONG = 60_000;

test(
  "a command outlives a restart of the broker, runs once, and its whole output arrives",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    const gate = `/tmp/sandmesh-gate-${newUuidV7()}`;
    const line = `echo ran >> ${gate}.ran; echo before; while [ ! -e ${gate} ]; do sleep 0.05; done; seq 1 100000; echo after`;
    let first = "";
    const stream = box.stream(line);
    const reading = (async () => {
      for await (const chunk of stream) first += chunk.text;
      return await stream.end;
    })();
    const whole = box.exec(line.replaceAll(".ran", ".ran2"));
    await until("it runs", () => first.includes("before"));
    await live.server.kill();
    await Bun.write(gate, "");
    await live.server.restart();
    const [end, result] = await Promise.all([reading, whole]);
    expect([end.ok, result.ok]).toEqual([true, true]);
    const expected = `before\n${Array.from({ length: 100_000 }, (_, i) => `${i + 1}\n`).join("")}after\n`;
    expect(first === expected).toBe(true);
    expect(result.stdout.text === expected).toBe(true);
    expect(await Bun.file(`${gate}.ran`).text()).toBe("ran\n");
    expect(await Bun.file(`${gate}.ran2`).text()).toBe("ran\n");
    await box.exec(`rm -f ${gate} ${gate}.ran ${gate}.ran2`);
  },
  LONG,
);

test(
  "commands that are sent while the broker is away run once, when it is back",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    await box.exec("true");
    await live.server.kill();
    const file = `away-${newUuidV7()}`;
    const results = Array.from({ length: 20 }, () => box.exec(`echo x >> ${file}`));
    await live.server.restart();
    expect((await Promise.all(results)).every((result) => result.ok)).toBe(true);
    expect(await box.files.readText(file)).toBe("x\n".repeat(20));
  },
  LONG,
);

test(
  "an acquire outlives a restart of the broker, and makes one sandbox",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    await mesh.status();
    const acquiring = mesh.acquire(SPEC);
    await until("it was created", () => live.provider.made.size === 1);
    await live.server.kill();
    await live.server.restart();
    const box = await acquiring;
    expect((await box.exec("echo here")).stdout.text).toBe("here\n");
    expect(live.provider.made.size).toBe(1);
  },
  LONG,
);

test(
  "a killed daemon is a lost sandbox to all that waits for it, and to what comes after, never an outcome",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    const running = box.exec("sleep 600").catch((error: SandmeshError) => error);
    const timed = box.exec("sleep 600", { timeout: "5m" }).catch((error: SandmeshError) => error);
    const stream = box.stream("echo up; sleep 600");
    const streaming = (async () => {
      for await (const _ of stream) await live.provider.kill(box.id);
    })().catch((error: SandmeshError) => error);
    for (const failure of [await running, await timed, await streaming]) {
      expect(failure).toMatchObject({ code: "sandbox_lost", sandbox: box.id });
      expect(["unknown", "yes"]).toContain((failure as SandboxLostError).started ?? "");
    }
    expect(await box.exec("true").catch((error: unknown) => error)).toMatchObject({
      code: "sandbox_lost",
      started: "no",
    });
    expect(await box.files.read("/etc/hostname").catch((error: unknown) => error)).toMatchObject({
      code: "sandbox_lost",
    });
  },
  LONG,
);

test(
  "a frozen sandbox: a command with a time limit ends in a deadline, not sure whether it ran",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    live.provider.signal(box.id, "SIGSTOP");
    const failure = await box.exec("true", { timeout: 100, grace: 0 }).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "deadline_exceeded", started: "unknown", sandbox: box.id });
    live.provider.signal(box.id, "SIGCONT");
  },
  LONG,
);

test(
  "a command to a frozen sandbox can be given up, and does not go on afterwards",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    live.provider.signal(box.id, "SIGSTOP");
    const control = new AbortController();
    const running = box.exec("sleep 600", { signal: control.signal }).catch((error: unknown) => error);
    await mesh.status();
    control.abort();
    const failure = await running;
    expect(failure).toBeInstanceOf(CanceledError);
    expect(failure).toMatchObject({ started: "unknown" });
    live.provider.signal(box.id, "SIGCONT");
    await until("it has ended", async () => (await box.commands()).every((each) => !each.running), 20_000);
  },
  LONG,
);

test(
  "an upload and a download outlive a restart of the broker, byte for byte",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    const size = 24 * 1024 * 1024;
    const bytes = Buffer.alloc(size, "the quick brown fox jumps over the lazy dog; ");
    let given = 0;
    const source = (async function* () {
      for (let at = 0; at < size; at += 1 << 20) {
        given = at;
        yield bytes.subarray(at, at + (1 << 20));
      }
    })();
    const writing = box.files.write("big", source);
    await until("it is under way", () => given > size / 4);
    await live.server.kill();
    await live.server.restart();
    expect(await writing).toBe(size);
    const reading = box.files.read("big");
    await live.server.kill();
    await live.server.restart();
    expect(Buffer.compare(Buffer.from(await reading), bytes)).toBe(0);
    expect((await box.files.list(".")).map((entry) => entry.path.split("/").at(-1))).toEqual(["big"]);
  },
  LONG,
);

test(
  "who has only the id of a sandbox learns why it was lost, as its holder does",
  async () => {
    await using live = await liveMesh();
    const [mesh, other] = [await live.connect(), await live.connect({}, "bob")];
    const box = await mesh.acquire(SPEC);
    const known = other.sandbox(box.id);
    const running = known.exec("sleep 600").catch((error: unknown) => error);
    await until("it runs", async () => (await box.commands()).length === 1);
    await live.provider.kill(box.id);
    const lost = { code: "sandbox_lost", reason: "daemon_died", sandbox: box.id };
    expect(await running).toMatchObject({ ...lost, started: "unknown" });
    // Also afterwards, and whatever is asked.
    for (const ask of [
      () => other.sandbox(box.id).exec("true"),
      () => other.sandbox(box.id).files.stat("."),
      () => other.sandbox(box.id).shell(),
      () => known.files.list("."),
    ])
      expect(await ask().catch((error: unknown) => error)).toMatchObject(lost);
  },
  LONG,
);

test(
  "nobody hears of a sandbox that never was: the error says it is not there",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = mesh.sandbox("sb-0000000000000");
    const unknown = { code: "not_found", sandbox: box.id };
    expect(await box.exec("true").catch((error: unknown) => error)).toMatchObject({
      ...unknown,
      started: "no",
    });
    for (const ask of [
      (id: string) => mesh.sandbox(id).commands(),
      (id: string) => mesh.sandbox(id).shell(),
      (id: string) => mesh.sandbox(id).terminal(),
      (id: string) => mesh.sandbox(id).files.read("x"),
      (id: string) => mesh.sandbox(id).files.write("x", "y"),
      (id: string) => mesh.sandbox(id).files.upload("package.json", "x"),
    ])
      expect(await ask(box.id).catch((error: unknown) => error)).toMatchObject(unknown);
  },
  LONG,
);

test(
  "a server that is gone for good holds up neither a release nor the closing, and what is left is named",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const [first, second] = await mesh.acquireMany(2, { ...SPEC, lease: "2s" });
    await live.server.kill();
    const released = first?.release().catch((error: unknown) => error);
    const closed = await mesh.close().catch((error: unknown) => error);
    expect(await released).toMatchObject({ code: "connection_failed", sandbox: first?.id });
    expect(closed).toMatchObject({
      code: "connection_failed",
      message: expect.stringContaining(second?.id ?? ""),
    });
    await live.server.restart();
    // Nobody has renewed them meanwhile.
    await until("their leases have ended them", () => live.provider.made.size === 0, 20_000);
  },
  LONG,
);

test(
  "a closed connection ends what waits on it",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    const bob = await live.connect({}, "bob");
    const running = bob
      .sandbox(box.id)
      .exec("sleep 600")
      .catch((error: unknown) => error);
    await until("it runs", async () => (await box.commands()).some((each) => each.running));
    await bob.close();
    expect(await running).toMatchObject({ code: "connection_failed" });
    expect(await bob.status().catch((error: unknown) => error)).toMatchObject({ code: "connection_failed" });
  },
  LONG,
);
