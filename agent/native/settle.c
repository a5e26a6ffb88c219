// JavaScript's own thread waits for a lone command, for as long as a short one takes: its end then wakes the thread that
// answers, and not the engine's thread first and that one after it. On idle processors each change costs some 0.1 ms.
#include "engine.h"
#include <poll.h>
#include <sched.h>
#include <stdio.h>

/** The descriptor at which the runtime's loop waits, so that the wait ends when the loop has something to do; -1 where it
 * cannot be told. It is the first of its kind; were it another one, the loop would be late by a wait. */
int find_loop(void) {
  for (int fd = 3; fd < 64; fd++) {
    char path[32], target[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n > 0 && fd != E.epoll && !strncmp(target, "anon_inode:[eventpoll]", (size_t)n)) return fd;
  }
  return -1;
}

/** Whether that is where `woken`, which the runtime waits for, is waited for: adding it there anew is refused then. */
static int is_loop_of(int woken) {
  struct epoll_event none = {0};
  if (epoll_ctl(E.loop, EPOLL_CTL_ADD, woken, &none) < 0) return errno == EEXIST;
  epoll_ctl(E.loop, EPOLL_CTL_DEL, woken, NULL);
  return 0;
}

/** JavaScript's thread waits here while nothing happens, until its loop has something to do, at most `max_ms`: in the loop
 * it would wake each second. Answers 0 where it cannot. */
EXPORT int engine_rest(int max_ms) {
  static int sure;
  if (E.loop < 0 || (!sure && !(sure = is_loop_of(E.woken_fd)))) return 0;
  struct pollfd p = {E.loop, POLLIN, 0};
  poll(&p, 1, max_ms);
  return 1;
}

/** Looks for at most `max_us` whether something else has written to that descriptor: 1 where it has. The thread stays awake
 * meanwhile, since to sleep and to be woken takes longer than a shell's built-in; whoever wants this processor gets it. */
EXPORT int engine_await(int fd, int max_us) {
  int64_t until = now_ns() + max_us * 1000LL;
  struct pollfd p = {fd, POLLIN, 0};
  do {
    if (poll(&p, 1, 0) != 0) return p.revents & POLLIN ? 1 : 0;
    sched_yield();
  } while (now_ns() < until);
  return 0;
}

/** What is to be waited for of a command: its descriptors, and the loop's. */
static int waits(struct command *c, struct pollfd *p) {
  int n = 0;
  p[n++] = (struct pollfd){E.loop, POLLIN, 0};
  for (int k = K_OUT; k <= K_PID; k++)
    if (c->fd[k] >= 0) p[n++] = (struct pollfd){c->fd[k], POLLIN, 0};
  return n;
}

static int may_wait(struct command *c) {
  return E.loop >= 0 && !c->paused && !c->direct[K_OUT] && !c->direct[K_ERR] &&
         !(c->flags & (GIVEN | PTY | WAIT_ALL)) && BOX - E.box_length > CHUNK + 4 * ROOM;
}

/** Takes over a command that engine_start began itself: waits at most `max_ms` for its end, and leaves it to the engine's
 * thread where it goes on. Answers the bytes of frames that are there to be taken. */
EXPORT int engine_settle(uint32_t handle, int max_ms) {
  int64_t until = now_ns() + max_ms * 1000000LL;
  struct pollfd p[4];
  pthread_mutex_lock(&lock);
  struct command *c;
  while ((c = find(handle)) && !c->closed && max_ms > 0 && may_wait(c)) {
    int n = waits(c, p);
    int64_t left = until - now_ns();
    if (left <= 0) break;
    struct timespec t = {left / 1000000000, left % 1000000000};
    pthread_mutex_unlock(&lock);
    int ready = ppoll(p, n, &t, NULL);
    pthread_mutex_lock(&lock);
    // The engine's thread may have seen its end meanwhile, as that of an orphan.
    if (ready <= 0 || !(c = find(handle)) || c->closed) break;
    own_frames = 1;
    for (int i = 1; i < n; i++)
      for (int k = K_OUT; k <= K_PID; k++)
        if (p[i].revents && (c = find(handle)) && !c->closed && c->fd[k] == p[i].fd) {
          if (k == K_PID)
            on_exit_of(c);
          else
            on_readable(c, k);
          break;
        }
    own_frames = 0;
    if (p[0].revents) break;
  }
  c = find(handle);
  if (c && !c->closed) {
    if (c->gate >= 0 && !spare_waits(c)) close_gate(c);
    if (!c->paused) {
      arm(c, K_OUT, 1);
      arm(c, K_ERR, 1);
    }
    arm(c, K_PID, 1);
    if (c->exited) kick();  // for the time limit of its drain
  }
  int frames = E.box_length;
  pthread_mutex_unlock(&lock);
  return frames;
}
