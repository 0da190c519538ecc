/*
 * Parser of paxos.conf: each line is an option or the address of a node. Unsafe settings are refused with a reason.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <arpa/inet.h>

#include "internal.h"

#define LINE_SIZE 512

struct paxos_config paxos_config = {
    .verbosity = PAXOS_LOG_INFO,
    .tcp_nodelay = 1,
    .learner_catch_up = 1,
    .proposer_timeout = 1,
    .proposer_preexec_window = 128,
    .storage_backend = PAXOS_MEM_STORAGE,
    .trash_files = 0,
    .lmdb_sync = 0,
    .lmdb_env_path = "/tmp/acceptor",
    .lmdb_mapsize = 10 << 20,
};

int paxos_quorum(int acceptors)
{
    return acceptors / 2 + 1;
}

paxos_value *paxos_value_new(const char *bytes, size_t size)
{
    paxos_value *value = size <= INT_MAX ? malloc(sizeof *value) : NULL;
    if (value == NULL)
        return NULL;
    value->paxos_value_len = (int)size;
    value->paxos_value_val = malloc(size + 1);
    if (value->paxos_value_val == NULL) {
        free(value);
        return NULL;
    }
    if (size > 0)
        memcpy(value->paxos_value_val, bytes, size);
    value->paxos_value_val[size] = 0;
    return value;
}

void paxos_value_free(paxos_value *value)
{
    if (value != NULL)
        free(value->paxos_value_val);
    free(value);
}

void paxos_log(int level, const char *format, va_list arguments)
{
    if (level > (int)paxos_config.verbosity)
        return;
    FILE *to = level == PAXOS_LOG_ERROR ? stderr : stdout;
    vfprintf(to, format, arguments);
    fputc('\n', to);
    fflush(to);
}

#define LOG(level)                      \
    va_list arguments;                  \
    va_start(arguments, format);        \
    paxos_log(level, format, arguments); \
    va_end(arguments)

void paxos_log_error(const char *format, ...)
{
    LOG(PAXOS_LOG_ERROR);
}

void paxos_log_info(const char *format, ...)
{
    LOG(PAXOS_LOG_INFO);
}

void paxos_log_debug(const char *format, ...)
{
    LOG(PAXOS_LOG_DEBUG);
}

static int parse_boolean(const char *text, int *to)
{
    if (strcasecmp(text, "yes") == 0)
        *to = 1;
    else if (strcasecmp(text, "no") == 0)
        *to = 0;
    else
        return -1;
    return 0;
}

static int parse_number(const char *text, long long least, long long most, long long *to)
{
    char *end;
    errno = 0;
    *to = strtoll(text, &end, 10);
    return errno != 0 || end == text || *end != 0 || *to < least || *to > most ? -1 : 0;
}

/* Parses a number of bytes, kb, mb or gb. */
static int parse_bytes(const char *text, unsigned long long *to)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    int shift = 0;
    if (strcasecmp(end, "kb") == 0)
        shift = 10;
    else if (strcasecmp(end, "mb") == 0)
        shift = 20;
    else if (strcasecmp(end, "gb") == 0)
        shift = 30;
    else if (*end != 0)
        return -1;
    if (errno != 0 || end == text || !isdigit((unsigned char)*text) || number == 0 || number > (1ULL << 40) >> shift)
        return -1;
    *to = number << shift;
    return 0;
}

static const char *add_endpoint(struct endpoint *endpoints, int *count, const char *id, const char *host,
                                const char *port)
{
    long long number, at;
    struct in_addr address;
    if (parse_number(id, 0, MAX_N_OF_PROPOSERS - 1, &number) != 0)
        return "ids are 0 to 9";
    if (inet_pton(AF_INET, host, &address) != 1)
        return "an IPv4 address such as 127.0.0.1 is wanted";
    if (parse_number(port, 1, 65535, &at) != 0)
        return "a port is 1 to 65535";
    struct endpoint *endpoint = &endpoints[number];
    if (endpoint->known)
        return "this id is there already";
    endpoint->known = 1;
    snprintf(endpoint->host, sizeof endpoint->host, "%s", host);
    endpoint->port = (int)at;
    ++*count;
    return NULL;
}

static const char *set_option(struct evpaxos_config *config, const char *name, const char *value)
{
    static const char *const yes_or_no = "yes or no is wanted";
    long long number;
    unsigned long long bytes;
    int flag;
    if (strcasecmp(name, "verbosity") == 0) {
        static const char *const levels[] = {"quiet", "error", "info", "debug"};
        for (int level = 0; level < 4; level++)
            if (strcasecmp(value, levels[level]) == 0) {
                paxos_config.verbosity = (paxos_log_level)level;
                return NULL;
            }
        return "quiet, error, info or debug is wanted";
    }
    if (strcasecmp(name, "tcp-nodelay") == 0) {
        if (parse_boolean(value, &flag) != 0)
            return yes_or_no;
        if (!flag)
            paxos_log_info("tcp-nodelay no: messages are gathered by load here, and never wait for the network");
        paxos_config.tcp_nodelay = flag;
        return NULL;
    }
    if (strcasecmp(name, "learner-catch-up") == 0)
        return parse_boolean(value, &paxos_config.learner_catch_up) == 0 ? NULL : yes_or_no;
    if (strcasecmp(name, "proposer-timeout") == 0) {
        if (parse_number(value, 0, INT_MAX, &number) != 0)
            return "seconds are wanted";
        paxos_config.proposer_timeout = (int)number;
        return NULL;
    }
    if (strcasecmp(name, "proposer-preexec-window") == 0) {
        if (parse_number(value, 0, INT_MAX, &number) != 0)
            return "a number is wanted";
        paxos_config.proposer_preexec_window = (int)number;
        return NULL;
    }
    if (strcasecmp(name, "storage-backend") == 0) {
        if (strcasecmp(value, "memory") == 0)
            paxos_config.storage_backend = PAXOS_MEM_STORAGE;
        else if (strcasecmp(value, "lmdb") == 0)
            paxos_config.storage_backend = PAXOS_LMDB_STORAGE;
        else
            return "memory or lmdb is wanted";
        return NULL;
    }
    if (strcasecmp(name, "acceptor-trash-files") == 0 || strcasecmp(name, "trash-files") == 0)
        return parse_boolean(value, &paxos_config.trash_files) == 0 ? NULL : yes_or_no;
    if (strcasecmp(name, "lmdb-sync") == 0)
        return parse_boolean(value, &paxos_config.lmdb_sync) == 0 ? NULL : yes_or_no;
    if (strcasecmp(name, "lmdb-env-path") == 0) {
        /* An earlier value from the file is ours to free; one that the program set is not. */
        static char *own;
        char *path = own != NULL && strcmp(own, value) == 0 ? own : strdup(value);
        if (path == NULL)
            return "no memory";
        if (path != own)
            free(own);
        own = path;
        paxos_config.lmdb_env_path = path;
        return NULL;
    }
    if (strcasecmp(name, "lmdb-mapsize") == 0) {
        if (parse_bytes(value, &bytes) != 0)
            return "a number, or one of kb, mb, gb is wanted";
        paxos_config.lmdb_mapsize = (size_t)bytes;
        return NULL;
    }
    if (strcasecmp(name, "quorum-1") == 0 || strcasecmp(name, "quorum-2") == 0)
        return "refused: quorums are majorities here";
    if (strcasecmp(name, "quorate-peer-offset") == 0 || strcasecmp(name, "quorate-attach-offset") == 0) {
        if (parse_number(value, 1, 65535, &number) != 0)
            return "a number from 1 to 65535 is wanted";
        *(strcasecmp(name, "quorate-peer-offset") == 0 ? &config->peer_offset : &config->attach_offset) = (int)number;
        return NULL;
    }
    if (strcasecmp(name, "quorate-held-max") == 0) {
        if (parse_bytes(value, &bytes) != 0 || bytes < 1024)
            return "a number from 1kb is wanted";
        snprintf(config->held_max, sizeof config->held_max, "%llu", bytes);
        return NULL;
    }
    if (strcasecmp(name, "quorate-when-full") == 0) {
        if (strcasecmp(value, "refuse") == 0)
            config->refuse_when_full = 1;
        else if (strcasecmp(value, "forget-oldest") == 0)
            config->refuse_when_full = 0;
        else
            return "refuse or forget-oldest is wanted";
        return NULL;
    }
    return "there is no such option";
}

static const char *parse_line(struct evpaxos_config *config, char *line)
{
    char *words[5] = {NULL};
    char *rest = NULL;
    int count = 0;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word != NULL; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (*word == '#')
            break;
        if (count == 5)
            return "there are too many words";
        words[count++] = word;
    }
    if (count == 0)
        return NULL;
    int replica = strcasecmp(words[0], "r") == 0 || strcasecmp(words[0], "replica") == 0;
    int acceptor = strcasecmp(words[0], "a") == 0 || strcasecmp(words[0], "acceptor") == 0;
    int proposer = strcasecmp(words[0], "p") == 0 || strcasecmp(words[0], "proposer") == 0;
    if (replica || acceptor || proposer) {
        const char *why = NULL;
        if (count != 4)
            return "an id, an address and a port are wanted";
        if (replica || acceptor)
            why = add_endpoint(config->acceptors, &config->acceptors_count, words[1], words[2], words[3]);
        if (why == NULL && (replica || proposer))
            why = add_endpoint(config->proposers, &config->proposers_count, words[1], words[2], words[3]);
        return why;
    }
    if (count != 2)
        return "a name and a value are wanted";
    return set_option(config, words[0], words[1]);
}

struct evpaxos_config *evpaxos_config_read(const char *path)
{
    char line[LINE_SIZE];
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    if (file == NULL) {
        paxos_log_error("%s: %s", path != NULL ? path : "no file is named", strerror(errno));
        return NULL;
    }
    struct evpaxos_config *config = calloc(1, sizeof *config);
    if (config == NULL) {
        fclose(file);
        return NULL;
    }
    config->peer_offset = 10000;
    config->attach_offset = 20000;
    snprintf(config->held_max, sizeof config->held_max, "%d", 256 << 20);
    int bad = 0;
    for (int number = 1; !bad && fgets(line, sizeof line, file) != NULL; number++) {
        int whole = strchr(line, '\n') != NULL || feof(file);
        const char *why = whole ? parse_line(config, line) : "the line is too long";
        if (why != NULL) {
            paxos_log_error("%s:%d: %s", path, number, why);
            bad = 1;
        }
    }
    if (ferror(file)) {
        paxos_log_error("%s: cannot be read", path);
        bad = 1;
    }
    fclose(file);
    for (int id = 0; !bad && id < config->acceptors_count; id++)
        if (!config->acceptors[id].known) {
            paxos_log_error("%s: ids of acceptors begin with 0 and have no gaps", path);
            bad = 1;
        }
    if (!bad && config->acceptors_count == 0) {
        paxos_log_error("%s: there is no acceptor and no replica", path);
        bad = 1;
    }
    if (bad) {
        free(config);
        return NULL;
    }
    return config;
}

void evpaxos_config_free(struct evpaxos_config *config)
{
    free(config);
}

static const struct endpoint *endpoint_of(const struct endpoint *endpoints, int i)
{
    return i >= 0 && i < MAX_N_OF_PROPOSERS && endpoints[i].known ? &endpoints[i] : NULL;
}

static struct sockaddr_in address_of(const struct endpoint *endpoints, int i)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    const struct endpoint *endpoint = endpoint_of(endpoints, i);
    if (endpoint != NULL) {
        address.sin_family = AF_INET;
        address.sin_port = htons((uint16_t)endpoint->port);
        inet_pton(AF_INET, endpoint->host, &address.sin_addr);
    }
    return address;
}

static int port_of(const struct endpoint *endpoints, int i)
{
    const struct endpoint *endpoint = endpoint_of(endpoints, i);
    return endpoint != NULL ? endpoint->port : 0;
}

struct sockaddr_in evpaxos_proposer_address(struct evpaxos_config *config, int i)
{
    return address_of(config->proposers, i);
}

int evpaxos_proposer_listen_port(struct evpaxos_config *config, int i)
{
    return port_of(config->proposers, i);
}

int evpaxos_acceptor_count(struct evpaxos_config *config)
{
    return config->acceptors_count;
}

struct sockaddr_in evpaxos_acceptor_address(struct evpaxos_config *config, int i)
{
    return address_of(config->acceptors, i);
}

int evpaxos_acceptor_listen_port(struct evpaxos_config *config, int i)
{
    return port_of(config->acceptors, i);
}

void evpaxos_tell(const char *doing)
{
    const quorate_error *error = quorate_last_error();
    paxos_log_error("%s: %s: %s%s%s%s", doing, error->what, error->detail, error->hint[0] ? " (" : "", error->hint,
                    error->hint[0] ? ")" : "");
}

/* Writes a list of all acceptors, such as 1=HOST:PORT,2=HOST:PORT. */
static int list(const struct evpaxos_config *config, int offset, int named, char *to, size_t size)
{
    size_t used = 0;
    for (int id = 0; id < config->acceptors_count; id++) {
        const struct endpoint *endpoint = &config->acceptors[id];
        if (endpoint->port + offset > 65535) {
            paxos_log_error("acceptor %d: port %d and %d more is above 65535: set quorate-peer-offset and "
                            "quorate-attach-offset, the same everywhere",
                            id, endpoint->port, offset);
            return -1;
        }
        int length = named ? snprintf(to + used, size - used, "%s%d=%s:%d", id > 0 ? "," : "", id + 1, endpoint->host,
                                      endpoint->port + offset)
                           : snprintf(to + used, size - used, "%s%s:%d", id > 0 ? "," : "", endpoint->host,
                                      endpoint->port + offset);
        used += (size_t)length;
        if (length < 0 || used >= size)
            return -1;
    }
    return 0;
}

static quorate_options *finish(quorate_options *options, const struct evpaxos_config *config, int bad)
{
    bad = bad || quorate_options_set(options, "start-wait-ms", "0") != QUORATE_OK ||
          quorate_options_set(options, "held-max", config->held_max) != QUORATE_OK ||
          quorate_options_set(options, "when-full", config->refuse_when_full ? "refuse" : "forget-oldest") !=
              QUORATE_OK;
    if (bad) {
        evpaxos_tell("the configuration");
        quorate_options_free(options);
        return NULL;
    }
    return options;
}

quorate_options *evpaxos_node_options(const struct evpaxos_config *config, int id)
{
    char cluster[1024], data[4096], node[16], listen[96];
    const struct endpoint *own = endpoint_of(config->acceptors, id);
    if (own == NULL) {
        paxos_log_error("there is no acceptor or replica %d", id);
        return NULL;
    }
    if (list(config, config->peer_offset, 1, cluster, sizeof cluster) != 0 ||
        own->port + config->attach_offset > 65535) {
        paxos_log_error("the ports of acceptor %d do not fit", id);
        return NULL;
    }
    snprintf(node, sizeof node, "%d", id + 1);
    snprintf(listen, sizeof listen, "%s:%d", own->host, own->port + config->attach_offset);
    snprintf(data, sizeof data, "%s_%d", paxos_config.lmdb_env_path, id);
    quorate_options *options = quorate_options_new();
    int durable = paxos_config.storage_backend == PAXOS_LMDB_STORAGE;
    int bad = quorate_options_set(options, "data", data) != QUORATE_OK ||
              quorate_options_set(options, "node", node) != QUORATE_OK ||
              quorate_options_set(options, "cluster", cluster) != QUORATE_OK ||
              quorate_options_set(options, "listen", listen) != QUORATE_OK ||
              quorate_options_set(options, "start-empty", paxos_config.trash_files ? "yes" : "no") != QUORATE_OK ||
              quorate_options_set(options, "durability", durable ? "durable" : "volatile") != QUORATE_OK;
    return finish(options, config, bad);
}

quorate_options *evpaxos_attach_options(const struct evpaxos_config *config)
{
    char nodes[1024];
    if (list(config, config->attach_offset, 0, nodes, sizeof nodes) != 0)
        return NULL;
    quorate_options *options = quorate_options_new();
    int bad = quorate_options_set(options, "attach", nodes) != QUORATE_OK ||
              quorate_options_set(options, "request-ms", "60000") != QUORATE_OK;
    return finish(options, config, bad);
}
