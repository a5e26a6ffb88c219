import { connect } from "../mod.ts";

// The same without `await using` (plain JavaScript in Node 20).
const mesh = await connect();
try {
  const box = await mesh.acquire({ image: "host" });
  const result = await box.exec(["uname", "-s"], { check: true }); // throws CommandFailedError unless it exits with 0
  console.log(result.stdout.text.trim());
} finally {
  await mesh.close(); // releases all that was acquired, and waits until it is gone
}
