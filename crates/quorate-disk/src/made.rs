//! How far the segments go that were ever made: written down apart from them.
//!
//! An emptied log looks like a new one, and one without its newest segment like one that ends cleanly.
//! So `<data>/segments` says which number was made last, durably before anything is written to it
//! ([volatile-1]); a log on another disk, not mounted, is noticed too.

use crate::{DiskError, Segment, SmallFiles, sealed};

/// The file, beside the folder of segments.
pub const FILE: &str = "segments";
const FIRST_LINE: &str = "quorate segments 1";

/// The last segment that was made; `None` if nothing says so: a folder of an earlier version, or one
/// whose record is damaged.
pub(crate) fn read(files: &impl SmallFiles) -> Result<Option<Segment>, DiskError> {
    let bytes = files.read(FILE)?;
    Ok(bytes.and_then(|bytes| decode(str::from_utf8(&bytes).ok()?)))
}

fn decode(text: &str) -> Option<Segment> {
    let mut lines = sealed::open(text).ok()?.lines();
    if lines.next() != Some(FIRST_LINE) {
        return None;
    }
    let number = lines.next()?.strip_prefix("made ")?.parse().ok()?;
    lines.next().is_none().then_some(Segment(number))
}

/// Writes it down, durably.
///
/// # Errors
/// As [`SmallFiles::replace`].
pub fn write(files: &mut impl SmallFiles, made: Segment) -> Result<(), DiskError> {
    let lines = format!("{FIRST_LINE}\nmade {made}\n");
    files.replace(FILE, sealed::seal(&lines).as_bytes())
}
