//! Clients that record their observations while faults are injected into the nodes.
//!
//! [`faults`] draws faults from a seed. [`load`] runs clients of every kind at the same time.
//! [`client`] and `session` record each operation in [`seen`], and [`history`] writes the
//! operations for a checker.

pub mod client;
pub mod faults;
pub mod history;
pub mod load;
pub mod seen;
mod session;
