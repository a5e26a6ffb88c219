// A CA of the mesh's own and its NATS servers' certificate, by the openssl program: node:crypto signs no certificates.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import { UnsupportedError } from "../../broker/contract/index.ts";
import { writePrivate } from "../../broker/credentials/private-file.ts";

/** The CA is kept and used again; the servers' certificate is made anew by each call. */
const CA_DAYS = 3650;
const SERVER_DAYS = 825;

export interface ServerCertificate {
  /** PEM, all three. */
  ca: string;
  certificate: string;
  key: string;
}

function openssl(folder: string, args: string[]): void {
  const made = spawnSync("openssl", args, { cwd: folder, encoding: "utf8" });
  if (made.error !== undefined) {
    throw new UnsupportedError(
      "the program openssl is needed to make certificates; or leave them out with --no-tls",
      {
        field: "tls",
        cause: made.error,
      },
    );
  }
  if (made.status !== 0) throw new Error(`openssl ${args[0]}: ${made.stderr}`);
}

const KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** Keeps `ca.key` and `ca.crt` in `stateDir`. `hosts`: names and addresses that servers are reached by. Throws
 * UnsupportedError where there is no openssl. */
export function makeServerCertificate(stateDir: string, hosts: readonly string[]): ServerCertificate {
  const work = mkdtempSync(join(stateDir, ".certificates-"));
  const path = (name: string): string => join(work, name);
  const kept = (name: string): string => join(stateDir, name);
  try {
    if (!existsSync(kept("ca.key")) || !existsSync(kept("ca.crt"))) {
      const extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"];
      openssl(work, [
        ...["req", "-x509", ...KEY, "-keyout", "ca.key", "-out", "ca.crt"],
        ...["-days", String(CA_DAYS), "-subj", "/CN=sandmesh CA"],
        ...extensions.flatMap((each) => ["-addext", each]),
      ]);
      writePrivate(kept("ca.key"), readFileSync(path("ca.key"), "utf8"));
      writePrivate(kept("ca.crt"), readFileSync(path("ca.crt"), "utf8"));
    }
    const names = hosts.map((host) => `${isIP(host) === 0 ? "DNS" : "IP"}:${host}`).join(",");
    // Servers of a cluster are clients of each other.
    const usage = "extendedKeyUsage=serverAuth,clientAuth";
    writeFileSync(path("extensions"), `subjectAltName=${names}\n${usage}\nbasicConstraints=CA:FALSE\n`);
    openssl(work, [
      "req",
      "-new",
      ...KEY,
      "-keyout",
      "tls.key",
      "-out",
      "tls.csr",
      "-subj",
      "/CN=sandmesh NATS",
    ]);
    openssl(work, [
      ...[
        "x509",
        "-req",
        "-in",
        "tls.csr",
        "-CA",
        kept("ca.crt"),
        "-CAkey",
        kept("ca.key"),
        "-out",
        "tls.crt",
      ],
      ...["-set_serial", `0x${crypto.randomUUID().replaceAll("-", "")}`],
      ...["-days", String(SERVER_DAYS), "-extfile", "extensions"],
    ]);
    const read = (file: string): string => readFileSync(file, "utf8");
    return { ca: read(kept("ca.crt")), certificate: read(path("tls.crt")), key: read(path("tls.key")) };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
