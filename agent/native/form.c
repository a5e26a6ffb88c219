// For which requests a spare shell is made and given: what the request must be, and what must be as it was meanwhile.
#include "spare.h"
#ifdef __x86_64__
#include <sys/stat.h>
#include <sys/wait.h>

/** Takes a request apart; 0 where no spare is ever made for its kind. */
int read_form(const struct request *r, uint32_t length, struct form *f) {
  static const char NAME[] = "SANDMESH_COMMAND=";
  const char *s = (const char *)r + r->strings, *end = (const char *)r + length;
  if (!(r->flags & SPARE) || r->flags & ~(SPARE | MERGE | WAIT_ALL) || r->ngroups || r->nlimits || r->argc < 3 ||
      r->argc > MAX_ARGUMENTS || r->envc < 1)
    return 0;
  if (end - s < MARKER_LENGTH + (int)sizeof NAME || end[-1]) return 0;
  f->cwd = s;
  for (int i = 0; i < r->argc; i++) {
    s += strlen(s) + 1;
    if (i == 0) f->shell = s;
  }
  f->line = s;
  f->head = s - f->cwd;
  f->env = s = s + strlen(s) + 1;
  f->marker = end - MARKER_LENGTH - 1;
  f->tail = f->marker - s;
  if (f->tail < sizeof NAME - 1 || memcmp(f->marker - sizeof NAME + 1, NAME, sizeof NAME - 1) ||
      strlen(f->marker) != MARKER_LENGTH)
    return 0;
  // What the loader does by these it has done before the line comes.
  for (; s < f->marker; s += strlen(s) + 1)
    if (!strncmp(s, "LD_", 3) || !strncmp(s, "GLIBC_", 6)) return 0;
  return *f->cwd == '/' && *f->shell == '/';
}

/** Whether they differ by nothing but their line and id. */
int same_form(const struct request *a, uint32_t a_length, const struct request *b, uint32_t b_length) {
  struct form f, g;
  // The cgroups come last of the fixed fields, and are no difference.
  return a && b && !memcmp(a, b, offsetof(struct request, cgroup)) && read_form(a, a_length, &f) &&
         read_form(b, b_length, &g) && f.head == g.head && f.tail == g.tail && !memcmp(f.cwd, g.cwd, f.head) &&
         !memcmp(f.env, g.env, f.tail);
}

void look_at(const char *path, struct watched *w) {
  struct stat st;
  if (stat(path, &st) < 0) memset(&st, 0, sizeof st);
  w->device = st.st_dev;
  w->inode = st.st_ino;
  w->changed_ns = st.st_ctim.tv_sec * 1000000000LL + st.st_ctim.tv_nsec;
}

/** Notes how a file is; 0 where it may have changed since the shell has begun to use it. A loader's own may be missing. */
int spare_watch(struct spare *s, const char *path) {
  for (int i = 0; i < s->nwatched; i++)
    if (!strcmp(s->watched[i].path, path)) return 1;
  if (s->nwatched == WATCHED) return 0;
  struct watched *w = &s->watched[s->nwatched++];
  if (!(w->path = strdup(path))) return 0;
  look_at(path, w);
  if (w->inode) return w->changed_ns < s->made_at_ns;
  return !strncmp(path, "/etc/ld.so.", 11) || !strncmp(path, "/etc/ld-musl-", 13);
}

/** Whether it is alive, and nothing has changed since that it was made of. */
int spare_unchanged(struct spare *s, const char *cwd) {
  struct watched now;
  siginfo_t i = {0};
  // Ended, or stopped by someone.
  if (waitid(P_PID, s->pid, &i, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) < 0 || i.si_pid) return 0;
  look_at(cwd, &now);
  if (now.device != s->cwd.device || now.inode != s->cwd.inode || access(cwd, X_OK) < 0) return 0;
  for (int k = 0; k < s->nwatched; k++) {
    struct watched *w = &s->watched[k];
    look_at(w->path, &now);
    if (now.device != w->device || now.inode != w->inode || now.changed_ns != w->changed_ns) return 0;
  }
  return 1;
}
#endif
