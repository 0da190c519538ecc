/*
 * libquorate: a replicated log of values.
 *
 * A program starts a node in its process (quorate_start) or attaches to one in another (quorate_attach). It
 * submits values, which are any bytes. Each value gets a slot: 1, 2, 3, ... without gaps, the same on all nodes.
 * Every program is delivered all values in the order of their slots, from the slot on that it asks for.
 *
 * docs/libquorate.md is the way in. What holds for all functions:
 *
 * Errors.    A function that returns int returns QUORATE_OK (0) or another code. quorate_last_error() says more,
 *            to the thread that was told the code. Nothing is written to places for results unless it is said.
 * Threads.   All functions may be called from any thread, at any time, but for what is said at each. Callbacks
 *            run within quorate_dispatch and quorate_close, on the thread that called it, and on no other. They may
 *            call every function but quorate_dispatch, quorate_next and quorate_close on the same handle
 *            (QUORATE_IN_USE). They must return: no longjmp, no exception of C++.
 * Handles.   A handle that was closed or freed, or is null, is QUORATE_INVALID, and no crash.
 * Memory.    What the library is given it copies before it returns, but for what is said. What it gives to a
 *            callback lives until that returns. It holds bounded memory: values up to the option held-max in a
 *            node, 64 MiB of open submits for each handle, 1 MiB or one value towards an attached program.
 * Signals.   Threads of the library take no signals, and no write of it raises SIGPIPE.
 * Fork.      A process that has handles may fork only to exec.
 * Once.      A value that was submitted once is in at most one slot. QUORATE_OK says that it is in that slot for
 *            good; QUORATE_UNKNOWN, that it may be in one, or may yet be: a program that cannot look for it among
 *            the values that it is delivered must not submit it again. All other codes: it is in none.
 *            Values that are submitted without waiting for one another may come in any order.
 *            What is submitted within callbacks leaves when quorate_dispatch returns, or behind the callback in which
 *            100 us are over, or when the program waits for an answer.
 *            Of a handle, each value is delivered once, as long as the program does not ask for it again. Over
 *            restarts of the program it is delivered as often as asked for: keep the slot with the state that
 *            follows from it, and go on behind that with quorate_deliver_from.
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

/* What a handle is opened with. */
typedef struct quorate_options quorate_options;

/* Codes. Numbers never change; new ones may be added. */
enum {
    QUORATE_OK = 0,
    QUORATE_INVALID = 1,     /* an argument makes no sense, or a handle is closed */
    QUORATE_SIZE = 2,        /* a value is larger than the option value-max, or a buffer is too small */
    QUORATE_BUSY = 3,        /* too much is open; not submitted: take completions, and submit again */
    QUORATE_FULL = 4,        /* too much is held; not submitted: trim */
    QUORATE_TRIMMED = 5,     /* the slot was forgotten */
    QUORATE_TIMEOUT = 6,     /* not within the time given */
    QUORATE_UNKNOWN = 7,     /* it may have been done, or may yet be */
    QUORATE_UNAVAILABLE = 8, /* no node serves it now: no majority, or the node starts; not done */
    QUORATE_STOPPED = 9,     /* the node has stopped, or is stopping; not done */
    QUORATE_IN_USE = 10,     /* another call is in progress that excludes this one */
    QUORATE_REFUSED = 11,    /* what is there does not allow it: a folder, a port, another cluster */
    QUORATE_PANICKED = 12    /* the library found itself wrong; please report */
};

/* An error: for programs a code, for people three texts in UTF-8, of which the hint may be empty. */
typedef struct quorate_error {
    int code;
    const char *what;
    const char *detail;
    const char *hint;
} quorate_error;

/* For quorate_deliver_from: not what is held, but what comes from now on. That includes every value that is submitted
 * by this handle after quorate_deliver_from returned. */
#define QUORATE_END UINT64_MAX

/* Hears how a submit or a trim ended: once. `slot` is the value's slot, or the first slot that is held after the
 * trim; 0 if `code` is not QUORATE_OK. Within it, quorate_last_error() has the details of `code`. */
typedef void (*quorate_done)(void *argument, int code, uint64_t slot);

/* Is delivered a value. 0: it is delivered, the next one follows. Other: not now; delivery pauses, and this value
 * comes again with the next quorate_dispatch. `value` lives until it returns; it is not null, whatever `length`. */
typedef int (*quorate_deliver)(void *argument, uint64_t slot, const void *value, size_t length);

/* The version of the library, such as "0.1.0". Lives for ever. */
const char *quorate_version(void);

/* The last error that a function of the library returned on this thread, or told a quorate_done. Lives until the
 * next call of the library on this thread that fails. Never null, but while a thread ends. */
const quorate_error *quorate_last_error(void);

/* The name of a code, such as "QUORATE_FULL". Lives for ever. */
const char *quorate_code_name(int code);

/* Lines for operators go to standard error from now on. `filter` is a level (error, warn, info, debug), or what
 * tracing's EnvFilter understands. Once per process; QUORATE_IN_USE if they go somewhere already. */
int quorate_log_to_stderr(const char *filter);

/*
 * Options: names and values, both text in UTF-8.
 *
 * A node in this process (quorate_start):
 *   data               its folder; made at the first start. Needed.
 *   node               which of the cluster it is, from 1. Found in the folder after the first start.
 *   cluster            1=HOST:PORT,2=HOST:PORT,... the same on all nodes; where each listens for its peers. Without
 *                      it the node is alone. The membership that was stored at the first start wins.
 *   start-empty        yes: the node forgets what its folder holds, and all nodes, started so together, are a new
 *                      cluster. While nodes of the old one run, the start fails, and the folder stays what it was.
 *   peer               HOST:PORT to listen at for peers, if not as the cluster says
 *   listen             HOST:PORT where programs attach; port 0 takes a free one, which the status tells. Without it
 *                      none can. Whoever reaches it can submit, read and trim: it asks for no password.
 *   attached-max       programs that may be attached at a time (64)
 *   device             what votes and counts for it while it can: off (default), kernel, tc, packet, udp, rtl:FOLDER
 *                      or process:COMMAND (docs/operate/devices.md). What is not possible is passed over.
 *   device-interface   the interface that frames of the device use, if it is not that of the address for peers
 *   device-trusted     yes: everybody who reaches that network may speak for members; it must be said beyond loopback
 *   durability         durable (default): QUORATE_OK says that a quorum has it on stable storage. volatile: that a
 *                      quorum has it. For the whole group and its life.
 *   heartbeat-ms       a leader speaks at least this often (20)
 *   election-ms        FROM-TO: an election starts after a silence drawn from this range (100-200)
 *   log-segment-bytes  size of a file of the log, a power of two (67108864)
 *   snapshot-ratio     a snapshot is taken when the log has grown by so many times its size (2)
 * Its submits, and those of the programs attached to it:
 *   value-max          largest value, up to 64 MiB (8388608). Give all nodes the same.
 *   held-max           values that were not trimmed may have so many bytes, each 64 more than its length
 *                      (268435456)
 *   when-full          refuse (default): QUORATE_FULL. forget-oldest: as many of the oldest values are trimmed.
 * An attached program (quorate_attach):
 *   attach             HOST:PORT,HOST:PORT,... the listen addresses of nodes of one cluster. Needed.
 * Both:
 *   request-ms         a submit, trim or sync has an outcome within about this time (5000)
 *   start-wait-ms      opening waits so long until the node runs or is reached (30000); 0: it does not wait
 */

/* New options, with their defaults. Null only without memory. Freed by quorate_options_free. */
quorate_options *quorate_options_new(void);

/* Sets an option. QUORATE_INVALID says which values there are. */
int quorate_options_set(quorate_options *options, const char *name, const char *value);

/* Frees options; handles that were opened with them are not concerned. Null does nothing. */
void quorate_options_free(quorate_options *options);

/* Starts a node in this process. It waits until the node runs, up to start-wait-ms; at the first start of a
 * cluster the nodes wait for the one with the lowest id. QUORATE_TIMEOUT: it was stopped again. *handle is null
 * unless it returns QUORATE_OK. With start-wait-ms 0 the handle is there at once, and quorate_ready waits; until
 * then everything else is QUORATE_UNAVAILABLE. Only one handle can have a folder at a time. */
int quorate_start(const quorate_options *options, quorate **handle);

/* Attaches to one of the nodes that the options name, and to another when that one does not answer. What is open
 * then is asked for again under its number, so it is done once. Waits as quorate_start does. */
int quorate_attach(const quorate_options *options, quorate **handle);

/* Waits until the node runs or is reached. QUORATE_TIMEOUT: not yet. Any other code: it never will. Milliseconds;
 * negative waits for ever (here and below). */
int quorate_ready(quorate *handle, int timeout_ms);

/* Ends the node or the attachment, waits for its threads, and calls the callbacks of all that is open, on this
 * thread; values that were not delivered are not. Other threads that are in a call return with an error. The code
 * says whether the node ended well; the handle is closed in any case, but with QUORATE_IN_USE (within a callback
 * of this handle) and QUORATE_INVALID. */
int quorate_close(quorate *handle);

/* Submits a value, without waiting. QUORATE_OK: `done` will be called with the outcome, once, within
 * quorate_dispatch or quorate_close; `done` may be null. Any other code: `done` is not called, and the value is in
 * no slot. At most 4096 may be open, and 64 MiB: QUORATE_BUSY. `value` may be null if `length` is 0. */
int quorate_submit(quorate *handle, const void *value, size_t length, quorate_done done, void *argument);

/* Submits a value, and waits for its slot; `slot` may be null. Needs no quorate_dispatch. QUORATE_UNKNOWN after
 * `timeout_ms`. */
int quorate_submit_wait(quorate *handle, const void *value, size_t length, int timeout_ms, uint64_t *slot);

/* The next slot that the cluster will give out, as of now: every value whose submit anybody was told to have
 * succeeded is in a slot below. Who was delivered all of these reads like everybody else (linearizably). Waits;
 * QUORATE_TIMEOUT after `timeout_ms`. */
int quorate_sync(quorate *handle, int timeout_ms, uint64_t *next);

/* Values are delivered from `slot` on: to `deliver` within quorate_dispatch, or, if that is null, by quorate_next.
 * Slot 0 stands for the oldest value that is held, QUORATE_END for the next one that is given a slot. A slot that is
 * not given out yet is waited for. QUORATE_TRIMMED: `slot` is known to be forgotten. That is also told later, by quorate_dispatch or quorate_next, when a slot is
 * forgotten before it was delivered, or an attached program hears of it; delivery is off then.
 * A node that has just started delivers nothing before it has read back what it knew. */
int quorate_deliver_from(quorate *handle, uint64_t slot, quorate_deliver deliver, void *argument);

/* Delivers again, or goes on elsewhere: from this slot, to the same place. As quorate_deliver_from otherwise. */
int quorate_recover(quorate *handle, uint64_t slot);

/* Nothing is delivered any more. A value that another thread is delivering right now may be the last. */
int quorate_deliver_nothing(quorate *handle);

/* A descriptor that is readable when quorate_dispatch or quorate_next may have something to do: for poll, epoll,
 * or an event loop. It belongs to the handle: do not read or close it, and forget it when the handle is closed. */
int quorate_fd(quorate *handle, int *fd);

/* Calls callbacks for what is there, and waits for something first: completions, then values. Up to `events_max`
 * of them (0 or less: 4096). QUORATE_OK: `*events` were handled, which may be 0 if a callback said "not now";
 * what is left keeps the descriptor readable. QUORATE_TIMEOUT: there was nothing. QUORATE_TRIMMED,
 * QUORATE_STOPPED and others: nothing is delivered any more; completions still are. `*events`, which may be null,
 * is set in any case. One thread at a time, per handle: QUORATE_IN_USE. */
int quorate_dispatch(quorate *handle, int timeout_ms, int events_max, int *events);

/* Takes the next value, without a callback: copies it to `buffer`. QUORATE_SIZE: it has *length bytes and is not
 * taken; call again with as many. QUORATE_TIMEOUT: there is none. Other codes as quorate_dispatch. QUORATE_IN_USE
 * also if values go to a callback. Completions wait for quorate_dispatch meanwhile. */
int quorate_next(quorate *handle, int timeout_ms, uint64_t *slot, void *buffer, size_t capacity, size_t *length);

/* Copies the value in a slot that this node holds to `buffer`; delivery goes on where it is. QUORATE_SIZE: it has
 * *length bytes. QUORATE_TRIMMED, QUORATE_TIMEOUT: it is not held any more, or not here yet. QUORATE_INVALID also for
 * attached programs, which hold none. */
int quorate_read(quorate *handle, uint64_t slot, void *buffer, size_t capacity, size_t *length);

/* Forgets all values in slots below `below`, on all nodes, for good; those that are not given out yet are not
 * concerned. Any program may, so agree on who does: a slot may be trimmed when every program has delivered it, and
 * keeps its effect on stable storage. `done` as for quorate_submit. May be repeated. */
int quorate_trim(quorate *handle, uint64_t below, quorate_done done, void *argument);

/* Trims, and waits; `first` may be null, or gets the first slot that is held. */
int quorate_trim_wait(quorate *handle, uint64_t below, int timeout_ms, uint64_t *first);

/* What the node is, as a JSON document that ends with zero, in `buffer`; *length, which may be null, is its length
 * without that. QUORATE_SIZE: *length bytes would do, at the moment; 64 KiB always do. Members: state ("starting",
 * "up"), node, role, leader, members, values {first, next, bytes, bytes_max, replayed}, listen, and those of
 * `quorate status --json`. */
int quorate_status(quorate *handle, int timeout_ms, char *buffer, size_t capacity, size_t *length);

/* The largest value that can be submitted. */
int quorate_value_max(quorate *handle, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
