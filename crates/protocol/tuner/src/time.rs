//! Moments as the caller's clock tells them.

/// Nanoseconds since some fixed moment. The tuner has no clock: its caller says what time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Nanoseconds since `earlier`; 0 if that is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many nanoseconds later.
    pub(crate) const fn later(self, ns: f64) -> Self {
        Self(self.0.saturating_add(ns as u64))
    }
}
