//! One owner for each interface: a lock that goes with its process, however that ends.

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
    station::{NotOurs, Station},
    xdp::Failed,
};

/// Longest time that a folder may be locked by a process checking whether its owner lives, and
/// interval of the attempts.
const PATIENCE: Duration = Duration::from_millis(200);
const PACE: Duration = Duration::from_millis(10);

/// Mount point of the kernel's own file system on every machine.
pub const FILE_SYSTEM: &str = "/sys/fs/bpf";

/// The right to drive a device at an interface, until this goes or the process ends.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: PathBuf,
    /// Locked: of this mount namespace.
    _lock: File,
    /// Locks of this network namespace: programs of any group, and receivers of frames of this one.
    _stations: [Station; 2],
}

impl Claim {
    /// Claims an interface of this network namespace, given its number there.
    pub(crate) fn of(interface: &str, index: u32, group: u32) -> Result<Self, Failed> {
        let owned = || Failed::Owned { interface: interface.to_owned() };
        let not_ours = |why| match why {
            NotOurs::Taken => owned(),
            NotOurs::Io(error) => Failed::Io { what: format!("lock {interface}"), error },
        };
        let stations = [
            Station::of_programs(index).map_err(not_ours)?,
            Station::of_group(index, group).map_err(not_ours)?,
        ];
        let folder = folder(interface)?;
        let failed =
            |error: io::Error| Failed::Io { what: format!("lock {}", folder.display()), error };
        fs::create_dir_all(&folder).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match lock(&folder) {
                Ok(Some(lock)) => {
                    return Ok(Self { folder, _lock: lock, _stations: stations });
                }
                Ok(None) if begun.elapsed() < PATIENCE => thread::sleep(PACE),
                Ok(None) => return Err(owned()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Returns the folder with the pins of devices at this interface.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Locks a folder with pins, if no process has it.
pub(crate) fn lock(folder: &Path) -> io::Result<Option<File>> {
    let lock = File::open(folder)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the folder that holds those of all interfaces, if it exists.
pub(crate) fn root() -> Option<PathBuf> {
    let root = Path::new(FILE_SYSTEM);
    is_mounted(root).then(|| root.join("quorate"))
}

/// Returns the folder with the pins of devices at an interface, whatever their owner. Names of
/// interfaces are those of a network namespace, and the file system is that of all. It is mounted
/// if it is not.
pub(crate) fn folder(interface: &str) -> Result<PathBuf, Failed> {
    let root = Path::new(FILE_SYSTEM);
    if !is_mounted(root) {
        mount("bpf", root, "bpf", MountFlags::empty(), None).map_err(|error| Failed::Io {
            what: format!("mount -t bpf bpf {FILE_SYSTEM}"),
            error: error.into(),
        })?;
    }
    // The thread's own, where threads are in several.
    let namespace = "/proc/thread-self/ns/net";
    let namespace = fs::metadata(namespace)
        .map_err(|error| Failed::Io { what: namespace.to_owned(), error })?;
    let name = format!("{interface}-{}", namespace.ino());
    Ok(root.join("quorate").join(name))
}

/// Returns whether this is a file system of its own.
fn is_mounted(root: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next().map(Path::new) == Some(root) && words.next() == Some("bpf")
    })
}
