// What JavaScript calls. All of it returns at once.
#include "engine.h"
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

static void on_sigchld(int s) {
  (void)s;
  E.child_ended = 1;
  kick();
}

/** Starts the engine; returns the descriptor that becomes readable when `engine_take` has something, or -errno. */
EXPORT int engine_open(void) {
  int pair[2];
  pthread_t thread;
  pthread_attr_t attr;
  sigset_t before;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // where whoever started this left it ignored, the kernel would keep no exit status
  E.queue_tail = &E.queue;
  E.begun = -1;
  E.ignored = ignored_signals();
  E.epoll = epoll_create1(EPOLL_CLOEXEC);
  E.control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  E.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  E.box[0] = malloc(BOX);
  E.box[1] = malloc(BOX);
  if (E.epoll < 0 || E.control < 0 || E.null_fd < 0 || !E.box[0] || !E.box[1] ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
    return -errno;
  E.wake_fd = pair[1];
  E.woken_fd = pair[0];
  E.loop = find_loop();
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = K_CONTROL};
  epoll_ctl(E.epoll, EPOLL_CTL_ADD, E.control, &e);
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 256 * 1024);
  block_signals(&before);
  int error = pthread_create(&thread, &attr, engine_thread, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error ? -error : pair[0];
}

void ask_for_sigchld(int on) {
  struct sigaction a = {.sa_handler = on ? on_sigchld : SIG_DFL, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
  sigaction(SIGCHLD, &a, NULL);
  E.told = on;
  if (!on && !E.look_at) E.look_at = now_ns() + QUIET_NS;
}

/** From now on orphans come to this process and are reaped. Nothing else in it may start processes. */
EXPORT int engine_reap(void) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) return -errno;
  pthread_mutex_lock(&lock);
  ask_for_sigchld(1);
  E.child_ended = 1;
  pthread_mutex_unlock(&lock);
  kick();
  return 0;
}

/** The runtime's handlers of these end the process, which is right for a fault of its own. Commands can send them, too. */
static const int FAULTS[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
static struct sigaction at_fault[32];

static void on_fault(int s, siginfo_t *info, void *context) {
  if (info->si_code <= 0 && info->si_pid != getpid()) return;  // sent by another process, and ignored
  struct sigaction *own = &at_fault[s];
  if (own->sa_flags & SA_SIGINFO)
    own->sa_sigaction(s, info, context);
  else if (own->sa_handler != SIG_DFL && own->sa_handler != SIG_IGN)
    own->sa_handler(s);
  else {
    signal(s, SIG_DFL);
    raise(s);
  }
}

static void ignore_sent_faults(void) {
  for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
    sigaction(FAULTS[i], NULL, &at_fault[FAULTS[i]]);
    struct sigaction guard = at_fault[FAULTS[i]];
    guard.sa_sigaction = on_fault;
    guard.sa_flags = (guard.sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
    sigaction(FAULTS[i], &guard, NULL);
  }
}

/** Closes this process to others of its user: no memory, environment or descriptors of it can be read or traced. */
EXPORT int engine_hide(const char *name) {
  prctl(PR_SET_NAME, name);
  ignore_sent_faults();
  return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}

/** The soft limit of open files that commands get, in place of the daemon's own. */
EXPORT void engine_soft_files(uint32_t limit) { E.soft_files = limit; }

EXPORT void *engine_box(int index) { return E.box[index]; }

/** Bytes of frames in the other box than the last time, 0 for none. They stay until the next call. */
EXPORT int engine_take(void) {
  pthread_mutex_lock(&lock);
  int n = E.box_length;
  E.woken = 0;
  E.flush_at = 0;
  if (n) {
    E.current ^= 1;
    E.box_length = 0;
    if (E.blocked) {
      E.blocked = 0;
      kick();
    }
  }
  pthread_mutex_unlock(&lock);
  return n;
}

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
  int queued = 0;
  if (c) {
    c->request = copy;
    c->flags = copy->flags;
    c->child[0] = E.null_fd;
    int alone = lone(), asleep = !E.look_at;
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
      begin_start();
      pthread_mutex_unlock(&lock);
      if (asleep) kick();  // the thread sleeps without a time limit, and shall see to a child that is stopped
      request[0] = start(c, 0);
      return result;
    } else {
      c->next = NULL;
      *E.queue_tail = c;
      E.queue_tail = &c->next;
      queued = 1;
    }
  } else
    free(copy);
  pthread_mutex_unlock(&lock);
  if (queued) kick();  // with the lock held, the thread would wake up only to wait for it
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

/** A GONE frame with this handle when the descriptor, which is the engine's own from now on, can be read; -errno. */
static int64_t watch(int fd) {
  pthread_mutex_lock(&lock);
  struct command *c = allot();
  // Once the lock is free the engine's thread may be through with it already.
  int64_t handle = c ? (int64_t)c->handle : -ENOMEM;
  if (c) {
    c->watch = 1;
    c->fd[K_PID] = fd;
    arm(c, K_PID, 1);
  } else
    close(fd);
  pthread_mutex_unlock(&lock);
  return handle;
}

/** Any process: the frame comes when it ends; -errno where it is not there. */
EXPORT int64_t engine_watch(int pid) {
  int fd = syscall(SYS_pidfd_open, pid, 0);
  return fd < 0 ? -errno : watch(fd);
}

/** A descriptor of the caller's. */
EXPORT int64_t engine_watch_readable(int of) {
  int fd = fcntl(of, F_DUPFD_CLOEXEC, 3);
  return fd < 0 ? -errno : watch(fd);
}

EXPORT void engine_unwatch(uint32_t handle) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  if (c && c->watch) release(c);
  pthread_mutex_unlock(&lock);
}

/** Connects to a unix socket; returns its descriptor, or -errno. */
EXPORT int engine_dial(const char *path) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof to.sun_path) return -ENAMETOOLONG;
  strcpy(to.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
  int e = errno;
  if (fd >= 0) close(fd);
  return -e;
}

/** The descriptor that has been sent by the unix socket `from`, or -errno. No command inherits it. */
EXPORT int engine_receive(int from) {
  char data;
  struct iovec vector = {&data, 1};

  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr head;
  } control;
  struct msghdr message = {
      .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0) return -errno;
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return -ECONNRESET;
  int fd;
  memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return fd;
}
