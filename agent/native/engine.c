// The engine's thread: starts what is queued, reads pipes, reaps, and fills the outbox.
#include "engine.h"
#include <poll.h>
#include <sys/wait.h>

struct engine E;  // filled by engine_open
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint16_t generations[SLOTS];
static uint32_t free_hint;
static char child_stack[64 * 1024] __attribute__((aligned(64)));

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void kick(void) {
  uint64_t one = 1;
  int e = errno;
  if (write(E.control, &one, 8) < 0) {}
  errno = e;
}

__thread int own_frames;  // this is JavaScript's thread, which takes the frames when it is done

static void wake(void) {
  E.flush_at = 0;
  if (!E.woken && !own_frames) {
    E.woken = 1;
    if (write(E.wake_fd, "", 1) < 0) {}
  }
}

static void wake_soon(void) {
  if (!E.woken && E.flush_at == 0 && !own_frames) E.flush_at = now_ns() + LINGER_NS;
}

static struct frame *put(struct command *c, uint32_t type, const void *data, uint32_t length) {
  struct frame *f = (struct frame *)(E.box[E.current] + E.box_length);
  *f = (struct frame){c->handle, type, length, 0};
  if (data) memcpy(f + 1, data, length);
  E.box_length += sizeof *f + ((length + 7) & ~7u);
  return f;
}

struct command *find(uint32_t handle) {
  struct command *c = E.slots[handle & 0xffff];
  return c && c->handle == handle ? c : NULL;
}

struct command *allot(void) {
  for (uint32_t i = 0; i < SLOTS; i++) {
    uint32_t s = (free_hint + i) % SLOTS;
    if (E.slots[s]) continue;
    struct command *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    for (int k = 0; k < 4; k++) c->fd[k] = -1;
    for (int k = 0; k < 6; k++) c->child[k] = -1;
    free_hint = s + 1;
    if (s >= E.used) E.used = s + 1;
    if (++generations[s] == 0) generations[s] = 1;
    c->handle = (uint32_t)generations[s] << 16 | s;
    return E.slots[s] = c;
  }
  return NULL;
}

void close_at(struct command *c, int k) {
  if (c->fd[k] < 0) return;
  if (c->armed[k]) epoll_ctl(E.epoll, EPOLL_CTL_DEL, c->fd[k], NULL);  // a duplicate elsewhere would keep it armed
  c->armed[k] = 0;
  close(c->fd[k]);
  c->fd[k] = -1;
}

void close_child_ends(struct command *c) {
  for (int i = 0; i < 6; i++) {
    int fd = c->child[i];
    if (fd >= 0 && fd != E.null_fd && (i != 2 || fd != c->child[1]) && (i < 1 || i > 2 || fd != c->child[0])) close(fd);
  }
  for (int i = 0; i < 6; i++) c->child[i] = -1;
}

void release(struct command *c) {
  for (int k = 0; k < 4; k++) close_at(c, k);
  close_child_ends(c);
  free(c->pending);
  free(c->request);
  E.slots[c->handle & 0xffff] = NULL;
  free_hint = c->handle & 0xffff;
  free(c);
}

void arm(struct command *c, int k, int on) {
  if (c->fd[k] < 0 || c->armed[k] == on) return;
  struct epoll_event e = {.events = k == K_IN ? EPOLLOUT : EPOLLIN, .data.u64 = (uint64_t)c->handle << 8 | k};
  epoll_ctl(E.epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, c->fd[k], &e);
  c->armed[k] = on;
}

/** The thread that starts a child waits in the kernel until its exec, for ever where another command has stopped the child
 * in between (`kill -STOP -1`). So another thread tells it to go on: the engine's where JavaScript's waits, and the other
 * way round. Answers when to look again. */
int64_t nudge(int64_t now) {
  if (E.starting && E.begin_at + STOPPED_NS <= now) {
    if (E.begun >= 0) syscall(SYS_pidfd_send_signal, E.begun, SIGCONT, NULL, 0);
    E.begin_at = now;
  }
  return E.starting ? E.begin_at + STOPPED_NS : INT64_MAX;
}

/** Before `start`, with the lock held. */
void begin_start(void) {
  E.starting = 1;
  E.begin_at = now_ns();
  if (E.told) ask_for_sigchld(0);
}

/** After it, with the lock held. */
void note_start(struct command *c) {
  E.last = c->handle;
  E.started_at = now_ns();
  E.active = 1;
}

/** Answers the pid, or 0 where it could not be started, and a FAILED frame tells why. Called with `starting` set. `attend`:
 * the engine's thread sees to it from now on. */
pid_t start(struct command *c, int attend) {
  struct launch l = {.c = c};
  pid_t pid = unpack(&l) ? begin_child(&l, child_stack, sizeof child_stack, &E.begun) : -1;
  if (pid < 0) {
    failed(&l, S_CLONE);
    E.begun = -1;
  }
  free(l.argv);
  if (pid > 0 && l.stage)
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
  pthread_mutex_lock(&lock);
  int pidfd = E.begun;
  E.starting = 0;
  E.begun = -1;
  close_child_ends(c);
  free(c->request);
  c->request = NULL;
  if (l.stage) {
    int32_t why[3] = {l.stage, l.error, l.detail};
    if (pidfd >= 0) close(pidfd);
    put(c, FAILED, why, sizeof why);
    wake();
    release(c);
    pid = 0;
  } else {
    c->pid = pid;
    c->fd[K_PID] = pidfd;
    note_start(c);
    if (attend && !c->paused) {
      arm(c, K_OUT, 1);
      arm(c, K_ERR, 1);
    }
    if (attend) arm(c, K_PID, 1);
  }
  pthread_mutex_unlock(&lock);
  return pid;
}

void finish(struct command *c) {
  if (!c->exited || c->closed) return;
  for (int k = K_OUT; k <= K_ERR; k++) {
    if (c->fd[k] < 0) continue;
    if (c->flags & WAIT_ALL || c->owed[k] > 0 || (!c->drained && now_ns() < c->drain_at)) return;
  }
  c->closed = 1;
  if (c->drain_at) E.draining--;
  uint32_t held = c->fd[K_OUT] >= 0 || c->fd[K_ERR] >= 0;
  put(c, CLOSED, &held, sizeof held);
  wake();
  // Who lives on in the background would die of SIGPIPE: its output is read and dropped. A terminal hangs up.
  for (int k = K_OUT; k <= K_ERR; k++) {
    if (c->flags & PTY)
      close_at(c, k);
    else
      arm(c, k, 1);
  }
  if (c->fd[K_OUT] < 0 && c->fd[K_ERR] < 0) release(c);
}

void begin_drain(struct command *c) {
  for (int k = K_OUT; k <= K_ERR; k++) {
    int waiting = 0;
    if (c->fd[k] >= 0 && ioctl(c->fd[k], FIONREAD, &waiting) == 0) c->owed[k] = waiting;
  }
  if (!(c->flags & WAIT_ALL) && !c->drain_at) {
    c->drain_at = now_ns() + DRAIN_NS;
    E.draining++;
  }
}

/** Answers 0 where it has not ended after all. */
int on_exit_of(struct command *c) {
  int status;
  struct rusage u;
  pid_t got = wait4(c->pid, &status, WNOHANG, &u);
  if (got == 0) return 0;
  // Someone else in this process has waited for it: it has ended, and how is not to be learned any more.
  if (got < 0) {
    status = STATUS_TAKEN;
    memset(&u, 0, sizeof u);
  }
  // Counts the daemon's own pages too, which the child had until its exec: told only where it is more than those.
  struct rusage own;
  getrusage(RUSAGE_SELF, &own);
  if (u.ru_maxrss <= own.ru_maxrss) u.ru_maxrss = 0;
  struct exited e = {status, kill(-c->pid, 0) == 0 || errno == EPERM,
      (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec + u.ru_stime.tv_usec,
      u.ru_maxrss * 1024LL};
  c->exited = 1;
  E.active = 1;
  close_at(c, K_PID);
  close_at(c, K_IN);
  put(c, EXITED, &e, sizeof e);
  wake_soon();
  begin_drain(c);
  finish(c);
  return 1;
}

/** Answers the bytes; 0 where there are none now, -1 where there will be none any more. */
int read_output(struct command *c, int k, char *to, uint32_t length) {
  ssize_t n = read(c->fd[k], to, length);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n > 0) return n;
  close_at(c, k);
  if (!c->closed)
    finish(c);
  else if (c->fd[K_OUT] < 0 && c->fd[K_ERR] < 0)
    release(c);
  return -1;
}

void on_readable(struct command *c, int k) {
  static char scrap[CHUNK];
  if (c->closed) {
    read_output(c, k, scrap, CHUNK);
    return;
  }
  if (c->direct[k]) {
    arm(c, k, 0);
    put(c, MORE, &k, sizeof k);
    wake();
    return;
  }
  uint32_t room = BOX - ROOM - E.box_length - sizeof(struct frame);
  int n = read_output(c, k, E.box[E.current] + E.box_length + sizeof(struct frame), room > CHUNK ? CHUNK : room);
  if (n <= 0) return;
  put(c, k == K_OUT ? OUT : ERR, NULL, n);
  if ((c->said[k] += n) >= TALKATIVE && !(c->flags & PTY)) {
    c->direct[k] = 1;
    fcntl(c->fd[k], F_SETPIPE_SZ, PIPE);
  }
  if (E.box_length > FULL || c->flags & PTY)
    wake();
  else
    wake_soon();
  if (c->exited) {
    c->owed[k] -= n;
    finish(c);
  }
}

static void on_writable(struct command *c) {
  ssize_t n = write(c->fd[K_IN], c->pending + c->pending_at, c->pending_length - c->pending_at);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) c->pending_at += n;
  if (n > 0 && c->pending_at < c->pending_length) return;
  free(c->pending);
  c->pending = NULL;
  arm(c, K_IN, 0);
  if (n < 0 || c->close_stdin) close_at(c, K_IN);
  put(c, STDIN, NULL, 0);
  wake();
}

static struct command *running_as(pid_t pid) {
  for (uint32_t s = 0; s < E.used; s++)
    if (E.slots[s] && E.slots[s]->pid == pid && !E.slots[s]->exited) return E.slots[s];
  return NULL;
}

// Orphans have the session of the command they come from. What has the daemon's own session was started by another part
// of it, which waits for it itself: it is left alone, unless nobody has come for it after a while.
static int is_anothers(pid_t pid) {
  static pid_t left;
  static int64_t left_at;
  if (getsid(pid) != getsid(0)) return 0;
  int64_t now = now_ns();
  if (left != pid) {
    left = pid;
    left_at = now;
  }
  return now - left_at < LEFT_NS;
}

/** Answers 0 where there may be more to reap in a little while. */
static int reap_all(void) {
  // A child that JavaScript's thread just begins is not known by its pid yet, and may have ended.
  if (E.starting) return 0;
  for (siginfo_t i;;) {
    i.si_pid = 0;
    if (waitid(P_ALL, 0, &i, WEXITED | WNOHANG | WNOWAIT) < 0 || i.si_pid == 0) return 1;
    if (BOX - E.box_length < ROOM) return 0;
    // A spare shell on its way to the gate (gate.c): its stops are told to whoever waits, and are not this one's to take.
    if (i.si_code == CLD_TRAPPED) return 0;
    struct command *own = running_as(i.si_pid);
    if (own) {
      if (!on_exit_of(own)) return 1;
      continue;
    }
    spare_reaped(i.si_pid);
    if (is_anothers(i.si_pid)) return 0;
    waitpid(i.si_pid, NULL, WNOHANG);
  }
}

static void reap_foreign(void) { E.retry_at = reap_all() ? 0 : now_ns() + LEFT_NS / 10; }

// A handler costs each command a signal to JavaScript's thread, a kick and a look at all children. So there is one only
// while nothing happens; otherwise the look comes every QUIET_NS.
static void look(void) {
  reap_foreign();
  E.look_at = now_ns() + QUIET_NS;
  if (spare_nudge(now_ns())) E.active = 1;
  if (E.active) {
    E.active = 0;
    return;
  }
  ask_for_sigchld(1);
  E.look_at = 0;
  reap_foreign();  // what ended just before
}

static int64_t end_drains(int64_t now) {
  int64_t next = INT64_MAX;
  for (uint32_t s = 0; E.draining && s < E.used; s++) {
    struct command *c = E.slots[s];
    if (!c || !c->drain_at || c->closed) continue;
    if (c->drain_at <= now) {
      c->drained = 1;
      c->drain_at = now + OWED_NS;
      // Whoever holds the pipe can read it, too, and what is owed never comes then.
      for (int k = K_OUT; k <= K_ERR; k++) {
        int waiting = 0;
        if (c->fd[k] >= 0 && ioctl(c->fd[k], FIONREAD, &waiting) == 0 && waiting < c->owed[k]) c->owed[k] = waiting;
      }
      finish(c);
      if (E.slots[s] != c || c->closed) continue;
    }
    if (c->drain_at < next) next = c->drain_at;
  }
  return next;
}

static int64_t earlier(int64_t a, int64_t b) { return b && b < a ? b : a; }

/** What is due by now, with the lock held. Answers how long nothing else is, ms; -1: for ever. */
static int see_to_times(void) {
  if (E.child_ended || (E.retry_at && E.retry_at <= now_ns())) {
    E.child_ended = 0;
    reap_foreign();
  }
  if (E.look_at && E.look_at <= now_ns()) look();
  int64_t now = E.flush_at || E.draining || E.retry_at || E.look_at || E.starting ? now_ns() : 0;
  int64_t next = E.draining ? end_drains(now) : INT64_MAX;
  next = earlier(next, nudge(now));
  next = earlier(next, E.look_at);
  if (E.flush_at && E.flush_at <= now) wake();
  next = earlier(next, E.flush_at);
  next = earlier(next, E.retry_at);
  if (E.queue) return 0;
  return next == INT64_MAX ? -1 : (int)((next - now + 999999) / 1000000);
}

static void take_kicks(void) {
  uint64_t kicks;
  if (read(E.control, &kicks, 8) < 0) {}
}

static void on_event(struct command *c, int k) {
  if (k != K_PID) {
    if (c->fd[k] < 0 || !c->armed[k]) return;
    if (k == K_IN)
      on_writable(c);
    else
      on_readable(c, k);
  } else if (c->watch) {
    put(c, GONE, NULL, 0);
    wake();
    release(c);
  } else if (!c->exited)
    on_exit_of(c);
}

static void on_events(const struct epoll_event *events, int n) {
  for (int i = 0; i < n; i++) {
    int k = events[i].data.u64 & 0xff;
    if (k == K_CONTROL) {
      take_kicks();
      continue;
    }
    pthread_mutex_lock(&lock);
    struct command *c = find(events[i].data.u64 >> 8);
    // Level-triggered: where there is no room for it now, it comes again.
    if (c && BOX - E.box_length >= 2 * ROOM) on_event(c, k);
    pthread_mutex_unlock(&lock);
  }
}

static void start_next(void) {
  pthread_mutex_lock(&lock);
  struct command *c = E.starting || BOX - E.box_length < 2 * ROOM ? NULL : E.queue;
  if (c && !(E.queue = c->next)) E.queue_tail = &E.queue;
  if (c) begin_start();
  pthread_mutex_unlock(&lock);
  pid_t pid = c ? start(c, 1) : 0;
  if (!pid) return;
  pthread_mutex_lock(&lock);
  put(c, STARTED, &pid, 4);
  wake_soon();
  pthread_mutex_unlock(&lock);
}

void *engine_thread(void *unused) {
  struct epoll_event events[64];
  for (;;) {
    pthread_mutex_lock(&lock);
    int wait_ms = see_to_times();
    int full = E.blocked = BOX - E.box_length < 4 * ROOM;
    if (full) wake();
    pthread_mutex_unlock(&lock);
    if (full) {  // nothing more is read until JavaScript has taken the outbox
      struct pollfd p = {E.control, POLLIN, 0};
      if (poll(&p, 1, -1) > 0) take_kicks();
      continue;
    }
    on_events(events, epoll_wait(E.epoll, events, 64, wait_ms));
    // One start between two looks at the events, so that a burst of starts does not hold up what runs.
    start_next();
  }
  return unused;
}
