//! Reusable scratch buffers, which keep a bounded amount of memory.

/// Clears a buffer. Releases its memory if it is larger than most requests need.
pub(super) fn clear_buffer(buffer: &mut Vec<u8>) {
    const RETAINED_BYTES_MAX: usize = 256 * 1024;
    buffer.clear();
    buffer.shrink_to(RETAINED_BYTES_MAX);
}
