/*
 * libquorate: a replicated log of values.
 *
 * A program starts a node in its process (quorate_start) or attaches to one in another process (quorate_attach). It
 * submits values, which are arbitrary bytes. Each value gets a slot: 1, 2, 3, ... without gaps, the same on all nodes.
 * Every program receives all values in slot order, starting at a slot of its choice.
 *
 * docs/libquorate.md is the introduction. For all functions:
 *
 * Errors.    A function that returns int returns QUORATE_OK (0) or another code. quorate_last_error() returns the
 *            details, on the thread that got the code. Unless stated otherwise, no results are written on error.
 * Threads.   All functions may be called from any thread at any time; exceptions are stated at each function.
 *            Callbacks run only within quorate_dispatch and quorate_close, on the calling thread. They may call every
 *            function except quorate_dispatch, quorate_next and quorate_close on the same handle (QUORATE_IN_USE).
 *            They must return: no longjmp, no C++ exceptions.
 * Handles.   A handle that is null, closed or freed causes QUORATE_INVALID, not a crash.
 * Memory.    Unless stated otherwise, the library copies its arguments before it returns, and data passed to a
 *            callback is valid until the callback returns. Memory is bounded: in a node, values up to the option
 *            held-max; for each handle, 64 MiB of open submits; for each attached program, 1 MiB or one value.
 * Signals.   Threads of the library block all signals, and its writes never raise SIGPIPE.
 * Fork.      A process with handles may fork only to exec.
 * Once.      A value that is submitted once is in at most one slot. QUORATE_OK: it is permanently in that slot.
 *            QUORATE_UNKNOWN: it may be in a slot, or may get one later; a program that cannot search for it among the
 *            values it receives must not submit it again. All other codes: it is in no slot.
 *            Values submitted without waiting for each other may get slots in any order.
 *            Values submitted within callbacks are sent when quorate_dispatch returns, after the callback in which
 *            100 us have passed, or when the program waits for an answer.
 *            A handle delivers each value once, unless the program requests it again. After a restart of the program
 *            values may be delivered again: store the slot together with the state that depends on it, and continue
 *            after that slot with quorate_deliver_from.
 */
#ifndef QUORATE_H
#define QUORATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A node, or an attached program. */
typedef struct quorate quorate;

/* Options for opening a handle. */
typedef struct quorate_options quorate_options;

/* Codes. Numbers never change; new ones may be added. */
enum {
    QUORATE_OK = 0,
    QUORATE_INVALID = 1,     /* an argument is invalid, or a handle is closed */
    QUORATE_SIZE = 2,        /* a value is larger than the option value-max, or a buffer is too small */
    QUORATE_BUSY = 3,        /* too many open requests; not submitted: handle completions, and submit again */
    QUORATE_FULL = 4,        /* the limit held-max is reached; not submitted: trim */
    QUORATE_TRIMMED = 5,     /* the slot was trimmed */
    QUORATE_TIMEOUT = 6,     /* the time limit was reached */
    QUORATE_UNKNOWN = 7,     /* the outcome is unknown: it may have happened, or may yet */
    QUORATE_UNAVAILABLE = 8, /* no node can serve it now: no majority, or the node is starting; not done */
    QUORATE_STOPPED = 9,     /* the node has stopped, or is stopping; not done */
    QUORATE_IN_USE = 10,     /* a call that excludes this one is in progress */
    QUORATE_REFUSED = 11,    /* the environment does not allow it: a folder, a port, another cluster */
    QUORATE_PANICKED = 12    /* internal error of the library; please report it */
};

/* An error: a code for programs, and three UTF-8 texts for people. The hint may be empty. */
typedef struct quorate_error {
    int code;
    const char *what;
    const char *detail;
    const char *hint;
} quorate_error;

/* For quorate_deliver_from: only new values, not the retained ones. New values include all that this handle submits
 * after quorate_deliver_from has returned. */
#define QUORATE_END UINT64_MAX

/* Callback for the outcome of a submit or a trim, called once. `slot` is the value's slot, or the first retained slot
 * after the trim; 0 if `code` is not QUORATE_OK. Within the callback, quorate_last_error() returns the details. */
typedef void (*quorate_done)(void *argument, int code, uint64_t slot);

/* Callback for values. Return 0 to accept the value; the next one follows. Return another number to pause delivery;
 * the next quorate_dispatch delivers this value again. `value` is valid until the callback returns, and is never null,
 * even if `length` is 0. */
typedef int (*quorate_deliver)(void *argument, uint64_t slot, const void *value, size_t length);

/* Returns the version of the library, such as "0.1.0": a static string. */
const char *quorate_version(void);

/* Returns the last error that a function of the library returned on this thread, or passed to a quorate_done. Valid
 * until the next failed call of the library on this thread. Null only while the thread is ending. */
const quorate_error *quorate_last_error(void);

/* Returns the name of a code, such as "QUORATE_FULL": a static string. */
const char *quorate_code_name(int code);

/* Starts to write log lines for operators to standard error. `filter` is a level (error, warn, info, debug), or a
 * filter of tracing's EnvFilter. Once per process; QUORATE_IN_USE if log lines are already written somewhere. */
int quorate_log_to_stderr(const char *filter);

/*
 * Options: names and values, both UTF-8 text.
 *
 * A node in this process (quorate_start):
 *   data               folder of the node, created at the first start. Required.
 *   node               number of the node in the cluster, from 1. Stored in the folder at the first start.
 *   cluster            1=HOST:PORT,2=HOST:PORT,... addresses on which the nodes listen for peers, the same on all
 *                      nodes. Without it the node is alone. The membership stored at the first start takes precedence.
 *   start-empty        yes: discard the contents of the folder. Nodes that are all started like this form a new
 *                      cluster. While nodes of the old one run, the start fails, and the folder is unchanged.
 *   peer               HOST:PORT to listen on for peers, if it differs from the option cluster
 *   listen             HOST:PORT for attaching programs; with port 0 a free one, which the status contains. Without
 *                      it programs cannot attach. There is no password: any program that can connect can submit, read
 *                      and trim.
 *   attached-max       maximum number of attached programs (64)
 *   device             device that votes and counts for the node when possible: off (default), kernel, tc, packet,
 *                      udp, rtl:FOLDER or process:COMMAND (docs/operate/devices.md). If it is unavailable, the next
 *                      possible one is used.
 *   device-interface   network interface of the device, if it is not that of the address for peers
 *   device-trusted     yes: trust every sender on that network to act for members; required beyond loopback
 *   durability         durable (default): QUORATE_OK means that a quorum has it on stable storage. volatile: that a
 *                      quorum has it in memory. The same for the whole group, permanently.
 *   heartbeat-ms       maximum interval between messages of a leader (20)
 *   election-ms        FROM-TO: range of the random silence after which an election starts (100-200)
 *   log-segment-bytes  size of a log file, a power of two (67108864)
 *   snapshot-ratio     growth of the log after which a snapshot is taken, as a multiple of the snapshot's size (2)
 * Submits at the node, and of the programs attached to it:
 *   value-max          maximum size of a value, up to 64 MiB (8388608). Use the same on all nodes.
 *   held-max           maximum bytes of values that are not trimmed, counting 64 more than its length for each
 *                      (268435456)
 *   when-full          refuse (default): QUORATE_FULL. forget-oldest: trim as many of the oldest values as needed.
 * An attached program (quorate_attach):
 *   attach             HOST:PORT,HOST:PORT,... listen addresses of nodes of one cluster. Required.
 * Both:
 *   request-ms         approximate time limit of a submit, trim or sync (5000)
 *   start-wait-ms      maximum wait, while opening, for the node to run or to be reached (30000); 0: do not wait
 */

/* Creates options with default values, to be freed by quorate_options_free. Null only if memory is exhausted. */
quorate_options *quorate_options_new(void);

/* Sets an option. QUORATE_INVALID: the last error lists the valid values. */
int quorate_options_set(quorate_options *options, const char *name, const char *value);

/* Frees options. Handles opened with them are not affected. Null has no effect. */
void quorate_options_free(quorate_options *options);

/* Starts a node in this process and waits until it runs, up to start-wait-ms; at the first start of a cluster the
 * nodes wait for the one with the lowest id. QUORATE_TIMEOUT: the node was stopped again. *handle is null unless the
 * function returns QUORATE_OK. With start-wait-ms 0 it returns at once, and quorate_ready waits for the node; until it
 * runs all other calls return QUORATE_UNAVAILABLE. A folder can be used by only one handle at a time. */
int quorate_start(const quorate_options *options, quorate **handle);

/* Attaches to one of the nodes in the options, and to another one if that stops answering. Open requests are then
 * repeated under their numbers, so that each is executed once. Waits as quorate_start does. */
int quorate_attach(const quorate_options *options, quorate **handle);

/* Waits until the node runs or is reached. QUORATE_TIMEOUT: not yet. Any other error: it never will. Timeouts are in
 * milliseconds; a negative timeout waits without a limit (here and below). */
int quorate_ready(quorate *handle, int timeout_ms);

/* Ends the node or the attachment, waits for its threads, and calls the callbacks of all open requests on this thread;
 * no more values are delivered. Calls in progress on other threads return an error. The code says whether the node
 * ended cleanly; the handle is closed in any case, except for QUORATE_IN_USE (called within a callback of this handle)
 * and QUORATE_INVALID. */
int quorate_close(quorate *handle);

/* Submits a value without waiting. QUORATE_OK: `done`, unless null, will be called once with the outcome, within
 * quorate_dispatch or quorate_close. Any other code: `done` is not called, and the value is in no slot. The limit is
 * 4096 open requests and 64 MiB: QUORATE_BUSY. `value` may be null if `length` is 0. */
int quorate_submit(quorate *handle, const void *value, size_t length, quorate_done done, void *argument);

/* Submits a value and waits for its slot; `slot` may be null. Does not need quorate_dispatch. Returns QUORATE_UNKNOWN
 * after `timeout_ms`. */
int quorate_submit_wait(quorate *handle, const void *value, size_t length, int timeout_ms, uint64_t *slot);

/* Waits for the next slot that the cluster will assign, as of this call: every value acknowledged to any program before
 * is in a lower slot. A program that has received all lower slots can answer reads linearizably. Returns
 * QUORATE_TIMEOUT after `timeout_ms`. */
int quorate_sync(quorate *handle, int timeout_ms, uint64_t *next);

/* Starts delivery at `slot`: to `deliver` within quorate_dispatch, or, if that is null, by quorate_next. Slot 0 means
 * the oldest retained value, QUORATE_END the next value that is assigned a slot. `slot` may be a future one.
 * QUORATE_TRIMMED: `slot` is known to be trimmed. quorate_dispatch and quorate_next return that later if a slot is
 * trimmed before it was delivered, or an attached program learns only then that it is; delivery is off then.
 * A node that has just started delivers nothing until it has replayed its log. */
int quorate_deliver_from(quorate *handle, uint64_t slot, quorate_deliver deliver, void *argument);

/* Continues delivery at another slot, in the same way as before. Otherwise as quorate_deliver_from. */
int quorate_recover(quorate *handle, uint64_t slot);

/* Ends delivery. A value that another thread is delivering at the moment may be the last one. */
int quorate_deliver_nothing(quorate *handle);

/* Gets a descriptor that is readable when quorate_dispatch or quorate_next may have work: for poll, epoll, or an event
 * loop. It belongs to the handle: do not read or close it, and do not use it after the handle is closed. */
int quorate_fd(quorate *handle, int *fd);

/* Waits for events, and calls their callbacks: completions first, then values, up to `events_max` events (0 or less:
 * 4096). QUORATE_OK: `*events` were handled, which may be 0 if a callback paused delivery; if events are left, the
 * descriptor stays readable. QUORATE_TIMEOUT: there were no events. QUORATE_TRIMMED, QUORATE_STOPPED and others:
 * delivery is off; completions still arrive. `*events` is set in any case, unless `events` is null. Only one thread
 * per handle at a time: QUORATE_IN_USE. */
int quorate_dispatch(quorate *handle, int timeout_ms, int events_max, int *events);

/* Takes the next value without a callback, and copies it to `buffer`. QUORATE_SIZE: it has *length bytes and was not
 * taken; call again with a buffer of that size. QUORATE_TIMEOUT: there is none. Other codes as quorate_dispatch.
 * QUORATE_IN_USE also if values are delivered to a callback. Completions stay pending until quorate_dispatch. */
int quorate_next(quorate *handle, int timeout_ms, uint64_t *slot, void *buffer, size_t capacity, size_t *length);

/* Copies the value in a slot that this node retains to `buffer`; delivery is not affected. QUORATE_SIZE: it has *length
 * bytes. QUORATE_TRIMMED: it is no longer retained. QUORATE_TIMEOUT: this node does not have it yet. QUORATE_INVALID
 * also for attached programs, which retain no values. */
int quorate_read(quorate *handle, uint64_t slot, void *buffer, size_t capacity, size_t *length);

/* Forgets all values in slots below `below` on all nodes, permanently; slots not assigned yet are not affected. Any
 * program may trim, so choose one to do it: a slot may be trimmed when every program has received its value, and has
 * the effect on stable storage. `done` as for quorate_submit. May be repeated. */
int quorate_trim(quorate *handle, uint64_t below, quorate_done done, void *argument);

/* Trims and waits for the outcome; unless null, `first` gets the first retained slot. */
int quorate_trim_wait(quorate *handle, uint64_t below, int timeout_ms, uint64_t *first);

/* Writes the node's status to `buffer`, as a zero-terminated JSON document; unless null, *length gets its length
 * without the zero. QUORATE_SIZE: *length bytes are enough at the moment; 64 KiB always are. Members: state
 * ("starting", "up"), node, role, leader, members, values {first, next, bytes, bytes_max, replayed}, listen, and those
 * of `quorate status --json`. */
int quorate_status(quorate *handle, int timeout_ms, char *buffer, size_t capacity, size_t *length);

/* Gets the maximum size of a value. */
int quorate_value_max(quorate *handle, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
