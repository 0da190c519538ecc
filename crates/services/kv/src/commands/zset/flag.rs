//! Flags of [`Op::ZAdd`](crate::op::Op::ZAdd).

pub(crate) const NX: u8 = 1;
pub(crate) const XX: u8 = 2;
pub(crate) const GT: u8 = 4;
pub(crate) const LT: u8 = 8;
/// Reply with the number of changed members instead of new ones.
pub(crate) const CH: u8 = 16;
/// Add to the score of a single member, and reply with the sum.
pub(crate) const INCR: u8 = 32;
