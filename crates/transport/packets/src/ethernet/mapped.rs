//! The receive ring: memory that the kernel fills while this process reads it.
//!
//! The rest of the crate may rely on this: a [`ReceivedSlot`]'s bytes do not change while it
//! exists, whatever the kernel, the network or another thread does; and no memory outside the ring
//! is ever read.
#![allow(unsafe_code, reason = "memory shared with the kernel has no safe form")]

use std::{
    io,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    fd::BorrowedFd,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use crate::ethernet::{shape::RingShape, system};

/// Status bit of a slot: set if the slot belongs to this process, otherwise it belongs to the
/// kernel.
const STATUS_USER: u32 = libc::TP_STATUS_USER;
const STATUS_KERNEL: u32 = libc::TP_STATUS_KERNEL;

/// Receive ring of a socket. Slots are filled, read and released in order, over and over.
pub(crate) struct ReceiveRing {
    /// Start of the `shape.bytes()` bytes of the mapping, which is removed on drop.
    memory: NonNull<u8>,
    shape: RingShape,
    /// Index of the next slot to read.
    next: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and only this value has its address.
// Every access goes through `&mut Ring`, so two threads never access it at once. It is not `Sync`.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// Creates the receive ring of a socket and maps it. The socket must not have a ring yet, and
    /// has none if this fails.
    pub(crate) fn map(socket: BorrowedFd<'_>, shape: RingShape) -> io::Result<Self> {
        system::set_layout(socket)?;
        system::set_receive_ring(socket, shape)?;
        Self::try_map(socket, shape).inspect_err(|_| {
            let none = RingShape { blocks: 0, ..shape };
            // If the socket keeps its ring, the next attempt with a smaller one reports the error.
            let _ = system::set_receive_ring(socket, none);
        })
    }

    fn try_map(socket: BorrowedFd<'_>, shape: RingShape) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no mapping of this process is replaced. It
        // refuses a length other than that of the socket's rings, and there is one ring, of this
        // shape: all of `shape.bytes()` is backed.
        let memory = unsafe {
            mmap(ptr::null_mut(), shape.bytes(), protection, MapFlags::SHARED, socket, 0)
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, shape, next: 0 })
    }

    /// Returns the next frame, or `None` if none is waiting. Dropping the frame releases its slot.
    pub(crate) fn next_frame(&mut self) -> Option<ReceivedSlot<'_>> {
        // Pairs with the kernel's barrier before it sets the bit: what it wrote into the slot is
        // visible.
        let status = self.status().load(Ordering::Acquire);
        // Not `then_some`, which would create a slot and drop it, writing a status word that the
        // kernel owns.
        if status & STATUS_USER == 0 {
            return None;
        }
        Some(ReceivedSlot { ring: self })
    }

    /// Returns the start of the next slot, all bytes of which are within the mapping.
    fn slot_start(&self) -> NonNull<u8> {
        let offset = self.shape.slot_offset(self.next);
        assert!(offset + self.shape.slot_bytes <= self.shape.bytes());
        // SAFETY: `offset` is less than the length of the mapping (asserted), which is one
        // allocation of less than `isize::MAX` bytes.
        unsafe { self.memory.add(offset) }
    }

    fn status(&self) -> &AtomicU32 {
        let first = self.slot_start().cast::<u32>();
        // SAFETY: the word is within the mapping, which lives as long as `self`. It is aligned: the
        // mapping begins at a page, blocks are whole pages, and slots begin at multiples of 16
        // (`RingShape`). While the kernel may write it, this process accesses it only as this
        // atomic. The slice of `ReceivedSlot::bytes` never exists at the same time, because it
        // borrows the slot, which borrows the ring mutably.
        unsafe { AtomicU32::from_ptr(first.as_ptr()) }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping of `map`, unmapped once. All borrows of it borrowed
        // this ring, and none is left. An error would mean that it is not mapped, which needs no
        // action.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
    }
}

/// A received frame. Dropping it returns its slot to the kernel.
pub(crate) struct ReceivedSlot<'a> {
    ring: &'a mut ReceiveRing,
}

impl ReceivedSlot<'_> {
    /// Returns the kernel's description of the frame, followed by the frame.
    /// [`crate::ethernet::slot`] parses them.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (first, length) = (self.ring.slot_start(), self.ring.shape.slot_bytes);
        // SAFETY: `length` bytes from there are within the mapping (`slot_start`) and were
        // initialised by the kernel, which maps zeroed pages. The status says that the slot is
        // ours: the kernel does not write it until `drop` returns it, after this borrow. Nothing
        // else in the process has the address.
        unsafe { slice::from_raw_parts(first.as_ptr(), length) }
    }
}

impl Drop for ReceivedSlot<'_> {
    fn drop(&mut self) {
        // The kernel sees this only after everything in the slot has been read.
        self.ring.status().store(STATUS_KERNEL, Ordering::Release);
        self.ring.next = (self.ring.next + 1) % self.ring.shape.slots();
    }
}
