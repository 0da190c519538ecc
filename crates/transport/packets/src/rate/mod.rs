//! Rate: how fast packets may leave ([rate-1], [rate-2]).
//!
//! [`bucket`] turns a rate into moments, [`pacer`] moves the rate, and [`losses`] tells it which
//! losses were common to several receivers.

pub mod bucket;
pub mod losses;
pub mod pacer;
mod trial;

pub use bucket::Bucket;
pub use losses::{Losses, Period};
pub use pacer::Pacer;
