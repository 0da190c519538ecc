/*
 * Queue of submitted values: each is submitted again until it is in an instance, or until the outcome is unknown.
 * LibPaxos3's programs expect this, since they get no result.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Limits of waiting values, above which clients are not read. A single larger value may wait alone. */
#define VALUES_MAX 1024
#define BYTES_MAX (32u << 20)

struct submission {
    struct submissions *all;
    struct submission *next;
    size_t size;
    char value[];
};

struct room {
    struct room *next;
    void (*call)(void *argument);
    void *argument;
};

struct submissions {
    quorate *handle;
    struct event *retry;
    /* Values to be submitted, in order. */
    struct submission *first;
    struct submission **last;
    size_t values;
    size_t bytes;
    struct room *rooms;
    int closing;
    int told;
};

static void submit_all(struct submissions *all);

static void drop(struct submission *submission)
{
    struct submissions *all = submission->all;
    int was_full = submissions_are_full(all);
    all->values--;
    all->bytes -= submission->size;
    free(submission);
    if (was_full && !all->closing && !submissions_are_full(all))
        for (struct room *room = all->rooms; room != NULL; room = room->next)
            room->call(room->argument);
}

static void wait_for_retry(struct submissions *all)
{
    static const struct timeval after = {0, 50000};
    if (!evtimer_pending(all->retry, NULL))
        evtimer_add(all->retry, &after);
}

static void append(struct submission *submission)
{
    struct submissions *all = submission->all;
    submission->next = NULL;
    *all->last = submission;
    all->last = &submission->next;
}

/* Handles an outcome: a value that was not accepted is submitted again, all others are finished. */
static void done(void *argument, int code, uint64_t slot)
{
    struct submission *submission = argument;
    struct submissions *all = submission->all;
    (void)slot;
    if (code == QUORATE_OK) {
        all->told = 0;
        drop(submission);
        return;
    }
    int again = code == QUORATE_BUSY || code == QUORATE_UNAVAILABLE || code == QUORATE_FULL;
    if (again && !all->closing) {
        if (!all->told)
            evpaxos_tell("a value waits");
        all->told = 1;
        append(submission);
        wait_for_retry(all);
        return;
    }
    if (!all->closing)
        evpaxos_tell("a value is given up");
    drop(submission);
}

static void submit_all(struct submissions *all)
{
    while (all->first != NULL) {
        struct submission *submission = all->first;
        int code = quorate_submit(all->handle, submission->value, submission->size, done, submission);
        if (code == QUORATE_BUSY || code == QUORATE_UNAVAILABLE) {
            wait_for_retry(all);
            return;
        }
        all->first = submission->next;
        if (all->first == NULL)
            all->last = &all->first;
        if (code != QUORATE_OK) {
            evpaxos_tell("a value is refused");
            drop(submission);
        }
    }
}

static void retry(evutil_socket_t fd, short events, void *argument)
{
    (void)fd, (void)events;
    submit_all(argument);
}

struct submissions *submissions_new(struct event_base *base, quorate *handle)
{
    struct submissions *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->handle = handle;
    all->last = &all->first;
    all->retry = evtimer_new(base, retry, all);
    if (all->retry == NULL) {
        free(all);
        return NULL;
    }
    return all;
}

void submissions_free(struct submissions *all)
{
    if (all == NULL)
        return;
    all->closing = 1;
    while (all->first != NULL) {
        struct submission *submission = all->first;
        all->first = submission->next;
        drop(submission);
    }
    while (all->rooms != NULL) {
        struct room *room = all->rooms;
        all->rooms = room->next;
        free(room);
    }
    event_free(all->retry);
    free(all);
}

/* Outstanding submits end within quorate_close, and their values are dropped then. */
void submissions_close(struct submissions *all)
{
    if (all != NULL)
        all->closing = 1;
}

int submissions_are_full(const struct submissions *all)
{
    return all->values >= VALUES_MAX || all->bytes >= BYTES_MAX;
}

void submissions_on_room(struct submissions *all, void (*call)(void *argument), void *argument)
{
    struct room *room = malloc(sizeof *room);
    if (room == NULL)
        return;
    room->call = call;
    room->argument = argument;
    room->next = all->rooms;
    all->rooms = room;
}

void submissions_add(struct submissions *all, const void *value, size_t size)
{
    struct submission *submission = malloc(sizeof *submission + size);
    if (submission == NULL) {
        paxos_log_error("no memory for a value of %zu bytes", size);
        return;
    }
    submission->all = all;
    submission->size = size;
    if (size > 0)
        memcpy(submission->value, value, size);
    all->values++;
    all->bytes += size;
    append(submission);
    /* Waiting values are submitted first, to keep the order. */
    if (!evtimer_pending(all->retry, NULL))
        submit_all(all);
}
