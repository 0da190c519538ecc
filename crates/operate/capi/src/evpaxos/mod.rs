//! LibPaxos3 messages, encoded and decoded independently of sockets.

pub mod message;
