//! Receiving: reassembles the messages on a sender's channel, and tracks missing numbers.
//!
//! `partial` is one incomplete message, [`quota`] limits a sender's memory, [`gaps`] schedules
//! requests for missing numbers, `waiting` stores messages that are too early, and [`inbound`]
//! combines them; `ending` finishes numbers.

mod ending;
pub mod gaps;
pub mod inbound;
pub(crate) mod partial;
pub mod quota;
mod waiting;

pub use gaps::{Gaps, RequestTiming};
pub use inbound::{ChannelEvent, Delivery, InboundChannel};
pub use quota::MemoryQuota;
