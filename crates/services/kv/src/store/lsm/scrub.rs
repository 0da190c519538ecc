//! Scrub thread: verifies the checksums of all files of the tree.
//!
//! The thread has no handle of the tree, which may be reopened meanwhile. Compaction removes files
//! at any time, so a finding is only a suspicion: a file counts as damaged if the owner still finds
//! it in the tree. Even then, the store continues to serve clients until a snapshot is available
//! for its renewal (`renewal`).

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_replica::service::Scrubbed;
use rustix::fs::OFlags;
use xxhash_rust::xxh3::Xxh3;

use super::{LsmStore, tree::TreeFile};

const PIECE_BYTES: usize = 256 << 10;
/// Alignment of direct reads, which bypass the page cache.
const ALIGNED: usize = 4096;

enum Report {
    Read(u64),
    /// A file is missing or has changed. Contains a description.
    Suspect(TreeFile, String),
}

#[derive(Debug)]
pub(super) struct Scrub {
    reports: Receiver<Report>,
    /// Channel whose disconnection ends the thread.
    stop_on_drop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Scrub {
    fn drop(&mut self) {
        self.stop_on_drop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Scrub {
    fn start(files: Vec<TreeFile>, bytes_per_second: u64) -> io::Result<Self> {
        let (tell, told) = channel();
        let (wanted, wants) = channel();
        let work = Scrubber {
            reports: tell,
            stop_signal: wants,
            bytes_per_second: bytes_per_second.max(1),
            pending_delay: Duration::ZERO,
        };
        let thread =
            thread::Builder::new().name("scrub".to_owned()).spawn(move || work.run(files))?;
        Ok(Self { reports: told, stop_on_drop: Some(wanted), thread: Some(thread) })
    }
}

struct Scrubber {
    reports: Sender<Report>,
    /// Channel without messages. Its disconnection ends the thread.
    stop_signal: Receiver<()>,
    bytes_per_second: u64,
    /// Delay that is due before the next read, to limit the rate.
    pending_delay: Duration,
}

struct Stopped;

impl Scrubber {
    fn run(mut self, files: Vec<TreeFile>) {
        let mut memory = vec![0; PIECE_BYTES + ALIGNED];
        let aligned = memory.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let buffer = &mut memory[aligned..aligned + PIECE_BYTES];
        for file in files {
            let suspicion = match self.check(&file, buffer) {
                Ok(Ok(())) => continue,
                Ok(Err(why)) => why,
                Err(Stopped) => return,
            };
            if self.reports.send(Report::Suspect(file, suspicion)).is_err() {
                return;
            }
        }
    }

    /// Checks a file. The inner error describes how the file differs from the one written.
    fn check(&mut self, file: &TreeFile, buffer: &mut [u8]) -> Result<Result<(), String>, Stopped> {
        let mut open = match open(&file.path) {
            Ok(open) => open,
            // The error says nothing about the file; for example, there may be no free descriptor.
            Err(error) if error.kind() != ErrorKind::NotFound => return Ok(Ok(())),
            Err(_) => return Ok(Err("the file is gone".to_owned())),
        };
        let mut hasher = Xxh3::new();
        loop {
            self.pause()?;
            match open.read(buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    hasher.update(&buffer[..bytes]);
                    let seconds = bytes as f64 / self.bytes_per_second as f64;
                    self.pending_delay = Duration::from_secs_f64(seconds);
                    self.reports.send(Report::Read(bytes as u64)).map_err(|_| Stopped)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        Ok(match hasher.digest128() == file.checksum {
            true => Ok(()),
            false => Err("its checksum does not match".to_owned()),
        })
    }

    /// Delays the next read to keep to the configured rate.
    fn pause(&mut self) -> Result<(), Stopped> {
        let owed = std::mem::take(&mut self.pending_delay);
        match self.stop_signal.recv_timeout(owed) {
            Err(RecvTimeoutError::Disconnected) => Err(Stopped),
            Ok(()) | Err(RecvTimeoutError::Timeout) => Ok(()),
        }
    }
}

/// Opens a file, for direct reads if possible: cached contents prove nothing about the disk.
fn open(path: &Path) -> io::Result<File> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(direct).open(path);
    match opened {
        Err(error) if error.kind() == ErrorKind::InvalidInput => File::open(path),
        opened => opened,
    }
}

/// Background failures that may be due to damage. Compaction reads data that no client requests,
/// and fjall does not report why it failed.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    failures: u32,
    /// True if a scrub should read the files.
    wants_scrub: bool,
}

impl Suspicion {
    /// Counts a failure. Each further scrub takes twice as many failures: background work also
    /// fails on a disk that rejects writes, and damage is reported only once.
    pub(super) fn background_failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.wants_scrub |= self.failures.is_power_of_two();
    }
}

impl LsmStore {
    pub(super) fn suspects_damage(&self) -> bool {
        self.suspicion.wants_scrub && self.tree.is_some()
    }

    /// Starts a scrub of all current files. Replaces one in progress.
    pub(super) fn begin_scrub(&mut self, bytes_per_second: u64) {
        self.scrub = None;
        let files = self.tree.as_ref().map(|tree| tree.files());
        self.scrub = files.and_then(|files| Scrub::start(files, bytes_per_second).ok());
    }

    pub(super) fn take_scrub_results(&mut self) -> Scrubbed {
        let mut scrubbed = Scrubbed::default();
        let Some(scrub) = &self.scrub else {
            return scrubbed;
        };
        let Some(tree) = &self.tree else {
            // The tree is being reopened, so its list of files is not available.
            scrubbed.goes_on = true;
            return scrubbed;
        };
        scrubbed.goes_on = scrub.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        let mut suspects = Vec::new();
        for told in scrub.reports.try_iter() {
            match told {
                Report::Read(bytes) => scrubbed.bytes += bytes,
                Report::Suspect(file, why) => suspects.push((file, why)),
            }
        }
        if !suspects.is_empty() {
            let has = tree.files();
            suspects.retain(|(file, _)| has.contains(file));
        }
        let damaged = suspects.into_iter().map(|(file, why)| {
            format!(
                "{}: {why}; the node serves what it can read, and rebuilds the store when another node has sent a snapshot",
                file.path.display(),
            )
        });
        scrubbed.damaged.extend(damaged);
        if !scrubbed.goes_on {
            self.scrub = None;
            self.suspicion.wants_scrub = false;
        }
        scrubbed
    }

    /// Returns the approximate total size of the tree's files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.tree.as_ref().map_or(0, |tree| tree.disk_space())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test waits for a thread")]
mod tests {
    use std::{fs, os::unix::fs::FileExt as _, time::Instant};

    use quorate_core::slot::Slot;

    use super::*;
    use crate::{
        key::Key,
        store::{Store as _, Version},
    };

    fn filled(folder: &tempfile::TempDir) -> LsmStore {
        let (mut store, note) = LsmStore::open(&folder.path().join("store")).unwrap();
        assert_eq!(note, None);
        let version = Version { slot: 1, index: 0 };
        for number in 0..3000_u32 {
            let key = number.to_be_bytes();
            let value = vec![number as u8; if number % 3 == 0 { 2000 } else { 20 }];
            store.put(Key::new(&key).unwrap(), &value, version, None);
        }
        store.commit(Slot(9), &[]);
        store.persist().unwrap();
        let tree = store.tree.clone().unwrap();
        tree.start_tables().unwrap();
        while !tree.has_tables().unwrap() {
            thread::sleep(Duration::from_millis(1));
        }
        store
    }

    fn scrubbed(store: &mut LsmStore) -> (u64, Vec<String>) {
        store.start_scrub(1 << 40);
        let (mut bytes, mut damaged) = (0, Vec::new());
        loop {
            let part = store.take_scrubbed();
            bytes += part.bytes;
            damaged.extend(part.damaged);
            if !part.goes_on {
                return (bytes, damaged);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A scrub reads every file and reports a damaged one, for each kind of damage.
    #[test]
    fn scrub_reads_every_file_and_names_a_damaged_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = filled(&folder);
        let files = store.tree.as_ref().unwrap().files();
        assert!(files.len() >= 2, "{files:?}");
        let all: u64 = files.iter().map(|file| fs::metadata(&file.path).unwrap().len()).sum();
        assert_eq!(scrubbed(&mut store), (all, vec![]));
        for file in &files {
            let sound = fs::read(&file.path).unwrap();
            let spoils: [&dyn Fn(&File); 3] = [
                &|open| {
                    open.write_all_at(&[!sound[sound.len() / 2]], sound.len() as u64 / 2).unwrap()
                },
                &|open| open.set_len(sound.len() as u64 / 2).unwrap(),
                &|open| open.write_all_at(&vec![0; sound.len()], 0).unwrap(),
            ];
            for spoil in spoils {
                let open = OpenOptions::new().write(true).open(&file.path).unwrap();
                spoil(&open);
                let (_, damaged) = scrubbed(&mut store);
                assert_eq!(damaged.len(), 1, "{damaged:?}");
                assert!(damaged[0].starts_with(file.path.to_str().unwrap()), "{damaged:?}");
                open.set_len(sound.len() as u64).unwrap();
                open.write_all_at(&sound, 0).unwrap();
            }
            let away = folder.path().join("away");
            fs::rename(&file.path, &away).unwrap();
            let (_, damaged) = scrubbed(&mut store);
            assert!(damaged.len() == 1 && damaged[0].contains("gone"), "{damaged:?}");
            fs::rename(&away, &file.path).unwrap();
        }
        assert_eq!(scrubbed(&mut store), (all, vec![]));
        assert!(store.kept_bytes() > 0);
    }

    /// [scrub-5] A file that compaction has removed in the meantime does not count as damaged.
    #[test]
    fn file_removed_from_the_tree_is_not_damage() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = filled(&folder);
        let gone = TreeFile { path: folder.path().join("store/tables/4711"), checksum: 7 };
        store.scrub = Some(Scrub::start(vec![gone], 1 << 40).unwrap());
        let damaged = loop {
            let part = store.take_scrubbed();
            if !part.goes_on || !part.damaged.is_empty() {
                break part.damaged;
            }
        };
        assert_eq!(damaged, Vec::<String>::new());
    }

    /// [scrub-6] A slow scrub keeps its rate, and ends when its store is dropped.
    #[test]
    fn a_slow_scrub_ends_when_its_store_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = filled(&folder);
        store.start_scrub(1);
        let begun = Instant::now();
        while store.take_scrubbed().bytes == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(100));
        assert_eq!(store.take_scrubbed().bytes, 0, "one piece, and then a long pause");
        drop(store);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
