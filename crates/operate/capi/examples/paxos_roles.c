/*
 * A program that uses only LibPaxos3's public interface: it can be built against either implementation.
 *
 *   paxos_roles replica ID CONF          a replica; prints delivered values
 *   paxos_roles acceptor ID CONF
 *   paxos_roles proposer ID CONF
 *   paxos_roles learner CONF [IID]       prints learned values, from the beginning or after an instance
 *   paxos_roles client CONF ID COUNT NAME [OUTSTANDING]
 *       submits values "NAME 0" ... to a proposer, 16 (or OUTSTANDING) at a time, one more for each it learns; ends
 *       with "learned COUNT" when it has learned all its own values. Like LibPaxos3's sample client, it first
 *       connects to the proposer, and then creates a learner that does not catch up.
 *
 * On standard input a replica or learner accepts lines "trim IID", which send a trim; a replica also "submit VALUE".
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>
#include <evpaxos.h>
#include <paxos.h>

static struct event_base *base;
static struct evpaxos_replica *replica;
static struct evlearner *learner;

static struct bufferevent *to_proposer, *lines;
static const char *name;
static int submitted, learned, wanted, outstanding = 16;

static void stop(evutil_socket_t signal_number, short events, void *argument)
{
    (void)signal_number, (void)events;
    event_base_loopexit(argument, NULL);
}

static void print(unsigned iid, char *value, size_t size, void *argument)
{
    (void)argument;
    printf("%u %.*s\n", iid, (int)size, value);
    fflush(stdout);
}

static void submit_next(void)
{
    char value[128];
    if (submitted == wanted)
        return;
    int size = snprintf(value, sizeof value, "%s %d", name, submitted++);
    paxos_submit(to_proposer, value, size);
}

static void learn_own(unsigned iid, char *value, size_t size, void *argument)
{
    size_t length = strlen(name);
    (void)iid, (void)argument;
    if (size <= length || memcmp(value, name, length) != 0 || value[length] != ' ')
        return;
    if (++learned == wanted)
        event_base_loopexit(base, NULL);
    submit_next();
}

static void on_proposer(struct bufferevent *bev, short events, void *argument)
{
    (void)bev, (void)argument;
    if (events & BEV_EVENT_CONNECTED) {
        for (int i = 0; i < outstanding; i++)
            submit_next();
        return;
    }
    printf("the proposer is gone\n");
    exit(1);
}

static void on_line(struct bufferevent *bev, void *argument)
{
    char *line;
    unsigned iid;
    (void)argument;
    while ((line = evbuffer_readln(bufferevent_get_input(bev), NULL, EVBUFFER_EOL_LF)) != NULL) {
        if (sscanf(line, "trim %u", &iid) == 1) {
            if (replica != NULL)
                evpaxos_replica_send_trim(replica, iid);
            else
                evlearner_send_trim(learner, iid);
        } else if (strncmp(line, "submit ", 7) == 0 && replica != NULL) {
            evpaxos_replica_submit(replica, line + 7, (int)strlen(line + 7));
        }
        free(line);
    }
}

static void read_lines(void)
{
    evutil_make_socket_nonblocking(0);
    lines = bufferevent_socket_new(base, 0, 0);
    bufferevent_setcb(lines, on_line, NULL, NULL, NULL);
    bufferevent_enable(lines, EV_READ);
}

int main(int count, char **arguments)
{
    struct evacceptor *acceptor = NULL;
    struct evproposer *proposer = NULL;
    const char *role = count > 2 ? arguments[1] : "";
    int id = count > 2 ? atoi(arguments[2]) : 0;
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    struct event *terminate = evsignal_new(base, SIGTERM, stop, base);
    evsignal_add(terminate, NULL);
    int started = 0;
    if (strcmp(role, "replica") == 0 && count == 4) {
        started = (replica = evpaxos_replica_init(id, arguments[3], print, NULL, base)) != NULL;
        read_lines();
    } else if (strcmp(role, "acceptor") == 0 && count == 4) {
        started = (acceptor = evacceptor_init(id, arguments[3], base)) != NULL;
    } else if (strcmp(role, "proposer") == 0 && count == 4) {
        started = (proposer = evproposer_init(id, arguments[3], base)) != NULL;
    } else if (strcmp(role, "learner") == 0) {
        started = (learner = evlearner_init(arguments[2], print, NULL, base)) != NULL;
        if (started && count > 3)
            evlearner_set_instance_id(learner, (unsigned)strtoul(arguments[3], NULL, 10));
        read_lines();
    } else if (strcmp(role, "client") == 0 && (count == 6 || count == 7)) {
        struct evpaxos_config *config = evpaxos_config_read(arguments[2]);
        if (config == NULL)
            return 1;
        struct sockaddr_in address = evpaxos_proposer_address(config, atoi(arguments[3]));
        evpaxos_config_free(config);
        wanted = atoi(arguments[4]);
        name = arguments[5];
        if (count == 7)
            outstanding = atoi(arguments[6]);
        to_proposer = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
        bufferevent_setcb(to_proposer, NULL, NULL, on_proposer, NULL);
        bufferevent_enable(to_proposer, EV_READ | EV_WRITE);
        bufferevent_socket_connect(to_proposer, (struct sockaddr *)&address, sizeof address);
        paxos_config.learner_catch_up = 0;
        started = (learner = evlearner_init(arguments[2], learn_own, NULL, base)) != NULL;
    }
    if (!started) {
        printf("not started\n");
        return 1;
    }
    if (wanted == 0) {
        printf("started\n");
        fflush(stdout);
    }
    event_base_dispatch(base);
    if (wanted > 0)
        printf("learned %d\n", learned);
    if (replica != NULL)
        evpaxos_replica_free(replica);
    if (learner != NULL)
        evlearner_free(learner);
    if (acceptor != NULL)
        evacceptor_free(acceptor);
    if (proposer != NULL)
        evproposer_free(proposer);
    if (to_proposer != NULL)
        bufferevent_free(to_proposer);
    if (lines != NULL)
        bufferevent_free(lines);
    event_free(terminate);
    event_base_free(base);
    return 0;
}
