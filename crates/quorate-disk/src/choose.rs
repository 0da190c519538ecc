//! Which driver serves a folder, and why.

use std::{fmt, os::fd::BorrowedFd, path::Path, time::Duration};

use super::{
    Buffer, Completed, Disk, DiskCounters, Place, Segment, SegmentFile, Source, Zeros,
    file::Threads, folder::Folder, modelled::Modelled, uring::Ring,
};
use crate::error::DiskError;

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

/// Segments in files, driven by the best that there is.
#[derive(Debug)]
pub enum FileDisk {
    /// By io_uring.
    Uring(UringDisk),
    /// By threads that block.
    Threads(ThreadDisk),
    /// By one of the others, with flushes as slow as wanted.
    Modelled(ModelledDisk),
}

/// Segments driven by io_uring.
#[derive(Debug)]
pub struct UringDisk(Box<Ring>);

/// Segments driven by threads.
#[derive(Debug)]
pub struct ThreadDisk(Box<Threads>);

/// Segments on a device that is slower than the one there is.
#[derive(Debug)]
pub struct ModelledDisk(Box<Modelled>);

/// Opens the log folder below a node's data folder. The text says which driver was chosen and why.
pub fn open(data: &Path, want: Want) -> Result<(FileDisk, String), DiskError> {
    let folder = Folder::open(data)?;
    let refused = match refusal(&folder, want) {
        Some(refused) => refused,
        None => match Ring::open(&folder) {
            Ok(parts) => {
                let ring = Ring::new(folder, parts)?;
                let reason = format!("disk: {}", ring.describe());
                return Ok((FileDisk::Uring(UringDisk(Box::new(ring))), reason));
            }
            Err(error) => format!("io_uring is not available ({error})"),
        },
    };
    if want == Want::Uring {
        let error = std::io::Error::new(std::io::ErrorKind::Unsupported, refused);
        return Err(DiskError::new("use", folder.path().display(), &error));
    }
    let threads = Threads::open(folder)?;
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

    /// The folder of the segments.
    pub fn path(&self) -> &Path {
        match self {
            Self::Uring(disk) => disk.0.path(),
            Self::Threads(disk) => disk.0.path(),
            Self::Modelled(disk) => disk.0.inner().path(),
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
    fn segments(&mut self) -> Result<Vec<SegmentFile>, DiskError> {
        either!(self, disk => disk.segments())
    }

    fn made(&mut self) -> Result<Option<Segment>, DiskError> {
        either!(self, disk => disk.made())
    }

    fn read_now(&mut self, at: Place, buffer: &mut Buffer, bytes: usize) -> Result<(), DiskError> {
        either!(self, disk => disk.read_now(at, buffer, bytes))
    }
}

impl Disk for FileDisk {
    fn sync_now(&mut self, segment: Segment) -> Result<(), DiskError> {
        either!(self, disk => disk.sync_now(segment))
    }

    fn allocate(&mut self, bytes: usize) -> Buffer {
        either!(self, disk => disk.allocate(bytes))
    }

    fn release(&mut self, buffer: Buffer) {
        either!(self, disk => disk.release(buffer));
    }

    fn start_write(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        either!(self, disk => disk.start_write(token, at, buffer, bytes));
    }

    fn start_read(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        either!(self, disk => disk.start_read(token, at, buffer, bytes));
    }

    fn open_ahead(&mut self, segment: Segment) -> Result<(), DiskError> {
        either!(self, disk => disk.open_ahead(segment))
    }

    fn note_made(&mut self, made: Segment) -> Result<(), DiskError> {
        either!(self, disk => disk.note_made(made))
    }

    fn start_prepare(&mut self, segment: Segment, bytes: u64, zeros: Zeros) {
        either!(self, disk => disk.start_prepare(segment, bytes, zeros));
    }

    fn want_prepared(&mut self, bytes: u64) {
        either!(self, disk => disk.want_prepared(bytes));
    }

    fn hurry_prepare(&mut self) {
        either!(self, disk => disk.hurry_prepare());
    }

    fn poll(&mut self) -> Option<Completed> {
        either!(self, disk => disk.poll())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.disk().wait_fd()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk().free_bytes()
    }

    fn describe(&self) -> String {
        self.disk().describe()
    }

    fn counters(&self) -> DiskCounters {
        self.disk().counters()
    }
}
