// A spare shell: spare.c makes, keeps and gives it, form.c knows for which requests, gate.c holds it.
#include "engine.h"
#ifdef __x86_64__
#include <limits.h>
#include <linux/prctl.h>
#include <sys/uio.h>

#define MARKER_LENGTH 36  // a command's id, which ends the environment
#define NO_MARKER "------------------------------------"
#define SPARE_TITLE "sandmesh-spare"  // in process lists, until it is used
#define SPARE_LINE                                                                                                     \
  (PIPE_BUF - (int)sizeof(struct prctl_mm_map) - MARKER_LENGTH)  // with its 0; one message to a pipe is whole
#define WATCHED 16
#define MAX_ARGUMENTS 8

struct watched {
  char *path;
  uint64_t device, inode;
  int64_t changed_ns;
};

struct spare {
  struct request *like;  // what it stands for: a request that differs by more than line and id is another
  uint32_t length;
  pid_t pid;
  int pidfd, gate, fd[3];  // fd by K_OUT and K_ERR
  struct prctl_mm_map map;
  uint64_t line;
  struct watched cwd, watched[WATCHED];
  int nwatched;
  int64_t made_at_ns;
};

/** A request taken apart: everything before the line, the line, and everything after it up to the id. */
struct form {
  const char *cwd, *shell, *line, *env, *marker;
  size_t head, tail;
};

int read_form(const struct request *r, uint32_t length, struct form *f);
int same_form(const struct request *a, uint32_t a_length, const struct request *b, uint32_t b_length);
void look_at(const char *path, struct watched *w);
int spare_watch(struct spare *s, const char *path);
int spare_unchanged(struct spare *s, const char *cwd);
int gate_hold(struct spare *s, char **argv);
int gate_open(struct spare *s, const char *line, size_t length, const char *marker);
#endif
