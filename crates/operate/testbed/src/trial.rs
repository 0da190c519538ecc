//! Clients that record what they saw, while faults happen to the nodes.
//!
//! [`faults`] draws what goes wrong from a seed; [`load`] runs clients of every kind meanwhile;
//! [`client`] and `session` note each operation as [`seen`], and [`history`] writes it for a
//! checker.

pub mod client;
pub mod faults;
pub mod history;
pub mod load;
pub mod seen;
mod session;
