//! The disk under a data folder: which file system, whether it takes writes past the page cache, how long a flush
//! takes, how much room there is.
//!
//! Everything is written into a folder of its own inside the data folder, and removed; a node that runs there does
//! not notice. A folder that is not there yet is judged by the one it would be made in.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use quorate_bench::{probe::disk::flushes, samples::Latencies};
use quorate_disk::Abilities;
use rustix::fs::statvfs;
use tempfile::TempDir;

use crate::{
    finding::Finding,
    plane::Plane,
    system::{System, Unread},
};

/// Flushes of a round, and rounds. The quietest round counts: on a busy machine a flush waits for a processor for
/// longer than for the disk.
const FLUSHES: usize = 40;
const ROUNDS: usize = 5;
/// No round takes much longer.
const ROUND_WAIT: Duration = Duration::from_millis(500);
/// A heartbeat's time: slower flushes are felt in every command.
const FLUSH_US_SLOW: f64 = 20_000.0;
/// A log may grow to 8 GiB; less than this is soon full.
const FREE_BYTES_LEAST: u64 = 2 << 30;
/// Their files are gone, or elsewhere, after a crash.
const VOLATILE: [&str; 3] = ["tmpfs", "ramfs", "overlay"];
/// Locks and flushes there are another machine's word.
const REMOTE: [&str; 6] = ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"];

/// What was found.
#[derive(Debug)]
pub struct Examined {
    /// One for each thing.
    pub findings: Vec<Finding>,
    /// Median of the flushes of the quietest round.
    pub flush_us: Option<f64>,
    /// To write to, gone when this is dropped.
    pub scratch: Option<TempDir>,
}

/// Looks at what a data folder has, or would have.
pub fn examine(system: &System, data: &Path) -> Examined {
    let mut findings = Vec::new();
    let folder = match existing(data) {
        Ok(folder) => folder,
        Err(file) => {
            let what = format!("{} is a file, and no folder", file.display());
            let found = Finding::failing("data folder", what, "give --data a folder");
            return Examined {
                findings: vec![found.blocks(&Plane::ALL)],
                flush_us: None,
                scratch: None,
            };
        }
    };
    findings.push(file_system(system, &folder));
    findings.push(room(
        statvfs(&folder).map(|of| of.f_bavail.saturating_mul(of.f_frsize)),
    ));
    let scratch = tempfile::Builder::new()
        .prefix(".quorate-doctor-")
        .tempdir_in(&folder);
    let scratch = match scratch {
        Ok(scratch) => scratch,
        Err(error) => {
            findings.push(unwritable(&folder, &error));
            return Examined {
                findings,
                flush_us: None,
                scratch: None,
            };
        }
    };
    findings.push(writes(
        Abilities::of(scratch.path()).map_err(|error| error.to_string()),
    ));
    let flush = timed(scratch.path());
    findings.push(flushed(&flush));
    Examined {
        findings,
        flush_us: flush.ok().map(|timed| timed.median_us),
        scratch: Some(scratch),
    }
}

/// The folder, or the nearest one above it that there is; or the file that is in the way.
fn existing(data: &Path) -> Result<PathBuf, PathBuf> {
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    let mut above = data.ancestors();
    let found = above.find(|folder| folder.exists());
    let found = found.unwrap_or(Path::new("/"));
    let place = found.canonicalize().unwrap_or_else(|_| found.to_owned());
    if place.is_dir() {
        Ok(place)
    } else {
        Err(place)
    }
}

fn unwritable(folder: &Path, error: &io::Error) -> Finding {
    let what = format!("nothing can be written to {}", folder.display());
    Finding::failing("data folder", what, "run it as the user who runs the node")
        .detail(error.to_string())
        .blocks(&Plane::ALL)
}

fn file_system(system: &System, folder: &Path) -> Finding {
    let name = "file system";
    let mounts = match system.read("proc/self/mountinfo") {
        Ok(mounts) => mounts,
        Err(Unread(why)) => return Finding::unknown(name, "not known", "df -T").detail(why),
    };
    let Some((at, kind)) = mounted(&mounts, folder) else {
        return Finding::unknown(name, "not known", "df -T");
    };
    let detail = format!("{} is mounted at {at}", kind);
    let found = match () {
        () if VOLATILE.contains(&&*kind) => {
            let what = format!("{kind}: what it holds may be gone after a restart");
            Finding::warning(name, what, "put --data on ext4 or XFS on a disk")
        }
        () if REMOTE.contains(&&*kind) => {
            let what = format!("{kind}: a flush is another machine's word");
            Finding::warning(
                name,
                what,
                "put --data on ext4 or XFS on a disk of this machine",
            )
        }
        () => Finding::ok(name, kind),
    };
    found.detail(detail)
}

/// Where the file system of a folder is mounted, and its kind. Lines that make no sense are left out.
fn mounted(mounts: &str, folder: &Path) -> Option<(String, String)> {
    let line = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let at = unescape(left.split(' ').nth(4)?);
        let kind = right.split(' ').next().filter(|kind| !kind.is_empty())?;
        folder.starts_with(&at).then(|| (at, kind.to_owned()))
    };
    // Of two at the same place the later one covers the earlier.
    mounts
        .lines()
        .filter_map(line)
        .max_by_key(|(at, _)| at.len())
}

/// The kernel writes blanks and the like as three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn room(free: rustix::io::Result<u64>) -> Finding {
    let name = "free";
    match free {
        Ok(bytes) if bytes >= FREE_BYTES_LEAST => Finding::ok(name, format!("{} GiB", bytes >> 30)),
        Ok(bytes) => {
            let hint = "a log keeps up to 8 GiB (--log-max): make room, or lower that";
            Finding::warning(name, format!("{} MiB", bytes >> 20), hint)
        }
        Err(error) => Finding::unknown(name, "not known", "df").detail(error.to_string()),
    }
}

fn writes(abilities: Result<Abilities, String>) -> Finding {
    let name = "O_DIRECT";
    let hint = "ext4 and XFS on a disk take both";
    match abilities {
        Ok(
            abilities @ Abilities {
                direct: true,
                dsync: true,
            },
        ) => Finding::ok(name, abilities.to_string()),
        Ok(abilities) => Finding::warning(name, abilities.to_string(), hint),
        Err(why) => Finding::unknown(name, "could not be tried", hint).detail(why),
    }
}

/// How long flushes took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    /// In the quietest round.
    median_us: f64,
    /// In the slowest.
    worst_us: f64,
    /// Of all that there were.
    high_us: f64,
    count: u64,
}

fn timed(folder: &Path) -> io::Result<Timed> {
    let mut all = Latencies::default();
    let (mut median_us, mut worst_us) = (f64::INFINITY, 0.0_f64);
    for _ in 0..ROUNDS {
        let round = flushes(folder, FLUSHES, ROUND_WAIT)?;
        let median = round.quantile_us(0.5);
        (median_us, worst_us) = (median_us.min(median), worst_us.max(median));
        all.add(&round);
    }
    Ok(Timed {
        median_us,
        worst_us,
        high_us: all.quantile_us(0.99),
        count: all.count(),
    })
}

fn flushed(flush: &io::Result<Timed>) -> Finding {
    let name = "flush";
    match flush {
        Ok(Timed {
            median_us: median,
            worst_us: worst,
            high_us: high,
            count,
        }) => {
            let what = format!("4 KiB are written and flushed in {median:.0} µs");
            let detail = format!(
                "median of the quietest of {ROUNDS} rounds; of the slowest {worst:.0} µs; 99 % of {count} within \
                 {high:.0} µs; a cache that loses power may answer sooner than the disk"
            );
            let found = if *median > FLUSH_US_SLOW {
                let hint = "a disk with power-loss protection flushes in well below 1 ms; raise --election-ms on this one";
                Finding::warning(name, what, hint).about(&Plane::ALL)
            } else {
                Finding::ok(name, what)
            };
            found.detail(detail)
        }
        Err(error) => Finding::failing(
            name,
            "nothing can be flushed",
            "is the disk full, or read-only?",
        )
        .detail(error.to_string())
        .blocks(&Plane::ALL),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{finding::State, system::tests::Tree};

    const MOUNTS: &str = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        22 21 0:5 / /srv/a\\040b rw - xfs /dev/vdb rw\n\
        garbage\n23 21 0:6 / /srv\n - \n24 21 0:7 / /mnt rw master:1 shared:2 - nfs4 h:/x rw\n\
        25 21 0:8 / /dev/shm rw - tmpfs tmpfs rw\n";

    #[test]
    fn the_nearest_mount_names_the_file_system() {
        let of = |folder: &str| mounted(MOUNTS, Path::new(folder)).unwrap().1;
        assert_eq!(of("/srv/a b/n1"), "xfs");
        assert_eq!(of("/srv/a bc"), "ext4");
        assert_eq!(of("/mnt"), "nfs4");
        assert_eq!(mounted("", Path::new("/")), None);
        assert_eq!(unescape("a\\040b\\134\\9x\\"), "a b\\\\9x\\");
    }

    #[test]
    fn file_systems_that_forget_or_are_elsewhere_are_told() {
        let tree = Tree::of(&[("proc/self/mountinfo", MOUNTS)]);
        let state = |folder: &str| file_system(&tree.system(), Path::new(folder)).state;
        assert_eq!(state("/home"), State::Ok);
        assert_eq!(state("/mnt/x"), State::Warning);
        assert_eq!(state("/dev/shm/x"), State::Warning);
        let unknown = |text: &str| {
            let tree = Tree::of(&[("proc/self/mountinfo", text)]);
            file_system(&tree.system(), Path::new("/home")).state
        };
        assert_eq!(unknown("\u{0}\n1 2 3"), State::Unknown);
        assert_eq!(
            file_system(&Tree::of(&[]).system(), Path::new("/")).state,
            State::Unknown
        );
    }

    #[test]
    fn room_abilities_and_flushes_are_judged() {
        assert_eq!(room(Ok(3 << 30)).state, State::Ok);
        assert_eq!(room(Ok(1 << 30)).state, State::Warning);
        assert_eq!(room(Err(rustix::io::Errno::ACCESS)).state, State::Unknown);
        let of = |direct, dsync| writes(Ok(Abilities { direct, dsync })).state;
        assert_eq!(
            (of(true, true), of(false, true)),
            (State::Ok, State::Warning)
        );
        assert_eq!(writes(Err("why".to_owned())).state, State::Unknown);
        let flush = |us| {
            let timed = Timed {
                median_us: us,
                worst_us: us,
                high_us: us,
                count: 200,
            };
            flushed(&Ok(timed)).state
        };
        assert_eq!((flush(800.0), flush(30_000.0)), (State::Ok, State::Warning));
        let failed = flushed(&Err(io::ErrorKind::StorageFull.into()));
        assert!(failed.state == State::Failing && failed.blocks);
    }

    #[test]
    fn a_real_folder_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("n1");
        let examined = examine(&System::real(), &data);
        assert!(examined.flush_us.unwrap() > 0.0, "{examined:?}");
        assert!(!data.exists());
        drop(examined);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let found = &examine(&System::real(), &file.join("n1")).findings[0];
        assert!(found.state == State::Failing && found.blocks, "{found:?}");
        fs::remove_file(file).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
