//! A replica: core, log, plane and service joined in one loop.
//!
//! A service is a [`StateMachine`]: it executes commands and returns replies, the same on every
//! node. A [`Replica`] orders the commands with its peers, stores them on disk, and executes each
//! exactly once. It has no sockets, no clock and no threads. Its driver provides those: the reactor
//! in production, the simulator in tests, or [`testing::Cluster`], a whole group in one thread:
//!
//! ```
//! use quorate_core::{node_id::NodeId, record::Class};
//! use quorate_replica::{CommandId, StateMachine, testing::{Cluster, Outcome}};
//!
//! #[derive(Default)]
//! struct Counter(u64);
//!
//! impl StateMachine for Counter {
//!     fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
//!         self.0 += u64::from(command[0]);
//!         reply.extend_from_slice(self.0.to_string().as_bytes());
//!     }
//!
//!     fn query(&self, _query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
//!         reply.extend_from_slice(self.0.to_string().as_bytes());
//!     }
//! }
//!
//! let mut cluster = Cluster::new(3, Class::Durable, 1, |_| Counter::default());
//! assert!(cluster.run_until(1_000, |cluster| cluster.leader().is_some()));
//! let leader = cluster.leader().expect("just elected");
//! let tag = cluster.write(leader, &[3]);
//! cluster.crash(leader);
//! // The reply is lost with the node that accepted the command; another node accepts the next one.
//! let other = NodeId(1 + leader.0 % 3);
//! let tag = cluster.write(other, &[4]);
//! assert!(cluster.run_until(5_000, |cluster| cluster.outcome(other, tag).is_some()));
//! assert!(matches!(cluster.outcome(other, tag), Some(Outcome::Written(_))));
//! ```
//!
//! # The life of a command
//!
//! A front calls [`Requests::write`], and the command waits with others (`proposing/gather`). When
//! fewer than a window of this node's batches are in flight, `proposing/origin` makes all waiting
//! commands the next numbered batch of its session, and offers it to the leader: itself, or a peer
//! (`proposing/forwarded`). The core assigns a slot (`protocol`). `replica/egress` sends the
//! proposal with its bytes (`contents`) and appends the vote to the log (`storing`). When the core
//! reports that the slot is decided, `applying` checks with its sessions that it is the batch's
//! turn, and executes its commands. The origin's clients get their replies (`completions`). A batch
//! that may have been lost is offered again, and is still executed only once.
//!
//! # Reading order
//!
//! [`ports`]: service, fronts, plane, device, status. Order of a turn: [`replica`], and below it
//! the sources of input: `ingress`, `egress`, `disk`, `requests`, `operators`. The *spine*
//! (`spine`) holds the parts on the path of a command, in its order: `proposing`, `contents`,
//! `storing`, `applying`, `completions`. *Wings* serve one subject each, and borrow the spine for
//! one call: `streaming`, `members`, `reading`, `catching_up`, `snapshots`, `scrubbing`,
//! `rollback`, `differing`, `devices`, `tuning`, `ending`. Reports to operators: `observing`,
//! [`hops`]. Capacities: [`limits`]. `docs/spec/structure.md` has the rules.
#![forbid(unsafe_code)]

mod applying;
pub mod backup;
mod catching_up;
pub mod clock;
mod clocks;
mod completions;
mod contents;
pub mod counters;
pub mod defaults;
mod devices;
mod differing;
mod ending;
mod fields;
mod fitness;
pub mod group;
pub mod hops;
mod idling;
pub mod limits;
mod members;
mod observing;
mod offers;
pub mod open;
mod outbox;
mod outlasting;
mod peers;
pub mod ports;
pub mod pressure;
mod proposing;
mod protocol;
mod reading;
pub mod replica;
mod rings;
mod rollback;
mod room;
pub mod round_robin;
pub mod routing;
pub mod scrubbing;
pub mod seldom;
mod snapshots;
mod spine;
mod storing;
mod streaming;
pub mod testing;
mod tuning;
mod turns;
mod wake;

pub use applying::sessions;
pub use clock::Clock;
pub use clocks::ClockDeviation;
pub use completions::CompletedRequests;
pub use hops::HopRing;
pub use limits::Limits;
pub use members::rising::{self, RaisePolicy};
pub use observing::events;
pub use open::{OpenError, ReplicaOptions, Timeouts};
pub use ports::{
    device::{AttachedDevice, DeviceSource, DeviceStatus, device_reasons},
    frame_clients,
    front::{self, Front, Requests},
    latencies,
    payload::{self, Payload},
    plane::{self, Plane},
    scrub_report::ScrubStatus,
    service::{self, CommandId, StateMachine},
    status::{self, Status, TuningReport},
    stream_front,
};
/// Choice of batch and window.
pub use quorate_tuner as tuner;
pub use reading::probe::ProbeOutcome;
pub use replica::{Replica, requests::Requester};
pub use scrubbing::ScrubOptions;
pub use snapshots::trimming::SnapshotOptions;
pub use streaming::holding::{NotRead, StreamHold};
