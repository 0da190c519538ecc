//! Flags of [`Op::ZAdd`](crate::op::Op::ZAdd).

pub(super) const NX: u8 = 1;
pub(super) const XX: u8 = 2;
pub(super) const GT: u8 = 4;
pub(super) const LT: u8 = 8;
/// Replies with the number of changed members instead of the number of new ones.
pub(super) const CH: u8 = 16;
/// Adds to the score of a single member and replies with the sum.
pub(super) const INCR: u8 = 32;
