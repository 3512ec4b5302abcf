// A system that fails when it is told to: preloaded (LD_PRELOAD), it stands before libc and counts the calls that the
// program makes, itself or through a library. Calls of one function with the same five frames of the program above them
// are one site. tests/faults/faults_test.py lists a run's sites, then lets each of them fail.
//   FAULTS_LOG=FILE     a line for each call: site, function, path or socket, offsets of the frames in the program
//   FAULTS_SITE=HEX FAULTS_NTH=N FAULTS_HOW=ERRNO|short|kill     what becomes of the Nth call of a site
//   FAULTS_CLOCK=S      every other time that the wall clock is read, it has jumped by so many seconds
// The log says "struck" when the call has failed.
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace {

constexpr int kFrames = 5;
constexpr int kDeepest = 64;
constexpr int kShort = -1, kKill = -2;

uintptr_t program_begin = 0, program_end = 0;
int log_file = -1;
uint64_t wanted_site = 0;
long wanted_call = 0, clock_jump = 0;
int how = 0;
std::atomic<long> seen{0}, clock_reads{0};
bool ready = false;
thread_local bool inside = false;

int find_program(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
    program_begin = info->dlpi_addr;
    program_end = info->dlpi_addr + part.p_vaddr + part.p_memsz;
  }
  return 1;  // the program is the first
}

__attribute__((constructor)) void prepare() {
  ::dl_iterate_phdr(find_program, nullptr);
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads what it needs
  if (const char* path = ::getenv("FAULTS_LOG"))
    log_file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const char *site = ::getenv("FAULTS_SITE"), *nth = ::getenv("FAULTS_NTH"), *kind = ::getenv("FAULTS_HOW");
  if (site && nth && kind) {
    wanted_site = ::strtoull(site, nullptr, 16);
    wanted_call = ::atol(nth);
    how = !::strcmp(kind, "short") ? kShort : !::strcmp(kind, "kill") ? kKill : ::atoi(kind);
  }
  if (const char* jump = ::getenv("FAULTS_CLOCK")) clock_jump = ::atol(jump);
  ready = log_file >= 0 || wanted_call > 0;
}

// What a call is about.
struct About {
  const char* path = nullptr;
  int fd = -1;
  size_t* size = nullptr;  // of what is read or written, to be made shorter
};

// Whether this call is to fail; errno is set then.
bool strike(const char* call, const About& about) {
  if (!ready || inside || (about.fd >= 0 && about.fd <= 2)) return false;
  inside = true;
  const int before = errno;
  void* all[kDeepest];
  const int depth = ::backtrace(all, kDeepest);
  uintptr_t frames[kFrames];
  int count = 0;
  for (int i = 0; i < depth && count < kFrames; ++i) {
    const auto at = reinterpret_cast<uintptr_t>(all[i]);
    if (at >= program_begin && at < program_end) frames[count++] = at - program_begin;
  }
  bool fails = false;
  if (count > 0) {
    uint64_t site = 0xcbf29ce484222325;
    for (const char* c = call; *c; ++c) site = (site ^ static_cast<uint8_t>(*c)) * 0x100000001b3;
    for (int i = 0; i < count; ++i) site = (site ^ frames[i]) * 0x100000001b3;
    const bool struck = site == wanted_site && ++seen == wanted_call;
    if (log_file >= 0) {
      char link[64], target[512] = "", line[1024];
      const char* what = about.path ? about.path : target;
      if (about.fd >= 0) {
        ::snprintf(link, sizeof link, "/proc/self/fd/%d", about.fd);
        const long n = ::syscall(SYS_readlink, link, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
      }
      int length = ::snprintf(line, sizeof line, "%s%016lx %s %.500s", struck ? "struck " : "", site, call,
                              what && *what ? what : "-");
      for (int i = 0; i < count; ++i)
        length += ::snprintf(line + length, sizeof line - static_cast<size_t>(length), " %lx", frames[i]);
      line[length++] = '\n';
      ::syscall(SYS_write, log_file, line, static_cast<size_t>(length));
    }
    if (struck && how == kKill) ::syscall(SYS_kill, ::getpid(), SIGKILL);
    if (struck && how == kShort && about.size) *about.size = *about.size > 1 ? *about.size / 2 : *about.size;
    fails = struck && how > 0;
  }
  errno = fails ? how : before;
  inside = false;
  return fails;
}

template <class Function>
Function next(Function& known, const char* name) {
  if (!known) known = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
  return known;
}

}  // namespace

#pragma GCC visibility push(default)
#define NEXT(name)                        \
  static decltype(&name) known = nullptr; \
  const auto real = next(known, #name)

// RESULT NAME PARAMETERS ARGUMENTS ABOUT: a call that fails with -1.
#define WRAP(result, name, parameters, arguments, ...)                     \
  extern "C" result name parameters {                                      \
    NEXT(name);                                                            \
    if (strike(#name, About{__VA_ARGS__})) return static_cast<result>(-1); \
    return real arguments;                                                 \
  }
// A call that fails after it was done: what was open is closed.
#define WRAP_DONE(name, parameters, arguments, ...)                     \
  extern "C" int name parameters noexcept(noexcept(::name arguments)) { \
    NEXT(name);                                                         \
    const bool fails = strike(#name, About{__VA_ARGS__});               \
    const int error = errno, result = real arguments;                   \
    if (!fails) return result;                                          \
    errno = error;                                                      \
    return -1;                                                          \
  }
#define WRAP_OPEN(name)                                                                  \
  extern "C" int name(const char* path, int flags, ...) {                                \
    va_list rest;                                                                        \
    va_start(rest, flags);                                                               \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                                        \
    NEXT(name);                                                                          \
    return strike("open", {path}) ? -1 : real(path, flags, mode);                        \
  }

WRAP_OPEN(open)
WRAP_OPEN(open64)

extern "C" int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  NEXT(openat);
  return strike("openat", {path}) ? -1 : real(folder, path, flags, mode);
}

extern "C" FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return strike("fopen", {path}) ? nullptr : real(path, mode);
}
extern "C" FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return strike("fopen", {path}) ? nullptr : real(path, mode);
}
extern "C" DIR* opendir(const char* path) {
  NEXT(opendir);
  return strike("opendir", {path}) ? nullptr : real(path);
}
extern "C" DIR* fdopendir(int fd) {
  NEXT(fdopendir);
  return strike("fdopendir", {nullptr, fd}) ? nullptr : real(fd);
}
extern "C" dirent* readdir(DIR* folder) {
  NEXT(readdir);
  return strike("readdir", {nullptr, ::dirfd(folder)}) ? nullptr : real(folder);
}
extern "C" dirent64* readdir64(DIR* folder) {
  NEXT(readdir64);
  return strike("readdir", {nullptr, ::dirfd(folder)}) ? nullptr : real(folder);
}

WRAP(ssize_t, read, (int fd, void* to, size_t size), (fd, to, size), nullptr, fd, &size)
WRAP(ssize_t, pread, (int fd, void* to, size_t size, off_t at), (fd, to, size, at), nullptr, fd, &size)
WRAP(ssize_t, pread64, (int fd, void* to, size_t size, off64_t at), (fd, to, size, at), nullptr, fd, &size)
WRAP(ssize_t, write, (int fd, const void* from, size_t size), (fd, from, size), nullptr, fd, &size)
WRAP(ssize_t, pwrite, (int fd, const void* from, size_t size, off_t at), (fd, from, size, at), nullptr, fd, &size)
WRAP(ssize_t, pwrite64, (int fd, const void* from, size_t size, off64_t at), (fd, from, size, at), nullptr, fd, &size)
WRAP(ssize_t, readv, (int fd, const iovec* parts, int count), (fd, parts, count), nullptr, fd)
WRAP(ssize_t, writev, (int fd, const iovec* parts, int count), (fd, parts, count), nullptr, fd)
WRAP(ssize_t, sendfile, (int to, int from, off_t* at, size_t size) noexcept, (to, from, at, size), nullptr, to, &size)
WRAP(int, fsync, (int fd), (fd), nullptr, fd)
WRAP(int, ftruncate, (int fd, off_t size) noexcept, (fd, size), nullptr, fd)
WRAP(int, ftruncate64, (int fd, off64_t size) noexcept, (fd, size), nullptr, fd)
WRAP(int, stat, (const char* path, struct stat* to) noexcept, (path, to), path)
WRAP(int, stat64, (const char* path, struct stat64* to) noexcept, (path, to), path)
WRAP(int, lstat, (const char* path, struct stat* to) noexcept, (path, to), path)
WRAP(int, lstat64, (const char* path, struct stat64* to) noexcept, (path, to), path)
WRAP(int, fstat, (int fd, struct stat* to) noexcept, (fd, to), nullptr, fd)
WRAP(int, fstat64, (int fd, struct stat64* to) noexcept, (fd, to), nullptr, fd)
WRAP(int, statvfs, (const char* path, struct statvfs* to) noexcept, (path, to), path)
WRAP(ssize_t, readlink, (const char* path, char* to, size_t size) noexcept, (path, to, size), path)
WRAP(int, mkdir, (const char* path, mode_t mode) noexcept, (path, mode), path)
WRAP(int, unlink, (const char* path) noexcept, (path), path)
WRAP(int, unlinkat, (int folder, const char* path, int flags) noexcept, (folder, path, flags), path)
WRAP(int, rename, (const char* from, const char* to) noexcept, (from, to), to)
WRAP(int, renameat2, (int a, const char* from, int b, const char* to, unsigned flags) noexcept, (a, from, b, to, flags),
     to)
WRAP(int, symlink, (const char* to, const char* path) noexcept, (to, path), path)
WRAP(int, flock, (int fd, int how_to) noexcept, (fd, how_to), nullptr, fd)
WRAP(int, fchmod, (int fd, mode_t mode) noexcept, (fd, mode), nullptr, fd)
WRAP(int, madvise, (void* at, size_t size, int what) noexcept, (at, size, what))
WRAP(int, socket, (int family, int type, int protocol) noexcept, (family, type, protocol))
WRAP(int, connect, (int fd, const sockaddr* to, socklen_t size), (fd, to, size), nullptr, fd)
WRAP(int, bind, (int fd, const sockaddr* to, socklen_t size) noexcept, (fd, to, size), nullptr, fd)
WRAP(int, listen, (int fd, int waiting) noexcept, (fd, waiting), nullptr, fd)
WRAP(int, accept, (int fd, sockaddr* who, socklen_t* size), (fd, who, size), nullptr, fd)
WRAP(int, accept4, (int fd, sockaddr* who, socklen_t* size, int flags), (fd, who, size, flags), nullptr, fd)
WRAP(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t size) noexcept,
     (fd, level, name, value, size), nullptr, fd)
WRAP(int, getsockname, (int fd, sockaddr* to, socklen_t* size) noexcept, (fd, to, size), nullptr, fd)
WRAP(ssize_t, send, (int fd, const void* from, size_t size, int flags), (fd, from, size, flags), nullptr, fd, &size)
WRAP(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags), nullptr, fd)
WRAP(ssize_t, recv, (int fd, void* to, size_t size, int flags), (fd, to, size, flags), nullptr, fd, &size)
WRAP(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags), nullptr, fd)
WRAP(int, poll, (pollfd * list, nfds_t count, int milliseconds), (list, count, milliseconds))
WRAP(int, epoll_create1, (int flags) noexcept, (flags))
WRAP(int, epoll_ctl, (int fd, int what, int about, epoll_event* event) noexcept, (fd, what, about, event), nullptr,
     about)
WRAP(int, epoll_wait, (int fd, epoll_event* to, int most, int milliseconds), (fd, to, most, milliseconds))
WRAP(int, eventfd, (unsigned start, int flags) noexcept, (start, flags))
WRAP(int, timerfd_create, (int clock, int flags) noexcept, (clock, flags))
WRAP(int, timerfd_settime, (int fd, int flags, const itimerspec* to, itimerspec* before) noexcept,
     (fd, flags, to, before))
WRAP_DONE(close, (int fd), (fd), nullptr, fd)
WRAP_DONE(munmap, (void* at, size_t size), (at, size))

extern "C" void* mmap(void* at, size_t size, int access, int flags, int fd, off_t from) noexcept {
  NEXT(mmap);
  return strike("mmap", {nullptr, fd}) ? MAP_FAILED : real(at, size, access, flags, fd, from);
}
extern "C" void* mmap64(void* at, size_t size, int access, int flags, int fd, off64_t from) noexcept {
  NEXT(mmap64);
  return strike("mmap", {nullptr, fd}) ? MAP_FAILED : real(at, size, access, flags, fd, from);
}
extern "C" char* realpath(const char* path, char* to) noexcept {
  NEXT(realpath);
  return strike("realpath", {path}) ? nullptr : real(path, to);
}
extern "C" char* getcwd(char* to, size_t size) noexcept {
  NEXT(getcwd);
  return strike("getcwd", {}) ? nullptr : real(to, size);
}
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how_to, void* (*work)(void*),
                              void* argument) noexcept {
  NEXT(pthread_create);
  return strike("pthread_create", {}) ? errno : real(thread, how_to, work, argument);
}
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* wish, addrinfo** to) {
  NEXT(getaddrinfo);
  return strike("getaddrinfo", {name}) ? EAI_SYSTEM : real(name, service, wish, to);
}

extern "C" int clock_gettime(clockid_t clock, timespec* to) noexcept {
  NEXT(clock_gettime);
  const int result = real(clock, to);
  if (clock == CLOCK_REALTIME && clock_jump != 0 && ++clock_reads % 2 == 0) to->tv_sec += clock_jump;
  return result;
}
extern "C" time_t time(time_t* to) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
#pragma GCC visibility pop
