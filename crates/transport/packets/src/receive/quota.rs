//! The memory that one sender may fill: it cannot evict another's messages ([pkt-4]).

use crate::limits::Limits;

/// Messages that lack parts or wait for their turn, of one sender on all of its channels.
#[derive(Clone, Debug)]
pub struct Quota {
    partials: usize,
    bytes: usize,
    partials_max: usize,
    bytes_max: usize,
}

impl Quota {
    /// Nothing is used.
    pub const fn new(limits: &Limits) -> Self {
        Self {
            partials: 0,
            bytes: 0,
            partials_max: limits.partials_max,
            bytes_max: limits.partial_bytes_max,
        }
    }

    /// Room for so many messages that lack parts, and these bytes; whether there is.
    pub(crate) const fn take(&mut self, partials: usize, bytes: usize) -> bool {
        let fits =
            self.partials + partials <= self.partials_max && bytes <= self.bytes_max - self.bytes;
        if fits {
            self.partials += partials;
            self.bytes += bytes;
        }
        fits
    }

    /// Gives back.
    pub(crate) fn give(&mut self, partials: usize, bytes: usize) {
        let all = self.partials >= partials && self.bytes >= bytes;
        assert!(all, "what is given back was taken");
        self.partials -= partials;
        self.bytes -= bytes;
    }

    /// Messages that lack parts.
    pub const fn partials(&self) -> usize {
        self.partials
    }

    /// Bytes in use.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}
