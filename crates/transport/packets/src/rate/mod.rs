//! Rate control: the speed at which packets may be sent ([rate-1], [rate-2]).
//!
//! [`bucket`] turns a rate into send times, [`pacer`] adjusts the rate, and [`losses`] determines
//! which losses were common to several receivers.

pub mod bucket;
pub mod losses;
pub mod pacer;
mod trial;

pub use bucket::TokenBucket;
pub use losses::{LossTracker, PeriodLosses};
pub use pacer::Pacer;
