//! Bits of strings, hashes, lists, sets and sorted sets: each command with its edges, and all of
//! them against a reference.

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
