//! Disk check of a data folder: file system, support for direct I/O, flush time, and free space.
//!
//! All test files are written to a separate folder inside the data folder and then removed. A node
//! that is running on the data folder is not disturbed. If the data folder does not exist yet, its
//! nearest existing parent is examined.

use std::{
    io,
    path::{Path, PathBuf},
};

use quorate_log::disk::FileSystemFeatures;
use rustix::fs::{StatVfs, statvfs};
use serde::Serialize;
use tempfile::TempDir;

use crate::doctor::{
    finding::Finding,
    flushes::{self, FlushTimes},
    honesty,
    mounts::{REMOTE_FILE_SYSTEMS, VOLATILE_FILE_SYSTEMS, mount_of},
    plane::Plane,
    system::{SystemFiles, UnreadableFile},
};

/// Minimum free space, in bytes. A disk with less fills up soon, because a log may grow to 8 GiB.
const FREE_BYTES_LEAST: u64 = 2 << 30;
/// Minimum number of free inodes. It suffices for the files of a log, a store and their snapshots,
/// with a margin.
const FREE_INODES_LEAST: u64 = 4096;
#[derive(Debug)]
pub struct DiskExamination {
    pub findings: Vec<Finding>,
    /// Flush times; `None` if they could not be measured.
    pub flushes: Option<FlushTimes>,
    /// Free space; `None` if unknown.
    pub free_space: Option<DiskSpace>,
    /// Folder for test files, which is deleted on drop.
    pub test_folder: Option<TempDir>,
}

/// Examines the disk of an existing or future data folder.
pub fn examine(system: &SystemFiles, data: &Path) -> DiskExamination {
    let mut findings = Vec::new();
    let folder = match nearest_existing(data) {
        Ok(folder) => folder,
        Err(file) => {
            let what = format!("{} is a file, not a folder", file.display());
            let found = Finding::failing("data folder", what, "give --data a folder");
            return DiskExamination {
                findings: vec![found.blocking(&Plane::ALL)],
                flushes: None,
                free_space: None,
                test_folder: None,
            };
        }
    };
    findings.push(file_system_finding(system, &folder));
    let room = statvfs(&folder).map(|of| DiskSpace::from_statvfs(&of));
    findings.extend(space_finding(room.as_ref().map_err(|errno| *errno)));
    let room = room.ok();
    let scratch = tempfile::Builder::new().prefix(".quorate-doctor-").tempdir_in(&folder);
    let scratch = match scratch {
        Ok(scratch) => scratch,
        Err(error) => {
            findings.push(unwritable_finding(&folder, &error));
            return DiskExamination {
                findings,
                flushes: None,
                free_space: room,
                test_folder: None,
            };
        }
    };
    findings.push(writes_finding(
        FileSystemFeatures::of(scratch.path()).map_err(|error| error.to_string()),
    ));
    let flushes = FlushTimes::measure(scratch.path());
    match &flushes {
        Ok(flushes) => findings.extend(flushes.flush_findings()),
        Err(error) => findings.push(flushes::failed_finding(error)),
    }
    let flushes = flushes.ok();
    findings.push(honesty::examine(system, &folder, flushes.as_ref()));
    DiskExamination { findings, flushes, free_space: room, test_folder: Some(scratch) }
}

/// Returns the folder or its nearest existing parent. Fails with the path of a file that is in the
/// place of a folder.
fn nearest_existing(data: &Path) -> Result<PathBuf, PathBuf> {
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    let mut above = data.ancestors();
    let found = above.find(|folder| folder.exists());
    let found = found.unwrap_or(Path::new("/"));
    let place = found.canonicalize().unwrap_or_else(|_| found.to_owned());
    if place.is_dir() { Ok(place) } else { Err(place) }
}

fn unwritable_finding(folder: &Path, error: &io::Error) -> Finding {
    let what = format!("cannot write to {}", folder.display());
    Finding::failing("data folder", what, "run doctor as the user of the node")
        .with_detail(error.to_string())
        .blocking(&Plane::ALL)
}

fn file_system_finding(system: &SystemFiles, folder: &Path) -> Finding {
    let name = "file system";
    let mount = match mount_of(system, folder) {
        Ok(mount) => mount,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", "df -T").with_detail(why);
        }
    };
    let kind = mount.kind;
    let detail = format!("{kind} is mounted at {}", mount.mount_point);
    let found = match () {
        () if VOLATILE_FILE_SYSTEMS.contains(&&*kind) => {
            let what = format!("{kind}: the data may be gone after a restart");
            Finding::warning(name, what, "put --data on ext4 or XFS on a disk")
        }
        () if REMOTE_FILE_SYSTEMS.contains(&&*kind) => {
            let what = format!("{kind}: flushes depend on another machine");
            Finding::warning(name, what, "put --data on ext4 or XFS on a disk of this machine")
        }
        () => Finding::ok(name, kind),
    };
    found.with_detail(detail)
}

/// Disk space available to unprivileged users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    pub free_bytes: u64,
    /// Number of free bytes below which the disk is reported as nearly full.
    pub least_bytes: u64,
    /// Number of files that can still be created; null if the file system allocates inodes
    /// dynamically.
    pub free_inodes: Option<u64>,
}

impl DiskSpace {
    fn from_statvfs(stat: &StatVfs) -> Self {
        Self {
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            least_bytes: FREE_BYTES_LEAST,
            free_inodes: (stat.f_files > 0).then_some(stat.f_favail),
        }
    }
}

fn space_finding(room: rustix::io::Result<&DiskSpace>) -> Vec<Finding> {
    let DiskSpace { free_bytes, least_bytes, free_inodes } = match room {
        Ok(room) => *room,
        Err(error) => {
            return vec![
                Finding::unknown("free", "not known", "df").with_detail(error.to_string()),
            ];
        }
    };
    let free = if free_bytes >= least_bytes {
        Finding::ok("free", format!("{} GiB", free_bytes >> 30))
    } else {
        let hint = "the log takes up to 8 GiB (--log-max): free space, or lower --log-max";
        Finding::warning("free", format!("{} MiB", free_bytes >> 20), hint)
    };
    let inodes = match free_inodes {
        None => Finding::ok("inodes", "created as needed"),
        Some(free) if free >= FREE_INODES_LEAST => {
            Finding::ok("inodes", format!("room for {free} more files"))
        }
        Some(free) => {
            let hint = "see df -i: remove small files, or create the file system with more inodes";
            Finding::warning("inodes", format!("room for {free} more files"), hint)
        }
    };
    vec![free, inodes]
}

fn writes_finding(abilities: Result<FileSystemFeatures, String>) -> Finding {
    let name = "O_DIRECT";
    let hint = "ext4 and XFS on a disk take both";
    match abilities {
        Ok(abilities @ FileSystemFeatures { has_direct_io: true, has_dsync: true }) => {
            Finding::ok(name, abilities.to_string())
        }
        Ok(abilities) => Finding::warning(name, abilities.to_string(), hint),
        Err(why) => Finding::unknown(name, "could not be tested", hint).with_detail(why),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::doctor::{finding::FindingState, mounts::tests::MOUNTS, system::tests::Tree};

    #[test]
    fn volatile_and_network_file_systems_are_warnings() {
        let tree = Tree::of(&[("proc/self/mountinfo", MOUNTS)]);
        let state = |folder: &str| file_system_finding(&tree.system(), Path::new(folder)).state;
        assert_eq!(state("/home"), FindingState::Ok);
        assert_eq!(state("/mnt/x"), FindingState::Warning);
        assert_eq!(state("/dev/shm/x"), FindingState::Warning);
        let unknown = |text: &str| {
            let tree = Tree::of(&[("proc/self/mountinfo", text)]);
            file_system_finding(&tree.system(), Path::new("/home")).state
        };
        assert_eq!(unknown("\u{0}\n1 2 3"), FindingState::Unknown);
        assert_eq!(
            file_system_finding(&Tree::of(&[]).system(), Path::new("/")).state,
            FindingState::Unknown
        );
    }

    #[test]
    fn free_space_and_disk_features_are_checked() {
        let room = |free_bytes, free_inodes| {
            let room = DiskSpace { free_bytes, least_bytes: FREE_BYTES_LEAST, free_inodes };
            let states = space_finding(Ok(&room)).into_iter();
            states.map(|finding| finding.state).collect::<Vec<_>>()
        };
        assert_eq!(room(3 << 30, None), [FindingState::Ok, FindingState::Ok]);
        assert_eq!(room(1 << 30, Some(9999)), [FindingState::Warning, FindingState::Ok]);
        assert_eq!(room(3 << 30, Some(9)), [FindingState::Ok, FindingState::Warning]);
        let unknown = space_finding(Err(rustix::io::Errno::ACCESS));
        assert_eq!(unknown[0].state, FindingState::Unknown);
        let of = |direct, dsync| {
            writes_finding(Ok(FileSystemFeatures { has_direct_io: direct, has_dsync: dsync })).state
        };
        assert_eq!((of(true, true), of(false, true)), (FindingState::Ok, FindingState::Warning));
        assert_eq!(writes_finding(Err("why".to_owned())).state, FindingState::Unknown);
    }

    #[test]
    fn checks_leave_a_folder_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("n1");
        let examined = examine(&SystemFiles::this_machine(), &data);
        assert!(examined.flushes.as_ref().unwrap().quietest_us > 0.0, "{examined:?}");
        assert!(!data.exists());
        drop(examined);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let found = &examine(&SystemFiles::this_machine(), &file.join("n1")).findings[0];
        assert!(found.state == FindingState::Failing && found.blocks, "{found:?}");
        fs::remove_file(file).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
