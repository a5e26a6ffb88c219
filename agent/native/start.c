// How a command is started, and by which thread: a lone one by JavaScript's own, those that come beside each other by two
// threads of their own, and where these cannot be, by the engine's.
#include "engine.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static char child_stacks[STARTERS][64 * 1024] __attribute__((aligned(64)));

/** The thread that starts a child waits in the kernel until its exec, for ever where another command has stopped the child
 * in between (`kill -STOP -1`). So another thread tells it to go on: the engine's, and JavaScript's where that starts
 * commands itself. Answers when to look again. */
int64_t nudge(int64_t now) {
  int64_t next = INT64_MAX;
  for (int i = 0; i < STARTERS; i++) {
    struct begin *b = &E.begins[i];
    if (!b->at) continue;
    if (b->at + STOPPED_NS <= now) {
      if (b->pidfd >= 0) syscall(SYS_pidfd_send_signal, b->pidfd, SIGCONT, NULL, 0);
      b->at = now;
    }
    if (b->at + STOPPED_NS < next) next = b->at + STOPPED_NS;
  }
  return next;
}

/** Before `start`, with the lock held. */
void begin_start(int by) {
  E.starting++;
  E.begins[by].at = now_ns();
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
pid_t start(struct command *c, int by, int attend) {
  struct launch l = {.c = c, .told = &E.begins[by].pid};
  pid_t pid = unpack(&l) ? begin_child(&l, child_stacks[by], sizeof child_stacks[by], &E.begins[by].pidfd) : -1;
  if (pid < 0) {
    failed(&l, S_CLONE);
    E.begins[by].pidfd = -1;
  }
  free(l.argv);
  if (pid > 0 && l.stage)
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
  pthread_mutex_lock(&lock);
  int late = 0, pidfd = E.begins[by].pidfd;
  E.starting--;
  E.begins[by] = (struct begin){0, -1, 0};
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
    if (attend) {
      put(c, STARTED, &pid, 4);
      wake_soon();
    }
    if (attend && !grow(c) && !c->paused) {
      arm(c, K_OUT, 1);
      arm(c, K_ERR, 1);
    }
    if (attend) arm(c, K_PID, 1);
    // The engine's thread, which may sleep for longer, is to look at its pipes in time.
    late = by > 0 && E.wakes_at > now_ns() + YOUNG_NS;
  }
  pthread_mutex_unlock(&lock);
  if (late) kick();
  return pid;
}

/** The next of the queue, if it can be now. */
void start_next(int by) {
  pthread_mutex_lock(&lock);
  struct command *c = E.begins[by].at || BOX - E.box_length < 2 * ROOM ? NULL : E.queue;
  if (c && !(E.queue = c->next)) E.queue_tail = &E.queue;
  if (c) E.queued--;
  if (c) begin_start(by);
  pthread_mutex_unlock(&lock);
  if (c) start(c, by, 1);
}

static pthread_cond_t beside = PTHREAD_COND_INITIALIZER;

static void *starter_thread(void *by) {
  prctl(PR_SET_NAME, "sandmesh-start");
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!E.queue || BOX - E.box_length < 2 * ROOM) pthread_cond_wait(&beside, &lock);
    pthread_mutex_unlock(&lock);
    start_next((int)(intptr_t)by);
  }
  return NULL;
}

/** By JavaScript's thread, without the lock: a command waits for its start. One is begun while another waits for its
 * child's exec, so that both processors have something to do; and neither keeps the engine's thread from what runs. */
void start_beside(void) {
  while (E.starters >= 0 && E.starters < STARTERS - 1) {
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t before;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 * 1024);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    block_signals(&before);
    int error = pthread_create(&thread, &attr, starter_thread, (void *)(intptr_t)(E.starters + 1));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error && E.starters) break;
    E.starters = error ? -1 : E.starters + 1;
  }
  if (E.starters > 0)
    pthread_cond_signal(&beside);
  else
    kick();
}

/** None from now on, where there is none yet. */
EXPORT void engine_no_starters(void) {
  if (!E.starters) E.starters = -1;
}
