//! Bytes, lengths and strings of a file, with their checksum.

use std::io::{self, ErrorKind, Read};

use super::{
    crc64, lzf,
    types::{EntryId, Malformed, ReadError},
};

const BUFFER_BYTES: usize = 256 << 10;
/// Longest string that a server accepts by default (`proto-max-bulk-len`).
const STRING_BYTES_MAX: u64 = 512 << 20;

/// Special forms of a length.
mod form {
    pub(super) const INT8_FORM: u8 = 0;
    pub(super) const INT16_FORM: u8 = 1;
    pub(super) const INT32_FORM: u8 = 2;
    pub(super) const LZF_FORM: u8 = 3;
}

enum LengthOrForm {
    Count(u64),
    SpecialForm(u8),
}

/// Buffered reader that counts and sums up the bytes it returns.
pub(super) struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    used_bytes: usize,
    filled_bytes: usize,
    /// Position in the file of the buffer's first byte.
    buffer_position: u64,
    /// Checksum of everything before the buffer's byte `summed_bytes`.
    crc: u64,
    summed_bytes: usize,
}

impl<R: Read> Input<R> {
    pub(super) fn new(from: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self {
            from,
            buffer,
            used_bytes: 0,
            filled_bytes: 0,
            buffer_position: 0,
            crc: 0,
            summed_bytes: 0,
        }
    }

    /// Returns the position of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.buffer_position + self.used_bytes as u64
    }

    pub(super) fn malformed_at_position(&self, what: &'static str) -> ReadError {
        ReadError::Malformed(self.position(), what)
    }

    /// Converts an error of a compact encoding, which gets the current position.
    pub(super) fn locate_error<T>(&self, outcome: Result<T, Malformed>) -> Result<T, ReadError> {
        outcome.map_err(|Malformed(what)| self.malformed_at_position(what))
    }

    /// Returns the checksum of all bytes up to here.
    pub(super) fn checksum(&mut self) -> u64 {
        self.crc = crc64::update_crc(self.crc, &self.buffer[self.summed_bytes..self.used_bytes]);
        self.summed_bytes = self.used_bytes;
        self.crc
    }

    fn fill_buffer(&mut self) -> Result<(), ReadError> {
        self.checksum();
        self.buffer_position += self.used_bytes as u64;
        (self.used_bytes, self.summed_bytes, self.filled_bytes) = (0, 0, 0);
        loop {
            match self.from.read(&mut self.buffer) {
                Ok(0) => return Err(self.malformed_at_position("the file ends early")),
                Ok(count) => {
                    self.filled_bytes = count;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }

    /// Returns up to `most` bytes, at least one.
    fn read_some(&mut self, most: usize) -> Result<&[u8], ReadError> {
        if self.used_bytes == self.filled_bytes {
            self.fill_buffer()?;
        }
        let from = self.used_bytes;
        self.used_bytes += most.min(self.filled_bytes - from);
        Ok(&self.buffer[from..self.used_bytes])
    }

    pub(super) fn read_byte(&mut self) -> Result<u8, ReadError> {
        Ok(self.read_some(1)?[0])
    }

    pub(super) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        let mut done = 0;
        while done < N {
            let some = self.read_some(N - done)?;
            array[done..done + some.len()].copy_from_slice(some);
            done += some.len();
        }
        Ok(array)
    }

    /// Returns the next `length` bytes. Memory grows as they arrive.
    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, ReadError> {
        let length = usize::try_from(length).ok().filter(|&all| all as u64 <= STRING_BYTES_MAX);
        let length =
            length.ok_or_else(|| self.malformed_at_position("a string is longer than 512 MiB"))?;
        let mut bytes = Vec::with_capacity(length.min(BUFFER_BYTES));
        while bytes.len() < length {
            let some = self.read_some(length - bytes.len())?;
            bytes.extend_from_slice(some);
        }
        Ok(bytes)
    }

    fn read_length_or_form(&mut self) -> Result<LengthOrForm, ReadError> {
        let first = self.read_byte()?;
        let low = first & 0x3f;
        Ok(match (first >> 6, first) {
            (0, _) => LengthOrForm::Count(u64::from(low)),
            (1, _) => LengthOrForm::Count(u64::from(low) << 8 | u64::from(self.read_byte()?)),
            (2, 0x80) => LengthOrForm::Count(u32::from_be_bytes(self.read_array()?).into()),
            (2, 0x81) => LengthOrForm::Count(u64::from_be_bytes(self.read_array()?)),
            (3, _) => LengthOrForm::SpecialForm(low),
            _ => return Err(self.malformed_at_position("a length has an unknown form")),
        })
    }

    /// Reads a length or another number that is encoded as one.
    pub(super) fn read_length(&mut self) -> Result<u64, ReadError> {
        match self.read_length_or_form()? {
            LengthOrForm::Count(count) => Ok(count),
            LengthOrForm::SpecialForm(_) => {
                Err(self.malformed_at_position("a string stands where a length should"))
            }
        }
    }

    pub(super) fn read_string(&mut self) -> Result<Vec<u8>, ReadError> {
        let number = match self.read_length_or_form()? {
            LengthOrForm::Count(length) => return self.bytes(length),
            LengthOrForm::SpecialForm(form::INT8_FORM) => {
                i8::from_le_bytes(self.read_array()?).into()
            }
            LengthOrForm::SpecialForm(form::INT16_FORM) => {
                i16::from_le_bytes(self.read_array()?).into()
            }
            LengthOrForm::SpecialForm(form::INT32_FORM) => i32::from_le_bytes(self.read_array()?),
            LengthOrForm::SpecialForm(form::LZF_FORM) => return self.read_compressed(),
            LengthOrForm::SpecialForm(_) => {
                return Err(self.malformed_at_position("a string has an unknown form"));
            }
        };
        Ok(number.to_string().into_bytes())
    }

    fn read_compressed(&mut self) -> Result<Vec<u8>, ReadError> {
        let (packed, length) = (self.read_length()?, self.read_length()?);
        if length > STRING_BYTES_MAX {
            return Err(self.malformed_at_position("a string is longer than 512 MiB"));
        }
        let packed = self.bytes(packed)?;
        self.locate_error(lzf::decompress(&packed, usize::try_from(length).unwrap_or(usize::MAX)))
    }

    /// Reads an id of 16 bytes in big-endian order.
    pub(super) fn read_raw_id(&mut self) -> Result<EntryId, ReadError> {
        let (ms, sequence) = (self.read_array()?, self.read_array()?);
        Ok(EntryId { ms: u64::from_be_bytes(ms), sequence: u64::from_be_bytes(sequence) })
    }

    /// Reads an id of two numbers.
    pub(super) fn id(&mut self) -> Result<EntryId, ReadError> {
        Ok(EntryId { ms: self.read_length()?, sequence: self.read_length()? })
    }

    /// Reads milliseconds since 1970. Negative ones are 1970.
    pub(super) fn read_unix_ms(&mut self) -> Result<u64, ReadError> {
        let ms = i64::from_le_bytes(self.read_array()?);
        Ok(u64::try_from(ms).unwrap_or(0))
    }

    pub(super) fn reached_end(mut self) -> io::Result<bool> {
        let mut byte = [0];
        Ok(self.used_bytes == self.filled_bytes && self.from.read(&mut byte)? == 0)
    }
}
