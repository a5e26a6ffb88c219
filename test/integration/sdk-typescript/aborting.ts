// What the tests of aborted calls share: a call with its own signal, and what is expected of it once that has aborted.
import { expect } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import type { Sandbox } from "../../../sdk/typescript/mod.ts";

export type Call = (signal: AbortSignal) => Promise<unknown>;

/** Those that start a command say whether they have. */
const STARTING = [
  "Sandbox.exec",
  "Sandbox.stream",
  "Sandbox.start",
  "CommandStream.drain",
  "Session.exec",
  "Session.stream",
];

type Settled = { name: string; value: unknown };
interface Started {
  name: string;
  control: AbortController;
  settled: Promise<Settled>;
  pending: boolean;
}

export function begin(name: string, call: Call, aborted = false): Started {
  const control = new AbortController();
  if (aborted) control.abort("enough");
  const work = (async () => await call(control.signal))();
  const started: Started = {
    name,
    control,
    pending: true,
    settled: work
      .catch((error: unknown) => error)
      .then((value) => {
        started.pending = false;
        return { name, value };
      }),
  };
  return started;
}

export async function turns(): Promise<void> {
  for (let i = 0; i < 50; i++) await new Promise((go) => setImmediate(go));
}

/** All of them, aborted by now, are canceled for that reason, and without anything further from outside. */
export async function expectCanceled(all: Started[], started?: string): Promise<void> {
  await until(
    `heard by ${all.filter(({ pending }) => pending).map(({ name }) => name)}`,
    () => !all.some(({ pending }) => pending),
    5_000,
  ).catch(() => undefined);
  expect(all.filter(({ pending }) => pending).map(({ name }) => name)).toEqual([]);
  for (const { settled } of all) {
    const { name, value } = await settled;
    const also = STARTING.includes(name) && started !== undefined ? { started } : {};
    expect({ name, value }).toMatchObject({ name, value: { code: "canceled", cause: "enough", ...also } });
  }
}

export async function read(parts: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of parts);
}

/** The commands that run there. */
export const running = async (box: Sandbox): Promise<string[]> =>
  (await box.commands()).filter((each) => each.running).map(({ id }) => id);
