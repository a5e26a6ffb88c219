"""A supervisor's last act: where no pool is there to remove what is left of its sandbox, it does so itself. That a pool is
there is said by a lock, which its launcher holds (LOCK_EX) as long as it lives; who removes holds it, too (LOCK_SH), so
that a pool which starts meanwhile begins with nothing half removed."""

import fcntl
import os
import select
import time

LOCK = "launcher.lock"
# A pool that is there removes by then, as a rule; one that was killed is started again, and its word on the end is better.
GRACE_S = 2
STEP_S = 0.05
GROUPS_S = 1


def open_lock(state):
    """None where the folder is gone, and with it whoever would hold the lock."""
    try:
        return os.open(f"{state}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return None


def take(lock, how):
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def hold_lock(state):
    """The launcher's, for its life. False where its stdin ended before the lock was free."""
    lock = open_lock(state)
    poller = select.poll()
    poller.register(0, 0)
    while lock is not None and not take(lock, fcntl.LOCK_EX):
        if poller.poll(20):
            return False
    return True


def unless_pool(plan, lock):
    """Never returns where it removes: becomes rm(1), since a namespace without its first process forks no more. That the
    lock is held now says nothing yet: the launcher of a pool that was just killed has it for a moment more."""
    until = time.monotonic() + GRACE_S
    while lock is not None and time.monotonic() < until:
        if not os.path.exists(plan["folder"]):
            return  # A pool is removing it.
        time.sleep(STEP_S)
    if lock is None or take(lock, fcntl.LOCK_SH):
        remove(plan, lock)


def remove(plan, lock):
    import shutil  # Here, since it brings much along that each supervisor would carry.

    removing = plan["folder"] + "~"
    try:
        os.rename(plan["folder"], removing)
    except OSError:
        pass
    remove_groups(plan)
    if "relay" in plan["own"]:
        shutil.rmtree(plan["own"]["relay"], ignore_errors=True)
    try:
        os.unlink(f"{plan['exits']}/{plan['sandbox']}")
    except OSError:
        pass
    if lock is not None:
        os.close(lock)
    for rm in ("/bin/rm", "/usr/bin/rm"):
        if os.access(rm, os.X_OK):
            os.execve(rm, ["rm", "-rf", "--one-file-system", "--", removing], {})
    shutil.rmtree(removing, ignore_errors=True)


def remove_groups(plan):
    """The last one's takes the mesh's own with it. The kernel may take a moment to let processes go."""
    groups = [os.path.dirname(tasks) for tasks in plan["cgroup_tasks"]]
    if plan["cgroup_folder"] is not None:
        groups.append(plan["cgroup_folder"])
    until = time.monotonic() + GROUPS_S
    while True:
        for group in groups:
            for path, _, _ in os.walk(group, topdown=False):
                remove_group(path)
        if not any(os.path.exists(group) for group in groups) or time.monotonic() > until:
            break
        time.sleep(STEP_S)
    for group in groups:
        remove_group(os.path.dirname(group))


def remove_group(path):
    try:
        os.rmdir(path)
    except OSError:
        pass  # Not empty yet, or gone.
