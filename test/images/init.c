// Two first processes of a container other than the daemon, static, so that they run in any root. By its name:
//   init COMMAND…        as tini: starts the command, forwards signals to it, reaps whatever falls to it, and ends with
//                        the command's status.
//   entrypoint COMMAND…  an image's own program that the daemon runs beside: starts the command, and goes on with its own
//                        work without ever looking at its children; ends with 42 on SIGTERM.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;
static void forward(int s) { kill(child, s); }
static void end(int s) { (void)s; _exit(42); }

int main(int argc, char **argv) {
  const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  int init = strcmp(name, "init") == 0;
  if (argc < 2) return 2;
  child = fork();
  if (child < 0) return 1;
  if (child == 0) { execv(argv[1], argv + 1); _exit(127); }
  if (!init) {
    signal(SIGTERM, end);
    for (;;) pause();
  }
  signal(SIGTERM, forward); signal(SIGINT, forward);
  for (int status;;) {
    pid_t ended = waitpid(-1, &status, 0);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}
