//! Values: small descriptors of what a slot decides. The bytes travel separately.
//!
//! [value-2] Equal descriptors mean equal bytes, permanently. The core compares and orders
//! descriptors, but interprets only reconfigurations, which concern the core itself.

use core::fmt;

use crate::{
    ballot::Era, configuration::Change, dice::mix, level::Level, node_id::NodeId, slot::SlotRange,
};

/// Name of a batch of commands. It identifies the origin and the bytes of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchName {
    /// Node that accepted the commands.
    pub origin: NodeId,
    /// Number of the origin's process start ([volatile-1]). The counter restarts with each start.
    pub boot: u32,
    /// Number of the batch within the boot.
    pub counter: u64,
    /// Length of the batch in bytes.
    pub length: u32,
    /// CRC-32C of the bytes.
    pub checksum: u32,
}

/// Name of a byte stream. It identifies the owner, the owner's process start, and the stream within
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName {
    /// Node to which the stream's client is connected.
    pub owner: NodeId,
    /// Number of the owner's process start.
    pub boot: u32,
    /// Number of the stream within the boot.
    pub number: u32,
}

/// The content that a slot decides ([value-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Decides nothing. Fills holes; one descriptor may cover any number of slots.
    #[default]
    NoOp,
    /// One or more complete commands.
    Batch(BatchName),
    /// A run of a stream's bytes, one slot per byte. The position in the stream is the slot minus
    /// `offset`.
    Content {
        /// Stream to which the bytes belong.
        stream: StreamName,
        /// Difference between slot and position. Constant within a run, so that one descriptor
        /// covers a run of any length.
        offset: u64,
    },
    /// Ends a stream, so that no further bytes are appended to it.
    CloseStream(StreamName),
    /// Begins a client's session. The slot becomes the id of the session ([session-1]).
    RegisterSession {
        /// Node that requested the session.
        origin: NodeId,
        /// Number of the origin's process start.
        boot: u32,
        /// Number of the request at the origin.
        number: u64,
    },
    /// Ends the session with this id.
    ExpireSession {
        /// Slot in which the session was registered.
        session: u64,
    },
    /// Changes the configuration of the given era ([era-2]).
    Reconfigure {
        /// Era whose configuration changes.
        era: Era,
        /// Change to the configuration.
        change: Change,
    },
    /// Allocates a fresh node id. A retry with the same nonce gets the same id.
    AllocateNode {
        /// Number that the requester chose to recognise a retry.
        nonce: u64,
    },
    /// Sets the group's time by the leader's clock ([time-1]).
    Now {
        /// Time as Unix time in milliseconds.
        ms: u64,
    },
    /// Raises the group's feature level, if the members and learners are still those that the
    /// leader queried ([level-5]).
    Raise {
        /// Era of the members that the leader queried.
        era: Era,
        /// Checksum of the nodes that the leader queried, that is, of the members and learners.
        nodes: u32,
        /// The new level.
        to: Level,
    },
}

impl Value {
    /// Returns whether the descriptor stands for bytes. A vote for such a descriptor asserts that
    /// the voter has the bytes ([value-3]).
    pub const fn has_bytes(&self) -> bool {
        matches!(self, Self::Batch(_) | Self::Content { .. })
    }

    /// Returns whether one descriptor may cover more than one slot.
    pub const fn may_span(&self) -> bool {
        matches!(self, Self::NoOp | Self::Content { .. })
    }
}

/// Returns the checksum of ⟨slot, descriptor⟩ pairs that a ballot sums up, for [p2-6].
///
/// The checksum is a sum over the slots of a linear function of the slot, modulo 2^64. Cutting a
/// range anywhere does not change the sum, and the cost does not depend on the length of the range.
/// The checksum prevents votes for different values from being counted together. It does not
/// protect against an adversary ([model-1]).
pub fn range_check(range: SlotRange, value: &Value) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (constant, slope) = fingerprint(value);
    let (a, b) = (u128::from(range.from.0), u128::from(range.to.0));
    let count = b - a;
    // a + (a+1) + … + (b−1): the product is even, so halving is exact.
    let slots = (a + b - 1).wrapping_mul(count) / 2;
    #[expect(clippy::cast_possible_truncation, reason = "arithmetic modulo 2^64 is meant")]
    let (count, slots) = (count as u64, slots as u64);
    constant.wrapping_mul(count).wrapping_add(slope.wrapping_mul(slots))
}

/// Returns two well-mixed words for a descriptor.
fn fingerprint(value: &Value) -> (u64, u64) {
    let words = match *value {
        Value::NoOp => [1, 0, 0, 0],
        Value::Batch(name) => [
            2 | u64::from(name.origin.0) << 32,
            u64::from(name.boot) | u64::from(name.length) << 32,
            name.counter,
            u64::from(name.checksum),
        ],
        Value::Content { stream, offset } => stream_words(3, stream, offset),
        Value::CloseStream(stream) => stream_words(4, stream, 0),
        Value::RegisterSession { origin, boot, number } => {
            [5 | u64::from(origin.0) << 32, u64::from(boot), number, 0]
        }
        Value::ExpireSession { session } => [6, session, 0, 0],
        Value::Reconfigure { era, change } => {
            let [kind, node, amount] = change.checksum_words();
            [7 | u64::from(era.0) << 32, kind, node, amount]
        }
        Value::AllocateNode { nonce } => [8, nonce, 0, 0],
        Value::Now { ms } => [9, ms, 0, 0],
        Value::Raise { era, nodes, to } => [10, era.0.into(), nodes.into(), to.0.into()],
    };
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for word in words {
        state = mix(state ^ word);
    }
    (state, mix(state) | 1)
}

fn stream_words(kind: u64, stream: StreamName, offset: u64) -> [u64; 4] {
    [
        kind | u64::from(stream.owner.0) << 32,
        u64::from(stream.boot),
        u64::from(stream.number),
        offset,
    ]
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOp => write!(f, "no-op"),
            Self::Batch(name) => write!(f, "batch {}/{}/{}", name.origin, name.boot, name.counter),
            Self::Content { stream, offset } => {
                write!(f, "content {}/{}/{}+{offset}", stream.owner, stream.boot, stream.number)
            }
            Self::CloseStream(stream) => {
                write!(f, "close {}/{}/{}", stream.owner, stream.boot, stream.number)
            }
            Self::RegisterSession { origin, boot, number } => {
                write!(f, "register {origin}/{boot}/{number}")
            }
            Self::ExpireSession { session } => write!(f, "expire {session}"),
            Self::Reconfigure { era, change } => write!(f, "reconfigure era {era}: {change}"),
            Self::AllocateNode { nonce } => write!(f, "allocate node {nonce:x}"),
            Self::Now { ms } => write!(f, "now {ms}"),
            Self::Raise { era, to, .. } => write!(f, "raise era {era}: level {to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Slot;

    /// [p2-2] Splitting a range at any slot does not change its checksum.
    #[test]
    fn check_does_not_depend_on_how_a_range_is_cut() {
        let value = Value::Content { stream: StreamName::default(), offset: 7 };
        let whole = SlotRange::new(Slot(3), Slot(40));
        for cut in 3..=40 {
            let left = range_check(SlotRange::new(whole.from, Slot(cut)), &value);
            let right = range_check(SlotRange::new(Slot(cut), whole.to), &value);
            assert_eq!(left.wrapping_add(right), range_check(whole, &value));
        }
    }

    #[test]
    fn check_differs_for_other_values_or_slots() {
        let batch = |counter| Value::Batch(BatchName { counter, ..BatchName::default() });
        let one = |slot, value| range_check(SlotRange::one(Slot(slot)), &value);
        assert_ne!(one(1, batch(1)), one(1, batch(2)));
        assert_ne!(one(1, batch(1)), one(2, batch(1)));
        // Two values swapped between two slots change the sum.
        let straight = one(1, batch(1)).wrapping_add(one(2, batch(2)));
        let crossed = one(1, batch(2)).wrapping_add(one(2, batch(1)));
        assert_ne!(straight, crossed);
    }

    #[test]
    fn check_of_the_widest_range_does_not_overflow() {
        let all = SlotRange::new(Slot(0), Slot(u64::MAX));
        assert_ne!(range_check(all, &Value::NoOp), 0);
    }
}
