//! Reads the file with the keys of datagrams again when it has changed, so that keys are exchanged
//! while nodes run.

use std::io;

use quorate_net::{Handle, plane::KeyFile};

use crate::watched;

/// Follows the key file from now on, in a thread of its own.
pub(crate) fn follow(handle: Handle, mut known: KeyFile) -> io::Result<()> {
    watched::follow("plane-keys", "keys", move || {
        let file = KeyFile::read(known.path())?;
        if file != known {
            handle.rekey(file.clone());
            known = file;
        }
        Ok::<_, quorate_net::plane::BadKeys>(())
    })
}
