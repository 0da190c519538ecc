//! Reloads the file of datagram keys whenever it changes, so that keys can be replaced while the
//! node runs.

use std::io;

use quorate_net::{Handle, plane::KeyFile};

use crate::watched;

/// Starts a thread that watches the key file and passes new keys to the node.
pub(crate) fn reload_in_background(handle: Handle, mut known: KeyFile) -> io::Result<()> {
    watched::follow("plane-keys", "keys", move || {
        let file = KeyFile::read(known.path())?;
        if file != known {
            handle.announce_keys(file.clone());
            known = file;
        }
        Ok::<_, quorate_net::plane::BadKeys>(())
    })
}
