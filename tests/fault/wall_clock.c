/* A wall clock that a test can move, for one process: preloaded before the C library.
 *
 * The file WALL_CLOCK holds one 64 bit number in native order: seconds to add to the true time.
 * It is mapped, so a jump is one store of the test. Monotonic clocks stay as they are. A wait
 * until a moment of the wall clock is cut into slices, so that a jump shortens or lengthens it as
 * it does on a machine whose clock is set. (libfaketime does neither know C11's cnd_timedwait,
 * by which librdkafka waits, nor leave clock_nanosleep alone, by which Python sleeps.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS 20000000LL

static volatile const long *moved;

__attribute__((constructor)) static void map_clock(void) {
  const char *name = getenv("WALL_CLOCK");
  int file = name ? open(name, O_RDONLY) : -1;
  if (file < 0) return;
  void *place = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  if (place != MAP_FAILED) moved = place;
  close(file);
}

static long away_s(void) { return moved ? *moved : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += away_s();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (result) *result = precise.tv_sec;
  return precise.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
  return clock_gettime(CLOCK_REALTIME, now) ? 0 : base;
}

/* Waits a moment of true time. 0, which may be a spurious wake-up, unless ``until`` has come. */
static int waits_on(const struct timespec *until, struct timespec *slice) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
    return 0;
  long long left_ns = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec;
  long long ends_ns = (now.tv_nsec + (left_ns < SLICE_NS ? left_ns : SLICE_NS));
  slice->tv_sec = now.tv_sec - away_s() + ends_ns / 1000000000LL;
  slice->tv_nsec = ends_ns % 1000000000LL;
  return 1;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  struct timespec slice;
  if (!wait) *(void **)&wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  /* Bit 1 says that this one waits by the monotonic clock (glibc, since 2.25). */
  if (condition->__data.__wrefs & 2) return wait(condition, mutex, until);
  if (!waits_on(until, &slice)) return ETIMEDOUT;
  int woken = wait(condition, mutex, &slice);
  return woken == ETIMEDOUT ? 0 : woken;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict until) {
  static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
  struct timespec slice;
  if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "cnd_timedwait");
  if (!waits_on(until, &slice)) return thrd_timedout;
  int woken = wait(condition, mutex, &slice);
  return woken == thrd_timedout ? thrd_success : woken;
}
