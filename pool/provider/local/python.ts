// Which Python runs the launcher: 3.9 or newer with ctypes; a shim (pyenv, asdf) is seen through, since it costs
// more than the launch.
import { ProviderError } from "../../../broker/contract/index.ts";

const PROBE = "import sys, ctypes, os; os.pidfd_open; print(sys.executable)";
const PROBE_MS = 10_000;
let found: Promise<string> | undefined;

/** Throws ProviderError where there is none. */
export function findPython(): Promise<string> {
  found ??= probe().catch((error: unknown) => {
    found = undefined;
    throw error;
  });
  return found;
}

async function probe(): Promise<string> {
  for (const candidate of ["/usr/bin/python3", "python3", "python"]) {
    try {
      const child = Bun.spawn([candidate, "-I", "-c", PROBE], {
        stdout: "pipe",
        stderr: "ignore",
        stdin: "ignore",
        timeout: PROBE_MS,
        killSignal: "SIGKILL",
      });
      const path = (await new Response(child.stdout).text()).trim();
      if ((await child.exited) === 0 && path.startsWith("/")) return path;
    } catch {
      // Not there.
    }
  }
  throw new ProviderError(
    "the local provider needs Python 3.9 or newer with ctypes as python3; none was found",
    {
      reason: "no_python",
    },
  );
}
