//! What LibPaxos3's messages are: read and written, without a socket.

pub mod message;
