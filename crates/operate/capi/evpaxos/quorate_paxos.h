/*
 * LibPaxos3's messages, read and written by libquorate. For libevpaxos, and for whoever speaks to LibPaxos3's
 * programs by other ways.
 */
#ifndef QUORATE_PAXOS_H
#define QUORATE_PAXOS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds are those of paxos_types.h; what a kind does not have is 0. */
typedef struct quorate_paxos_message {
    uint32_t kind;
    uint32_t aid;
    uint32_t iid; /* the first instance of a repeat; the trimmed one of an acceptor's state */
    uint32_t to;  /* the last instance of a repeat */
    uint32_t ballot;
    uint32_t value_ballot;
    const void *value; /* within the bytes that were decoded */
    size_t length;
} quorate_paxos_message;

/* Reads the message at the beginning of `bytes`. QUORATE_OK: *used is how many bytes it has, or 0 if more are
 * needed. QUORATE_INVALID: it is none, or its value has more than `value_max` bytes. */
int quorate_paxos_decode(const void *bytes, size_t length, size_t value_max, quorate_paxos_message *message,
                         size_t *used);

/* Writes a message to `buffer`: the length of its value and 64 bytes are enough. *length is how many it has. */
int quorate_paxos_encode(const quorate_paxos_message *message, void *buffer, size_t capacity, size_t *length);

#ifdef __cplusplus
}
#endif

#endif
