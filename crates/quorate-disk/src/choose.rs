//! Which driver serves a folder, and why.

use std::{fmt, io, os::fd::BorrowedFd, path::Path, time::Duration};

use crate::{
    Buffer, Buffers, Completed, Disk, DiskCounters, DiskError, Durability, Family, FileId,
    FileInfo, Position, Source, Zeros, folder::Folder, modelled::Modelled, threads::Threads,
    uring::Ring,
};

/// What the operator wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// io_uring if it can be had.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    File,
}

/// Files, driven by the best that there is.
#[derive(Debug)]
pub enum FileDisk {
    /// By io_uring.
    Uring(UringDisk),
    /// By threads that block.
    Threads(ThreadDisk),
    /// By one of the others, with flushes as slow as wanted.
    Modelled(ModelledDisk),
}

/// Files driven by io_uring.
#[derive(Debug)]
pub struct UringDisk(Box<Ring>);

/// Files driven by threads.
#[derive(Debug)]
pub struct ThreadDisk(Box<Threads>);

/// Files on a device that is slower than the one there is.
#[derive(Debug)]
pub struct ModelledDisk(Box<Modelled>);

/// Opens the folders below a node's data folder, with the usual buffers. The text says which driver was
/// chosen and why.
///
/// # Errors
/// A folder cannot be opened or is in use, or the driver that is wanted cannot be had.
pub fn open(data: &Path, want: Want) -> Result<(FileDisk, String), DiskError> {
    open_with(data, want, Buffers::default())
}

/// The same with as much memory at hand as `buffers` says.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    data: &Path,
    want: Want,
    buffers: Buffers,
) -> Result<(FileDisk, String), DiskError> {
    let folder = Folder::open(data)?;
    let refused = match refusal(&folder, want) {
        Some(refused) => refused,
        None => match Ring::open(&folder, buffers) {
            Ok(parts) => {
                let ring = Ring::new(folder, parts)?;
                let reason = format!("disk: {}", ring.describe());
                return Ok((FileDisk::Uring(UringDisk(Box::new(ring))), reason));
            }
            Err(error) => format!("io_uring is not available ({error})"),
        },
    };
    if want == Want::Uring {
        let error = io::Error::new(io::ErrorKind::Unsupported, refused);
        return Err(DiskError::new("use", data.display(), &error));
    }
    let threads = Threads::open(folder, buffers)?;
    let reason = format!("disk: {}; {refused}", threads.describe());
    Ok((FileDisk::Threads(ThreadDisk(Box::new(threads))), reason))
}

/// Why io_uring is not even tried.
fn refusal(folder: &Folder, want: Want) -> Option<String> {
    let abilities = folder.abilities();
    if want == Want::File {
        return Some("threads were asked for".to_owned());
    }
    (!abilities.direct || !abilities.dsync)
        .then(|| "io_uring would only hand such writes to threads of its own".to_owned())
}

impl FileDisk {
    fn disk(&self) -> &dyn Disk {
        match self {
            Self::Uring(disk) => disk.0.as_ref(),
            Self::Threads(disk) => disk.0.as_ref(),
            Self::Modelled(disk) => disk.0.as_ref(),
        }
    }

    /// The folder of a family's files.
    pub fn path(&self, family: Family) -> &Path {
        match self {
            Self::Uring(disk) => disk.0.path(family),
            Self::Threads(disk) => disk.0.path(family),
            Self::Modelled(disk) => disk.0.inner().path(family),
        }
    }

    /// The same with flushes that take this long: for measurements. Zero changes nothing.
    pub fn with_flush(self, flush: Duration) -> Result<Self, DiskError> {
        if flush.is_zero() {
            return Ok(self);
        }
        let modelled = Modelled::new(self, flush)?;
        Ok(Self::Modelled(ModelledDisk(Box::new(modelled))))
    }
}

impl fmt::Display for FileDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.disk().describe())
    }
}

/// Calls the same on whichever driver it is.
macro_rules! either {
    ($self:ident, $disk:ident => $call:expr) => {
        match $self {
            Self::Uring($disk) => {
                let $disk = &mut $disk.0;
                $call
            }
            Self::Threads($disk) => {
                let $disk = &mut $disk.0;
                $call
            }
            Self::Modelled($disk) => {
                let $disk = &mut $disk.0;
                $call
            }
        }
    };
}

impl Source for FileDisk {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        either!(self, disk => disk.files(family))
    }

    fn made(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        either!(self, disk => disk.made(family))
    }

    fn kept(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        either!(self, disk => disk.kept(name))
    }

    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError> {
        either!(self, disk => disk.read_now(at, buffer, bytes))
    }
}

impl Disk for FileDisk {
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError> {
        either!(self, disk => disk.sync_now(file))
    }

    fn allocate(&mut self, bytes: usize) -> Buffer {
        either!(self, disk => disk.allocate(bytes))
    }

    fn release(&mut self, buffer: Buffer) {
        either!(self, disk => disk.release(buffer));
    }

    fn start_write(
        &mut self,
        token: u64,
        at: Position,
        buffer: Buffer,
        bytes: usize,
        durability: Durability,
    ) {
        either!(self, disk => disk.start_write(token, at, buffer, bytes, durability));
    }

    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize) {
        either!(self, disk => disk.start_read(token, at, buffer, bytes));
    }

    fn start_flush(&mut self, token: u64, file: FileId) {
        either!(self, disk => disk.start_flush(token, file));
    }

    fn open_ahead(&mut self, file: FileId) -> Result<(), DiskError> {
        either!(self, disk => disk.open_ahead(file))
    }

    fn note_made(&mut self, made: FileId) -> Result<(), DiskError> {
        either!(self, disk => disk.note_made(made))
    }

    fn start_prepare(&mut self, file: FileId, bytes: u64, zeros: Zeros) {
        either!(self, disk => disk.start_prepare(file, bytes, zeros));
    }

    fn want_prepared(&mut self, family: Family, bytes: u64) {
        either!(self, disk => disk.want_prepared(family, bytes));
    }

    fn hurry_prepare(&mut self, family: Family) {
        either!(self, disk => disk.hurry_prepare(family));
    }

    fn start_retire(&mut self, file: FileId) {
        either!(self, disk => disk.start_retire(file));
    }

    fn start_reuse(&mut self, from: FileId, to: FileId) {
        either!(self, disk => disk.start_reuse(from, to));
    }

    fn start_keep(&mut self, token: u64, name: &'static str, bytes: Vec<u8>) {
        either!(self, disk => disk.start_keep(token, name, bytes));
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        either!(self, disk => disk.sync_names())
    }

    fn descriptor(&mut self, file: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError> {
        either!(self, disk => disk.descriptor(file))
    }

    fn poll(&mut self) -> Option<Completed> {
        either!(self, disk => disk.poll())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.disk().wait_fd()
    }

    fn free_bytes(&self, family: Family) -> Option<u64> {
        self.disk().free_bytes(family)
    }

    fn describe(&self) -> String {
        self.disk().describe()
    }

    fn counters(&self) -> DiskCounters {
        self.disk().counters()
    }
}
