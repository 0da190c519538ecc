//! Time as an argument. Liveness reads it, and leases do; no other safety module has it in a
//! signature ([model-4]).

/// Microseconds since a start that the caller chose. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns this time and `ms` milliseconds.
    pub const fn plus_ms(self, ms: u64) -> Self {
        self.plus_us(ms.saturating_mul(1000))
    }

    /// Returns this time and `us` microseconds.
    pub const fn plus_us(self, us: u64) -> Self {
        Self(self.0.saturating_add(us))
    }

    /// Microseconds since `earlier`; zero if that lies ahead.
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
