//! The unit of what a run costs.

/// Fuel of a visit: what the machine executes in about a tenth of a microsecond.
pub(crate) const FUEL_PER_VISIT: u64 = 192;
