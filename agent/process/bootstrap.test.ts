import { expect, test } from "bun:test";
import { mkdtempSync, openSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readBootstrap } from "./bootstrap.ts";

const good = {
  version: 1,
  urls: ["nats://127.0.0.1:4222"],
  tenant: "default",
  sandbox: "sb-1",
  generation: 1,
  jwt: "j",
  seed: "s3cret",
  boot_timeout_ms: 1000,
};

test("a bootstrap is read from text, a file, and a descriptor that is closed thereafter", () => {
  const folder = mkdtempSync(join(tmpdir(), "bootstrap-test-"));
  try {
    const file = join(folder, "b.json");
    writeFileSync(file, JSON.stringify(good));
    expect(readBootstrap({ text: JSON.stringify(good) })).toMatchObject(good);
    expect(readBootstrap({ file })).toMatchObject(good);
    const fd = openSync(file, "r");
    expect(readBootstrap({ fd })).toMatchObject(good);
    expect(() => readlinkSync(`/proc/self/fd/${fd}`)).toThrow();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("what is wrong is named, and the secret is not in the message", () => {
  const message = (source: Parameters<typeof readBootstrap>[0]): string => {
    try {
      readBootstrap(source);
    } catch (thrown) {
      return String(thrown);
    }
    return "accepted";
  };
  expect(message({})).toContain("SANDMESH_BOOTSTRAP");
  expect(message({ file: "/no/such/file" })).toContain("/no/such/file");
  expect(message({ text: "{s3cret" })).toContain("not JSON");
  expect(message({ text: "{s3cret" })).not.toContain("s3cret");
  expect(message({ text: JSON.stringify({ ...good, sandbox: "a.b" }) })).toContain("sandbox");
  expect(message({ text: JSON.stringify({ ...good, generation: 0 }) })).not.toContain("s3cret");
});
