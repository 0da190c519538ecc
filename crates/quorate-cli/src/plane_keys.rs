//! Reads the file with the keys of datagrams again when it has changed, so that keys are exchanged while nodes run.

use std::{io, thread, time::Duration};

use quorate_net::{Handle, plane::KeyFile};

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// From now on, in a thread of its own.
pub(crate) fn follow(handle: Handle, mut known: KeyFile) -> io::Result<()> {
    let look = move || {
        let mut told = None;
        loop {
            thread::sleep(EVERY);
            match KeyFile::read(known.path()) {
                Ok(file) => {
                    told = None;
                    if file != known {
                        handle.rekey(file.clone());
                        known = file;
                    }
                }
                // It may be written just now; what stays wrong is said once.
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        tracing::error!("{error}; the keys of before stay in force");
                        told = Some(error);
                    }
                }
            }
        }
    };
    thread::Builder::new()
        .name("plane-keys".to_owned())
        .spawn(look)
        .map(drop)
}
