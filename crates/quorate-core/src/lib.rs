//! The protocol: Paxos on ranges of slots, without I/O, clock or allocation on the hot path.
