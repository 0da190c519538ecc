//! Makes a ring as good as this kernel and its limits allow, and finds out whether it works.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use io_uring::{IoUring, Probe, opcode};

use super::super::{Buffer, OPERATIONS_MAX, event::Event, folder::Folder};

/// As many as a log of the usual depth has at a time: in flight, gathering, and one to spare.
const REGISTERED: u16 = 4;
/// Size of a registered buffer: the largest ordinary batch.
const REGISTERED_BYTES: usize = 1 << 20;
/// More than operations, so that a submission queue is never full.
const ENTRIES: u32 = 32;
const _: () = assert!(OPERATIONS_MAX < ENTRIES as usize);

/// A ring that was never used yet.
pub(crate) struct Parts {
    pub(super) ring: IoUring,
    pub(super) registered: Vec<Buffer>,
    pub(super) event: Arc<Event>,
    pub(super) shape: String,
}

pub(super) fn open(folder: &Folder) -> io::Result<Parts> {
    let (ring, single) = build()?;
    let submitter = ring.submitter();
    let mut probe = Probe::new();
    submitter.register_probe(&mut probe)?;
    let needed = [
        opcode::Write::CODE,
        opcode::WriteFixed::CODE,
        opcode::Read::CODE,
    ];
    if !needed.into_iter().all(|code| probe.is_supported(code)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel lacks an operation",
        ));
    }
    let event = Arc::new(Event::new()?);
    submitter.register_eventfd(event.as_fd().as_raw_fd())?;
    // Not for its use but for its life: the kernel keeps registered files open until nothing of
    // this ring is in flight any more, and with the folder goes its lock. So no other process reads
    // a segment while a write of this one, killed, is still on its way.
    submitter.register_files(&[folder.handle().as_raw_fd()])?;
    let registered = register_buffers(&ring);
    let issuer = if single { "single issuer" } else { "plain" };
    let buffers = match &registered {
        Ok(buffers) => format!("{} registered buffers", buffers.len()),
        Err(error) => format!("no registered buffers: {error}"),
    };
    let shape = format!("{issuer}, {buffers}");
    Ok(Parts {
        ring,
        registered: registered.unwrap_or_default(),
        event,
        shape,
    })
}

/// Single issuer with deferred work is best; older kernels get a plain ring.
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

/// Fails if the process may not lock so much memory; the ring works without.
fn register_buffers(ring: &IoUring) -> io::Result<Vec<Buffer>> {
    let mut buffers: Vec<_> = (0..REGISTERED)
        .map(|_| Buffer::new(REGISTERED_BYTES))
        .collect();
    let vector = |buffer: &mut Buffer| libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let vectors: Vec<_> = buffers.iter_mut().map(vector).collect();
    // SAFETY: the memory is valid now, and the kernel pins its pages. A buffer that is dropped
    // early only means that the kernel keeps pages that nobody uses: an index is used solely
    // together with the very buffer that carries it.
    unsafe { ring.submitter().register_buffers(&vectors)? };
    for (index, buffer) in (0..).zip(&mut buffers) {
        buffer.register(index);
    }
    Ok(buffers)
}
