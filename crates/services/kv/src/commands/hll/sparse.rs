//! Sparse form: runs of equal registers. `00nnnnnn` stands for n + 1 zeros, `01nnnnnn nnnnnnnn` the
//! same with 14 bits, `1vvvvvnn` for n + 1 registers with the value v + 1.

use super::layout::{COUNT, HEADER_BYTES};

/// Highest value that a register may have in this form.
const VALUE_MAX: u8 = 32;
/// Highest number of registers in a run with a value, and in a short run of zeros.
const RUN_MAX: usize = 4;
const SHORT_MAX: usize = 64;

/// Returns the registers of a value in sparse form, or `None` if its runs are not those of 16 384
/// registers.
pub(super) fn unpack(value: &[u8]) -> Option<Vec<u8>> {
    let mut registers = Vec::with_capacity(COUNT);
    let mut bytes = value.get(HEADER_BYTES..)?.iter().copied();
    while let Some(first) = bytes.next() {
        let (value, length) = match first {
            0x80.. => ((first >> 2 & 0x1f) + 1, usize::from(first & 3)),
            0x40.. => (0, usize::from(first & 0x3f) << 8 | usize::from(bytes.next()?)),
            _ => (0, usize::from(first)),
        };
        let end = registers.len() + length + 1;
        if end > COUNT {
            return None;
        }
        registers.resize(end, value);
    }
    (registers.len() == COUNT).then_some(registers)
}

/// Appends registers in sparse form to a header. Returns `false` if a register is too high, or the
/// value would be longer than `bytes_max`.
pub(super) fn pack(registers: &[u8], value: &mut Vec<u8>, bytes_max: usize) -> bool {
    for run in registers.chunk_by(|one, other| one == other) {
        match run[0] {
            0 if run.len() <= SHORT_MAX => value.push(low_byte(run.len() - 1)),
            0 => {
                let [high, low] = u16::try_from(run.len() - 1).unwrap_or(u16::MAX).to_be_bytes();
                value.extend_from_slice(&[0x40 | high, low]);
            }
            1..=VALUE_MAX => {
                let times = run.chunks(RUN_MAX).map(<[u8]>::len);
                value.extend(times.map(|times| 0x80 | (run[0] - 1) << 2 | low_byte(times - 1)));
            }
            _ => return false,
        }
        if value.len() > bytes_max {
            return false;
        }
    }
    true
}

const fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}
