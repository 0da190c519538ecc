/*
 * LibPaxos3's message types, under the names that its programs use. Public functions use only values.
 */
#ifndef _PAXOS_TYPES_H_
#define _PAXOS_TYPES_H_

#include <stdint.h>

struct paxos_value {
    int paxos_value_len;
    char *paxos_value_val;
};
typedef struct paxos_value paxos_value;

enum paxos_message_type {
    PAXOS_PREPARE,
    PAXOS_PROMISE,
    PAXOS_ACCEPT,
    PAXOS_ACCEPTED,
    PAXOS_PREEMPTED,
    PAXOS_REPEAT,
    PAXOS_TRIM,
    PAXOS_ACCEPTOR_STATE,
    PAXOS_CLIENT_VALUE
};
typedef enum paxos_message_type paxos_message_type;

#endif
