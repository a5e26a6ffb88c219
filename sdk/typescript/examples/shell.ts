import { connect } from "../mod.ts";

await using mesh = await connect();
await using box = await mesh.acquire({ image: "host" });

// Folder, variables, functions and background jobs live on from one line to the next.
await using shell = await box.shell();
await shell.exec("cd /usr; greet() { echo hello from $PWD; }");
console.log((await shell.exec("greet")).stdout.text.trim());
