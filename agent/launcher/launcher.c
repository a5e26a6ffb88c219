// The daemon's entry in any root: a static program that hides the image's environment from the daemon (LD_PRELOAD or
// BUN_OPTIONS would change it) and starts it under the loader and libc that lie beside it, so that musl, busybox-only
// and empty images work. What it hides comes back in the commands' environment (agent/process/environment.ts).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define KEPT "SANDMESH_KEPT_"
#define CANNOT_RUN 5  // agent/main.ts, EXIT

static const char *const HIDDEN[] = {
  "LD_", "BUN_", "NODE_", "JSC_", "MIMALLOC_", "GLIBC_", "MALLOC_", "GCONV_PATH", "LOCPATH", "NLSPATH", "OPENSSL_", "SSL_CERT_",
  "RES_OPTIONS", "HOSTALIASES", "LOCALDOMAIN", "RESOLV_", "TMPDIR", "DO_NOT_TRACK", "FORCE_COLOR", "NO_COLOR",
  "UV_THREADPOOL_SIZE", "GOMAXPROCS", NULL};

// The runtime's settings for the daemon.
static const char *const SETTINGS[] = {
  // At rest it sleeps: no collector's timer, no thread that comes back later to give memory to the kernel.
  "BUN_GC_TIMER_DISABLE=1", "MIMALLOC_PURGE_DELAY=0",
  // A heap for a program of 5 MB, not for the machine's memory: it is collected when it has grown by half, and for the
  // first time after the start, whose objects stay.
  "BUN_JSC_forceRAMSize=20000000", "BUN_JSC_largeHeapSize=5000000",
  // What bytes come in dies young: as long as collecting the young leaves a tenth for new ones, not all is looked through
  // each second time, which took 2 to 8 ms for 1.5 MB.
  "BUN_JSC_minEdenToOldGenerationRatio=0.1",
  // The last tier of the compiler costs more than it gives here. Threads of compiler and collector cost memory for each,
  // and JavaScriptCore starts them when it likes, and aborts where the sandbox's commands have used up its pids.
  "BUN_JSC_useFTLJIT=0", "BUN_JSC_useConcurrentJIT=0", "BUN_JSC_useConcurrentGC=0", "BUN_JSC_numberOfGCMarkers=1",
  // No thread that keeps half a megabyte of pages ready for the heap, nor what the compiler wrote its code in.
  "BUN_JSC_useWarmUpMarkedBlocks=0", "BUN_JSC_maximumCachedAssemblerBufferSize=16384",
  // Threads for files, made as they are needed, and not as few as there are processors: a call to a file system that does
  // not answer (a network's, FUSE) holds one until it does.
  "UV_THREADPOOL_SIZE=16"};
#define OWN (sizeof SETTINGS / sizeof *SETTINGS)

static int die(const char *what) {
  fprintf(stderr, "sandmesh-agent: %s\n", what);
  return CANNOT_RUN;
}

static int starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

static int hidden(const char *variable) {
  for (int i = 0; HIDDEN[i]; i++)
    if (starts(variable, HIDDEN[i])) return 1;
  return 0;
}

// Out of the environment, which /proc/<pid>/environ shows for as long as the daemon lives.
static int bootstrap_file(const char *text) {
  int fd = syscall(SYS_memfd_create, "bootstrap", 0);
  size_t length = strlen(text);
  if (fd < 0 || write(fd, text, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0) return -1;
  return fd;
}

// What whoever starts the daemon has ignored, blocked or set going is not the daemon's: with SIGCHLD ignored the kernel
// keeps no exit status, with SIGTERM blocked nothing ends it in order, and a timer does. Descriptors 0 to 2 are there,
// or the next files that are opened would be taken for them.
static void start_afresh(void) {
  struct sigaction standard = {.sa_handler = SIG_DFL};
  for (int s = 1; s <= SIGRTMAX; s++) sigaction(s, &standard, NULL);
  struct itimerval none = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &none, NULL);
  // The engine's thread alone takes SIGCHLD; each other thread would be woken by it in turn.
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_SETMASK, &child, NULL);
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);
}

int main(int argc, char **argv, char **envp) {
  static char self[PATH_MAX - 64], loader[PATH_MAX], libraries[PATH_MAX], daemon[PATH_MAX], native[PATH_MAX];
  static char fd_text[64], limit_text[64];
  if (access("/proc/self/stat", R_OK) != 0) return die("this sandbox has no /proc; mount proc there");
  if (access("/dev/urandom", R_OK) != 0) return die("this sandbox has no readable /dev/urandom");
  if (access("/dev/null", R_OK | W_OK) != 0) return die("this sandbox has no usable /dev/null");
  start_afresh();
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  char *slash = n > 0 ? strrchr(self, '/') : NULL;
  if (!slash || n == sizeof self - 1) return die("cannot tell where it lies (readlink /proc/self/exe)");
  *slash = 0;
  sprintf(loader, "%s/lib/" LOADER, self);
  sprintf(libraries, "%s/lib", self);
  sprintf(daemon, "%s/sandmesh-daemon", self);
  sprintf(native, "%s/sandmesh-engine.so", self);

  int count = 0, out = 0, bootstrap = -1;
  while (envp[count]) count++;
  char **environment = calloc(count + OWN + 2, sizeof(char *)), **arguments = calloc(argc + 16, sizeof(char *));
  if (!environment || !arguments) return die("out of memory");
  for (int i = 0; i < count; i++) {
    char *variable = envp[i];
    if (starts(variable, "SANDMESH_BOOTSTRAP=")) {
      bootstrap = bootstrap_file(strchr(variable, '=') + 1);
      if (bootstrap < 0) return die("cannot keep SANDMESH_BOOTSTRAP (memfd_create)");
    } else if (hidden(variable)) {
      if (!(environment[out] = malloc(strlen(variable) + sizeof KEPT))) return die("out of memory");
      sprintf(environment[out++], KEPT "%s", variable);
    } else if (!starts(variable, KEPT)) {
      environment[out++] = variable;
    }
  }
  for (size_t i = 0; i < OWN; i++) environment[out++] = (char *)SETTINGS[i];
  // Bun raises the soft limit of open files to the hard one; commands shall have the image's own.
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    sprintf(limit_text, "SANDMESH_NOFILE=%llu", (unsigned long long)files.rlim_cur);
    environment[out++] = limit_text;
  }

  char **a = arguments;
  *a++ = loader;
  *a++ = "--inhibit-cache";
  *a++ = "--library-path";
  *a++ = libraries;
  *a++ = "--argv0";
  *a++ = "sandmesh-agent";
  *a++ = daemon;
  *a++ = "--native";
  *a++ = native;
  if (bootstrap >= 0) {
    sprintf(fd_text, "%d", bootstrap);
    *a++ = "--bootstrap-fd";
    *a++ = fd_text;
  }
  for (int i = 1; i < argc; i++) *a++ = argv[i];
  execve(loader, arguments, environment);
  fprintf(stderr, "sandmesh-agent: cannot start %s: %s\n", loader, strerror(errno));
  return CANNOT_RUN;
}
