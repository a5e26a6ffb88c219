// One command: its slot, its descriptors, what it wrote and how it ended; and the outbox, in which JavaScript is told so.
#include "engine.h"
#include <sys/wait.h>

static uint16_t generations[SLOTS];
static uint32_t free_hint;
__thread int own_frames;  // this is JavaScript's thread, which takes the frames when it is done

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

void wake(void) {
  E.flush_at = 0;
  if (!E.woken && !own_frames) {
    E.woken = 1;
    if (write(E.wake_fd, "", 1) < 0) {}
  }
}

void wake_soon(void) {
  if (!E.woken && E.flush_at == 0 && !own_frames) E.flush_at = now_ns() + LINGER_NS;
}

// Started by the engine's thread lately, in this order.
static struct {
  uint32_t handle;
  int64_t at;
} young[YOUNG];

static uint32_t young_from, young_to;

/** The answers of a burst go out together: each wake-up, and each write to the server, costs as much as a tenth of a
 * command. */
static void wake_together(void) {
  uint32_t beside = E.queued + young_to - young_from;
  int64_t at = beside > 1 ? now_ns() + beside * SHARE_NS : 0;
  if (!at)
    wake();
  else if (!E.woken && !own_frames && (E.flush_at == 0 || at < E.flush_at))
    E.flush_at = at;
}

struct frame *put(struct command *c, uint32_t type, const void *data, uint32_t length) {
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
    c->gate = -1;
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

void close_gate(struct command *c) {
  if (c->gate >= 0) close(c->gate);
  c->gate = -1;
}

void release(struct command *c) {
  for (int k = 0; k < 4; k++) close_at(c, k);
  close_child_ends(c);
  close_gate(c);
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

// A short command's pipes come to their end one by one, just before it has ended itself: three wake-ups and four calls.
/** False where its pipes are to be waited for at once. */
int grow(struct command *c) {
  if (c->flags & PTY || young_to - young_from == YOUNG) return 0;
  young[young_to % YOUNG].handle = c->handle;
  young[young_to++ % YOUNG].at = now_ns() + YOUNG_NS;
  return 1;
}

/** Answers when to look again. */
int64_t grow_up(int64_t now) {
  for (; young_from != young_to; young_from++) {
    if (young[young_from % YOUNG].at > now) return young[young_from % YOUNG].at;
    struct command *c = find(young[young_from % YOUNG].handle);
    if (c && !c->closed && !c->paused) {
      arm(c, K_OUT, 1);
      arm(c, K_ERR, 1);
    }
  }
  return INT64_MAX;
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
  wake_together();
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

/** What a command has written that ended before its pipes were waited for. */
static void read_unarmed(struct command *c) {
  uint32_t handle = c->handle;
  for (int k = K_OUT; k <= K_ERR; k++) {
    if (c->fd[k] < 0 || c->armed[k] || c->paused) continue;
    // With a second read to the end, as a rule.
    for (int i = 0; i < 2 && c->fd[k] >= 0 && !c->direct[k] && BOX - E.box_length > CHUNK + 4 * ROOM; i++) {
      on_readable(c, k);
      if (find(handle) != c) return;
    }
    arm(c, k, 1);
  }
  finish(c);
}

/** Answers 0 where it has not ended after all. */
int on_exit_of(struct command *c) {
  int status, waits = spare_waits(c);  // before it is reaped
  struct rusage u;
  pid_t got = wait4(c->pid, &status, WNOHANG, &u);
  if (got == 0) return 0;
  close_gate(c);
  // Someone else in this process has waited for it: it has ended, and how is not to be learned any more.
  if (got < 0) {
    status = STATUS_TAKEN;
    memset(&u, 0, sizeof u);
  }
  // Counts the daemon's own pages too, which the child had until its exec: told only where it is more than those.
  static struct rusage own;  // it only grows
  if (u.ru_maxrss > own.ru_maxrss) getrusage(RUSAGE_SELF, &own);
  if (u.ru_maxrss <= own.ru_maxrss) u.ru_maxrss = 0;
  struct exited e = {status, kill(-c->pid, 0) == 0 || errno == EPERM,
      (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec + u.ru_stime.tv_usec,
      u.ru_maxrss * 1024LL, waits && got > 0 && WIFSIGNALED(status), 0};
  c->exited = 1;
  E.active = 1;
  close_at(c, K_PID);
  close_at(c, K_IN);
  put(c, EXITED, &e, sizeof e);
  wake_soon();
  begin_drain(c);
  read_unarmed(c);
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
  close_gate(c);  // what says something has its line
  put(c, k == K_OUT ? OUT : ERR, NULL, n);
  if ((c->said[k] += n) >= TALKATIVE && !(c->flags & PTY)) {
    c->direct[k] = 1;
    fcntl(c->fd[k], F_SETPIPE_SZ, E.pipe ? E.pipe : PIPE);
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

void on_writable(struct command *c) {
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
