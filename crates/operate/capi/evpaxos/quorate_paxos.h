/*
 * Encoding of LibPaxos3's messages: for libevpaxos, and for other programs that communicate with LibPaxos3's
 * programs.
 */
#ifndef QUORATE_PAXOS_H
#define QUORATE_PAXOS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds are those of paxos_types.h; fields that a kind does not have are 0. */
typedef struct quorate_paxos_message {
    uint32_t kind;
    uint32_t aid;
    uint32_t iid; /* first instance of a repeat; trimmed instance of an acceptor's state */
    uint32_t to;  /* last instance of a repeat */
    uint32_t ballot;
    uint32_t value_ballot;
    const void *value; /* points into the decoded bytes */
    size_t length;
} quorate_paxos_message;

/* Decodes the message at the beginning of `bytes`. QUORATE_OK: *used is its length, or 0 if more bytes are needed.
 * QUORATE_INVALID: the bytes are not a message, or its value has more than `value_max` bytes. */
int quorate_paxos_decode(const void *bytes, size_t length, size_t value_max, quorate_paxos_message *message,
                         size_t *used);

/* Encodes a message into `buffer`, for which the length of its value plus 64 bytes is enough. *length is the length
 * of the message. */
int quorate_paxos_encode(const quorate_paxos_message *message, void *buffer, size_t capacity, size_t *length);

#ifdef __cplusplus
}
#endif

#endif
