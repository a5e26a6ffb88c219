// nkeys: the text form of Ed25519 keys that NATS uses (a prefix byte, the key, a CRC-16, in base 32), on node:crypto.
// The stock library (tweetnacl) costs 5 to 10 ms of CPU a signature; this costs 0.02 ms.
import { createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign, verify } from "node:crypto";
import { InvalidRequestError } from "../contract/core.ts";

/** Whose key it is; the letter that the public key starts with. */
export type KeyType = "operator" | "account" | "user";

/** Prefix bytes, chosen by NATS so that base 32 shows the letters O, A and U. */
const PREFIX: Record<KeyType, number> = { operator: 14 << 3, account: 0, user: 20 << 3 };
const SEED_PREFIX = 18 << 3;
const KEY_BYTES = 32;

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const VALUE_OF = new Int8Array(128).fill(-1);
for (let i = 0; i < ALPHABET.length; i++) VALUE_OF[ALPHABET.charCodeAt(i)] = i;

/** RFC 4648 base 32 without padding. */
export function base32(bytes: Uint8Array): string {
  let text = "";
  let bits = 0;
  let value = 0;
  for (let i = 0; i < bytes.length; i++) {
    value = ((value & 0x1f) << 8) | (bytes[i] ?? 0);
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET.charAt((value >>> bits) & 31);
    }
    value &= (1 << bits) - 1;
  }
  return bits > 0 ? text + ALPHABET.charAt((value << (5 - bits)) & 31) : text;
}

/** The bytes of unpadded base 32, or undefined where it is none: each byte string has one spelling only. */
export function fromBase32(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(Math.floor((text.length * 5) / 8));
  let bits = 0;
  let value = 0;
  let at = 0;
  for (let i = 0; i < text.length; i++) {
    const digit = VALUE_OF[text.charCodeAt(i)] ?? -1;
    if (digit < 0) return undefined;
    value = (value << 5) | digit;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = (value >>> bits) & 0xff;
      value &= (1 << bits) - 1;
    }
  }
  return bits < 5 && value === 0 ? bytes : undefined;
}

/** What each byte does to the checksum: a table, since a pool mints thousands of keys a second. */
const CRC_OF = new Uint16Array(256);
// Each from that of half its byte, in one step in place of eight: each start makes it.
for (let byte = 1; byte < 256; byte++) {
  const half = CRC_OF[byte >> 1] ?? 0;
  CRC_OF[byte] = (half << 1) ^ ((half >> 15) ^ (byte & 1) ? 0x1021 : 0);
}

/** CRC-16/XMODEM (polynomial 0x1021), as nkeys append it, low byte first. */
export function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (let i = 0; i < bytes.length; i++) {
    crc = ((crc << 8) & 0xffff) ^ (CRC_OF[(crc >>> 8) ^ (bytes[i] ?? 0)] ?? 0);
  }
  return crc;
}

function withChecksum(body: Uint8Array): string {
  const raw = Buffer.alloc(body.length + 2);
  raw.set(body);
  raw.writeUInt16LE(crc16(body), body.length);
  return base32(raw);
}

/** The bytes before a valid checksum; `bytes` is their expected count. */
function checked(text: string, bytes: number, field: string, what: string): Buffer {
  const raw = typeof text === "string" && text.length < 128 ? fromBase32(text) : undefined;
  // The text itself may be a secret, so that no message quotes it.
  if (raw?.length !== bytes + 2) throw new InvalidRequestError(`${field} is not ${what}`, { field });
  const buffer = Buffer.from(raw.buffer, raw.byteOffset, raw.length);
  const body = buffer.subarray(0, bytes);
  if (crc16(body) !== buffer.readUInt16LE(bytes)) {
    throw new InvalidRequestError(`${field} is damaged: its checksum does not match`, { field });
  }
  return body;
}

function typeOf(prefix: number): KeyType | undefined {
  return (Object.keys(PREFIX) as KeyType[]).find((type) => PREFIX[type] === prefix);
}

/** A public key's type and 32 bytes; throws InvalidRequestError naming `field`. */
export function decodePublicKey(text: string, field = "public_key"): { type: KeyType; raw: Uint8Array } {
  const body = checked(text, 1 + KEY_BYTES, field, "a public nkey");
  const type = typeOf(body[0] ?? -1);
  if (type === undefined) throw new InvalidRequestError(`${field} is not a public nkey`, { field });
  return { type, raw: body.subarray(1) };
}

function decodeSeed(seed: string, field: string): { type: KeyType; raw: Uint8Array } {
  const body = checked(seed, 2 + KEY_BYTES, field, "an nkey seed (it starts with S)");
  const [first = 0, second = 0] = body;
  const type = typeOf(((first & 7) << 5) | (second >>> 3));
  if ((first & 0xf8) !== SEED_PREFIX || type === undefined) {
    throw new InvalidRequestError(`${field} is not an nkey seed (it starts with S)`, { field });
  }
  return { type, raw: body.subarray(2) };
}

/** DER that goes before the 32 bytes of an Ed25519 key (RFC 8410). */
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const SPKI = Buffer.from("302a300506032b6570032100", "hex");

function privateKey(raw: Uint8Array): KeyObject {
  return createPrivateKey({ key: Buffer.concat([PKCS8, raw]), format: "der", type: "pkcs8" });
}

function publicText(type: KeyType, key: KeyObject): string {
  const raw = createPublicKey(key).export({ format: "der", type: "spki" }).subarray(SPKI.length);
  return withChecksum(Buffer.concat([Buffer.of(PREFIX[type]), raw]));
}

/** A key that can sign. */
export interface Signer {
  readonly type: KeyType;
  readonly publicKey: string;
  sign(data: Uint8Array): Buffer;
}

/** Throws InvalidRequestError naming `field` (default "seed"). */
export function signerOf(seed: string, field = "seed"): Signer {
  const { type, raw } = decodeSeed(seed, field);
  const key = privateKey(raw);
  return { type, publicKey: publicText(type, key), sign: (data) => sign(null, data, key) };
}

/** A new random seed. */
export function createSeed(type: KeyType): string {
  return seedText(type, randomBytes(KEY_BYTES));
}

function seedText(type: KeyType, raw: Uint8Array): string {
  const prefix = PREFIX[type];
  const head = Buffer.of(SEED_PREFIX | (prefix >>> 5), (prefix & 31) << 3);
  return withChecksum(Buffer.concat([head, raw]));
}

/** A new user's key: what a daemon makes for itself, and sends only the public half of. */
export function createUserKey(): { publicKey: string; seed: string } {
  const raw = randomBytes(KEY_BYTES);
  return { publicKey: publicText("user", privateKey(raw)), seed: seedText("user", raw) };
}

/** The public key of a seed; throws InvalidRequestError with field "seed". */
export function publicKeyOf(seed: string): string {
  return signerOf(seed).publicKey;
}

/** Whether `signature` over `data` is by the holder of `publicKey`; throws where that is not a public nkey. */
export function verifySignature(publicKey: string, data: Uint8Array, signature: Uint8Array): boolean {
  const { raw } = decodePublicKey(publicKey);
  const key = createPublicKey({ key: Buffer.concat([SPKI, raw]), format: "der", type: "spki" });
  return verify(null, data, key, signature);
}
