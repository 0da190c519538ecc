//! Receiving: what came on one channel of one sender, put together again, and what is missing of
//! it.
//!
//! `partial` is one message that lacks parts, [`quota`] what a sender may fill, [`gaps`] when to
//! ask for what is missing, `waiting` keeps what comes too early, and [`inbound`] joins them;
//! `ending` is how its numbers end.

mod ending;
pub mod gaps;
pub mod inbound;
pub(crate) mod partial;
pub mod quota;
mod waiting;

pub use gaps::{Gaps, Patience};
pub use inbound::{Delivery, Happened, Inbound};
pub use quota::Quota;
