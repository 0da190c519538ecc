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

use crate::xdp::{DevicePins, Role, XdpError, claim, host::retire_device};

/// Ends the orphaned devices of this group on this machine: fences them and detaches them from
/// their interfaces. Returns their folders. Interfaces with a live owner are skipped.
pub fn end_orphans(group: u32) -> Result<Vec<PathBuf>, XdpError> {
    let mut ended = Vec::new();
    let Some(root) = claim::pin_root() else {
        return Ok(ended);
    };
    for interface in device_folders(&root)? {
        let folder = interface.join(format!("{group:08x}"));
        if !folder.exists() {
            continue;
        }
        let lock = claim::lock_folder(&interface).map_err(|error| pin_error(&interface, error))?;
        if lock.is_none() {
            continue;
        }
        for role in Role::ALL {
            let pins = DevicePins::in_folder(folder.join(role.name()), role);
            if !pins.folder().exists() {
                continue;
            }
            end_device(&pins)?;
            ended.push(pins.folder().to_owned());
        }
        // Only an empty folder can and should be removed.
        let _ = fs::remove_dir(&folder);
    }
    Ok(ended)
}

/// Ends a device. If it is from another release or does not respond, removing its pins suffices.
fn end_device(pins: &DevicePins) -> Result<(), XdpError> {
    if let Ok(Some((device, kept))) = pins.find_device()
        && retire_device(device, kept, pins).is_ok()
    {
        return Ok(());
    }
    pins.remove_pins()
}

fn device_folders(root: &Path) -> Result<Vec<PathBuf>, XdpError> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(pin_error(root, error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: io::Result<Vec<_>> = paths.collect();
    paths.map_err(|error| pin_error(root, error))
}

fn pin_error(folder: &Path, error: io::Error) -> XdpError {
    XdpError::Io { what: format!("look for devices in {}", folder.display()), error }
}
