//! Memory quota per sender, which keeps its messages from evicting those of others ([pkt-4]).

use crate::limits::Limits;

/// Memory used by one sender's incomplete or waiting messages, over all of its channels.
#[derive(Clone, Debug)]
pub struct MemoryQuota {
    partial_count: usize,
    bytes: usize,
    partials_max: usize,
    bytes_max: usize,
}

impl MemoryQuota {
    pub const fn new(limits: &Limits) -> Self {
        Self {
            partial_count: 0,
            bytes: 0,
            partials_max: limits.partials_max,
            bytes_max: limits.partial_bytes_max,
        }
    }

    /// Charges incomplete messages and bytes to the quota. If they exceed it, charges nothing and
    /// returns false.
    pub(crate) const fn charge(&mut self, partials: usize, bytes: usize) -> bool {
        let fits = self.partial_count + partials <= self.partials_max
            && bytes <= self.bytes_max - self.bytes;
        if fits {
            self.partial_count += partials;
            self.bytes += bytes;
        }
        fits
    }

    pub(crate) fn release(&mut self, partials: usize, bytes: usize) {
        let all = self.partial_count >= partials && self.bytes >= bytes;
        assert!(all, "what is given back was taken");
        self.partial_count -= partials;
        self.bytes -= bytes;
    }

    pub const fn partials(&self) -> usize {
        self.partial_count
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}
