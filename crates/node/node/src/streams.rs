//! The streams' front: client connections as state machines, without sockets.
//!
//! The protocol is `docs/spec/streams-client.md`, its codec [`quorate_wire::streams`]. A connection
//! (`connection`) asks one thing after the other; what it asks of the replica goes through
//! [`StreamRequests`](quorate_replica::stream_front::StreamRequests). No byte of a stream waits
//! here on its way in: what the replica has no room for is not taken. On its way out a connection
//! holds at most [`OUTPUT_BYTES_MAX`], and asks for more once that is sent (`reading` says for
//! what). Connections of the raw port (`raw`) have no frames: bytes in, counts out. [`Doors`] puts
//! two fronts behind one node.

mod access;
mod client;
mod connection;
mod doors;
mod front;
mod patient;
mod raw;
mod reading;
mod refusal;
mod shared;

pub use connection::OUTPUT_BYTES_MAX;
pub use doors::Doors;
pub use front::StreamFront;
