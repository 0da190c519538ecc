//! Byte streams in the model: bytes from clients, bytes applied by a node, a leader's offers, and
//! the check of the output. A byte is represented by ⟨inner stream, position⟩, which [value-2]
//! permanently binds to one value.

pub mod applied;
pub mod clients;
pub mod judge;
pub mod offering;

use quorate_core::{
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};

/// [stream-1] Returns the position in the stream of the byte in `slot`. Slots below the offset wrap
/// to positions that no stream reaches.
pub const fn stream_position(offset: u64, slot: Slot) -> u64 {
    slot.0.wrapping_sub(offset)
}

/// Returns the bytes of the content in the slots of `range`, as streams and positions.
pub fn content_bytes(
    value: &Value,
    range: SlotRange,
) -> impl Iterator<Item = (StreamName, u64)> + use<> {
    let content = match *value {
        Value::Content { stream, offset } => Some((stream, offset)),
        _ => None,
    };
    let slots = (range.from.0..range.to.0).map(Slot);
    content.into_iter().flat_map(move |(stream, offset)| {
        let byte = move |slot| (stream, stream_position(offset, slot));
        slots.clone().map(byte)
    })
}
