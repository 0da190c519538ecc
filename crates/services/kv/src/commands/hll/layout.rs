//! Sizes in Redis' format.

/// Number of registers.
pub(super) const COUNT: usize = 1 << 14;
/// Highest value of a register.
pub(super) const VALUE_MAX: u8 = 63;
pub(super) const HEADER_BYTES: usize = 16;
