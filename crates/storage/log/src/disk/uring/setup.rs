//! Creates the best io_uring ring that the kernel and its limits permit, and checks that it works.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use io_uring::{IoUring, Probe, opcode};

use crate::disk::{Buffers, OPERATIONS_MAX, buffer::Pool, event::Event, folder::Folder};

/// Size of the submission queue. It exceeds the maximum number of operations, so the queue is never
/// full.
const ENTRIES: u32 = 64;
const _: () = assert!(OPERATIONS_MAX < ENTRIES as usize);

/// A ring that has not been used yet, with its event.
pub(crate) struct Parts {
    pub(super) ring: IoUring,
    /// Readable while there are completions.
    pub(crate) event: Arc<Event>,
    pub(super) description: String,
}

/// Describes the ring that a node would get with `buffers`, in any folder. Fails if io_uring is
/// unavailable or lacks an operation.
pub fn describe_available(buffers: Buffers) -> io::Result<String> {
    let (ring, single) = create_checked_ring()?;
    let mut pool = Pool::new(buffers);
    let registered = register_buffers(&ring, &mut pool);
    Ok(describe(single, buffers, &registered))
}

pub(super) fn open(folder: &Folder, buffers: Buffers) -> io::Result<(Parts, Pool)> {
    let (ring, single) = create_checked_ring()?;
    let submitter = ring.submitter();
    let event = Arc::new(Event::new()?);
    submitter.register_eventfd(event.as_fd().as_raw_fd())?;
    // Registering the folders ties their locks to the ring. The kernel keeps registered files open,
    // and with a folder its lock, until no operation of this ring is in flight. Therefore no other
    // process can read a file while a write of this process, once killed, is still in flight.
    let homes = folder.homes().iter().map(|home| home.handle().as_raw_fd());
    submitter.register_files(&homes.collect::<Vec<_>>())?;
    let mut pool = Pool::new(buffers);
    let registered = register_buffers(&ring, &mut pool);
    let shape = describe(single, buffers, &registered);
    Ok((Parts { ring, event, description: shape }, pool))
}

fn describe(single: bool, buffers: Buffers, registered: &io::Result<()>) -> String {
    let issuer = if single { "single issuer" } else { "plain" };
    match registered {
        Ok(()) => format!("{issuer}, {} registered buffers", buffers.preallocated_count),
        Err(error) => format!("{issuer}, no registered buffers: {error}"),
    }
}

/// Returns a ring that supports all required operations, and whether it is of the best kind.
fn create_checked_ring() -> io::Result<(IoUring, bool)> {
    let (ring, single) = build()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed =
        [opcode::Write::CODE, opcode::WriteFixed::CODE, opcode::Read::CODE, opcode::Fsync::CODE];
    if needed.into_iter().all(|code| probe.is_supported(code)) {
        return Ok((ring, single));
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel lacks an operation"))
}

/// Creates a single-issuer ring with deferred work, or a plain ring on older kernels.
fn build() -> io::Result<(IoUring, bool)> {
    let single = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_r_disabled()
        .build(ENTRIES);
    match single {
        Ok(ring) => Ok((ring, true)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok((IoUring::builder().setup_r_disabled().build(ENTRIES)?, false))
        }
        Err(error) => Err(error),
    }
}

/// Registers the pool's buffers. Fails if the process may not lock that much memory. The ring works
/// without registered buffers.
fn register_buffers(ring: &IoUring, pool: &mut Pool) -> io::Result<()> {
    let vector = |bytes: &mut [u8]| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let vectors: Vec<_> = pool.all_buffers_mut().map(vector).collect();
    // SAFETY: the memory is valid now, and the kernel pins its pages. If a buffer is dropped early,
    // the kernel merely retains unused pages, because an index is used only together with the very
    // buffer that carries it.
    unsafe { ring.submitter().register_buffers(&vectors)? };
    pool.register();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DriverChoice, FileSystemFeatures};

    /// `describe_available` describes the same ring that a folder then gets.
    #[test]
    fn available_describes_the_ring_that_a_folder_gets() {
        let folder = tempfile::tempdir().unwrap();
        let abilities = FileSystemFeatures::of(folder.path()).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "it is clean");
        let opened = crate::disk::open(folder.path(), DriverChoice::Uring);
        match describe_available(Buffers::default()) {
            Ok(shape) if abilities.has_direct_io && abilities.has_dsync => {
                let (_, reason) = opened.unwrap();
                assert!(reason.contains(&shape), "{shape}: {reason}");
            }
            available => assert!(opened.is_err(), "{available:?} {abilities:?}"),
        }
        assert!(FileSystemFeatures::of(&folder.path().join("nowhere")).is_err());
    }
}
