//! Forecast of when the disk of the node's folder will be full, from the folder's size over the
//! last hours.
//!
//! Log trimming, new snapshots and store compaction make the size rise and fall without real
//! growth. So the forecast compares the maximum sizes in the two halves of the window, and assumes
//! that the log has its maximum size.

use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quorate_log::disk::Family;

/// Interval between two measurements.
pub(super) const MEASURE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of measurements, for six hours.
const MEASUREMENTS_MAX: usize = 360;
/// Minimum number of measurements for a forecast, for one hour.
const MEASUREMENTS_MIN: usize = 60;
/// Growth in bytes that does not count as a trend, for a folder of any size.
const TREND_BYTES_MIN: u64 = 64 << 20;

/// Sizes of the folder at regular intervals, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskForecast(Arc<Mutex<VecDeque<u64>>>);

impl DiskForecast {
    fn lock_sizes(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the folder and adds the result. The log in it may grow to `log_max` bytes.
    pub(super) fn measure_folder(&self, folder: &Path, log_max: u64) {
        let log = disk_usage(&folder.join(Family::Log.folder()));
        self.push(disk_usage(folder).saturating_sub(log).saturating_add(log.max(log_max)));
    }

    fn push(&self, bytes: u64) {
        let mut sizes = self.lock_sizes();
        if sizes.len() >= MEASUREMENTS_MAX {
            sizes.pop_front();
        }
        sizes.push_back(bytes);
    }

    /// Returns the time in seconds until the folder has grown by `free` bytes. Returns `None` if it
    /// does not grow, or has not been observed for long enough.
    pub(super) fn seconds_until_full(&self, free: u64) -> Option<u64> {
        let mut sizes = self.lock_sizes();
        if sizes.len() < MEASUREMENTS_MIN {
            return None;
        }
        let half = sizes.len() / 2;
        let (earlier, later) = sizes.make_contiguous().split_at(half);
        let (before, after) = (*earlier.iter().max()?, *later.iter().max()?);
        let grown = after.checked_sub(before)?;
        if grown <= TREND_BYTES_MIN.max(after / 100) {
            return None;
        }
        let seconds = u128::from(half as u64 * MEASURE_INTERVAL.as_secs());
        let left = u128::from(free) * seconds / u128::from(grown);
        Some(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// Returns the disk space used by a folder and its contents. Skips what cannot be read, such as
/// files that the store has just removed.
fn disk_usage(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_usage(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FREE: u64 = 41 << 30;

    fn after(sizes: impl Iterator<Item = u64>) -> Option<u64> {
        let forecast = DiskForecast::default();
        sizes.for_each(|size| forecast.push(size * MIB));
        forecast.seconds_until_full(FREE)
    }

    #[test]
    fn a_folder_that_grows_steadily_fills_the_disk() {
        // Twenty MiB a minute.
        let expected = 41 * 1024 * 3;
        for minutes in [60, 120, 360, 1000] {
            assert_eq!(after((0..minutes).map(|at| 500 + at * 20)), Some(expected), "{minutes}");
        }
        assert_eq!(after((0..59).map(|at| at * 20)), None, "that is too short a time");
    }

    #[test]
    fn a_folder_that_rises_and_falls_does_not_fill_the_disk() {
        assert_eq!(after((0..360).map(|_| 700)), None);
        // A log that is trimmed every 17 minutes, and one that was trimmed at last.
        assert_eq!(after((0..360).map(|at| at % 17 * 60)), None);
        assert_eq!(after((0..100).map(|at| if at < 99 { 9000 - at } else { 10 })), None);
        // Small changes of a large folder.
        assert_eq!(after((0..360).map(|at| 100_000 + at)), None);
    }

    #[test]
    fn log_growth_counts_up_to_its_maximum() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::create_dir(&log).unwrap();
        let forecast = DiskForecast::default();
        for size in [8_192, 65_536, 1_048_576] {
            fs::write(log.join("1.segment"), vec![1; size]).unwrap();
            forecast.measure_folder(folder.path(), 1_000_000);
        }
        let sizes = forecast.lock_sizes().clone();
        assert!(sizes[0] == sizes[1] && sizes[2] > sizes[0], "{sizes:?}");
    }
}
