/*
 * Connections of LibPaxos3's programs, on the caller's event_base: clients submit values; learners are sent decided
 * values and request missing ones. Libquorate decodes all their input.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <event2/buffer.h>
#include <event2/listener.h>

#include "internal.h"

/* Maximum number of connections. */
#define CONNECTIONS_MAX 256
/* Unsent bytes above which a learner is sent no new values: it will request the missing ones. */
#define OUTPUT_MAX (4u << 20)
/* Maximum size of a value, as in libquorate. */
#define VALUE_MAX (8u << 20)
#define MESSAGE_OVERHEAD 64
/* Ballot of all decided values: a learner counts acceptors that report the same ballot and value. */
#define DECIDED_BALLOT 1

struct connection {
    struct wire *wire;
    struct bufferevent *bev;
    struct connection *next;
    struct connection **from;
};

struct wire {
    struct wire_listener of;
    struct submissions *submissions;
    struct evconnlistener *listener;
    struct connection *connections;
    int count;
    char *buffer;
};

static void end(struct connection *connection)
{
    *connection->from = connection->next;
    if (connection->next != NULL)
        connection->next->from = connection->from;
    connection->wire->count--;
    bufferevent_free(connection->bev);
    free(connection);
}

/* Sends a decided value to a learner; returns -1 on failure. */
static int send_decided(struct connection *connection, unsigned iid, const void *value, size_t size)
{
    quorate_paxos_message message = {
        .kind = PAXOS_ACCEPTED,
        .aid = connection->wire->of.acceptor_id,
        .iid = iid,
        .ballot = DECIDED_BALLOT,
        .value_ballot = DECIDED_BALLOT,
        .value = value,
        .length = size,
    };
    struct evbuffer *output = bufferevent_get_output(connection->bev);
    struct evbuffer_iovec space;
    if (evbuffer_reserve_space(output, (ev_ssize_t)(size + MESSAGE_OVERHEAD), &space, 1) != 1)
        return -1;
    if (quorate_paxos_encode(&message, space.iov_base, space.iov_len, &space.iov_len) != QUORATE_OK)
        return -1;
    return evbuffer_commit_space(output, &space, 1);
}

static int has_room(struct connection *connection)
{
    return evbuffer_get_length(bufferevent_get_output(connection->bev)) < OUTPUT_MAX;
}

void wire_decided(struct wire *wire, unsigned iid, const void *value, size_t size)
{
    for (struct connection *connection = wire->connections; connection != NULL; connection = connection->next)
        if (has_room(connection) && send_decided(connection, iid, value, size) != 0)
            paxos_log_error("instance %u cannot be sent to a learner", iid);
}

/* Sends instances that a learner requested; it will request again those that are not sent. */
static void repeat(struct connection *connection, uint32_t from, uint32_t to)
{
    struct wire *wire = connection->wire;
    if (!wire->of.is_node)
        return;
    for (uint64_t iid = from > 0 ? from : 1; iid <= to && has_room(connection); iid++) {
        size_t size;
        if (quorate_read(wire->of.handle, iid, wire->buffer, VALUE_MAX, &size) != QUORATE_OK)
            return;
        if (send_decided(connection, (unsigned)iid, wire->buffer, size) != 0)
            return;
    }
}

/* Handles a message; returns 0 to keep the connection. */
static int hear(struct connection *connection, const quorate_paxos_message *message)
{
    struct wire *wire = connection->wire;
    switch (message->kind) {
    case PAXOS_CLIENT_VALUE:
        submissions_add(wire->submissions, message->value, message->length);
        return 0;
    case PAXOS_REPEAT:
        repeat(connection, message->iid, message->to);
        return 0;
    case PAXOS_TRIM:
        if (quorate_trim(wire->of.handle, (uint64_t)message->iid + 1, NULL, NULL) != QUORATE_OK)
            evpaxos_tell("a trim");
        return 0;
    case PAXOS_PREPARE:
    case PAXOS_ACCEPT:
        paxos_log_error("a proposer of LibPaxos3 is refused: acceptors here vote for proposals of Quorate's leader "
                        "alone; build the proposer against this library, or send it client values");
        return -1;
    default:
        paxos_log_error("a message of kind %u, which nobody sends here, is refused", message->kind);
        return -1;
    }
}

static void on_read(struct bufferevent *bev, void *argument)
{
    struct connection *connection = argument;
    struct wire *wire = connection->wire;
    struct evbuffer *input = bufferevent_get_input(bev);
    while (evbuffer_get_length(input) > 0) {
        if (submissions_are_full(wire->submissions)) {
            /* Unread values wait in the client. */
            bufferevent_disable(bev, EV_READ);
            return;
        }
        /* A message must be contiguous to be decoded; its beginning limits its length. */
        size_t there = evbuffer_get_length(input);
        quorate_paxos_message message;
        size_t used = 0;
        for (size_t piece = there < 4096 ? there : 4096;; piece = there < piece * 8 ? there : piece * 8) {
            const unsigned char *bytes = evbuffer_pullup(input, (ev_ssize_t)piece);
            if (bytes == NULL || quorate_paxos_decode(bytes, piece, VALUE_MAX, &message, &used) != QUORATE_OK) {
                paxos_log_error("a connection is ended: what it sends is no message of LibPaxos3");
                end(connection);
                return;
            }
            if (used > 0 || piece == there)
                break;
        }
        if (used == 0)
            return;
        if (hear(connection, &message) != 0) {
            end(connection);
            return;
        }
        evbuffer_drain(input, used);
    }
}

static void on_event(struct bufferevent *bev, short events, void *argument)
{
    (void)bev;
    if (events & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT))
        end(argument);
}

/* Reads waiting clients again, once values have left the queue. */
static void on_room(void *argument)
{
    struct wire *wire = argument;
    for (struct connection *connection = wire->connections; connection != NULL; connection = connection->next)
        if (!(bufferevent_get_enabled(connection->bev) & EV_READ)) {
            bufferevent_enable(connection->bev, EV_READ);
            /* Input that has already arrived is handled in a later turn of the loop. */
            bufferevent_trigger(connection->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
        }
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
                      void *argument)
{
    struct wire *wire = argument;
    int on = 1;
    (void)address, (void)length;
    struct connection *connection = wire->count < CONNECTIONS_MAX ? calloc(1, sizeof *connection) : NULL;
    if (connection == NULL) {
        evutil_closesocket(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection->wire = wire;
    connection->bev = bufferevent_socket_new(evconnlistener_get_base(listener), fd, BEV_OPT_CLOSE_ON_FREE);
    if (connection->bev == NULL) {
        evutil_closesocket(fd);
        free(connection);
        return;
    }
    connection->next = wire->connections;
    connection->from = &wire->connections;
    if (connection->next != NULL)
        connection->next->from = &connection->next;
    wire->connections = connection;
    wire->count++;
    bufferevent_setcb(connection->bev, on_read, NULL, on_event, connection);
    /* The read buffer is limited to the largest message. */
    bufferevent_setwatermark(connection->bev, EV_READ, 0, VALUE_MAX + MESSAGE_OVERHEAD);
    bufferevent_enable(connection->bev, EV_READ | EV_WRITE);
}

struct wire *wire_new(struct event_base *base, int port, struct wire_listener of)
{
    struct sockaddr_in address;
    struct wire *wire = calloc(1, sizeof *wire);
    if (wire == NULL)
        return NULL;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    wire->of = of;
    wire->buffer = malloc(VALUE_MAX);
    wire->submissions = submissions_new(base, of.handle);
    wire->listener = evconnlistener_new_bind(base, on_accept, wire,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, -1,
                                             (struct sockaddr *)&address, sizeof address);
    if (wire->buffer == NULL || wire->submissions == NULL || wire->listener == NULL) {
        paxos_log_error("listen at port %d: %s", port, strerror(errno));
        wire_free(wire);
        return NULL;
    }
    submissions_on_room(wire->submissions, on_room, wire);
    return wire;
}

struct submissions *wire_submissions(struct wire *wire)
{
    return wire->submissions;
}

void wire_stop(struct wire *wire)
{
    if (wire == NULL)
        return;
    while (wire->connections != NULL)
        end(wire->connections);
    if (wire->listener != NULL)
        evconnlistener_free(wire->listener);
    wire->listener = NULL;
    submissions_close(wire->submissions);
}

void wire_free(struct wire *wire)
{
    if (wire == NULL)
        return;
    wire_stop(wire);
    submissions_free(wire->submissions);
    free(wire->buffer);
    free(wire);
}
