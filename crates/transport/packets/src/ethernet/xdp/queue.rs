//! One queue of an interface: a socket, its rings, and where each chunk is.
//!
//! A chunk that is to be filled is in the fill ring, then with the kernel, then in the receive
//! ring, and goes back to the fill ring when its frame was read. One to be sent is here, then in
//! the send ring, then with the kernel, then in the completion ring. There are as many places in
//! each ring as chunks that can be in it.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use super::{
    shared::{Chunks, Ring},
    system::{self, Copies, Which},
};
use crate::ethernet::frame::ETHERNET_BYTES;

/// Bytes that the kernel reserves before each arriving frame.
const HEADROOM_BYTES: usize = 256;
/// The shortest chunk that the kernel takes, and the longest, a page.
const CHUNK_BYTES_MIN: usize = 2048;
const CHUNK_BYTES_MAX: usize = 4096;
/// Frames that may be on their way out.
const SENDING: u32 = 1024;
/// Frames that wait, at least and at most.
const WAITING_MIN: usize = 64;
const WAITING_MAX: usize = 4096;
/// Frames that one call sends in copy mode.
const SENT_AT_ONCE: usize = 32;

/// Returns whether a frame of this MTU fits a chunk.
pub(crate) const fn fits(mtu: usize) -> bool {
    ETHERNET_BYTES + mtu <= CHUNK_BYTES_MAX - HEADROOM_BYTES
}

/// Bytes of chunks for frames of this MTU, which fits.
const fn chunk_bytes(mtu: usize) -> usize {
    if ETHERNET_BYTES + mtu <= CHUNK_BYTES_MIN - HEADROOM_BYTES {
        CHUNK_BYTES_MIN
    } else {
        CHUNK_BYTES_MAX
    }
}

/// A bound socket.
pub(crate) struct Queue {
    socket: OwnedFd,
    chunks: Chunks,
    fill: Ring<u64>,
    arrived: Ring<libc::xdp_desc>,
    sending: Ring<libc::xdp_desc>,
    sent: Ring<u64>,
    /// Free chunks for sending.
    free: Vec<u64>,
    /// The kernel took less than all that was written.
    rest: bool,
}

impl Queue {
    /// For this queue, with room for about so many bytes that wait. Nothing arrives before a
    /// program says so.
    pub(crate) fn bind(
        interface: u32,
        queue: u32,
        mtu: usize,
        receive_bytes: usize,
        copies: Copies,
    ) -> io::Result<Self> {
        let bytes = chunk_bytes(mtu);
        let waiting = (receive_bytes / bytes).clamp(WAITING_MIN, WAITING_MAX);
        // Down to a power of two.
        let waiting = 1_u32 << waiting.ilog2();
        let chunks = Chunks::new((waiting + SENDING) as usize, bytes)?;
        let socket = system::open()?;
        let fd = socket.as_fd();
        system::register(fd, &chunks, u32::try_from(bytes).map_err(io::Error::other)?)?;
        let places = |which| match which {
            Which::Receive | Which::Fill => waiting,
            Which::Send | Which::Completion => SENDING,
        };
        for which in [Which::Fill, Which::Completion, Which::Receive, Which::Send] {
            system::set_ring(fd, which, places(which))?;
        }
        let offsets = system::offsets(fd)?;
        let mut fill = ring(fd, Which::Fill, &offsets, waiting)?;
        for chunk in 0..waiting {
            fill.write(u64::from(chunk) * bytes as u64);
        }
        fill.publish();
        let arrived = ring(fd, Which::Receive, &offsets, waiting)?;
        let sending = ring(fd, Which::Send, &offsets, SENDING)?;
        let sent = ring(fd, Which::Completion, &offsets, SENDING)?;
        system::bind(fd, interface, queue, copies)?;
        let free = waiting..waiting + SENDING;
        Ok(Self {
            free: free.map(|chunk| u64::from(chunk) * bytes as u64).collect(),
            socket,
            chunks,
            fill,
            arrived,
            sending,
            sent,
            rest: false,
        })
    }

    /// Frames that found no room until now.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        system::lost(self.socket.as_fd())
    }

    /// Takes what arrived, so many frames at most; `None`: what the kernel says of a frame cannot
    /// be. How many.
    pub(crate) fn receive(&mut self, most: usize, mut take: impl FnMut(Option<&[u8]>)) -> usize {
        let mut count = 0;
        while count < most
            && let Some(frame) = self.arrived.read()
        {
            count += 1;
            take(self.chunks.bytes(frame.addr, frame.len));
            // A chunk that there is not would be lost; the kernel refuses it, and names none in
            // health.
            if let Some(chunk) = self.chunks.chunk_of(frame.addr)
                && self.fill.room() > 0
            {
                self.fill.write(chunk);
            }
        }
        if count > 0 {
            self.arrived.release();
            self.fill.publish();
            if self.fill.wants_a_call() {
                system::wake_to_receive(self.socket.as_fd());
            }
        }
        count
    }

    /// Takes back chunks whose frames have left.
    fn reclaim(&mut self) {
        let mut any = false;
        while let Some(address) = self.sent.read() {
            any = true;
            // More than there are would be one chunk twice.
            if self.free.len() < SENDING as usize {
                self.free.extend(self.chunks.chunk_of(address));
            }
        }
        if any {
            self.sent.release();
        }
    }

    /// Sends frames, each of two parts, as long as there is room: how many the kernel took or keeps
    /// to send.
    pub(crate) fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; 2]>,
    ) -> Result<usize, Errno> {
        self.reclaim();
        let (mut count, mut unsaid) = (0, 0);
        for [head, tail] in frames {
            if self.sending.room() == 0 {
                break;
            }
            let Some(address) = self.free.pop() else {
                break;
            };
            let length = u32::try_from(head.len() + tail.len()).map_err(|_| Errno::MSGSIZE)?;
            let Some(bytes) = self.chunks.bytes_mut(address, length) else {
                self.free.push(address);
                return Err(Errno::MSGSIZE);
            };
            let (first, second) = bytes.split_at_mut(head.len());
            first.copy_from_slice(head);
            second.copy_from_slice(tail);
            self.sending.write(libc::xdp_desc { addr: address, len: length, options: 0 });
            count += 1;
            unsaid += 1;
            if unsaid == SENT_AT_ONCE {
                unsaid = 0;
                self.wake()?;
            }
        }
        if unsaid > 0 {
            self.wake()?;
        }
        Ok(count)
    }

    /// Sends frames that the kernel had no space for earlier.
    pub(crate) fn send_rest(&mut self) {
        if self.rest {
            // An interface that is down tells who sends.
            let _ = self.wake();
        }
    }

    /// Hands written frames to the kernel.
    fn wake(&mut self) -> Result<(), Errno> {
        self.sending.publish();
        self.rest = false;
        if !self.sending.wants_a_call() {
            return Ok(());
        }
        match system::wake_to_send(self.socket.as_fd()) {
            Ok(()) => Ok(()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                // The device has no room, or the kernel has more to do: what is in the ring leaves
                // with the next call.
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => {
                    self.rest = true;
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

fn ring<T: super::shared::Entry>(
    socket: BorrowedFd<'_>,
    which: Which,
    offsets: &impl Fn(Which) -> super::shared::Offsets,
    places: u32,
) -> io::Result<Ring<T>> {
    Ring::map(socket, which.at(), offsets(which), places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_any_mtu_that_fits_has_room_in_its_chunk() {
        for mtu in [68, 1500, 1778, 1779, 3498, 3826] {
            assert!(fits(mtu), "{mtu}");
            assert!(chunk_bytes(mtu) >= HEADROOM_BYTES + ETHERNET_BYTES + mtu, "{mtu}");
        }
        assert_eq!(chunk_bytes(1500), 2048);
        assert!(!fits(3827) && !fits(9000));
    }
}
