//! Chooses the driver for a folder, with the reason for the choice.

use std::{io, path::Path};

use crate::disk::{Buffers, DiskError, FileDisk, folder::Folder, uring::Ring};

/// Driver requested by the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    #[default]
    Auto,
    /// Use io_uring, or fail.
    Uring,
    /// Use blocking threads.
    File,
}

impl DriverChoice {
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("uring", Self::Uring), ("portable", Self::File)];

    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, want)| *want)
    }
}

/// Opens the family folders in a node's data folder, with the default buffers. The returned text
/// describes the driver and why it was chosen. Fails if a folder is in use, or if the requested
/// driver is not available.
pub fn open(data: &Path, want: DriverChoice) -> Result<(FileDisk, String), DiskError> {
    open_with(data, want, Buffers::default())
}

/// Like [`open`], with a buffer pool of the given size.
pub fn open_with(
    data: &Path,
    want: DriverChoice,
    buffers: Buffers,
) -> Result<(FileDisk, String), DiskError> {
    let folder = Folder::open(data)?;
    let refused = match refusal(&folder, want) {
        Some(refused) => refused,
        None => match Ring::open(&folder, buffers) {
            Ok((parts, pool)) => {
                let disk = FileDisk::with_ring(folder, parts, pool)?;
                let reason = format!("disk: {disk}");
                return Ok((disk, reason));
            }
            Err(error) => format!("io_uring is not available ({error})"),
        },
    };
    if want == DriverChoice::Uring {
        let error = io::Error::new(io::ErrorKind::Unsupported, refused);
        return Err(DiskError::new("use", data.display(), &error));
    }
    let disk = FileDisk::with_threads(folder, buffers)?;
    let reason = format!("disk: {disk}; {refused}");
    Ok((disk, reason))
}

/// Returns the reason for not trying io_uring, or `None` if it may be tried.
fn refusal(folder: &Folder, want: DriverChoice) -> Option<String> {
    let abilities = folder.abilities();
    if want == DriverChoice::File {
        return Some("threads were asked for".to_owned());
    }
    (!abilities.has_direct_io || !abilities.has_dsync)
        .then(|| "io_uring would only hand such writes to threads of its own".to_owned())
}
