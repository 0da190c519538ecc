//! What an operator hears of this replica.

pub mod events;
pub(crate) mod pace;
pub(crate) mod promises;
pub(crate) mod pursuit;
pub(crate) mod watch;
