//! Messages of LibPaxos3, encoded and decoded without a socket.

pub mod message;
