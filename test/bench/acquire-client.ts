// One client process of `bench acquire`: connects and says so. At each line `go` it acquires N sandboxes at once, runs a
// no-op in each and reports; at `release` it gives all back and reports; at the end of its input it ends.
import { connect } from "../../sdk/typescript/mod.ts";
import { lines } from "./lines.ts";

const [count = 0, leaseMs = 60_000] = process.argv.slice(2).map(Number);
const mesh = await connect();
const say = (word: object): void => void process.stdout.write(`${JSON.stringify(word)}\n`);

async function acquireAll(run: ReturnType<typeof mesh.run>): Promise<void> {
  const granted: { sandbox: string; at: number }[] = [];
  let lost = 0;
  const one = async (): Promise<void> => {
    try {
      const box = await run.acquire({ image: "simulated", timeout: "30m", lease: leaseMs });
      await box.exec(["true"], { check: true });
      granted.push({ sandbox: box.id, at: Date.now() });
    } catch (error) {
      lost += 1;
      process.stderr.write(`${String(error)}\n`);
    }
  };
  await Promise.all(Array.from({ length: count }, one));
  say({ granted, lost });
}

say({ connected: true });
let run = mesh.run();
for await (const line of lines(Bun.stdin.stream())) {
  if (line === "go") await acquireAll(run);
  if (line === "release") {
    await run.close();
    run = mesh.run();
    say({ released: true });
  }
}
await mesh.close();
