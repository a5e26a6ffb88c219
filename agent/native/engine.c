// The engine's thread, which sees to what comes of commands, and reaps.
#include "engine.h"
#include <poll.h>
#include <sys/wait.h>

struct engine E;  // filled by engine_open
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

/** A child that is just begun has no command by its pid yet, and may have ended. Where the kernel tells no pid it may be
 * any. */
static int may_be_begun(pid_t pid) {
  for (int i = 0; i < STARTERS; i++)
    if (E.begins[i].at && (E.begins[i].pid == pid || E.untold)) return 1;
  return 0;
}

/** Answers 0 where there may be more to reap in a little while. */
static int reap_all(void) {
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
    if (may_be_begun(i.si_pid)) return 0;
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

/** What is due by now, with the lock held. Answers how long nothing else is, ns; -1: for ever. */
static int64_t see_to_times(void) {
  if (E.child_ended || (E.retry_at && E.retry_at <= now_ns())) {
    E.child_ended = 0;
    reap_foreign();
  }
  if (E.look_at && E.look_at <= now_ns()) look();
  int64_t now = now_ns(), next = E.draining ? end_drains(now) : INT64_MAX;
  next = earlier(next, nudge(now));
  next = earlier(next, grow_up(now));
  next = earlier(next, E.look_at);
  if (E.flush_at && E.flush_at <= now) wake();
  next = earlier(next, E.flush_at);
  next = earlier(next, E.retry_at);
  E.wakes_at = next;
  if ((E.queue && E.starters < 0 && !E.begins[0].at) || next <= now) return 0;
  return next == INT64_MAX ? -1 : next - now;
}

/** For at most `ns`, or for ever (-1). */
static int wait_for(struct epoll_event *events, int most, int64_t ns) {
#ifdef SYS_epoll_pwait2
  static int refused;  // a kernel before 5.11, or a filter of system calls
  if (ns > 0 && !refused) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    int n = syscall(SYS_epoll_pwait2, E.epoll, events, most, &t, NULL, 0);
    if (n >= 0 || errno == EINTR) return n;
    refused = 1;
  }
#endif
  return epoll_wait(E.epoll, events, most, ns <= 0 ? (int)ns : (int)((ns + 999999) / 1000000));
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
    else if (c->watch)
      on_intake(c);
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

void *engine_thread(void *unused) {
  struct epoll_event events[64];
  for (;;) {
    pthread_mutex_lock(&lock);
    int64_t wait_ns = see_to_times();
    int full = E.blocked = BOX - E.box_length < 4 * ROOM;
    if (full) wake();
    pthread_mutex_unlock(&lock);
    if (full) {  // nothing more is read until JavaScript has taken the outbox
      struct pollfd p = {E.control, POLLIN, 0};
      if (poll(&p, 1, -1) > 0) take_kicks();
      continue;
    }
    on_events(events, wait_for(events, 64, wait_ns));
    // One start between two looks at the events, so that a burst of starts does not hold up what runs.
    if (E.starters < 0) start_next(0);
  }
  return unused;
}
