import { connect } from "../mod.ts";

await using mesh = await connect();
// A run's sandboxes are renewed together, and closing it ends them all at once.
await using run = mesh.run();
const boxes = await run.acquireMany(4, { image: "host", timeout: "5m", lease: "30s" });
const answers = await Promise.all(boxes.map((box, i) => box.exec(`echo $((${i} * ${i}))`)));
console.log(answers.map((answer) => answer.stdout.text.trim()).join(" "));
