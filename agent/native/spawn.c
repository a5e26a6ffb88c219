// The engine's native half: one thread starts commands, reads their pipes and reaps them, and hands what happened to
// JavaScript in batches: a command that does nothing costs one wake-up of its loop. What a command means (outcomes,
// time limits, trees) is decided in agent/exec; here are only file descriptors and processes. Linux 5.4 or newer.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
enum { OUT = 1, ERR, STARTED, FAILED, EXITED, CLOSED, STDIN, GONE };                    // frames to JavaScript
enum { MERGE = 1, PTY = 2, STDIN_PIPE = 4, WAIT_ALL = 8, USER = 16, UMASK = 32, NICE = 64 };  // request flags
enum { S_CLONE = 1, S_CWD, S_USER, S_LIMIT, S_NICE, S_TTY, S_EXEC };                    // where a start failed
enum { D_NONE, D_INTERPRETER, D_NOT_EXECUTABLE };
enum { K_IN, K_OUT, K_ERR, K_PID, K_CONTROL };                                          // what an epoll event is about
#define BOX (512 * 1024)      // of each of the two outboxes
#define ROOM (8 * 1024)       // kept free in an outbox for frames without data
#define CHUNK (64 * 1024)     // read at once, so that one command does not starve the others
#define FULL (48 * 1024)      // wake JavaScript at once from here on
#define LINGER_NS 2000000LL   // output waits this long for the command's end, to be handed over together
#define DRAIN_NS 10000000LL   // after the leader's end, for who still holds the pipe (`cmd > >(tee log)`)
#define LEFT_NS 500000000LL   // a zombie of the daemon's own session is left this long to whoever started it
#define SLOTS 65536

struct frame { uint32_t handle, type, length, pad; };
struct exited { int32_t status, group_alive; int64_t cpu_us, max_rss_bytes; };
struct request {
  int32_t flags, uid, gid, ngroups, umask, nice, nlimits, rows, cols, argc, envc, strings;
  uint32_t groups[];          // then nlimits × { resource, low, high }, then at `strings`: cwd, argv…, envp…
};
struct command {
  uint32_t handle, flags;
  pid_t pid;
  int fd[4];                  // by K_IN, K_OUT, K_ERR, K_PID; -1 where closed
  uint8_t paused, exited, closed, watch, armed[4], close_stdin;
  int64_t owed[3], drain_at;  // bytes that were in the pipe when the leader ended; end of the drain
  char *pending; size_t pending_at, pending_length;
  struct request *request; int child[3]; struct command *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct command *slots[SLOTS], *queue, **queue_tail = &queue;
static uint16_t generations[SLOTS];
static uint32_t used, free_hint;
static char *box[2];
static uint32_t box_length, current, woken, blocked, draining;
static int64_t flush_at, retry_at;
static int epoll = -1, control = -1, wake_fd = -1, null_fd = -1;
static volatile sig_atomic_t child_ended;
static uint64_t soft_files;   // commands' soft limit of open files, where it is not the daemon's
static char child_stack[64 * 1024] __attribute__((aligned(64)));

static int64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
static void kick(void) { uint64_t one = 1; int e = errno; if (write(control, &one, 8) < 0) {} errno = e; }
static void wake(void) { flush_at = 0; if (!woken) { woken = 1; if (write(wake_fd, "", 1) < 0) {} } }
static void wake_soon(void) { if (!woken && flush_at == 0) flush_at = now_ns() + LINGER_NS; }

static struct frame *put(struct command *c, uint32_t type, const void *data, uint32_t length) {
  struct frame *f = (struct frame *)(box[current] + box_length);
  *f = (struct frame){c->handle, type, length, 0};
  if (data) memcpy(f + 1, data, length);
  box_length += sizeof *f + ((length + 7) & ~7u);
  return f;
}

static struct command *find(uint32_t handle) {
  struct command *c = slots[handle & 0xffff];
  return c && c->handle == handle ? c : NULL;
}
static struct command *allot(void) {
  for (uint32_t i = 0; i < SLOTS; i++) {
    uint32_t s = (free_hint + i) % SLOTS;
    if (slots[s]) continue;
    struct command *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    for (int k = 0; k < 4; k++) c->fd[k] = -1;
    for (int k = 0; k < 3; k++) c->child[k] = -1;
    free_hint = s + 1; if (s >= used) used = s + 1;
    if (++generations[s] == 0) generations[s] = 1;
    c->handle = (uint32_t)generations[s] << 16 | s;
    return slots[s] = c;
  }
  return NULL;
}
static void close_at(struct command *c, int k) {
  if (c->fd[k] < 0) return;
  if (c->armed[k]) epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd[k], NULL);  // a duplicate elsewhere would keep it armed
  c->armed[k] = 0; close(c->fd[k]); c->fd[k] = -1;
}
static void close_child_ends(struct command *c) {
  for (int i = 0; i < 3; i++) {
    int fd = c->child[i];
    if (fd >= 0 && fd != null_fd && (i < 2 || fd != c->child[1]) && (i < 1 || fd != c->child[0])) close(fd);
  }
  for (int i = 0; i < 3; i++) c->child[i] = -1;
}
static void release(struct command *c) {
  for (int k = 0; k < 4; k++) close_at(c, k);
  close_child_ends(c); free(c->pending); free(c->request);
  slots[c->handle & 0xffff] = NULL; free_hint = c->handle & 0xffff; free(c);
}
static void arm(struct command *c, int k, int on) {
  if (c->fd[k] < 0 || c->armed[k] == on) return;
  struct epoll_event e = {.events = k == K_IN ? EPOLLOUT : EPOLLIN, .data.u64 = (uint64_t)c->handle << 8 | k};
  epoll_ctl(epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, c->fd[k], &e);
  c->armed[k] = on;
}

// ---- in the child, between clone and exec: memory is shared with the daemon, so only system calls ----
struct launch { struct command *c; char **argv, **envp; const char *cwd; int stage, error, detail; };

static int failed(struct launch *l, int stage) { l->stage = stage; l->error = errno; return 127; }
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
  size_t length = strlen(file); int denied = 0; char full[4096 + 256];
  for (char **e = l->envp; *e; e++) if (!strncmp(*e, "PATH=", 5)) path = *e + 5;
  if (length == 0 || length > 255) return errno = length ? ENAMETOOLONG : ENOENT;
  for (const char *p = path;; p++) {
    size_t n = strcspn(p, ":");
    if (n < 4096) {
      memcpy(full, p, n); if (n) full[n++] = '/';
      memcpy(full + n, file, length + 1);
      int e = try_exec(l, full);
      if (l->detail == D_INTERPRETER || (e != ENOENT && e != ENOTDIR && e != EACCES)) return errno = e;
      if (e == EACCES) denied = 1;
    }
    p += strcspn(p, ":");
    if (!*p) return errno = denied ? EACCES : ENOENT;
  }
}
static int child_main(void *arg) {
  struct launch *l = arg; struct command *c = l->c; struct request *r = c->request;
  struct sigaction dfl = {.sa_handler = SIG_DFL}; sigset_t none;
  for (int s = 1; s < 65; s++) if (s != SIGKILL && s != SIGSTOP) sigaction(s, &dfl, NULL);
  syscall(SYS_setsid);
  if (c->flags & PTY && ioctl(c->child[0], TIOCSCTTY, 0) < 0) return failed(l, S_TTY);
  // Above 2 first, so that none of the three is overwritten while it is still a source.
  int fd[3];
  for (int i = 0; i < 3; i++) if ((fd[i] = fcntl(c->child[i], F_DUPFD_CLOEXEC, 3)) < 0) return failed(l, S_CLONE);
  for (int i = 0; i < 3; i++) if (dup2(fd[i], i) < 0) return failed(l, S_CLONE);
#ifdef SYS_close_range
  syscall(SYS_close_range, 3u, ~0u, 0u);
#endif
  struct rlimit files;
  if (soft_files && getrlimit(RLIMIT_NOFILE, &files) == 0 && soft_files < files.rlim_max) {
    files.rlim_cur = soft_files; setrlimit(RLIMIT_NOFILE, &files);
  }
  uint32_t *limit = r->groups + r->ngroups;
  for (int i = 0; i < r->nlimits; i++, limit += 3) {
    uint64_t v = (uint64_t)limit[2] << 32 | limit[1]; struct rlimit value = {v, v};
    if (setrlimit(limit[0], &value) < 0) return failed(l, S_LIMIT);
  }
  if (c->flags & NICE && setpriority(PRIO_PROCESS, 0, r->nice) < 0) return failed(l, S_NICE);
  if (c->flags & UMASK) umask(r->umask);
  // Raw calls: glibc's would change the user of every thread of the daemon, whose memory this still is.
  if (c->flags & USER) {
    if (syscall(SYS_setgroups, (long)r->ngroups, r->groups) < 0) return failed(l, S_USER);
    if (syscall(SYS_setresgid, r->gid, r->gid, r->gid) < 0 || syscall(SYS_setresuid, r->uid, r->uid, r->uid) < 0) return failed(l, S_USER);
  }
  if (*l->cwd && chdir(l->cwd) < 0) return failed(l, S_CWD);
  sigemptyset(&none); sigprocmask(SIG_SETMASK, &none, NULL);
  search_exec(l);
  return failed(l, S_EXEC);
}

// ---- in the engine's thread ----
static void start(struct command *c) {
  struct request *r = c->request; char *s = (char *)r + r->strings;
  struct launch l = {.c = c, .cwd = s};
  char **vector = malloc(sizeof(char *) * (r->argc + r->envc + 2));
  int pidfd = -1; pid_t pid = -1;
  if (vector) {
    l.argv = vector; l.envp = vector + r->argc + 1;
    for (int i = 0; i < r->argc; i++) { s += strlen(s) + 1; l.argv[i] = s; }
    for (int i = 0; i < r->envc; i++) { s += strlen(s) + 1; l.envp[i] = s; }
    l.argv[r->argc] = l.envp[r->envc] = NULL;
    sigset_t all, old; sigfillset(&all); pthread_sigmask(SIG_SETMASK, &all, &old);
    pid = clone(child_main, child_stack + sizeof child_stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &l, &pidfd);
    if (pid < 0) failed(&l, S_CLONE);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
  } else { errno = ENOMEM; failed(&l, S_CLONE); }
  free(vector);
  if (pid > 0 && l.stage) { while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}; close(pidfd); }
  pthread_mutex_lock(&lock);
  close_child_ends(c); free(c->request); c->request = NULL;
  if (l.stage) {
    int32_t why[3] = {l.stage, l.error, l.detail};
    put(c, FAILED, why, sizeof why); wake(); release(c);
  } else {
    c->pid = pid; c->fd[K_PID] = pidfd;
    put(c, STARTED, &pid, 4); wake_soon();
    if (!c->paused) { arm(c, K_OUT, 1); arm(c, K_ERR, 1); }
    arm(c, K_PID, 1);
  }
  pthread_mutex_unlock(&lock);
}
static void finish(struct command *c) {
  if (!c->exited || c->closed) return;
  for (int k = K_OUT; k <= K_ERR; k++) {
    if (c->fd[k] < 0) continue;
    if (c->flags & WAIT_ALL || c->owed[k] > 0 || now_ns() < c->drain_at) return;
  }
  c->closed = 1; if (c->drain_at) draining--;
  uint32_t held = c->fd[K_OUT] >= 0 || c->fd[K_ERR] >= 0;
  put(c, CLOSED, &held, sizeof held); wake();
  // Who lives on in the background would die of SIGPIPE: its output is read and dropped. A terminal hangs up.
  for (int k = K_OUT; k <= K_ERR; k++) { if (c->flags & PTY) close_at(c, k); else arm(c, k, 1); }
  if (c->fd[K_OUT] < 0 && c->fd[K_ERR] < 0) release(c);
}
static void begin_drain(struct command *c) {
  for (int k = K_OUT; k <= K_ERR; k++) {
    int waiting = 0;
    if (c->fd[k] >= 0 && ioctl(c->fd[k], FIONREAD, &waiting) == 0) c->owed[k] = waiting;
  }
  if (!(c->flags & WAIT_ALL) && !c->drain_at) { c->drain_at = now_ns() + DRAIN_NS; draining++; }
}
static void on_exit_of(struct command *c) {
  int status; struct rusage u;
  if (wait4(c->pid, &status, WNOHANG, &u) != c->pid) return;
  struct exited e = {status, kill(-c->pid, 0) == 0 || errno == EPERM,
    (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec + u.ru_stime.tv_usec, u.ru_maxrss * 1024LL};
  c->exited = 1; close_at(c, K_PID); close_at(c, K_IN);
  put(c, EXITED, &e, sizeof e); wake_soon();
  begin_drain(c); finish(c);
}
static void on_readable(struct command *c, int k) {
  static char scrap[CHUNK];
  uint32_t room = BOX - ROOM - box_length - sizeof(struct frame);
  ssize_t n = read(c->fd[k], c->closed ? scrap : box[current] + box_length + sizeof(struct frame), c->closed || room > CHUNK ? CHUNK : room);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    close_at(c, k);
    if (!c->closed) finish(c); else if (c->fd[K_OUT] < 0 && c->fd[K_ERR] < 0) release(c);
    return;
  }
  if (c->closed) return;
  put(c, k == K_OUT ? OUT : ERR, NULL, n);
  if (n == CHUNK && !(c->flags & PTY)) fcntl(c->fd[k], F_SETPIPE_SZ, 4 * CHUNK);  // a talkative one: fewer switches
  if (box_length > FULL || c->flags & PTY) wake(); else wake_soon();
  if (c->exited) { c->owed[k] -= n; finish(c); }
}
static void on_writable(struct command *c) {
  ssize_t n = write(c->fd[K_IN], c->pending + c->pending_at, c->pending_length - c->pending_at);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) c->pending_at += n;
  if (n > 0 && c->pending_at < c->pending_length) return;
  free(c->pending); c->pending = NULL; arm(c, K_IN, 0);
  if (n < 0 || c->close_stdin) close_at(c, K_IN);
  put(c, STDIN, NULL, 0); wake();
}
// Orphans have the session of the command they come from. What has the daemon's own session was started by another part
// of it, which waits for it itself: it is left alone, unless nobody has come for it after a while.
static void reap_foreign(void) {
  static pid_t left; static int64_t left_at;
  retry_at = 0;
  for (siginfo_t i;;) {
    i.si_pid = 0;
    if (waitid(P_ALL, 0, &i, WEXITED | WNOHANG | WNOWAIT) < 0 || i.si_pid == 0) return;
    if (BOX - box_length < ROOM) { retry_at = now_ns() + LEFT_NS / 10; return; }
    struct command *own = NULL;
    for (uint32_t s = 0; s < used && !own; s++) if (slots[s] && slots[s]->pid == i.si_pid && !slots[s]->exited) own = slots[s];
    if (own) { on_exit_of(own); continue; }
    if (getsid(i.si_pid) == getsid(0)) {
      int64_t now = now_ns();
      if (left != i.si_pid) { left = i.si_pid; left_at = now; }
      if (now - left_at < LEFT_NS) { retry_at = now + LEFT_NS / 10; return; }
    }
    waitpid(i.si_pid, NULL, WNOHANG);
  }
}
static int64_t end_drains(int64_t now) {
  int64_t next = INT64_MAX;
  for (uint32_t s = 0; draining && s < used; s++) {
    struct command *c = slots[s];
    if (!c || !c->drain_at || c->closed) continue;
    if (c->drain_at > now) { if (c->drain_at < next) next = c->drain_at; } else finish(c);
  }
  return next;
}
static void *engine(void *unused) {
  struct epoll_event events[64];
  for (;;) {
    pthread_mutex_lock(&lock);
    if (child_ended || (retry_at && retry_at <= now_ns())) { child_ended = 0; reap_foreign(); }
    int64_t now = flush_at || draining || retry_at ? now_ns() : 0, next = draining ? end_drains(now) : INT64_MAX;
    if (flush_at && flush_at <= now) wake();
    if (flush_at && flush_at < next) next = flush_at;
    if (retry_at && retry_at < next) next = retry_at;
    blocked = BOX - box_length < 4 * ROOM;
    if (blocked) wake();
    int full = blocked;
    pthread_mutex_unlock(&lock);
    uint64_t kicks;
    if (full) {  // nothing more is read until JavaScript has taken the outbox
      struct pollfd p = {control, POLLIN, 0};
      if (poll(&p, 1, -1) > 0 && read(control, &kicks, 8) < 0) {}
      continue;
    }
    int n = epoll_wait(epoll, events, 64, next == INT64_MAX ? -1 : (int)((next - now + 999999) / 1000000));
    for (int i = 0; i < n; i++) {
      int k = events[i].data.u64 & 0xff;
      if (k == K_CONTROL) { if (read(control, &kicks, 8) < 0) {} }
      pthread_mutex_lock(&lock);
      struct command *c = k == K_CONTROL ? NULL : find(events[i].data.u64 >> 8);
      if (BOX - box_length < 2 * ROOM) c = NULL;  // level-triggered: it comes again
      if (c && k != K_PID && c->fd[k] >= 0 && c->armed[k]) { if (k == K_IN) on_writable(c); else on_readable(c, k); }
      else if (c && k == K_PID && c->watch) { put(c, GONE, NULL, 0); wake(); release(c); }
      else if (c && k == K_PID && !c->exited) on_exit_of(c);
      pthread_mutex_unlock(&lock);
    }
    for (;;) {
      pthread_mutex_lock(&lock);
      struct command *c = BOX - box_length < 2 * ROOM ? NULL : queue;
      if (c && !(queue = c->next)) queue_tail = &queue;
      pthread_mutex_unlock(&lock);
      if (!c) break;
      start(c);
    }
  }
  return unused;
}

// ---- called by JavaScript; all return at once ----
static void on_sigchld(int s) { (void)s; child_ended = 1; kick(); }

/** Starts the engine; returns the descriptor that becomes readable when `engine_take` has something, or -errno. */
int engine_open(void) {
  int pair[2]; pthread_t thread; pthread_attr_t attr; sigset_t all, old;
  signal(SIGPIPE, SIG_IGN);
  epoll = epoll_create1(EPOLL_CLOEXEC); control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  box[0] = malloc(BOX); box[1] = malloc(BOX);
  if (epoll < 0 || control < 0 || null_fd < 0 || !box[0] || !box[1] || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) return -errno;
  wake_fd = pair[1];
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = K_CONTROL};
  epoll_ctl(epoll, EPOLL_CTL_ADD, control, &e);
  pthread_attr_init(&attr); pthread_attr_setstacksize(&attr, 256 * 1024);
  sigfillset(&all); sigdelset(&all, SIGCHLD);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int error = pthread_create(&thread, &attr, engine, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return error ? -error : pair[0];
}
/** From now on orphans come to this process and are reaped. Nothing else in it may start processes. */
int engine_reap(void) {
  struct sigaction a = {.sa_handler = on_sigchld, .sa_flags = SA_RESTART | SA_NOCLDSTOP}; sigset_t chld;
  sigemptyset(&chld); sigaddset(&chld, SIGCHLD); pthread_sigmask(SIG_BLOCK, &chld, NULL);  // the engine's thread takes it
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || sigaction(SIGCHLD, &a, NULL) < 0) return -errno;
  child_ended = 1; kick();
  return 0;
}
/** Closes this process to others of its user: no memory, environment or descriptors of it can be read or traced. */
int engine_hide(const char *name) {
  prctl(PR_SET_NAME, name);
  return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}
/** The soft limit of open files that commands get, in place of the daemon's own. */
void engine_soft_files(uint32_t limit) { soft_files = limit; }
void *engine_box(int index) { return box[index]; }
/** Bytes of frames in the other box than the last time, 0 for none. They stay until the next call. */
int engine_take(void) {
  pthread_mutex_lock(&lock);
  int n = box_length;
  woken = 0; flush_at = 0;
  if (n) { current ^= 1; box_length = 0; if (blocked) { blocked = 0; kick(); } }
  pthread_mutex_unlock(&lock);
  return n;
}
static int open_pty(struct command *c, struct request *r) {
  int zero = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  struct winsize size = {r->rows, r->cols, 0, 0};
  if (master < 0) return -1;
  c->fd[K_OUT] = master;
  if (ioctl(master, TIOCSPTLCK, &zero) < 0 || (c->child[0] = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) return -1;
  c->child[1] = c->child[2] = c->child[0];
  ioctl(master, TIOCSWINSZ, &size);
  if (c->flags & USER && fchown(c->child[0], r->uid, -1) < 0) {}
  return c->fd[K_IN] = fcntl(master, F_DUPFD_CLOEXEC, 3);
}
static int open_pipe(struct command *c, struct request *r, int k) {
  int p[2];
  if (pipe2(p, O_CLOEXEC) < 0) return -1;
  c->fd[k] = p[k == K_IN]; c->child[k] = p[k != K_IN];
  fcntl(c->fd[k], F_SETFL, O_NONBLOCK);
  // So that the user can open /dev/stdout, which stands for this pipe.
  if (c->flags & USER && fchown(c->child[k], r->uid, r->gid) < 0) {}
  return 0;
}
/** Begins a command; returns its handle, or -errno. Frames: STARTED or FAILED, OUT/ERR…, EXITED, CLOSED. */
int64_t engine_start(const void *request, uint32_t length) {
  struct request *copy = malloc(length);
  if (!copy) return -ENOMEM;
  memcpy(copy, request, length);
  pthread_mutex_lock(&lock);
  struct command *c = allot(); int64_t result = c ? (int64_t)c->handle : -ENOMEM;
  if (c) {
    c->request = copy; c->flags = copy->flags; c->child[0] = null_fd;
    int bad = c->flags & PTY ? open_pty(c, copy) : open_pipe(c, copy, K_OUT);
    if (bad >= 0 && !(c->flags & PTY)) {
      if (c->flags & MERGE) c->child[2] = c->child[1]; else bad = open_pipe(c, copy, K_ERR);
      if (bad >= 0 && c->flags & STDIN_PIPE) bad = open_pipe(c, copy, K_IN);
    }
    if (bad < 0) { result = -errno; release(c); }
    else { c->next = NULL; *queue_tail = c; queue_tail = &c->next; kick(); }
  } else free(copy);
  pthread_mutex_unlock(&lock);
  return result;
}
/** Writes to stdin: 1 taken, 0 taken when the STDIN frame comes (one at a time), -1 closed. `last` closes it. */
int engine_stdin(uint32_t handle, const char *data, uint32_t length, int last) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle); int result = -1;
  if (c && c->fd[K_IN] >= 0 && !c->pending && !c->close_stdin) {
    ssize_t n = length ? write(c->fd[K_IN], data, length) : 0;
    if (n < 0 && errno == EAGAIN) n = 0;
    c->close_stdin = last;
    result = n < 0 ? -1 : n == (ssize_t)length;
    if (result == 0 && !(c->pending = malloc(length - n))) result = -1;
    if (result == 0) {
      memcpy(c->pending, data + n, c->pending_length = length - n);
      c->pending_at = 0; arm(c, K_IN, 1);
    } else if (result < 0 || last) close_at(c, K_IN);
  }
  pthread_mutex_unlock(&lock);
  return result;
}
void engine_pause(uint32_t handle, int on) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && !c->closed) { c->paused = on; if (!c->request) { arm(c, K_OUT, !on); arm(c, K_ERR, !on); } }
  pthread_mutex_unlock(&lock);
}
/** The leader's group gets the signal: 1, or 0 where it has ended. */
int engine_signal(uint32_t handle, int number) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  int sent = c && c->pid > 0 && !c->exited && kill(-c->pid, number) == 0;
  pthread_mutex_unlock(&lock);
  return sent;
}
void engine_resize(uint32_t handle, int rows, int cols) {
  struct winsize size = {rows, cols, 0, 0};
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && c->flags & PTY && c->fd[K_OUT] >= 0) ioctl(c->fd[K_OUT], TIOCSWINSZ, &size);
  pthread_mutex_unlock(&lock);
}
/** Waits no longer for those that hold the pipes: CLOSED comes once what was written is read. */
void engine_let_go(uint32_t handle) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && !c->watch && !c->closed) { c->flags &= ~WAIT_ALL; if (c->exited) { begin_drain(c); kick(); } }
  pthread_mutex_unlock(&lock);
}
/** Any process: a GONE frame with this handle when it ends; -errno where it is not there. */
int64_t engine_watch(int pid) {
  int fd = syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) return -errno;
  pthread_mutex_lock(&lock);
  struct command *c = allot();
  if (c) { c->watch = 1; c->fd[K_PID] = fd; arm(c, K_PID, 1); } else close(fd);
  pthread_mutex_unlock(&lock);
  return c ? (int64_t)c->handle : -ENOMEM;
}
