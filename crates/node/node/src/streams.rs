//! Front end for byte stream clients: their connections as state machines, without sockets.
//!
//! The protocol is specified in `docs/spec/streams-client.md`; its codec is
//! [`quorate_wire::streams`]. A connection (`connection`) makes one request at a time, and reaches
//! the replica through [`StreamRequests`](quorate_replica::stream_front::StreamRequests). Incoming
//! stream bytes are never queued here: bytes for which the replica has no space are not consumed.
//! For outgoing bytes, a connection buffers at most [`OUTPUT_BYTES_MAX`] and requests more once
//! they are sent (`reading` decides the next request). Connections of the raw port (`raw`) have no
//! frames: they receive bytes and send counts. [`CombinedFront`] combines two fronts in one node.

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
pub use doors::CombinedFront;
pub use front::StreamFront;
