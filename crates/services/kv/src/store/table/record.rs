//! Record of a key: value and metadata in one allocation. A lookup has one cache miss; in a tree it
//! has four.

use crate::store::{
    collection::Kind,
    entry::{Bytes, Entry, ReplacedEntry, Stamp},
    places::Version,
};

/// Record in one allocation, with the layout:
///
/// ```text
/// slot u64 | deadline u64 | index u32 | key length u32 | has a deadline, kind u8 | key | value
/// ```
#[derive(Debug)]
pub(crate) struct Record(Box<[u8]>);

const SLOT: usize = 0;
const DEADLINE: usize = 8;
const INDEX: usize = 16;
const KEY_BYTES: usize = 20;
const FLAGS: usize = 24;
const HEAD: usize = 25;
/// Flag for the presence of a deadline. The other bits of the byte are the type.
const HAS_DEADLINE: u8 = 1;
const LINE: usize = 64;

impl Record {
    pub(crate) fn new(key: &[u8], value: &[u8], stamp: Stamp) -> Self {
        let key_bytes = u32::try_from(key.len()).expect("a command is shorter than 4 GiB");
        let mut bytes = Vec::with_capacity(HEAD + key.len() + value.len());
        bytes.resize(HEAD, 0);
        bytes[KEY_BYTES..FLAGS].copy_from_slice(&key_bytes.to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let mut record = Self(bytes.into_boxed_slice());
        record.set_stamp(stamp);
        record
    }

    /// Replaces the value and the metadata, in place if the length stays the same.
    pub(crate) fn set(&mut self, value: &[u8], stamp: Stamp) {
        let from = self.value_offset();
        if self.0.len() - from == value.len() {
            self.0[from..].copy_from_slice(value);
            self.set_stamp(stamp);
        } else {
            *self = Self::new(self.key(), value, stamp);
        }
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        let Stamp { version, deadline, kind } = stamp;
        self.0[SLOT..DEADLINE].copy_from_slice(&version.slot.to_le_bytes());
        self.0[DEADLINE..INDEX].copy_from_slice(&deadline.unwrap_or(0).to_le_bytes());
        self.0[INDEX..KEY_BYTES].copy_from_slice(&version.index.to_le_bytes());
        self.0[FLAGS] = u8::from(deadline.is_some()) | (kind as u8) << 1;
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0[HEAD..self.value_offset()]
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.0[FLAGS] & HAS_DEADLINE != 0).then(|| u64::from_le_bytes(self.field(DEADLINE)))
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        Entry {
            value: Bytes::Borrowed(&self.0[self.value_offset()..]),
            version: self.version(),
            deadline: self.deadline(),
            kind: self.kind(),
        }
    }

    pub(crate) fn replaced_entry(&self) -> ReplacedEntry {
        ReplacedEntry::new(&self.0[self.value_offset()..], self.entry().stamp())
    }

    fn kind(&self) -> Kind {
        Kind::from_byte(self.0[FLAGS] >> 1).unwrap_or_default()
    }

    /// Returns whether the record marks a removed key, in a layer above others.
    pub(crate) fn is_absent(&self) -> bool {
        self.version() == Version::ABSENT
    }

    fn version(&self) -> Version {
        Version {
            slot: u64::from_le_bytes(self.field(SLOT)),
            index: u32::from_le_bytes(self.field(INDEX)),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) const fn bytes_of(key: &[u8], value: &[u8]) -> usize {
        HEAD + key.len() + value.len()
    }

    /// Reads a byte of each cache line, up to the size of a typical record, to load these lines.
    pub(crate) fn prefetch_lines(&self) -> u8 {
        let last = self.0.len() - 1;
        [0, LINE, 2 * LINE, 3 * LINE].into_iter().fold(0, |sum, at| sum ^ self.0[at.min(last)])
    }

    fn value_offset(&self) -> usize {
        HEAD + u32::from_le_bytes(self.field(KEY_BYTES)) as usize
    }

    fn field<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        let (field, _) = self.0[at..].split_first_chunk().expect("every record has a head");
        *field
    }
}
