// The machine's clock stepped by a day, both ways: limits run on a clock that only grows.
import { afterAll, afterEach, beforeAll, expect, setSystemTime, test } from "bun:test";
import { type TestServer, testServer } from "../server/testing.ts";
import { boot, newId, PoolDouble, TENANT, until } from "./testing.ts";

const DAY_MS = 24 * 3600 * 1000;

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
  await PoolDouble.start(server);
});
afterEach(() => {
  setSystemTime();
});
afterAll(() => server.close());

test.each([1, -1])(
  "a step of %i day ends nothing, keeps time limits, and runs nothing twice",
  async (days) => {
    const box = await boot(server, await server.user(TENANT, `ann${days + 1}`));
    const id = newId();
    const first = box.caller.ask("exec", { id, argv: ["x"], timeout_ms: 3_600_000 });
    await until("the command", () => box.executor.commands.length === 1);
    setSystemTime(new Date(Date.now() + days * DAY_MS));
    // Deadlines that are wrongly due would be found at the next look at them.
    await box.caller.ask("ping");
    const view = await box.caller.ask("commands");
    expect(view).toMatchObject({ commands: [{ id, running: true }] });
    const again = box.caller.ask("exec", { id, argv: ["x"], timeout_ms: 3_600_000 });
    await box.caller.ask("ping");
    box.executor.last.exit(5);
    for (const answer of await Promise.all([first, again]))
      expect(answer).toMatchObject({ outcome: { code: 5 } });
    const later = box.caller.ask("exec", { id: newId(), argv: ["y"] });
    await until("the next command", () => box.executor.commands.length === 2);
    box.executor.last.exit(0);
    const { duration_ms } = await later;
    expect(Number(duration_ms)).toBeLessThan(60_000);
    expect(box.executor.commands).toHaveLength(2);
    await box.endpoint.close();
    expect((await box.endpoint.ended).why).toBe("closed");
  },
);
