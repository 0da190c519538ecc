//! Bit operations, hashes, lists, sets and sorted sets: each command with its edge cases, and all
//! types against a reference model.

mod bits;
mod differential;
mod field_expiry;
mod hashes;
mod lists;
mod reference;
mod sets;
mod sort;
mod stores;
mod together;
mod zsets;
