//! Writer of version 9, in plain encodings: Redis 5 and later, and Valkey, load it. A newer version
//! would allow for nothing that is written here.

use std::io::{self, Write};

use super::{crc64, types::Kind};

const FILE_HEADER: &[u8] = b"REDIS0009";
/// Version of the server that the file names.
const SERVER_VERSION: &[u8] = b"5.0.0";

/// File being written.
pub(crate) struct RdbWriter<W> {
    output: W,
    crc: u64,
    bytes: u64,
}

impl<W: Write> RdbWriter<W> {
    /// Writes the header.
    pub(crate) fn start(to: W) -> io::Result<Self> {
        let mut writer = Self { output: to, crc: 0, bytes: 0 };
        writer.write_bytes(FILE_HEADER)?;
        writer.write_bytes(&[250])?;
        writer.write_string(b"redis-ver")?;
        writer.write_string(SERVER_VERSION)?;
        writer.write_bytes(&[254, 0])?;
        Ok(writer)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc64::update_crc(self.crc, bytes);
        self.bytes += bytes.len() as u64;
        self.output.write_all(bytes)
    }

    /// Returns the number of bytes written.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn write_length(&mut self, length: u64) -> io::Result<()> {
        let [.., high, low] = length.to_be_bytes();
        match length {
            0..0x40 => self.write_bytes(&[low]),
            0x40..0x4000 => self.write_bytes(&[0x40 | high, low]),
            _ => match u32::try_from(length) {
                Ok(length) => {
                    self.write_bytes(&[0x80])?;
                    self.write_bytes(&length.to_be_bytes())
                }
                Err(_) => {
                    self.write_bytes(&[0x81])?;
                    self.write_bytes(&length.to_be_bytes())
                }
            },
        }
    }

    pub(crate) fn write_string(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_length(bytes.len() as u64)?;
        self.write_bytes(bytes)
    }

    /// Writes a key before its value. A collection's number of elements comes next, then each
    /// element by [`Self::write_string`] and [`Self::write_score`].
    pub(crate) fn key(
        &mut self,
        name: &[u8],
        kind: &Kind,
        expires_ms: Option<u64>,
    ) -> io::Result<()> {
        if let Some(ms) = expires_ms {
            self.write_bytes(&[252])?;
            self.write_bytes(&ms.to_le_bytes())?;
        }
        self.write_bytes(&[match kind {
            Kind::String => 0,
            Kind::List => 1,
            Kind::Set => 2,
            Kind::Hash => 4,
            Kind::SortedSet => 5,
            Kind::Stream | Kind::Module(_) => {
                return Err(io::Error::other("the type cannot be written"));
            }
        }])?;
        self.write_string(name)
    }

    pub(crate) fn write_score(&mut self, score: f64) -> io::Result<()> {
        self.write_bytes(&score.to_le_bytes())
    }

    /// Writes the checksum. Returns the destination and the size of the file.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.write_bytes(&[255])?;
        let crc = self.crc.to_le_bytes();
        self.write_bytes(&crc)?;
        self.output.flush()?;
        Ok((self.output, self.bytes))
    }
}
