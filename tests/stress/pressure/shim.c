/* Loaded into a traced program before libc: a hanging, full or failing disk under its traces, a
 * stepping clock, allocations that fail. What it does is told by words that a test may change
 * at any time, in a file that PRESSURE_SHIM names; shim.py holds the same list. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

enum word {
    WRITES_HANG,     /* 1: a write to a trace waits until this is 0 again */
    SERVER_AWAY,     /* 1: so does whatever else touches a file beside the trace */
    HANGING,         /* how many calls wait now */
    WRITE_ERRNO,     /* what a write to a trace fails with */
    TRUNCATE_FAILS,  /* so many times a trace cannot be cut */
    CREATE_ERRNO,    /* what making a file beside the trace fails with */
    TRACE_ROOM,      /* bytes that still fit beside the trace; below 0: no limit */
    SPOOL_ROOM,      /* bytes that can still be reserved for spools; below 0: no limit */
    REALTIME_NS,     /* added to the wall clock */
    BOOTTIME_NS,     /* added to the clock that counts while the machine sleeps */
    MONOTONIC_NS,    /* added to the clock that only rises, and to that of BOOTTIME_NS */
    CLOCKS_STAND,    /* 1: the clocks that only rise show the moment at which they were first asked */
    DRAIN_FAILS_AT,  /* the drain thread's n-th allocation from now fails; below 0: all do */
    DRAIN_ALLOCATED, /* allocations of the drain thread */
    SAMPLER_TOO,     /* a thread that samples stacks, begun from now on, is as the drain thread */
    STOLEN_NAMES,    /* so many files that are about to be made are there first */
    MARKER_KILLS,    /* 1: who writes a marker is killed before its first byte */
    NO_TMPFILE,      /* 1: the file system has no files without a name */
    SPOOL_KILLS,     /* who reserves space so many times from now is killed when it has got it; 0: nobody */
    UNLINK_KILLS,    /* who removes a file so many times from now is killed before; 0: nobody */
    RENAMES_HANG,    /* 1: giving a file another name waits until this is 0 again */
    KEPT_WITHIN_US,  /* the wall clock is kept, by so much at most; below 0: that is a secret */
    WORDS
};

static _Atomic int64_t unset[WORDS] = {[TRACE_ROOM] = -1, [SPOOL_ROOM] = -1};
static _Atomic int64_t* words = unset;
static _Thread_local int in_drain_thread __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void map_words(void) {
    const char* path = getenv("PRESSURE_SHIM");
    const int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    void* found = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof unset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found == MAP_FAILED) {
        fprintf(stderr, "pressure_shim: no control file\n");
        abort();
    }
    close(fd);
    words = found;
}

static void wait_while(enum word hang) {
    const struct timespec moment = {0, 1000000};
    if (!words[hang]) return;
    words[HANGING]++;
    while (words[hang]) clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
    words[HANGING]--;
}

static int is_trace(const char* path) { return strstr(path, ".pfw") != NULL; }

static int lies_beside_traces(const char* path) {
    const char* folder = getenv("PRESSURE_SHIM_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int leads_to(int fd, int (*kind)(const char*)) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes < 0 ? 0 : bytes] = 0;
    return kind(path);
}

/* What becomes of a write: its length, shorter where there is no more room, or -1. */
static ssize_t allowed(int fd, size_t bytes) {
    if (fd <= 2 || !leads_to(fd, lies_beside_traces)) return (ssize_t)bytes;
    wait_while(SERVER_AWAY);
    if (words[MARKER_KILLS] && !leads_to(fd, is_trace)) kill(getpid(), SIGKILL);
    if (leads_to(fd, is_trace)) {
        wait_while(WRITES_HANG);
        errno = (int)words[WRITE_ERRNO];
        if (errno) return -1;
    }
    const int64_t room = words[TRACE_ROOM];
    errno = ENOSPC;
    if (room == 0 && bytes) return -1;
    if (room > 0) {
        if (bytes > (size_t)room) bytes = (size_t)room;
        words[TRACE_ROOM] -= (int64_t)bytes;
    }
    return (ssize_t)bytes;
}

ssize_t write(int fd, const void* data, size_t bytes) {
    const ssize_t part = allowed(fd, bytes);
    return part < 0 ? part : syscall(SYS_write, fd, data, part);
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
    const ssize_t part = allowed(fd, bytes);
    return part < 0 ? part : syscall(SYS_pwrite64, fd, data, part, at);
}

ssize_t pwrite64(int fd, const void* data, size_t bytes, off_t at) __attribute__((alias("pwrite")));

int ftruncate(int fd, off_t bytes) {
    if (words[TRUNCATE_FAILS] > 0 && leads_to(fd, is_trace)) {
        words[TRUNCATE_FAILS]--;
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, bytes);
}

int ftruncate64(int fd, off_t bytes) __attribute__((alias("ftruncate")));

/* Somebody else makes a file of that name first. */
static void steal(const char* path) {
    if (words[STOLEN_NAMES] <= 0) return;
    words[STOLEN_NAMES]--;
    const long thief = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (thief >= 0) {
        syscall(SYS_write, thief, "precious", 8);
        close((int)thief);
    }
}

static int open_at(int directory, const char* path, int flags, mode_t mode) {
    if (lies_beside_traces(path)) {
        wait_while(SERVER_AWAY);
        if ((flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) && words[CREATE_ERRNO]) {
            errno = (int)words[CREATE_ERRNO];
            return -1;
        }
        if ((flags & O_TMPFILE) == O_TMPFILE && words[NO_TMPFILE]) {
            errno = EOPNOTSUPP;
            return -1;
        }
        if (flags & O_EXCL) steal(path);
    }
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

int open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_at(directory, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) __attribute__((alias("openat")));

int linkat(int from, const char* path, int to, const char* name, int flags) {
    if (lies_beside_traces(name)) steal(name);
    return (int)syscall(SYS_linkat, from, path, to, name, flags);
}

int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int renameat(int from, const char* path, int to, const char* name) {
    wait_while(RENAMES_HANG);
    return (int)syscall(SYS_renameat2, from, path, to, name, 0);
}

static void before_unlink(void) {
    if (words[UNLINK_KILLS] > 0 && --words[UNLINK_KILLS] == 0) kill(getpid(), SIGKILL);
}

int unlink(const char* path) {
    before_unlink();
    return (int)syscall(SYS_unlink, path);
}

int unlinkat(int directory, const char* path, int flags) {
    before_unlink();
    return (int)syscall(SYS_unlinkat, directory, path, flags);
}

static int take_spool_room(off_t bytes) {
    if (words[SPOOL_ROOM] < 0) return 1;
    if (words[SPOOL_ROOM] < bytes) return 0;
    words[SPOOL_ROOM] -= bytes;
    return 1;
}

static void after_spool_grew(void) {
    if (words[SPOOL_KILLS] > 0 && --words[SPOOL_KILLS] == 0) kill(getpid(), SIGKILL);
}

int posix_fallocate(int fd, off_t from, off_t bytes) {
    static int (*real)(int, off_t, off_t);
    if (!real) real = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
    if (!take_spool_room(bytes)) return ENOSPC;
    const int error = real(fd, from, bytes);
    after_spool_grew();
    return error;
}

// By this one room is made that nobody needs yet.
int fallocate(int fd, int mode, off_t from, off_t bytes) {
    if (!take_spool_room(bytes)) {
        errno = ENOSPC;
        return -1;
    }
    const int done = (int)syscall(SYS_fallocate, fd, mode, from, bytes);
    after_spool_grew();
    return done;
}

int fallocate64(int fd, int mode, off_t from, off_t bytes) __attribute__((alias("fallocate")));

int posix_fallocate64(int fd, off_t from, off_t bytes) __attribute__((alias("posix_fallocate")));

int clock_gettime(clockid_t which, struct timespec* now) {
    static int (*real)(clockid_t, struct timespec*);
    if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
    if (words[CLOCKS_STAND] && (which == CLOCK_MONOTONIC || which == CLOCK_BOOTTIME)) {
        static struct timespec first;
        if (!first.tv_sec) real(CLOCK_MONOTONIC, &first);
        *now = first;
        return 0;
    }
    const int failed = real(which, now);
    const int64_t step = which == CLOCK_REALTIME    ? words[REALTIME_NS]
                         : which == CLOCK_BOOTTIME  ? words[BOOTTIME_NS] + words[MONOTONIC_NS]
                         : which == CLOCK_MONOTONIC ? words[MONOTONIC_NS]
                                                    : 0;
    if (failed || !step) return failed;
    const int64_t second = 1000000000, ns = now->tv_sec * second + now->tv_nsec + step;
    now->tv_sec = ns / second - (ns % second < 0);
    now->tv_nsec = ns - now->tv_sec * second;
    return 0;
}

int adjtimex(struct timex* told) {
    static int (*real)(struct timex*);
    if (!real) real = (int (*)(struct timex*))dlsym(RTLD_NEXT, "adjtimex");
    if (words[KEPT_WITHIN_US] < 0) {
        errno = EPERM;
        return -1;
    }
    const int state = real(told);
    if (!words[KEPT_WITHIN_US]) return state;
    told->status = 0;
    told->maxerror = words[KEPT_WITHIN_US];
    told->esterror = 20;
    told->freq = 49 << 14; /* 12.25 of a million */
    return TIME_OK;
}

int pthread_setname_np(pthread_t thread, const char* name) {
    static int (*real)(pthread_t, const char*);
    if (!real) real = (int (*)(pthread_t, const char*))dlsym(RTLD_NEXT, "pthread_setname_np");
    const int samples = words[SAMPLER_TOO] && strcmp(name, "dftrace-lines") == 0;
    if (samples || strcmp(name, "dftrace-drain") == 0) in_drain_thread = 1;
    return real(thread, name);
}

extern void* __libc_malloc(size_t bytes);

void* malloc(size_t bytes) {
    if (in_drain_thread) {
        words[DRAIN_ALLOCATED]++;
        const int64_t at = words[DRAIN_FAILS_AT];
        if (at > 0) words[DRAIN_FAILS_AT] = at - 1;
        if (at < 0 || at == 1) {
            errno = ENOMEM;
            return NULL;
        }
    }
    return __libc_malloc(bytes);
}
