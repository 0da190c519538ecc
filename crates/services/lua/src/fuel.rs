//! Unit in which the cost of a run is measured.

/// Fuel per visit: the amount of work that the machine does in about a tenth of a microsecond.
pub(crate) const FUEL_PER_VISIT: u64 = 192;
