//! Datagrams in raw Ethernet frames: the counterpart of [`crate::socket::Udp`], without IP and UDP.
//!
//! [`EthernetSocket`] is a packet socket (`AF_PACKET`) on one interface. It needs CAP_NET_RAW.
//! Reading order: [`frame`] (the bytes on the wire), [`slot`] (the kernel's description of an
//! arrived frame), [`datagrams`] (the socket), [`failed`] (errors, with advice), [`xdp`] (a second
//! path for the same frames), [`raw`] (whole frames, unchanged). `docs/spec/packets.md` has the
//! byte table and the figures, `vectors/` the golden bytes. This module does not interpret
//! datagrams, and has no clock.
//!
//! All `unsafe` code is in five files: `mapped.rs` (memory shared with the kernel), `system.rs`
//! (system calls that no safe library has), and for AF_XDP `xdp/shared.rs`, `xdp/system.rs` and
//! `xdp/bpf.rs`. They pass only slices and numbers to the rest.
//!
//! The caller chooses the EtherType. [`ETHER_TYPE`] is the default: *local experimental 1* of IEEE
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

pub use crate::socket::SendResult;
pub use buffered::RingSize;
pub use datagrams::EthernetSocket;
pub use failed::EthernetError;
pub use frame::ETHER_TYPE;
pub use mac::Mac;
pub use raw::RawSocket;
pub use refusal::{FrameRefusal, FrameRefusalCounts};
pub use xdp::{AllowedModes, ReceiveMode, XdpError};
