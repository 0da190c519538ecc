//! Sending: what leaves on one channel, and what is known of who lacks it.
//!
//! [`outbound`] numbers, cuts and keeps; [`tail`] says when there is nothing more; [`asked`] judges
//! who asks the owner of a channel for a packet.

pub mod asked;
pub mod outbound;
pub mod tail;

pub use asked::{Asked, Verdict};
pub use outbound::{Cannot, Outbound, Sent};
pub use tail::TailTimer;
