// From clone to exec. The child's memory is the daemon's own until then, so: system calls, and nothing else.
#include "engine.h"
#include <sched.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

int failed(struct launch *l, int stage) {
  l->stage = stage;
  l->error = errno;
  return 127;
}

static int try_exec(struct launch *l, const char *path) {
  struct stat st;
  execve(path, l->argv, l->envp);
  int e = errno;
  if (stat(path, &st) == 0) {
    if (e == ENOENT) l->detail = D_INTERPRETER;
    if (e == EACCES && (!S_ISREG(st.st_mode) || !(st.st_mode & 0111))) l->detail = D_NOT_EXECUTABLE;
  }
  return errno = e;
}

static int search_exec(struct launch *l) {
  const char *file = l->argv[0], *path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  if (strchr(file, '/')) return try_exec(l, file);
  size_t length = strlen(file);
  int denied = 0;
  char full[4096 + 256];
  for (char **e = l->envp; *e; e++)
    if (!strncmp(*e, "PATH=", 5)) path = *e + 5;
  if (length == 0 || length > 255) return errno = length ? ENAMETOOLONG : ENOENT;
  for (const char *p = path;; p++) {
    size_t n = strcspn(p, ":");
    if (n < 4096) {
      memcpy(full, p, n);
      if (n) full[n++] = '/';
      memcpy(full + n, file, length + 1);
      int e = try_exec(l, full);
      if (l->detail == D_INTERPRETER || (e != ENOENT && e != ENOTDIR && e != EACCES)) return errno = e;
      if (e == EACCES) denied = 1;
    }
    p += strcspn(p, ":");
    if (!*p) return errno = denied ? EACCES : ENOENT;
  }
}

/** When the sandbox' memory is used up, the kernel shall end commands, and not the daemon, which is no smaller than most
 * of them by its file pages. Raising the score needs no right. */
static int offer_to_oom_killer(const char *path) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  int done = write(fd, "1000", 4) == 4;
  close(fd);
  return done;
}

/** Its own become 0, 1, 2 and so on, and no other stays. */
static int take_descriptors(struct launch *l) {
  // Above them first where they are not, so that none is overwritten while it is still a source.
  int *child = l->c->child, fd[6], n = l->c->flags & GIVEN ? 6 : l->spare ? 4 : 3;
  for (int i = 0; i < n; i++)
    if ((fd[i] = child[i]) < n && (fd[i] = fcntl(child[i], F_DUPFD_CLOEXEC, n)) < 0) return -1;
  for (int i = 0; i < n; i++)
    if (dup2(fd[i], i) < 0) return -1;
#ifdef SYS_close_range
  syscall(SYS_close_range, (unsigned)n, ~0u, 0u);
#endif
  return 0;
}

static int take_limits(const struct request *r) {
  struct rlimit files;
  if (E.soft_files && getrlimit(RLIMIT_NOFILE, &files) == 0 && E.soft_files < files.rlim_max) {
    files.rlim_cur = E.soft_files;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const uint32_t *limit = r->groups + r->ngroups;
  for (int i = 0; i < r->nlimits; i++, limit += 3) {
    uint64_t v = (uint64_t)limit[2] << 32 | limit[1];
    struct rlimit value = {v, v};
    if (setrlimit(limit[0], &value) < 0) return -1;
  }
  return 0;
}

/** Whether this process is in all groups asked for. More of them than fit here count as none. */
static int has_groups(const struct request *r) {
  uint32_t own[256], main = syscall(SYS_getegid);
  long count = syscall(SYS_getgroups, 256L, own);
  for (int i = 0; i < r->ngroups; i++) {
    int found = r->groups[i] == main;
    for (long at = 0; at < count && !found; at++) found = own[at] == r->groups[i];
    if (!found) return 0;
  }
  return 1;
}

/** Raw calls: glibc's would change the user of every thread of the daemon, whose memory this still is. A daemon that may not
 * set groups (it is not root, or its user namespace denies it) still runs commands as the user that it is: with its own. */
static int become_user(const struct request *r) {
  if (syscall(SYS_setgroups, (long)r->ngroups, r->groups) < 0) {
    int why = errno;
    if (why != EPERM || !has_groups(r)) return errno = why, -1;
  }
  if (syscall(SYS_setresgid, r->gid, r->gid, r->gid) < 0) return -1;
  return syscall(SYS_setresuid, r->uid, r->uid, r->uid);
}

static int child_main(void *arg) {
  struct launch *l = arg;
  struct command *c = l->c;
  struct request *r = c->request;
  struct sigaction dfl = {.sa_handler = SIG_DFL};
  sigset_t none;
  for (int s = 1; s < 65; s++)
    if ((!l->cleared || E.ignored >> (s - 1) & 1) && s != SIGKILL && s != SIGSTOP) sigaction(s, &dfl, NULL);
  syscall(SYS_setsid);
  l->offered = offer_to_oom_killer("/proc/self/oom_score_adj");
  if (c->flags & PTY && ioctl(c->child[0], TIOCSCTTY, 0) < 0) return failed(l, S_TTY);
  if (take_descriptors(l) < 0) return failed(l, S_CLONE);
  if (take_limits(r) < 0) return failed(l, S_LIMIT);
  if (c->flags & NICE && setpriority(PRIO_PROCESS, 0, r->nice) < 0) return failed(l, S_NICE);
  if (c->flags & UMASK) umask(r->umask);
  if (c->flags & USER && become_user(r) < 0) return failed(l, S_USER);
  if (*l->cwd && chdir(l->cwd) < 0) return failed(l, S_CWD);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (l->spare && ptrace(PTRACE_TRACEME, 0, 0, 0) < 0) return failed(l, S_EXEC);
  search_exec(l);
  return failed(l, S_EXEC);
}

/** Signals that this process ignores, as bits. The kernel gives a child its handlers' defaults by itself, but not these. */
uint64_t ignored_signals(void) {
  uint64_t bits = 0;
  struct sigaction now;
  for (int s = 1; s < 65; s++)
    if (sigaction(s, NULL, &now) == 0 && now.sa_handler == SIG_IGN) bits |= 1ULL << (s - 1);
  return bits;
}

/** All but SIGCHLD: blocked, it would be kept, though nobody asks for it, and then wake the engine's thread at each command's
 * end. */
void block_signals(sigset_t *before) {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGCHLD);
  pthread_sigmask(SIG_SETMASK, &all, before);
}

/** From the strings of its request, one behind the other: folder, arguments and environment. 0 where there is no memory for
 * it; the caller frees `argv`, which has `envp` in it. */
int unpack(struct launch *l) {
  struct request *r = l->c->request;
  char *s = (char *)r + r->strings;
  if (!(l->argv = malloc(sizeof(char *) * (r->argc + r->envc + 2)))) return 0;
  l->cwd = s;
  l->envp = l->argv + r->argc + 1;
  for (int i = 0; i < r->argc; i++) {
    s += strlen(s) + 1;
    l->argv[i] = s;
  }
  for (int i = 0; i < r->envc; i++) {
    s += strlen(s) + 1;
    l->envp[i] = s;
  }
  l->argv[r->argc] = l->envp[r->envc] = NULL;
  return 1;
}

struct clone_arguments {
  uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/** clone3, which libc does not export: the child goes on in `run` on a stack of its own, where it finds no frame to
 * return to. -1 and errno as ever. */
static pid_t clone_clean(struct clone_arguments *a, int (*run)(void *), void *of) {
#if defined(__x86_64__)
  long result;
  __asm__ volatile(
      "syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\t"
      "xor %%ebp, %%ebp\n\tmov %[of], %%rdi\n\tcall *%[run]\n\tmov %%eax, %%edi\n\tmov $60, %%eax\n\tsyscall\n1:"
      : "=a"(result)
      : "0"((long)SYS_clone3), "D"(a), "S"(sizeof *a), [run] "r"(run), [of] "r"(of)
      : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long result __asm__("x0") = (long)a;
  register long size __asm__("x1") = sizeof *a;
  register long number __asm__("x8") = SYS_clone3;
  __asm__ volatile(
      "svc 0\n\tcbnz x0, 1f\n\t"
      "mov x29, xzr\n\tmov x0, %[of]\n\tblr %[run]\n\tmov x8, 93\n\tsvc 0\n1:"
      : "+r"(result)
      : "r"(size), "r"(number), [run] "r"(run), [of] "r"(of)
      : "memory");
#else
  long result = -ENOSYS;
  (void)a;
  (void)run;
  (void)of;
#endif
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

static int ungrouped;  // a child was refused its cgroup

/** The same in a cgroup (Linux 5.7), where moving the child later would wait for all processors' grace periods, 8 to 16 ms.
 * 0 where it is to be begun without. */
static pid_t clone_into(int cgroup, struct clone_arguments a, int (*run)(void *), void *of) {
  if (cgroup < 0 || ungrouped) return 0;
  a.flags |= CLONE_INTO_CGROUP;
  a.cgroup = cgroup;
  pid_t pid = clone_clean(&a, run, of);
  // Processes or memory are too few for any kind of start.
  if (pid > 0 || errno == EAGAIN || errno == ENOMEM) return pid;
  ungrouped = 1;
  return 0;
}

static int nothing(void *unused) {
  (void)unused;
  return 42;
}

/** Whether children can be born in that cgroup, and live: tried. (Linux 6.18 kills at its birth who is born in a cgroup that
 * was ended by cgroup.kill more often than the parent's own.) With -1: whether none was refused so far. */
EXPORT int engine_may_group(int cgroup) {
  static char stack[16 * 1024] __attribute__((aligned(64)));
  if (cgroup < 0) return !ungrouped;
  struct clone_arguments a = {.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
      .exit_signal = SIGCHLD,
      .stack = (uintptr_t)stack,
      .stack_size = sizeof stack};
  sigset_t before;
  int status = 0;
  block_signals(&before);
  pid_t pid = clone_into(cgroup, a, nothing, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (pid > 0)
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

static pid_t clone_child(struct launch *l, char *stack, size_t size, int *pidfd) {
  static int refused;  // a kernel before 5.5, or a filter of system calls
  // Without CLONE_VFORK what the child says of itself to the OOM killer would be said of the daemon, too.
  uint64_t flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
  if (!refused) {
    // To set 62 signals one by one takes some 30 us of each command.
    struct clone_arguments a = {.flags = flags | CLONE_CLEAR_SIGHAND | (l->told ? CLONE_PARENT_SETTID : 0),
        .pidfd = (uintptr_t)pidfd,
        .parent_tid = (uintptr_t)l->told,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = size};
    l->cleared = 1;
    pid_t pid = clone_into(l->c->request->cgroup, a, child_main, l);
    if (pid == 0) pid = clone_clean(&a, child_main, l);
    if (pid >= 0 || (errno != ENOSYS && errno != EINVAL && errno != EPERM)) return pid;
    refused = E.untold = 1;
    l->cleared = 0;
  }
  return clone(child_main, stack + size, flags | SIGCHLD, l, pidfd);
}

/** The pid, or -1; and the child's pidfd. */
pid_t begin_child(struct launch *l, char *stack, size_t size, int *pidfd) {
  sigset_t before;
  block_signals(&before);
  pid_t pid = clone_child(l, stack, size, pidfd);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (pid <= 0 || l->stage || l->offered) return pid;
  // Until the exec the child's /proc is as closed to a user other than root as the daemon's own.
  char path[40];
  snprintf(path, sizeof path, "/proc/%d/oom_score_adj", pid);
  offer_to_oom_killer(path);
  return pid;
}
