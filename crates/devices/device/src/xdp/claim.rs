//! One owner for each interface: a lock that goes with its process, however that ends.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    mount::{MountFlags, mount},
};

use crate::xdp::Failed;

/// Where every machine has the kernel's own file system.
pub const FILE_SYSTEM: &str = "/sys/fs/bpf";

/// The right to drive a device at an interface, until this goes or the process ends.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: PathBuf,
    /// Locked.
    _lock: File,
}

impl Claim {
    /// Of an interface of this network namespace.
    pub(crate) fn of(interface: &str) -> Result<Self, Failed> {
        let folder = folder(interface)?;
        let failed = |error: io::Error| Failed::Io {
            what: format!("lock {}", folder.display()),
            error,
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        let lock = File::open(&folder).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                folder,
                _lock: lock,
            }),
            Err(Errno::AGAIN) => Err(Failed::Owned {
                interface: interface.to_owned(),
            }),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Where pins of devices at this interface are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Where pins of devices at an interface are, whoever has it. Names of interfaces are those of a network namespace, and
/// the file system is that of all. It is mounted if it is not.
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
    let namespace = fs::metadata(namespace).map_err(|error| Failed::Io {
        what: namespace.to_owned(),
        error,
    })?;
    let name = format!("{interface}-{}", namespace.ino());
    Ok(root.join("quorate").join(name))
}

/// Whether this is a file system of its own.
fn is_mounted(root: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next().map(Path::new) == Some(root) && words.next() == Some("bpf")
    })
}
