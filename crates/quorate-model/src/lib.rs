//! Exhaustive exploration of quorate-core.
