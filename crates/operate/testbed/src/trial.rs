//! Clients that record their operations and replies while faults are injected into the nodes.
//!
//! [`faults`] draws faults from a seed. [`load`] runs clients of every kind at once. [`client`] and
//! `session` record operations in [`seen`], and [`history`] writes them for a checker.

pub mod client;
pub mod faults;
pub mod history;
pub mod load;
pub mod seen;
mod session;
