// For tests: a file system that does not answer.
import { expect } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Hanging extends AsyncDisposable {
  readonly place: string;
  /** A file in it that answers no read, and may be run. */
  readonly stuck: string;
  /** All that waits for it fails. */
  end(): void;
}

/** Mounts one for `seconds` at most, also where this thread itself waits for it then. undefined where FUSE may not be mounted:
 * there is nothing to be seen. */
export async function mountHanging(seconds: number): Promise<Hanging | undefined> {
  const place = mkdtempSync(join(tmpdir(), "sandmesh-stuck-"));
  const fixture = join(import.meta.dir, "hanging.fixture.py");
  const server = Bun.spawn(["timeout", "-s", "KILL", String(seconds), "python3", fixture, place], {
    stdout: "pipe",
    stderr: "ignore",
  });
  const hanging: Hanging = {
    place,
    stuck: join(place, "stuck"),
    end: () => server.kill("SIGTERM"),
    async [Symbol.asyncDispose]() {
      server.kill("SIGTERM");
      await server.exited;
      Bun.spawnSync(["umount", "--lazy", place]);
      rmSync(place, { recursive: true, force: true });
    },
  };
  const first = await server.stdout.getReader().read();
  if (first.value !== undefined) return hanging;
  await hanging[Symbol.asyncDispose]();
  expect(existsSync("/dev/fuse") && process.getuid?.() === 0).toBe(false);
  return undefined;
}
