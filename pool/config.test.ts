import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InvalidRequestError } from "../broker/contract/index.ts";
import { describePoolConfig, poolLimits, readPoolConfig } from "./config.ts";

const MINIMAL = {
  urls: ["nats://127.0.0.1:4222"],
  credentialsFile: "/c",
  keysFile: "/k",
  providers: [{ name: "local" }],
};

function withFile<T>(content: unknown, use: (file: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), "sandmesh-config-"));
  try {
    const file = join(folder, "config.json");
    writeFileSync(file, JSON.stringify(content));
    return use(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("the environment goes over the file, and the file over the defaults", () => {
  const env = { SANDMESH_POOL_MAX_BOOTING: "7", SANDMESH_POOL_NAME: "west" };
  const config = withFile({ ...MINIMAL, maxBooting: 3, confirmMs: 500 }, (file) => readPoolConfig(file, env));
  expect(config).toMatchObject({ maxBooting: 7, name: "west", confirmMs: 500 });
  expect(config.bootTimeoutMs).toBe(poolLimits().bootTimeoutMs);
});

test("a value that cannot be is refused by name, not replaced by the default", () => {
  for (const [bad, field] of [
    [{ maxBooting: "many" }, "maxBooting"],
    [{ confirmMs: 0 }, "confirmMs"],
    [{ name: "sb 1" }, "name"],
    [{ providers: [{ name: "A.B" }] }, "providers.0.name"],
    [{ providers: [{ name: "local", weight: -1 }] }, "providers.0.weight"],
    // Whose a recorded sandbox is must stay one answer.
    [{ providers: [{ name: "local" }, { name: "local" }] }, "two of one name"],
  ] as const) {
    const read = () => withFile({ ...MINIMAL, ...bad }, (file) => readPoolConfig(file, {}));
    expect(read).toThrow(InvalidRequestError);
    expect(read).toThrow(field);
  }
  expect(() => readPoolConfig("/nowhere/config.json", {})).toThrow("/nowhere/config.json");
  expect(() => readPoolConfig("/dev/zero", {})).toThrow("config: /dev/zero is larger than");
});

test("every setting says what it is for", () => {
  const settings = describePoolConfig();
  expect(settings.length).toBeGreaterThan(25);
  for (const { name, about } of settings) expect([name, about.length > 10]).toEqual([name, true]);
  expect(settings.find(({ name }) => name === "bootTimeoutMs")).toMatchObject({
    variable: "SANDMESH_POOL_BOOT_TIMEOUT_MS",
    default: 120_000,
  });
});
