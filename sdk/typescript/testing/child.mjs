// A user's program, for tests of what happens around a process: run by Bun against the sources and by Node against
// the built package. `SDK=<module> <bun|node> child.mjs <scenario>`; it prints one line of JSON for each step.
const { connect } = await import(process.env.SDK);

const say = (step, more = {}) => process.stdout.write(`${JSON.stringify({ step, ...more })}\n`);
const block = (ms) => {
  const until = Date.now() + ms;
  while (Date.now() < until);
};

const scenarios = {
  /** All is closed in the orderly way. */
  async close() {
    const mesh = await connect();
    await mesh.acquireMany(3, { image: "host" });
    say("acquired");
    await mesh.close();
    say("closed");
  },
  /** The program forgets to release, and ends. */
  async exit() {
    const mesh = await connect();
    await mesh.acquireMany(3, { image: "host" });
    say("acquired");
    process.exit(3);
  },
  async exception() {
    const mesh = await connect();
    await mesh.acquireMany(3, { image: "host" });
    say("acquired");
    throw new Error("the program's own");
  },
  /** Until a signal comes. */
  async wait() {
    const mesh = await connect({ lease: process.env.LEASE ?? "60s" });
    await mesh.run("one").acquireMany(2, { image: "host" });
    await mesh.acquire({ image: "host" });
    say("acquired");
    await new Promise(() => undefined);
  },
  /** A handler of the program's own decides. */
  async handler() {
    const mesh = await connect();
    const box = await mesh.acquire({ image: "host" });
    process.on("SIGTERM", async () => {
      say("handled", { lost: box.lost !== undefined });
      await mesh.close();
      process.exit(5);
    });
    say("acquired");
    await new Promise(() => undefined);
  },
  /** The event loop stands still for longer than the lease. */
  async blocked() {
    const mesh = await connect({ lease: process.env.LEASE });
    const box = await mesh.acquire({ image: "host" });
    say("acquired", { sandbox: box.id });
    block(Number(process.env.BLOCK_MS));
    const views = await mesh.list();
    say("blocked", { states: views.map((view) => view.state), lost: box.lost?.message });
    await mesh.close();
    say("closed");
  },
  /** One of each of the main things. */
  async core() {
    const mesh = await connect();
    const box = await mesh.acquire({ image: "host" });
    const hello = await box.exec("echo hello; echo oops >&2; exit 3");
    say("exec", { code: hello.exitCode, stdout: hello.stdout.text, stderr: hello.stderr.text });
    let streamed = "";
    for await (const chunk of box.stream(["echo", "streamed"])) streamed += chunk.text;
    say("stream", { streamed });
    await box.files.write("child.bin", new Uint8Array([0xff, 0, 0x0d, 0x0a]));
    say("files", { bytes: [...(await box.files.read("child.bin"))] });
    const failure = await box.files.read("/tmp/sandmesh-nothing").catch((error) => error);
    say("error", { code: failure.code, reason: failure.reason });
    await mesh.close();
    say("closed");
  },
};

await scenarios[process.argv[2]]();
