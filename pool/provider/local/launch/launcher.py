"""The launcher: forks one supervisor a sandbox. A warm Python, since starting one takes longer than all the rest.

On stdin, one plan a line (JSON, launcher.ts); on stdout, one answer a line: {"id", "pid", "start"} or {"id", "error"}.
It ends with its stdin; its supervisors do not, they live as long as their sandbox. A supervisor
 - is the parent of the sandbox's first process, which dies with it;
 - ends it at the latest after `max_life_ms`, whoever else is alive;
 - keeps the last output of the daemon in the sandbox's folder;
 - tells the end in `exits/<sandbox>`, which whoever watches that folder sees."""

import gc
import json
import os
import select
import signal
import sys
import time

import inside
import kernel as k

LAUNCH_DEADLINE_S = 20
LOG_BYTES = 256 * 1024
STEP_MS = 24 * 3600 * 1000


def start_time(pid):
    """Clock ticks after boot: with the pid, an identity that is never used again."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        return int(f.read().rpartition(b")")[2].split()[19])


def write_whole(path, value):
    with open(path + ".new", "w") as f:
        json.dump(value, f)
    os.rename(path + ".new", path)


def identity(pid):
    return {"pid": pid, "start": start_time(pid)}


def map_to_root(uid, gid):
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as f:
            f.write(text)


def read_errors(fd):
    """What the child said before its exec closed the pipe: '+' alone is success."""
    said, until = b"", time.monotonic() + LAUNCH_DEADLINE_S
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while True:
        if not poller.poll(max(0, (until - time.monotonic()) * 1000)):
            return {"kind": "system", "errno": 110, "message": f"no exec within {LAUNCH_DEADLINE_S} s"}
        data = os.read(fd, 4096)
        if not data:
            break
        said += data
    if said == b"+":
        return None
    said = said.lstrip(b"+")
    return json.loads(said) if said else {"kind": "system", "errno": 0, "message": "the first process was killed"}


def launch(plan):
    """Returns (pid, log fd, None) or (None, None, error)."""
    folder = plan["folder"]
    write_whole(f"{folder}/supervisor", identity(os.getpid()))
    uid, gid = os.getuid(), os.getgid()
    k.unshare(k.CLONE_NEWPID | (k.CLONE_NEWUSER if plan["userns"] else 0))
    if plan["userns"]:
        map_to_root(uid, gid)
    errors_r, errors_w = os.pipe()
    log_r, log_w = os.pipe()
    pid = k.fork_into(plan["cgroup_folder"])
    if pid == 0:
        inside.run(plan, errors_w, log_w)
    os.close(errors_w)
    os.close(log_w)
    write_whole(f"{folder}/running", {**identity(pid), "pidns": os.stat(f"/proc/{pid}/ns/pid").st_ino})
    error = read_errors(errors_r)
    os.close(errors_r)
    if error is None:
        return pid, log_r, None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None, None, error


def keep_log(fd, path, size):
    """Copies what there is; begins anew when the file is full. Returns its size, or None at the end."""
    data = os.read(fd, 65536)
    if not data:
        return None
    fresh = size + len(data) > LOG_BYTES
    with open(path, "wb" if fresh else "ab") as f:
        f.write(data)
    return len(data) if fresh else size + len(data)


def attend(plan, pid, log, until):
    """Until the sandbox has ended. Nothing wakes this but output, the end, and the time."""
    pidfd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(log, select.POLLIN)
    size, expired = 0, False
    while True:
        left_ms = (until - time.monotonic()) * 1000
        if left_ms <= 0 and not expired:
            expired = True
            os.kill(pid, signal.SIGKILL)
        ready = [fd for fd, _ in poller.poll(None if expired else min(left_ms, STEP_MS))]
        if log in ready and size is not None:
            size = keep_log(log, f"{plan['folder']}/daemon.log", size)
            if size is None:
                poller.unregister(log)
        elif pidfd in ready:
            _, status = os.waitpid(pid, 0)
            return {"code": os.waitstatus_to_exitcode(status), "expired": expired}


def answer(message):
    """Whether there is still a pool to hear it; the next one finds the sandbox in its folder."""
    try:
        os.write(1, (json.dumps(message) + "\n").encode())
        return True
    except BrokenPipeError:
        return False


def forget(*fds):
    null = os.open("/dev/null", os.O_RDWR)
    for fd in fds:
        os.dup2(null, fd)
    os.close(null)


def supervise(plan):
    until = time.monotonic() + plan["max_life_ms"] / 1000
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    k.set_process_name("sandmesh-box")
    try:
        pid, log, error = launch(plan)
    except OSError as e:
        pid, log = None, None
        error = {"kind": "system", "errno": e.errno or 0, "message": str(e)}
    if error is not None:
        if not answer({"id": plan["id"], "error": error}):
            write_whole(f"{plan['exits']}/{plan['sandbox']}", {"code": 127, "expired": False, "pid": os.getpid()})
        return
    answer({"id": plan["id"], **identity(pid)})
    forget(1, 2)
    end = attend(plan, pid, log, until)
    write_whole(f"{plan['exits']}/{plan['sandbox']}", {**end, "pid": pid})


def main():
    # Supervisors that end are reaped by the kernel; a supervisor sets this back for its own child.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    k.set_process_name("sandmesh-launch")
    gc.collect()
    gc.freeze()  # so that a supervisor's collector does not copy the pages it shares with this process
    for line in sys.stdin.buffer:
        plan = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                forget(0)
                supervise(plan)
            finally:
                os._exit(0)


if __name__ == "__main__":
    main()
