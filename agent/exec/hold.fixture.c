// Holds a process as a tracer does, which is told to no parent, says so, and kills it at the first byte of input.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
  char byte;
  if (pid <= 0 || ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0 ||
      waitpid(pid, NULL, __WALL) != pid)
    return 1;
  puts("held");
  fflush(stdout);
  if (read(0, &byte, 1) == 1) kill(pid, SIGKILL);
  return 0;
}
