//! Buffers that are used again and again.

/// Empties a scratch buffer without keeping much more memory than requests usually need.
pub(super) fn fresh(buffer: &mut Vec<u8>) {
    const KEPT_BYTES_MAX: usize = 256 * 1024;
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES_MAX);
}
