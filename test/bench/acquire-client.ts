// One client process of `bench acquire`: connects, says so, and at the word acquires N sandboxes at once and runs a
// no-op in each. Then it reports, waits for the end of its input, and releases all before it ends.
import { connect } from "../../sdk/typescript/mod.ts";

const count = Number(process.argv[2]);
const input = process.stdin[Symbol.asyncIterator]();
const mesh = await connect();
const run = mesh.run();
process.stdout.write("connected\n");
await input.next();
const granted: { sandbox: string; at: number }[] = [];
let lost = 0;
await Promise.all(
  Array.from({ length: count }, async () => {
    try {
      const box = await run.acquire({ image: "simulated", timeout: "10m" });
      await box.exec(["true"], { check: true });
      granted.push({ sandbox: box.id, at: Date.now() });
    } catch (error) {
      lost += 1;
      process.stderr.write(`${String(error)}\n`);
    }
  }),
);
process.stdout.write(`${JSON.stringify({ granted, lost })}\n`);
await input.next();
await run.close();
await mesh.close();
