/*
 * Measures the rate of values with a fixed number in flight: each completion submits the next value within its callback,
 * so the values submitted in one turn are sent as one bundle. One poll loop, no threads.
 *
 *   rate attach ADDRESSES UNDER_WAY SECONDS [learn]      attached, to nodes that listen
 *   rate embed FOLDER UNDER_WAY SECONDS [learn]          a single node in this process
 *
 * With "learn" it also receives all values. Prints values per second, the latency, and the cost of a value in this process:
 * turns of the loop, context switches, microseconds of processor time.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "quorate.h"

static quorate *handle;
static int under_way, over, failed;
static uint64_t values, learned, waited_ns, below;

struct one {
    uint64_t since;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void complain(int code)
{
    const quorate_error *error = quorate_last_error();
    fprintf(stderr, "%s: %s\n%s\n", quorate_code_name(code), error->detail, error->hint);
    failed = over = 1;
}

static void done(void *argument, int code, uint64_t slot);

static void submit(struct one *one)
{
    static const char value[64];
    one->since = now_ns();
    int code = quorate_submit(handle, value, sizeof value, done, one);
    if (code == QUORATE_OK)
        under_way++;
    else
        complain(code);
}

static void done(void *argument, int code, uint64_t slot)
{
    struct one *one = argument;
    under_way--;
    if (code != QUORATE_OK) {
        complain(code);
        return;
    }
    values++;
    waited_ns += now_ns() - one->since;
    /* Trims old values, many at a time. */
    if (slot >= below) {
        if (below > 0)
            quorate_trim(handle, below > 200000 ? below - 200000 : 1, NULL, NULL);
        below = slot + 100000;
    }
    if (!over)
        submit(one);
}

static int deliver(void *argument, uint64_t slot, const void *value, size_t length)
{
    (void)argument, (void)slot, (void)value, (void)length;
    learned++;
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 5) {
        fprintf(stderr, "rate attach ADDRESSES | embed FOLDER, UNDER_WAY SECONDS [learn]\n");
        return 2;
    }
    int attaches = strcmp(arguments[1], "attach") == 0;
    int most = atoi(arguments[3]);
    int learns = count > 5;
    int fd;
    quorate_options *options = quorate_options_new();
    int code = quorate_options_set(options, attaches ? "attach" : "data", arguments[2]);
    if (code == QUORATE_OK && !attaches)
        code = quorate_options_set(options, "durability", "volatile");
    if (code == QUORATE_OK)
        code = attaches ? quorate_attach(options, &handle) : quorate_start(options, &handle);
    quorate_options_free(options);
    if (code == QUORATE_OK)
        code = quorate_fd(handle, &fd);
    if (code == QUORATE_OK && learns)
        code = quorate_deliver_from(handle, QUORATE_END, deliver, NULL);
    if (code != QUORATE_OK) {
        complain(code);
        return 1;
    }
    struct one *all = calloc((size_t)most, sizeof *all);
    uint64_t turns = 0, began = now_ns();
    uint64_t end = began + (uint64_t)atoi(arguments[4]) * 1000000000u;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < most; i++)
        submit(&all[i]);
    while (under_way > 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 10000) <= 0) {
            fprintf(stderr, "nothing for 10 s\n");
            return 1;
        }
        code = quorate_dispatch(handle, 0, 0, NULL);
        if (code != QUORATE_OK && code != QUORATE_TIMEOUT) {
            complain(code);
            break;
        }
        turns++;
        over |= now_ns() >= end;
    }
    double seconds = (double)(now_ns() - began) / 1e9;
    getrusage(RUSAGE_SELF, &after);
    double each = values > 0 ? (double)values : 1;
    double cpu_us = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e6 +
                    (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    long switches = after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw;
    printf("%.0f values/s, %.1f us each, learned %" PRIu64 "; for a value: %.4f turns, %.4f switches, %.2f us of processor\n",
           each / seconds, (double)waited_ns / each / 1e3, learned, (double)turns / each, (double)switches / each, cpu_us / each);
    free(all);
    return quorate_close(handle) == QUORATE_OK && !failed ? 0 : 1;
}
