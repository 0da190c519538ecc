//! Access control: users and roles.
//!
//! [`users`] is replicated state, equal on every node at the same slot and changed only by the
//! commands in [`command`]. Without users, every admitted client has all permissions; with one, a
//! client without a role has none ([access-1]). A node consults the table at every request, so
//! revoking a role takes effect at once ([access-2]). [`password`] creates and verifies hashes,
//! which is too slow for a thread with other work.
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

pub use checker::{Checker, NotChecked, PendingChecks};
pub use claim::{Claim, Claimed};
pub use command::{Command, Denied, Password, Reply};
pub use name::Name;
pub use role::Role;
pub use users::{User, Users};
pub use who::Who;
