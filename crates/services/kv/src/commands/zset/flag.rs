//! Flags of [`Op::ZAdd`](crate::op::Op::ZAdd).

pub(super) const NX: u8 = 1;
pub(super) const XX: u8 = 2;
pub(super) const GT: u8 = 4;
pub(super) const LT: u8 = 8;
/// Reply with the number of changed members instead of new ones.
pub(super) const CH: u8 = 16;
/// Add to the score of a single member, and reply with the sum.
pub(super) const INCR: u8 = 32;
