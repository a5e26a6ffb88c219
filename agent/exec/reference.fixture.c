// What a shell line is to be like: posix_spawn of a program in a session of its own, with two pipes read to their end.
//   reference STDOUT-FILE STDERR-FILE PROGRAM ARG…    prints wait's status and the pid
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;

int main(int argc, char **argv) {
  int out[2], err[2], status, files[2]; pid_t pid; sigset_t all, none; posix_spawnattr_t attr; posix_spawn_file_actions_t actions;
  if (argc < 4 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0) return 1;
  for (int i = 0; i < 2; i++) if ((files[i] = open(argv[1 + i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0) return 1;
  // The two that libc keeps to itself, and would leave as whoever started this had them.
  struct { void *handler; unsigned long flags, restorer, mask; } standard = {0};
  for (int s = 32; s < 34; s++) syscall(SYS_rt_sigaction, s, &standard, NULL, 8);
  int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score < 0 || write(score, "1000", 4) != 4) return 1;
  sigfillset(&all); sigemptyset(&none);
  posix_spawnattr_init(&attr); posix_spawnattr_setsigdefault(&attr, &all); posix_spawnattr_setsigmask(&attr, &none);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  if (posix_spawn(&pid, argv[3], &actions, &attr, argv + 3, environ) != 0) return 1;
  close(out[1]); close(err[1]);
  struct pollfd p[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}; char buffer[65536];
  for (int open = 2; open > 0;) {
    if (poll(p, 2, -1) < 0) return 1;
    for (int i = 0; i < 2; i++) {
      if (p[i].fd < 0 || !p[i].revents) continue;
      ssize_t n = read(p[i].fd, buffer, sizeof buffer);
      if (n <= 0) { p[i].fd = -1; open--; } else if (write(files[i], buffer, n) != n) return 1;
    }
  }
  if (waitpid(pid, &status, 0) < 0) return 1;
  printf("%d %d %d\n", status, pid, getpid());
  return 0;
}
