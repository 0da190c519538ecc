/*
 * All misuse of the interface that a program is capable of, except invalid pointers.
 *
 *   misuse DATA
 */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quorate.h"

static int faults;

static void want_at(int line, int code, int wanted)
{
    if (code != wanted) {
        printf("line %d: %s, not %s: %s\n", line, quorate_code_name(code), quorate_code_name(wanted),
               quorate_last_error()->detail);
        faults++;
    }
}
#define WANT(code, wanted) want_at(__LINE__, (code), (wanted))

static void never_at(int line, int wrong, const char *condition)
{
    if (wrong) {
        printf("line %d: %s\n", line, condition);
        faults++;
    }
}
#define NEVER(condition) never_at(__LINE__, (condition), #condition)

static quorate *node;
static int calls;

static void close_within(void *argument, int code, uint64_t slot)
{
    (void)argument;
    calls++;
    WANT(code, QUORATE_OK);
    NEVER(slot == 0);
    WANT(quorate_close(node), QUORATE_IN_USE);
    WANT(quorate_dispatch(node, 0, 0, NULL), QUORATE_IN_USE);
}

static void count(void *argument, int code, uint64_t slot)
{
    (void)argument, (void)code, (void)slot;
    calls++;
}

static int not_now;
static uint64_t seen;
static int deliver(void *argument, uint64_t slot, const void *value, size_t length)
{
    (void)argument, (void)length;
    NEVER(value == NULL);
    if (not_now)
        return 1;
    NEVER(seen != 0 && slot != seen + 1);
    seen = slot;
    return 0;
}

static void *wait_for_value(void *argument)
{
    int events;
    (void)argument;
    int code = quorate_dispatch(node, 20000, 0, &events);
NEVER(code != QUORATE_OK && code != QUORATE_IN_USE && code != QUORATE_STOPPED && code != QUORATE_INVALID);
    return NULL;
}

/* Checks that every thread of the library blocks signals. */
static void look_at_threads(void)
{
    int looked = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[300], line[256];
        unsigned long long blocked = 0;
        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
                looked++;
        if (status != NULL)
            fclose(status);
        /* A thread that has ended meanwhile has no mask, and no entry any more. */
        if (access(path, F_OK) != 0)
            continue;
        if ((blocked >> (SIGPIPE - 1) & 1) == 0 || (blocked >> (SIGTERM - 1) & 1) == 0) {
            printf("thread %s takes signals: %llx\n", task->d_name, blocked);
            faults++;
        }
    }
    if (tasks == NULL || looked == 0) {
        printf("no thread was looked at\n");
        faults++;
    }
    if (tasks != NULL)
        closedir(tasks);
}

int main(int arguments_count, char **arguments)
{
    quorate_options *options = quorate_options_new();
    quorate *other;
    uint64_t slot;
    size_t length;
    char buffer[64];
    int fd;
    if (arguments_count < 2)
        return 2;

    /* Handles. */
    WANT(quorate_start(NULL, &node), QUORATE_INVALID);
    WANT(quorate_start(options, NULL), QUORATE_INVALID);
    WANT(quorate_start(options, &node), QUORATE_INVALID); /* no folder */
    WANT(quorate_attach(options, &node), QUORATE_INVALID); /* no address */
    NEVER(node != NULL);
    WANT(quorate_close(NULL), QUORATE_INVALID);
    WANT(quorate_close((quorate *)options), QUORATE_INVALID);
    WANT(quorate_submit((quorate *)options, "x", 1, NULL, NULL), QUORATE_INVALID);
    WANT(quorate_recover((quorate *)options, 1), QUORATE_INVALID);
    WANT(quorate_options_set((quorate_options *)&faults, "data", "x"), QUORATE_INVALID);
    WANT(quorate_options_set(options, NULL, "x"), QUORATE_INVALID);
    WANT(quorate_options_set(options, "data", NULL), QUORATE_INVALID);
    WANT(quorate_options_set(options, "data", "\xff"), QUORATE_INVALID);
    WANT(quorate_options_set(options, "nonsense", "x"), QUORATE_INVALID);
    quorate_options_free(NULL);
    NEVER(strcmp(quorate_code_name(12345), "no code of quorate.h") != 0);

    /* An impossible folder. */
    WANT(quorate_options_set(options, "data", "/dev/null/nowhere"), QUORATE_OK);
    WANT(quorate_start(options, &node), QUORATE_REFUSED);
    NEVER(quorate_last_error()->code != QUORATE_REFUSED || quorate_last_error()->detail[0] == 0);

    /* A single node with small limits. */
    WANT(quorate_options_set(options, "data", arguments[1]), QUORATE_OK);
    WANT(quorate_options_set(options, "value-max", "1000"), QUORATE_OK);
    WANT(quorate_options_set(options, "held-max", "8000"), QUORATE_OK);
    WANT(quorate_start(options, &node), QUORATE_OK);
    WANT(quorate_start(options, &other), QUORATE_REFUSED); /* the folder is in use */
    NEVER(other != NULL);

    look_at_threads();
    WANT(quorate_options_set((quorate_options *)node, "data", "x"), QUORATE_INVALID);
    quorate_options_free((quorate_options *)node);
    WANT(quorate_ready(node, 0), QUORATE_OK);

    /* Values. */
    static char value[1001];
    WANT(quorate_value_max(node, &length), QUORATE_OK);
    NEVER(length != 1000);
    WANT(quorate_submit(node, value, 1001, count, NULL), QUORATE_SIZE);
    WANT(quorate_submit(node, value, SIZE_MAX, count, NULL), QUORATE_SIZE);
    WANT(quorate_submit(node, NULL, 1, count, NULL), QUORATE_INVALID);
    NEVER(calls != 0);
    WANT(quorate_submit_wait(node, NULL, 0, 10000, &slot), QUORATE_OK);
    NEVER(slot != 1);
    WANT(quorate_submit_wait(node, value, 1000, 10000, NULL), QUORATE_OK);

    /* Callbacks. */
    WANT(quorate_submit(node, "x", 1, close_within, NULL), QUORATE_OK);
    WANT(quorate_submit(node, "y", 1, NULL, NULL), QUORATE_OK);
    int events = -1;
    while (calls < 1)
        WANT(quorate_dispatch(node, 10000, 1, &events), QUORATE_OK);
    NEVER(events != 1);
    WANT(quorate_fd(node, &fd), QUORATE_OK);
    WANT(quorate_fd(node, NULL), QUORATE_INVALID);

    /* Delivery without a callback. */
    WANT(quorate_next(node, 0, &slot, buffer, sizeof buffer, &length), QUORATE_INVALID);
    WANT(quorate_deliver_from(node, 1, NULL, NULL), QUORATE_OK);
    WANT(quorate_next(node, 10000, NULL, buffer, sizeof buffer, &length), QUORATE_INVALID);
    WANT(quorate_next(node, 10000, &slot, NULL, 0, &length), QUORATE_OK); /* 0 bytes */
    NEVER(slot != 1 || length != 0);
    WANT(quorate_next(node, 10000, &slot, buffer, sizeof buffer, &length), QUORATE_SIZE);
    NEVER(length != 1000);
    WANT(quorate_next(node, 10000, &slot, NULL, 1000, &length), QUORATE_INVALID);
    static char large[1000];
    WANT(quorate_next(node, 10000, &slot, large, sizeof large, &length), QUORATE_OK);
    NEVER(slot != 2 || length != 1000);
    WANT(quorate_recover(node, 2), QUORATE_OK);
    WANT(quorate_next(node, 10000, &slot, large, sizeof large, &length), QUORATE_OK);
    NEVER(slot != 2);
    WANT(quorate_recover(node, 1000), QUORATE_OK); /* the slot may be assigned later */
    WANT(quorate_next(node, 0, &slot, large, sizeof large, &length), QUORATE_TIMEOUT);

    /* Delivery is paused, then continued. */
    WANT(quorate_deliver_from(node, 1, deliver, NULL), QUORATE_OK);
    WANT(quorate_next(node, 0, &slot, large, sizeof large, &length), QUORATE_IN_USE);
    not_now = 1;
    int code;
    do
        code = quorate_dispatch(node, 10000, 0, &events);
    while (code == QUORATE_OK && events > 0); /* a completion may be pending */
    WANT(code, QUORATE_OK);
    NEVER(seen != 0);
    not_now = 0;
    while (seen < 4)
        WANT(quorate_dispatch(node, 10000, 0, &events), QUORATE_OK);
    WANT(quorate_dispatch(node, 0, 0, &events), QUORATE_TIMEOUT);

    /* The limit of retained values, and a trim. */
    calls = 0;
    do
        code = quorate_submit_wait(node, value, 1000, 10000, &slot);
    while (code == QUORATE_OK);
    WANT(code, QUORATE_FULL);
    NEVER(quorate_last_error()->hint[0] == 0);
    WANT(quorate_trim_wait(node, 5, 10000, &slot), QUORATE_OK);
    NEVER(slot != 5);
    WANT(quorate_recover(node, 4), QUORATE_TRIMMED);
    WANT(quorate_submit_wait(node, value, 1000, 10000, &slot), QUORATE_OK);
    WANT(quorate_trim_wait(node, UINT64_MAX, 10000, &slot), QUORATE_OK);
    WANT(quorate_sync(node, 10000, &slot), QUORATE_OK);
    code = quorate_sync(node, 0, &slot);
    if (code != QUORATE_OK)
        WANT(code, QUORATE_TIMEOUT);
    WANT(quorate_deliver_nothing(node), QUORATE_OK);
    WANT(quorate_status(node, 2000, buffer, sizeof buffer, &length), QUORATE_SIZE);
    NEVER(length <= sizeof buffer);

    /* Closed while another thread waits, and with open submits. */
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_value, NULL);
    calls = 0;
    for (int i = 0; i < 20; i++)
        WANT(quorate_submit(node, "z", 1, count, NULL), QUORATE_OK);
    other = node;
    WANT(quorate_close(node), QUORATE_OK);
    pthread_join(thread, NULL);
    if (calls != 20) {
        printf("%d of 20 heard\n", calls);
        faults++;
    }
    WANT(quorate_close(other), QUORATE_INVALID);
    WANT(quorate_submit(other, "x", 1, NULL, NULL), QUORATE_INVALID);
    WANT(quorate_dispatch(other, 0, 0, NULL), QUORATE_INVALID);
    quorate_options_free(options);
    quorate_options_free(options);
    WANT(quorate_options_set(options, "data", "x"), QUORATE_INVALID);
    if (faults == 0)
        printf("all was refused\n");
    return faults != 0;
}
