//! Time as an argument. Only liveness code and leases read it; no other safety module has it in a
//! signature ([model-4]).

/// Microseconds since a starting point chosen by the caller. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `ms` milliseconds later.
    pub const fn plus_ms(self, ms: u64) -> Self {
        self.plus_us(ms.saturating_mul(1000))
    }

    /// Returns the time `us` microseconds later.
    pub const fn plus_us(self, us: u64) -> Self {
        Self(self.0.saturating_add(us))
    }

    /// Returns the number of microseconds since `earlier`, or 0 if `earlier` is later than this
    /// time.
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
