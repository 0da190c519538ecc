//! A node without its sockets: its identity, its start, and the host that a reactor drives.
//!
//! The crate has no clock, thread or socket, so the reactor and the simulator run the same code.
#![forbid(unsafe_code)]

mod admission;
pub mod boot;
pub mod folder;
pub mod founding;
#[cfg(test)]
mod founding_tests;
pub mod home;
pub mod hops;
pub mod host;
pub mod identity;
#[cfg(test)]
mod identity_tests;
pub mod listener;
pub mod log_service;
mod metrics;
mod node_host;
#[cfg(test)]
mod node_host_tests;
pub mod process;
pub mod recovering;
pub mod restoring;
pub mod streams;
pub mod terms;

pub use boot::boot;
pub use folder::{LOCK_FILE, LockedFolder};
pub use home::Home;
pub use identity::Identity;
pub use node_host::NodeHost;
