//! Conversion between the core's values and device descriptors, where possible without loss.
//!
//! Devices carry every kind but content, reconfiguration and raises of the level ([offload-15]),
//! and **each of the six fits without loss**:
//!
//! | | kind | origin | its boot | counter | length | CRC |
//! |---|--:|---|---|---|---|---|
//! | no-op | 1 | 0 | 0 | 0 | 0 | 0 |
//! | batch | 2 | origin | boot | counter | length | checksum |
//! | close of a stream | 4 | owner | boot | number (32 bits) | 0 | 0 |
//! | registration of a session | 5 | origin | boot | number | 0 | 0 |
//! | end of a session | 6 | 0 | 0 | session | 0 | 0 |
//! | fresh node id | 8 | 0 | 0 | nonce | 0 | 0 |
//! | now is T | 8 | 0 | 1 | T | 0 | 0 |
//!
//! A batch's length has 32 bits in the core and 16 here: a longer one does not fit into a frame
//! anyway, and is [`NotOffloadable::TooLong`]. A batch's checksum in the core is the CRC-32C of its
//! bytes, and so is a descriptor's CRC; it is recomputed from the bytes in both directions
//! ([value-2]). Fields without meaning are zero: equal values have equal descriptors, and a
//! descriptor with such a field set is not a valid value.
//!
//! **A descriptor that is not a valid value is a no-op** ([offload-21]): programs do not interpret
//! values, so a slot may have been assigned to one that no member understands, and be decided. All
//! members then have the same descriptor and the same bytes, since frames that changed in transit
//! are dropped ([offload-16]), and [`interpret`] depends on nothing else. So the meaning of a
//! descriptor never changes while the frame has this version: a new kind of value, or a new use of
//! a field, needs a new version, or two releases would execute different commands.

use crate::Descriptor;
use quorate_core::{
    node_id::NodeId,
    value::{BatchName, StreamName, Value},
};
use quorate_wire::checksum;

/// Origin boot in the descriptor of the value *now*. A fresh node id has the same kind and origin
/// boot 0.
const NOW_ORIGIN_BOOT: u32 = 1;

/// Reason for devices not to carry a value. Such a value is sent over TCP ([offload-15]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOffloadable {
    /// The value is content, a reconfiguration, or a raise of the feature level.
    Kind,
    TooLong,
    Bytes,
}

/// Returns the descriptor of a value and its bytes. `room` is the size of the value area.
pub fn describe_value(
    value: &Value,
    bytes: &[u8],
    room: usize,
) -> Result<Descriptor, NotOffloadable> {
    let plain = |kind| Descriptor { kind, ..Descriptor::NONE };
    let named = match *value {
        Value::NoOp => plain(1),
        Value::Batch(name) => {
            let length = u16::try_from(name.length).map_err(|_| NotOffloadable::TooLong)?;
            if usize::from(length) > room {
                return Err(NotOffloadable::TooLong);
            }
            if usize::from(length) != bytes.len() || checksum(bytes) != name.checksum {
                return Err(NotOffloadable::Bytes);
            }
            return Ok(Descriptor {
                kind: 2,
                origin: name.origin.0,
                origin_boot: name.boot,
                counter: name.counter,
                length,
                crc: name.checksum,
            });
        }
        Value::CloseStream(stream) => Descriptor {
            origin: stream.owner.0,
            origin_boot: stream.boot,
            counter: stream.number.into(),
            ..plain(4)
        },
        Value::RegisterSession { origin, boot, number } => {
            Descriptor { origin: origin.0, origin_boot: boot, counter: number, ..plain(5) }
        }
        Value::ExpireSession { session } => Descriptor { counter: session, ..plain(6) },
        Value::AllocateNode { nonce } => Descriptor { counter: nonce, ..plain(8) },
        // Device programs accept only eight kinds, so two values share one. Programs do not
        // interpret them.
        Value::Now { ms } => Descriptor { origin_boot: NOW_ORIGIN_BOOT, counter: ms, ..plain(8) },
        Value::Content { .. } | Value::Reconfigure { .. } | Value::Raise { .. } => {
            return Err(NotOffloadable::Kind);
        }
    };
    if bytes.is_empty() { Ok(named) } else { Err(NotOffloadable::Bytes) }
}

/// Returns the value that a descriptor identifies, and its bytes in the value area. Returns `None`
/// if the descriptor is invalid or does not match the bytes.
pub fn value<'a>(named: &Descriptor, room: &'a [u8]) -> Option<(Value, &'a [u8])> {
    let bytes = room.get(..usize::from(named.length))?;
    let value = match named.kind {
        1 => Value::NoOp,
        2 => Value::Batch(BatchName {
            origin: NodeId(named.origin),
            boot: named.origin_boot,
            counter: named.counter,
            length: named.length.into(),
            checksum: named.crc,
        }),
        4 => Value::CloseStream(StreamName {
            owner: NodeId(named.origin),
            boot: named.origin_boot,
            number: u32::try_from(named.counter).ok()?,
        }),
        5 => Value::RegisterSession {
            origin: NodeId(named.origin),
            boot: named.origin_boot,
            number: named.counter,
        },
        6 => Value::ExpireSession { session: named.counter },
        8 if named.origin_boot == NOW_ORIGIN_BOOT => Value::Now { ms: named.counter },
        8 => Value::AllocateNode { nonce: named.counter },
        _ => return None,
    };
    // Encoding the value again validates every field, including the checksum of the bytes.
    let again = describe_value(&value, bytes, room.len());
    (again == Ok(*named)).then_some((value, bytes))
}

/// Interprets a descriptor and its value area. Returns the value, its bytes, and whether the
/// descriptor is valid. An invalid one means a no-op ([offload-21]).
pub fn interpret<'a>(named: &Descriptor, room: &'a [u8]) -> (Value, &'a [u8], bool) {
    value(named, room).map_or((Value::NoOp, &[], false), |(value, bytes)| (value, bytes, true))
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use quorate_core::{ballot::Era, configuration::Change, node_id::Member};

    use super::*;

    const ROOM: usize = 64;

    fn batch(bytes: &[u8]) -> Value {
        Value::Batch(BatchName {
            origin: NodeId(u32::MAX),
            boot: 0x1234_5678,
            counter: u64::MAX - 1,
            length: u32::try_from(bytes.len()).unwrap(),
            checksum: checksum(bytes),
        })
    }

    /// Returns values of each kind that devices carry, with minimal and maximal fields.
    fn carried() -> Vec<(Value, Vec<u8>)> {
        let stream = StreamName { owner: NodeId(0x8000_0001), boot: u32::MAX, number: u32::MAX };
        let bare = [
            Value::NoOp,
            Value::CloseStream(stream),
            Value::CloseStream(StreamName::default()),
            Value::RegisterSession { origin: NodeId(7), boot: u32::MAX, number: u64::MAX },
            Value::ExpireSession { session: u64::MAX },
            Value::ExpireSession { session: 0 },
            Value::AllocateNode { nonce: 1 << 63 },
            Value::Now { ms: u64::MAX },
        ];
        let mut all: Vec<_> = bare.map(|value| (value, Vec::new())).into();
        for bytes in [&b""[..], b"x", &[0; ROOM], &[0xff; ROOM - 1]] {
            all.push((batch(bytes), bytes.to_vec()));
        }
        all
    }

    fn room(bytes: &[u8]) -> Vec<u8> {
        let mut room = vec![0; ROOM];
        room[..bytes.len()].copy_from_slice(bytes);
        room
    }

    #[test]
    fn every_carried_kind_of_value_round_trips() {
        for (before, bytes) in carried() {
            let named = describe_value(&before, &bytes, ROOM).unwrap();
            assert!(named.is_offloadable(), "{before}");
            assert_eq!(value(&named, &room(&bytes)), Some((before, &bytes[..])), "{before}");
        }
    }

    /// [value-2] Changing a bit of a descriptor yields another value or none. Votes for two
    /// descriptors of one value would be counted separately.
    #[test]
    fn changed_descriptor_bit_yields_another_value_or_none() {
        for (before, bytes) in carried() {
            let named = describe_value(&before, &bytes, ROOM).unwrap();
            let changed = |change: &dyn Fn(&mut Descriptor)| {
                let mut changed = named;
                change(&mut changed);
                let found = value(&changed, &room(&bytes)).map(|(value, _)| value);
                assert_ne!(found, Some(before), "{changed:?}");
            };
            for bit in 0..8 {
                changed(&|named| named.kind ^= 1 << bit);
            }
            for bit in 0..16 {
                changed(&|named| named.length ^= 1 << bit);
            }
            for bit in 0..32 {
                changed(&|named| named.origin ^= 1 << bit);
                changed(&|named| named.origin_boot ^= 1 << bit);
                changed(&|named| named.crc ^= 1 << bit);
            }
            for bit in 0..64 {
                changed(&|named| named.counter ^= 1 << bit);
            }
        }
    }

    #[test]
    fn bytes_that_do_not_match_the_descriptor_are_refused() {
        let bytes = b"some commands";
        let named = describe_value(&batch(bytes), bytes, ROOM).unwrap();
        for at in 0..bytes.len() {
            let mut room = room(bytes);
            room[at] ^= 1;
            assert_eq!(value(&named, &room), None, "byte {at}");
        }
        assert_eq!(value(&named, &bytes[..4]), None);
        let mut other = *bytes;
        other[3] ^= 1;
        let refused = describe_value(&batch(bytes), &other, ROOM);
        assert_eq!(refused, Err(NotOffloadable::Bytes));
        let refused = describe_value(&Value::NoOp, bytes, ROOM);
        assert_eq!(refused, Err(NotOffloadable::Bytes));
    }

    /// [offload-21] Any combination of fields is a value or a no-op without bytes.
    #[test]
    fn invalid_descriptor_means_a_no_op() {
        for (before, bytes) in carried() {
            let named = describe_value(&before, &bytes, ROOM).unwrap();
            let room = room(&bytes);
            assert_eq!(interpret(&named, &room), (before, &bytes[..], true));
            let crc = named.crc ^ 1;
            let length = u16::MAX;
            for none in [Descriptor { crc, ..named }, Descriptor { length, ..named }] {
                assert_eq!(interpret(&none, &room), (Value::NoOp, &b""[..], false));
            }
        }
    }

    #[test]
    fn value_too_long_for_the_device_is_refused_not_truncated() {
        for long in [ROOM + 1, 0x1_0000, 0x1_0001] {
            let bytes = vec![1; long];
            let refused = describe_value(&batch(&bytes), &bytes, ROOM);
            assert_eq!(refused, Err(NotOffloadable::TooLong), "{long} bytes");
        }
    }

    /// [offload-15] Devices do not carry content or reconfigurations.
    #[test]
    fn content_and_reconfiguration_stay_on_tcp() {
        let content = Value::Content { stream: StreamName::default(), offset: 1 };
        let change =
            Value::Reconfigure { era: Era(1), change: Change::Increment(Member::first(1)) };
        for stays in [content, change] {
            assert_eq!(describe_value(&stays, b"", ROOM), Err(NotOffloadable::Kind));
        }
        for kind in [0, 3, 7, 9, u8::MAX] {
            let named = Descriptor { kind, ..Descriptor::NONE };
            assert_eq!(value(&named, &[0; ROOM]), None, "kind {kind}");
        }
    }
}
