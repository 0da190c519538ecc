//! Registers of a HyperLogLog, read from and written to Redis' format: a header of 16 bytes
//! (`HYLL`, the form, three zeros, a cached count), then the registers in dense or sparse form.

use super::{
    dense,
    layout::{COUNT, HEADER_BYTES, VALUE_MAX},
    sparse,
};

/// Visits of reading all registers of a value.
pub(in crate::commands) const MERGE_VISITS: u64 = 256;
/// Visits of raising registers of a value in sparse form, which is unpacked and packed again.
pub(super) const SPARSE_VISITS: u64 = COUNT as u64 / 128;
/// Visits of raising registers of a value in dense form, which is copied.
pub(super) const DENSE_VISITS: u64 = dense::BYTES as u64 / 1024;

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// Top byte of the cached count. Its top bit says that the count is out of date.
const CACHE: usize = HEADER_BYTES - 1;
const STALE: u8 = 0x80;
/// Maximum length of a value in sparse form, as Redis has it unless it is configured otherwise.
const SPARSE_BYTES_MAX: usize = 3000;

/// Reason why a string is not a HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    Header,
    Registers,
}

impl Invalid {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Header => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Self::Registers => "INVALIDOBJ Corrupted HLL object detected",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    values: Vec<u8>,
    /// Dense values stay dense.
    dense: bool,
}

impl Registers {
    pub(super) fn empty() -> Self {
        Self { values: vec![0; COUNT], dense: false }
    }

    pub(super) fn parse(value: &[u8]) -> Result<Self, Invalid> {
        let dense = is_dense(value)?;
        let values = match dense {
            true => dense::unpack(value),
            false => sparse::unpack(value).ok_or(Invalid::Registers)?,
        };
        Ok(Self { values, dense })
    }

    /// Raises a register, and returns whether it was lower.
    pub(super) fn raise(&mut self, index: usize, to: u8) -> bool {
        let register = &mut self.values[index];
        let raised = *register < to;
        *register = to.max(*register);
        raised
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.dense |= other.dense;
        for (register, other) in self.values.iter_mut().zip(&other.values) {
            *register = (*register).max(*other);
        }
    }

    /// Returns how often each value occurs.
    pub(super) fn histogram(&self) -> [u32; VALUE_MAX as usize + 1] {
        let mut times = [0; VALUE_MAX as usize + 1];
        self.values.iter().for_each(|value| times[usize::from(*value & VALUE_MAX)] += 1);
        times
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut value = header(SPARSE);
        if self.dense || !sparse::pack(&self.values, &mut value, SPARSE_BYTES_MAX) {
            value = header(DENSE);
            dense::pack(&self.values, &mut value);
        }
        value
    }
}

fn header(form: u8) -> Vec<u8> {
    let mut header = Vec::with_capacity(dense::BYTES);
    header.extend_from_slice(MAGIC);
    header.push(form);
    header.resize(HEADER_BYTES, 0);
    header[CACHE] = STALE;
    header
}

/// Checks the header of a value, and returns whether the value has the dense form.
pub(super) fn is_dense(value: &[u8]) -> Result<bool, Invalid> {
    match value.strip_prefix(MAGIC).and_then(<[u8]>::first) {
        Some(&DENSE) if value.len() == dense::BYTES => Ok(true),
        Some(&SPARSE) if value.len() >= HEADER_BYTES => Ok(false),
        _ => Err(Invalid::Header),
    }
}

/// Returns the count that a Redis has stored in a valid value, unless the value has changed since.
pub(super) fn cached(value: &[u8]) -> Option<u64> {
    let bytes = value.get(HEADER_BYTES - 8..HEADER_BYTES)?.try_into().ok()?;
    (value[CACHE] & STALE == 0).then(|| u64::from_le_bytes(bytes))
}

/// Raises registers of a value in dense form, and returns whether one was lower.
pub(super) fn raise_dense(value: &mut [u8], places: impl Iterator<Item = (usize, u8)>) -> bool {
    let mut raised = false;
    for (index, to) in places {
        raised |= dense::raise(value, index, to);
    }
    if raised {
        value[CACHE] |= STALE;
    }
    raised
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;

    use super::*;

    /// Registers with `filled` random values up to `most`.
    fn random(dice: &mut Dice, filled: usize, most: u8) -> Registers {
        let mut registers = Registers::empty();
        for _ in 0..filled {
            let value = dice.index(usize::from(most)).to_le_bytes()[0] + 1;
            registers.raise(dice.index(COUNT), value);
        }
        registers
    }

    #[test]
    fn registers_come_back_from_both_forms() {
        let dice = &mut Dice::new(1);
        for (filled, most, dense) in
            [(0, 1, false), (1, 32, false), (900, 32, false), (900, 33, true), (9000, 9, true)]
        {
            let registers = random(dice, filled, most);
            let value = registers.to_bytes();
            assert_eq!(is_dense(&value), Ok(dense), "{filled}");
            let read = Registers::parse(&value).unwrap();
            assert_eq!(read.values, registers.values);
            assert_eq!(read.to_bytes(), value);
        }
    }

    #[test]
    fn both_forms_raise_alike() {
        let dice = &mut Dice::new(2);
        let mut registers = random(dice, 9000, 60);
        let mut value = registers.to_bytes();
        for _ in 0..1000 {
            let place = (dice.index(COUNT), dice.index(64).to_le_bytes()[0]);
            let raised = registers.raise(place.0, place.1);
            assert_eq!(raise_dense(&mut value, [place].into_iter()), raised);
        }
        assert_eq!(registers.to_bytes(), value);
    }
}
