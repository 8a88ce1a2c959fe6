/* Preloaded into a program, has its time go FAST_CLOCK times as fast: a day passes within minutes.
 *
 * Clocks that count from the start of the machine, and waits by them. What the kernel counts (processor time) and
 * the date stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const long long second = 1000000000;
static long long speed = 1, begun_ns[2];
static int (*clock_of_system)(clockid_t, struct timespec *);
static int (*wait_on_condition)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*wait_on_semaphore)(sem_t *, clockid_t, const struct timespec *);
static int (*sleep_by_clock)(clockid_t, int, const struct timespec *, struct timespec *);
static long (*call_of_system)(long, ...);

static long long ns_of(const struct timespec *time) { return time->tv_sec * second + time->tv_nsec; }
static struct timespec time_of(long long ns) { return (struct timespec){ns / second, ns % second}; }
static int is_fast(clockid_t clock) { return clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME; }

__attribute__((constructor)) static void begin(void) {
    struct timespec now;
    clock_of_system = dlsym(RTLD_NEXT, "clock_gettime");
    wait_on_condition = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    wait_on_semaphore = dlsym(RTLD_NEXT, "sem_clockwait");
    sleep_by_clock = dlsym(RTLD_NEXT, "clock_nanosleep");
    call_of_system = dlsym(RTLD_NEXT, "syscall");
    clock_of_system(CLOCK_MONOTONIC, &now);
    begun_ns[0] = ns_of(&now);
    clock_of_system(CLOCK_BOOTTIME, &now);
    begun_ns[1] = ns_of(&now);
    speed = atoll(getenv("FAST_CLOCK"));
}

/* A moment of a fast clock as the system's own has it. */
static struct timespec slow(clockid_t clock, const struct timespec *moment) {
    const long long begun = begun_ns[clock == CLOCK_BOOTTIME];
    return time_of(begun + (ns_of(moment) - begun) / speed);
}

int clock_gettime(clockid_t clock, struct timespec *into) {
    if (!clock_of_system) begin();
    const int failed = clock_of_system(clock, into);
    if (failed || !is_fast(clock)) return failed;
    const long long begun = begun_ns[clock == CLOCK_BOOTTIME];
    *into = time_of(begun + (ns_of(into) - begun) * speed);
    return 0;
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    const struct timespec moment = is_fast(clock) ? slow(clock, until) : *until;
    return wait_on_condition(condition, mutex, clock, &moment);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    const struct timespec moment = is_fast(clock) ? slow(clock, until) : *until;
    return wait_on_semaphore(semaphore, clock, &moment);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    if (!is_fast(clock)) return sleep_by_clock(clock, flags, time, left);
    const struct timespec moment = flags & TIMER_ABSTIME ? slow(clock, time) : time_of(ns_of(time) / speed);
    return sleep_by_clock(clock, flags, &moment, left);
}

long syscall(long number, ...) {
    va_list given;
    long of[6];
    struct timespec most;
    va_start(given, number);
    for (int i = 0; i < 6; ++i) of[i] = va_arg(given, long);
    va_end(given);
    if (number == SYS_futex && (of[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && of[3]) {
        most = time_of(ns_of((const struct timespec *)of[3]) / speed);
        of[3] = (long)&most;
    }
    return call_of_system(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}
