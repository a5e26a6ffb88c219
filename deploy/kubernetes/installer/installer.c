// Puts the daemon's folder onto a node, whole or not at all, and stays to keep it so: a static program, since its image
// has no shell, and a DaemonSet runs it on every node for ever.
//
//   sandmesh-installer SOURCE TARGET VERSION KEEP_S     installs SOURCE as TARGET/VERSION, then looks after TARGET
//   sandmesh-installer --check TARGET VERSION           0 when it is there (for a readiness probe)
//   sandmesh-installer --copy SOURCE TARGET             copies it once (for an init container)
//
// SOURCE/SHA256SUMS (as sha256sum writes it) names the files. A version that is there is only verified; one that is
// damaged is replaced by a rename, so that sandboxes that run from it keep what they have. Other versions stay for as long
// as they are in use, and KEEP_S seconds longer: set it to the longest life of a sandbox.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sha256.h"

#ifndef LOOK_EVERY_S
#define LOOK_EVERY_S 60
#endif
#ifndef VERIFY_EVERY
#define VERIFY_EVERY 60  // looks
#endif
#define SUMS "SHA256SUMS"

typedef int (*Each)(const char *sum, const char *name, void *with);

static const char *source, *target, *version;

static int say(const char *what, const char *name) {
  fprintf(stderr, "sandmesh-installer: %s %s%s%s\n", what, name, errno ? ": " : "", errno ? strerror(errno) : "");
  errno = 0;
  return -1;
}

static void path_of(char *out, const char *folder, const char *name) {
  if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) {
    say("a path is too long:", name);
    exit(1);
  }
}

// Reads `from` to its end; writes it to `to`, unless that is -1. Answers 0 and the sum.
static int pass(int from, int to, char *sum) {
  static unsigned char buffer[1 << 18];
  Sha256 state;
  sha256_start(&state);
  for (;;) {
    ssize_t n = read(from, buffer, sizeof buffer);
    if (n < 0) return -1;
    if (n == 0) break;
    sha256_add(&state, buffer, (size_t)n);
    for (ssize_t done = 0; to >= 0 && done < n;) {
      ssize_t wrote = write(to, buffer + done, (size_t)(n - done));
      if (wrote < 0) return -1;
      done += wrote;
    }
  }
  sha256_end(&state, sum);
  return 0;
}

// Calls `each` for every line of folder/SHA256SUMS until one fails.
static int for_each(const char *folder, Each each, void *with) {
  char path[PATH_MAX], line[PATH_MAX + 80];
  path_of(path, folder, SUMS);
  FILE *sums = fopen(path, "re");
  if (!sums) return -1;
  int status = 0, count = 0;
  while (status == 0 && fgets(line, sizeof line, sums)) {
    line[strcspn(line, "\n")] = 0;
    // 64 digits, two spaces (or a space and a star), a path below the folder.
    const char *name = line + 66;
    if (strlen(line) < 67 || line[64] != ' ' || *name == '/' || strstr(name, "..")) {
      status = say("not a line of " SUMS ":", line);
      break;
    }
    line[64] = 0;
    status = each(line, name, with);
    count++;
  }
  fclose(sums);
  return status == 0 && count == 0 ? -1 : status;
}

static int verify_one(const char *sum, const char *name, void *folder) {
  char path[PATH_MAX], found[65] = "";
  path_of(path, folder, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  int status = fd < 0 ? -1 : pass(fd, -1, found);
  if (fd >= 0) close(fd);
  errno = 0;
  return status == 0 && strcmp(sum, found) == 0 ? 0 : -1;
}

static int make_parents(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    int status = mkdir(path, 0755);
    *at = '/';
    if (status != 0 && errno != EEXIST) return -1;
  }
  errno = 0;
  return 0;
}

static int copy(const char *sum, const char *name, const char *draft) {
  char from_path[PATH_MAX], to_path[PATH_MAX], found[65];
  struct stat about;
  path_of(from_path, source, name);
  path_of(to_path, draft, name);
  int from = open(from_path, O_RDONLY | O_CLOEXEC);
  if (from < 0 || fstat(from, &about) != 0 || make_parents(to_path) != 0) return say("cannot copy", name);
  unlink(to_path);  // of a try before this one
  errno = 0;
  int to = open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int status = to < 0 ? -1 : pass(from, to, found);
  if (status == 0) status = fchmod(to, about.st_mode & 0111 ? 0755 : 0644) || fsync(to);
  close(from);
  if (to >= 0) close(to);
  if (status != 0) return say("cannot copy", name);
  if (sum && strcmp(sum, found) != 0) return say("the image is damaged: the sum is wrong of", name);
  return 0;
}

static int copy_one(const char *sum, const char *name, void *draft) { return copy(sum, name, draft); }

static void remove_tree(const char *path) {
  DIR *folder = opendir(path);
  if (folder) {
    for (struct dirent *entry; (entry = readdir(folder));) {
      char inside[PATH_MAX];
      if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
      path_of(inside, path, entry->d_name);
      if (unlink(inside) != 0 && errno == EISDIR) remove_tree(inside);
    }
    closedir(folder);
  }
  rmdir(path);
  errno = 0;
}

// Whether the installed folder holds what the image holds.
static int is_whole(const char *installed) {
  char sums[PATH_MAX], ours[65] = "", theirs[65] = "";
  const char *folders[] = {source, installed};
  for (int i = 0; i < 2; i++) {
    path_of(sums, folders[i], SUMS);
    int fd = open(sums, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pass(fd, -1, i == 0 ? ours : theirs) != 0) return errno = 0;
    close(fd);
  }
  return strcmp(ours, theirs) == 0 && for_each(installed, verify_one, (void *)installed) == 0;
}

static int install(void) {
  char installed[PATH_MAX], draft[PATH_MAX], old[PATH_MAX], name[PATH_MAX];
  path_of(installed, target, version);
  if (is_whole(installed)) return 0;
  snprintf(name, sizeof name, ".new-%s", version);
  path_of(draft, target, name);
  remove_tree(draft);
  if (mkdir(draft, 0755) != 0) return say("cannot make", draft);
  if (for_each(source, copy_one, draft) != 0 || copy(NULL, SUMS, draft) != 0) {
    remove_tree(draft);
    return say("not installed:", version);
  }
  snprintf(name, sizeof name, ".old-%s-%lld", version, (long long)time(NULL));
  path_of(old, target, name);
  if (rename(installed, old) != 0 && errno != ENOENT) return say("cannot move aside", installed);
  errno = 0;
  if (rename(draft, installed) != 0) return say("cannot rename to", installed);
  int folder = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  say("installed", version);
  return 0;
}

// A sandbox runs from this folder: its daemon's loader is being executed, and cannot be opened for writing then.
static int in_use(const char *folder) {
  char lib[PATH_MAX], path[PATH_MAX];
  int used = 0;
  path_of(lib, folder, "lib");
  DIR *files = opendir(lib);
  for (struct dirent *entry; files && !used && (entry = readdir(files));) {
    if (strncmp(entry->d_name, "ld-", 3) != 0) continue;
    path_of(path, lib, entry->d_name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    used = fd < 0 && errno == ETXTBSY;
    if (fd >= 0) close(fd);
  }
  if (files) closedir(files);
  errno = 0;
  return used;
}

// A folder's time is when it was last wanted or in use.
static void look_after_others(long keep_s) {
  DIR *all = opendir(target);
  for (struct dirent *entry; all && (entry = readdir(all));) {
    char path[PATH_MAX];
    struct stat about;
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    path_of(path, target, name);
    if (lstat(path, &about) != 0 || !S_ISDIR(about.st_mode)) continue;
    if (strcmp(name, version) == 0 || in_use(path)) utimensat(AT_FDCWD, path, NULL, 0);
    else if (time(NULL) - about.st_mtime > keep_s) {
      remove_tree(path);
      say("removed", name);
    }
  }
  if (all) closedir(all);
  errno = 0;
}

static void end(int signal) {
  (void)signal;
  _exit(0);
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "--check") == 0) {
    char path[PATH_MAX], sums[PATH_MAX];
    path_of(path, argv[2], argv[3]);
    path_of(sums, path, SUMS);
    return access(sums, R_OK) == 0 ? 0 : 1;
  }
  if (argc == 4 && strcmp(argv[1], "--copy") == 0) {
    source = argv[2];
    return for_each(source, copy_one, argv[3]) == 0 ? 0 : 1;
  }
  char *rest = "";
  long keep_s = argc == 5 ? strtol(argv[4], &rest, 10) : -1;
  if (keep_s < 0 || *rest || *argv[3] == '.' || strchr(argv[3], '/')) {
    fprintf(stderr, "usage: sandmesh-installer SOURCE TARGET VERSION KEEP_S\n       sandmesh-installer --check TARGET VERSION\n       sandmesh-installer --copy SOURCE TARGET\n");
    return 2;
  }
  source = argv[1], target = argv[2], version = argv[3];
  // As the first process of its container it has only the handlers that it sets.
  struct sigaction ends = {.sa_handler = end};
  sigaction(SIGTERM, &ends, NULL);
  sigaction(SIGINT, &ends, NULL);
  if (mkdir(target, 0755) != 0 && errno != EEXIST) return say("cannot make", target), 1;
  errno = 0;
  for (unsigned looks = 0;; looks++) {
    if (looks % VERIFY_EVERY == 0 && install() != 0) return 1;
    look_after_others(keep_s);
    sleep(LOOK_EVERY_S);
  }
}
