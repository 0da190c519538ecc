//! Networking of a node: data planes, and the reactor that owns the sockets.
//!
//! Reading order: [`host`] (the reactor's port to `quorate-node`), [`reactor`] (one turn), [`tcp`]
//! (the plane), [`plane`] (datagrams next to it), [`clients`], [`join`](mod@join), [`handle`]
//! (access from other threads).
#![forbid(unsafe_code)]

pub mod clients;
mod clock;
pub mod handle;
pub mod identity;
pub mod join;
pub mod limiter;
pub mod limits;
pub mod listen;
pub mod plane;
pub mod reactor;
pub mod starting;
pub mod stats;
pub mod tcp;

mod asks;
#[cfg(test)]
mod asks_races;
mod bell;
#[cfg(test)]
mod bell_races;
mod complaints;
mod cx;
mod desk;
pub mod device;
mod gates;
mod mailbox;
#[cfg(test)]
mod mailbox_races;
#[cfg(test)]
mod races;
mod sources;
pub mod spin;
mod sync;
pub mod threads;
mod wake;

pub use asks::{NotQueued, RequestReceiver, RequestSender, request_queue};
pub use handle::{
    GroupError, Handle, HeldReadError, Metrics, SnapshotError, TransferError, Unanswered,
};
pub use identity::{Identity, PeerAddress};
pub use join::{
    FOUNDER_QUERY_TIMEOUT, JoinError, RECALL_TIMEOUT, check_waiting_at, find_cluster_members,
    request_founding, request_memories,
};
pub use limiter::Limiter;
pub use limits::Limits;
pub use listen::{BindError, BindReason, Listeners};
pub use quorate_node::host::{
    self, Backup, ClientHost, Founded, Host, JoinData, JoinRefusal, OperatorHost, OperatorOutcome,
    OperatorRequest, PeerHost, PeerUp, TurnTimes,
};
pub use reactor::{Reactor, Settings};
pub use spin::Spin;
pub use starting::StartupResponder;
pub use stats::Stats;
pub use threads::{IoSpread, IoThreads};
pub use wake::Wake;
