import { describe, expect, test } from "bun:test";
import { nkeys } from "nats/lib/nats-base-client/nkeys.js";
import { InvalidRequestError, SandmeshError } from "../contract/index.ts";
import {
  authenticatorFor,
  base32,
  crc16,
  createSeed,
  createUserKey,
  decodeJwt,
  decodePublicKey,
  formatCreds,
  fromBase32,
  identityOf,
  parseCreds,
  publicKeyOf,
  signerOf,
  signJwt,
  verifySignature,
} from "./index.ts";

function userJwt(seed: string, tags = ["role:user", "tenant:acme", "user:ann"]) {
  const issuer = signerOf(createSeed("account"));
  return signJwt({ subject: publicKeyOf(seed), name: "ann", nats: { type: "user", tags } }, issuer);
}

/** A generator of the same numbers each time, so that a failure can be looked at again. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

describe("nkeys", () => {
  test("are those of the stock library, both ways (and RFC 4648, and CRC-16/XMODEM)", () => {
    expect(base32(Buffer.from("foobar"))).toBe("MZXW6YTBOI");
    expect(crc16(Buffer.from("123456789"))).toBe(0x31c3);
    for (let i = 0; i < 8; i++) {
      const theirs = nkeys.createUser();
      const seed = Buffer.from(theirs.getSeed()).toString();
      expect(publicKeyOf(seed)).toBe(theirs.getPublicKey());
      const data = Buffer.from(`nonce ${i}`);
      expect(Buffer.from(theirs.sign(data))).toEqual(signerOf(seed).sign(data));
      const ours = createUserKey();
      expect(nkeys.fromSeed(Buffer.from(ours.seed)).getPublicKey()).toBe(ours.publicKey);
    }
  });

  test("of all kinds sign what their public key verifies", () => {
    for (const type of ["operator", "account", "user"] as const) {
      const signer = signerOf(createSeed(type));
      expect(signer.publicKey).toMatch(type === "operator" ? /^O/ : type === "account" ? /^A/ : /^U/);
      expect(decodePublicKey(signer.publicKey).type).toBe(type);
      const data = Buffer.from("nonce");
      expect(verifySignature(signer.publicKey, data, signer.sign(data))).toBe(true);
      expect(verifySignature(signer.publicKey, Buffer.from("other"), signer.sign(data))).toBe(false);
    }
  });

  test("base 32 has one spelling for each byte string", () => {
    const next = random(1);
    for (let n = 0; n < 300; n++) {
      const bytes = Uint8Array.from({ length: n % 40 }, () => next() * 256);
      expect(fromBase32(base32(bytes))).toEqual(bytes);
    }
    expect(fromBase32("MZXW6YTBOJ")).toBeUndefined(); // stray bits
    expect(fromBase32("MZXW6YTBO")).toBeUndefined(); // an impossible length
    expect(fromBase32("mzxw6")).toBeUndefined();
  });
});

test("a .creds file is read as it was written", () => {
  const { seed } = createUserKey();
  const credentials = { jwt: userJwt(seed), seed };
  expect(parseCreds(formatCreds(credentials))).toEqual(credentials);
  expect(parseCreds(formatCreds(credentials).replaceAll("\n", "\r\n"))).toEqual(credentials);
});

test("an identity is what the tags say, with its expiry in milliseconds", () => {
  const { seed, publicKey } = createUserKey();
  const issuer = signerOf(createSeed("account"));
  const jwt = signJwt(
    {
      subject: publicKey,
      name: "x",
      expiresAtMs: 1_999_999_999_001,
      nats: { type: "user", tags: ["role:sandbox", "tenant:acme", "sandbox:sb-1"] },
    },
    issuer,
  );
  expect(identityOf(jwt)).toEqual({
    role: "sandbox",
    tenant: "acme",
    user: undefined,
    sandbox: "sb-1",
    publicKey,
    expiresAtMs: 2_000_000_000_000,
  });
  expect(() => identityOf(userJwt(seed, ["role:root"]))).toThrow(InvalidRequestError);
});

test("an authenticator uses the credential of the moment", () => {
  const [first, second] = [createUserKey(), createUserKey()];
  let current = { jwt: userJwt(first.seed), seed: first.seed };
  const authenticator = authenticatorFor(() => current);
  for (const key of [first, second]) {
    current = { jwt: userJwt(key.seed), seed: key.seed };
    const proof = authenticator("nonce");
    expect(proof.jwt).toBe(current.jwt);
    expect(proof.nkey).toBe(key.publicKey);
    expect(verifySignature(key.publicKey, Buffer.from("nonce"), Buffer.from(proof.sig, "base64url"))).toBe(
      true,
    );
  }
});

describe("bad input names the field", () => {
  const { seed, publicKey } = createUserKey();
  const jwt = userJwt(seed);
  const good = formatCreds({ jwt, seed });
  const fieldOf = (act: () => unknown): string | undefined => {
    try {
      act();
    } catch (error) {
      if (error instanceof InvalidRequestError) return error.field;
      throw error;
    }
    return "nothing was thrown";
  };

  test("in keys, JWTs and files", () => {
    expect(fieldOf(() => publicKeyOf(""))).toBe("seed");
    expect(fieldOf(() => publicKeyOf(publicKey))).toBe("seed");
    expect(fieldOf(() => publicKeyOf(`${seed.slice(0, -1)}${seed.endsWith("A") ? "B" : "A"}`))).toBe("seed");
    expect(fieldOf(() => decodePublicKey(seed))).toBe("public_key");
    expect(fieldOf(() => decodeJwt("a.b"))).toBe("jwt");
    expect(fieldOf(() => decodeJwt("a.b.c"))).toBe("jwt");
    expect(fieldOf(() => parseCreds(""))).toBe("credentials");
    expect(fieldOf(() => parseCreds(good.replace("USER NKEY SEED", "SOMETHING")))).toBe("credentials");
    expect(fieldOf(() => parseCreds(formatCreds({ jwt, seed: createUserKey().seed })))).toBe("seed");
    expect(fieldOf(() => parseCreds(formatCreds({ jwt: `${jwt.slice(0, -4)}AAAA`, seed })))).toBe("jwt");
  });

  test("and no message holds a secret", () => {
    const other = createUserKey().seed;
    for (const text of [other.slice(0, -1), `${other}A`, other.toLowerCase()]) {
      try {
        publicKeyOf(text);
        throw new Error("a damaged seed was taken");
      } catch (error) {
        expect(error).toBeInstanceOf(InvalidRequestError);
        expect(String(error)).not.toContain(text);
      }
    }
  });

  test("whatever is damaged, with no other kind of error", () => {
    const next = random(7);
    const damage = (text: string): string => {
      const at = Math.floor(next() * text.length);
      const noise = String.fromCharCode(Math.floor(next() * (next() < 0.8 ? 128 : 0x3000)));
      const how = next();
      if (how < 0.3) return text.slice(0, at) + text.slice(at + 1);
      if (how < 0.6) return text.slice(0, at) + noise + text.slice(at);
      if (how < 0.9) return text.slice(0, at) + noise + text.slice(at + 1);
      return text.slice(0, at);
    };
    const readers: [(text: string) => unknown, string][] = [
      [parseCreds, good],
      [publicKeyOf, seed],
      [decodeJwt, jwt],
      [identityOf, jwt],
      [decodePublicKey, publicKey],
    ];
    let refused = 0;
    for (let i = 0; i < 4_000; i++) {
      const [read, text] = readers[i % readers.length] ?? [parseCreds, good];
      let damaged = text;
      for (let hits = 0; hits <= i % 3; hits++) damaged = damage(damaged);
      try {
        read(damaged);
      } catch (error) {
        refused++;
        if (!(error instanceof SandmeshError)) throw error;
      }
    }
    expect(refused).toBeGreaterThan(3_000);
  });
});
