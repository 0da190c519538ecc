/*
 * What programs written for LibPaxos3 use of its paxos.h: configuration, values, log lines. The interface is
 * LibPaxos3's; what is behind it is Quorate. docs/libpaxos.md says what is different.
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

/* Numbers of instances and ballots. Instances end at 2^32 - 1: delivery stops there, and never begins anew. */
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

/* Filled from paxos.conf by the functions that read it; a program may change it before them. docs/libpaxos.md says
 * what each does here. */
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

/* The majority of so many acceptors. */
int paxos_quorum(int acceptors);

/* A value with a copy of these bytes; freed by paxos_value_free. Null without memory, or for a size above 2^31. */
paxos_value *paxos_value_new(const char *value, size_t size);
void paxos_value_free(paxos_value *value);

/* Lines on standard output and error, as far as the verbosity wants them. */
void paxos_log(int level, const char *format, va_list arguments);
void paxos_log_error(const char *format, ...);
void paxos_log_info(const char *format, ...);
void paxos_log_debug(const char *format, ...);

/* Ids of proposers, and of acceptors, are below. */
#define MAX_N_OF_PROPOSERS 10

#ifdef __cplusplus
}
#endif

#endif
