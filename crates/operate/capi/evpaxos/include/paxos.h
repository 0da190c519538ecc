/*
 * The parts of LibPaxos3's paxos.h that programs use: configuration, values, log lines. The interface is
 * LibPaxos3's, the implementation is Quorate. docs/libpaxos.md lists the differences.
 */
#ifndef _LIBPAXOS_H_
#define _LIBPAXOS_H_

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "paxos_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of instances and ballots. The last instance is 2^32 - 1: delivery stops there, and numbers never wrap. */
typedef uint32_t iid_t;
typedef uint32_t ballot_t;

typedef enum {
    PAXOS_LOG_QUIET = 0,
    PAXOS_LOG_ERROR = 1,
    PAXOS_LOG_INFO = 2,
    PAXOS_LOG_DEBUG = 3
} paxos_log_level;

typedef enum {
    PAXOS_MEM_STORAGE = 0,
    PAXOS_LMDB_STORAGE = 1
} paxos_storage_backend;

/* Filled from paxos.conf by the functions that read it; a program may change it before calling them. docs/libpaxos.md
 * describes the effect of each option. */
struct paxos_config {
    paxos_log_level verbosity;
    int tcp_nodelay;
    int learner_catch_up;
    int proposer_timeout;
    int proposer_preexec_window;
    paxos_storage_backend storage_backend;
    int trash_files;
    int lmdb_sync;
    char *lmdb_env_path;
    size_t lmdb_mapsize;
};

extern struct paxos_config paxos_config;

/* Returns the size of a majority of this many acceptors. */
int paxos_quorum(int acceptors);

/* Creates a value with a copy of these bytes, to be freed by paxos_value_free. Null if memory is exhausted, or the
 * size is above 2^31. */
paxos_value *paxos_value_new(const char *value, size_t size);
void paxos_value_free(paxos_value *value);

/* Write a line to standard output or error, if the verbosity includes its level. */
void paxos_log(int level, const char *format, va_list arguments);
void paxos_log_error(const char *format, ...);
void paxos_log_info(const char *format, ...);
void paxos_log_debug(const char *format, ...);

/* Exclusive upper limits of the ids of proposers and acceptors. */
#define MAX_N_OF_PROPOSERS 10

#ifdef __cplusplus
}
#endif

#endif
