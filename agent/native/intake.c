// A socket of JavaScript's, read to where its bytes stay. The runtime reads each time to a buffer of its own, copies that to
// a new one, and collects those as garbage: a third of the daemon's CPU where much comes in.
#include "engine.h"
#include <sys/socket.h>

/** Answers the bytes that came, once there are enough; 0 before; -1 where the socket is at its end or has failed. */
static int take_in(struct command *c) {
  while (c->came < c->room) {
    ssize_t n = recv(c->fd[K_OUT], c->to + c->came, c->room - c->came, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return -1;
    c->came += n;
  }
  return c->came < c->least ? 0 : (int)c->came;
}

/** By the engine's thread, with the lock held, when there is something to read. */
void on_intake(struct command *c) {
  int32_t n = take_in(c);
  if (n == 0) return;
  arm(c, K_OUT, 0);
  put(c, CAME, &n, sizeof n);
  wake();
}

/** A handle for engine_take_in, until engine_unwatch; -errno. The socket stays the caller's, who must not read it meanwhile. */
EXPORT int64_t engine_intake(int of) {
  int fd = fcntl(of, F_DUPFD_CLOEXEC, 3);
  return fd < 0 ? -errno : watch(fd, K_OUT);
}

/** At least `least` bytes, at most `room`: answers how many, -1 at the end, or 0 where they are not there yet. Then a CAME
 * frame tells, and until then the memory is the engine's. */
EXPORT int engine_take_in(uint32_t handle, char *to, uint32_t room, uint32_t least) {
  pthread_mutex_lock(&lock);
  struct command *c = find(handle);
  int n = -1;
  if (c) {
    c->to = to;
    c->came = 0;
    c->room = room;
    c->least = least;
    n = take_in(c);
    if (n == 0) arm(c, K_OUT, 1);
  }
  pthread_mutex_unlock(&lock);
  return n;
}
