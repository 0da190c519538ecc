//! The base of the log: a small file, always replaced as a whole, that records where the log begins
//! ([trim-3]).
//!
//! The log has no valid records below its start slot, which a snapshot covers ([snap-3]). Segments
//! before the first one may be recycled, but only once the base is durable. Without the file, the
//! log begins with slot 1 in segment 1.

use crate::disk::{SMALL_FILE_BYTES_MAX, Source};
use quorate_core::{node_id::NodeId, slot::Slot};

use crate::{
    error::LogError,
    log_write::{NUMBER_MAX, Owner},
    place::Segment,
    record::{FieldReader, Malformed},
};

pub(crate) const BASE_FILE: &str = "base";
const MAGIC: [u8; 8] = *b"qrtebase";
const VERSION: u16 = 1;
/// Length of the fixed part that precedes the note, in bytes.
const HEAD_BYTES: usize = 80;
const CHECKSUM_BYTES: usize = 4;
pub const NOTE_BYTES_MAX: usize = 512 << 10;
const _: () = assert!(HEAD_BYTES + NOTE_BYTES_MAX + CHECKSUM_BYTES <= SMALL_FILE_BYTES_MAX);

/// Start of the log, with the replica's note that is stored next to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Records of lower slots are not retained.
    pub start: Slot,
    /// Note passed to [`crate::Log::rebase`]. Empty if there is none.
    pub note: Vec<u8>,
}

impl Default for Base {
    fn default() -> Self {
        Self { start: Slot::FIRST, note: Vec::new() }
    }
}

impl Base {
    pub const FILE: &str = BASE_FILE;

    /// Returns a description of the fault in the contents of a base file, or `None` if they are
    /// valid.
    pub fn describe_fault(bytes: &[u8]) -> Option<String> {
        match BaseFile::decode(bytes) {
            Ok(_) => None,
            Err(BaseFault::Broken(what)) => Some(what.to_owned()),
            Err(BaseFault::Newer(version)) => Some(format!("it has format {version}")),
        }
    }

    /// Returns the name and contents of a base file that makes a new, empty log begin at this base.
    /// Only for a folder that no node has used.
    pub fn for_new_log(&self, cluster: u128, node: NodeId) -> (&'static str, Vec<u8>) {
        let file = BaseFile { base: self.clone(), ..BaseFile::default() };
        (BASE_FILE, file.encode(Owner { cluster, node }))
    }
}

/// The first log write of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Segment of the log write. Earlier segments are free.
    pub(crate) segment: Segment,
    /// Number of the first log write in the segment.
    pub(crate) seq: u64,
    /// Checksum of the log write before the first one.
    pub(crate) previous_checksum: u32,
}

impl Anchor {
    /// The anchor of a log that has never been trimmed.
    pub(crate) const FIRST: Self = Self { segment: Segment(1), seq: 1, previous_checksum: 0 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseFile {
    pub(crate) base: Base,
    pub(crate) anchor: Anchor,
    /// Number of the highest log write that was complete, along with all before it, when the file
    /// was written. A lower bound for M of [disk-3].
    pub(crate) complete_to: u64,
}

impl Default for BaseFile {
    fn default() -> Self {
        Self { base: Base::default(), anchor: Anchor::FIRST, complete_to: 0 }
    }
}

impl BaseFile {
    pub(crate) fn encode(&self, owner: Owner) -> Vec<u8> {
        let Anchor { segment, seq, previous_checksum: previous } = self.anchor;
        let note = &self.base.note;
        let length = u32::try_from(note.len()).expect("bounded by NOTE_BYTES_MAX");
        let mut out = Vec::with_capacity(HEAD_BYTES + note.len() + CHECKSUM_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&owner.cluster.to_le_bytes());
        out.extend_from_slice(&owner.node.0.to_le_bytes());
        out.extend_from_slice(&previous.to_le_bytes());
        for word in [self.base.start.0, segment.0, seq, self.complete_to] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&length.to_le_bytes());
        out.resize(HEAD_BYTES, 0);
        out.extend_from_slice(note);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<(Owner, Self), BaseFault> {
        let broken = |what| BaseFault::Broken(what);
        let (covered, sum) =
            bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(broken("it is cut short"))?;
        if !covered.starts_with(&MAGIC) {
            return Err(broken("it does not begin like one"));
        }
        if crc32c::crc32c(covered) != u32::from_le_bytes(*sum) {
            return Err(broken("its checksum does not match"));
        }
        let (version, rest) = decode_fields(covered).map_err(|_| broken("it is cut short"))?;
        // Magic, version, and the final checksum stay in place in later formats.
        if version != VERSION {
            return Err(BaseFault::Newer(version));
        }
        let (owner, file) = rest.ok_or(broken("its length is wrong"))?;
        let sound = file.base.start >= Slot::FIRST
            && (1..NUMBER_MAX).contains(&file.anchor.segment.0)
            && (1..NUMBER_MAX).contains(&file.anchor.seq)
            && file.complete_to < NUMBER_MAX
            && file.anchor.seq <= file.complete_to.saturating_add(1);
        match sound {
            true => Ok((owner, file)),
            false => Err(broken("its numbers contradict each other")),
        }
    }

    /// Reads the base of a log and the owner that it names. Fails if `owner` is given and differs.
    pub(crate) fn read(
        source: &mut impl Source,
        owner: Option<Owner>,
    ) -> Result<(Self, Option<Owner>), LogError> {
        let Some(bytes) = source.read_small_file(BASE_FILE).map_err(LogError::Disk)? else {
            return Ok((Self::default(), owner));
        };
        match Self::decode(&bytes) {
            Ok((found, _)) if owner.is_some_and(|owner| owner != found) => {
                let expected = owner.map(|owner| owner.to_string()).unwrap_or_default();
                let detail = format!("its base was written by {found}, not by {expected}");
                Err(LogError::ForeignLog { detail })
            }
            Ok((found, file)) => Ok((file, Some(found))),
            Err(BaseFault::Newer(version)) => Err(LogError::NewerBase { version }),
            Err(BaseFault::Broken(what)) => Err(LogError::BaseDamaged { reason: what.to_owned() }),
        }
    }
}

#[derive(Debug)]
enum BaseFault {
    Broken(&'static str),
    Newer(u16),
}

type ParsedBase = (u16, Option<(Owner, BaseFile)>);

/// Decodes the version, and also the rest if the version and the length are as expected.
fn decode_fields(covered: &[u8]) -> Result<ParsedBase, Malformed> {
    let mut fields = FieldReader::new(covered);
    fields.take_bytes(8)?;
    let version = fields.u16()?;
    if version != VERSION {
        return Ok((version, None));
    }
    fields.take_bytes(6)?;
    let owner = Owner { cluster: fields.u128()?, node: NodeId(fields.u32()?) };
    let previous = fields.u32()?;
    let (start, segment) = (Slot(fields.u64()?), Segment(fields.u64()?));
    let (seq, complete_to) = (fields.u64()?, fields.u64()?);
    let length = fields.u32()? as usize;
    let note = covered.get(HEAD_BYTES..).unwrap_or_default();
    let file = BaseFile {
        base: Base { start, note: note.to_vec() },
        anchor: Anchor { segment, seq, previous_checksum: previous },
        complete_to,
    };
    let whole = note.len() == length && length <= NOTE_BYTES_MAX && covered.len() >= HEAD_BYTES;
    Ok((version, whole.then_some((owner, file))))
}

#[cfg(test)]
mod tests {
    use crate::disk::{MemoryDisk, SmallFiles as _};

    use super::*;

    const OWNER: Owner = Owner { cluster: 7, node: NodeId(1) };

    fn sample() -> BaseFile {
        BaseFile {
            base: Base { start: Slot(1000), note: b"eras and a manifest".to_vec() },
            anchor: Anchor { segment: Segment(17), seq: 300, previous_checksum: 0xdead_beef },
            complete_to: 345,
        }
    }

    fn read_from(bytes: &[u8], owner: Option<Owner>) -> Result<BaseFile, LogError> {
        let mut disk = MemoryDisk::new();
        disk.replace(BASE_FILE, bytes).unwrap();
        BaseFile::read(&mut disk, owner).map(|(file, _)| file)
    }

    #[test]
    fn base_round_trips_and_a_missing_one_means_slot_one() {
        for file in [sample(), BaseFile::default()] {
            let bytes = file.encode(OWNER);
            assert_eq!(read_from(&bytes, Some(OWNER)), Ok(file.clone()));
            assert_eq!(read_from(&bytes, None), Ok(file));
        }
        let none = BaseFile::read(&mut MemoryDisk::new(), None);
        assert_eq!(none, Ok((BaseFile::default(), None)));
    }

    #[test]
    fn any_flipped_bit_or_missing_byte_is_detected() {
        let bytes = sample().encode(OWNER);
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = read_from(&bytes, Some(OWNER)).unwrap_err();
            assert!(matches!(error, LogError::BaseDamaged { .. }), "{error}");
        }
        for length in 0..bytes.len() {
            let error = read_from(&bytes[..length], Some(OWNER)).unwrap_err();
            assert!(matches!(error, LogError::BaseDamaged { .. }), "{error}");
            assert!(error.hint().contains("disk"), "{}", error.hint());
        }
    }

    /// Invalid contents with a valid checksum are refused without a panic.
    #[test]
    fn invalid_base_with_a_valid_checksum_is_refused() {
        let mut dice = quorate_core::dice::Dice::new(5);
        let bytes = sample().encode(OWNER);
        for _ in 0..20_000 {
            let mut bytes = bytes[..bytes.len() - CHECKSUM_BYTES].to_vec();
            for _ in 0..=dice.index(4) {
                let at = 10 + dice.index(bytes.len() - 10);
                bytes[at] = [0, 0xff, dice.word() as u8][dice.index(3)];
            }
            bytes.truncate(bytes.len() - dice.pick(&[0, 0, 0, 1, 50]));
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
            if let Ok(file) = read_from(&bytes, None) {
                assert!(file.base.start >= Slot::FIRST && file.anchor.seq <= file.complete_to + 1);
            }
        }
        let mut later = bytes.clone();
        later[8] = 2;
        let covered = later.len() - CHECKSUM_BYTES;
        let sum = crc32c::crc32c(&later[..covered]).to_le_bytes();
        later[covered..].copy_from_slice(&sum);
        let newer = Err(LogError::NewerBase { version: 2 });
        assert_eq!(read_from(&later, Some(OWNER)), newer);
    }

    #[test]
    fn base_of_another_log_is_refused() {
        let other = Owner { node: NodeId(2), ..OWNER };
        let error = read_from(&sample().encode(other), Some(OWNER)).unwrap_err();
        assert!(error.to_string().contains("node 2 of cluster"), "{error}");
    }

    /// Fixes the format of version 1, which `docs/spec/log.md` specifies.
    #[test]
    fn base_encoding_is_stable() {
        let hex: String = sample().encode(OWNER).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "7172746562617365010000000000000007000000000000000000000000000000\
             01000000efbeaddee80300000000000011000000000000002c01000000000000\
             59010000000000001300000000000000\
             6572617320616e642061206d616e69666573749b011d85"
        );
        let page = include_str!("../../../../docs/spec/log.md");
        assert!(page.contains(&format!("| {HEAD_BYTES} | | the note |")));
        assert!(page.contains(&format!("at most {} KiB", NOTE_BYTES_MAX >> 10)));
    }
}
