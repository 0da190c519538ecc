//! Encoding of a log write: a header that fits into one sector, then records, then zeros up to a
//! whole block.
//!
//! [disk-1] A log write is the unit that is written and flushed at once. Its header names its
//! cluster, node, segment and place, chains to the preceding write, and restates the hard state.
//! The header has its own checksum, so it remains readable if the body is damaged. A reader that
//! searches for headers after damage can trust what it finds: only the first block of a write
//! begins with [`MAGIC`], whatever bytes clients send ([`seal`] ensures this).

use std::fmt;

use crate::disk::{BLOCK, SECTOR};
use quorate_core::{
    node_id::{Incarnation, NodeId},
    record::HardState,
    slot::Slot,
};

use crate::{
    place::{Place, Segment},
    record::{FieldReader, Malformed, put_ballot},
};

pub const MAGIC: [u8; 8] = *b"qrtebtch";
pub const VERSION: u16 = 1;
pub const HEADER_BYTES: usize = 160;
/// Maximum size of a log write including padding, in bytes. A value of the maximum size fits with
/// its record.
pub const WRITE_BYTES_MAX: usize = 16 << 20;

/// Upper bound of numbers in a valid log. Sums of lower numbers do not overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

const CHECKSUM_AT: usize = HEADER_BYTES - 4;
const MASK_AT: usize = 10;
const SEGMENT_AT: usize = 40;
const _: () = assert!(HEADER_BYTES <= SECTOR, "a torn write must not mix two headers");

/// Cluster and node that own a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub cluster: u128,
    pub node: NodeId,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of cluster {:032x}", self.node, self.cluster)
    }
}

/// Header of a log write ([disk-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub owner: Owner,
    /// The node's incarnation at the time of the log write.
    pub incarnation: Incarnation,
    /// Place of the log write. The segment's number is its epoch.
    pub place: Place,
    /// Number of the first log write in this segment. Log writes in earlier segments with the same
    /// number or a higher one were cut off.
    pub first_seq: u64,
    /// Number of the log write. The first one of a log is number 1.
    pub seq: u64,
    /// Number up to which all log writes were complete when this one was submitted.
    pub complete_to: u64,
    /// Checksum of the preceding log write.
    pub previous_checksum: u32,
    pub record_count: u32,
    /// Length of the log write including padding, in bytes.
    pub length_bytes: u32,
    /// Total length of the records, in bytes.
    pub body_bytes: u32,
    /// CRC-32C of everything after the header, as stored on disk.
    pub body_checksum: u32,
    /// Hard state after the last record.
    pub hard_state: HardState,
    /// CRC-32C of the header. Covers the whole log write, because the header contains the checksum
    /// of the rest.
    pub checksum: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    Absent,
    /// The header has a wrong checksum or length.
    Corrupt,
    /// The header is valid but of a later format version.
    Newer(u16),
}

impl Header {
    pub fn decode(block: &[u8]) -> Result<Self, HeaderFault> {
        let Some(bytes) = block.get(..HEADER_BYTES) else {
            return Err(HeaderFault::Absent);
        };
        if bytes[..8] != MAGIC {
            return Err(HeaderFault::Absent);
        }
        let (covered, _) = bytes.split_at(CHECKSUM_AT);
        let mut fields = FieldReader::new(bytes);
        let (version, header) = read(&mut fields).map_err(|_| HeaderFault::Corrupt)?;
        if crc32c::crc32c(covered) != header.checksum {
            return Err(HeaderFault::Corrupt);
        }
        // Version and checksum are at the same place in later formats.
        if version != VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let length = header.length_bytes as usize;
        let sound = length.is_multiple_of(BLOCK)
            && (BLOCK..=WRITE_BYTES_MAX).contains(&length)
            && header.body_bytes as usize <= length - HEADER_BYTES
            && header.seq > header.complete_to
            && header.seq < NUMBER_MAX
            && header.first_seq <= header.seq;
        if sound { Ok(header) } else { Err(HeaderFault::Corrupt) }
    }

    /// Returns the segment named by a valid header at the start of a block, of any format version,
    /// because later formats keep the segment number at the same place.
    pub fn segment_of(block: &[u8]) -> Option<Segment> {
        let (covered, sum) = block.get(..HEADER_BYTES)?.split_last_chunk::<4>()?;
        let sound =
            covered.starts_with(&MAGIC) && crc32c::crc32c(covered) == u32::from_le_bytes(*sum);
        let number = covered.get(SEGMENT_AT..)?.first_chunk()?;
        sound.then_some(Segment(u64::from_le_bytes(*number)))
    }

    fn encode(&self, mask: u16) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&mask.to_le_bytes());
        out.extend_from_slice(&self.record_count.to_le_bytes());
        out.extend_from_slice(&self.owner.cluster.to_le_bytes());
        out.extend_from_slice(&self.owner.node.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        for word in [
            self.place.segment.0,
            self.place.offset,
            self.first_seq,
            self.seq,
            self.complete_to,
            self.hard_state.decided_to.0,
            self.hard_state.voted_to.0,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        put_ballot(&mut out, self.hard_state.last_used_ballot);
        put_ballot(&mut out, self.hard_state.promised);
        for word in [self.previous_checksum, self.length_bytes, self.body_bytes, self.body_checksum]
        {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(CHECKSUM_AT, 0);
        out
    }

    pub fn body_of<'a>(&self, blocks: &'a [u8]) -> &'a [u8] {
        &blocks[HEADER_BYTES..HEADER_BYTES + self.body_bytes as usize]
    }
}

fn read(fields: &mut FieldReader<'_>) -> Result<(u16, Header), Malformed> {
    fields.take_bytes(8)?;
    let version = fields.u16()?;
    fields.u16()?; // the mask, for `open`
    let records = fields.u32()?;
    let owner = Owner { cluster: fields.u128()?, node: NodeId(fields.u32()?) };
    let incarnation = Incarnation(fields.u32()?);
    let place = Place { segment: Segment(fields.u64()?), offset: fields.u64()? };
    let (first_seq, seq, complete_to) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (decided_to, voted_to) = (Slot(fields.u64()?), Slot(fields.u64()?));
    let (spoken, promised) = (fields.ballot()?, fields.ballot()?);
    let (previous, length) = (fields.u32()?, fields.u32()?);
    let (body, body_checksum) = (fields.u32()?, fields.u32()?);
    fields.take_bytes(CHECKSUM_AT - 136)?;
    let checksum = fields.u32()?;
    let hard = HardState { last_used_ballot: spoken, promised, decided_to, voted_to };
    let header = Header {
        owner,
        incarnation,
        place,
        first_seq,
        seq,
        complete_to,
        previous_checksum: previous,
        record_count: records,
        length_bytes: length,
        body_bytes: body,
        body_checksum,
        hard_state: hard,
        checksum,
    };
    Ok((version, header))
}

/// Completes a log write in place. `blocks` must be whole blocks with room for the header, followed
/// by the records and zeros. Returns the header as written.
pub fn seal(mut header: Header, blocks: &mut [u8]) -> Header {
    let mask = mask_for(blocks);
    apply_mask(mask, blocks);
    header.length_bytes = u32::try_from(blocks.len()).expect("bounded by WRITE_BYTES_MAX");
    header.body_checksum = crc32c::crc32c(&blocks[HEADER_BYTES..]);
    let mut bytes = header.encode(mask);
    header.checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&header.checksum.to_le_bytes());
    blocks[..HEADER_BYTES].copy_from_slice(&bytes);
    header
}

/// Verifies a log write against its header and unmasks its records in place. Returns whether
/// unmasking changed any bytes.
pub fn open(header: &Header, blocks: &mut [u8]) -> Result<bool, Malformed> {
    if blocks.len() != header.length_bytes as usize {
        return Err(Malformed("batch is cut short"));
    }
    if crc32c::crc32c(&blocks[HEADER_BYTES..]) != header.body_checksum {
        return Err(Malformed("checksum of the body does not match"));
    }
    let mask = u16::from_le_bytes([blocks[MASK_AT], blocks[MASK_AT + 1]]);
    apply_mask(mask, blocks);
    Ok(mask != 0)
}

/// Returns the smallest mask under which no block after the first looks like the start of a log
/// write. It is zero unless a client sent our magic on purpose. A mask always exists, because there
/// are more masks than blocks.
fn mask_for(blocks: &[u8]) -> u16 {
    let heads = || blocks.chunks_exact(BLOCK).skip(1).map(|block| &block[..8]);
    let free = |mask: &u16| {
        let word = u64::from_le_bytes(MAGIC) ^ repeat_mask(*mask);
        !heads().any(|head| head == word.to_le_bytes())
    };
    (0..=u16::MAX).find(free).expect("a log write has fewer blocks than there are masks")
}

fn repeat_mask(mask: u16) -> u64 {
    u64::from(mask) * 0x0001_0001_0001_0001
}

fn apply_mask(mask: u16, blocks: &mut [u8]) {
    if mask == 0 {
        return;
    }
    for block in blocks.chunks_exact_mut(BLOCK).skip(1) {
        for (byte, flip) in block.iter_mut().zip(repeat_mask(mask).to_le_bytes()) {
            *byte ^= flip;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            owner: Owner { cluster: 7, node: NodeId(2) },
            incarnation: Incarnation(1),
            place: Place { segment: Segment(3), offset: 8192 },
            first_seq: 4,
            seq: 6,
            complete_to: 5,
            previous_checksum: 9,
            record_count: 0,
            length_bytes: 0,
            body_bytes: 0,
            body_checksum: 0,
            hard_state: HardState {
                decided_to: Slot(5),
                voted_to: Slot(8),
                ..HardState::default()
            },
            checksum: 0,
        }
    }

    #[test]
    fn header_round_trips() {
        let mut blocks = vec![0; 2 * BLOCK];
        let written = seal(header(), &mut blocks);
        assert_eq!(Header::decode(&blocks), Ok(written));
        assert_eq!(open(&written, &mut blocks), Ok(false));
        assert_eq!(written.length_bytes as usize, 2 * BLOCK);
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let mut blocks = vec![0; BLOCK];
        let written = seal(header(), &mut blocks);
        for bit in 0..BLOCK * 8 {
            blocks[bit / 8] ^= 1 << (bit % 8);
            let whole = Header::decode(&blocks).map(|header| open(&header, &mut blocks));
            assert!(!matches!(whole, Ok(Ok(_))), "bit {bit}");
            blocks[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Header::decode(&blocks), Ok(written));
    }

    /// A client that writes forged headers cannot raise the `complete_to` that recovery finds.
    #[test]
    fn no_block_of_a_value_looks_like_a_header() {
        let mut forged = vec![0; BLOCK];
        seal(Header { complete_to: 1 << 40, seq: 1 << 41, ..header() }, &mut forged);
        let mut blocks = vec![0; 5 * BLOCK];
        blocks[BLOCK..2 * BLOCK].copy_from_slice(&forged);
        blocks[2 * BLOCK..3 * BLOCK].copy_from_slice(&forged);
        for (byte, flip) in blocks[2 * BLOCK..].iter_mut().zip(repeat_mask(1).to_le_bytes()) {
            *byte ^= flip; // and one that would become a header under the first mask
        }
        let plain = blocks.clone();
        let written = seal(header(), &mut blocks);
        for block in blocks.chunks_exact(BLOCK).skip(1) {
            assert_eq!(Header::decode(block), Err(HeaderFault::Absent));
        }
        assert_eq!(open(&written, &mut blocks), Ok(true));
        assert_eq!(blocks[HEADER_BYTES..], plain[HEADER_BYTES..]);
    }

    #[test]
    fn newer_format_is_distinguished_from_garbage() {
        let mut blocks = vec![0; BLOCK];
        seal(header(), &mut blocks);
        blocks[8] = 2;
        assert_eq!(Header::decode(&blocks), Err(HeaderFault::Corrupt));
        let sum = crc32c::crc32c(&blocks[..CHECKSUM_AT]);
        blocks[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::decode(&blocks), Err(HeaderFault::Newer(2)));
        assert_eq!(Header::segment_of(&blocks), Some(Segment(3)));
        blocks[50] ^= 1;
        assert_eq!(Header::segment_of(&blocks), None);
    }

    /// The sizes in the documentation match the code.
    #[test]
    fn documented_sizes_are_those_of_the_code() {
        let log = include_str!("../../../../docs/spec/log.md");
        let performance = include_str!("../../../../docs/performance.md");
        for (page, text) in [
            (log, format!("| {HEADER_BYTES} | | records, then zeros |")),
            (log, format!("| {CHECKSUM_AT} | 4 | CRC-32C of bytes 0–{}:", CHECKSUM_AT - 1)),
            (log, format!("at most {} MiB |", WRITE_BYTES_MAX >> 20)),
            (
                performance,
                format!("⌈({HEADER_BYTES} + records with their batches) / {BLOCK}⌉ blocks"),
            ),
        ] {
            assert!(page.contains(&text), "a page lacks: {text}");
        }
    }
}
