// For tests: a sandbox that the test itself plays, over real connections, and a mesh whose way to it can be cut.
import { decode, encode, type Frame, type WireError } from "../../../broker/contract/index.ts";
import { testMesh } from "../../../pool/testing/mesh.ts";
import { cuttable } from "../../../test/cuttable.ts";
import { connectTo } from "./harness.ts";

export const SANDBOX = "sb-played";
export type Answer = Frame | { error: WireError } | Record<string, unknown>;
export interface Asked {
  verb: string;
  id: string;
  /** By which it can be taken back. */
  transfer: string | undefined;
  /** Whose place it takes. */
  reader: string | undefined;
  /** Where it is answered. */
  reply: string;
  /** All of it. */
  body: Record<string, unknown>;
}

/** `script` says what each question is answered with; where it is undefined, by nothing. */
export async function played(script: (asked: Asked) => Answer[] | undefined) {
  const pool = await testMesh();
  const daemon = await pool.server.connect(pool.server.sandboxCredentials("acme", SANDBOX));
  const asked: Asked[] = [];
  daemon.subscribe(`sbx.v1.acme.${SANDBOX}.*`, ({ subject, data, reply }) => {
    const body = decode(data);
    const { id, transfer, reader } = body as { id: string; transfer?: string; reader?: string };
    const one = { verb: subject.split(".").at(-1) ?? "", id, transfer, reader, reply: reply ?? "", body };
    asked.push(one);
    if (reply !== undefined) for (const answer of script(one) ?? []) daemon.publish(reply, encode(answer));
  });
  await daemon.flush();
  // Of what is cut the sandbox sees nothing: it is there when the mesh asks again.
  const way = await cuttable(pool.server.port);
  const mesh = await connectTo(pool.server, { url: way.url });
  const dispose = async () => {
    await mesh.close();
    await way[Symbol.asyncDispose]();
    await daemon.close();
    await pool[Symbol.asyncDispose]();
  };
  const answer = (reply: string, body: Answer) => daemon.publish(reply, encode(body));
  return { mesh, asked, answer, cut: way.cut, [Symbol.asyncDispose]: dispose };
}
