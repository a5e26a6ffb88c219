// What JavaScript calls for the daemon's own process: the engine's beginning, its outbox, its signals, a file that is read
// often, sockets that the runtime has no call for, and folders. All of it returns at once, where a disk does.
#include "engine.h"
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#define OVERLAY 0x794c7630  // OVERLAYFS_SUPER_MAGIC of linux/magic.h
// Of linux/openat2.h and asm/unistd.h, which a compiler's machine may have of before Linux 5.6.
#define OPENAT2 437
#define NO_MAGIC_LINKS 0x2
#define NO_LINKS 0x4
#define BENEATH 0x8
#define BENEATH_TRIES 64  // a microsecond each

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
  sigset_t before, none;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // where whoever started this left it ignored, the kernel would keep no exit status
  // Whoever started this may have left signals blocked: SIGTERM, which would not end it, or SIGCHLD (the local provider's
  // supervisor does), which would wake a thread for nothing at each command's end (block_signals).
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, NULL);
  E.queue_tail = &E.queue;
  for (int i = 0; i < STARTERS; i++) E.begins[i].pidfd = -1;
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

/** Bytes of a talkative command's pipe, full while its reader is waited for; at most PIPE. */
EXPORT void engine_pipe(uint32_t bytes) { E.pipe = bytes < PIPE ? bytes : PIPE; }

EXPORT void *engine_box(int index) { return E.box[index]; }

/** Bytes of frames in the other box than the last time, 0 for none. They stay until the next call. */
EXPORT int engine_take(void) {
  pthread_mutex_lock(&lock);
  int n = E.box_length, wanting = 0;
  E.woken = 0;
  E.flush_at = 0;
  if (n) {
    E.current ^= 1;
    E.box_length = 0;
    if (E.blocked) {
      E.blocked = 0;
      kick();
    }
    wanting = E.queue != NULL;
  }
  pthread_mutex_unlock(&lock);
  if (wanting) start_beside();
  return n;
}

/** Reads a file of less than `size` bytes to where its content of the last time stands, with a zero behind it. Answers its
 * bytes; 0 where it is as it was; -1 where it cannot be read. JavaScript would take five times as long. */
EXPORT int engine_reread(int fd, char *text, uint32_t size) {
  char now[512];
  ssize_t n = pread(fd, now, size < sizeof now ? size - 1 : sizeof now - 1, 0);
  if (n < 0 || (!memcmp(now, text, n) && !text[n])) return n < 0 ? -1 : 0;
  memcpy(text, now, n);
  text[n] = 0;
  return n;
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

/** What changes in folders, for whoever reads of it, or -errno. */
EXPORT int engine_inotify(void) {
  int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  return fd < 0 ? -errno : fd;
}

EXPORT int engine_inotify_add(int fd, const char *path, uint32_t mask) {
  int wd = inotify_add_watch(fd, path, mask);
  return wd < 0 ? -errno : wd;
}

EXPORT void engine_inotify_remove(int fd, int wd) {
  inotify_rm_watch(fd, wd);
}

static uint32_t device_of(const struct stat *info) {
  return (uint32_t)(major(info->st_dev) << 20 | minor(info->st_dev));
}

/** A folder for engine_entries, or -errno; -EAGAIN where the kernel would read all of it before it gave the first entry: an
 * overlay's that is put together from several. Such a one has no links but itself, as all folders of some file systems.
 * `about` becomes its links and its device; where it begins as a device, -ENODATA says of a folder there that it has no
 * links of folders in it. */
EXPORT int engine_folder(const char *path, int follow, uint32_t about[2]) {
  struct stat info;
  if (about[1] && !lstat(path, &info) && S_ISDIR(info.st_mode) && info.st_nlink == 2 && device_of(&info) == about[1])
    return -ENODATA;
  about[0] = about[1] = 0;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
  if (fd < 0) return -errno;
  if (fstat(fd, &info)) return fd;
  about[0] = (uint32_t)info.st_nlink;
  about[1] = device_of(&info);
  struct statfs system;
  if (info.st_nlink > 1 || fstatfs(fd, &system) || system.f_type != OVERLAY) return fd;
  close(fd);
  return -EAGAIN;
}

/** Where the next data of a file is from `offset` on, or its next hole; -errno, ENXIO behind the last data. */
EXPORT int64_t engine_seek(int fd, int64_t offset, int hole) {
  off_t at = lseek(fd, offset, hole ? SEEK_HOLE : SEEK_DATA);
  return at < 0 ? -errno : at;
}

/** A descriptor (O_PATH) of what `path` leads to without leaving the folder `root`, openat2(2); without `links` no symlink is
 * followed at all. -errno: EXDEV where it would leave, ENOSYS before Linux 5.6, EPERM under a filter of calls that does not know
 * it, EAGAIN where renames elsewhere keep the kernel from telling what ".." leads to. */
EXPORT int engine_beneath(int root, const char *path, int links) {
  struct {
    uint64_t flags, mode, resolve;
  } how = {O_PATH | O_CLOEXEC, 0, BENEATH | NO_MAGIC_LINKS | (links ? 0 : NO_LINKS)};
  for (int tries = 1;; tries++) {
    long fd = syscall(OPENAT2, root, path, &how, sizeof how);
    if (fd >= 0) return (int)fd;
    if (errno != EAGAIN || tries == BENEATH_TRIES) return -errno;
  }
}

/** Bytes of further entries, as of getdents64(2); 0: there are no more; -errno. After these the folder is closed. */
EXPORT int engine_entries(int fd, void *into, uint32_t length) {
  long bytes = syscall(SYS_getdents64, fd, into, length);
  if (bytes > 0) return (int)bytes;
  int why = bytes < 0 ? errno : 0;
  close(fd);
  return -why;
}
