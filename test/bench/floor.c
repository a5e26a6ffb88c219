// The floor under any exec daemon: posix_spawn a program with two pipes, read both to their end, wait for it.
//
//   floor COUNT CONCURRENCY REST_MS PROGRAM [ARG…]    prints one line of JSON
//
// With CONCURRENCY 1 it measures each command's time, REST_MS after the one before; with more, that many threads share
// the count and the throughput is what matters. Build: cc -O2 -static -pthread -o floor floor.c
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char **program;
static long count, rest_ms;
static atomic_long next_index;
static double *took_ms;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void die(const char *what) {
  fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void read_both_to_end(int out, int err) {
  struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
  char buffer[65536];
  int open = 2;
  while (open > 0) {
    if (poll(fds, 2, -1) < 0) die("poll");
    for (int i = 0; i < 2; i++) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n < 0) die("read");
      if (n == 0) {
        close(fds[i].fd);
        fds[i].fd = -1;
        open--;
      }
    }
  }
}

static void run_one(void) {
  int out[2], err[2], status;
  pid_t pid;
  posix_spawn_file_actions_t actions;
  if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0) die("pipe2");
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  errno = posix_spawnp(&pid, program[0], &actions, NULL, program, environ);
  if (errno != 0) die("posix_spawn");
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  read_both_to_end(out[0], err[0]);
  if (waitpid(pid, &status, 0) < 0) die("waitpid");
}

static void *worker(void *unused) {
  (void)unused;
  for (;;) {
    long i = atomic_fetch_add(&next_index, 1);
    if (i >= count) return NULL;
    if (rest_ms > 0) usleep(rest_ms * 1000);
    double began = now_ms();
    run_one();
    took_ms[i] = now_ms() - began;
  }
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
  if (argc < 5 || (count = atol(argv[1])) < 1) {
    fprintf(stderr, "usage: floor COUNT CONCURRENCY REST_MS PROGRAM [ARG...]\n");
    return 2;
  }
  long concurrency = atol(argv[2]);
  rest_ms = atol(argv[3]);
  program = argv + 4;
  took_ms = calloc(count, sizeof *took_ms);
  pthread_t threads[256];
  if (concurrency < 1 || concurrency > 256 || took_ms == NULL) return 2;
  double began = now_ms();
  for (long i = 0; i < concurrency; i++)
    if (pthread_create(&threads[i], NULL, worker, NULL) != 0) die("pthread_create");
  for (long i = 0; i < concurrency; i++) pthread_join(threads[i], NULL);
  double all = now_ms() - began;
  printf("{\"n\":%ld,\"per_s\":%.0f,\"ms\":[", count, count / all * 1e3);
  for (long i = 0; i < count; i++) printf("%s%.4f", i ? "," : "", took_ms[i]);
  qsort(took_ms, count, sizeof *took_ms, by_size);
  printf("],\"p50_ms\":%.4f,\"p99_ms\":%.4f}\n", took_ms[count / 2], took_ms[count * 99 / 100]);
  return 0;
}
