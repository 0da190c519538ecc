/*
 * Replicas, acceptors, proposers and learners: each is a handle of libquorate, whose events are handled on the
 * caller's event_base.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Maximum number of events handled in one turn of the loop. */
#define EVENTS_MAX 256
/* Time for which a start waits for an early failure, in milliseconds. */
#define START_MS 250
/* Maximum wait of a learner that does not catch up for the end of the log, in milliseconds. */
#define END_MS 2000

/* First slot of delivery, for quorate_deliver_from: the oldest retained value. */
#define FIRST_HELD 0

/* State common to all roles. */
struct role {
    quorate *handle;
    struct event *event;
    struct wire *wire;
    struct event *again;
    deliver_function deliver;
    void *argument;
    /* First slot of delivery: an instance, FIRST_HELD, or QUORATE_END. */
    uint64_t from;
    int count;
    /* Number of active callbacks of this role. If it is freed within one, that takes effect when it returns. */
    int busy;
    int freed;
    char *buffer;
    size_t capacity;
};

struct evpaxos_replica {
    struct role role;
};
struct evacceptor {
    struct role role;
};
struct evproposer {
    struct role role;
};
struct evlearner {
    struct role role;
};

static void role_end(struct role *role)
{
    if (role->event != NULL)
        event_free(role->event);
    if (role->again != NULL)
        event_free(role->again);
    if (role->wire != NULL)
        wire_stop(role->wire);
    if (role->handle != NULL && quorate_close(role->handle) != QUORATE_OK)
        evpaxos_tell("the end");
    wire_free(role->wire);
    free(role->buffer);
    free(role);
}

static void role_free(struct role *role)
{
    if (role == NULL)
        return;
    if (role->busy)
        role->freed = 1;
    else
        role_end(role);
}

/* Sends a value to the connected learners, and delivers it to the program. */
static int on_value(void *argument, uint64_t slot, const void *value, size_t size)
{
    struct role *role = argument;
    if (role->freed)
        return 1;
    if (slot > UINT32_MAX) {
        paxos_log_error("instance %u was the last: delivery ends", UINT32_MAX);
        quorate_deliver_nothing(role->handle);
        return 1;
    }
    if (role->from == FIRST_HELD && slot > 1)
        paxos_log_error("instances 1 to %u were trimmed before delivery began: the first one delivered is %u",
                        (unsigned)slot - 1, (unsigned)slot);
    role->from = slot;
    if (role->wire != NULL)
        wire_decided(role->wire, (unsigned)slot, value, size);
    if (role->deliver == NULL)
        return 0;
    /* A copy with a terminating zero, since programs may change it, and print it as text. */
    if (size + 1 > role->capacity) {
        char *larger = realloc(role->buffer, size + 1);
        if (larger == NULL) {
            paxos_log_error("no memory for a value of %zu bytes: it is delivered later", size);
            return 1;
        }
        role->buffer = larger;
        role->capacity = size + 1;
    }
    memcpy(role->buffer, value, size);
    role->buffer[size] = 0;
    role->deliver((unsigned)slot, role->buffer, size, role->argument);
    return 0;
}

static int begin_delivery(struct role *role)
{
    if (quorate_deliver_from(role->handle, role->from, on_value, role) == QUORATE_OK)
        return 0;
    evpaxos_tell("delivery");
    return -1;
}

static void on_events(evutil_socket_t fd, short events, void *argument)
{
    static const struct timeval soon = {0, 10000};
    struct role *role = argument;
    (void)fd, (void)events;
    role->busy = 1;
    int code = quorate_dispatch(role->handle, 0, EVENTS_MAX, NULL);
    role->busy = 0;
    if (role->freed) {
        role_end(role);
        return;
    }
    switch (code) {
    case QUORATE_OK:
    case QUORATE_TIMEOUT:
        break;
    case QUORATE_TRIMMED:
        evpaxos_tell("delivery ends: this program is behind what is held; give it the state of another, and its instance");
        break;
    case QUORATE_STOPPED:
    case QUORATE_REFUSED:
        evpaxos_tell("the start");
        event_del(role->event);
        break;
    default:
        evpaxos_tell("events");
        /* Whatever the error, it is not retried at once. */
        event_del(role->event);
        evtimer_add(role->again, &soon);
    }
}

static void on_again(evutil_socket_t fd, short events, void *argument)
{
    struct role *role = argument;
    (void)fd, (void)events;
    event_add(role->event, NULL);
}

typedef int begin_function(const quorate_options *options, quorate **handle);

/* Creates a role and frees the configuration. Null, with a log line, on failure. */
static struct role *role_new(struct evpaxos_config *config, quorate_options *options, begin_function *begin,
                             struct event_base *base)
{
    struct role *role = options != NULL ? calloc(1, sizeof *role) : NULL;
    int fd;
    if (role == NULL) {
        quorate_options_free(options);
        return NULL;
    }
    role->count = config->acceptors_count;
    role->from = QUORATE_END;
    int code = begin(options, &role->handle);
    quorate_options_free(options);
    if (code != QUORATE_OK || quorate_fd(role->handle, &fd) != QUORATE_OK) {
        evpaxos_tell("the start");
        role_end(role);
        return NULL;
    }
    role->event = event_new(base, fd, EV_READ | EV_PERSIST, on_events, role);
    role->again = evtimer_new(base, on_again, role);
    if (role->event == NULL || role->again == NULL || event_add(role->event, NULL) != 0) {
        paxos_log_error("the event_base takes no event");
        role_end(role);
        return NULL;
    }
    return role;
}

/* Creates a role with a node, with or without delivery to the program. */
static struct role *node_new(int id, const char *path, deliver_function deliver, void *argument,
                             struct event_base *base)
{
    struct evpaxos_config *config = evpaxos_config_read(path);
    if (config == NULL)
        return NULL;
    struct role *role = role_new(config, evpaxos_node_options(config, id), quorate_start, base);
    int port = evpaxos_acceptor_listen_port(config, id);
    evpaxos_config_free(config);
    if (role == NULL)
        return NULL;
    role->deliver = deliver;
    role->argument = argument;
    /* Without delivery to the program, learners are sent new values, and request the others. */
    role->from = deliver != NULL && paxos_config.learner_catch_up ? FIRST_HELD : QUORATE_END;
    /* An early failure, such as a folder or port in use, is reported here. A node that waits for others starts
     * later. */
    int code = quorate_ready(role->handle, START_MS);
    if (code != QUORATE_OK && code != QUORATE_TIMEOUT) {
        evpaxos_tell("it is over");
        role_end(role);
        return NULL;
    }
    struct wire_listener of = {.handle = role->handle, .is_node = 1, .acceptor_id = (unsigned)id};
    role->wire = wire_new(base, port, of);
    if (role->wire == NULL || begin_delivery(role) != 0) {
        role_end(role);
        return NULL;
    }
    return role;
}

/* Continues delivery after this instance. */
static void set_instance_id(struct role *role, unsigned iid)
{
    role->from = (uint64_t)iid + 1;
    begin_delivery(role);
}

static void send_trim(struct role *role, unsigned iid)
{
    if (quorate_trim(role->handle, (uint64_t)iid + 1, NULL, NULL) != QUORATE_OK)
        evpaxos_tell("a trim");
}

struct evpaxos_replica *evpaxos_replica_init(int id, const char *config, deliver_function cb, void *arg,
                                             struct event_base *base)
{
    return (struct evpaxos_replica *)node_new(id, config, cb, arg, base);
}

void evpaxos_replica_free(struct evpaxos_replica *replica)
{
    role_free((struct role *)replica);
}

void evpaxos_replica_set_instance_id(struct evpaxos_replica *replica, unsigned iid)
{
    set_instance_id(&replica->role, iid);
}

void evpaxos_replica_send_trim(struct evpaxos_replica *replica, unsigned iid)
{
    send_trim(&replica->role, iid);
}

void evpaxos_replica_submit(struct evpaxos_replica *replica, char *value, int size)
{
    if (size < 0 || (size > 0 && value == NULL))
        paxos_log_error("a value of %d bytes is refused", size);
    else
        submissions_add(wire_submissions(replica->role.wire), value, (size_t)size);
}

int evpaxos_replica_count(struct evpaxos_replica *replica)
{
    return replica->role.count;
}

struct evacceptor *evacceptor_init(int id, const char *config, struct event_base *base)
{
    return (struct evacceptor *)node_new(id, config, NULL, NULL, base);
}

void evacceptor_free(struct evacceptor *acceptor)
{
    role_free((struct role *)acceptor);
}

struct evproposer *evproposer_init(int id, const char *path, struct event_base *base)
{
    struct evpaxos_config *config = evpaxos_config_read(path);
    if (config == NULL)
        return NULL;
    int port = evpaxos_proposer_listen_port(config, id);
    if (port == 0)
        paxos_log_error("there is no proposer %d", id);
    struct role *role =
        port != 0 ? role_new(config, evpaxos_attach_options(config), quorate_attach, base) : NULL;
    evpaxos_config_free(config);
    if (role == NULL)
        return NULL;
    struct wire_listener of = {.handle = role->handle};
    role->wire = wire_new(base, port, of);
    if (role->wire == NULL) {
        role_end(role);
        return NULL;
    }
    return (struct evproposer *)role;
}

void evproposer_free(struct evproposer *proposer)
{
    role_free((struct role *)proposer);
}

void evproposer_set_instance_id(struct evproposer *proposer, unsigned iid)
{
    (void)proposer, (void)iid;
}

struct evlearner *evlearner_init(const char *path, deliver_function f, void *arg, struct event_base *base)
{
    struct evpaxos_config *config = evpaxos_config_read(path);
    if (config == NULL)
        return NULL;
    struct role *role = role_new(config, evpaxos_attach_options(config), quorate_attach, base);
    evpaxos_config_free(config);
    if (role == NULL)
        return NULL;
    role->deliver = f;
    role->argument = arg;
    role->from = FIRST_HELD;
    /* The program may submit as soon as this returns, over a connection of its own, so the end is determined now. If
     * that fails, earlier values are delivered rather than losing its own. */
    if (!paxos_config.learner_catch_up && quorate_sync(role->handle, END_MS, &role->from) != QUORATE_OK) {
        role->from = FIRST_HELD;
        paxos_log_info("no acceptor said within %d ms what is decided: delivery begins with the first instance held",
                       END_MS);
    }
    if (begin_delivery(role) != 0) {
        role_end(role);
        return NULL;
    }
    return (struct evlearner *)role;
}

void evlearner_free(struct evlearner *learner)
{
    role_free((struct role *)learner);
}

void evlearner_set_instance_id(struct evlearner *learner, unsigned iid)
{
    set_instance_id(&learner->role, iid);
}

void evlearner_send_trim(struct evlearner *learner, unsigned iid)
{
    send_trim(&learner->role, iid);
}

void paxos_submit(struct bufferevent *bev, char *value, int size)
{
    if (bev == NULL || size < 0 || (size > 0 && value == NULL)) {
        paxos_log_error("a value of %d bytes is refused", size);
        return;
    }
    quorate_paxos_message message = {.kind = PAXOS_CLIENT_VALUE, .value = value, .length = (size_t)size};
    size_t length = 0;
    char *bytes = malloc((size_t)size + 64);
    if (bytes == NULL || quorate_paxos_encode(&message, bytes, (size_t)size + 64, &length) != QUORATE_OK)
        paxos_log_error("a value of %d bytes cannot be sent", size);
    else
        bufferevent_write(bev, bytes, length);
    free(bytes);
}
