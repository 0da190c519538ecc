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
    pub(super) const INT8: u8 = 0;
    pub(super) const INT16: u8 = 1;
    pub(super) const INT32: u8 = 2;
    pub(super) const LZF: u8 = 3;
}

enum Length {
    Count(u64),
    Form(u8),
}

/// Buffered reader that counts and sums up the bytes it returns.
pub(super) struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    used: usize,
    filled: usize,
    /// Position in the file of the buffer's first byte.
    base: u64,
    /// Checksum of everything before the buffer's byte `summed`.
    crc: u64,
    summed: usize,
}

impl<R: Read> Input<R> {
    pub(super) fn new(from: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { from, buffer, used: 0, filled: 0, base: 0, crc: 0, summed: 0 }
    }

    /// Returns the position of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.base + self.used as u64
    }

    pub(super) fn malformed(&self, what: &'static str) -> ReadError {
        ReadError::Malformed(self.at(), what)
    }

    /// Converts an error of a compact encoding, which gets the current position.
    pub(super) fn sensible<T>(&self, outcome: Result<T, Malformed>) -> Result<T, ReadError> {
        outcome.map_err(|Malformed(what)| self.malformed(what))
    }

    /// Returns the checksum of all bytes up to here.
    pub(super) fn checksum(&mut self) -> u64 {
        self.crc = crc64::update(self.crc, &self.buffer[self.summed..self.used]);
        self.summed = self.used;
        self.crc
    }

    fn fill(&mut self) -> Result<(), ReadError> {
        self.checksum();
        self.base += self.used as u64;
        (self.used, self.summed, self.filled) = (0, 0, 0);
        loop {
            match self.from.read(&mut self.buffer) {
                Ok(0) => return Err(self.malformed("the file ends early")),
                Ok(count) => {
                    self.filled = count;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }

    /// Returns up to `most` bytes, at least one.
    fn some(&mut self, most: usize) -> Result<&[u8], ReadError> {
        if self.used == self.filled {
            self.fill()?;
        }
        let from = self.used;
        self.used += most.min(self.filled - from);
        Ok(&self.buffer[from..self.used])
    }

    pub(super) fn byte(&mut self) -> Result<u8, ReadError> {
        Ok(self.some(1)?[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        let mut done = 0;
        while done < N {
            let some = self.some(N - done)?;
            array[done..done + some.len()].copy_from_slice(some);
            done += some.len();
        }
        Ok(array)
    }

    /// Returns the next `length` bytes. Memory grows as they arrive.
    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, ReadError> {
        let length = usize::try_from(length).ok().filter(|&all| all as u64 <= STRING_BYTES_MAX);
        let length = length.ok_or_else(|| self.malformed("a string is longer than 512 MiB"))?;
        let mut bytes = Vec::with_capacity(length.min(BUFFER_BYTES));
        while bytes.len() < length {
            let some = self.some(length - bytes.len())?;
            bytes.extend_from_slice(some);
        }
        Ok(bytes)
    }

    fn length_or_form(&mut self) -> Result<Length, ReadError> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Count(u64::from(low)),
            (1, _) => Length::Count(u64::from(low) << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Count(u32::from_be_bytes(self.array()?).into()),
            (2, 0x81) => Length::Count(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Form(low),
            _ => return Err(self.malformed("a length has an unknown form")),
        })
    }

    /// Reads a length or another number that is encoded as one.
    pub(super) fn length(&mut self) -> Result<u64, ReadError> {
        match self.length_or_form()? {
            Length::Count(count) => Ok(count),
            Length::Form(_) => Err(self.malformed("a string stands where a length should")),
        }
    }

    pub(super) fn string(&mut self) -> Result<Vec<u8>, ReadError> {
        let number = match self.length_or_form()? {
            Length::Count(length) => return self.bytes(length),
            Length::Form(form::INT8) => i8::from_le_bytes(self.array()?).into(),
            Length::Form(form::INT16) => i16::from_le_bytes(self.array()?).into(),
            Length::Form(form::INT32) => i32::from_le_bytes(self.array()?),
            Length::Form(form::LZF) => return self.compressed(),
            Length::Form(_) => return Err(self.malformed("a string has an unknown form")),
        };
        Ok(number.to_string().into_bytes())
    }

    fn compressed(&mut self) -> Result<Vec<u8>, ReadError> {
        let (packed, length) = (self.length()?, self.length()?);
        if length > STRING_BYTES_MAX {
            return Err(self.malformed("a string is longer than 512 MiB"));
        }
        let packed = self.bytes(packed)?;
        self.sensible(lzf::decompress(&packed, usize::try_from(length).unwrap_or(usize::MAX)))
    }

    /// Reads an id of 16 bytes in big-endian order.
    pub(super) fn raw_id(&mut self) -> Result<EntryId, ReadError> {
        let (ms, sequence) = (self.array()?, self.array()?);
        Ok(EntryId { ms: u64::from_be_bytes(ms), sequence: u64::from_be_bytes(sequence) })
    }

    /// Reads an id of two numbers.
    pub(super) fn id(&mut self) -> Result<EntryId, ReadError> {
        Ok(EntryId { ms: self.length()?, sequence: self.length()? })
    }

    /// Reads milliseconds since 1970. Negative ones are 1970.
    pub(super) fn moment_ms(&mut self) -> Result<u64, ReadError> {
        let ms = i64::from_le_bytes(self.array()?);
        Ok(u64::try_from(ms).unwrap_or(0))
    }

    pub(super) fn end(mut self) -> io::Result<bool> {
        let mut byte = [0];
        Ok(self.used == self.filled && self.from.read(&mut byte)? == 0)
    }
}
