// The real daemon in real sandboxes: it reaches NATS through the relay alone, and executes in each kind of image.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { buildDaemon } from "../../../agent/build.ts";
import {
  controlSubject,
  ENROL_WILDCARD,
  EndFrame,
  EnrolRequest,
  encode,
  InfoAnswer,
  parse,
  parseAnswer,
  parseSubject,
  READY_WILDCARD,
  Ready,
  sandboxSubject,
} from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";
import { type TestServer, testServer } from "../../../broker/server/testing.ts";
import { makeBusyboxRoot, makeOciLayout } from "../../../test/images/images.ts";
import { until } from "../contract.test-suite.ts";
import type { ProviderEvent } from "../provider.ts";
import { Cgroups, detect } from "./cgroups.ts";
import { diagnose } from "./diagnose.ts";
import { kill } from "./processes.ts";
import { Bench, relayPid, requestFor, signal } from "./testing.ts";

setDefaultTimeout(120_000);

const SHARED = "isolation of ";
const { enforced } = new Cgroups("sandmesh-test");
const grouped = detect().some(({ version }) => version === 2);

describe.if(process.getuid?.() === 0)("the real daemon", () => {
  let server: TestServer;
  let bench: Bench;
  let pool: Link;
  let user: Link;
  const ready = new Map<string, Ready>();

  beforeAll(async () => {
    const daemonDir = buildDaemon();
    server = await testServer();
    bench = await Bench.make({
      daemonDir,
      daemonArgv: ["/.sandmesh/daemon/sandmesh-agent"],
      natsUrl: `127.0.0.1:${server.port}`,
    });
    [pool, user] = await Promise.all([server.pool(), server.user()]);
    pool.subscribe(ENROL_WILDCARD, (message) => {
      const subject = parseSubject(message.subject);
      if (subject?.kind !== "enrol") return;
      const { public_key: publicKey } = parse(EnrolRequest, message.data);
      const jwt = server.keys.mintSandbox({
        tenant: subject.tenant,
        sandbox: subject.sandbox,
        publicKey,
        ttlMs: 600_000,
      });
      message.respond(encode({ jwt, dead_man_ms: 600_000 }));
    });
    pool.subscribe(READY_WILDCARD, (message) => {
      const subject = parseSubject(message.subject);
      if (subject?.kind !== "event" || subject.scope !== "sandbox") return;
      ready.set(subject.of, parse(Ready, message.data));
      pool.publish(
        controlSubject(subject.tenant, subject.of, "welcome"),
        encode({ version: 1, generation: 1, dead_man_ms: 600_000 }),
      );
    });
    await pool.flush();
  });
  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
    await server.close();
  });

  const start = async (sandbox: string, wish: object) => {
    const request = requestFor(sandbox, wish);
    const { jwt, seed } = server.keys.mintBootstrap({ tenant: "acme", sandbox, ttlMs: 60_000 });
    const urls = [`nats://127.0.0.1:${server.port}`];
    const began = performance.now();
    await bench.provider.create(
      { ...request, bootstrap: { ...request.bootstrap, urls, jwt, seed } },
      signal(),
    );
    await until(`${sandbox} is ready; it said: ${await bench.log(sandbox)}`, () => ready.has(sandbox));
    return performance.now() - began;
  };
  const sh = async (sandbox: string, line: string): Promise<string> => {
    const answer = await user.request(sandbox, sandboxSubject("acme", sandbox, "sh"), Buffer.from(line), {
      timeoutMs: 20_000,
    });
    return Buffer.from(answer.data).toString();
  };

  test("image host: ready, executes, and knows its limits and what it shares", async () => {
    const limits = { memory_bytes: 256 * 1024 * 1024, pids: 200 };
    await start("sb-host", { ...limits, env: { GREETING: "hello" } });
    expect(await sh("sb-host", "echo $GREETING; hostname; id -u; ls /proc/self/ns | wc -l")).toContain(
      "hello\nsb-host\n0\n",
    );
    const answer = await user.request(
      "sb-host",
      sandboxSubject("acme", "sb-host", "info"),
      encode({ version: 1 }),
      { timeoutMs: 20_000 },
    );
    const info = parseAnswer(InfoAnswer, answer.data);
    expect(info.image).toBe("host");
    expect(info.hostname).toBe("sb-host");
    expect(info.not_isolated).toEqual(bench.provider.notIsolated(requestFor("sb-host", limits).spec));
    if (info.memory_limit_bytes !== undefined) expect(info.memory_limit_bytes).toBe(limits.memory_bytes);
  });

  test.if(detect().length > 0)("info tells the cpu that this sandbox has used, and no other", async () => {
    const used = async (): Promise<number> => {
      const asked = sandboxSubject("acme", "sb-cpu", "info");
      const answer = await user.request("sb-cpu", asked, encode({ version: 1 }), { timeoutMs: 20_000 });
      return parseAnswer(InfoAnswer, answer.data).cpu_used_ms ?? Number.NaN;
    };
    await start("sb-cpu", { pids: 200 });
    await start("sb-cpu-other", { pids: 200 });
    const work = "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'";
    const before = await used();
    await sh("sb-cpu-other", work);
    const beside = await used();
    await sh("sb-cpu", work);
    const after = await used();
    expect(after - beside).toBeGreaterThan(500);
    expect(beside - before).toBeLessThan(500);
  });

  test("doctor says of a sandbox that asks for nothing what that says of itself, and no more isolation", async () => {
    const told = (await diagnose(bench.stateDir)).filter(({ check }) => check.startsWith(SHARED));
    const words = told.map(({ check, ok, detail }) => [`${check.slice(SHARED.length)}: ${detail}`, ok]);
    const shared = bench.provider.notIsolated({ image: "host" });
    expect(shared.length).toBeGreaterThan(2);
    expect(words).toEqual(shared.map((each) => [each, false]));
  });

  test("its connection does not go through the relay, which may stand still, and comes again by it", async () => {
    await start("sb-direct", {});
    const relay = await relayPid(bench.stateDir);
    process.kill(relay, "SIGSTOP");
    try {
      expect(await sh("sb-direct", "echo past it")).toBe("past it\n");
    } finally {
      process.kill(relay, "SIGCONT");
    }
    const readyBefore = ready.get("sb-direct");
    ready.delete("sb-direct");
    await server.kill();
    await server.restart();
    await until("it is back", () => ready.has("sb-direct"));
    expect(ready.get("sb-direct")?.incarnation).toBe(readyBefore?.incarnation ?? "");
    process.kill(relay, "SIGSTOP");
    try {
      expect(await sh("sb-direct", "echo past it again")).toBe("past it again\n");
      // Neither the socket nor what it came by is a command's to have.
      expect(await sh("sb-direct", "ls /proc/self/fd | wc -l")).toBe("4\n");
    } finally {
      process.kill(relay, "SIGCONT");
    }
  });

  const exec = async (sandbox: string, request: object): Promise<EndFrame> => {
    const answer = await user.request(
      sandbox,
      sandboxSubject("acme", sandbox, "exec"),
      encode({ version: 1, ...request }),
      { timeoutMs: 20_000 },
    );
    return parseAnswer(EndFrame, answer.data);
  };

  test.if(grouped).each(["0:0", "1234:1234"])(
    "as %s: a time limit ends also who hides, memory is still told, and no way leads to the cgroups that do it",
    async (as) => {
      const sandbox = `sb-tree${as.slice(0, 1)}`;
      const memory_bytes = 96 * 1024 * 1024;
      await start(sandbox, { user: as, memory_bytes, pids: 200 });
      const info = await user.request(
        sandbox,
        sandboxSubject("acme", sandbox, "info"),
        encode({ version: 1 }),
        {
          timeoutMs: 20_000,
        },
      );
      expect(parseAnswer(InfoAnswer, info.data).tree_end).toBe("cgroup");
      const hide = `(setsid env -i /bin/sh -c 'echo $$ > /tmp/hidden; exec sleep 1000' &)
        until [ -s /tmp/hidden ]; do sleep 0.01; done; exec sleep 1000`;
      expect((await exec(sandbox, { shell: hide, timeout_ms: 2000, grace_ms: 0 })).outcome).toMatchObject({
        type: "timed_out",
      });
      expect(await sh(sandbox, "kill -0 $(cat /tmp/hidden) && echo lives")).not.toContain("lives");
      const hungry = ["python3", "-c", "b = bytearray(300 << 20)"];
      if (enforced.has("memory"))
        expect((await exec(sandbox, { argv: hungry, timeout_ms: 20_000 })).outcome).toEqual({
          type: "oom_killed",
          limit_bytes: memory_bytes,
        });
      const ways = `for f in $(find /sys/fs/cgroup -type f) /proc/1/fd/*/cgroup.procs; do echo 1 > $f && echo $f; done 2>/dev/null
        readlink /proc/1/fd/*; ls /proc/self/fd | wc -l; mount -t cgroup2 none /mnt 2>/dev/null && echo mounted; true`;
      const found = await exec(sandbox, { shell: ways, timeout_ms: 20_000, merge: true });
      expect(Buffer.from(found.stdout ?? []).toString()).toBe("4\n");
    },
  );

  test("image of busybox alone", async () => {
    await start("sb-busybox", { image: await makeBusyboxRoot(join(bench.folder, "busybox")) });
    expect(await sh("sb-busybox", "busybox | head -1; echo x > /etc/new && cat /etc/new")).toMatch(
      /BusyBox[\s\S]*x\n/,
    );
  });

  test("image of one file and no shell: ready all the same", async () => {
    const layout = join(bench.folder, "scratch");
    await makeOciLayout(layout, {
      layers: [[{ name: "only", content: "x" }]],
      config: { User: "4321:4321" },
    });
    await start("sb-scratch", { image: layout });
    const answer = await user.request(
      "sb-scratch",
      sandboxSubject("acme", "sb-scratch", "info"),
      encode({ version: 1 }),
      { timeoutMs: 20_000 },
    );
    const info = parseAnswer(InfoAnswer, answer.data);
    expect([info.uid, info.shells]).toEqual([4321, []]);
  });

  test("its credential is not to be read by its commands", async () => {
    await start("sb-secret", {});
    const out = await sh(
      "sb-secret",
      "cat /proc/1/environ /proc/1/cmdline | tr '\\0' '\\n'; env; cat /proc/1/mem; true",
    );
    // Seeds of users begin so (nkeys).
    expect(out).not.toMatch(/SU[A-Z2-7]{56}|SANDMESH_BOOTSTRAP/);
  });

  test("sixteen at once are all ready; killed daemons are lost, and removal leaves nothing", async () => {
    const events: ProviderEvent[] = [];
    bench.provider.watch((event) => events.push(event));
    const names = Array.from({ length: 16 }, (_, i) => `sb-burst${i}`);
    await Promise.all(names.map((name) => start(name, {})));
    expect(new Set(await Promise.all(names.map((name) => sh(name, "hostname"))))).toEqual(
      new Set(names.map((n) => `${n}\n`)),
    );
    await sh("sb-burst0", "(sleep 1000 &) ; setsid sleep 1000 >/dev/null 2>&1 & echo");
    kill(await bench.first("sb-burst0"));
    await until("lost", () => events.some((e) => e.type === "lost" && e.sandbox === "sb-burst0"));
    const listed = await bench.provider.list(signal());
    await Promise.all(listed.map(({ sandbox }) => bench.remove(sandbox)));
    expect(await bench.left()).toEqual([]);
  });
});
