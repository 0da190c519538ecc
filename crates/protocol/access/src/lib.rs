//! Access control: users and roles.
//!
//! [`users`] is replicated state: equal on every node after equal slots, changed by the commands in
//! [`command`] alone. As long as there is no user, every admitted client may do everything; from
//! the first user on, a client without a role may do nothing ([access-1]). A node consults the
//! table at every request, so a revoked role takes effect at once ([access-2]). [`password`] makes
//! and checks hashes: too slow for a thread that has something else to do.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod checker;
pub mod claim;
pub mod command;
mod fields;
pub mod name;
#[cfg(feature = "passwords")]
pub mod password;
pub mod role;
pub mod users;
pub mod who;

pub use checker::{Checker, Desk, NotChecked};
pub use claim::{Claim, Claimed};
pub use command::{Command, Denied, Password, Reply};
pub use name::Name;
pub use role::Role;
pub use users::{User, Users};
pub use who::Who;
