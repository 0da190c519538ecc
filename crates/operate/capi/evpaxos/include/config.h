/*
 * Included under this name by programs written for earlier versions of LibPaxos3.
 */
#include "evpaxos/config.h"
