//! State of a Redisson lock, stored as a string.

/// Prefix of a lock record. Part of the stored format. A string with this prefix that a client sets
/// is a lock record too.
const RECORD: &[u8] = b"\0\xffquorate-lock\x01";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock<'a> {
    /// Number of acquisitions by the holder.
    pub(super) count: u64,
    pub(super) holder: &'a [u8],
}

impl<'a> Lock<'a> {
    pub(super) fn parse(value: &'a [u8]) -> Option<Self> {
        let (count, holder) = value.strip_prefix(RECORD)?.split_first_chunk()?;
        let count = u64::from_le_bytes(*count);
        Some(Self { count, holder })
    }

    pub(super) fn value(self) -> Vec<u8> {
        [RECORD, &self.count.to_le_bytes(), self.holder].concat()
    }
}

pub(crate) fn is_lock(value: &[u8]) -> bool {
    value.first() == Some(&0) && Lock::parse(value).is_some()
}
