//! Faults that are planted on purpose, one at a time.
