// A spare shell, so that a lone shell line pays neither for exec nor for the dynamic loader: one process that stands at
// the shell's first instruction (gate.c), made when the same kind of line has come twice, and given to the next one.
// A request that differs from the one before by more than its line and its id, or a file of the shell that has changed
// meanwhile (form.c), gets a process of its own as if there were no spare; so does everything where one cannot be made.
#include "spare.h"
#ifdef __x86_64__
#include <stdio.h>
#include <sys/wait.h>

#define IDLE_S 120  // an unused one is ended
#define FAILURES 3  // in a row, and for a while none is made (no right to trace, no pid left)
#define REST_NS 300000000000LL

static enum { EMPTY, MAKING, READY, DOOMED } phase;  // all of it guarded by `lock`
static struct spare S;
static struct request *like;
static uint32_t like_length;  // its cgroup is the next spare's
static struct spare *making;
static int64_t making_at, rest_until;
static int wanted, off, failures, running;
static pthread_cond_t changed;

static void doom(void) {
  phase = DOOMED;
  pthread_cond_signal(&changed);
}

static char stack[32 * 1024] __attribute__((aligned(64)));

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void forget(struct spare *s) {
  for (int i = 0; i < s->nwatched; i++) free(s->watched[i].path);
  free(s->like);
  s->like = NULL;
  s->nwatched = 0;
  close_fd(&s->gate);
}

static void discard(struct spare *s) {
  siginfo_t i;
  if (s->pidfd >= 0) {
    syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
    while (waitid(P_PIDFD, s->pidfd, &i, WEXITED) < 0 && errno == EINTR) {}
  }
  close_fd(&s->pidfd);
  close_fd(&s->fd[K_OUT]);
  close_fd(&s->fd[K_ERR]);
  forget(s);
}

/** What a command's start does, with a line that is yet to come. */
static pid_t launch(struct spare *s, struct launch *l, char *line, char *marker) {
  memset(line, ' ', SPARE_LINE - 1);
  l->argv[s->like->argc - 1] = line;
  memcpy(marker, NO_MARKER, MARKER_LENGTH);
  pid_t pid = begin_child(l, stack, sizeof stack, &s->pidfd);
  return pid > 0 && !l->stage ? pid : 0;
}

static int open_pipe(int *own, int *childs, int own_end) {
  int p[2];
  if (pipe2(p, O_CLOEXEC) < 0) return 0;
  *own = p[own_end];
  *childs = p[!own_end];
  fcntl(*own, F_SETFL, O_NONBLOCK);
  return 1;
}

static int open_pipes(struct spare *s, struct command *c) {
  c->child[0] = E.null_fd;
  if (!open_pipe(&s->fd[K_OUT], &c->child[1], 0)) return 0;
  if (c->flags & MERGE)
    c->child[2] = c->child[1];
  else if (!open_pipe(&s->fd[K_ERR], &c->child[2], 0))
    return 0;
  return open_pipe(&s->gate, &c->child[3], 1);
}

static int make(struct spare *s) {
  static char line[SPARE_LINE], path[40];
  struct form f;
  struct timespec t;
  struct command c = {.flags = s->like->flags, .request = s->like, .child = {-1, -1, -1, -1, -1, -1}};
  struct launch l = {.c = &c, .spare = 1};
  int done = 0;
  clock_gettime(CLOCK_REALTIME, &t);
  s->made_at_ns = t.tv_sec * 1000000000LL + t.tv_nsec - 100000000LL;
  if (unpack(&l) && read_form(s->like, s->length, &f) && open_pipes(s, &c) &&
      (s->pid = launch(s, &l, line, (char *)f.marker))) {
    snprintf(path, sizeof path, "/proc/%d/cwd", s->pid);
    look_at(path, &s->cwd);
    done = gate_hold(s, l.argv);
  }
  free(l.argv);
  close_child_ends(&c);
  return done;
}

static int wait_until_idle(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += IDLE_S;
  int timed_out = 0;
  while (phase == READY && !timed_out) timed_out = pthread_cond_timedwait(&changed, &lock, &t) == ETIMEDOUT;
  return timed_out && phase == READY;
}

/** Of the thread's two works, with the lock free meanwhile. */
static void end_doomed(void) {
  struct spare s = S;
  phase = EMPTY;
  pthread_mutex_unlock(&lock);
  discard(&s);
  pthread_mutex_lock(&lock);
}

static void make_wanted(void) {
  struct spare s = {.like = malloc(like_length), .length = like_length, .pidfd = -1, .gate = -1, .fd = {-1, -1, -1}};
  wanted = 0;
  if (!s.like) return;
  memcpy(s.like, like, like_length);
  phase = MAKING;
  making = &s;
  making_at = now_ns();
  pthread_mutex_unlock(&lock);
  int done = make(&s);
  pthread_mutex_lock(&lock);
  making = NULL;
  failures = done ? 0 : failures + 1;
  if (failures >= FAILURES) {
    failures = 0;
    rest_until = now_ns() + REST_NS;
  }
  S = s;
  phase = done && !off && same_form(s.like, s.length, like, like_length) ? READY : DOOMED;
  if (phase == READY) wanted = 0;
}

static void *spare_thread(void *unused) {
  pthread_mutex_lock(&lock);
  for (;;) {
    if (phase == READY && wait_until_idle()) phase = DOOMED;
    if (phase == DOOMED)
      end_doomed();
    else if (phase == EMPTY && wanted && !off)
      make_wanted();
    else if (phase != READY)
      pthread_cond_wait(&changed, &lock);
  }
  return unused;
}

static int begin_thread(void) {
  pthread_t thread;
  pthread_attr_t attr;
  pthread_condattr_t clock;
  sigset_t all, old;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &clock);
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 128 * 1024);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int error = pthread_create(&thread, &attr, spare_thread, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return error == 0;
}

// ---- with the lock held ----
/** A lone request has come: where it is of the kind of the one before, a spare is wanted for the next. It is born in the
 * group that this one has not needed: its own where a spare has `taken` it, and where none has, the spare's. */
void spare_like(const struct request *r, uint32_t length, int taken) {
  struct form f;
  if (off || !read_form(r, length, &f)) return;
  int cgroup = taken ? r->cgroup : r->spare_cgroup;
  if (same_form(like, like_length, r, length)) {
    like->cgroup = cgroup;
    if (rest_until > now_ns()) return;
    if (!running && !(running = begin_thread())) {
      off = 1;
      return;
    }
    wanted = phase != READY;
    if (wanted) pthread_cond_signal(&changed);
    return;
  }
  if (phase == READY) doom();
  wanted = failures = 0;
  rest_until = 0;  // another one may do better
  free(like);
  like = malloc(length);
  like_length = like ? length : 0;
  if (!like) return;
  memcpy(like, r, length);
  like->cgroup = cgroup;
}

/** Makes the spare, where there is one for this request, the process of `c`: its pid, or 0. */
pid_t spare_take(struct command *c, const struct request *r, uint32_t length) {
  struct form f;
  if (phase != READY || !same_form(S.like, S.length, r, length) || !read_form(r, length, &f)) return 0;
  size_t line_length = strlen(f.line);
  if (line_length >= (size_t)SPARE_LINE) return 0;
  // Whoever asks would look for it in another.
  if (S.like->cgroup != r->spare_cgroup || !spare_unchanged(&S, f.cwd) ||
      !gate_open(&S, f.line, line_length, f.marker)) {
    doom();
    return 0;
  }
  c->pid = S.pid;
  c->fd[K_PID] = S.pidfd;
  c->fd[K_OUT] = S.fd[K_OUT];
  c->fd[K_ERR] = S.fd[K_ERR];
  c->gate = S.gate;
  S.pidfd = S.gate = S.fd[K_OUT] = S.fd[K_ERR] = -1;
  forget(&S);
  phase = EMPTY;
  return c->pid;
}

/** Whether the spare that was made the process of `c` has not taken its line: that is in the pipe still, and the process,
 * which may have ended, has the spare's name, which it gives up before the shell's first instruction. */
int spare_waits(const struct command *c) {
  char path[40], name[sizeof SPARE_TITLE];
  int unread = 0;
  if (c->gate < 0 || ioctl(c->gate, FIONREAD, &unread) < 0 || unread == 0) return 0;
  snprintf(path, sizeof path, "/proc/%d/comm", c->pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, name, sizeof name);
  close(fd);
  return n == sizeof name && !memcmp(name, SPARE_TITLE "\n", sizeof name);
}

/** A child has ended: where it was the spare, that is not given any more. */
void spare_reaped(pid_t pid) {
  if (phase == READY && S.pid == pid) doom();
}

/** One that is being made may have been stopped by a command before its exec, as any child (start.c): it is told to go
 * on. Answers whether one is being made. */
int spare_nudge(int64_t now) {
  if (phase == MAKING && making->pidfd >= 0 && making_at + STOPPED_NS <= now)
    syscall(SYS_pidfd_send_signal, making->pidfd, SIGCONT, NULL, 0);
  return phase == MAKING;
}

/** No more of them from now on. */
EXPORT void engine_no_spare(void) {
  pthread_mutex_lock(&lock);
  off = 1;
  if (phase == READY) doom();
  pthread_mutex_unlock(&lock);
}

/** 1 where one is at hand, 0 where none is, -1 where none is ever made. */
EXPORT int engine_has_spare(void) {
  pthread_mutex_lock(&lock);
  int has = off ? -1 : phase == READY;
  pthread_mutex_unlock(&lock);
  return has;
}
#else  // the gate is written for x86-64
void spare_like(const struct request *r, uint32_t length, int taken) {
  (void)r;
  (void)length;
  (void)taken;
}

pid_t spare_take(struct command *c, const struct request *r, uint32_t length) {
  (void)c;
  (void)r;
  (void)length;
  return 0;
}

void spare_reaped(pid_t pid) { (void)pid; }

int spare_waits(const struct command *c) {
  (void)c;
  return 0;
}

int spare_nudge(int64_t now) {
  (void)now;
  return 0;
}

EXPORT void engine_no_spare(void) {}

EXPORT int engine_has_spare(void) { return -1; }
#endif
