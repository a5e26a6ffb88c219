// acquire, ps, release, renew: sandboxes and runs.
import type { Command } from "commander";
import { InvalidRequestError, toSandmeshError } from "../../../broker/contract/index.ts";
import { printError, withMesh } from "../context.ts";
import { counted, dim, duration, stateColor, table } from "../output.ts";
import { acquireOptions, addSpecOptions, type SpecFlags, warn } from "../spec.ts";
import { parseDuration } from "../units.ts";

/** A person's sandbox outlives the command that acquired it; nobody renews it meanwhile. */
const KEPT_LEASE_MS = 3_600_000;

export function addAcquire(program: Command): void {
  addSpecOptions(program.command("acquire").argument("<image>"))
    .summary("acquire a sandbox and keep it")
    .description(
      "Acquires a sandbox and prints its id. It lives for its lease (default 1h): `renew` it, or it is reclaimed.",
    )
    .action(async (image: string, flags: SpecFlags, command: Command) => {
      await withMesh(command, async ({ mesh, output, signal }) => {
        const box = await mesh.acquire({ lease: KEPT_LEASE_MS, ...acquireOptions(image, flags), signal });
        box.detach();
        warn(output, box);
        output.result({ sandbox: box.id, ...box.grant }, box.id);
        if (box.grant !== undefined) {
          output.note(dim(`ready after ${duration(box.grant.timeline.ready_ms)}, run ${box.grant.run}`));
        }
        return 0;
      });
    });
}

export function addPs(program: Command): void {
  program
    .command("ps")
    .summary("list sandboxes")
    .description("Lists the tenant's sandboxes, also those of other clients.")
    .option("--run <id>", "only those of this run")
    .option("--ids", "print ids only")
    .action(async (flags: { run?: string; ids?: boolean }, command: Command) => {
      await withMesh(command, async ({ mesh, output }) => {
        const all = await mesh.list(flags.run === undefined ? {} : { run: flags.run });
        const rows = all.map((box) => [
          box.sandbox,
          stateColor(box.state)(box.state),
          box.image,
          box.run ?? "",
          duration(box.age_ms),
          box.expires_in_ms === undefined ? "" : duration(Math.max(0, box.expires_in_ms)),
          box.reason ?? "",
        ]);
        const text = table(["SANDBOX", "STATE", "IMAGE", "RUN", ">AGE", ">LEASE", "REASON"], rows);
        output.result(all, flags.ids === true ? all.map((box) => box.sandbox).join("\n") : text);
        return 0;
      });
    });
}

export function addRelease(program: Command): void {
  program
    .command("release")
    .argument("[sandbox...]")
    .summary("end sandboxes")
    .description(
      "Ends sandboxes, and returns when they are gone and verified so. Exits with 3 where one never was.",
    )
    .option("--run <id>", "end all of this run")
    .option("--all", "end all of the tenant's")
    .action(async (ids: string[], flags: { run?: string; all?: boolean }, command: Command) => {
      await withMesh(command, async ({ mesh, output }) => {
        if (ids.length === 0 && flags.run === undefined && flags.all !== true) {
          throw new InvalidRequestError("name sandboxes, or --run, or --all", { field: "sandbox" });
        }
        const named = ids.map((sandbox) => mesh.release({ sandbox }, { mustExist: true }));
        if (flags.run !== undefined) named.push(mesh.release({ run: flags.run }));
        const others = flags.all === true ? (await mesh.list({})).map(({ sandbox }) => sandbox) : [];
        const all = await Promise.allSettled([
          ...named,
          ...others.map((sandbox) => mesh.release({ sandbox })),
        ]);
        const released = all.reduce((sum, each) => sum + (each.status === "fulfilled" ? each.value : 0), 0);
        const failed = all.flatMap((each) =>
          each.status === "rejected" ? [toSandmeshError(each.reason)] : [],
        );
        const [first] = failed;
        if (first === undefined) {
          output.result({ released }, `released ${released}`);
          return 0;
        }
        output.note(`released ${released}`);
        for (const error of failed.slice(1)) printError(error, false);
        throw first;
      });
    });
}

export function addRenew(program: Command): void {
  program
    .command("renew")
    .argument("<sandbox or run>")
    .summary("give a run more time")
    .description("Renews a run, and with it all its sandboxes; a sandbox's id stands for its run.")
    .option("--lease <duration>", "from now on; default 1h", parseDuration)
    .action(async (name: string, flags: { lease?: number }, command: Command) => {
      await withMesh(command, async ({ mesh, output }) => {
        const box = (await mesh.list({})).find((each) => each.sandbox === name);
        const answer = await mesh.renew(box?.run ?? name, flags.lease ?? KEPT_LEASE_MS);
        output.result(
          answer,
          `renewed ${answer.run} for ${duration(answer.lease_ms)} (${counted(answer.sandboxes, "sandbox")})`,
        );
        return 0;
      });
    });
}
