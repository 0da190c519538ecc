/*
 * Programs written for earlier versions of LibPaxos3 include this name.
 */
#include "evpaxos/config.h"
