//! Writer of version 9, in plain encodings: Redis 5 and later, and Valkey, load it. A newer version
//! would allow for nothing that is written here.

use std::io::{self, Write};

use super::{crc64, types::Kind};

const HEADER: &[u8] = b"REDIS0009";
/// Version of the server that the file names.
const SERVER: &[u8] = b"5.0.0";

/// File being written.
pub(crate) struct Writer<W> {
    to: W,
    crc: u64,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub(crate) fn start(to: W) -> io::Result<Self> {
        let mut writer = Self { to, crc: 0, bytes: 0 };
        writer.put(HEADER)?;
        writer.put(&[250])?;
        writer.string(b"redis-ver")?;
        writer.string(SERVER)?;
        writer.put(&[254, 0])?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc64::update(self.crc, bytes);
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    /// Returns the number of bytes written.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn length(&mut self, length: u64) -> io::Result<()> {
        let [.., high, low] = length.to_be_bytes();
        match length {
            0..0x40 => self.put(&[low]),
            0x40..0x4000 => self.put(&[0x40 | high, low]),
            _ => match u32::try_from(length) {
                Ok(length) => {
                    self.put(&[0x80])?;
                    self.put(&length.to_be_bytes())
                }
                Err(_) => {
                    self.put(&[0x81])?;
                    self.put(&length.to_be_bytes())
                }
            },
        }
    }

    pub(crate) fn string(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length(bytes.len() as u64)?;
        self.put(bytes)
    }

    /// Writes a key before its value. A collection's number of elements comes next, then each
    /// element by [`Self::string`] and [`Self::score`].
    pub(crate) fn key(
        &mut self,
        name: &[u8],
        kind: &Kind,
        expires_ms: Option<u64>,
    ) -> io::Result<()> {
        if let Some(ms) = expires_ms {
            self.put(&[252])?;
            self.put(&ms.to_le_bytes())?;
        }
        self.put(&[match kind {
            Kind::String => 0,
            Kind::List => 1,
            Kind::Set => 2,
            Kind::Hash => 4,
            Kind::SortedSet => 5,
            Kind::Stream | Kind::Module(_) => {
                return Err(io::Error::other("the type cannot be written"));
            }
        }])?;
        self.string(name)
    }

    pub(crate) fn score(&mut self, score: f64) -> io::Result<()> {
        self.put(&score.to_le_bytes())
    }

    /// Writes the checksum. Returns the destination and the size of the file.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.put(&[255])?;
        let crc = self.crc.to_le_bytes();
        self.put(&crc)?;
        self.to.flush()?;
        Ok((self.to, self.bytes))
    }
}
