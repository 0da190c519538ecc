//! Value descriptors, encoded in 32 bytes that can be compared directly.
//!
//! Descriptors are equal iff their bytes are equal ([value-2]), so unused bytes must be zero. A
//! counter that compares bytes, as a switch does, then agrees with one that compares values.

use quorate_core::{
    ballot::Era,
    configuration::Change,
    level::Level,
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
    value::{BatchName, StreamName, Value},
};

use crate::words::{u32_at, u64_at};

/// Length of an encoded descriptor in bytes.
pub const VALUE_BYTES: usize = 32;

/// Fields of an encoded descriptor.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct DescriptorFields {
    kind: u8,
    change_kind: u8,
    node: u32,
    boot: u32,
    u32_field: u32,
    u64_field: u64,
    check: u32,
}

impl DescriptorFields {
    fn for_stream(kind: u8, name: StreamName, wide: u64) -> Self {
        let StreamName { owner, boot, number } = name;
        Self { kind, node: owner.0, boot, u32_field: number, u64_field: wide, ..Self::default() }
    }

    fn change(era: Era, change: Change) -> Self {
        let columns = Self { kind: 7, u32_field: era.0, ..Self::default() };
        let of = |change, member: Member| Self {
            change_kind: change,
            node: member.node.0,
            boot: member.incarnation.0,
            ..columns
        };
        match change {
            Change::Increment(member) => of(1, member),
            Change::Decrement(member) => of(2, member),
            Change::Multiply(factor) => {
                Self { change_kind: 3, u64_field: u64::from(factor), ..columns }
            }
            Change::Divide(factor) => {
                Self { change_kind: 4, u64_field: u64::from(factor), ..columns }
            }
            Change::Remove(node) => Self { change_kind: 5, node: node.0, ..columns },
            Change::Role { member, auxiliary } => {
                Self { u64_field: u64::from(auxiliary), ..of(6, member) }
            }
            Change::Rule(rule) => {
                let [kind, first, second] = rule.to_words();
                Self {
                    change_kind: 7,
                    node: first,
                    boot: second,
                    u64_field: u64::from(kind),
                    ..columns
                }
            }
        }
    }

    fn of_value(value: &Value) -> Self {
        let plain = Self::default();
        match *value {
            Value::NoOp => Self { kind: 1, ..plain },
            Value::Batch(BatchName { origin, boot, counter, length, checksum }) => Self {
                kind: 2,
                node: origin.0,
                boot,
                u32_field: length,
                u64_field: counter,
                check: checksum,
                ..plain
            },
            Value::Content { stream, offset } => Self::for_stream(3, stream, offset),
            Value::CloseStream(stream) => Self::for_stream(4, stream, 0),
            Value::RegisterSession { origin, boot, number } => {
                Self { kind: 5, node: origin.0, boot, u64_field: number, ..plain }
            }
            Value::ExpireSession { session } => Self { kind: 6, u64_field: session, ..plain },
            Value::Reconfigure { era, change } => Self::change(era, change),
            Value::AllocateNode { nonce } => Self { kind: 8, u64_field: nonce, ..plain },
            Value::Now { ms } => Self { kind: 9, u64_field: ms, ..plain },
            Value::Raise { era, nodes, to } => {
                Self { kind: 10, u32_field: era.0, u64_field: to.0.into(), check: nodes, ..plain }
            }
        }
    }

    /// Returns the value that these fields may represent. The caller must check that encoding it
    /// yields the same bytes.
    fn value(self) -> Option<Value> {
        let stream =
            StreamName { owner: NodeId(self.node), boot: self.boot, number: self.u32_field };
        Some(match self.kind {
            1 => Value::NoOp,
            2 => Value::Batch(BatchName {
                origin: NodeId(self.node),
                boot: self.boot,
                counter: self.u64_field,
                length: self.u32_field,
                checksum: self.check,
            }),
            3 => Value::Content { stream, offset: self.u64_field },
            4 => Value::CloseStream(stream),
            5 => Value::RegisterSession {
                origin: NodeId(self.node),
                boot: self.boot,
                number: self.u64_field,
            },
            6 => Value::ExpireSession { session: self.u64_field },
            7 => Value::Reconfigure { era: Era(self.u32_field), change: self.read_change()? },
            8 => Value::AllocateNode { nonce: self.u64_field },
            9 => Value::Now { ms: self.u64_field },
            10 => Value::Raise {
                era: Era(self.u32_field),
                nodes: self.check,
                to: Level(u16::try_from(self.u64_field).ok()?),
            },
            _ => return None,
        })
    }

    fn read_change(self) -> Option<Change> {
        let member = Member { node: NodeId(self.node), incarnation: Incarnation(self.boot) };
        let factor = u32::try_from(self.u64_field).ok()?;
        Some(match self.change_kind {
            1 => Change::Increment(member),
            2 => Change::Decrement(member),
            3 => Change::Multiply(factor),
            4 => Change::Divide(factor),
            5 => Change::Remove(member.node),
            6 => Change::Role { member, auxiliary: self.u64_field == 1 },
            7 => Change::Rule(QuorumRule::from_words([factor, self.node, self.boot])?),
            _ => return None,
        })
    }
}

pub fn value_to_bytes(value: &Value) -> [u8; VALUE_BYTES] {
    let columns = DescriptorFields::of_value(value);
    let mut bytes = [0; VALUE_BYTES];
    bytes[0] = columns.kind;
    bytes[1] = columns.change_kind;
    bytes[4..8].copy_from_slice(&columns.node.to_le_bytes());
    bytes[8..12].copy_from_slice(&columns.boot.to_le_bytes());
    bytes[12..16].copy_from_slice(&columns.u32_field.to_le_bytes());
    bytes[16..24].copy_from_slice(&columns.u64_field.to_le_bytes());
    bytes[24..28].copy_from_slice(&columns.check.to_le_bytes());
    bytes
}

/// Decodes a descriptor; `None` if no value is encoded as exactly these bytes.
pub fn value_from_bytes(bytes: &[u8; VALUE_BYTES]) -> Option<Value> {
    let columns = DescriptorFields {
        kind: bytes[0],
        change_kind: bytes[1],
        node: u32_at(bytes, 4),
        boot: u32_at(bytes, 8),
        u32_field: u32_at(bytes, 12),
        u64_field: u64_at(bytes, 16),
        check: u32_at(bytes, 24),
    };
    let value = columns.value()?;
    (value_to_bytes(&value) == *bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [value-2] Two encodings of one value would let a counter of bytes and a counter of values
    /// disagree.
    #[test]
    fn a_descriptor_with_an_unused_byte_set_is_no_value() {
        for (value, used) in [
            (Value::NoOp, 1),
            (Value::ExpireSession { session: u64::MAX }, 1 + 8),
            (Value::Batch(BatchName::default()), 1 + 4 + 4 + 4 + 8 + 4),
            (Value::CloseStream(StreamName::default()), 1 + 4 + 4 + 4),
        ] {
            let bytes = value_to_bytes(&value);
            assert_eq!(value_from_bytes(&bytes), Some(value));
            let takes_another = |at: &usize| {
                let mut changed = bytes;
                changed[*at] ^= 1;
                *at > 0 && value_from_bytes(&changed).is_some()
            };
            assert_eq!((0..VALUE_BYTES).filter(takes_another).count(), used - 1, "{value}");
        }
    }
}
