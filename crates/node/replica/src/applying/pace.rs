//! Execution time per byte of a batch. While a batch is executed, peers wait for votes and
//! heartbeats, so batches that would take too long are not formed.

/// Maximum time in microseconds that a batch should take.
const BATCH_TIME_MAX_US: u64 = 20_000;
/// Size in bytes below which batches are not measured, since it hardly affects their duration.
const MEASURED_BYTES_MIN: usize = 4 << 10;
/// Lower bound in bytes of the batch size limit, at which batches are still measured.
const BATCH_BYTES_MIN: usize = 2 * MEASURED_BYTES_MIN;

/// Execution time in nanoseconds per byte of a batch, averaged over the latest batches.
#[derive(Debug, Default)]
pub(crate) struct ExecutionPace {
    ns_per_byte: u64,
}

impl ExecutionPace {
    pub(crate) const fn is_measured(bytes: usize) -> bool {
        bytes >= MEASURED_BYTES_MIN
    }

    pub(crate) fn record_batch(&mut self, bytes: usize, took_us: u64) {
        let now = took_us.saturating_mul(1000) / (bytes as u64).max(1);
        self.ns_per_byte = (3 * self.ns_per_byte + now) / 4;
    }

    /// Returns the maximum size of a batch, in bytes.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        let bytes = (BATCH_TIME_MAX_US * 1000).checked_div(self.ns_per_byte);
        let bytes = bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        bytes.max(BATCH_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_large_as_can_be_executed_in_time() {
        let mut pace = ExecutionPace::default();
        assert_eq!(pace.batch_bytes_max(), usize::MAX, "nothing is known");
        for _ in 0..40 {
            pace.record_batch(256 << 10, 200_000);
        }
        let small = pace.batch_bytes_max();
        assert!((24 << 10..28 << 10).contains(&small), "{small}");
        // The limit of even slower batches stays large enough to be measured.
        for _ in 0..40 {
            pace.record_batch(small, 2_000_000);
        }
        assert_eq!(pace.batch_bytes_max(), BATCH_BYTES_MIN);
        assert!(ExecutionPace::is_measured(BATCH_BYTES_MIN));
        // The machine was slow and has recovered.
        for _ in 0..60 {
            pace.record_batch(BATCH_BYTES_MIN, 10);
        }
        assert!(pace.batch_bytes_max() > 16 << 20);
    }
}
