//! Receiving: reassembles the messages on one channel of one sender, and tracks what is missing.
//!
//! `partial` is one incomplete message, [`quota`] bounds a sender's memory, [`gaps`] schedules
//! requests for missing numbers, `waiting` holds messages that are too early, and [`inbound`] joins
//! them; `ending` finishes numbers.

mod ending;
pub mod gaps;
pub mod inbound;
pub(crate) mod partial;
pub mod quota;
mod waiting;

pub use gaps::{Gaps, Patience};
pub use inbound::{ChannelEvent, Delivery, Inbound};
pub use quota::Quota;
