//! Datagrams in raw Ethernet frames: what [`crate::socket::Udp`] does, without IP and UDP.
//!
//! [`Ethernet`] is a packet socket (`AF_PACKET`) on one interface. It needs CAP_NET_RAW. Reading
//! order: [`frame`] (the bytes on the wire), [`slot`] (what the kernel says of a frame that
//! arrived), [`ethernet`] (the socket), [`failed`] (why there is none, and what to do), [`xdp`] (a
//! second way for the same frames), [`raw`] (whole frames, as they are). `docs/spec/packets.md` has
//! the byte table and the figures, `vectors/` the golden bytes. What datagrams say is not known
//! here, and there is no clock.
//!
//! All `unsafe` is in two files: `mapped.rs` (the memory that is shared with the kernel) and
//! `system.rs` (calls of the system that no safe library has), and in three of AF_XDP:
//! `xdp/shared.rs`, `xdp/system.rs` and `xdp/bpf.rs`. What they hand to the rest are slices and
//! numbers.
//!
//! The EtherType is the caller's. [`ETHER_TYPE`] is the default: *local experimental 1* of IEEE
//! 802, for networks whose owner knows what else uses it.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod buffered;
pub mod datagrams;
pub mod failed;
pub mod frame;
mod interface;
pub mod mac;
mod mapped;
pub mod raw;
pub mod refusal;
mod sending;
mod shape;
pub mod slot;
mod system;
pub mod xdp;

pub use crate::socket::Sent;
pub use buffered::Buffered;
pub use datagrams::Ethernet;
pub use failed::Failed;
pub use frame::ETHER_TYPE;
pub use mac::Mac;
pub use raw::Raw;
pub use refusal::{Refusal, Refusals};
pub use xdp::{Mode, NoXdp, Ways};
