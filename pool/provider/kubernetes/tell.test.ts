import { afterEach, expect, jest, test } from "bun:test";
import type { ProviderEvent } from "../provider.ts";
import type { Change } from "./informer.ts";
import { Teller } from "./tell.ts";
import { podView } from "./testing.ts";

const PATIENCE = { unschedulableMs: 60_000, imageRetryMs: 20_000 };
afterEach(() => {
  jest.useRealTimers();
});

function listening() {
  const teller = new Teller(PATIENCE);
  const told: ProviderEvent[] = [];
  teller.listen((event) => told.push(event));
  const seen = (status: object, metadata: object = {}) =>
    teller.heed({ type: "seen", pod: podView({ status, metadata }) } satisfies Change);
  const gone = (status: object = { phase: "Running" }) =>
    teller.heed({ type: "gone", pod: podView({ status }) });
  return { teller, told, seen, gone, types: () => told.map(({ type }) => type) };
}

const waiting = (reason: string, message: string) => ({
  containerStatuses: [{ name: "sandbox", state: { waiting: { reason, message } } }],
});
const pulling = waiting("ErrImagePull", "i/o timeout");
const nowhere = { conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable" }] };
const running = { phase: "Running" };

test("each state is told once, however often the API server repeats it", () => {
  const { seen, gone, types } = listening();
  seen({});
  seen(running);
  seen(running);
  gone();
  expect(types()).toEqual(["running", "lost"]);
});

test("the end of what we remove is no loss; of another pod with its name it is", () => {
  const { teller, seen, gone, types } = listening();
  seen(running);
  teller.expect("sb-1");
  seen(running, { deletionTimestamp: "2026-01-01T00:00:00Z" });
  gone();
  expect(types()).toEqual(["running"]);
  seen(running, { uid: "uid-2" });
  expect(types()).toEqual(["running", "running"]);
});

test("a pull is retried for its patience, and the last text is what is told", () => {
  jest.useFakeTimers();
  const { seen, told } = listening();
  seen(pulling);
  jest.advanceTimersByTime(PATIENCE.imageRetryMs - 1);
  seen(waiting("ImagePullBackOff", "back-off: i/o timeout"));
  expect(told).toEqual([]);
  jest.advanceTimersByTime(1);
  expect(told).toMatchObject([{ type: "failed", code: "image_error", reason: "image" }]);
  expect(told[0]).toHaveProperty("message", expect.stringContaining("ImagePullBackOff"));
});

test("trouble that passes is never told", () => {
  jest.useFakeTimers();
  const { seen, types } = listening();
  seen(nowhere);
  jest.advanceTimersByTime(PATIENCE.unschedulableMs - 1);
  seen({ conditions: [{ type: "PodScheduled", status: "True" }] });
  jest.advanceTimersByTime(PATIENCE.unschedulableMs);
  seen(running);
  expect(types()).toEqual(["running"]);
});

test("patience with the scheduler is not spent on the pull that follows", () => {
  jest.useFakeTimers();
  const { seen, types } = listening();
  seen(nowhere);
  jest.advanceTimersByTime(PATIENCE.unschedulableMs - 1);
  seen(pulling);
  jest.advanceTimersByTime(PATIENCE.imageRetryMs - 1);
  expect(types()).toEqual([]);
  jest.advanceTimersByTime(1);
  expect(types()).toEqual(["failed"]);
});

test("what has failed is not lost as well", () => {
  const { seen, gone, types } = listening();
  seen(waiting("InvalidImageName", ""));
  gone({ phase: "Pending" });
  expect(types()).toEqual(["failed"]);
});

test("after close nothing is told, and no timer keeps the process", () => {
  jest.useFakeTimers();
  const { teller, seen, told } = listening();
  seen(nowhere);
  teller.close();
  jest.advanceTimersByTime(PATIENCE.unschedulableMs * 2);
  expect(told).toEqual([]);
});
