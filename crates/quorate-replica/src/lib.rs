//! One replica: core, log, plane and service joined.
#![forbid(unsafe_code)]

mod apply;
mod batch;
mod catchup;
mod completions;
pub mod counters;
mod egress;
mod fetches;
mod forwarded;
pub mod front;
mod gather;
mod ingress;
mod lifecycle;
pub mod limits;
mod log_reads;
mod open;
mod origin;
mod payloads;
pub mod plane;
mod reads;
mod repair;
mod replica;
mod requests;
pub mod service;
mod serving;
pub mod sessions;
pub mod status;
pub mod testing;

pub use completions::Ended;
pub use open::{OpenError, ReplicaOptions, Timeouts};
pub use replica::Replica;
pub use requests::Requester;
