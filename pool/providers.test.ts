import { expect, test } from "bun:test";
import { pino } from "pino";
import { InvalidRequestError } from "../broker/contract/index.ts";
import { makeProvider } from "./providers.ts";

const log = pino({ level: "silent" });
const settings = { mesh: "m", daemon: { by: "hostPath", path: "/daemon/1" }, kubeconfig: "/nowhere" };

test("two of one kind have their own names, by which records and specs tell them apart", async () => {
  for (const name of ["east", "west"]) {
    const provider = await makeProvider({ name, kind: "simulated", settings: {} }, log);
    expect(provider.name).toBe(name);
    await provider.close();
  }
  expect((await makeProvider({ name: "simulated", settings: {} }, log)).name).toBe("simulated");
});

test("a kind that there is none of, and settings that cannot be, are refused by name", async () => {
  const refused = async (entry: Parameters<typeof makeProvider>[0]) =>
    makeProvider(entry, log).then(
      () => "made",
      (error: unknown) => (error instanceof InvalidRequestError ? error.message : String(error)),
    );
  expect(await refused({ name: "east", settings: {} })).toContain("kubernetes, local, simulated");
  expect(await refused({ name: "east", kind: "kubernetes", settings: { mesh: "A" } })).toContain("mesh");
  expect(await refused({ name: "east", kind: "kubernetes", settings })).toContain("kubeconfig");
});
