//! Newest file number of each family, recorded apart from the files.
//!
//! An emptied log looks like a new one, and a log without its newest segment looks like one that
//! ends cleanly. Therefore `<data>/segments` records the number of the newest segment, durably
//! before the segment is written ([volatile-1]). The record also reveals that the disk with the log
//! is not mounted.

use crate::disk::{DiskError, Family, FileId, SmallFiles, sealed};

fn first_line(family: Family) -> String {
    format!("quorate {} 1", family.newest_record_name())
}

/// Returns the newest file of a family, or `None` if there is no valid record: the folder is from
/// an earlier version, or the record is damaged.
pub(crate) fn read(files: &impl SmallFiles, family: Family) -> Result<Option<FileId>, DiskError> {
    let bytes = files.read(family.newest_record_name())?;
    Ok(bytes.and_then(|bytes| decode(family, str::from_utf8(&bytes).ok()?)))
}

fn decode(family: Family, text: &str) -> Option<FileId> {
    let mut lines = sealed::open(text).ok()?.lines();
    if lines.next() != Some(&first_line(family)) {
        return None;
    }
    let number = lines.next()?.strip_prefix("made ")?.parse().ok()?;
    let file = FileId::new(family, number);
    lines.next().is_none().then_some(file)
}

pub fn write(files: &mut impl SmallFiles, made: FileId) -> Result<(), DiskError> {
    let lines = format!("{}\nmade {}\n", first_line(made.family), made.number);
    let name = made.family.newest_record_name();
    files.replace(name, sealed::append_checksum_line(&lines).as_bytes())
}
