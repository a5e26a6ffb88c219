"""The launcher: forks one supervisor a sandbox. A warm Python, since starting one takes longer than all the rest.

On stdin, one plan a line (JSON, launcher.ts); on stdout "ready", then one answer a line: {"id", "pid", "start"} or
{"id", "error"}.
It ends with its stdin; its supervisors do not, they live as long as their sandbox. A supervisor
 - is the parent of the sandbox's first process, which dies with it;
 - ends it at the latest after `max_life_ms`, whoever else is alive;
 - keeps the last output of the daemon in the sandbox's folder;
 - tells the end in `exits/<sandbox>`, which whoever watches that folder sees;
 - removes what is left where no pool is there to do it (leave.py).
Of a supervisor that is killed the launcher tells the end (attend.py), also of one that a launcher before it forked."""

import gc
import json
import os
import resource
import select
import signal
import sys
import time

import attend
import inside
import kernel as k
import leave
import oom
from files import identity, write_whole

LAUNCH_DEADLINE_S = 20
LOG_BYTES = 256 * 1024
STEP_MS = 24 * 3600 * 1000


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


def await_end(plan, pid, log, until):
    """Until the sandbox has ended. Nothing wakes this but output, kills for memory, the end, and the time."""
    pidfd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(log, select.POLLIN)
    kills = oom.Kills(plan["cgroup_oom"], poller)
    size, expired = 0, False
    while True:
        left_ms = (until - time.monotonic()) * 1000
        if left_ms <= 0 and not expired:
            expired = True
            os.kill(pid, signal.SIGKILL)
        ready = [fd for fd, _ in poller.poll(None if expired else kills.next_ms(min(left_ms, STEP_MS)))]
        kills.look()
        if log in ready and size is not None:
            size = keep_log(log, f"{plan['folder']}/daemon.log", size)
            if size is None:
                poller.unregister(log)
        elif pidfd in ready:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            return {"code": code, "expired": expired, "oom": code == -signal.SIGKILL and kills.was_now()}


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


def supervise(plan, state):
    lock = leave.open_lock(state)
    until = time.monotonic() + plan["max_life_ms"] / 1000
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    k.set_process_name("sandmesh-box")
    try:
        pid, log, error = launch(plan)
    except OSError as e:
        pid, log = None, None
        error = {"kind": "system", "errno": e.errno or 0, "message": str(e)}
    if error is None:
        answer({"id": plan["id"], **identity(pid)})
        forget(1, 2)
        end = {**await_end(plan, pid, log, until), "pid": pid}
    elif answer({"id": plan["id"], "error": error}):
        return
    else:
        end = {"code": 127, "expired": False, "pid": os.getpid()}
    write_whole(f"{plan['exits']}/{plan['sandbox']}", end)
    leave.unless_pool(plan, lock)


def fork_supervisor(plan, state, limits):
    """Its pid. None of the launcher's descriptors beside the first three goes with it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.closerange(3, limits[1])
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            forget(0)
            supervise(plan, state)
            status = 0
        finally:
            os._exit(status)
    return pid


def main():
    state = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    k.set_process_name("sandmesh-launch")
    # A descriptor a sandbox; its own processes have what they would have.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    if not leave.hold_lock(state):
        return
    supervisors = attend.Supervisors(state)
    supervisors.adopt()
    gc.collect()
    gc.freeze()  # so that a supervisor's collector does not copy the pages it shares with this process
    try:
        os.write(1, b"ready\n")
    except BrokenPipeError:
        return
    for line in supervisors.lines():
        plan = json.loads(line)
        supervisors.add(plan["sandbox"], fork_supervisor(plan, state, limits))


if __name__ == "__main__":
    main()
