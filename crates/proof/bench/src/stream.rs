//! Load on byte streams: writes of one size, and the durable position of the streams.
//!
//! A write is one system call, as in the paper, unless those that are due together share one; and
//! it is done when all of its bytes are durable. [`crate::load`] determines when a write is due,
//! and what counts, as for commands. Reading order: [`progress`] (writes acknowledged), [`speech`]
//! (both protocols as bytes), [`generator`] (sockets), [`figures`] (figures of a row).

pub mod figures;
pub mod generator;
pub mod progress;
pub mod speech;

use crate::samples::{Latencies, Samples};

/// Result of a repetition.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Samples of the writes: latencies count from the moment that a write was meant for.
    pub samples: Samples,
    /// Acknowledgements of the bytes.
    pub acknowledged: Acknowledged,
}

/// Acknowledgements within the measured time.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// Acknowledgements that said something new.
    pub count: u64,
    /// Bytes that they acknowledged.
    pub bytes: u64,
    /// Latencies from the call that wrote to the acknowledgement, however late the call was.
    pub from_call: Latencies,
}

impl Acknowledged {
    /// Bytes of an acknowledgement, in the mean; none without any.
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}
