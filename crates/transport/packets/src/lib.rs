//! Numbered datagrams: trust, fragments, loss and repair, rate.
//!
//! The parts of a plane of packets that need no socket, clock or replica: state machines whose
//! inputs are datagrams and the time, and whose outputs are datagrams, messages and losses. Equal
//! inputs give equal outputs. The contents of messages are not interpreted.
//!
//! Reading order: [`header`] and [`body`] (format of datagrams), [`trust`] (which datagrams are
//! accepted), [`send`] and [`receive`] (splitting and reassembling messages, repairing losses),
//! [`rate`] (pacing), and [`endpoint`], which joins them. [`socket`] is the exception: it provides
//! UDP sockets. `docs/spec/packets.md` has the byte tables, `vectors/` the golden bytes.
//!
//! ```
//! use quorate_core::{node_id::{Member, NodeId}, time::Time};
//! use quorate_packets::{
//!     endpoint::{Endpoint, Event, Settings},
//!     limits::Limits,
//!     receive::Delivery,
//!     trust::{GroupIdentity, Key, KeyRing},
//! };
//!
//! let node = |node| {
//!     let settings = Settings {
//!         own_member: Member::first(node),
//!         boot: 1,
//!         group: GroupIdentity { cluster: 7, group: 1, generation: 0 },
//!         keys: KeyRing::one(1, Key::new([9; 32])).unwrap(),
//!         limits: Limits::for_mtu(1500),
//!         delivery: Delivery::InOrder,
//!         retains_datagrams: true,
//!         seed: 1,
//!     };
//!     Endpoint::new(settings, Time(0))
//! };
//! let (mut leader, mut follower) = (node(1), node(2));
//! leader.open(1, None, Time(0)).unwrap();
//! follower.introduce(&leader.introduction_for(NodeId(2)));
//!
//! leader.send(1, &[5; 3000]).unwrap();
//! while let Some((_, run)) = leader.next_data_run(1, Time(0)) {
//!     for datagram in run.bytes.chunks(run.segment_bytes) {
//!         follower.handle(datagram, Time(0)).unwrap();
//!     }
//! }
//! let events = follower.take_events();
//! assert!(matches!(&events[..], [Event::Message { bytes, .. }] if *bytes == [5; 3000]));
//! ```
#![deny(unsafe_code)] // Exceptions: memory shared with the kernel, in `ethernet`; an option, in `tcp`.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod body;
pub mod buffer;
pub mod counted;
pub mod endpoint;
mod envelope;
pub mod ethernet;
pub mod header;
mod kept;
pub mod limits;
pub mod plane;
pub mod rate;
pub mod receive;
pub mod send;
pub mod socket;
pub mod spans;
pub mod tcp;
pub mod trust;
