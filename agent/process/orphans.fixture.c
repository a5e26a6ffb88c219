// For settle.test.ts: makes ten thousand processes whose parent has ended, in sessions of their own, some of which live
// on for a moment; says how many. (Python's forks take a quarter of a minute for it.)
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int made = 0;
  for (int batch = 0; batch < 100; batch++) {
    pid_t parent = fork();
    if (parent < 0) return 1;
    if (parent == 0) {
      for (int i = 0; i < 100; i++) {
        if (fork() != 0) continue;
        setsid();
        if (i % 10 == 0) usleep(20000);
        _exit(i);
      }
      _exit(0);
    }
    waitpid(parent, NULL, 0);
    made += 100;
  }
  printf("%d\n", made);
  return 0;
}
