// Holds a shell at its own first instruction: exec and the dynamic loader are behind it, nothing of the shell itself has
// run. A few instructions in the unused end of its text's last page wait at a descriptor for one message (the line, the
// command's id, and where its arguments end), put it in place, and jump to where the shell begins. From then on it is
// `bash -c LINE` in every respect but the time at which it was started. ptrace is needed to bring it there, not later.
#include "spare.h"
#ifdef __x86_64__
#include <elf.h>
#include <linux/prctl.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>

struct stub_data {
  uint64_t entry, rdx;
  struct iovec into[3];
  struct prctl_mm_map *map;
  char title[16], name[16];
};

extern const char stub[], stub_data[], stub_end[];
_Static_assert(sizeof(struct stub_data) == 104 && sizeof(struct prctl_mm_map) == 104, "as the stub has it");
// clang-format off
#define SET_NAME(at) "mov $157, %eax; mov $15, %edi; lea stub_data+" at "(%rip), %rsi; syscall;"  /* prctl(PR_SET_NAME) */
#define SET_MAP "mov $157, %eax; mov $35, %edi; mov $14, %esi; mov stub_data+64(%rip), %rdx; mov $104, %r10d; xor %r8d, %r8d; syscall;"  /* PR_SET_MM_MAP */
asm(".pushsection .rodata; .balign 16; .globl stub, stub_data, stub_end; .hidden stub, stub_data, stub_end;"
    "stub:" SET_NAME("72") SET_MAP "int3;"
    "mov $19, %eax; mov $3, %edi; lea stub_data+16(%rip), %rsi; mov $3, %edx; syscall;"  // readv: one message of at most PIPE_BUF
    "cmp $141, %rax; jl 1f;"                                                             // nobody is there any more
    "mov $3, %eax; mov $3, %edi; syscall;" SET_MAP SET_NAME("88")
    "mov stub_data+8(%rip), %rdx; jmp *stub_data(%rip);"
    "1: mov $231, %eax; mov $1, %edi; syscall;"
    ".balign 8; stub_data: .skip 104; stub_end: .popsection");
// clang-format on

/** Of a stopped process; its own text, too, which needs the tracer's right. */
struct traced {
  pid_t pid;
  int memory;
};

static int peek(struct traced *t, uint64_t at, void *to, size_t n) {
  return pread(t->memory, to, n, (off_t)at) == (ssize_t)n;
}

static int poke(struct traced *t, uint64_t at, const void *from, size_t n) {
  return pwrite(t->memory, from, n, (off_t)at) == (ssize_t)n;
}

static int same(struct traced *t, uint64_t at, const char *text) {
  char there[4096];
  size_t n = strlen(text) + 1;
  return n <= sizeof there && peek(t, at, there, n) && !memcmp(there, text, n);
}

static ssize_t slurp(pid_t pid, const char *name, char *to, size_t size) {
  char path[40];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  if (fd < 0) return -1;
  for (ssize_t n; length < size - 1 && (n = read(fd, to + length, size - 1 - length)) > 0;) length += n;
  close(fd);
  to[length] = 0;
  return length < size - 1 ? (ssize_t)length : -1;
}

/** Lets it run until its next trap; its end, or a signal that was sent to it, is none. */
static int to_trap(struct spare *s, int first) {
  for (siginfo_t i;; first = 0) {
    if (!first && ptrace(PTRACE_CONT, s->pid, 0, 0) < 0) return 0;
    while (waitid(P_PIDFD, s->pidfd, &i, WEXITED | WSTOPPED) < 0)
      if (errno != EINTR) return 0;
    if (i.si_code != CLD_TRAPPED || i.si_status != SIGCONT) return i.si_code == CLD_TRAPPED && i.si_status == SIGTRAP;
  }
}

/** Where the last page of the text of the ELF file mapped at `head` has room, which nothing of the program uses; 0 for none. */
static uint64_t room(struct traced *t, uint64_t head) {
  Elf64_Ehdr e;
  Elf64_Phdr p[32];
  uint64_t bias = 0;
  if (!peek(t, head, &e, sizeof e) || memcmp(e.e_ident, ELFMAG, SELFMAG) || e.e_phnum > 32 ||
      !peek(t, head + e.e_phoff, p, e.e_phnum * sizeof *p))
    return 0;
  for (int i = 0; i < e.e_phnum; i++)
    if (p[i].p_type == PT_LOAD && p[i].p_offset == 0) bias = head - p[i].p_vaddr;
  for (int i = 0; i < e.e_phnum; i++) {
    if (p[i].p_type != PT_LOAD || !(p[i].p_flags & PF_X) || p[i].p_flags & PF_W || p[i].p_filesz != p[i].p_memsz)
      continue;
    uint64_t at = (bias + p[i].p_vaddr + p[i].p_filesz + 15) & ~15ULL, page = (at + 4095) & ~4095ULL;
    if (page - at >= (size_t)(stub_end - stub)) return at;
  }
  return 0;
}

/** Its addresses as the kernel has them, but for its heap's end, where that is another than the beginning. */
static int layout(pid_t pid, struct prctl_mm_map *map) {
  char text[2048];
  uint64_t f[52] = {0};
  if (slurp(pid, "stat", text, sizeof text) < 0) return 0;
  char *at = strrchr(text, ')');
  for (int i = 3; at && i < 52; i++) {
    at = strchr(at + 1, ' ');
    if (at) f[i] = strtoull(at, NULL, 10);
  }
  *map = (struct prctl_mm_map){.start_code = f[26],
      .end_code = f[27],
      .start_stack = f[28],
      .start_data = f[45],
      .end_data = f[46],
      .start_brk = f[47],
      .brk = f[47],
      .arg_start = f[48],
      .arg_end = f[49],
      .env_start = f[50],
      .env_end = f[51],
      .exe_fd = -1};
  return at && f[51];
}

/** What must still be as it is when the shell is used: the files that it has mapped, and what glibc's loader, or musl's, has
 * looked at. And where its heap ends, which musl's loader has begun, by whole pages. */
static int note_maps(struct spare *s, char *maps) {
  for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
    char *path = strchr(line, '/'), *end = strchr(line, '-');
    if (strstr(line, "[heap]") && end) s->map.brk = strtoull(end + 1, NULL, 16);
    if (path && !spare_watch(s, path)) return 0;
  }
  return spare_watch(s, "/etc/ld.so.cache") && spare_watch(s, "/etc/ld.so.preload") &&
         spare_watch(s, "/etc/ld-musl-x86_64.path");
}

/** What the kernel has told a program at its exec: where it begins, and where its headers and its loader are. */
struct origin {
  uint64_t entry, headers, loader;
};

static struct origin origin_of(pid_t pid) {
  Elf64_auxv_t aux[64];
  struct origin o = {0};
  ssize_t n = slurp(pid, "auxv", (char *)aux, sizeof aux);
  for (int i = 0; i < n / (ssize_t)sizeof *aux; i++) {
    if (aux[i].a_type == AT_ENTRY) o.entry = aux[i].a_un.a_val;
    if (aux[i].a_type == AT_PHDR) o.headers = aux[i].a_un.a_val;
    if (aux[i].a_type == AT_BASE) o.loader = aux[i].a_un.a_val;
  }
  return o;
}

/** Where its arguments are; 0 where they are not `argv`: a script in place of a shell has others than it was given. */
static int find_arguments(struct traced *t, int count, char **argv, uint64_t *at) {
  struct user_regs_struct r;
  uint64_t argc;
  if (ptrace(PTRACE_GETREGS, t->pid, 0, &r) < 0 || !peek(t, r.rsp, &argc, 8) || argc != (uint64_t)count ||
      argc > MAX_ARGUMENTS)
    return 0;
  if (!peek(t, r.rsp + 8, at, argc * 8)) return 0;
  for (int i = 0; i < count; i++)
    if (!same(t, at[i], argv[i])) return 0;
  return 1;
}

/** Lets it run until `entry`, by a trap that stands there meanwhile. */
static int run_to(struct spare *s, struct traced *t, uint64_t entry, struct user_regs_struct *r) {
  const char trap = (char)0xcc;
  char byte;
  if (!peek(t, entry, &byte, 1) || !poke(t, entry, &trap, 1) || !to_trap(s, 0)) return 0;
  return ptrace(PTRACE_GETREGS, t->pid, 0, r) >= 0 && r->rip == entry + 1 && poke(t, entry, &byte, 1);
}

/** In process lists it has the title in place of its arguments, as long as it waits. */
static int poke_title(struct traced *t, uint64_t line, struct prctl_mm_map map, uint64_t map_at) {
  map.arg_start = line;
  map.arg_end = line + sizeof SPARE_TITLE;
  return poke(t, line, SPARE_TITLE, sizeof SPARE_TITLE) && poke(t, map_at, &map, sizeof map);
}

static int poke_stub(struct traced *t, uint64_t where, const struct stub_data *data) {
  char blob[512];
  memcpy(blob, stub, stub_end - stub);
  memcpy(blob + (stub_data - stub), data, sizeof *data);
  return poke(t, where, blob, stub_end - stub);
}

/** Lets it begin the stub, up to the trap behind its new name and title; 0 where it could not take these. */
static int begin_stub(struct spare *s, struct traced *t, uint64_t where, struct user_regs_struct *r) {
  r->rip = where;
  r->orig_rax = -1;
  return ptrace(PTRACE_SETREGS, t->pid, 0, r) >= 0 && to_trap(s, 0) && ptrace(PTRACE_GETREGS, t->pid, 0, r) >= 0 &&
         r->rax == 0;
}

static int park(struct spare *s, struct traced *t, char **argv) {
  static char maps[32 * 1024];
  struct user_regs_struct r;
  struct stub_data d = {.title = SPARE_TITLE};
  uint64_t at[MAX_ARGUMENTS];
  struct origin o = origin_of(t->pid);
  if (!o.entry || !find_arguments(t, s->like->argc, argv, at)) return 0;
  ssize_t n = slurp(t->pid, "comm", d.name, sizeof d.name);
  if (n < 2) return 0;
  d.name[n - 1] = 0;
  if (!run_to(s, t, o.entry, &r)) return 0;
  if (!layout(t->pid, &s->map) || slurp(t->pid, "maps", maps, sizeof maps) < 0 || !note_maps(s, maps)) return 0;
  uint64_t marker = s->map.env_end - MARKER_LENGTH - 1, line = at[s->like->argc - 1];
  if (!same(t, marker, NO_MARKER) || line + SPARE_LINE > s->map.env_start) return 0;
  uint64_t where = room(t, o.headers - sizeof(Elf64_Ehdr));
  if (!where && o.loader) where = room(t, o.loader);
  if (!where) return 0;
  d.entry = o.entry;
  d.rdx = r.rdx;
  // Below its stack pointer nothing is in use yet.
  d.map = (struct prctl_mm_map *)((r.rsp - 1024) & ~15ULL);
  d.into[0] = (struct iovec){d.map, sizeof s->map};
  d.into[1] = (struct iovec){(void *)marker, MARKER_LENGTH};
  d.into[2] = (struct iovec){(void *)line, SPARE_LINE};
  if (!poke_title(t, line, s->map, (uint64_t)d.map) || !poke_stub(t, where, &d) || !begin_stub(s, t, where, &r))
    return 0;
  s->map.arg_start = at[0];
  s->line = line;
  return ptrace(PTRACE_DETACH, t->pid, 0, 0) == 0;
}

/** Brings a process that has asked to be traced from its exec to the gate: 1, or 0 where that cannot be; it is to be ended then. */
int gate_hold(struct spare *s, char **argv) {
  char path[40];
  struct traced t = {s->pid, -1};
  if (!to_trap(s, 1)) return 0;
  ptrace(PTRACE_SETOPTIONS, s->pid, 0, PTRACE_O_EXITKILL);
  snprintf(path, sizeof path, "/proc/%d/mem", s->pid);
  t.memory = open(path, O_RDWR | O_CLOEXEC);
  int done = t.memory >= 0 && park(s, &t, argv);
  if (t.memory >= 0) close(t.memory);
  return done;
}

/** Lets it go on as the shell of that line: 1, or 0 where nothing of it has run, nor will. */
int gate_open(struct spare *s, const char *line, size_t length, const char *marker) {
  s->map.arg_end = s->line + length + 1;
  struct iovec message[3] = {{&s->map, sizeof s->map}, {(void *)marker, MARKER_LENGTH}, {(void *)line, length + 1}};
  return writev(s->gate, message, 3) == (ssize_t)(sizeof s->map + MARKER_LENGTH + length + 1);
}
#endif
