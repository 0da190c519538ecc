//! Load on byte streams: writes of one size, and the durable position of the streams.
//!
//! A write is one system call, as in the paper, unless writes that are due at the same time share
//! one. It is complete when all of its bytes are durable. [`crate::load`] determines when a write
//! is due and how it is counted, as for commands. Reading order: [`progress`] (acknowledged
//! writes), [`speech`] (both protocols as bytes), [`generator`] (sockets), [`figures`] (figures of
//! a row).

pub mod figures;
pub mod generator;
pub mod progress;
pub mod speech;

use crate::samples::{Latencies, Samples};

/// Result of a repetition of stream writes.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Samples of the writes; latencies start when a write was meant to be sent.
    pub samples: Samples,
    /// Acknowledgements of bytes.
    pub acknowledged: Acknowledged,
}

/// Acknowledgements within the measured time.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// Acknowledgements that advanced the durable position.
    pub count: u64,
    /// Bytes acknowledged.
    pub bytes: u64,
    /// Latencies from the actual write call to the acknowledgement.
    pub from_call: Latencies,
}

impl Acknowledged {
    /// Returns the mean bytes per acknowledgement; 0 without any.
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}
