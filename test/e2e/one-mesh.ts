// What the tests of the command line share: a mesh for all tests of a file.
import { afterAll, beforeAll, expect, setDefaultTimeout } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LocalMesh, localMesh, PROGRAM_WORDS, type Ran, run } from "./program.ts";

/** One mesh, and one folder of its own, for all tests of a file. */
export interface Here extends Pick<LocalMesh, "home" | "url" | "credentials" | "sandmesh" | "sandmeshWith"> {
  scratch: string;
  /** A line of bash in which `sandmesh` is the program. */
  line(script: string): Promise<Ran>;
  /** The id of a sandbox that is kept. */
  acquired(): Promise<string>;
}

export function onOneMesh(): Here {
  // Each command is a process, on a machine that others use; where a test is late, Bun ends the mesh of all others too.
  setDefaultTimeout(60_000);
  let mesh: LocalMesh | undefined;
  let scratch = "";
  const there = (): LocalMesh => {
    if (mesh === undefined) throw new Error("no mesh is up");
    return mesh;
  };
  beforeAll(async () => {
    mesh = await localMesh();
    scratch = await mkdtemp(join(tmpdir(), "sandmesh-cli-"));
  });
  afterAll(async () => {
    await mesh?.[Symbol.asyncDispose]();
    await rm(scratch, { recursive: true, force: true });
  });
  return {
    get home() {
      return there().home;
    },
    get url() {
      return there().url;
    },
    get credentials() {
      return there().credentials;
    },
    get scratch() {
      return scratch;
    },
    sandmesh: (...args) => there().sandmesh(...args),
    sandmeshWith: (options, ...args) => there().sandmeshWith(options, ...args),
    line: (script) =>
      run(["bash", "-c", `sandmesh() { ${PROGRAM_WORDS} "$@"; }; ${script}`], {
        env: { SANDMESH_HOME: there().home },
      }),
    async acquired() {
      const { stdout, code, stderr } = await there().sandmesh("acquire", "host");
      expect({ code, stderr }).toMatchObject({ code: 0 });
      return stdout.trim();
    },
  };
}
