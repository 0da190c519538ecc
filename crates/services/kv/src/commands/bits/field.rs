//! BITFIELD: integers of up to 64 bits within a string.

use super::run::grown;
use crate::{
    commands::events::class,
    commands::state::{ReadContext, WriteContext, string},
    encode::{Decoder, Encoder, Fault, Malformed},
    resp::{integer::parse_integer, reply::Reply},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    signed: bool,
    bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    Wrap = 0,
    Saturate = 1,
    Fail = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// Single operation of BITFIELD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) overflow: Overflow,
    pub(super) width: Width,
    pub(super) offset: u64,
}

impl Width {
    const fn new(signed: bool, bits: u8) -> Option<Self> {
        let most = if signed { 64 } else { 63 };
        if bits >= 1 && bits <= most { Some(Self { signed, bits }) } else { None }
    }

    /// Parses a type such as `i16` or `u8`.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (sign, bits) = text.split_first()?;
        let signed = match sign {
            b'i' => true,
            b'u' => false,
            _ => return None,
        };
        Self::new(signed, u8::try_from(parse_integer(bits)?).ok()?)
    }

    pub(super) const fn bits(self) -> u8 {
        self.bits
    }

    /// Returns the smallest and the largest number of this width.
    const fn ends(self) -> (i128, i128) {
        if self.signed {
            let half = 1_i128 << (self.bits - 1);
            (-half, half - 1)
        } else {
            (0, (1_i128 << self.bits) - 1)
        }
    }

    /// Reduces a number to the width by discarding the higher bits.
    const fn wrapped(self, number: i128) -> i128 {
        let range = 1_i128 << self.bits;
        let rest = number.rem_euclid(range);
        let (_, greatest) = self.ends();
        if rest > greatest { rest - range } else { rest }
    }

    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        let (least, greatest) = self.ends();
        if (least..=greatest).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Wrap => Some(self.wrapped(number)),
            Overflow::Saturate => Some(number.clamp(least, greatest)),
            Overflow::Fail => None,
        }
    }
}

impl Step {
    pub(super) fn encode(&self, out: &mut Encoder<'_>) {
        let kind = match self.action {
            Action::Get => 0,
            Action::Set(_) => 1,
            Action::Add(_) => 2,
        };
        out.byte(kind | (self.overflow as u8) << 2 | u8::from(self.width.signed) << 4)
            .byte(self.width.bits)
            .count(self.offset);
        match self.action {
            Action::Get => {}
            Action::Set(number) | Action::Add(number) => {
                out.signed(number);
            }
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let (flags, bits, offset) = (from.byte()?, from.byte()?, from.count()?);
        let action = match flags & 3 {
            0 => Action::Get,
            1 => Action::Set(from.signed()?),
            2 => Action::Add(from.signed()?),
            _ => return Err(Malformed),
        };
        let overflow = match flags >> 2 & 3 {
            0 => Overflow::Wrap,
            1 => Overflow::Saturate,
            2 => Overflow::Fail,
            _ => return Err(Malformed),
        };
        let width = Width::new(flags & 16 != 0, bits).ok_or(Malformed)?;
        Ok(Self { action, overflow, width, offset })
    }

    fn list(from: &mut Decoder<'_>) -> Result<Vec<Self>, Malformed> {
        let count = from.length()?;
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.push(Self::decode(from)?);
        }
        from.end()?;
        Ok(steps)
    }

    /// Returns the range of bits that the step reads or writes.
    fn places(&self) -> std::ops::Range<u64> {
        let end = self.offset.saturating_add(self.width.bits.into());
        self.offset..end
    }

    fn read(&self, value: &[u8]) -> i128 {
        let mut number = 0;
        for place in self.places() {
            let byte = usize::try_from(place / 8).ok().and_then(|at| value.get(at));
            let bit = byte.is_some_and(|byte| byte & (0x80 >> (place % 8)) != 0);
            number = number << 1 | i128::from(bit);
        }
        self.width.wrapped(number)
    }

    fn write(&self, value: &mut [u8], number: i128) {
        for (shift, place) in (0..u32::from(self.width.bits)).rev().zip(self.places()) {
            let byte = usize::try_from(place / 8).ok();
            let Some(byte) = byte.and_then(|at| value.get_mut(at)) else {
                return;
            };
            let mask = 0x80 >> (place % 8);
            *byte = *byte & !mask | if number >> shift & 1 == 1 { mask } else { 0 };
        }
    }
}

fn say(number: i128, reply: &mut Reply<'_>) {
    reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
}

pub(super) fn read(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    let steps = Step::list(from)?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let value = entry.as_ref().map_or(&[][..], |entry| &*entry.value);
    reply.array(steps.len());
    for step in &steps {
        say(step.read(value), reply);
    }
    Ok(())
}

pub(super) fn write(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    let steps = Step::list(from)?;
    let changes = steps.iter().filter(|step| step.action != Action::Get);
    let end = changes.map(|step| step.places().end).max().unwrap_or(0);
    let bytes = usize::try_from(end.div_ceil(8)).unwrap_or(usize::MAX);
    let Ok((mut value, deadline)) = grown(state, key, bytes, reply)? else {
        return Ok(());
    };
    reply.array(steps.len());
    for step in &steps {
        let old = step.read(&value);
        let (new, said) = match step.action {
            Action::Get => (None, Some(old)),
            Action::Set(number) => {
                // With an unsigned type, a negative number stands for a very large one.
                let number = match step.width.signed {
                    true => i128::from(number),
                    false => i128::from(number.cast_unsigned()),
                };
                let new = step.width.fit(number, step.overflow);
                (new, new.map(|_| old))
            }
            Action::Add(delta) => {
                let new = step.width.fit(old + i128::from(delta), step.overflow);
                (new, new)
            }
        };
        if let Some(new) = new {
            step.write(&mut value, new);
        }
        match said {
            Some(number) => say(number, reply),
            None => reply.null(),
        }
    }
    if bytes > 0 {
        state.put(key, &value, deadline);
        state.event(class::STRING, "setbit", key);
    }
    Ok(())
}
