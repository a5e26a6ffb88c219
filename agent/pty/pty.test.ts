// Commands with a terminal.
import { beforeAll, describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import type { Commands } from "../exec/exec.ts";
import { alive, begin, run, testCommands, until } from "../exec/testing.ts";

let commands: Commands;
beforeAll(async () => {
  commands = await testCommands();
});
const pty = { rows: 24, cols: 80 };
const bytes = (text: string): Uint8Array => Buffer.from(text);

describe("a terminal", () => {
  test("is the controlling one, has its size and TERM", async () => {
    const ended = await run(commands, {
      shell: "tty; stty size < /dev/tty; echo $TERM; exit 9",
      pty: { ...pty, rows: 31 },
    });
    expect(ended.text).toMatch(/^\/dev\/pts\/\d+\r\n31 80\r\nxterm-256color\r\n$/);
    expect(ended.outcome).toEqual({ type: "exited", code: 9 });
  });

  test("passes input, and Ctrl-C interrupts what is in front", async () => {
    const running = begin(commands, { argv: ["bash", "--norc", "-i"], pty, env: { PS1: "prompt> " } });
    await running.until("prompt> ");
    await running.command.stdin(bytes("sleep 67\n"));
    await until("sleep is in front", async () => {
      const [pid] = await running.command.background();
      const stat = await Bun.file(`/proc/${pid}/stat`)
        .text()
        .catch(() => "");
      const [name, group, front] = [stat.split(" ")[1], stat.split(" ")[4], stat.split(" ")[7]];
      return name === "(sleep)" && group === front;
    });
    await running.command.stdin(bytes("\x03"));
    await until("sleep is gone", async () => (await running.command.background()).length === 0);
    await running.command.stdin(bytes("echo a$((40+2))b\n"));
    await running.until("a42b");
    await running.command.stdin(bytes("exit 5\n"));
    expect((await running.ended).outcome).toEqual({ type: "exited", code: 5 });
  });

  test("has job control: Ctrl-Z stops what is in front, and it goes on behind the shell or in front again", async () => {
    const running = begin(commands, { argv: ["bash", "--norc", "-i"], pty, env: { PS1: "prompt> " } });
    await running.until("prompt> ");
    const program = "sh -c 'echo begun=$$=; read line; echo got \"$line\"'\n";
    await running.command.stdin(bytes(program));
    await running.until("begun=");
    await until("it reads", () => /begun=\d+=/.test(running.stdout().toString()));
    const pid = Number(/begun=(\d+)=/.exec(running.stdout().toString())?.[1]);
    const state = async () => (await Bun.file(`/proc/${pid}/stat`).text()).split(") ")[1]?.[0];
    await running.command.stdin(bytes("\x1a"));
    await until("it is stopped", async () => (await state()) === "T");
    // Behind the shell it may not read, and is stopped for that again.
    await running.command.stdin(bytes("bg; echo shell $((40 + 2))\n"));
    await running.until("shell 42");
    await until("it is stopped", async () => (await state()) === "T");
    await running.command.stdin(bytes("fg\n"));
    await until("it is in front", async () => (await state()) === "S");
    await running.command.stdin(bytes("typed\n"));
    await running.until("got typed");
    await running.command.stdin(bytes("exit 5\n"));
    expect((await running.ended).outcome).toEqual({ type: "exited", code: 5 });
  });

  test("serves a program of the whole screen: its keys, its size and a new one, and what it draws", async () => {
    const file = `/tmp/pty-test-${process.pid}`;
    const running = begin(commands, { argv: ["busybox", "vi", file], pty: { rows: 12, cols: 60 } });
    // Its last line says where it is, on the terminal's last row.
    await running.until(`\x1b[12;1H\x1b[K- ${file} 1/1`);
    running.command.resize(20, 60);
    await running.until(`\x1b[20;1H\x1b[K- ${file} 1/1`);
    await running.command.stdin(bytes("ione\rtwo"));
    await running.until("\x1b[2;1Htwo");
    await running.command.stdin(bytes("\x1b"));
    await running.until(`\x1b[K- ${file} [Modified] 2/2`);
    await running.command.stdin(bytes("kdd:wq\r"));
    expect((await running.ended).outcome).toEqual({ type: "exited", code: 0 });
    expect(await Bun.file(file).text()).toBe("two\n");
    rmSync(file);
  });

  test("tells the program of a new size", async () => {
    const line = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.02; done";
    const running = begin(commands, { argv: ["bash", "-c", line], pty });
    await running.until("up");
    running.command.resize(50, 132);
    expect((await running.ended).text).toContain("50 132");
  });

  test("the end of input is seen by what reads it", async () => {
    const running = begin(commands, { argv: ["cat"], pty });
    await running.command.stdin(bytes("line\n"));
    running.command.closeStdin();
    const ended = await running.ended;
    expect(ended.outcome).toEqual({ type: "exited", code: 0 });
    expect(ended.text.replaceAll("\r", "")).toBe("line\nline\n");
  });

  test("hangs up at the end: what still uses it gets SIGHUP", async () => {
    const ended = await run(commands, { shell: "sleep 68 & echo $!", pty });
    const pid = Number(ended.text);
    expect(pid).toBeGreaterThan(0);
    await until("the background is gone", async () => !(await alive(pid)));
  });

  test("is hung up as a closed one: its shell and what that runs end, what was to survive that goes on", async () => {
    const running = begin(commands, { argv: ["bash", "--norc", "-i"], pty, env: { PS1: "prompt> " } });
    await running.until("prompt> ");
    const line = "setsid sh -c 'echo kept=$$=; exec sleep 69' & sleep 70 & echo ends=$!=; wait\n";
    await running.command.stdin(bytes(line));
    const pidOf = (name: string) =>
      Number(new RegExp(`${name}=(\\d+)=`).exec(running.stdout().toString())?.[1]);
    await until("both run", () => pidOf("kept") > 0 && pidOf("ends") > 0);
    running.command.hangUp?.();
    expect((await running.ended).outcome).toMatchObject({ type: "signaled", signal: "SIGHUP" });
    await until("what the shell ran is gone", async () => !(await alive(pidOf("ends"))));
    expect(await alive(pidOf("kept"))).toBe(true);
    process.kill(pidOf("kept"));
  });

  test("hung up while nobody reads and input waits, ends all the same", async () => {
    const running = begin(commands, { shell: "stty raw; echo up; yes", pty });
    await running.until("up");
    running.command.pause(true);
    let taken = false;
    const input = running.command.stdin(new Uint8Array(1024 * 1024)).then(() => {
      taken = true;
    });
    running.command.hangUp?.();
    await running.ended;
    await input;
    expect(taken).toBe(true);
  });

  test("all output before the end is there", async () => {
    for (let i = 0; i < 10; i++) {
      const ended = await run(commands, {
        shell: "i=0; while [ $i -lt 2000 ]; do echo line$i; i=$((i+1)); done",
        pty,
      });
      expect(ended.text.split("\r\n").length).toBe(2001);
    }
  });

  test("belongs to the command's user", async () => {
    const ended = await run(commands, { shell: "tty >/dev/null && echo mine > $(tty)", pty, user: "65534" });
    expect(ended.text).toBe("mine\r\n");
  });
});
