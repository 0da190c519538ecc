/*
 * What the files of libevpaxos share.
 */
#ifndef QUORATE_EVPAXOS_INTERNAL_H
#define QUORATE_EVPAXOS_INTERNAL_H

#include "evpaxos.h"
#include "quorate.h"
#include "quorate_paxos.h"

/* Nodes of the configuration, and proposers: ids from 0. */
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
    /* Added to an acceptor's port: where its node listens for other nodes, and for proposers and learners. */
    int peer_offset;
    int attach_offset;
    int refuse_when_full;
    char held_max[24];
};

/* Options for the node of an acceptor, or to attach to all of them. Null, with a line, if that cannot be. */
quorate_options *evpaxos_node_options(const struct evpaxos_config *config, int id);
quorate_options *evpaxos_attach_options(const struct evpaxos_config *config);

/* Says what a function of libquorate said, as an error. */
void evpaxos_tell(const char *doing);

/* A listener for connections of LibPaxos3's programs: clients that submit, learners that learn. */
struct wire;
struct wire_listener {
    /* The handle that values go to, and whose values learners are sent; and whether it is a node. */
    quorate *handle;
    int is_node;
    unsigned acceptor_id;
};

/* Listens at this port. Null, with a line, if that cannot be. */
struct wire *wire_new(struct event_base *base, int port, struct wire_listener listener);
void wire_free(struct wire *wire);

/* Before the handle is closed: connections end, and values that come back are dropped. */
void wire_stop(struct wire *wire);

/* Where values of the program itself go. */
struct submissions *wire_submissions(struct wire *wire);

/* A value was decided: learners hear of it. */
void wire_decided(struct wire *wire, unsigned iid, const void *value, size_t size);

/* Values that are submitted until they are in an instance. */
struct submissions;
struct submissions *submissions_new(struct event_base *base, quorate *handle);

/* Before the handle is closed: what comes back is dropped. */
void submissions_close(struct submissions *submissions);

/* After the handle is closed. */
void submissions_free(struct submissions *submissions);

/* Whether there is room for more than there is; `room` is called when there is room again. */
int submissions_are_full(const struct submissions *submissions);
void submissions_on_room(struct submissions *submissions, void (*room)(void *argument), void *argument);

/* Takes a copy of the value. */
void submissions_add(struct submissions *submissions, const void *value, size_t size);

#endif
