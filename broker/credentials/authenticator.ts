// Proves a credential to the server: its JWT, and the key's signature over the server's nonce.
import type { Credentials } from "./creds.ts";
import { type Signer, signerOf } from "./nkeys.ts";

/** What stands in the CONNECT of the NATS protocol. */
export interface Proof {
  jwt: string;
  nkey: string;
  /** base64url, over the nonce. */
  sig: string;
}

/** An authenticator for the npm package `nats`. `current` is asked at each (re)connect, so that a rotated credential
 * takes effect at the next one. Throws InvalidRequestError with field "seed" where that is damaged. */
export function authenticatorFor(current: () => Credentials): (nonce?: string) => Proof {
  let signer: Signer | undefined;
  let seed = "";
  return (nonce = "") => {
    const credentials = current();
    if (signer === undefined || credentials.seed !== seed) {
      signer = signerOf(credentials.seed);
      seed = credentials.seed;
    }
    return {
      jwt: credentials.jwt,
      nkey: signer.publicKey,
      sig: signer.sign(Buffer.from(nonce)).toString("base64url"),
    };
  };
}

/** For a connection's life: what `read` gives at each call, or gave last where it throws, as of a file that is being written
 * anew. Throws what the first call throws. */
export function lastReadable(read: () => Credentials): () => Credentials {
  let last = read();
  return () => {
    try {
      last = read();
    } catch {
      // At the next connection it is read again.
    }
    return last;
  };
}
