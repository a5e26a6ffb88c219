// kubernetes credentials, user, images: what the chart needs that Helm cannot make.
import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { writePrivate } from "../../broker/credentials/private-file.ts";
import { withOutput } from "../../sdk/cli/context.ts";
import { addHelp } from "../../sdk/cli/help.ts";
import { dim } from "../../sdk/cli/output.ts";
import { parseDuration } from "../../sdk/cli/units.ts";
import { writeText } from "../../sdk/typescript/files/local-write.ts";
import { meshSecrets, mintUser } from "../kubernetes/credentials.ts";
import { buildImages, IMAGE_NAMES } from "../kubernetes/images.ts";

const STATE = "./mesh-keys";

export function addKubernetes(program: Command): void {
  const kubernetes = program
    .command("kubernetes")
    .summary("what a mesh on Kubernetes needs beside its chart: credentials and images")
    .description(
      "What a mesh on Kubernetes needs beside its Helm chart (deploy/chart): credentials and images.",
    );
  addCredentials(kubernetes);
  addUser(kubernetes);
  addImages(kubernetes);
  addHelp(kubernetes);
}

interface CredentialsFlags {
  state: string;
  release: string;
  namespace: string;
  tls: boolean;
  host?: string[];
}

function addCredentials(kubernetes: Command): void {
  kubernetes
    .command("credentials")
    .summary("print the Secrets that the chart expects, for kubectl apply -f -")
    .description(
      "Prints the Secrets that the chart expects, for `kubectl apply -f -`. The keys behind them are made once and kept in the folder of --state: whoever has it owns the mesh; it never enters the cluster.",
    )
    .option("--state <folder>", "where the keys are kept", STATE)
    .option("--release <name>", "of the chart", "sandmesh")
    .option("--namespace <name>", "of the release", "sandmesh")
    .option(
      "--no-tls",
      "no certificates: for tls.enabled=false, or where cert-manager makes <release>-nats-tls",
    )
    .addOption(
      new Option("--host <name or address>", "by which clients reach NATS, too (again for more)")
        .argParser(collect)
        // It stands in the certificate alone.
        .conflicts("tls"),
    )
    .action(async (flags: CredentialsFlags, command: Command) => {
      await withOutput(command, (output) => {
        const { state: stateDir, release, namespace, tls, host: hosts = [] } = flags;
        const log = (line: string) => output.note(line);
        const items = meshSecrets({ stateDir, release, namespace, tls, hosts, log });
        const list = { apiVersion: "v1", kind: "List", items };
        return output.result(list, JSON.stringify(list, null, 2));
      });
    });
}

const collect = (text: string, soFar: string[] = []): string[] => [...soFar, text];

function addUser(kubernetes: Command): void {
  kubernetes
    .command("user")
    .argument("<tenant>", "whose sandboxes it sees")
    .argument("<user>", "the name of who holds it")
    .summary("make a trainer's credential, or an operator's: a .creds file")
    .description(
      "Makes a trainer's credential, a .creds file with a private key: its sandboxes are the tenant's. An operator's may drain the pool as well (`sandmesh drain`). With --out it is written, readable by its owner alone; else printed.",
    )
    .option("--operator", "of who runs the pool: it may drain it, which concerns all tenants")
    .option("--out <file>", "write it there, with mode 0600")
    .option("--state <folder>", "where the keys are kept", STATE)
    .option("--ttl <duration>", "how long it is good, such as 30d; default for ever", parseDuration)
    .action(async (tenant: string, user: string, flags: UserFlags, command: Command) => {
      await withOutput(command, async (output) => {
        const ttl = flags.ttl === undefined ? {} : { ttlMs: flags.ttl };
        const credentials = mintUser({
          stateDir: flags.state,
          tenant,
          user,
          operator: flags.operator === true,
          ...ttl,
        });
        if (flags.out === undefined) return output.result({ credentials }, credentials.trimEnd());
        await writeText(flags.out, credentials, undefined, writePrivate);
        await output.result({ path: resolve(flags.out) }, "");
      });
    });
}

interface UserFlags {
  state: string;
  operator?: true;
  ttl?: number;
  out?: string;
}

function addImages(kubernetes: Command): void {
  kubernetes
    .command("images")
    .argument("<folder>", "for the archives; made where it is missing")
    .summary("build the pool's and the daemon's images, without a container engine")
    .description(
      "Builds the images of the pool and of the daemon as docker archives, without a container engine. Bring them to your registry with `docker load` and `docker push`, or skopeo.",
    )
    .action(async (folder: string, _flags: unknown, command: Command) => {
      await withOutput(command, async (output) => {
        const paths = await buildImages(folder);
        const rows = Object.entries(paths).map(([name, path]) => `${path}  ${IMAGE_NAMES[name as "pool"]}`);
        await output.result({ images: IMAGE_NAMES, paths }, rows.join("\n"));
        output.note(dim("docker load -i FILE, then docker tag and push to your registry"));
      });
    });
}
