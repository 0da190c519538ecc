//! Folders of file families, and their files: naming, opening, creating, removing. All calls block.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, IoSlice},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, poll},
    fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstatvfs},
    io::{Errno, ReadWriteFlags, pread, pwritev2, retry_on_intr},
};

use crate::disk::{
    BLOCK, Buffer, DataFolder, DiskError, Durability, Family, FileId, FileInfo, Position,
    SmallFiles as _, Source, ZeroFill, create_private_folder, device_time,
    files::Files,
    made,
    pace::{PIECE_BYTES, Pace},
};

const TEMPORARY_SUFFIX: &str = ".new";
/// Number of attempts to lock a folder. After a kill, the kernel may take a moment to finish the
/// old process's operations.
const LOCK_TRIES: u32 = 150;
/// Number of attempts by a read-only user, which should fail quickly if the folder is in use.
const READ_ONLY_TRIES: u32 = 5;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Features that the file systems of all families support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemFeatures {
    pub has_direct_io: bool,
    /// RWF_DSYNC is supported. Otherwise, each write is followed by an fdatasync.
    pub has_dsync: bool,
}

impl FileSystemFeatures {
    /// Determines the features of this folder's file system by writing a block to a temporary file.
    pub fn of(folder: &Path) -> Result<Self, DiskError> {
        probe_features(folder)
    }
}

impl fmt::Display for FileSystemFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.has_direct_io, self.has_dsync) {
            (true, true) => "O_DIRECT writes with RWF_DSYNC",
            (false, true) => "buffered writes with RWF_DSYNC, as this file system refuses O_DIRECT",
            (true, false) => "O_DIRECT writes, each with an fdatasync, as RWF_DSYNC is refused",
            (false, false) => {
                "buffered writes, each with an fdatasync, as O_DIRECT and RWF_DSYNC are refused"
            }
        })
    }
}

/// The folder of one family, locked as long as any clone exists. Every thread that writes has a
/// clone: after a kill, its operations in flight must end before another process may read.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    path: PathBuf,
    handle: Arc<File>,
}

impl Home {
    fn open(data: &Path, family: Family) -> Result<Self, DiskError> {
        let path = data.join(family.folder());
        if !path.is_dir() {
            create_private_folder(&path).map_err(|error| failed("create", &path, &error))?;
            sync_folder(data)?;
        }
        let handle = lock(&path, FlockOperation::NonBlockingLockExclusive, LOCK_TRIES)?;
        remove_temporaries(&path)?;
        remove_duplicate_names(&path, family)?;
        let handle = Arc::new(handle);
        Ok(Self { path, handle })
    }

    pub(crate) fn handle(&self) -> &File {
        &self.handle
    }

    /// [disk-10] Creates a file: writes zeros, syncs, renames, syncs the folder, and then records
    /// the number in `data`. After an error there may be a file of zeros that has to be created
    /// again, but never a number without a file.
    pub(crate) fn prepare(
        &self,
        data: &mut DataFolder,
        file: FileId,
        (bytes, zeros): (u64, ZeroFill),
        abilities: FileSystemFeatures,
        pace: &Pace,
    ) -> Result<(), DiskError> {
        let path = self.path.join(file.name());
        let temporary = self.path.join(format!("{}{TEMPORARY_SUFFIX}", file.name()));
        let made = fill(&temporary, bytes, zeros, abilities, pace).and_then(|()| {
            fs::rename(&temporary, &path).map_err(|error| failed("rename to", &path, &error))?;
            self.sync()?;
            made::write(data, file)
        });
        if made.is_err() {
            // A file that cannot be removed now is removed at the next start.
            let _ = fs::remove_file(&temporary);
        }
        made
    }

    /// [disk-10] Recycles a file: renames it, syncs the folder, and then records the number in
    /// `data`.
    pub(crate) fn reuse(
        &self,
        data: &mut DataFolder,
        from: FileId,
        to: FileId,
    ) -> Result<(), DiskError> {
        let (old, new) = (self.path.join(from.name()), self.path.join(to.name()));
        match fs::rename(&old, &new) {
            // An earlier attempt completed the rename.
            Err(error) if error.kind() == io::ErrorKind::NotFound && new.exists() => {}
            renamed => renamed.map_err(|error| failed("rename to", &new, &error))?,
        }
        self.sync()?;
        made::write(data, to)
    }

    pub(crate) fn retire(&self, file: FileId) -> Result<(), DiskError> {
        let path = self.path.join(file.name());
        fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), DiskError> {
        let synced = self.handle.sync_all();
        synced.map_err(|error| failed("sync", &self.path, &error))
    }
}

/// The folders of all families, and their open files.
#[derive(Debug)]
pub(crate) struct Folder {
    data: DataFolder,
    family_folders: Vec<Home>,
    abilities: FileSystemFeatures,
    files: Files,
}

impl Folder {
    /// Opens the folders in `data`, creating them if necessary.
    pub(crate) fn open(data: &Path) -> Result<Self, DiskError> {
        let homes: Result<Vec<_>, _> =
            Family::all().map(|family| Home::open(data, family)).collect();
        let homes = homes?;
        let mut abilities = FileSystemFeatures { has_direct_io: true, has_dsync: true };
        for home in &homes {
            let found = probe_features(&home.path)?;
            abilities.has_direct_io &= found.has_direct_io;
            abilities.has_dsync &= found.has_dsync;
        }
        Ok(Self {
            data: DataFolder::new(data),
            family_folders: homes,
            abilities,
            files: Files::default(),
        })
    }

    pub(crate) fn abilities(&self) -> FileSystemFeatures {
        self.abilities
    }

    pub(crate) fn data(&self) -> &DataFolder {
        &self.data
    }

    pub(crate) fn homes(&self) -> &[Home] {
        &self.family_folders
    }

    pub(crate) fn home(&self, family: Family) -> &Home {
        &self.family_folders[family as usize]
    }

    pub(crate) fn path(&self, family: Family) -> &Path {
        &self.home(family).path
    }

    pub(crate) fn record_created(&mut self, made: FileId) -> Result<(), DiskError> {
        made::write(&mut self.data, made)
    }

    /// Returns a function that opens a file for reading and writing.
    fn file_opener(&self, file: FileId) -> impl FnMut() -> Result<File, DiskError> + use<> {
        let path = self.home(file.family).path.join(file.name());
        let direct = self.abilities.has_direct_io;
        move || open_file(&path, OFlags::RDWR, direct)
    }

    /// Implements [`crate::disk::Disk::open_next_file`].
    pub(crate) fn open_next_file(&mut self, file: FileId) -> Result<(), DiskError> {
        let open = self.file_opener(file);
        self.files.open_ahead(file, open)
    }

    /// Returns a file that is open for writing. Cannot fail if [`Self::open_next_file`] succeeded.
    pub(crate) fn file_for_write(&mut self, file: FileId) -> Result<Arc<File>, DiskError> {
        if let Some(open) = self.files.for_write(file) {
            return Ok(open);
        }
        self.open_next_file(file)?;
        let open = self.files.for_write(file);
        Ok(open.expect("it was opened in the line before"))
    }

    pub(crate) fn file_for_read(&mut self, file: FileId) -> Result<Arc<File>, DiskError> {
        let open = self.file_opener(file);
        self.files.for_read(file, open)
    }

    /// Implements [`crate::disk::Disk::descriptor`]. Opens the file separately, without O_DIRECT.
    pub(crate) fn descriptor(&mut self, file: FileId) -> Result<BorrowedFd<'_>, DiskError> {
        let path = self.home(file.family).path.join(file.name());
        let open = || open_file(&path, OFlags::RDONLY, false);
        Ok(self.files.lend_file(file, open)?.as_fd())
    }

    /// Closes a file that is being removed. Operations in flight keep it open until they complete.
    pub(crate) fn close(&mut self, file: FileId) {
        self.files.close_file(file);
    }

    pub(crate) fn sync(&mut self, file: FileId) -> Result<(), DiskError> {
        let open = self.file_for_read(file)?;
        let path = self.home(file.family).path.join(file.name());
        open.sync_data().map_err(|error| failed("sync", &path, &error))
    }

    /// Implements [`crate::disk::Disk::sync_file_names`].
    pub(crate) fn sync_file_names(&self) -> Result<(), DiskError> {
        self.family_folders.iter().try_for_each(Home::sync)?;
        self.data.sync()
    }

    /// Returns the number of bytes that an unprivileged process may still allocate.
    pub(crate) fn free_bytes(&self, family: Family) -> Option<u64> {
        let stat = fstatvfs(self.home(family).handle()).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl Source for Folder {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        list_family_files(&self.home(family).path, family)
    }

    fn newest_created(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        made::read(&self.data, family)
    }

    fn read_small_file(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.data.read(name)
    }

    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError> {
        let file = self.file_for_read(at.file)?;
        read_exact(file.as_fd(), at, &mut buffer[..bytes])
    }
}

/// The files of a stopped node, for reading only.
#[derive(Debug)]
pub struct ReadOnlyFolder {
    data: DataFolder,
    _locks: Vec<File>,
    last_read_file: Option<(FileId, File)>,
}

impl ReadOnlyFolder {
    /// Opens the folders in `data` for reading. Fails if a running node uses them.
    pub fn open(data: &Path) -> Result<Self, DiskError> {
        let mut locks = Vec::new();
        for family in Family::all() {
            let path = data.join(family.folder());
            // Folders of earlier versions lack some families, and a reader must not create them.
            if family == Family::Log || path.exists() {
                let how = FlockOperation::NonBlockingLockShared;
                locks.push(lock(&path, how, READ_ONLY_TRIES)?);
            }
        }
        Ok(Self { data: DataFolder::new(data), _locks: locks, last_read_file: None })
    }

    fn path(&self, family: Family) -> PathBuf {
        self.data.path().join(family.folder())
    }
}

impl Source for ReadOnlyFolder {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        let path = self.path(family);
        match family != Family::Log && !path.exists() {
            true => Ok(Vec::new()),
            false => list_family_files(&path, family),
        }
    }

    fn newest_created(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        made::read(&self.data, family)
    }

    fn read_small_file(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.data.read(name)
    }

    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError> {
        let file = match self.last_read_file.take() {
            Some((open, file)) if open == at.file => file,
            _ => {
                let path = self.path(at.file.family).join(at.file.name());
                open_file(&path, OFlags::RDONLY, false)?
            }
        };
        let read = read_exact(file.as_fd(), at, &mut buffer[..bytes]);
        self.last_read_file = Some((at.file, file));
        read
    }
}

pub(crate) fn failed(action: &str, file: &Path, error: &io::Error) -> DiskError {
    DiskError::new(action, file.display(), error)
}

fn list_family_files(path: &Path, family: Family) -> Result<Vec<FileInfo>, DiskError> {
    let read = |error: &io::Error| failed("read", path, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| read(&error))? {
        let entry = entry.map_err(|error| read(&error))?;
        let name = entry.file_name();
        let Some(file) = name.to_str().and_then(|name| family.parse_file_name(name)) else {
            continue;
        };
        let bytes =
            entry.metadata().map_err(|error| failed("look at", &entry.path(), &error))?.len();
        files.push(FileInfo { file, bytes: bytes - bytes % BLOCK as u64 });
    }
    files.sort_unstable_by_key(|info| info.file);
    Ok(files)
}

fn lock(path: &Path, how: FlockOperation, tries: u32) -> Result<File, DiskError> {
    let handle = File::open(path).map_err(|error| failed("open", path, &error))?;
    for _ in 0..tries {
        match flock(&handle, how) {
            Ok(()) => return Ok(handle),
            Err(Errno::WOULDBLOCK) => {
                let wait = LOCK_RETRY_INTERVAL.try_into().expect("milliseconds fit");
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
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(TEMPORARY_SUFFIX)) {
            let file = entry.path();
            fs::remove_file(&file).map_err(|error| failed("remove", &file, &error))?;
        }
    }
    Ok(())
}

/// Removes the older of two names for one file. A file system that renames in two steps may be
/// interrupted between them, and writes to the new name must not be undone through the old one.
fn remove_duplicate_names(path: &Path, family: Family) -> Result<(), DiskError> {
    let mut newest = BTreeMap::new();
    for info in list_family_files(path, family)?.into_iter().rev() {
        let name = path.join(info.file.name());
        let looked = fs::metadata(&name).map_err(|error| failed("look at", &name, &error))?;
        let inode = (looked.dev(), looked.ino());
        if looked.nlink() > 1 && newest.insert(inode, info.file).is_some() {
            fs::remove_file(&name).map_err(|error| failed("remove", &name, &error))?;
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
    let flags = if direct { flags | OFlags::DIRECT } else { flags };
    let open = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    Ok(open.map_err(|error| failed("open", path, &error.into()))?.into())
}

/// Probes both features with a temporary file. A file system that supports neither is still usable.
fn probe_features(path: &Path) -> Result<FileSystemFeatures, DiskError> {
    let file = path.join(format!("probe{TEMPORARY_SUFFIX}"));
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
    Ok(FileSystemFeatures { has_direct_io: direct, has_dsync: dsync })
}

/// Writes whole blocks. Makes exactly these blocks durable ([disk-6]), unless a later flush is to
/// do that.
pub(crate) fn write(
    file: BorrowedFd<'_>,
    at: Position,
    bytes: &[u8],
    durability: Durability,
    abilities: FileSystemFeatures,
) -> Result<(), DiskError> {
    let durable = durability == Durability::Flushed;
    let flags = if durable && abilities.has_dsync {
        ReadWriteFlags::DSYNC
    } else {
        ReadWriteFlags::empty()
    };
    let slice = [IoSlice::new(bytes)];
    let done = retry_on_intr(|| pwritev2(file, &slice, at.offset, flags))
        .map_err(|error| DiskError::new("write", at, &error.into()))?;
    if done < bytes.len() {
        return Err(DiskError::short_transfer("write", at, done, bytes.len()));
    }
    if durable && !abilities.has_dsync {
        flush(file, at)?;
    }
    Ok(())
}

pub(crate) fn flush(file: BorrowedFd<'_>, at: Position) -> Result<(), DiskError> {
    let synced = retry_on_intr(|| rustix::fs::fdatasync(file));
    synced.map_err(|error| DiskError::new("sync", at, &error.into()))
}

pub(crate) fn read_exact(
    file: BorrowedFd<'_>,
    at: Position,
    bytes: &mut [u8],
) -> Result<(), DiskError> {
    let wanted = bytes.len();
    let done = retry_on_intr(|| pread(file, &mut *bytes, at.offset))
        .map_err(|error| DiskError::new("read", at, &error.into()))?;
    if done < wanted {
        return Err(DiskError::short_transfer("read", at, done, wanted));
    }
    Ok(())
}

fn fill(
    file: &Path,
    bytes: u64,
    zeros: ZeroFill,
    abilities: FileSystemFeatures,
    pace: &Pace,
) -> Result<(), DiskError> {
    let create = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let open = open_file(file, create, abilities.has_direct_io)?;
    // Allocating detects a full disk at once. If the file system does not support it, a full disk
    // is detected while writing.
    let reserved = match fallocate(&open, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => false,
        Err(error) => return Err(failed("allocate", file, &error.into())),
    };
    if zeros == ZeroFill::Written || !reserved {
        write_zeros(&open, file, bytes, pace)?;
    }
    open.sync_all().map_err(|error| failed("sync", file, &error))
}

fn write_zeros(open: &File, file: &Path, bytes: u64, pace: &Pace) -> Result<(), DiskError> {
    let zeros = Buffer::new(PIECE_BYTES);
    let mut offset = 0;
    while offset < bytes {
        let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(zeros.len());
        let slice = [IoSlice::new(&zeros[..left])];
        let began = device_time();
        let done = retry_on_intr(|| pwritev2(open, &slice, offset, ReadWriteFlags::empty()))
            .map_err(|error| failed("write", file, &error.into()))?;
        if done == 0 || done % BLOCK != 0 {
            return Err(DiskError::short_transfer("write", file.display(), done, left));
        }
        offset += done as u64;
        pace.pause_after_write(offset, Duration::from_nanos(device_time().saturating_sub(began)));
    }
    Ok(())
}
