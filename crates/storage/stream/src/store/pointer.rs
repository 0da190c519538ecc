//! The small file that points to the valid catalogue: [`FILE`], lines of text with a checksum.

use quorate_core::slot::Slot;
use quorate_log::disk::sealed;

pub(super) const FILE: &str = "catalogue";
const FIRST_LINE: &str = "quorate catalogue 1";

/// Location and checksum of the valid catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// The catalogue covers all bytes put for slots below this one.
    pub(super) at: Slot,
    pub(super) file: u64,
    pub(super) bytes: u64,
    pub(super) checksum: u32,
}

impl Pointer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { at, file, bytes, checksum } = self;
        let lines =
            format!("{FIRST_LINE}\nat {}\nfile {file}\nbytes {bytes}\ncrc {checksum:08x}\n", at.0);
        sealed::append_checksum_line(&lines).into_bytes()
    }

    /// Decodes a pointer. Fails with a description of the fault.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let mut lines = sealed::open(text)?.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("it is of another version");
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let mut fields = || {
            Some(Self {
                at: Slot(field("at")?.parse().ok()?),
                file: field("file")?.parse().ok()?,
                bytes: field("bytes")?.parse().ok()?,
                checksum: u32::from_str_radix(field("crc")?, 16).ok()?,
            })
        };
        let pointer = fields().ok_or("a line of it cannot be read")?;
        match lines.next() {
            None => Ok(pointer),
            Some(_) => Err("it has too many lines"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_round_trips_and_any_flipped_bit_is_detected() {
        let pointer = Pointer { at: Slot(7), file: 3, bytes: 8000, checksum: 0xabc };
        let mut bytes = pointer.encode();
        assert_eq!(Pointer::decode(&bytes), Ok(pointer));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Pointer::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Pointer::decode(b"").is_err());
    }
}
