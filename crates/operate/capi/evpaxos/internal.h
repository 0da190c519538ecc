/*
 * Declarations shared by the files of libevpaxos.
 */
#ifndef QUORATE_EVPAXOS_INTERNAL_H
#define QUORATE_EVPAXOS_INTERNAL_H

#include "evpaxos.h"
#include "quorate.h"
#include "quorate_paxos.h"

/* Address of a node or proposer in the configuration; ids start at 0. */
struct endpoint {
    int known;
    char host[64];
    int port;
};

struct evpaxos_config {
    struct endpoint acceptors[MAX_N_OF_PROPOSERS];
    struct endpoint proposers[MAX_N_OF_PROPOSERS];
    int acceptors_count;
    int proposers_count;
    /* Offsets from an acceptor's port: of its node's port for other nodes, and of that for proposers and learners. */
    int peer_offset;
    int attach_offset;
    int refuse_when_full;
    char held_max[24];
};

/* Return the options for the node of an acceptor, or for attaching to all acceptors. Null, with a log line, on error. */
quorate_options *evpaxos_node_options(const struct evpaxos_config *config, int id);
quorate_options *evpaxos_attach_options(const struct evpaxos_config *config);

/* Logs the last error of libquorate. */
void evpaxos_tell(const char *doing);

/* Listener for connections of LibPaxos3's programs: clients and learners. */
struct wire;
struct wire_listener {
    /* Handle to submit values to and to send decided values from, and whether it is a node. */
    quorate *handle;
    int is_node;
    unsigned acceptor_id;
};

/* Listens on this port. Null, with a log line, on failure. */
struct wire *wire_new(struct event_base *base, int port, struct wire_listener listener);
void wire_free(struct wire *wire);

/* Ends the connections; unfinished values are dropped from now on. To be called before the handle is closed. */
void wire_stop(struct wire *wire);

/* Returns the queue for values of the program itself. */
struct submissions *wire_submissions(struct wire *wire);

/* Sends a decided value to the learners. */
void wire_decided(struct wire *wire, unsigned iid, const void *value, size_t size);

/* Queue of values, each submitted until it is in an instance. */
struct submissions;
struct submissions *submissions_new(struct event_base *base, quorate *handle);

/* Drops unfinished values from now on. To be called before the handle is closed. */
void submissions_close(struct submissions *submissions);

/* To be called after the handle is closed. */
void submissions_free(struct submissions *submissions);

/* Returns whether the queue is full; `room` is called when there is space again. */
int submissions_are_full(const struct submissions *submissions);
void submissions_on_room(struct submissions *submissions, void (*room)(void *argument), void *argument);

/* Adds a copy of the value. */
void submissions_add(struct submissions *submissions, const void *value, size_t size);

#endif
