//! Choice between batches that fit into a device's frame and longer batches ([offload-15]).
//!
//! A device assigns a slot to each frame, and decides it sooner than a leader does over
//! connections. A slot over connections carries many more commands, since commands gather while a
//! batch is in flight. The choice compares the number of frames that recent commands took, or would
//! have taken, with the number of batches, where batches in flight at the same time count as one.
//! While batches that do not fit a device arrive, the leader does not use it.

use quorate_core::time::Time;
use quorate_tuner::DampedChoice;

use crate::clock::to_moment;

/// Cost of a slot in a device, where a slot over connections costs [`BATCH_COST`]. Measured: with 8
/// clients and 1000 B, 16 k frames/s against 8 k batches/s of five commands (`docs/performance.md`,
/// "A cluster compared with Kernel Paxos").
const FRAME_COST: u64 = 50;
const BATCH_COST: u64 = 100;
/// Number of parts into which a batch is divided for counting.
const BATCH_PARTS: u64 = 1_000;
/// Interval between comparisons, in milliseconds.
const COMPARISON_INTERVAL_MS: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValuePath {
    Frames,
    Connections,
}

/// Limit on the length of batches, as long as there is a device.
#[derive(Debug)]
pub(crate) struct BatchLengthLimit {
    /// Number of a batch's bytes that fit into a frame; `None` if there is no device.
    frame_value_bytes: Option<usize>,
    choice: DampedChoice<ValuePath>,
    next_comparison_at: Time,
    /// Number of frames since the last comparison.
    frame_count: u64,
    /// Number of batches since the last comparison, in units of 1/[`BATCH_PARTS`].
    batch_parts: u64,
    /// Number of bytes left over when the limit split a batch. The next frames carry them.
    leftover_bytes: usize,
}

impl BatchLengthLimit {
    pub(crate) fn new() -> Self {
        Self {
            frame_value_bytes: None,
            choice: DampedChoice::new(ValuePath::Frames, to_moment(Time(0))),
            next_comparison_at: Time(0),
            frame_count: 0,
            batch_parts: 0,
            leftover_bytes: 0,
        }
    }

    pub(crate) const fn has_device(&self) -> bool {
        self.frame_value_bytes.is_some()
    }

    /// Returns the limit on a batch's length in bytes, at most `batch_bytes`.
    pub(crate) fn batch_bytes_max(&self, batch_bytes: usize) -> usize {
        match (self.frame_value_bytes, self.choice.chosen()) {
            (Some(room), ValuePath::Frames) => batch_bytes.min(room),
            (None, _) | (_, ValuePath::Connections) => batch_bytes,
        }
    }

    /// Records a batch of `taken` bytes, formed while `in_flight` others were in flight. Without
    /// the limit it would have had `wanted` bytes.
    pub(crate) fn record_batch(&mut self, wanted: usize, taken: usize, in_flight: usize) {
        let Some(room) = self.frame_value_bytes else { return };
        if self.leftover_bytes == 0 {
            self.batch_parts += BATCH_PARTS / (1 + in_flight as u64);
            self.leftover_bytes = wanted;
        }
        self.frame_count += taken.div_ceil(room.max(1)).max(1) as u64;
        self.leftover_bytes = self.leftover_bytes.saturating_sub(taken);
    }

    /// Compares the costs, if that is due. `room` is the number of bytes of a batch that fit into a
    /// frame.
    pub(crate) fn compare_costs(&mut self, now: Time, room: Option<usize>) {
        if room != self.frame_value_bytes {
            (self.frame_value_bytes, self.leftover_bytes) = (room, 0);
        }
        if room.is_none() || now < self.next_comparison_at {
            return;
        }
        self.next_comparison_at = now.plus_ms(COMPARISON_INTERVAL_MS);
        let costs = [
            (ValuePath::Frames, self.frame_count * FRAME_COST * BATCH_PARTS),
            (ValuePath::Connections, self.batch_parts * BATCH_COST),
        ];
        self.choice.update(to_moment(now), &costs);
        (self.frame_count, self.batch_parts) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1400;
    const WANTED: usize = 64 << 10;

    fn fitting() -> BatchLengthLimit {
        let mut fitting = BatchLengthLimit::new();
        fitting.compare_costs(Time(0), Some(ROOM));
        fitting
    }

    /// Queues `waiting` bytes ten times in each millisecond. Returns the final limit.
    fn load(fitting: &mut BatchLengthLimit, ms: std::ops::Range<u64>, waiting: usize) -> usize {
        for ms in ms {
            for _ in 0..10 {
                let mut left = waiting;
                while left > 0 {
                    let taken = left.min(fitting.batch_bytes_max(WANTED));
                    fitting.record_batch(left, taken, 0);
                    left -= taken;
                }
            }
            fitting.compare_costs(Time(ms * 1000), Some(ROOM));
        }
        fitting.batch_bytes_max(WANTED)
    }

    /// [offload-15] Only a device limits batches, and those that fit continue to use it.
    #[test]
    fn batches_that_fit_into_frames_stay_limited_to_them() {
        assert_eq!(BatchLengthLimit::new().batch_bytes_max(WANTED), WANTED);
        let mut fitting = fitting();
        assert_eq!(fitting.batch_bytes_max(WANTED), ROOM);
        assert_eq!(fitting.batch_bytes_max(300), 300);
        assert_eq!(load(&mut fitting, 0..60_000, ROOM), ROOM);
        assert_eq!(load(&mut fitting, 60_000..120_000, 1), ROOM);
    }

    /// [offload-15] The device serves two clients with separate frames. Commands from many clients
    /// are gathered into one batch instead.
    #[test]
    fn parallel_frames_of_many_clients_become_one_batch() {
        for (in_flight, bound) in [(0, ROOM), (1, ROOM), (2, WANTED), (7, WANTED)] {
            let mut fitting = fitting();
            for ms in 0..4_000 {
                fitting.record_batch(1_000, 1_000, in_flight);
                fitting.compare_costs(Time(ms * 1000), Some(ROOM));
            }
            assert_eq!(fitting.batch_bytes_max(WANTED), bound, "{in_flight}");
        }
    }

    /// [offload-15] Under sustained load, one batch over connections replaces three frames.
    #[test]
    fn load_of_many_frames_uses_connections_until_it_ends() {
        let mut fitting = fitting();
        assert_eq!(load(&mut fitting, 0..900, 3 * ROOM), ROOM, "for a moment");
        assert_eq!(load(&mut fitting, 900..4_000, 3 * ROOM), WANTED);
        assert_eq!(load(&mut fitting, 4_000..30_000, 3 * ROOM), WANTED);
        assert_eq!(load(&mut fitting, 30_000..34_000, 300), ROOM);
    }

    /// [offload-15] Batches become short again in silence, so the next one uses a device.
    #[test]
    fn idle_time_ends_long_batches() {
        let mut fitting = fitting();
        load(&mut fitting, 0..5_000, 40 * ROOM);
        assert_eq!(fitting.batch_bytes_max(WANTED), WANTED);
        assert_eq!(load(&mut fitting, 5_000..10_000, 0), ROOM);
    }

    /// [offload-15] Commands that would have been one batch count as one, in any number of frames.
    #[test]
    fn frames_of_one_batch_are_counted_together() {
        let mut fitting = fitting();
        for _ in 0..4 {
            fitting.record_batch(3 * ROOM, ROOM, 0);
        }
        assert_eq!((fitting.frame_count, fitting.batch_parts), (4, 2 * BATCH_PARTS));
        fitting.compare_costs(Time(1_000_000), None);
        assert_eq!(fitting.batch_bytes_max(WANTED), WANTED);
    }
}
