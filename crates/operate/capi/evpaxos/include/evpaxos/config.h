/*
 * Addresses from paxos.conf.
 */
#ifndef _EVPAXOS_CONFIG_H_
#define _EVPAXOS_CONFIG_H_

#include <netinet/in.h>

#ifdef __cplusplus
extern "C" {
#endif

struct evpaxos_config;

/* Reads the file and sets paxos_config. Null if the file is invalid: a log line has the number of the line, and the
 * reason. */
struct evpaxos_config *evpaxos_config_read(const char *path);
void evpaxos_config_free(struct evpaxos_config *config);

/* Return an address, all zeros for an id that is not in the file. */
struct sockaddr_in evpaxos_proposer_address(struct evpaxos_config *config, int i);
int evpaxos_proposer_listen_port(struct evpaxos_config *config, int i);
int evpaxos_acceptor_count(struct evpaxos_config *config);
struct sockaddr_in evpaxos_acceptor_address(struct evpaxos_config *config, int i);
int evpaxos_acceptor_listen_port(struct evpaxos_config *config, int i);

#ifdef __cplusplus
}
#endif

#endif
