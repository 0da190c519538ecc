//! Byte streams around the core: bytes that clients gave, bytes that a node has applied, a leader's
//! offers, and the judge of the outcome. A byte is its ⟨inner stream, position⟩ here: [value-2]
//! binds that to one value permanently.

pub mod applied;
pub mod clients;
pub mod judge;
pub mod offering;

use quorate_core::{
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};

/// [stream-1] Returns the position of the byte that content with this offset has in a slot. Slots
/// below the offset have none that a stream could reach.
pub const fn position(offset: u64, slot: Slot) -> u64 {
    slot.0.wrapping_sub(offset)
}

/// Returns the bytes of content in these slots.
pub fn bytes_of(
    value: &Value,
    range: SlotRange,
) -> impl Iterator<Item = (StreamName, u64)> + use<> {
    let content = match *value {
        Value::Content { stream, offset } => Some((stream, offset)),
        _ => None,
    };
    let slots = (range.from.0..range.to.0).map(Slot);
    content.into_iter().flat_map(move |(stream, offset)| {
        let byte = move |slot| (stream, position(offset, slot));
        slots.clone().map(byte)
    })
}
