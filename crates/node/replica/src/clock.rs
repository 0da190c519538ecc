//! Access to the host's clock where a turn's timestamp is too old ([read-4], [read-6]).

use std::{fmt, sync::Arc};

use quorate_core::time::Time;
use quorate_tuner::Moment;

/// Monotonic clock that can be read during a turn. It agrees with the timestamps of turns, and also
/// runs while the machine is suspended.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Time + Send + Sync>);

impl Clock {
    /// Creates a clock that reads the time with `read`.
    pub fn new(read: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub fn now(&self) -> Time {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").finish()
    }
}

/// Converts a time to the tuner's clock.
pub(crate) const fn to_moment(time: Time) -> Moment {
    Moment(time.0.saturating_mul(1000))
}
