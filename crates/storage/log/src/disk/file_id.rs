//! File names, which consist of a family and a number, and the families' folders.

use std::fmt;

/// Kind of file. Each family has its own folder and numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Log,
    Snapshot,
    /// Chunks of byte streams, and the catalogues that list their contents.
    Stream,
}

struct Layout {
    family: Family,
    /// Name of the folder in the data folder that contains the family's files.
    folder: &'static str,
    suffix: &'static str,
    /// Name of the small file that records the newest file created in the family.
    newest_record_name: &'static str,
    /// Term for one file of the family in messages.
    file_term: &'static str,
}

/// Names of all families, in the order of [`Family`].
const LAYOUTS: &[Layout] = &[
    Layout {
        family: Family::Log,
        folder: "log",
        suffix: ".segment",
        newest_record_name: "segments",
        file_term: "segment",
    },
    Layout {
        family: Family::Snapshot,
        folder: "snapshot",
        suffix: ".part",
        newest_record_name: "parts",
        file_term: "snapshot part",
    },
    Layout {
        family: Family::Stream,
        folder: "stream",
        suffix: ".chunks",
        newest_record_name: "chunks",
        file_term: "stream file",
    },
];

/// Upper bound of file numbers. Sums of lower numbers do not overflow.
const NUMBER_MAX: u64 = 1 << 62;

impl Family {
    pub fn all() -> impl Iterator<Item = Self> {
        LAYOUTS.iter().map(|layout| layout.family)
    }

    fn layout(self) -> &'static Layout {
        let layout = &LAYOUTS[self as usize];
        assert!(layout.family == self, "the layouts are in order");
        layout
    }

    /// Returns the name of the folder in the data folder that contains the family's files.
    pub fn folder(self) -> &'static str {
        self.layout().folder
    }

    /// Returns the name of the small file in the data folder that records the newest file created.
    pub fn newest_record_name(self) -> &'static str {
        self.layout().newest_record_name
    }

    /// Returns the file in this family that `name` denotes, or `None` if this program does not
    /// create such names.
    #[cfg(target_os = "linux")]
    pub(crate) fn parse_file_name(self, name: &str) -> Option<FileId> {
        let digits = name.strip_suffix(self.layout().suffix)?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        let file = FileId::new(self, number);
        (number < NUMBER_MAX && file.name() == name).then_some(file)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub family: Family,
    /// Number of the file within its family. Each new file has a higher number than all before it.
    pub number: u64,
}

impl FileId {
    pub const fn new(family: Family, number: u64) -> Self {
        Self { family, number }
    }

    pub const fn position_at(self, offset: u64) -> Position {
        Position { file: self, offset }
    }

    /// Returns the name of the file in its family's folder. Names sort in the order of the numbers.
    pub fn name(self) -> String {
        format!("{:016x}{}", self.number, self.family.layout().suffix)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub file: FileId,
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    pub file: FileId,
    pub bytes: u64,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family.layout().file_term, self.number)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, offset {}", self.file, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_file_names_are_parsed() {
        for family in Family::all() {
            for number in [0, 1, 0xabc, NUMBER_MAX - 1] {
                let file = FileId::new(family, number);
                assert_eq!(family.parse_file_name(&file.name()), Some(file));
            }
            let unknown = FileId::new(family, NUMBER_MAX).name();
            for name in [&unknown, "", "1.segment", "0000000000000ABC.segment", "x"] {
                assert_eq!(family.parse_file_name(name), None, "{name}");
            }
        }
        let name = FileId::new(Family::Log, 7).name();
        assert_eq!(name, "0000000000000007.segment");
        assert_eq!(Family::Snapshot.parse_file_name(&name), None);
        let name = FileId::new(Family::Stream, 0x1f).name();
        assert_eq!(name, "000000000000001f.chunks");
    }
}
