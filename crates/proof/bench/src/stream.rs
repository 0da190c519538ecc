//! Load on byte streams: writes of a fixed size, and the durable positions of the streams.
//!
//! A write is one system call, as in the paper, unless writes that are due at the same time share
//! one. It is complete when all of its bytes are durable. [`crate::load`] determines when a write
//! is due and how it is counted, as for commands. Reading order: [`progress`] (acknowledged
//! writes), [`speech`] (both protocols as bytes), [`generator`] (sockets), [`figures`] (figures in
//! a row).

pub mod figures;
pub mod generator;
pub mod progress;
pub mod speech;

use crate::samples::{Latencies, Samples};

/// Result of a repetition with stream writes.
#[derive(Clone, Debug, Default)]
pub struct StreamSamples {
    /// Samples of the writes. Latencies start at the time at which a write was due.
    pub samples: Samples,
    pub acknowledged: AcknowledgementCounts,
}

/// Acknowledgements received within the measured time.
#[derive(Clone, Debug, Default)]
pub struct AcknowledgementCounts {
    /// Number of acknowledgements that advanced the durable position.
    pub count: u64,
    pub bytes: u64,
    /// Latencies from the write call to the acknowledgement.
    pub latencies_from_call: Latencies,
}

impl AcknowledgementCounts {
    /// Returns the mean number of bytes per acknowledgement; 0 if there are none.
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    pub fn mean_bytes_each(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}
