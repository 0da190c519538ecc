//! Messages of LibPaxos3, encoded and decoded independently of sockets.

pub mod message;
