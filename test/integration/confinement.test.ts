// What a command in a sandbox, as its root, can and cannot reach of its own daemon, of other sandboxes and of the mesh.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { connect, type Mesh, type Sandbox } from "../../sdk/typescript/mod.ts";
import { type LocalMesh, localMesh } from "../e2e/program.ts";

let mesh: LocalMesh;
let client: Mesh;
let box: Sandbox;
let other: Sandbox;
beforeAll(async () => {
  mesh = await localMesh();
  client = await connect({ url: mesh.url, credentials: mesh.credentials, handleSignals: false });
  [box, other] = await Promise.all([client.acquire({ image: "host" }), client.acquire({ image: "host" })]);
  await other.exec("echo secret-of-another > /root/secret; sleep 4321 > /dev/null 2>&1 &");
});
afterAll(async () => {
  await client.close();
  await mesh[Symbol.asyncDispose]();
});

const port = () => new URL(mesh.url).port;
const said = async (line: string, where = box) => {
  const { stdout, stderr } = await where.exec(line, { timeout: "20s" });
  return stdout.text + stderr.text;
};

describe("the daemon of a command's own sandbox", () => {
  test("shows neither memory, environment nor descriptors, also to root", async () => {
    expect(await said("id -u")).toBe("0\n");
    for (const what of ["environ", "mem", "maps", "auxv"]) {
      expect([what, (await box.exec(`head -c 1 /proc/1/${what} > /dev/null`)).ok]).toEqual([what, false]);
    }
    const opened = await said("for f in /proc/1/fd/*; do readlink $f || head -c 1 $f; done 2> /dev/null");
    expect(opened).toBe("");
    const attach = `python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.ptrace(16, 1, 0, 0), ctypes.get_errno())'`;
    expect(await said(attach)).toBe("-1 1\n");
  });

  test("hands no command its bootstrap, credential or descriptors", async () => {
    const env = await said("env");
    expect(env).not.toMatch(/SANDMESH_BOOTSTRAP|eyJ|-----BEGIN/);
    expect((await said("ls /proc/self/fd | wc -w")).trim()).toMatch(/^[34]$/);
    const found = await said(
      "grep -rlsE 'SU[A-Z2-7]{56}' /proc/*/environ /proc/*/cmdline /.sandmesh/relay /tmp /run",
    );
    expect(found).toBe("");
  });

  test("survives its commands' SIGKILL and SIGSTOP", async () => {
    await said("kill -9 1; kill -STOP 1; true");
    expect(await said("echo on")).toBe("on\n");
  });

  test("ends by SIGTERM, as the first process of a pod must: a loss, and not a command's result", async () => {
    const third = await client.acquire({ image: "host" });
    const { promise: lost, resolve } = Promise.withResolvers<Error>();
    third.onLost(resolve);
    await third.exec("kill -TERM 1; sleep 60").catch(() => undefined);
    expect(await lost).toMatchObject({ code: "sandbox_lost" });
  });
});

describe("the mesh", () => {
  test("is not reached by its port, and by the relay only as a stranger", async () => {
    expect((await box.exec(`exec 3<>/dev/tcp/127.0.0.1/${port()}`)).ok).toBe(false);
    const stranger = `
import socket
s = socket.socket(socket.AF_UNIX); s.connect("/.sandmesh/relay/nats.sock"); s.settimeout(5)
s.sendall(b'CONNECT {"verbose":false}\\r\\nSUB > 1\\r\\nPUB sbx.v1.default.x.sh 2\\r\\nid\\r\\nPING\\r\\n')
got = b""
while True:
    try: more = s.recv(4096)
    except OSError: break
    if not more: break
    got += more
print(got.decode())
`;
    await box.files.write("/tmp/stranger.py", stranger);
    const answer = await said("python3 /tmp/stranger.py");
    expect(answer).toContain("INFO");
    expect(answer).toMatch(/-ERR 'Authorization Violation'/i);
    expect(answer).not.toContain("MSG");
  });

  test("hands its connection to the daemon alone: a command gets none, and finds none of the daemon's", async () => {
    const ask = `
import socket
s = socket.socket(socket.AF_UNIX); s.connect("/.sandmesh/relay/dial.sock"); s.settimeout(20)
data, fds, _, _ = socket.recv_fds(s, 100, 4)
print("handed over" if data or fds else "nothing")
`;
    await box.files.write("/tmp/ask.py", ask);
    expect(await said("python3 /tmp/ask.py")).toBe("nothing\n");
    expect(await said("exec python3 /tmp/ask.py")).toBe("nothing\n");
    expect((await box.exec("ls /proc/1/fd/ && readlink /proc/1/fd/*")).ok).toBe(false);
    expect(await said("find /proc/self/fd/ -type l -printf '%l\\n' | grep -c socket; true")).toBe("0\n");
  });

  test("its keys and credentials cannot be seen", async () => {
    const secret = readFileSync(mesh.credentials, "utf8").match(/SU[A-Z2-7]{40,}/)?.[0] ?? "none";
    expect(secret).not.toBe("none");
    const { home } = mesh;
    for (const file of [mesh.credentials, `${home}/operator.creds`, `${home}/pool/keys.json`]) {
      expect([file, existsSync(file), (await box.exec(["cat", file])).ok]).toEqual([file, true, false]);
    }
    expect(await said(`ls -A ${mesh.home} 2>/dev/null | wc -l`)).toBe("0\n");
  });
});

describe("other sandboxes and the machine", () => {
  test("their processes cannot be seen or signaled", async () => {
    const processes = await said("ps -eo args=");
    expect(processes).not.toMatch(/sleep 4321|nats-server|supervisor\.ts|pool\/main\.ts/);
    expect((await said("ls -d /proc/[0-9]* | wc -l")).trim()).toMatch(/^\d$/);
  });

  test("their files cannot be read", async () => {
    expect((await box.exec("cat /root/secret")).ok).toBe(false);
    expect(await said("ls -A /.sandmesh")).toBe("daemon\nrelay\n");
    expect(await said("ls -A /.sandmesh/relay")).toBe("dial.sock\nnats.sock\n");
  });

  test("what is below the sandbox is not undone: no mount, device, module or kernel setting", async () => {
    for (const line of [
      "umount /proc/sys",
      "mount -t tmpfs x /mnt",
      "mount -o remount,rw /.sandmesh/daemon",
      "mknod /tmp/disk b 254 0 && head -c 512 /tmp/disk",
      "echo x > /proc/sysrq-trigger",
      "echo 1 > /proc/sys/kernel/core_pattern",
      "touch /.sandmesh/daemon/x",
      "chroot / unshare -m true && nsenter -t 1 -m true",
      "dmesg",
    ]) {
      expect([line, (await box.exec(line)).ok]).toEqual([line, false]);
    }
  });

  test("what is deleted in one is there in the other and on the machine", async () => {
    expect((await box.exec("rm -rf /tmp/* /etc/passwd /usr/bin/env; echo mine > /root/secret")).ok).toBe(
      true,
    );
    expect(existsSync("/etc/passwd") && existsSync("/usr/bin/env")).toBe(true);
    expect(await said("cat /root/secret", other)).toBe("secret-of-another\n");
    expect(await said("echo on")).toBe("on\n");
  });
});

test("with the machine's network NATS is reached, and refuses who has no credential", async () => {
  await using open = await client.acquire({ image: "host", network: "host" });
  const line = `exec 3<>/dev/tcp/127.0.0.1/${port()}; printf 'CONNECT {}\\r\\nPING\\r\\n' >&3; timeout 5 cat <&3`;
  const answer = await said(`bash -c "${line.replaceAll('"', '\\"').replaceAll("$", "\\$")}"`, open);
  expect(answer).toMatch(/-ERR 'Authorization Violation'/i);
});
