//! The tuner: finds the batch size and window that suit the system at hand, and explains them.
#![forbid(unsafe_code)]

pub mod anticipation;
mod channel;
pub mod choice;
mod controller;
pub mod epoch;
pub mod estimate;
mod fit;
mod guard;
pub mod hysteresis;
pub mod model;
pub mod quantity;
pub mod report;
pub mod setting;
mod settings;
pub mod time;
pub mod tuner;

pub use anticipation::Anticipation;
pub use epoch::CompletedBatch;
pub use estimate::{Parameters, ReactorTurn};
pub use fit::Estimate;
pub use hysteresis::DampedChoice;
pub use report::Report;
pub use setting::{ChangeReason, Setting, SettingBounds, SettingChange};
pub use settings::Settings;
pub use time::Moment;
pub use tuner::Tuner;
