//! Points in time by the caller's clock.

/// Nanoseconds since an arbitrary fixed time. The tuner has no clock, so its caller provides the
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the number of nanoseconds since `earlier`, or 0 if `earlier` is later than this
    /// moment.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `ns` nanoseconds later.
    pub(crate) const fn later(self, ns: f64) -> Self {
        Self(self.0.saturating_add(ns as u64))
    }
}
