//! System calls for AF_XDP sockets: options, addresses, and wake-ups of the kernel.
//!
//! The rest of the crate may rely on this: each function here is safe for all arguments, except
//! that [`register_memory`] passes memory to the kernel, which its caller must keep mapped.
#![allow(unsafe_code, reason = "rustix has neither all options nor the rings of these sockets")]

use std::{io, mem::zeroed, ptr};

use libc::{
    c_int, c_void, sockaddr_xdp, socklen_t, xdp_mmap_offsets, xdp_options, xdp_statistics,
    xdp_umem_reg,
};
use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::shared::{ChunkMemory, RingOffsets};

/// `AF_XDP`, with the width of its field.
const FAMILY: u16 = 44;
const _: () = assert!(FAMILY as c_int == libc::AF_XDP);

/// Choice between copies by the kernel and direct access by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMode {
    KernelCopies,
    /// The device accesses the chunks directly.
    DeviceAccess,
}

/// One of the rings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    Receive,
    Send,
    Fill,
    Completion,
}

impl RingKind {
    const fn option(self) -> c_int {
        match self {
            Self::Receive => libc::XDP_RX_RING,
            Self::Send => libc::XDP_TX_RING,
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }

    /// Returns the offset at which the ring can be mapped.
    pub(crate) const fn map_offset(self) -> u64 {
        match self {
            Self::Receive => libc::XDP_PGOFF_RX_RING.cast_unsigned(),
            Self::Send => libc::XDP_PGOFF_TX_RING.cast_unsigned(),
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
        }
    }
}

/// Structures of linux/if_xdp.h that consist of numbers without pointers, so that any bytes are
/// valid.
trait PlainStruct: Copy {}
impl PlainStruct for u32 {}
impl PlainStruct for xdp_mmap_offsets {}
impl PlainStruct for xdp_options {}
impl PlainStruct for xdp_statistics {}

#[allow(clippy::cast_possible_truncation, reason = "less than 200 bytes")]
const fn length_of<T>() -> socklen_t {
    assert!(size_of::<T>() < 200);
    size_of::<T>() as socklen_t
}

fn check_result(answer: c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get<T: PlainStruct>(socket: BorrowedFd<'_>, option: c_int) -> io::Result<T> {
    // SAFETY: zeros are a valid `PlainStruct`.
    let mut value: T = unsafe { zeroed() };
    let mut length = length_of::<T>();
    // SAFETY: the kernel writes at most `length` bytes at `value`, a whole `T`, and their number at
    // `length`. Both outlive the call. If it writes less, zeros remain, which are a valid `T`.
    check_result(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            ptr::from_mut(&mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Opens an unbound socket.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no argument is a pointer.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel created this descriptor for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers chunks as the memory for the socket's frames. The kernel pins the pages, so it never
/// writes elsewhere, even if the mapping is removed. Received frames are visible only through the
/// mapping, however.
pub(crate) fn register_memory(
    socket: BorrowedFd<'_>,
    chunks: &ChunkMemory,
    chunk_bytes: u32,
) -> io::Result<()> {
    let (first, bytes) = chunks.memory_range();
    let request = xdp_umem_reg {
        addr: first as u64,
        len: bytes as u64,
        chunk_size: chunk_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    // SAFETY: the kernel reads a whole structure. The memory that it names is a separate mapping
    // that is used only through `ChunkMemory`, whose callers do not access chunks that the kernel
    // owns.
    check_result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_UMEM_REG,
            ptr::from_ref(&request).cast(),
            length_of::<xdp_umem_reg>(),
        )
    })
}

/// Creates one of the socket's rings with space for `places` entries.
pub(crate) fn set_ring(socket: BorrowedFd<'_>, which: RingKind, places: u32) -> io::Result<()> {
    // SAFETY: the kernel reads a number of four bytes that outlives the call.
    check_result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            which.option(),
            ptr::from_ref(&places).cast(),
            length_of::<u32>(),
        )
    })
}

/// Returns a function that gives the offsets of the parts of each ring.
pub(crate) fn ring_offsets(
    socket: BorrowedFd<'_>,
) -> io::Result<impl Fn(RingKind) -> RingOffsets + use<>> {
    let all: xdp_mmap_offsets = get(socket, libc::XDP_MMAP_OFFSETS)?;
    // A valid offset of a ring's words is below a page, so its sum with a ring's size does not
    // overflow.
    let small = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(1 << 16);
    Ok(move |which| {
        let ring = match which {
            RingKind::Receive => &all.rx,
            RingKind::Send => &all.tx,
            RingKind::Fill => &all.fr,
            RingKind::Completion => &all.cr,
        };
        RingOffsets {
            producer: small(ring.producer),
            consumer: small(ring.consumer),
            flags: small(ring.flags),
            entries: small(ring.desc),
        }
    })
}

/// Binds the socket to a queue of an interface.
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    copies: CopyMode,
) -> io::Result<()> {
    let flags = match copies {
        CopyMode::KernelCopies => libc::XDP_COPY,
        CopyMode::DeviceAccess => libc::XDP_ZEROCOPY,
    };
    let address = sockaddr_xdp {
        sxdp_family: FAMILY,
        sxdp_flags: flags | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the kernel reads a whole address of this family.
    check_result(unsafe {
        libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length_of::<sockaddr_xdp>())
    })
}

/// Returns the number of frames lost for lack of space or of a chunk.
pub(crate) fn lost(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let counts: xdp_statistics = get(socket, libc::XDP_STATISTICS)?;
    // A frame without a chunk is counted as dropped, too.
    Ok(counts.rx_dropped.saturating_add(counts.rx_ring_full))
}

/// Wakes the kernel to send the frames in the ring. One call sends a few dozen.
pub(crate) fn wake_to_send(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (none, flags) = (ptr::null::<c_void>(), libc::MSG_DONTWAIT);
    // SAFETY: the call passes no bytes and no address.
    let sent = unsafe { libc::sendto(socket.as_raw_fd(), none, 0, flags, ptr::null(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Wakes the kernel to receive into the chunks in the fill ring.
pub(crate) fn wake_to_receive(socket: BorrowedFd<'_>) {
    let (none, flags) = (ptr::null_mut::<c_void>(), libc::MSG_DONTWAIT);
    let (from, length) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call passes no space for bytes or an address, so nothing is written.
    let _ = unsafe { libc::recvfrom(socket.as_raw_fd(), none, 0, flags, from, length) };
}
