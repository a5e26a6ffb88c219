import { expect, test } from "bun:test";

test("what was left waiting on a connection that is closed does not keep the process alive", () => {
  const program = `
    import { Pulse } from ${JSON.stringify(new URL("pulse.ts", import.meta.url).pathname)};
    const waiting = { onTick() {}, onReconnect() {} };
    const pulse = new Pulse();
    pulse.add(waiting);
    pulse.close();
    pulse.add({ ...waiting });
  `;
  const { exitCode, signalCode } = Bun.spawnSync([process.execPath, "-e", program], { timeout: 20_000 });
  expect({ exitCode, signalCode }).toMatchObject({ exitCode: 0 });
});
