/* Shifts the wall clock of one process by the offset in a file: milliseconds, in eight bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_ms;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *shift_ms, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        shift_ms = page;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *out) {
    long failed = syscall(SYS_clock_gettime, id, out);
    if (failed || !shift_ms || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
        return (int)failed;
    int64_t ms = *shift_ms;
    out->tv_sec += ms / 1000;
    out->tv_nsec += ms % 1000 * 1000000;
    if (out->tv_nsec < 0) {
        out->tv_sec--;
        out->tv_nsec += 1000000000;
    } else if (out->tv_nsec >= 1000000000) {
        out->tv_sec++;
        out->tv_nsec -= 1000000000;
    }
    return 0;
}

int gettimeofday(struct timeval *out, void *zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
