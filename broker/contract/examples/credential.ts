// A credentials file, its keys and a signature, with fixed keys: what each SDK must read and sign alike. The keys
// are of no server.
import { createPrivateKey, createPublicKey, sign } from "node:crypto";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
/** nkey prefixes: seed (18), user (20), account (0); NATS ADR-14. */
const SEED = 18 << 3;
const USER = 20 << 3;
const ACCOUNT = 0;

/** Base 32 of RFC 4648 without padding. */
function base32(bytes: Uint8Array): string {
  let out = "";
  let bits = 0;
  let held = 0;
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += ALPHABET.charAt((held >> bits) & 31);
    }
  }
  return bits > 0 ? out + ALPHABET.charAt((held << (5 - bits)) & 31) : out;
}

/** CRC-16/XMODEM, little endian behind the key (ADR-14). */
function withChecksum(bytes: Uint8Array): Uint8Array {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let i = 0; i < 8; i++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return Buffer.concat([bytes, Uint8Array.of(crc & 0xff, crc >> 8)]);
}

function keyPair(first: number) {
  const raw = Uint8Array.from({ length: 32 }, (_, i) => (first + i) & 0xff);
  const secret = createPrivateKey({ key: Buffer.concat([PKCS8, raw]), format: "der", type: "pkcs8" });
  const publicRaw = createPublicKey(secret).export({ format: "der", type: "spki" }).subarray(-32);
  return { raw, secret, publicRaw };
}

const publicKey = (prefix: number, raw: Uint8Array): string =>
  base32(withChecksum(Buffer.concat([Uint8Array.of(prefix), raw])));

/** Two prefix bytes, 5 bits of "seed", then the 8 of the kind, then the key. */
const seedOf = (kind: number, raw: Uint8Array): string =>
  base32(withChecksum(Buffer.concat([Uint8Array.of(SEED | (kind >> 5), (kind & 31) << 3), raw])));

const base64url = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

export function credentialVectors() {
  const user = keyPair(0);
  const account = keyPair(100);
  const subject = publicKey(USER, user.publicRaw);
  const issuer = publicKey(ACCOUNT, account.publicRaw);
  const head = base64url({ typ: "JWT", alg: "ed25519-nkey" });
  const claims = {
    jti: "VECTOR",
    iat: 1_700_000_000,
    iss: issuer,
    name: "ann",
    sub: subject,
    nats: { tags: ["role:user", "tenant:default", "user:ann"], type: "user", version: 2 },
  };
  const signed = `${head}.${base64url(claims)}`;
  const jwt = `${signed}.${sign(null, Buffer.from(signed), account.secret).toString("base64url")}`;
  const seed = seedOf(USER, user.raw);
  const creds = [
    "-----BEGIN NATS USER JWT-----",
    jwt,
    "------END NATS USER JWT------",
    "",
    "************************* IMPORTANT *************************",
    "NKEY Seed printed below can be used to sign and prove identity.",
    "NKEYs are sensitive and should be treated as secrets.",
    "",
    "-----BEGIN USER NKEY SEED-----",
    seed,
    "------END USER NKEY SEED------",
    "",
  ].join("\n");
  const nonce = "PXoWU7zWAMt75FY";
  const bad: [name: string, content: string][] = [
    ["an empty file", ""],
    ["no seed", creds.slice(0, creds.indexOf("-----BEGIN USER"))],
    ["no JWT", creds.slice(creds.indexOf("-----BEGIN USER"))],
    ["a seed with a wrong letter", creds.replace(seed, `${seed.slice(0, -3)}AAA`)],
    ["a public key in place of the seed", creds.replace(seed, subject)],
    ["a seed of another key", creds.replace(seed, seedOf(USER, keyPair(50).raw))],
    ["an account's seed", creds.replace(seed, seedOf(ACCOUNT, user.raw))],
    ["a JWT of two parts", creds.replace(jwt, signed)],
    ["a JWT that is none", creds.replace(jwt, "a.b.c")],
    ["a seed cut off", creds.replace(seed, seed.slice(0, 40))],
  ];
  return {
    creds,
    creds_with_crlf: creds.replaceAll("\n", "\r\n"),
    jwt,
    seed,
    public_key: subject,
    account_key: issuer,
    nonce,
    signature: sign(null, Buffer.from(nonce), user.secret).toString("base64url"),
    tenant: "default",
    user: "ann",
    bad: bad.map(([name, content]) => ({ name, creds: content })),
  };
}
