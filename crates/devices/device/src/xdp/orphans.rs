//! Removes devices whose owners no longer exist, at every interface of this machine that has no
//! live owner, whatever device its nodes use now ([offload-9]).
//!
//! A node that was killed leaves its device at the interface. The device keeps voting, in a ballot
//! that no owner can raise, until the next owner at that interface ends it. There may never be one:
//! the node may be restarted with another kind of device, at another interface, or with none.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::xdp::{Failed, Pins, Role, claim, host::leave};

/// Ends the orphaned devices of this group on this machine: fences them and detaches them from
/// their interfaces. Returns their folders. Interfaces with a live owner are skipped.
pub fn end_orphans(group: u32) -> Result<Vec<PathBuf>, Failed> {
    let mut ended = Vec::new();
    let Some(root) = claim::root() else {
        return Ok(ended);
    };
    for interface in folders(&root)? {
        let folder = interface.join(format!("{group:08x}"));
        if !folder.exists() {
            continue;
        }
        let lock = claim::lock(&interface).map_err(|error| failed(&interface, error))?;
        if lock.is_none() {
            continue;
        }
        for role in Role::ALL {
            let pins = Pins::at(folder.join(role.name()), role);
            if !pins.folder().exists() {
                continue;
            }
            end(&pins)?;
            ended.push(pins.folder().to_owned());
        }
        // Only an empty folder can and should be removed.
        let _ = fs::remove_dir(&folder);
    }
    Ok(ended)
}

/// Ends a device. If it is from another release or does not respond, removing its pins suffices.
fn end(pins: &Pins) -> Result<(), Failed> {
    if let Ok(Some((device, kept))) = pins.find()
        && leave(device, kept, pins).is_ok()
    {
        return Ok(());
    }
    pins.sweep()
}

fn folders(root: &Path) -> Result<Vec<PathBuf>, Failed> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(root, error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: io::Result<Vec<_>> = paths.collect();
    paths.map_err(|error| failed(root, error))
}

fn failed(folder: &Path, error: io::Error) -> Failed {
    Failed::Io { what: format!("look for devices in {}", folder.display()), error }
}
