//! Execution time per byte of a batch. While a batch is executed, peers wait for votes and
//! heartbeats, so batches that would take too long are not formed.

/// Maximum time in microseconds that a batch should take.
const BATCH_US: u64 = 20_000;
/// Size in bytes below which batches are not measured, since it hardly affects their duration.
const MEASURED_BYTES: usize = 4 << 10;
/// Lower bound in bytes of the batch size limit, at which batches are still measured.
const LEAST_BYTES: usize = 2 * MEASURED_BYTES;

/// Execution time in nanoseconds per byte of a batch, averaged over the latest batches.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    ns_per_byte: u64,
}

impl Pace {
    pub(crate) const fn measures(bytes: usize) -> bool {
        bytes >= MEASURED_BYTES
    }

    pub(crate) fn record_batch(&mut self, bytes: usize, took_us: u64) {
        let now = took_us.saturating_mul(1000) / (bytes as u64).max(1);
        self.ns_per_byte = (3 * self.ns_per_byte + now) / 4;
    }

    /// Returns the maximum size of a batch, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        let bytes = (BATCH_US * 1000).checked_div(self.ns_per_byte);
        let bytes = bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        bytes.max(LEAST_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_large_as_can_be_executed_in_time() {
        let mut pace = Pace::default();
        assert_eq!(pace.bytes_max(), usize::MAX, "nothing is known");
        for _ in 0..40 {
            pace.record_batch(256 << 10, 200_000);
        }
        let small = pace.bytes_max();
        assert!((24 << 10..28 << 10).contains(&small), "{small}");
        // The limit of even slower batches stays large enough to be measured.
        for _ in 0..40 {
            pace.record_batch(small, 2_000_000);
        }
        assert_eq!(pace.bytes_max(), LEAST_BYTES);
        assert!(Pace::measures(LEAST_BYTES));
        // The machine was slow and has recovered.
        for _ in 0..60 {
            pace.record_batch(LEAST_BYTES, 10);
        }
        assert!(pace.bytes_max() > 16 << 20);
    }
}
