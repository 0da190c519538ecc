//! Log segments and places in them, which name files of the log's family.

use std::fmt;

use crate::disk::{DiskError, Family, FileId, FileInfo, Position, Source};

/// Number of a segment, used as its name and as its epoch ([disk-4]). A new segment has a higher
/// number than all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(pub u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub segment: Segment,
    pub offset: u64,
}

impl From<Segment> for FileId {
    fn from(segment: Segment) -> Self {
        Self::new(Family::Log, segment.0)
    }
}

impl From<Place> for Position {
    fn from(place: Place) -> Self {
        FileId::from(place.segment).position_at(place.offset)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFile {
    pub(crate) segment: Segment,
    pub(crate) bytes: u64,
}

pub(crate) fn list_segments(source: &mut impl Source) -> Result<Vec<SegmentFile>, DiskError> {
    let segment =
        |info: FileInfo| SegmentFile { segment: Segment(info.file.number), bytes: info.bytes };
    let files = source.files(Family::Log)?;
    Ok(files.into_iter().map(segment).collect())
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, offset {}", self.segment, self.offset)
    }
}
