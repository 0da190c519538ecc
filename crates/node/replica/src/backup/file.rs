//! File format of a backup: a header, the snapshot in chunks, the byte streams in further chunks,
//! and a trailer. Numbers are big-endian. Format 1 has no byte streams; a backup without any uses
//! it.
//!
//! | bytes | header |
//! |---|---|
//! | 8 | `qrtbckup` |
//! | 2 | format: 1 or 2 |
//! | 2 | bytes of the header |
//! | 16 | cluster |
//! | 8 | the snapshot's slot |
//! | 4 | era |
//! | 4 | the lowest id that was never assigned |
//! | 1 | class: 0 volatile, 1 durable |
//! | 8 | bytes of the stream |
//! | 16 | XXH3-128 of the stream |
//! | 8 | in format 2: bytes of byte streams |
//! | 1 | length of the store's name |
//! | length | the store's name |
//! | 4 | CRC-32C of the header up to here |
//!
//! | bytes | chunk |
//! |---|---|
//! | 4 | length, not 0 |
//! | 4 | CRC-32C of the offset (8 bytes) and the content |
//! | length | content |
//!
//! Bytes of byte streams follow the snapshot's stream as if they were part of it, but its checksum
//! does not cover them, and no chunk has bytes of both. They are exactly the ranges that the
//! snapshot's table of streams lists as retained, in its order.
//!
//! | bytes | trailer |
//! |---|---|
//! | 4 | zeros |
//! | 8 | `qrtbkend` |
//! | 8 | bytes of the file |
//! | 16 | XXH3-128 of everything before the trailer |
//! | 4 | CRC-32C of the trailer up to here |

use std::{
    fmt,
    io::{self, Read},
};

use quorate_core::{ballot::Era, class::Class, slot::Slot};
use quorate_wire::checksum;
use xxhash_rust::xxh3::Xxh3;

use crate::fields::Fields;

const MAGIC: &[u8; 8] = b"qrtbckup";
const TRAILER_MAGIC: &[u8; 8] = b"qrtbkend";
const FORMAT: u16 = 1;
/// Format with bytes of byte streams.
const FORMAT_STREAMS: u16 = 2;
/// Length in bytes of the fields up to and including the header's length.
const LEAD_BYTES: usize = 12;
/// Length of a header without the store's name, in bytes.
const HEADER_BYTES_MIN: usize = LEAD_BYTES + 16 + 8 + 4 + 4 + 1 + 8 + 16 + 1 + 4;
/// Length in bytes of the field that only format 2 has.
const STREAMS_FIELD_BYTES: usize = 8;
const STORE_NAME_BYTES_MAX: usize = 64;
/// Maximum content of a chunk, in bytes.
const CHUNK_BYTES_MAX: usize = 1 << 20;
const CHUNK_HEAD_BYTES: usize = 8;
const TRAILER_BYTES: usize = 40;
const CHECKSUM_BYTES: usize = 4;

/// Header of a backup: the snapshot's origin, position and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// Id of the group from which the backup was taken.
    pub cluster: u128,
    /// Slot of the snapshot. The snapshot covers all lower slots.
    pub slot: Slot,
    pub era: Era,
    /// Lowest id that was not assigned yet when the backup was taken.
    pub next_id: u32,
    pub class: Class,
    /// Name of the service's store.
    pub store: String,
    /// Length of the snapshot's stream in bytes.
    pub bytes: u64,
    /// XXH3-128 of the stream.
    pub digest: u128,
    /// Number of bytes of byte streams after the snapshot's stream, if the backup includes them.
    pub stream_bytes: Option<u64>,
}

impl BackupHeader {
    /// Returns the total length of the content of all chunks, in bytes.
    pub fn content_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.stream_bytes.unwrap_or(0))
    }

    fn encode(&self) -> Vec<u8> {
        let store = self.store.as_bytes();
        assert!((1..=STORE_NAME_BYTES_MAX).contains(&store.len()), "names of stores are short");
        let (format, more) = match self.stream_bytes {
            Some(_) => (FORMAT_STREAMS, STREAMS_FIELD_BYTES),
            None => (FORMAT, 0),
        };
        let length = u16::try_from(HEADER_BYTES_MIN + more + store.len()).expect("it is short");
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&format.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.cluster.to_be_bytes());
        out.extend_from_slice(&self.slot.0.to_be_bytes());
        out.extend_from_slice(&self.era.0.to_be_bytes());
        out.extend_from_slice(&self.next_id.to_be_bytes());
        out.push(match self.class {
            Class::Volatile => 0,
            Class::Durable => 1,
        });
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.digest.to_be_bytes());
        if let Some(streams) = self.stream_bytes {
            out.extend_from_slice(&streams.to_be_bytes());
        }
        out.push(u8::try_from(store.len()).expect("it is short"));
        out.extend_from_slice(store);
        out.extend_from_slice(&checksum(&out).to_be_bytes());
        out
    }

    /// Decodes the header's fields after the lead. Their checksum has already been verified.
    fn decode(format: u16, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let header = Self {
            cluster: fields.u128()?,
            slot: Slot(fields.u64()?),
            era: Era(fields.u32()?),
            next_id: fields.u32()?,
            class: match fields.u8()? {
                0 => Class::Volatile,
                1 => Class::Durable,
                _ => return None,
            },
            bytes: fields.u64()?,
            digest: fields.u128()?,
            stream_bytes: match format {
                FORMAT_STREAMS => Some(fields.u64()?),
                _ => None,
            },
            store: {
                let length = usize::from(fields.u8()?);
                let name = fields.bytes(length)?;
                String::from_utf8(name.to_vec()).ok()?
            },
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let named = (1..=STORE_NAME_BYTES_MAX).contains(&header.store.len());
        let countable = header.bytes.checked_add(header.stream_bytes.unwrap_or(0)).is_some();
        let sound =
            named && countable && header.store.chars().all(plain) && header.slot > Slot::FIRST;
        (sound && fields.0.is_empty()).then_some(header)
    }
}

/// Fields of a backup's trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// XXH3-128 of the file without the trailer.
    pub checksum: u128,
}

impl BackupSummary {
    fn encode(self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(TRAILER_MAGIC);
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.checksum.to_be_bytes());
        out.extend_from_slice(&checksum(&out).to_be_bytes());
        out
    }
}

/// Incremental encoder of a backup.
pub struct BackupEncoder {
    stream: u64,
    bytes: u64,
    hash: Xxh3,
}

impl BackupEncoder {
    /// Starts a backup. Returns the encoder and the bytes of the header.
    pub fn begin(header: &BackupHeader) -> (Self, Vec<u8>) {
        let first = header.encode();
        let mut encoder = Self { stream: 0, bytes: 0, hash: Xxh3::new() };
        encoder.count_bytes(&first);
        (encoder, first)
    }

    fn count_bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    /// Encodes the next bytes of the snapshot's stream, or of byte streams after it, as chunks.
    pub fn encode_chunks(&mut self, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(content.len() + CHUNK_HEAD_BYTES);
        for content in content.chunks(CHUNK_BYTES_MAX) {
            let length = u32::try_from(content.len()).expect("it is bounded");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&chunk_checksum(self.stream, content).to_be_bytes());
            out.extend_from_slice(content);
            self.stream += content.len() as u64;
        }
        self.count_bytes(&out);
        out
    }

    /// Returns the trailer's fields, and the trailer's bytes to append to the file.
    pub fn finish(self) -> (BackupSummary, Vec<u8>) {
        let summary = BackupSummary {
            bytes: self.bytes + TRAILER_BYTES as u64,
            checksum: self.hash.digest128(),
        };
        (summary, summary.encode())
    }
}

/// Returns the checksum of a chunk. It covers the chunk's offset and content.
fn chunk_checksum(offset: u64, content: &[u8]) -> u32 {
    let mut covered = Vec::with_capacity(8 + content.len());
    covered.extend_from_slice(&offset.to_be_bytes());
    covered.extend_from_slice(content);
    checksum(&covered)
}

/// Reason why a file is not a usable backup.
#[derive(Debug)]
pub enum BadBackup {
    /// The file cannot be read.
    Io(io::Error),
    /// The file does not begin with the magic number of a backup.
    NotABackup,
    /// The backup was made by a later version.
    NewerFormat(u16),
    /// The file is truncated at this position.
    Truncated(u64),
    /// The file is damaged; the damage was found after reading `bytes_read` bytes.
    Damaged { bytes_read: u64, description: String },
}

impl fmt::Display for BadBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotABackup => f.write_str("it is no backup: it does not begin like one"),
            Self::NewerFormat(format) => {
                write!(f, "it has format {format}, which this version does not know")
            }
            Self::Truncated(at) => write!(f, "it is cut short: it ends after {at} bytes"),
            Self::Damaged { bytes_read: at, description: what } => {
                write!(f, "it is damaged before byte {at}: {what}")
            }
        }
    }
}

impl std::error::Error for BadBackup {}

/// Kind of content that a reader has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Bytes of the snapshot's stream.
    Snapshot,
    /// Bytes of byte streams.
    Streams,
    /// The trailer.
    End(BackupSummary),
}

/// Reader of a backup. It verifies content before returning it, and needs memory for one chunk.
pub struct BackupReader<R> {
    from: R,
    header: BackupHeader,
    /// Number of bytes read from the file.
    bytes: u64,
    hash: Xxh3,
    stream: u64,
    stream_hash: Xxh3,
}

impl<R: Read> BackupReader<R> {
    /// Reads the header and creates a reader of the rest.
    pub fn open(from: R) -> Result<Self, BadBackup> {
        let mut reader = Self {
            from,
            header: BackupHeader {
                cluster: 0,
                slot: Slot(0),
                era: Era(0),
                next_id: 0,
                class: Class::Durable,
                store: String::new(),
                bytes: 0,
                digest: 0,
                stream_bytes: None,
            },
            bytes: 0,
            hash: Xxh3::new(),
            stream: 0,
            stream_hash: Xxh3::new(),
        };
        let mut all = vec![0; LEAD_BYTES];
        let filled = reader.fill_buffer(&mut all);
        let came = MAGIC.len().min(usize::try_from(reader.bytes).unwrap_or(usize::MAX));
        if !all.starts_with(&MAGIC[..came]) {
            return Err(BadBackup::NotABackup);
        }
        filled?;
        let mut lead = Fields(&all[MAGIC.len()..]);
        let format = lead.u16().unwrap_or_default();
        if !(FORMAT..=FORMAT_STREAMS).contains(&format) {
            return Err(BadBackup::NewerFormat(format));
        }
        let length = usize::from(lead.u16().unwrap_or_default());
        let more = if format == FORMAT { 0 } else { STREAMS_FIELD_BYTES };
        if !(HEADER_BYTES_MIN + 1..=HEADER_BYTES_MIN + STORE_NAME_BYTES_MAX)
            .contains(&length.saturating_sub(more))
        {
            return Err(reader.damage_error("its header has an impossible length"));
        }
        all.resize(length, 0);
        reader.fill_buffer(&mut all[LEAD_BYTES..])?;
        let (covered, sum) = all.split_at(length - CHECKSUM_BYTES);
        if checksum(covered).to_be_bytes() != sum {
            return Err(reader.damage_error("the checksum of the header does not match"));
        }
        let header = BackupHeader::decode(format, &covered[LEAD_BYTES..]);
        reader.header = header.ok_or_else(|| reader.damage_error("its header makes no sense"))?;
        reader.hash.update(&all);
        Ok(reader)
    }

    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// Returns the number of bytes read from the file.
    pub fn position(&self) -> u64 {
        self.bytes
    }

    pub(super) fn damage_error(&self, what: impl Into<String>) -> BadBackup {
        let what = what.into();
        BadBackup::Damaged { bytes_read: self.bytes, description: what }
    }

    fn fill_buffer(&mut self, buffer: &mut [u8]) -> Result<(), BadBackup> {
        let mut done = 0;
        while done < buffer.len() {
            match self.from.read(&mut buffer[done..]) {
                Ok(0) => return Err(BadBackup::Truncated(self.bytes)),
                Ok(count) => {
                    done += count;
                    self.bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BadBackup::Io(error)),
            }
        }
        Ok(())
    }

    /// Reads the next bytes of the snapshot's stream, or of byte streams after it, into `content`.
    /// At the end, verifies the trailer instead, which proves the file complete.
    pub fn read_next(&mut self, content: &mut Vec<u8>) -> Result<ContentKind, BadBackup> {
        let mut length = [0; 4];
        self.fill_buffer(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length == 0 {
            return self.read_trailer().map(ContentKind::End);
        }
        let of_streams = self.stream >= self.header.bytes;
        let end = match of_streams {
            true => self.header.content_bytes(),
            false => self.header.bytes,
        };
        let left = end - self.stream;
        if length > CHUNK_BYTES_MAX || length as u64 > left {
            return Err(self.damage_error("a chunk has an impossible length"));
        }
        let mut sum = [0; CHECKSUM_BYTES];
        self.fill_buffer(&mut sum)?;
        content.resize(length, 0);
        self.fill_buffer(content)?;
        if chunk_checksum(self.stream, content).to_be_bytes() != sum {
            return Err(self.damage_error("the checksum of a chunk does not match"));
        }
        self.hash.update(&(length as u32).to_be_bytes());
        self.hash.update(&sum);
        self.hash.update(content);
        self.stream += length as u64;
        if of_streams {
            return Ok(ContentKind::Streams);
        }
        self.stream_hash.update(content);
        Ok(ContentKind::Snapshot)
    }

    fn read_trailer(&mut self) -> Result<BackupSummary, BadBackup> {
        let mut rest = [0; TRAILER_BYTES - 4];
        self.fill_buffer(&mut rest)?;
        let found = BackupSummary { bytes: self.bytes, checksum: self.hash.digest128() };
        if found.encode()[4..] != rest {
            return Err(self.damage_error("its trailer does not match the rest"));
        }
        let whole = (self.stream, self.stream_hash.digest128());
        if whole != (self.header.content_bytes(), self.header.digest) {
            return Err(self.damage_error("its contents are not what its header says"));
        }
        match self.from.read(&mut [0]) {
            Ok(0) => Ok(found),
            Ok(_) => Err(self.damage_error("something follows behind its end")),
            Err(error) => Err(BadBackup::Io(error)),
        }
    }
}
