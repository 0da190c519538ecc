//! Which driver serves a folder, and why.

use std::{io, path::Path};

use crate::disk::{Buffers, DiskError, FileDisk, folder::Folder, uring::Ring};

/// The operator's choice of driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// io_uring if it can be had.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    File,
}

impl Want {
    /// Names used by operators.
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("uring", Self::Uring), ("portable", Self::File)];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, want)| *want)
    }
}

/// Opens the folders below a node's data folder, with the usual buffers. The text says which driver
/// was chosen and why.
///
/// # Errors
/// A folder cannot be opened or is in use, or the driver that is wanted cannot be had.
pub fn open(data: &Path, want: Want) -> Result<(FileDisk, String), DiskError> {
    open_with(data, want, Buffers::default())
}

/// The same with as much memory at hand as `buffers` says.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    data: &Path,
    want: Want,
    buffers: Buffers,
) -> Result<(FileDisk, String), DiskError> {
    let folder = Folder::open(data)?;
    let refused = match refusal(&folder, want) {
        Some(refused) => refused,
        None => match Ring::open(&folder, buffers) {
            Ok((parts, pool)) => {
                let disk = FileDisk::over_ring(folder, parts, pool)?;
                let reason = format!("disk: {disk}");
                return Ok((disk, reason));
            }
            Err(error) => format!("io_uring is not available ({error})"),
        },
    };
    if want == Want::Uring {
        let error = io::Error::new(io::ErrorKind::Unsupported, refused);
        return Err(DiskError::new("use", data.display(), &error));
    }
    let disk = FileDisk::over_threads(folder, buffers)?;
    let reason = format!("disk: {disk}; {refused}");
    Ok((disk, reason))
}

/// Why io_uring is not even tried.
fn refusal(folder: &Folder, want: Want) -> Option<String> {
    let abilities = folder.abilities();
    if want == Want::File {
        return Some("threads were asked for".to_owned());
    }
    (!abilities.direct || !abilities.dsync)
        .then(|| "io_uring would only hand such writes to threads of its own".to_owned())
}
