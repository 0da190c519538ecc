//! Size of a socket's receive buffer in the kernel.

use std::fmt;

/// Size of a socket's receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Actual size, in bytes.
    pub bytes: usize,
    /// Requested size, in bytes.
    pub requested_bytes: usize,
    /// Maximum number of waiting frames, however short they are.
    pub frames_max: usize,
}

impl RingSize {
    /// Returns whether the size is less than half of the request. It is rarely exact, because a
    /// ring consists of whole blocks.
    pub const fn is_far_below_request(self) -> bool {
        self.bytes < self.requested_bytes / 2
    }
}

impl fmt::Display for RingSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, requested_bytes: wanted, frames_max: frames } = self;
        write!(f, "receive ring of {frames} frames in {bytes} bytes")?;
        if self.is_far_below_request() {
            write!(
                f,
                ", {wanted} bytes were wanted: bursts will be lost; free memory, or ask for less \
                 (256 MiB at most)"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_a_short_ring_says_what_to_do() {
        let say = |bytes, wanted| {
            let frames = 41;
            RingSize { bytes, requested_bytes: wanted, frames_max: frames }.to_string()
        };
        assert_eq!(say(65_536, 70_000), "receive ring of 41 frames in 65536 bytes");
        assert_eq!(
            say(65_536, 262_144),
            "receive ring of 41 frames in 65536 bytes, 262144 bytes were wanted: bursts will be lost; \
             free memory, or ask for less (256 MiB at most)"
        );
    }
}
