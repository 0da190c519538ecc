/*
 * LibPaxos3's roles over libevent, implemented by Quorate. Everything runs on the caller's event_base and thread: a
 * base, and all roles on it, must be used by one thread at a time. docs/libpaxos.md lists the differences.
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

/* Callback for values, called once for each value, in the order of instances. The value is valid until the callback
 * returns, may be changed, and is followed by a zero that is not included in its size. The callback may free the role
 * that called it: that takes effect when it returns. */
typedef void (*deliver_function)(unsigned iid, char *value, size_t size, void *arg);

/* Creates a replica: a node that votes, accepts values from clients on its address, and delivers values unless `cb`
 * is null. Null if the configuration is invalid, with the reason in a log line. Does not wait for the node to start. */
struct evpaxos_replica *evpaxos_replica_init(int id, const char *config, deliver_function cb, void *arg,
                                             struct event_base *base);
void evpaxos_replica_free(struct evpaxos_replica *replica);

/* Continues delivery after this instance. */
void evpaxos_replica_set_instance_id(struct evpaxos_replica *replica, unsigned iid);

/* Makes all nodes forget this instance and all earlier ones. */
void evpaxos_replica_send_trim(struct evpaxos_replica *replica, unsigned iid);

/* Submits a copy of a value, and repeats that until it is in an instance. It is in one only once. */
void evpaxos_replica_submit(struct evpaxos_replica *replica, char *value, int size);

int evpaxos_replica_count(struct evpaxos_replica *replica);

/* Creates a learner, which delivers the values decided by the acceptors of the configuration: from the first retained
 * instance, or, with learner-catch-up no, those decided after this call; to determine that it waits up to 2 s for the
 * acceptors. */
struct evlearner *evlearner_init(const char *config, deliver_function f, void *arg, struct event_base *base);
void evlearner_free(struct evlearner *learner);
void evlearner_set_instance_id(struct evlearner *learner, unsigned iid);
void evlearner_send_trim(struct evlearner *learner, unsigned iid);

/* Creates an acceptor: a node that votes. */
struct evacceptor *evacceptor_init(int id, const char *config, struct event_base *base);
void evacceptor_free(struct evacceptor *acceptor);

/* Creates a proposer, which accepts values from clients on its address and forwards them to the acceptors' nodes. */
struct evproposer *evproposer_init(int id, const char *config, struct event_base *base);
void evproposer_free(struct evproposer *proposer);

/* A hint for LibPaxos3's proposers, which has no effect here. */
void evproposer_set_instance_id(struct evproposer *proposer, unsigned iid);

/* Sends a value to the proposer or replica that `bev` is connected to. */
void paxos_submit(struct bufferevent *bev, char *value, int size);

#ifdef __cplusplus
}
#endif

#endif
