// `sandmesh bench`: what stands behind a benchmark's name is the benchmark's.
import { expect, test } from "bun:test";
import { Command } from "commander";
import { addBench } from "./mesh.ts";

test("options behind the name are not looked for among bench's own", async () => {
  const program = new Command("sandmesh")
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ writeErr: () => {} });
  addBench(program);
  // A name that there is none of, so that nothing is measured: the options were not what was refused.
  const parsing = program.parseAsync(["bench", "none", "--json", "--n", "1"], { from: "user" });
  await expect(parsing).rejects.toThrow(/there is agent, boot/);
});
