//! Units of the model's quantities.

use std::fmt;

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Micros(pub f64);

impl Micros {
    /// Converts milliseconds, the unit of the paper.
    pub const fn from_ms(ms: f64) -> Self {
        Self(ms * 1_000.0)
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl std::ops::Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::ops::Mul<f64> for Micros {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self(self.0 * times)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us >= 1e6 => write!(f, "{:.2} s", us / 1e6),
            us if us >= 1e3 => write!(f, "{:.2} ms", us / 1e3),
            us => write!(f, "{us:.1} µs"),
        }
    }
}

/// A number of bytes. It may have a fraction, because it is an average.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Bytes(pub f64);

impl std::ops::Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::ops::Mul<f64> for Bytes {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self(self.0 * times)
    }
}

/// Bandwidth of a link or a disk in bytes per second. Infinite if it is never the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth(pub f64);

impl Bandwidth {
    pub const UNLIMITED: Self = Self(f64::INFINITY);

    /// Converts megabits (10⁶ bits) per second, the unit of the paper.
    pub const fn from_mbit(mbit: f64) -> Self {
        Self(mbit * 125_000.0)
    }

    pub fn transfer_time(self, bytes: Bytes) -> Micros {
        Micros(bytes.0 / self.0 * 1e6)
    }
}

/// A linear law `φ(x) = fixed + per_byte · x` (§4.1, "CPU time"): processor time for a message of x
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinearCost {
    /// Time per message.
    pub fixed: Micros,
    /// Time per byte of a message.
    pub per_byte: Micros,
}

impl LinearCost {
    /// Creates a law from the paper's notation: `φ(x) = per_kb · x + fixed` in milliseconds, with x
    /// in thousands of bytes.
    pub const fn from_paper(per_kb_ms: f64, fixed_ms: f64) -> Self {
        Self { fixed: Micros::from_ms(fixed_ms), per_byte: Micros(per_kb_ms) }
    }

    /// Returns the time for a message of `bytes`.
    pub fn at(self, bytes: Bytes) -> Micros {
        self.fixed + self.per_byte * bytes.0
    }
}
