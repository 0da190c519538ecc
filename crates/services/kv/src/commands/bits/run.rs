//! Bit operations on strings: execution on every node. Bit 0 is the top bit of the first byte.

use crate::{
    commands::events::class,
    commands::state::{ReadContext, WriteContext, WrongType, string},
    encode::{Decoder, Fault},
    key::Key,
    resp::{reply::Reply, request::SKIPPED_BYTES_MAX},
    store::Store,
};

fn place(offset: u64) -> (usize, u8) {
    let byte = usize::try_from(offset / 8).unwrap_or(usize::MAX);
    (byte, 0x80 >> (offset % 8))
}

pub(super) fn get(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, offset) = (from.key()?, from.count()?);
    from.end()?;
    if let Ok(entry) = string(state.store, key, reply) {
        let (byte, mask) = place(offset);
        let found = entry.and_then(|entry| entry.value.get(byte).copied());
        reply.integer(i64::from(found.unwrap_or(0) & mask != 0));
    }
    Ok(())
}

/// String to change, with the deadline of its key.
type Grown = (Vec<u8>, Option<u64>);

/// Returns the string at a key, padded with zeros to at least `bytes` bytes.
pub(super) fn grown(
    state: &mut WriteContext<'_>,
    key: Key<'_>,
    bytes: usize,
    reply: &mut Reply<'_>,
) -> Result<Result<Grown, WrongType>, Fault> {
    // The front limits the size too. This check protects memory from commands of other origin.
    if bytes > SKIPPED_BYTES_MAX {
        return Err(Fault::Malformed);
    }
    let old = match string(state.store, key, reply) {
        Ok(old) => old,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let before = old.as_ref().map_or(0, |entry| entry.value.len());
    state.budget.charge_bytes(bytes.saturating_sub(before))?;
    let (mut value, deadline) = match old {
        Some(entry) => {
            state.budget.rewrite(&entry)?;
            (entry.value.to_vec(), entry.deadline)
        }
        None => (Vec::new(), None),
    };
    value.resize(bytes.max(before), 0);
    Ok(Ok((value, deadline)))
}

pub(super) fn set(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, offset, bit) = (from.key()?, from.count()?, from.byte()?);
    from.end()?;
    let (byte, mask) = place(offset);
    let Ok((mut value, deadline)) = grown(state, key, byte.saturating_add(1), reply)? else {
        return Ok(());
    };
    let old = value[byte] & mask != 0;
    value[byte] = value[byte] & !mask | if bit == 0 { 0 } else { mask };
    state.put(key, &value, deadline);
    state.event(class::STRING, "setbit", key);
    reply.integer(i64::from(old));
    Ok(())
}

/// Converts a range of bytes or bits to the first bit and the exclusive end. Negative bounds count
/// from the end of the string. Returns `None` if the range is empty.
fn bits(length: usize, in_bits: bool, start: i64, end: i64) -> Option<(u64, u64)> {
    let units = i64::try_from(length).unwrap_or(i64::MAX);
    let units = if in_bits { units.saturating_mul(8) } else { units };
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let place = |at: i64| {
        if at < 0 { at.saturating_add(units).max(0) } else { at }
    };
    let (start, end) = (place(start), place(end).min(units - 1));
    if start > end || units == 0 {
        return None;
    }
    let scale = if in_bits { 1 } else { 8 };
    let (start, end) = (start.unsigned_abs(), end.unsigned_abs() + 1);
    Some((start * scale, end * scale))
}

pub(super) fn count(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, flags) = (from.key()?, from.byte()?);
    let (start, end) = (from.signed()?, from.signed()?);
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let mut count = 0;
    if let Some(entry) = entry
        && let Some((from, to)) = bits(entry.value.len(), flags & 1 != 0, start, end)
    {
        for (byte, bits) in masked(&entry.value, from, to) {
            count += i64::from((byte & bits).count_ones());
        }
    }
    reply.integer(count);
    Ok(())
}

/// Returns the bytes that overlap a range of bits, each with a mask for the bits in the range.
fn masked(value: &[u8], from: u64, to: u64) -> impl Iterator<Item = (u8, u8)> {
    let (first, last) = (from / 8, (to - 1) / 8);
    let index = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
    let bytes = value.get(index(first)..=index(last)).unwrap_or_default();
    (first..).zip(bytes).map(move |(at, byte)| {
        let mut bits = 0xff;
        if at == first {
            bits &= 0xff >> (from % 8);
        }
        if at == last {
            bits &= !(0x7f >> ((to - 1) % 8));
        }
        (*byte, bits)
    })
}

pub(super) fn position(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, bit, flags) = (from.key()?, from.byte()?, from.byte()?);
    let (start, end) = (from.signed()?, from.signed()?);
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let Some(entry) = entry else {
        // All bits of an absent key are 0.
        reply.integer(if bit == 0 { 0 } else { -1 });
        return Ok(());
    };
    let Some((from, to)) = bits(entry.value.len(), flags & 1 != 0, start, end) else {
        reply.integer(-1);
        return Ok(());
    };
    let flip = if bit == 0 { 0xff } else { 0 };
    let found = (from / 8..)
        .zip(masked(&entry.value, from, to))
        .find(|(_, (byte, bits))| (byte ^ flip) & bits != 0);
    let found =
        found.map(|(at, (byte, bits))| at * 8 + u64::from(((byte ^ flip) & bits).leading_zeros()));
    // Without an explicit end, the string is considered to be followed by zeros.
    let beyond = (bit == 0 && flags & 2 == 0).then_some(to);
    let found = found.or(beyond);
    reply.integer(found.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX)));
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BitOperation {
    And = 0,
    Or = 1,
    Xor = 2,
    Not = 3,
}

impl BitOperation {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Fault> {
        match from.byte()? {
            0 => Ok(Self::And),
            1 => Ok(Self::Or),
            2 => Ok(Self::Xor),
            3 => Ok(Self::Not),
            _ => Err(Fault::Malformed),
        }
    }

    const fn of(self, one: u8, other: u8) -> u8 {
        match self {
            Self::And => one & other,
            Self::Or => one | other,
            Self::Xor => one ^ other,
            Self::Not => !other,
        }
    }
}

/// Executes BITOP. Shorter operands are padded with zeros.
pub(super) fn combine(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (how, mut keys) = (BitOperation::decode(from)?, from.keys()?);
    from.end()?;
    let target = keys.next().ok_or(Fault::Malformed)?;
    let (mut longest, mut values) = (0, Vec::new());
    let store: &dyn Store = &*state.store;
    for key in keys {
        let Ok(entry) = string(store, key, reply) else {
            return Ok(());
        };
        // Each operand is loaded and read, even if the same key occurs several times.
        let bytes = entry.as_ref().map_or(0, |entry| entry.value.len());
        state.budget.charge_bytes(bytes)?;
        longest = longest.max(bytes);
        values.push(entry);
    }
    if how == BitOperation::Not && values.len() != 1 {
        return Err(Fault::Malformed);
    }
    state.budget.charge_bytes(longest)?;
    let mut result: Vec<u8> = Vec::new();
    for (number, entry) in values.iter().enumerate() {
        let value = entry.as_ref().map_or(&[][..], |entry| &*entry.value);
        let padded = value.iter().copied().chain(std::iter::repeat(0));
        if number == 0 && how != BitOperation::Not {
            result = padded.take(longest).collect();
            continue;
        }
        result.resize(longest, 0);
        for (one, other) in result.iter_mut().zip(padded) {
            *one = how.of(*one, other);
        }
    }
    drop(values);
    if result.is_empty() {
        state.delete(target);
    } else {
        state.put(target, &result, None);
        state.event(class::STRING, "set", target);
    }
    reply.count(result.len());
    Ok(())
}
