// The engine's native half: one thread reads commands' pipes and reaps them, two start them where several come beside each
// other, and what happened is handed to JavaScript in batches: a command that does nothing costs one wake-up of its loop.
// What a command means (outcomes, time limits, trees) is decided in agent/exec; here are only file descriptors and
// processes. Linux 5.4 or newer.
// engine.c is the thread, start.c those that start commands, command.c what becomes of one command, launch.c how a child
// begins and what it does before exec, daemon.c and calls.c what JavaScript calls, intake.c a socket that is read for it,
// settle.c what it waits in, spare.c, form.c and gate.c a shell that is there before its line.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Frames to JavaScript.
enum { OUT = 1, ERR, STARTED, FAILED, EXITED, CLOSED, STDIN, GONE, MORE, CAME };

// Flags of a request.
enum { MERGE = 1, PTY = 2, STDIN_PIPE = 4, WAIT_ALL = 8, USER = 16, UMASK = 32, NICE = 64, GIVEN = 128, SPARE = 256 };

// Where a start failed, and more of it.
enum { S_CLONE = 1, S_CWD, S_USER, S_LIMIT, S_NICE, S_TTY, S_EXEC };

enum { D_NONE, D_INTERPRETER, D_NOT_EXECUTABLE };

// What an epoll event is about.
enum { K_IN, K_OUT, K_ERR, K_PID, K_CONTROL };

// JavaScript calls it.
#define EXPORT __attribute__((visibility("default")))
#define SLOTS 65536
#define BOX (512 * 1024)        // of each of the two outboxes
#define ROOM (8 * 1024)         // kept free in an outbox for frames without data
#define CHUNK (64 * 1024)       // read at once, so that one command does not starve the others
#define FULL (48 * 1024)        // wake JavaScript at once from here on
#define TALKATIVE (128 * 1024)  // from so many bytes on JavaScript reads a stream: to where they stay, many at once
#define PIPE (512 * 1024)       // of a talkative one: fewer switches
#define LINGER_NS 2000000LL     // output waits this long for the command's end, to be handed over together
#define SHARE_NS 100000LL       // an end waits this long for each command that begins beside it, to be told with others
#define YOUNG_NS 3000000LL      // so long after its start a command's pipes are looked at only when it has ended,
#define YOUNG 256               // of so many commands
#define DRAIN_NS 10000000LL     // after the leader's end, for who still holds the pipe (`cmd > >(tee log)`)
#define OWED_NS 100000000LL     // after the drain: how often is looked whether someone else has read what is owed
#define LEFT_NS 500000000LL     // a zombie of the daemon's own session is left this long to whoever started it
#define QUIET_NS 50000000LL     // without a start or an end for this long: SIGCHLD is asked for, until the next start
#define BURST_NS 5000000LL      // a start soon after one that still runs belongs to a burst: the thread takes it
#define STOPPED_NS 50000000LL   // a child that has no exec by then may have been stopped: it is told to go on
#define STARTERS 3              // so many children are begun beside each other: by JavaScript's thread, and by two of their own
#define STATUS_TAKEN -1         // in place of wait's status: someone else has taken it

struct frame {
  uint32_t handle, type, length, pad;
};

struct exited {
  int32_t status, group_alive;
  int64_t cpu_us, max_rss_bytes;
  int32_t untaken, pad;  // a spare shell that was ended before it took its line: nothing of that has run
};

struct request {
  int32_t flags, uid, gid, ngroups, umask, nice, nlimits, rows, cols, argc, envc, strings;
  int32_t given[6];      // with GIVEN: the caller's descriptors that become 0 to 5
  int32_t cgroup;        // the folder of the one that it is to be born in, or -1
  int32_t spare_cgroup;  // of the one that the spare shell at hand was born in, or the next will be; or -1
  uint32_t groups[];     // then nlimits × { resource, low, high }, then at `strings`: cwd, argv…, envp…
};

struct command {
  uint32_t handle, flags;
  pid_t pid;
  int fd[4];  // by K_IN, K_OUT, K_ERR, K_PID; -1 where closed
  uint8_t paused, exited, drained, closed, watch, armed[4], close_stdin;
  uint8_t direct[3];
  uint32_t said[3];           // by K_OUT, K_ERR: whether JavaScript reads it itself; bytes read until then
  int64_t owed[3], drain_at;  // bytes that were in the pipe when the leader ended; end of the drain
  char *pending;
  size_t pending_at, pending_length;
  struct request *request;
  int child[6];
  int gate;  // by which a spare shell has been given its line, as long as it may not have taken it; or -1
  struct command *next;
  char *to;  // of an intake: what K_OUT is read to, and how many bytes of it there are, may be, and are to be at least
  uint32_t came, room, least;
};

struct launch {
  struct command *c;
  char **argv, **envp;
  const char *cwd;
  int stage, error, detail, offered, cleared, spare;
  pid_t *told;  // where the kernel is to write the child's pid before that runs
};

/** A child between its clone and its exec, and the thread that waits for that. */
struct begin {
  int64_t at;  // since then, or told last to go on; 0 where there is none
  int pidfd;   // -1 where there is none yet
  pid_t pid;   // told by the kernel before the child runs; 0 before, and where it tells none
};

// Everything here is guarded by `lock`.
struct engine {
  struct command *slots[SLOTS], *queue, **queue_tail;
  uint32_t used;  // slots that were ever in use
  char *box[2];   // one is filled while JavaScript reads the other
  uint32_t box_length, current, woken, blocked, draining;
  int64_t flush_at, retry_at, look_at, started_at;
  uint32_t last;    // the command that was started last
  uint32_t queued;  // commands that wait for their start
  int epoll, control, wake_fd, woken_fd, null_fd;
  int loop;              // what JavaScript's thread waits at; -1 where that is not known
  uint32_t starting;     // so many are between clone and the child's exec:
  struct begin begins[STARTERS];
  int starters;          // threads that start commands; -1 where there shall be none, or the first could not be made
  int untold;            // this kernel, or a filter of system calls, tells no pid ahead
  int64_t wakes_at;      // when the engine's thread looks again by itself
  uint8_t told, active;  // SIGCHLD is asked for; something began or ended since the last look
  volatile sig_atomic_t child_ended;
  uint32_t pipe;        // bytes of a talkative command's pipe, where it is not PIPE
  uint64_t soft_files;  // commands' soft limit of open files, where it is not the daemon's
  uint64_t ignored;     // signals that the daemon ignores, and commands do not
};
extern struct engine E;
extern pthread_mutex_t lock;

// engine.c
void *engine_thread(void *unused);

// start.c
void begin_start(int by);
void note_start(struct command *c);
pid_t start(struct command *c, int by, int attend);
void start_next(int by);
void start_beside(void);
int64_t nudge(int64_t now);

// command.c
struct command *allot(void);
struct command *find(uint32_t handle);
void release(struct command *c);
void close_at(struct command *c, int k);
void close_child_ends(struct command *c);
void arm(struct command *c, int k, int on);
int grow(struct command *c);
int64_t grow_up(int64_t now);
void begin_drain(struct command *c);
void finish(struct command *c);
int on_exit_of(struct command *c);
void on_readable(struct command *c, int k);
int read_output(struct command *c, int k, char *to, uint32_t length);
extern __thread int own_frames;
void kick(void);
int64_t now_ns(void);
void wake(void);
void wake_soon(void);
struct frame *put(struct command *c, uint32_t type, const void *data, uint32_t length);
void on_writable(struct command *c);

// calls.c
int64_t watch(int fd, int k);

// intake.c
void on_intake(struct command *c);

// launch.c
int failed(struct launch *l, int stage);
uint64_t ignored_signals(void);
void block_signals(sigset_t *before);
int unpack(struct launch *l);
pid_t begin_child(struct launch *l, char *stack, size_t size, int *pidfd);

// daemon.c
void ask_for_sigchld(int on);

// settle.c
int find_loop(void);

// spare.c
pid_t spare_take(struct command *c, const struct request *r, uint32_t length);
void spare_like(const struct request *r, uint32_t length, int taken);
void spare_reaped(pid_t pid);
int spare_nudge(int64_t now);
int spare_waits(const struct command *c);
void close_gate(struct command *c);
