// What JavaScript calls for a command. All of it returns at once.
#include "engine.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

static int open_pty(struct command *c, struct request *r) {
  int zero = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  struct winsize size = {r->rows, r->cols, 0, 0};
  if (master < 0) return -1;
  c->fd[K_OUT] = master;
  if (ioctl(master, TIOCSPTLCK, &zero) < 0 ||
      (c->child[0] = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
    return -1;
  c->child[1] = c->child[2] = c->child[0];
  ioctl(master, TIOCSWINSZ, &size);
  if (c->flags & USER && fchown(c->child[0], r->uid, -1) < 0) {}
  return c->fd[K_IN] = fcntl(master, F_DUPFD_CLOEXEC, 3);
}

static int open_pipe(struct command *c, struct request *r, int k) {
  int p[2];
  if (pipe2(p, O_CLOEXEC) < 0) return -1;
  c->fd[k] = p[k == K_IN];
  c->child[k] = p[k != K_IN];
  fcntl(c->fd[k], F_SETFL, O_NONBLOCK);
  // So that the user can open /dev/stdout, which stands for this pipe.
  if (c->flags & USER && fchown(c->child[k], r->uid, r->gid) < 0) {}
  return 0;
}

/** Copies, so that the caller may close its own at once. It reads and writes the other ends itself. */
static int take_given(struct command *c, struct request *r) {
  for (int i = 0; i < 6; i++)
    if ((c->child[i] = fcntl(r->given[i], F_DUPFD_CLOEXEC, 3)) < 0) return -1;
  return 0;
}

/** Whether the caller's thread starts it itself, which spares a lone command two changes of threads. The caller waits
 * until the child's exec then: some 0.2 ms. */
static int lone(void) {
  struct command *last = find(E.last);
  return !E.queue && !E.starting && BOX - E.box_length > 2 * ROOM &&
         (!last || last->exited || now_ns() - E.started_at > BURST_NS);
}

/** Begins a command; returns its handle, or -errno. Where it runs already, its pid is left in the request's first word
 * (0 otherwise), and engine_settle is to be called for it; in the second, whether the spare shell has become it. Frames: STARTED (unless the pid was told) or FAILED,
 * OUT/ERR…, EXITED, CLOSED. */
EXPORT int64_t engine_start(int32_t *request, uint32_t length) {
  struct request *copy = malloc(length);
  if (!copy) return -ENOMEM;
  memcpy(copy, request, length);
  request[0] = request[1] = 0;
  pthread_mutex_lock(&lock);
  struct command *c = allot();
  int64_t result = c ? (int64_t)c->handle : -ENOMEM;
  int queued = 0, asleep = 0;
  if (c) {
    c->request = copy;
    c->flags = copy->flags;
    c->child[0] = E.null_fd;
    int alone = lone();
    asleep = !E.look_at;
    // A spare is for who comes alone: the others' starts go on side by side anyway.
    if (alone && copy->flags & SPARE) {
      request[0] = spare_take(c, copy, length);
      request[1] = request[0] > 0;
      spare_like(copy, length, request[1]);
    }
    if (request[1]) {
      if (E.told) ask_for_sigchld(0);
      note_start(c);
      free(copy);
      c->request = NULL;
      pthread_mutex_unlock(&lock);
      if (asleep) kick();
      return result;
    }
    int bad = c->flags & GIVEN ? take_given(c, copy) : c->flags & PTY ? open_pty(c, copy) : open_pipe(c, copy, K_OUT);
    if (bad >= 0 && !(c->flags & (PTY | GIVEN))) {
      if (c->flags & MERGE)
        c->child[2] = c->child[1];
      else
        bad = open_pipe(c, copy, K_ERR);
      if (bad >= 0 && c->flags & STDIN_PIPE) bad = open_pipe(c, copy, K_IN);
    }
    if (bad < 0) {
      result = -errno;
      release(c);
    } else if (alone) {
      begin_start(0);
      pthread_mutex_unlock(&lock);
      if (asleep) kick();  // the thread sleeps without a time limit, and shall see to a child that is stopped
      request[0] = start(c, 0, 0);
      return result;
    } else {
      c->next = NULL;
      *E.queue_tail = c;
      E.queue_tail = &c->next;
      E.queued++;
      queued = 1;
    }
  } else
    free(copy);
  pthread_mutex_unlock(&lock);
  if (queued) start_beside();  // with the lock held, the thread would wake up only to wait for it
  if (queued && asleep) kick();
  return result;
}

/** To be called every 50 ms while it answers 1: commands wait for the engine's thread, which may wait for a stopped child. */
EXPORT int engine_nudge(void) {
  pthread_mutex_lock(&lock);
  nudge(now_ns());
  int more = E.starting || E.queue;
  pthread_mutex_unlock(&lock);
  return more;
}

/** Writes to stdin: 1 taken, 0 taken when the STDIN frame comes (one at a time), -1 closed. `last` closes it. */
EXPORT int engine_stdin(uint32_t handle, const char *data, uint32_t length, int last) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  int result = -1;
  if (c && c->fd[K_IN] >= 0 && !c->pending && !c->close_stdin) {
    ssize_t n = length ? write(c->fd[K_IN], data, length) : 0;
    if (n < 0 && errno == EAGAIN) n = 0;
    c->close_stdin = last;
    result = n < 0 ? -1 : n == (ssize_t)length;
    if (result == 0 && !(c->pending = malloc(length - n))) result = -1;
    if (result == 0) {
      memcpy(c->pending, data + n, c->pending_length = length - n);
      c->pending_at = 0;
      arm(c, K_IN, 1);
    } else if (result < 0 || last)
      close_at(c, K_IN);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/** After a MORE frame: output of the stream (K_OUT, K_ERR) to the caller's own memory. Answers the bytes; 0 where there are
 * none now, or it is paused, and a frame will tell when there are; -1 where there will be none any more. */
EXPORT int engine_read(uint32_t handle, int k, char *to, uint32_t length) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  int n = -1;
  if (c && c->direct[k] && c->fd[k] >= 0 && !c->closed) {
    // Its end needs room for a frame.
    n = c->paused || BOX - E.box_length < 2 * ROOM ? 0 : read_output(c, k, to, length);
    if (n == 0 && !c->paused) arm(c, k, 1);
    if (n > 0 && c->exited) {
      c->owed[k] -= n;
      finish(c);
    }
  }
  pthread_mutex_unlock(&lock);
  return n;
}

EXPORT void engine_pause(uint32_t handle, int on) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && !c->closed) {
    c->paused = on;
    if (!c->request) {
      arm(c, K_OUT, !on);
      arm(c, K_ERR, !on);
    }
  }
  pthread_mutex_unlock(&lock);
}

/** The leader's group gets the signal: 1, or 0 where it has ended. */
EXPORT int engine_signal(uint32_t handle, int number) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  int sent = c && c->pid > 0 && !c->exited && kill(-c->pid, number) == 0;
  pthread_mutex_unlock(&lock);
  return sent;
}

EXPORT void engine_resize(uint32_t handle, int rows, int cols) {
  struct winsize size = {rows, cols, 0, 0};
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && c->flags & PTY && c->fd[K_OUT] >= 0) ioctl(c->fd[K_OUT], TIOCSWINSZ, &size);
  pthread_mutex_unlock(&lock);
}

/** Closes a terminal under what runs on it, to which the kernel then sends SIGHUP. */
EXPORT void engine_hang_up(uint32_t handle) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && c->flags & PTY && c->pid > 0 && !c->exited) {
    close_at(c, K_IN);
    close_at(c, K_OUT);
  }
  pthread_mutex_unlock(&lock);
}

/** Waits no longer for those that hold the pipes: CLOSED comes once what was written is read. */
EXPORT void engine_let_go(uint32_t handle) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && !c->watch && !c->closed) {
    c->flags &= ~WAIT_ALL;
    if (c->exited) {
      begin_drain(c);
      kick();
    }
  }
  pthread_mutex_unlock(&lock);
}

/** A handle for the descriptor, which is the engine's own from now on; -errno. As a K_PID it is waited for at once: a GONE
 * frame tells when it can be read. */
int64_t watch(int fd, int k) {
  pthread_mutex_lock(&lock);
  struct command *c = allot();
  // Once the lock is free the engine's thread may be through with it already.
  int64_t handle = c ? (int64_t)c->handle : -ENOMEM;
  if (c) {
    c->watch = 1;
    c->fd[k] = fd;
    if (k == K_PID) arm(c, k, 1);
  } else
    close(fd);
  pthread_mutex_unlock(&lock);
  return handle;
}

/** Any process: the frame comes when it ends; -errno where it is not there. */
EXPORT int64_t engine_watch(int pid) {
  int fd = syscall(SYS_pidfd_open, pid, 0);
  return fd < 0 ? -errno : watch(fd, K_PID);
}

/** A descriptor of the caller's. */
EXPORT int64_t engine_watch_readable(int of) {
  int fd = fcntl(of, F_DUPFD_CLOEXEC, 3);
  return fd < 0 ? -errno : watch(fd, K_PID);
}

EXPORT void engine_unwatch(uint32_t handle) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && c->watch) release(c);
  pthread_mutex_unlock(&lock);
}
