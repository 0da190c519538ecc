//! Dense form: 16 384 registers of six bits, the lowest bits first.

use super::layout::{COUNT, HEADER_BYTES, VALUE_MAX};

/// Length of a value in dense form.
pub(super) const BYTES: usize = HEADER_BYTES + COUNT * 6 / 8;

/// Returns the registers of a value in dense form.
pub(super) fn unpack(value: &[u8]) -> Vec<u8> {
    let (groups, _) = value.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<3>();
    let each = |&[low, middle, high]: &[u8; 3]| {
        let bits = u32::from_le_bytes([low, middle, high, 0]);
        [bits, bits >> 6, bits >> 12, bits >> 18].map(|bits| bits.to_le_bytes()[0] & VALUE_MAX)
    };
    groups.iter().flat_map(each).collect()
}

/// Appends registers in dense form to a header.
pub(super) fn pack(registers: &[u8], value: &mut Vec<u8>) {
    let (groups, _) = registers.as_chunks::<4>();
    for &[first, second, third, fourth] in groups {
        let (first, second) = (u32::from(first), u32::from(second) << 6);
        let bits = first | second | u32::from(third) << 12 | u32::from(fourth) << 18;
        value.extend_from_slice(&bits.to_le_bytes()[..3]);
    }
}

/// Raises a register of a value in dense form, and returns whether it was lower.
pub(super) fn raise(value: &mut [u8], index: usize, to: u8) -> bool {
    let at = HEADER_BYTES + index / 4 * 3;
    let Some(group) = value.get_mut(at..at + 3) else {
        return false;
    };
    let shift = index % 4 * 6;
    let bits = u32::from_le_bytes([group[0], group[1], group[2], 0]);
    let mask = u32::from(VALUE_MAX) << shift;
    let new = u32::from(to & VALUE_MAX) << shift;
    if new <= bits & mask {
        return false;
    }
    group.copy_from_slice(&(bits & !mask | new).to_le_bytes()[..3]);
    true
}
