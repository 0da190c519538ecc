/*
 * LibPaxos3's interface for networked programs: roles and configuration.
 */
#ifndef _EVPAXOS_H_
#define _EVPAXOS_H_

#include "evpaxos/config.h"
#include "evpaxos/paxos.h"
#include "paxos.h"

#endif
