//! How far the segments go that were ever made: written down apart from them.
//!
//! An emptied log looks like a new one, and one without its newest segment like one that ends cleanly.
//! So `<data>/segments` says which number was made last, durably before anything is written to it
//! ([volatile-1]); a log on another disk, not mounted, is noticed too.

use std::{io, path::Path};

use super::Segment;
use crate::{error::DiskError, sealed};

/// The file, beside the folder of segments.
pub const FILE: &str = "segments";
/// What a crash may leave of it.
pub const TEMPORARY: &str = "segments.new";
const FIRST_LINE: &str = "quorate segments 1";

/// The last segment that was made; `None` if nothing says so: a folder of an earlier version, or one
/// whose record is damaged.
pub(super) fn read(data: &Path) -> Result<Option<Segment>, DiskError> {
    let file = data.join(FILE);
    let text = match sealed::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(DiskError::new("read", file.display(), &error)),
    };
    Ok(decode(&text))
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
pub fn write(data: &Path, made: Segment) -> Result<(), DiskError> {
    let lines = format!("{FIRST_LINE}\nmade {made}\n");
    sealed::replace(data, FILE, TEMPORARY, &lines)
        .map_err(|failed| DiskError::new(failed.action, failed.file.display(), &failed.error))
}
