// Which handler answers which verb: one look-up a request, made once per endpoint.
import {
  type AnswerOf,
  InvalidRequestError,
  newUuidV7,
  type ParsedOf,
  SANDBOX_VERBS,
  type SandboxVerb,
  type Schema,
  UnsupportedError,
} from "../contract/index.ts";
import { giveBlock } from "../link/blocks.ts";
import type { Context, Reply } from "./context.ts";
import type { Downloads } from "./download.ts";
import type { Execution } from "./exec.ts";
import type { Executor, Files, Trees } from "./executor.ts";
import type { Fenced } from "./fence.ts";
import type { Looks } from "./looks.ts";
import { type Uploads, writeWhole } from "./upload.ts";

type Parsed<K extends SandboxVerb> = ParsedOf<(typeof SANDBOX_VERBS)[K]>;
type Answer<K extends SandboxVerb> = AnswerOf<(typeof SANDBOX_VERBS)[K]>;
/** The answer, now or later; undefined where the handler answers by itself, in frames. */
type Handled<A> = A | undefined | Promise<A | undefined>;

export interface Route {
  verb: SandboxVerb;
  schema: Schema;
  /** Whether another life of the daemon may have run what this is about. */
  mayHaveRun: boolean;
  handle(request: Fenced, reply: Reply, bytes: number): Handled<object>;
}

export interface Services {
  context: Context;
  executor: Executor;
  execution: Execution;
  downloads: Downloads;
  uploads: Uploads;
  looks: Looks;
  tenure: { readonly generation: number };
  /** What `info` says beside what the executor knows. */
  about(): { uptime_ms: number; boot_ms: number; image?: string; not_isolated: string[] };
}

type Handlers = {
  [K in SandboxVerb]: (request: Parsed<K>, reply: Reply, bytes: number) => Handled<Answer<K>>;
};

export function routesOf(services: Services): Map<string, Route> {
  const handlers: Handlers = {
    ...aboutHandlers(services),
    ...commandHandlers(services),
    ...sessionHandlers(services),
    ...fileHandlers(services),
    ...transferHandlers(services),
    ...treeHandlers(services),
  };
  const routes = new Map<string, Route>();
  const add = <K extends SandboxVerb>(verb: K): void => {
    const handle: (request: never, reply: Reply, bytes: number) => Handled<object> = handlers[verb];
    routes.set(verb, {
      verb,
      schema: SANDBOX_VERBS[verb].request,
      mayHaveRun: verb === "exec" || verb === "attach",
      // The request was checked by the schema that stands beside it.
      handle: handle as Route["handle"],
    });
  };
  for (const verb of Object.keys(SANDBOX_VERBS)) add(verb as SandboxVerb);
  return routes;
}

const DONE = { done: true } as const;

function aboutHandlers({ context, executor, execution, tenure, about }: Services) {
  const { sandbox, tenant, incarnation } = context;
  return {
    ping: () => ({ sandbox, incarnation, generation: tenure.generation }),
    info: async () => ({
      ...(await executor.info()),
      sandbox,
      tenant,
      incarnation,
      generation: tenure.generation,
      commands_running: execution.commands.runningCount,
      ...about(),
    }),
  } satisfies Partial<Handlers>;
}

function commandHandlers({ execution }: Services) {
  return {
    exec: (request, reply, bytes) => void execution.exec(request, reply, bytes),
    attach: (request, reply) => void execution.attach(request, reply),
    stdin: (request) => execution.stdin(request),
    signal: ({ id, signal }) => execution.signal(id, signal),
    cancel: ({ id }) => execution.cancel(id),
    resize: ({ id, rows, cols }) => execution.resize(id, rows, cols),
    commands: () => execution.list(),
  } satisfies Partial<Handlers>;
}

function sessionHandlers({ executor: { sessions } }: Services) {
  return {
    session_open: ({ session, shell, cwd, env }) =>
      sessions.open({
        session,
        ...(shell === undefined ? {} : { shell }),
        ...(cwd === undefined ? {} : { cwd }),
        ...(env === undefined ? {} : { env }),
      }),
    session_close: async ({ session }) => ({ closed: await sessions.close(session) }),
    sessions: () => ({ sessions: sessions.list() }),
  } satisfies Partial<Handlers>;
}

/** What a request is about, of all: below its `root`, where it has one. */
const beneath = <Part extends { beneath(root: string): Part }>(all: Part, root: string | undefined): Part =>
  root === undefined ? all : all.beneath(root);

const filesOf =
  ({ files }: Executor) =>
  (root: string | undefined): Files =>
    beneath(files, root);

/** What a transfer's name stands for. */
const targetOf = (verb: string, { path, root }: { path: string; root?: string | undefined }): string =>
  `${verb} ${path}${root === undefined ? "" : `\0${root}`}`;

function fileHandlers({ executor, looks }: Services) {
  const files = filesOf(executor);
  return {
    stat: ({ path, root, follow }) => files(root).stat(path, follow),
    list: ({ path, root, after, limit, transfer }, reply) =>
      looks.run(reply, transfer, (signal) => files(root).list(path, after, limit, signal)),
    remove: async ({ path, root, recursive, missing_ok, transfer }, reply) => {
      await looks.run(reply, transfer, (signal) => files(root).remove(path, recursive, missing_ok, signal));
      return DONE;
    },
    mkdir: ({ path, root, mode, parents }) =>
      files(root)
        .mkdir(path, mode, parents)
        .then(() => DONE),
    rename: ({ from, to, root }) =>
      files(root)
        .rename(from, to)
        .then(() => DONE),
  } satisfies Partial<Handlers>;
}

function transferHandlers({ executor, downloads, uploads, looks }: Services) {
  const files = filesOf(executor);
  return {
    read: async ({ path, root, offset, length, credit_bytes, transfer = newUuidV7() }, reply) => {
      const open = () => files(root).read({ path, offset, ...(length === undefined ? {} : { length }) });
      await downloads.send(reply, transfer, credit_bytes, open);
      return undefined;
    },
    pack: async ({ path, root, credit_bytes, transfer = newUuidV7() }, reply) => {
      await downloads.send(reply, transfer, credit_bytes, () => files(root).pack(path));
      return undefined;
    },
    write: (request) => {
      const { root, transfer, offset, data, last, append } = request;
      const open = () => files(root).write(writeOptions(request));
      if (transfer !== undefined && !append) {
        return uploads
          .part({ transfer, target: targetOf("write", request), offset, data, last, open })
          .then((answer) => {
            giveBlock(data);
            return answer;
          });
      }
      if (offset !== 0 || !last) {
        const field = append ? "append" : "transfer";
        throw new InvalidRequestError(
          `${field}: a write without transfer, or one that appends, has one part`,
          {
            field,
          },
        );
      }
      return writeWhole(data, open);
    },
    unpack: (request) => {
      const { path, root, transfer, offset, data, last, owner } = request;
      const open = () => files(root).unpack(path, owner);
      return uploads.part({ transfer, target: targetOf("unpack", request), offset, data, last, open });
    },
    abort_transfer: async ({ transfer }) => {
      const isLook = looks.abort(transfer);
      // Of a watch perhaps both: it has begun, and who asked is being told so a second time.
      const isWatch = (await executor.trees?.endWatch(transfer)) === true;
      if (!isLook && !isWatch && !downloads.abort(transfer)) await uploads.abort(transfer);
      return DONE;
    },
  } satisfies Partial<Handlers>;
}

function treeHandlers({ executor, looks }: Services) {
  const trees = (root: string | undefined): Trees => {
    if (executor.trees !== undefined) return beneath(executor.trees, root);
    throw new UnsupportedError("this sandbox has no files to look into: it is a simulated one");
  };
  return {
    hash: ({ path, root, transfer }, reply) =>
      looks.run(reply, transfer, (signal) => trees(root).hash(path, signal)),
    attributes: ({ path, root, mode, uid, gid, mtime_ms, follow }) =>
      trees(root)
        .setAttributes({
          path,
          follow,
          ...(mode === undefined ? {} : { mode }),
          ...(uid === undefined ? {} : { uid }),
          ...(gid === undefined ? {} : { gid }),
          ...(mtime_ms === undefined ? {} : { mtimeMs: mtime_ms }),
        })
        .then(() => DONE),
    glob: ({ path, root, pattern, hidden, after, cursor, limit, transfer }, reply) =>
      looks.run(reply, transfer, (signal) => {
        const from = {
          ...(after === undefined ? {} : { after }),
          ...(cursor === undefined ? {} : { cursor }),
        };
        return trees(root).glob({ path, pattern, hidden, limit, signal, ...from });
      }),
    search: ({ path, root, text, ignore_case: ignoreCase, files, hidden, limit, transfer }, reply) =>
      looks.run(reply, transfer, (signal) => {
        const asked = { path, text, ignoreCase, hidden, limit, signal };
        return trees(root).search({ ...asked, ...(files === undefined ? {} : { files }) });
      }),
    watch: ({ path, root, recursive, cursor, wait_ms: waitMs, transfer }, reply) => {
      if (cursor !== undefined) return trees(root).changes({ path, cursor, waitMs });
      return looks.run(reply, transfer, (signal) => {
        const asked = { path, recursive, signal };
        return trees(root).watch({ ...asked, ...(transfer === undefined ? {} : { transfer }) });
      });
    },
  } satisfies Partial<Handlers>;
}

function writeOptions({ path, append, parents, fsync, mode, uid, gid, mtime_ms }: Parsed<"write">) {
  return {
    path,
    append,
    parents,
    fsync,
    ...(mode === undefined ? {} : { mode }),
    ...(uid === undefined ? {} : { uid }),
    ...(gid === undefined ? {} : { gid }),
    ...(mtime_ms === undefined ? {} : { mtimeMs: mtime_ms }),
  };
}
