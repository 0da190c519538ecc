/*
 * LibPaxos3's roles over libevent, on Quorate. Everything happens on the caller's event_base and thread: a base, and
 * all that was made on it, belongs to one thread at a time. docs/libpaxos.md says what is different.
 */
#ifndef _EVPAXOS_PAXOS_H_
#define _EVPAXOS_PAXOS_H_

#include <sys/types.h>

#include <event2/bufferevent.h>
#include <event2/event.h>

#ifdef __cplusplus
extern "C" {
#endif

struct evlearner;
struct evproposer;
struct evacceptor;
struct evpaxos_replica;

/* Is delivered the values in the order of their instances, each once. The value lives until it returns, may be
 * changed, and is followed by a zero that is no part of it. It may free what delivers: that happens when it returns. */
typedef void (*deliver_function)(unsigned iid, char *value, size_t size, void *arg);

/* A node that votes, takes values from clients at its address, and delivers (if `cb` is not null). Null if the
 * configuration cannot be used, with the reason in a line. Returns at once; it takes part when its node has started. */
struct evpaxos_replica *evpaxos_replica_init(int id, const char *config, deliver_function cb, void *arg,
                                             struct event_base *base);
void evpaxos_replica_free(struct evpaxos_replica *replica);

/* Delivery goes on behind this instance. */
void evpaxos_replica_set_instance_id(struct evpaxos_replica *replica, unsigned iid);

/* All nodes forget this instance and those before it. */
void evpaxos_replica_send_trim(struct evpaxos_replica *replica, unsigned iid);

/* Submits a value, which is copied. It is submitted again until it is in an instance, once. */
void evpaxos_replica_submit(struct evpaxos_replica *replica, char *value, int size);

int evpaxos_replica_count(struct evpaxos_replica *replica);

/* Delivers what the acceptors of the configuration have decided: from the first instance that is held, or, with
 * learner-catch-up no, what is decided after this returned; for that it asks them, and waits up to 2 s. */
struct evlearner *evlearner_init(const char *config, deliver_function f, void *arg, struct event_base *base);
void evlearner_free(struct evlearner *learner);
void evlearner_set_instance_id(struct evlearner *learner, unsigned iid);
void evlearner_send_trim(struct evlearner *learner, unsigned iid);

/* A node that votes. */
struct evacceptor *evacceptor_init(int id, const char *config, struct event_base *base);
void evacceptor_free(struct evacceptor *acceptor);

/* Takes values from clients at its address, and hands them to the acceptors' nodes. */
struct evproposer *evproposer_init(int id, const char *config, struct event_base *base);
void evproposer_free(struct evproposer *proposer);

/* A hint for LibPaxos3's proposers; there is nothing to be told here. */
void evproposer_set_instance_id(struct evproposer *proposer, unsigned iid);

/* Sends a value to the proposer or replica that `bev` is connected to. */
void paxos_submit(struct bufferevent *bev, char *value, int size);

#ifdef __cplusplus
}
#endif

#endif
