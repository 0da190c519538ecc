//! File system served to the kernel. Every request is passed through to a folder, and the kernel
//! caches nothing.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::state::FaultyDisk;

/// Flag from the kernel's `asm-generic/fcntl.h`, also set for writes with `RWF_DSYNC`.
/// `OFlags::DSYNC` is `O_SYNC` on Linux.
const O_DSYNC: i32 = 0o10_000;
/// Lifetime of cached attributes. It is zero, so that the kernel requests them each time.
const NO_CACHE: Duration = Duration::ZERO;
/// Open flags with which the kernel caches no bytes, and writes to several offsets of a file
/// concurrently.
const UNCACHED_FLAGS: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// Names and types of the entries of an open folder.
type FolderEntries = Vec<(OsString, FileType)>;

pub(crate) struct FaultyTree {
    pub(crate) state: Arc<Mutex<FaultyDisk>>,
    open_folders: Mutex<BTreeMap<u64, FolderEntries>>,
}

impl FaultyTree {
    pub(crate) fn new(state: Arc<Mutex<FaultyDisk>>) -> Self {
        Self { state, open_folders: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, FaultyDisk> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folders(&self) -> MutexGuard<'_, BTreeMap<u64, FolderEntries>> {
        self.open_folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, folder: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let files = &mut self.state().files;
        let name = files.child_name(folder.0, name)?;
        fs::symlink_metadata(files.root().join(&name))?;
        let number = files.inode_of(&name);
        files.attributes_of(number)
    }

    /// Removes a file or a folder. The kernel has already checked its type.
    fn remove(&self, folder: INodeNo, name: &OsStr) -> io::Result<()> {
        let state = &mut *self.state();
        let path = state.files.child_name(folder.0, name)?;
        let path = state.files.root().join(path);
        if path.is_dir() && fs::read_dir(path)?.next().is_some() {
            return Err(rustix::io::Errno::NOTEMPTY.into());
        }
        let name = name.to_string_lossy();
        let removed = state.names.remove(&mut state.files, folder.0, &name)?;
        if let Some(number) = removed {
            state.journal.forget_file(number);
        }
        Ok(())
    }

    fn make_folder(&self, folder: INodeNo, name: &OsStr, mode: u32) -> io::Result<FileAttr> {
        let state = &mut *self.state();
        let path = state.files.child_name(folder.0, name)?;
        let full = state.files.root().join(&path);
        fs::DirBuilder::new().mode(mode).create(full)?;
        state.names.record_created(&state.files, folder.0, &name.to_string_lossy());
        let number = state.files.inode_of(&path);
        state.files.attributes_of(number)
    }

    fn set(
        &self,
        number: u64,
        mode: Option<u32>,
        size: Option<u64>,
        handle: Option<FileHandle>,
    ) -> io::Result<FileAttr> {
        let state = &mut *self.state();
        let path = state.files.path(number);
        if let Some(mode) = mode {
            fs::set_permissions(path?, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(size) = size {
            let open = match handle {
                Some(handle) => state.files.open_file(handle.0)?.file,
                None => {
                    let path = state.files.path(number)?;
                    Arc::new(File::options().read(true).write(true).open(path)?)
                }
            };
            let set = |file: &File| file.set_len(size);
            state.sizes.set(&open, number, set, size)?;
        }
        state.files.attributes_of(number)
    }

    fn create_file(&self, folder: INodeNo, name: &OsStr, mode: u32) -> io::Result<(FileAttr, u64)> {
        let state = &mut *self.state();
        let path = state.files.child_name(folder.0, name)?;
        let full = state.files.root().join(&path);
        let mut open = File::options();
        open.read(true).write(true).create(true).mode(mode);
        let new = fs::symlink_metadata(&full).is_err();
        let file = open.open(full)?;
        if new {
            state.names.record_created(&state.files, folder.0, &name.to_string_lossy());
        }
        let number = state.files.inode_of(&path);
        let handle = state.files.record_open(number, file);
        Ok((state.files.attributes_of(number)?, handle))
    }

    fn rename_file(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> io::Result<()> {
        if !flags.is_empty() {
            return Err(invalid_argument());
        }
        let state = &mut *self.state();
        let (old, new) = (from.1.to_string_lossy(), to.1.to_string_lossy());
        let replaced = state.names.rename(&mut state.files, (from.0.0, &old), (to.0.0, &new))?;
        if let Some(replaced) = replaced {
            state.journal.forget_file(replaced);
        }
        Ok(())
    }

    fn read_entries(&self, number: u64) -> io::Result<FolderEntries> {
        let path = self.state().files.path(number)?;
        let mut entries: FolderEntries =
            vec![(".".into(), FileType::Directory), ("..".into(), FileType::Directory)];
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = match entry.file_type()?.is_dir() {
                true => FileType::Directory,
                false => FileType::RegularFile,
            };
            entries.push((entry.file_name(), kind));
        }
        Ok(entries)
    }
}

fn invalid_argument() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error())
}

/// Reads `size` bytes, or fewer at the end of the file.
fn read_range(file: &File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

impl Filesystem for FaultyTree {
    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(folder, name) {
            Ok(about) => reply.entry(&NO_CACHE, &about, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let about = self.state().files.attributes_of(number.0);
        match about {
            Ok(about) => reply.attr(&NO_CACHE, &about),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.set(number.0, mode, size, handle) {
            Ok(about) => reply.attr(&NO_CACHE, &about),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        match self.make_folder(folder, name, mode) {
            Ok(about) => reply.entry(&NO_CACHE, &about, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_result(self.remove(folder, name), reply);
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_result(self.remove(folder, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        new_folder: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.rename_file((folder, name), (new_folder, new_name), flags);
        reply_result(renamed, reply);
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        // The kernel handles alignment and the end of the file, since it knows the flags with which
        // the file was opened.
        let opened = state.files.path(number.0).and_then(|path| {
            let open = File::options().read(true).write(true).open(path)?;
            Ok(state.files.record_open(number.0, open))
        });
        match opened {
            Ok(handle) => reply.opened(FileHandle(handle), UNCACHED_FLAGS),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(folder, name, mode) {
            Ok((about, handle)) => {
                reply.created(&NO_CACHE, &about, Generation(0), FileHandle(handle), UNCACHED_FLAGS);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = self.state().files.open_file(handle.0);
        match open.and_then(|open| read_range(&open.file, offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let durable = flags.0 & O_DSYNC != 0;
        match state.files.open_file(handle.0) {
            Ok(open) => state.write(&open.file, open.inode, offset, bytes, durable, reply),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.state().flush(number.0, reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.state().files.record_close(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.read_entries(number.0) {
            Ok(entries) => {
                let mut folders = self.folders();
                let handle = folders.last_key_value().map_or(1, |(last, _)| last + 1);
                folders.insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let folders = self.folders();
        let entries = folders.get(&handle.0).into_iter().flatten();
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (name, kind)) in (1..).zip(entries).skip(skipped) {
            if reply.add(number, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders().remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.state().flush_names(number.0, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match statvfs(self.state().files.root()) {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                u32::try_from(found.f_bsize).unwrap_or(4096),
                255,
                u32::try_from(found.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(io::Error::from(error).into()),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let state = &mut *self.state();
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = state.files.open_file(handle.0).and_then(|open| {
            let old = open.file.metadata()?.len();
            let new = match flags.contains(FallocateFlags::KEEP_SIZE) {
                true => old,
                false => old.max(offset + length),
            };
            let set = |file: &File| Ok(fallocate(file, flags, offset, length)?);
            state.sizes.set(&open.file, open.inode, set, new)
        });
        reply_result(done, reply);
    }
}

fn reply_result(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}
