//! Sending: a channel's outgoing datagrams, and requests for lost ones.
//!
//! [`outbound`] numbers, splits and retains messages. [`tail`] announces the end of a silent
//! channel. [`asked`] decides how to respond to requests for packets.

pub mod asked;
pub mod outbound;
pub mod tail;

pub use asked::{RepairRequests, RepairResponse};
pub use outbound::{OutboundChannel, PushError, PushedNumbers};
pub use tail::TailTimer;
