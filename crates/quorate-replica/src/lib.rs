//! One replica: core, log, plane and service joined.
