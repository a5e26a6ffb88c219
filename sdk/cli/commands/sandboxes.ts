// acquire, ps, release, renew: sandboxes and runs.
import { type Command, Option } from "commander";
import {
  InvalidRequestError,
  NotFoundError,
  type SandmeshError,
  toSandmeshError,
} from "../../../broker/contract/index.ts";
import { printError, statusOf, withMesh } from "../context.ts";
import { EXIT } from "../exit.ts";
import { SANDBOX_HELP } from "../help.ts";
import { forgetContexts, forgetContextsBut } from "../nats-contexts.ts";
import { counted, dim, duration, stateColor, table } from "../output.ts";
import { acquireOptions, addSpecOptions, IMAGE_HELP, namingImage, type SpecFlags, warn } from "../spec.ts";
import { parseLease, parseSome } from "../units.ts";

/** A person's sandbox outlives the command that acquired it; nobody renews it meanwhile. */
const KEPT_LEASE_MS = 3_600_000;

export function addAcquire(program: Command): void {
  addSpecOptions(program.command("acquire").argument("<image>", IMAGE_HELP), "1h")
    .summary("acquire a sandbox and keep it")
    .description(
      "Acquires a sandbox and prints its id. It lives for its lease (default 1h): `renew` it, or it is reclaimed. With --count all of them or none, of one run: an id a line; with --json a list. What cannot be printed is released.",
    )
    .option("-n, --count <n>", "so many, at once", parseSome)
    .action(async (image: string, flags: SpecFlags & { count?: number }, command: Command) => {
      await withMesh(command, async ({ mesh, output, signal }) => {
        const { count, ...spec } = flags;
        const options = { lease: KEPT_LEASE_MS, ...acquireOptions(image, spec), signal };
        const acquired =
          count === undefined ? mesh.acquire(options).then((box) => [box]) : mesh.acquireMany(count, options);
        const boxes = await namingImage(image, acquired);
        for (const box of boxes) warn(output, box);
        const grants = boxes.map((box) => ({ sandbox: box.id, ...box.grant }));
        await output.result(count === undefined ? grants[0] : grants, boxes.map((box) => box.id).join("\n"));
        // Only now: what could not be named would live for its lease, and nobody could end it.
        for (const box of boxes) box.detach();
        const ready = boxes.flatMap(({ grant }) => (grant === undefined ? [] : [grant.timeline.ready_ms]));
        const run = boxes[0]?.grant?.run;
        if (run !== undefined) output.note(dim(`ready after ${duration(Math.max(...ready))}, run ${run}`));
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
      await withMesh(command, async ({ mesh, settings, output }) => {
        const all = await mesh.list(flags.run === undefined ? {} : { run: flags.run });
        const ids = all.map((box) => box.sandbox);
        if (flags.run === undefined) forgetContextsBut(settings, ids);
        const rows = all.map((box) => [
          box.sandbox,
          stateColor(box.state)(box.state),
          box.image,
          box.run ?? "",
          duration(box.age_ms),
          box.expires_in_ms === undefined ? "" : duration(Math.max(0, box.expires_in_ms)),
          box.reason ?? "",
        ]);
        const text = table(["=SANDBOX", "STATE", "IMAGE", "=RUN", ">AGE", ">LEASE", "REASON"], rows);
        if (flags.ids === true) await output.result(ids, ids.join("\n"));
        else await output.result(all, text);
        return 0;
      });
    });
}

export function addRelease(program: Command): void {
  program
    .command("release")
    .argument("[sandbox...]", SANDBOX_HELP)
    .summary("end sandboxes")
    .description(
      "Ends sandboxes, and returns when they are gone and verified so. Exits with 3 where one, or the run, never was. --json: what was released, and what was not and why, in `results`.",
    )
    .option("--run <id>", "end all of this run")
    .addOption(new Option("--all", "end all of the tenant's").conflicts("run"))
    .action(async (names: string[], flags: { run?: string; all?: boolean }, command: Command) => {
      if (flags.all === true && names.length > 0)
        command.error("error: --all ends all sandboxes of the tenant: name none with it");
      await withMesh(command, async ({ mesh, output }) => {
        if (names.length === 0 && flags.run === undefined && flags.all !== true) {
          throw new InvalidRequestError("name sandboxes, or --run, or --all", { field: "sandbox" });
        }
        const of = flags.all === true ? {} : flags.run === undefined ? undefined : { run: flags.run };
        const others = of === undefined ? [] : (await mesh.list(of)).map(({ sandbox }) => sandbox);
        // Each sandbox is ended, and counted, once: as one of the run's where it is.
        const ids = [...new Set(names)].filter((id) => !others.includes(id));
        const orders: Order[] = ids.map((sandbox) => ({ sandbox, mustExist: true }));
        if (flags.run !== undefined) orders.push({ run: flags.run, mustExist: true });
        if (flags.all === true) orders.push(...others.map((sandbox) => ({ sandbox })));
        const results = await Promise.all(
          orders.map(async ({ mustExist = false, ...what }): Promise<Result> => {
            try {
              return { ...what, released: await mesh.release(what, { mustExist }) };
            } catch (thrown) {
              return { ...what, released: 0, error: toSandmeshError(thrown) };
            }
          }),
        );
        const failed = results.flatMap(({ error }) => (error === undefined ? [] : [error]));
        forgetContexts([...ids, ...others]);
        const released = results.reduce((sum, each) => sum + each.released, 0);
        const told = results.map(({ error, ...rest }) =>
          error === undefined ? rest : { ...rest, error: error.toWire() },
        );
        await output.result({ released, results: told }, `released ${released}`);
        for (const error of failed) printError(error, false);
        const [first] = failed;
        return first === undefined ? EXIT.ok : statusOf(first);
      });
    });
}

type Order = ({ sandbox: string } | { run: string }) & { mustExist?: boolean };
type Result = ({ sandbox: string } | { run: string }) & { released: number; error?: SandmeshError };

export function addRenew(program: Command): void {
  program
    .command("renew")
    .argument("<sandbox or run>", "its id; `ps` lists both")
    .summary("give a run more time")
    .description("Renews a run, and with it all its sandboxes; a sandbox's id stands for its run.")
    .option("--lease <duration>", "from now on; default 1h", parseLease)
    .action(async (name: string, flags: { lease?: number }, command: Command) => {
      await withMesh(command, async ({ mesh, output }) => {
        const box = (await mesh.list({})).find((each) => each.sandbox === name);
        const lease = flags.lease ?? KEPT_LEASE_MS;
        const answer = await mesh.renew(box?.run ?? name, lease).catch(async (error: unknown) => {
          // A sandbox's own name is no run's: what became of it is known to whoever asks it.
          if (error instanceof NotFoundError && name.startsWith("sb-")) await mesh.sandbox(name).ping();
          throw error;
        });
        await output.result(
          answer,
          `renewed ${answer.run} for ${duration(answer.lease_ms)} (${counted(answer.sandboxes, "sandbox")})`,
        );
        return 0;
      });
    });
}
