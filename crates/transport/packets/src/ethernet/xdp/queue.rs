//! One queue of an interface: a socket, its rings, and the state of each chunk.
//!
//! A chunk for receiving is in the fill ring, then owned by the kernel, then in the receive ring,
//! and returns to the fill ring once its frame has been read. A chunk for sending is free, then in
//! the send ring, then owned by the kernel, then in the completion ring. Each ring has as many
//! places as there are chunks that can be in it.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use super::{
    shared::{ChunkMemory, SharedRing},
    system::{self, CopyMode, RingKind},
};
use crate::ethernet::frame::ETHERNET_BYTES;

/// Number of bytes that the kernel reserves before each received frame.
const HEADROOM_BYTES: usize = 256;
/// Minimum size of a chunk that the kernel accepts, in bytes.
const CHUNK_BYTES_MIN: usize = 2048;
/// Maximum size of a chunk that the kernel accepts, in bytes: a page.
const CHUNK_BYTES_MAX: usize = 4096;
/// Maximum number of frames in the send ring or being sent.
const SEND_FRAMES_MAX: u32 = 1024;
/// Minimum number of chunks for frames that wait to be received.
const RECEIVE_CHUNKS_MIN: usize = 64;
/// Maximum number of chunks for frames that wait to be received.
const RECEIVE_CHUNKS_MAX: usize = 4096;
/// Number of frames that one call sends in copy mode.
const FRAMES_PER_SEND_CALL: usize = 32;

/// Returns whether frames of `mtu` bytes fit into a chunk.
pub(crate) const fn fits_chunk(mtu: usize) -> bool {
    ETHERNET_BYTES + mtu <= CHUNK_BYTES_MAX - HEADROOM_BYTES
}

/// Returns the size of chunks for frames of `mtu` bytes, which must fit.
const fn chunk_bytes_for(mtu: usize) -> usize {
    if ETHERNET_BYTES + mtu <= CHUNK_BYTES_MIN - HEADROOM_BYTES {
        CHUNK_BYTES_MIN
    } else {
        CHUNK_BYTES_MAX
    }
}

/// An AF_XDP socket bound to a queue, with its rings.
pub(crate) struct Queue {
    socket: OwnedFd,
    chunks: ChunkMemory,
    fill_ring: SharedRing<u64>,
    receive_ring: SharedRing<libc::xdp_desc>,
    send_ring: SharedRing<libc::xdp_desc>,
    completion_ring: SharedRing<u64>,
    free_chunks: Vec<u64>,
    /// Set if the kernel accepted only some of the frames in the send ring.
    has_unsent: bool,
}

impl Queue {
    /// Binds a socket to a queue, with space for about `receive_bytes` of waiting frames. No frames
    /// arrive until a program directs them to the socket.
    pub(crate) fn bind(
        interface: u32,
        queue: u32,
        mtu: usize,
        receive_bytes: usize,
        copies: CopyMode,
    ) -> io::Result<Self> {
        let bytes = chunk_bytes_for(mtu);
        let waiting = (receive_bytes / bytes).clamp(RECEIVE_CHUNKS_MIN, RECEIVE_CHUNKS_MAX);
        // The number of frames is rounded down to a power of two.
        let waiting = 1_u32 << waiting.ilog2();
        let chunks = ChunkMemory::new((waiting + SEND_FRAMES_MAX) as usize, bytes)?;
        let socket = system::open()?;
        let fd = socket.as_fd();
        system::register_memory(fd, &chunks, u32::try_from(bytes).map_err(io::Error::other)?)?;
        let places = |which| match which {
            RingKind::Receive | RingKind::Fill => waiting,
            RingKind::Send | RingKind::Completion => SEND_FRAMES_MAX,
        };
        for which in [RingKind::Fill, RingKind::Completion, RingKind::Receive, RingKind::Send] {
            system::set_ring(fd, which, places(which))?;
        }
        let offsets = system::ring_offsets(fd)?;
        let mut fill = map_ring(fd, RingKind::Fill, &offsets, waiting)?;
        for chunk in 0..waiting {
            fill.write(u64::from(chunk) * bytes as u64);
        }
        fill.publish_written();
        let arrived = map_ring(fd, RingKind::Receive, &offsets, waiting)?;
        let sending = map_ring(fd, RingKind::Send, &offsets, SEND_FRAMES_MAX)?;
        let sent = map_ring(fd, RingKind::Completion, &offsets, SEND_FRAMES_MAX)?;
        system::bind(fd, interface, queue, copies)?;
        let free = waiting..waiting + SEND_FRAMES_MAX;
        Ok(Self {
            free_chunks: free.map(|chunk| u64::from(chunk) * bytes as u64).collect(),
            socket,
            chunks,
            fill_ring: fill,
            receive_ring: arrived,
            send_ring: sending,
            completion_ring: sent,
            has_unsent: false,
        })
    }

    pub(crate) fn lost(&self) -> io::Result<u64> {
        system::lost(self.socket.as_fd())
    }

    /// Receives up to `most` frames, and passes each to `take`. A frame with an invalid description
    /// is passed as `None`. Returns the number of frames.
    pub(crate) fn receive(&mut self, most: usize, mut take: impl FnMut(Option<&[u8]>)) -> usize {
        let mut count = 0;
        while count < most
            && let Some(frame) = self.receive_ring.read()
        {
            count += 1;
            take(self.chunks.bytes(frame.addr, frame.len));
            // A chunk with an invalid address is lost, because the kernel would refuse it. This
            // never happens on a healthy system.
            if let Some(chunk) = self.chunks.chunk_of(frame.addr)
                && self.fill_ring.free_places() > 0
            {
                self.fill_ring.write(chunk);
            }
        }
        if count > 0 {
            self.receive_ring.release_read();
            self.fill_ring.publish_written();
            if self.fill_ring.needs_wakeup() {
                system::wake_to_receive(self.socket.as_fd());
            }
        }
        count
    }

    /// Reclaims chunks whose frames have been sent.
    fn reclaim_sent(&mut self) {
        let mut any = false;
        while let Some(address) = self.completion_ring.read() {
            any = true;
            // More chunks than are used for sending would mean that one was returned twice.
            if self.free_chunks.len() < SEND_FRAMES_MAX as usize {
                self.free_chunks.extend(self.chunks.chunk_of(address));
            }
        }
        if any {
            self.completion_ring.release_read();
        }
    }

    /// Sends frames, each consisting of two slices, while there is space. Returns how many the
    /// kernel accepted.
    pub(crate) fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; 2]>,
    ) -> Result<usize, Errno> {
        self.reclaim_sent();
        let (mut count, mut unsaid) = (0, 0);
        for [head, tail] in frames {
            if self.send_ring.free_places() == 0 {
                break;
            }
            let Some(address) = self.free_chunks.pop() else {
                break;
            };
            let length = u32::try_from(head.len() + tail.len()).map_err(|_| Errno::MSGSIZE)?;
            let Some(bytes) = self.chunks.bytes_mut(address, length) else {
                self.free_chunks.push(address);
                return Err(Errno::MSGSIZE);
            };
            let (first, second) = bytes.split_at_mut(head.len());
            first.copy_from_slice(head);
            second.copy_from_slice(tail);
            self.send_ring.write(libc::xdp_desc { addr: address, len: length, options: 0 });
            count += 1;
            unsaid += 1;
            if unsaid == FRAMES_PER_SEND_CALL {
                unsaid = 0;
                self.wake_kernel()?;
            }
        }
        if unsaid > 0 {
            self.wake_kernel()?;
        }
        Ok(count)
    }

    /// Sends frames for which the kernel had no space earlier.
    pub(crate) fn send_unsent(&mut self) {
        if self.has_unsent {
            // If the interface is down, the next caller of `send` gets the error.
            let _ = self.wake_kernel();
        }
    }

    /// Passes written frames to the kernel.
    fn wake_kernel(&mut self) -> Result<(), Errno> {
        self.send_ring.publish_written();
        self.has_unsent = false;
        if !self.send_ring.needs_wakeup() {
            return Ok(());
        }
        match system::wake_to_send(self.socket.as_fd()) {
            Ok(()) => Ok(()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                // The device has no space, or the kernel has more work to do. The frames in the
                // ring are sent with the next call.
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => {
                    self.has_unsent = true;
                    Ok(())
                }
                Some(error) => Err(error),
                None => Err(Errno::IO),
            },
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn map_ring<T: super::shared::RingEntry>(
    socket: BorrowedFd<'_>,
    which: RingKind,
    offsets: &impl Fn(RingKind) -> super::shared::RingOffsets,
    places: u32,
) -> io::Result<SharedRing<T>> {
    SharedRing::map(socket, which.map_offset(), offsets(which), places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_of_any_supported_mtu_fits_its_chunk() {
        for mtu in [68, 1500, 1778, 1779, 3498, 3826] {
            assert!(fits_chunk(mtu), "{mtu}");
            assert!(chunk_bytes_for(mtu) >= HEADROOM_BYTES + ETHERNET_BYTES + mtu, "{mtu}");
        }
        assert_eq!(chunk_bytes_for(1500), 2048);
        assert!(!fits_chunk(3827) && !fits_chunk(9000));
    }
}
