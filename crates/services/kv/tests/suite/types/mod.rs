//! Bit operations, hashes, lists, sets, sorted sets and streams: each command with its edge cases,
//! and all types against a reference model.

mod bits;
mod differential;
mod field_expiry;
mod geo;
mod groups;
mod groups_model;
mod hashes;
mod hyperloglog;
mod lcs;
mod lists;
mod reference;
mod sets;
mod sort;
mod stores;
mod stream;
mod stream_effects;
mod stream_rows;
mod together;
mod zsets;
