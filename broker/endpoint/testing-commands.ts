// For tests of commands: a sandbox for each test of a file, whose commands the test itself plays.
import { afterAll, afterEach, beforeAll, beforeEach } from "bun:test";
import { throwIfError } from "../contract/index.ts";
import type { Link } from "../link/link.ts";
import { type TestServer, testServer } from "../server/testing.ts";
import type { EndpointOptions } from "./endpoint.ts";
import { type Booted, boot, newId, PoolDouble, type Scripted, TENANT, until } from "./testing.ts";

export const MiB = 1024 * 1024;
export const argv = ["x"];

export interface Played extends Booted {
  readonly server: TestServer;
  /** Whoever asks it. */
  readonly user: Link;
  /** The last of so many commands, as soon as they have begun. */
  begun(count?: number): Promise<Scripted>;
  /** Everything published before has been handled. */
  settled(): Promise<unknown>;
}

/** Beside all tests of the file; each has a sandbox of its own. */
export function playedSandbox(more: Partial<EndpointOptions> = {}): Played {
  let server: TestServer;
  let user: Link;
  let box: Booted;
  beforeAll(async () => {
    server = await testServer();
    const pool = await PoolDouble.start(server);
    pool.grants = newId();
    user = await server.user(TENANT, "ann");
  });
  afterAll(() => server.close());
  beforeEach(async () => {
    box = await boot(server, user, more);
  });
  afterEach(() => box.endpoint.close());
  return {
    get server() {
      return server;
    },
    get user() {
      return user;
    },
    get endpoint() {
      return box.endpoint;
    },
    get executor() {
      return box.executor;
    },
    get caller() {
      return box.caller;
    },
    get sandbox() {
      return box.sandbox;
    },
    async begun(count = 1) {
      await until("the command", () => box.executor.commands.length >= count);
      return box.executor.last;
    },
    settled: () => box.caller.ask("ping"),
  };
}

/** "answered", or the error's code, reason and what it says of the command. */
export const codeOf = async (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "answered",
    (error: { code: string; started?: string; reason?: string }) =>
      [error.code, error.reason, error.started].filter((part) => part !== undefined).join(" "),
  );

/** An error that came as the last frame. */
export const frameError = async (last: Promise<Record<string, unknown>>): Promise<string> =>
  codeOf(last.then((frame) => throwIfError(frame)));
