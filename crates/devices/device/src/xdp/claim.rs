//! Claims that limit an interface to one owner: locks that the kernel releases when the process
//! ends.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    mount::{MountFlags, mount},
};

use crate::{
    station::{ClaimError, StationClaim},
    xdp::XdpError,
};

/// Time for which another process may hold a folder's lock while it checks whether the owner is
/// alive. Also the interval between retries.
const LOCK_HOLD_MAX: Duration = Duration::from_millis(200);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

pub const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";

/// A claim to the device at an interface, valid until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct InterfaceClaim {
    pin_folder: PathBuf,
    /// Lock that excludes owners in this mount namespace.
    _lock: File,
    /// Locks that exclude owners in this network namespace: those of kernel programs in any group,
    /// and those of other devices in this group.
    _station_claims: [StationClaim; 2],
}

impl InterfaceClaim {
    /// Claims an interface, given by its name and index in the thread's network namespace.
    pub(crate) fn claim_interface(
        interface: &str,
        index: u32,
        group: u32,
    ) -> Result<Self, XdpError> {
        let owned = || XdpError::AlreadyOwned { interface: interface.to_owned() };
        let not_ours = |why| match why {
            ClaimError::AlreadyClaimed => owned(),
            ClaimError::Io(error) => XdpError::Io { what: format!("lock {interface}"), error },
        };
        let stations = [
            StationClaim::of_programs(index).map_err(not_ours)?,
            StationClaim::of_group(index, group).map_err(not_ours)?,
        ];
        let folder = interface_folder(interface)?;
        let failed =
            |error: io::Error| XdpError::Io { what: format!("lock {}", folder.display()), error };
        fs::create_dir_all(&folder).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match lock_folder(&folder) {
                Ok(Some(lock)) => {
                    return Ok(Self { pin_folder: folder, _lock: lock, _station_claims: stations });
                }
                Ok(None) if begun.elapsed() < LOCK_HOLD_MAX => thread::sleep(RETRY_INTERVAL),
                Ok(None) => return Err(owned()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Returns the folder that contains the pins of devices at this interface.
    pub(crate) fn folder(&self) -> &Path {
        &self.pin_folder
    }
}

/// Locks a folder of pins. Returns `None` if another process has locked it.
pub(crate) fn lock_folder(folder: &Path) -> io::Result<Option<File>> {
    let lock = File::open(folder)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the folder that contains the pins of all interfaces, or `None` if the file system is not
/// mounted.
pub(crate) fn pin_root() -> Option<PathBuf> {
    let root = Path::new(BPF_FILE_SYSTEM);
    is_mounted(root).then(|| root.join("quorate"))
}

/// Returns the folder with the pins of all devices at an interface. Its name contains the number of
/// the network namespace, because interface names belong to a namespace while all namespaces share
/// the file system. Mounts the file system if necessary.
pub(crate) fn interface_folder(interface: &str) -> Result<PathBuf, XdpError> {
    let root = Path::new(BPF_FILE_SYSTEM);
    if !is_mounted(root) {
        mount("bpf", root, "bpf", MountFlags::empty(), None).map_err(|error| XdpError::Io {
            what: format!("mount -t bpf bpf {BPF_FILE_SYSTEM}"),
            error: error.into(),
        })?;
    }
    // Looked up for this thread, because threads may be in different namespaces.
    let namespace = "/proc/thread-self/ns/net";
    let namespace = fs::metadata(namespace)
        .map_err(|error| XdpError::Io { what: namespace.to_owned(), error })?;
    let name = format!("{interface}-{}", namespace.ino());
    Ok(root.join("quorate").join(name))
}

/// Returns whether a file system is mounted at `root`.
fn is_mounted(root: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next().map(Path::new) == Some(root) && words.next() == Some("bpf")
    })
}
