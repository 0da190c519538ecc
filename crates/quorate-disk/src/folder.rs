//! Segments as files in a folder: names, opening, making new ones. Blocking calls only.

use std::{
    fmt,
    fs::{self, File},
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, poll},
    fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstatvfs},
    io::{Errno, ReadWriteFlags, pread, pwritev2, retry_on_intr},
};

use super::{
    BLOCK, Buffer, DataFolder, Place, Segment, SegmentFile, Source, Zeros, device_time,
    files::Files,
    made,
    pace::{PIECE_BYTES, Pace},
};
use crate::{SEGMENT_NUMBER_MAX, error::DiskError};

/// The folder within a node's data folder that holds the segments.
pub const LOG_FOLDER: &str = "log";

const SUFFIX: &str = ".segment";
const TEMPORARY: &str = ".new";
/// After a kill the kernel may take a moment to end what the old process had in flight.
const LOCK_TRIES: u32 = 150;
/// Who only looks is told at once that there is nothing to be looked at now.
const LOOK_TRIES: u32 = 5;
const LOCK_TRY: Duration = Duration::from_millis(20);

/// How files of this folder may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// O_DIRECT is taken.
    pub(super) direct: bool,
    /// RWF_DSYNC is taken; else each write is followed by an fdatasync.
    pub(super) dsync: bool,
}

impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.direct, self.dsync) {
            (true, true) => "O_DIRECT writes with RWF_DSYNC",
            (false, true) => "buffered writes with RWF_DSYNC, as this file system refuses O_DIRECT",
            (true, false) => "O_DIRECT writes, each with an fdatasync, as RWF_DSYNC is refused",
            (false, false) => {
                "buffered writes, each with an fdatasync, as O_DIRECT and RWF_DSYNC are refused"
            }
        })
    }
}

/// The folder, locked while this lives.
#[derive(Debug)]
pub(super) struct Folder {
    /// The node's folder,
    data: DataFolder,
    /// and that of the segments in it.
    path: PathBuf,
    /// Holds the lock. What is in flight at a kill must end before another process may read, so
    /// whatever keeps writing keeps this open.
    handle: Arc<File>,
    abilities: Abilities,
    files: Files,
}

impl Folder {
    /// Opens, and makes if missing, the log folder below `data`.
    pub(super) fn open(data: &Path) -> Result<Self, DiskError> {
        let path = data.join(LOG_FOLDER);
        if !path.is_dir() {
            fs::create_dir_all(&path).map_err(|error| failed("create", &path, &error))?;
            sync_folder(data)?;
        }
        let handle = lock(&path, FlockOperation::NonBlockingLockExclusive, LOCK_TRIES)?;
        remove_temporaries(&path)?;
        let abilities = probe(&path)?;
        Ok(Self {
            data: DataFolder::new(data),
            path,
            handle: Arc::new(handle),
            abilities,
            files: Files::default(),
        })
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    pub(super) fn handle(&self) -> &Arc<File> {
        &self.handle
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn data(&self) -> &DataFolder {
        &self.data
    }

    pub(super) fn note_made(&mut self, segment: Segment) -> Result<(), DiskError> {
        made::write(&mut self.data, segment)
    }

    /// The file of a segment that was read or written, or is to be.
    fn opener(&self, segment: Segment) -> impl FnMut() -> Result<File, DiskError> + use<> {
        let path = self.path.join(name(segment));
        let direct = self.abilities.direct;
        move || open_file(&path, OFlags::RDWR, direct)
    }

    /// As [`super::Disk::open_ahead`].
    pub(super) fn open_ahead(&mut self, segment: Segment) -> Result<(), DiskError> {
        let open = self.opener(segment);
        self.files.open_ahead(segment, open)
    }

    /// The file of a segment that is written to. Who did not have it opened ahead may be refused.
    pub(super) fn file_for_write(&mut self, segment: Segment) -> Result<Arc<File>, DiskError> {
        if let Some(file) = self.files.for_write(segment) {
            return Ok(file);
        }
        self.open_ahead(segment)?;
        let file = self.files.for_write(segment);
        Ok(file.expect("it was opened in the line before"))
    }

    /// The file of a segment that is read.
    pub(super) fn file_for_read(&mut self, segment: Segment) -> Result<Arc<File>, DiskError> {
        let open = self.opener(segment);
        self.files.for_read(segment, open)
    }

    pub(super) fn sync(&mut self, segment: Segment) -> Result<(), DiskError> {
        let file = self.file_for_read(segment)?;
        file.sync_data()
            .map_err(|error| failed("sync", &self.path.join(name(segment)), &error))
    }

    /// What an unprivileged process may still use.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let stat = fstatvfs(&self.handle).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl Source for Folder {
    fn segments(&mut self) -> Result<Vec<SegmentFile>, DiskError> {
        list(&self.path)
    }

    fn made(&mut self) -> Result<Option<Segment>, DiskError> {
        made::read(&self.data)
    }

    fn read_now(&mut self, at: Place, buffer: &mut Buffer, bytes: usize) -> Result<(), DiskError> {
        let file = self.file_for_read(at.segment)?;
        read_exact(file.as_fd(), at, &mut buffer[..bytes])
    }
}

/// The segments of a stopped node, for looking at them only.
#[derive(Debug)]
pub struct ReadOnlyFolder {
    data: DataFolder,
    path: PathBuf,
    _lock: File,
    last: Option<(Segment, File)>,
}

impl ReadOnlyFolder {
    /// Opens the log folder below `data`. Refused while a node runs on it.
    pub fn open(data: &Path) -> Result<Self, DiskError> {
        let path = data.join(LOG_FOLDER);
        let lock = lock(&path, FlockOperation::NonBlockingLockShared, LOOK_TRIES)?;
        Ok(Self {
            data: DataFolder::new(data),
            path,
            _lock: lock,
            last: None,
        })
    }
}

impl Source for ReadOnlyFolder {
    fn segments(&mut self) -> Result<Vec<SegmentFile>, DiskError> {
        list(&self.path)
    }

    fn made(&mut self) -> Result<Option<Segment>, DiskError> {
        made::read(&self.data)
    }

    fn read_now(&mut self, at: Place, buffer: &mut Buffer, bytes: usize) -> Result<(), DiskError> {
        let file = match self.last.take() {
            Some((segment, file)) if segment == at.segment => file,
            _ => open_file(&self.path.join(name(at.segment)), OFlags::RDONLY, false)?,
        };
        let read = read_exact(file.as_fd(), at, &mut buffer[..bytes]);
        self.last = Some((at.segment, file));
        read
    }
}

pub(super) fn failed(action: &str, file: &Path, error: &io::Error) -> DiskError {
    DiskError::new(action, file.display(), error)
}

/// A segment's file name: its number, so that names sort as epochs do.
pub(super) fn name(segment: Segment) -> String {
    format!("{:016x}{SUFFIX}", segment.0)
}

fn number(name: &str) -> Option<Segment> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    let known = number < SEGMENT_NUMBER_MAX && self::name(Segment(number)) == name;
    known.then_some(Segment(number))
}

fn list(path: &Path) -> Result<Vec<SegmentFile>, DiskError> {
    let read = |error: &io::Error| failed("read", path, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| read(&error))? {
        let entry = entry.map_err(|error| read(&error))?;
        let Some(segment) = entry.file_name().to_str().and_then(number) else {
            continue;
        };
        let bytes = entry
            .metadata()
            .map_err(|error| failed("look at", &entry.path(), &error))?
            .len();
        files.push(SegmentFile {
            segment,
            bytes: bytes - bytes % BLOCK as u64,
        });
    }
    files.sort_unstable_by_key(|file| file.segment);
    Ok(files)
}

fn lock(path: &Path, how: FlockOperation, tries: u32) -> Result<File, DiskError> {
    let handle = File::open(path).map_err(|error| failed("open", path, &error))?;
    for _ in 0..tries {
        match flock(&handle, how) {
            Ok(()) => return Ok(handle),
            Err(Errno::WOULDBLOCK) => {
                let wait = LOCK_TRY.try_into().expect("milliseconds fit");
                let _ = poll(&mut [] as &mut [PollFd<'_>], Some(&wait));
            }
            Err(error) => return Err(failed("lock", path, &error.into())),
        }
    }
    let error = io::Error::new(io::ErrorKind::ResourceBusy, "another process is using it");
    Err(failed("lock", path, &error))
}

fn remove_temporaries(path: &Path) -> Result<(), DiskError> {
    let read = |error: &io::Error| failed("read", path, error);
    for entry in fs::read_dir(path).map_err(|error| read(&error))? {
        let entry = entry.map_err(|error| read(&error))?;
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.ends_with(TEMPORARY))
        {
            let file = entry.path();
            fs::remove_file(&file).map_err(|error| failed("remove", &file, &error))?;
        }
    }
    Ok(())
}

fn sync_folder(path: &Path) -> Result<(), DiskError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| failed("sync", path, &error))
}

fn open_file(path: &Path, access: OFlags, direct: bool) -> Result<File, DiskError> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let flags = if direct {
        flags | OFlags::DIRECT
    } else {
        flags
    };
    let open = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    Ok(open
        .map_err(|error| failed("open", path, &error.into()))?
        .into())
}

/// Tries both on a file of its own; a file system that takes neither is still served.
fn probe(path: &Path) -> Result<Abilities, DiskError> {
    let file = path.join(format!("probe{TEMPORARY}"));
    let create = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let mut open = open_file(&file, create, false)?;
    let block = Buffer::new(BLOCK);
    let tries = |open: &File, flags| pwritev2(open, &[IoSlice::new(&block)], 0, flags).is_ok();
    let direct = open_file(&file, OFlags::RDWR, true);
    let direct = match direct {
        Ok(direct) if tries(&direct, ReadWriteFlags::empty()) => {
            open = direct;
            true
        }
        _ => false,
    };
    let dsync = tries(&open, ReadWriteFlags::DSYNC);
    fs::remove_file(&file).map_err(|error| failed("remove", &file, &error))?;
    Ok(Abilities { direct, dsync })
}

/// Writes whole blocks and makes exactly them durable ([disk-6]).
pub(super) fn write_durably(
    file: BorrowedFd<'_>,
    at: Place,
    bytes: &[u8],
    abilities: Abilities,
) -> Result<(), DiskError> {
    let flags = if abilities.dsync {
        ReadWriteFlags::DSYNC
    } else {
        ReadWriteFlags::empty()
    };
    let slice = [IoSlice::new(bytes)];
    let done = retry_on_intr(|| pwritev2(file, &slice, at.offset, flags))
        .map_err(|error| DiskError::new("write", at, &error.into()))?;
    if done < bytes.len() {
        return Err(DiskError::short("write", at, done, bytes.len()));
    }
    if !abilities.dsync {
        let synced = retry_on_intr(|| rustix::fs::fdatasync(file));
        synced.map_err(|error| DiskError::new("sync", at, &error.into()))?;
    }
    Ok(())
}

pub(super) fn read_exact(
    file: BorrowedFd<'_>,
    at: Place,
    bytes: &mut [u8],
) -> Result<(), DiskError> {
    let wanted = bytes.len();
    let done = retry_on_intr(|| pread(file, &mut *bytes, at.offset))
        .map_err(|error| DiskError::new("read", at, &error.into()))?;
    if done < wanted {
        return Err(DiskError::short("read", at, done, wanted));
    }
    Ok(())
}

/// [disk-10] Zeros, sync, rename, sync of the folder; then the number is written down in `data`. After
/// an error there may be a segment of zeros, to be made anew; but never a number without a segment.
pub(super) fn prepare(
    (data, path, handle): (&mut DataFolder, &Path, &File),
    segment: Segment,
    bytes: u64,
    zeros: Zeros,
    abilities: Abilities,
    pace: &Pace,
) -> Result<(), DiskError> {
    let file = path.join(name(segment));
    let temporary = path.join(format!("{}{TEMPORARY}", name(segment)));
    let made = fill(&temporary, bytes, zeros, abilities, pace).and_then(|()| {
        fs::rename(&temporary, &file).map_err(|error| failed("rename to", &file, &error))?;
        let synced = handle.sync_all();
        synced.map_err(|error| failed("sync", path, &error))?;
        made::write(data, segment)
    });
    if made.is_err() {
        // Best effort: what is left over is removed at the next start.
        let _ = fs::remove_file(&temporary);
    }
    made
}

fn fill(
    file: &Path,
    bytes: u64,
    zeros: Zeros,
    abilities: Abilities,
    pace: &Pace,
) -> Result<(), DiskError> {
    let create = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let open = open_file(file, create, abilities.direct)?;
    // A full disk says so at once. A file system that cannot allocate ahead finds out as it goes.
    let reserved = match fallocate(&open, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => false,
        Err(error) => return Err(failed("allocate", file, &error.into())),
    };
    if zeros == Zeros::Written || !reserved {
        write_zeros(&open, file, bytes, pace)?;
    }
    open.sync_all()
        .map_err(|error| failed("sync", file, &error))
}

fn write_zeros(open: &File, file: &Path, bytes: u64, pace: &Pace) -> Result<(), DiskError> {
    let zeros = Buffer::new(PIECE_BYTES);
    let mut offset = 0;
    while offset < bytes {
        let left = usize::try_from(bytes - offset)
            .unwrap_or(usize::MAX)
            .min(zeros.len());
        let slice = [IoSlice::new(&zeros[..left])];
        let began = device_time();
        let done = retry_on_intr(|| pwritev2(open, &slice, offset, ReadWriteFlags::empty()))
            .map_err(|error| failed("write", file, &error.into()))?;
        if done == 0 || done % BLOCK != 0 {
            return Err(DiskError::short("write", file.display(), done, left));
        }
        offset += done as u64;
        pace.rest(
            offset,
            Duration::from_nanos(device_time().saturating_sub(began)),
        );
    }
    Ok(())
}
