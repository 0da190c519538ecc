//! Memory shared with the kernel: the rings of a socket, and the chunks that contain frames.
//!
//! The rest of the crate may rely on this: no memory outside a mapping is ever accessed, whatever
//! the kernel writes into the rings; and only [`ChunkMemory::bytes`] and
//! [`ChunkMemory::bytes_mut`], whose callers own the chunk, access a chunk's bytes.
#![allow(unsafe_code, reason = "memory shared with the kernel has no safe form")]

use std::{
    io,
    marker::PhantomData,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    fd::BorrowedFd,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
};

/// A mapping of whole pages, unmapped on drop.
struct PageMapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and only this value has its address.
// Every access to plain bytes goes through `&mut` of its owner, and words are atomic. It is not
// `Sync`.
unsafe impl Send for PageMapping {}

impl PageMapping {
    /// Maps part of a socket's shared memory.
    fn map_socket(socket: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the address, so no mapping of this process is replaced. It
        // refuses a length beyond what exists at that offset, so all of it is backed.
        let memory = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, socket, offset) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, bytes })
    }

    /// Maps zeroed memory.
    fn anonymous(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no mapping of this process is replaced.
        let memory =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, bytes })
    }

    /// Returns the address of `length` bytes at `offset`, all of which are within the mapping.
    fn pointer_at(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "{offset}");
        // SAFETY: `offset` is within the mapping (asserted), which is one allocation of less than
        // `isize::MAX` bytes.
        unsafe { self.memory.add(offset) }
    }
}

impl Drop for PageMapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, unmapped once. All borrows of it borrowed this value,
        // and none is left. An error would mean that it is not mapped, which needs no action.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// An entry of a ring: a chunk, or a frame in a chunk.
pub(crate) trait RingEntry: Copy + sealed::PlainData {}

mod sealed {
    /// Types that consist of plain numbers, so that any bytes are valid.
    pub(crate) trait PlainData {}
    impl PlainData for u64 {}
    impl PlainData for libc::xdp_desc {}
}

impl RingEntry for u64 {}
impl RingEntry for libc::xdp_desc {}

/// Offsets of the parts of a ring in its mapping, as reported by the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingOffsets {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
}

/// A ring with one writer and one reader, one of which is the kernel.
pub(crate) struct SharedRing<T> {
    memory: PageMapping,
    offsets: RingOffsets,
    /// Capacity in entries, a power of two.
    capacity: u32,
    /// Total number of entries that this side has written or read.
    own_position: u32,
    entries: PhantomData<T>,
}

impl<T: RingEntry> SharedRing<T> {
    /// Maps a socket's ring of `places` entries at `offset` of the socket's shared memory.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        at: u64,
        offsets: RingOffsets,
        places: u32,
    ) -> io::Result<Self> {
        assert!(places.is_power_of_two());
        let bytes = offsets.entries + places as usize * size_of::<T>();
        let memory = PageMapping::map_socket(socket, bytes, at)?;
        // The kernel's offsets are checked before any word is read.
        for word in [offsets.producer, offsets.consumer, offsets.flags] {
            if word % align_of::<u32>() != 0 || word + size_of::<u32>() > bytes {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        if !offsets.entries.is_multiple_of(align_of::<T>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory, offsets, capacity: places, own_position: 0, entries: PhantomData })
    }

    fn word_at(&self, offset: usize) -> &AtomicU32 {
        let at = self.memory.pointer_at(offset, size_of::<u32>()).cast::<u32>();
        // SAFETY: the word is within the mapping, which lives as long as `self`, and aligned
        // (`map`; a mapping begins at a page). Both sides access it only as an atomic.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    fn entry(&self, number: u32) -> NonNull<T> {
        let place = (number & (self.capacity - 1)) as usize;
        let offset = self.offsets.entries + place * size_of::<T>();
        self.memory.pointer_at(offset, size_of::<T>()).cast()
    }

    /// Returns whether the kernel needs a wake-up for written entries.
    pub(crate) fn needs_wakeup(&self) -> bool {
        let flags = self.word_at(self.offsets.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the number of free places. Only for rings that this side writes.
    pub(crate) fn free_places(&self) -> u32 {
        let read = self.word_at(self.offsets.consumer).load(Ordering::Acquire);
        // An impossible value counts as no space.
        self.capacity.saturating_sub(self.own_position.wrapping_sub(read))
    }

    /// Writes an entry. The caller must have checked [`Self::free_places`]. The kernel sees the
    /// entry after [`Self::publish_written`].
    pub(crate) fn write(&mut self, entry: T) {
        let at = self.entry(self.own_position);
        // SAFETY: the place is within the mapping and aligned (`entry`, `map`). It is free: the
        // kernel does not read it until it is published. `T` is plain numbers.
        unsafe { at.write(entry) };
        self.own_position = self.own_position.wrapping_add(1);
    }

    /// Makes written entries visible to the kernel.
    pub(crate) fn publish_written(&self) {
        let word = self.word_at(self.offsets.producer);
        word.store(self.own_position, Ordering::Release);
    }

    /// Returns the next entry, if any. Only for rings that this side reads. [`Self::release_read`]
    /// frees its place.
    pub(crate) fn read(&mut self) -> Option<T> {
        // Pairs with the kernel's barrier before it advances the word: the entry and the frame are
        // visible.
        let written = self.word_at(self.offsets.producer).load(Ordering::Acquire);
        let waiting = written.wrapping_sub(self.own_position);
        if waiting == 0 || waiting > self.capacity {
            return None;
        }
        let at = self.entry(self.own_position);
        // SAFETY: the place is within the mapping and aligned. The kernel wrote it, and does not
        // write it again until it is released. `T` is plain numbers, for which any bytes are valid.
        let entry = unsafe { at.read() };
        self.own_position = self.own_position.wrapping_add(1);
        Some(entry)
    }

    /// Returns the places of read entries to the kernel.
    pub(crate) fn release_read(&self) {
        let word = self.word_at(self.offsets.consumer);
        word.store(self.own_position, Ordering::Release);
    }
}

/// Memory divided into chunks of equal length. A chunk belongs to the kernel while its address is
/// in a ring that the kernel reads, and to this side once the kernel returns it. Callers must
/// respect that.
pub(crate) struct ChunkMemory {
    memory: PageMapping,
    chunk_bytes: usize,
}

impl ChunkMemory {
    /// Allocates `count` chunks of `chunk_bytes` bytes, a power of two.
    pub(crate) fn new(count: usize, chunk_bytes: usize) -> io::Result<Self> {
        assert!(chunk_bytes.is_power_of_two());
        let memory = PageMapping::anonymous(count * chunk_bytes)?;
        Ok(Self { memory, chunk_bytes })
    }

    /// Returns the start and the size of the memory, to be registered with the kernel.
    pub(crate) fn memory_range(&self) -> (*mut u8, usize) {
        (self.memory.memory.as_ptr(), self.memory.bytes)
    }

    /// Returns the address of the chunk that contains `address`, or `None` if it is outside of the
    /// memory.
    pub(crate) fn chunk_of(&self, address: u64) -> Option<u64> {
        let address = usize::try_from(address).ok()?;
        let chunk = address & !(self.chunk_bytes - 1);
        (chunk < self.memory.bytes).then_some(chunk as u64)
    }

    /// Returns a frame in a chunk that this side owns, or `None` if the range is not within one
    /// chunk.
    pub(crate) fn bytes(&mut self, address: u64, length: u32) -> Option<&[u8]> {
        let (offset, length) = self.range_of(address, length)?;
        let first = self.memory.pointer_at(offset, length);
        // SAFETY: the bytes are within the mapping (`at`) and were initialised by the kernel, which
        // maps zeroed pages. The borrow is of `&mut self`, so no other slice of this memory exists
        // in this process. The kernel writes only to chunks that it owns, and the caller owns this
        // one (`queue.rs`).
        Some(unsafe { slice::from_raw_parts(first.as_ptr(), length) })
    }

    /// Like [`Self::bytes`], but the frame can be written.
    pub(crate) fn bytes_mut(&mut self, address: u64, length: u32) -> Option<&mut [u8]> {
        let (offset, length) = self.range_of(address, length)?;
        let first = self.memory.pointer_at(offset, length);
        // SAFETY: as in `bytes`.
        Some(unsafe { slice::from_raw_parts_mut(first.as_ptr(), length) })
    }

    fn range_of(&self, address: u64, length: u32) -> Option<(usize, usize)> {
        let chunk = usize::try_from(self.chunk_of(address)?).ok()?;
        let offset = usize::try_from(address).ok()?;
        let length = usize::try_from(length).ok()?;
        let within = offset.checked_add(length)? <= chunk + self.chunk_bytes;
        within.then_some((offset, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_outside_of_its_chunk_is_refused() {
        let mut chunks = ChunkMemory::new(4, 2048).unwrap();
        assert_eq!(chunks.bytes(0, 2048).unwrap().len(), 2048);
        assert_eq!(chunks.bytes(2048 + 256, 1792).unwrap().len(), 1792);
        for (address, length) in [
            (0, 2049),
            (2048 + 256, 1793),
            (4 * 2048, 1),
            (4 * 2048 - 1, 2),
            (u64::MAX, 1),
            (0, u32::MAX),
        ] {
            assert!(chunks.bytes(address, length).is_none(), "{address}");
            assert!(chunks.bytes_mut(address, length).is_none(), "{address}");
        }
        assert_eq!(chunks.chunk_of(2048 + 256), Some(2048));
        assert_eq!(chunks.chunk_of(4 * 2048), None);
        chunks.bytes_mut(2048, 4).unwrap().copy_from_slice(b"data");
        assert_eq!(chunks.bytes(2048, 4).unwrap(), b"data");
    }
}
