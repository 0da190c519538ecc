//! Why a package could not be made, as one line.

use std::{fmt::Display, io, path::Path};

/// A failure, and the item it concerns.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl Failed {
    /// Names the file of an error.
    pub(crate) fn at<E: Display>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self(format!("{}: {error}", path.display()))
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}
