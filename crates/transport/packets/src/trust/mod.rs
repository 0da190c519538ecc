//! Trust in datagrams: the conditions under which one is accepted ([pkt-2], [pkt-3]).
//!
//! [`seal`] computes tags, [`keys`] selects the key, [`window`] detects repeated numbers, and
//! [`gate`] combines them: a datagram that it admits is from a known boot of a known peer, for this
//! node, and new.

pub mod gate;
pub mod keys;
pub mod refusal;
pub mod seal;
pub mod window;

pub use gate::{AdmittedDatagram, DatagramGate, Introduction};
pub use keys::{Key, KeyRing};
pub use refusal::{Refusal, Refusals};
pub use seal::{GroupIdentity, TagContext, TagKey};
