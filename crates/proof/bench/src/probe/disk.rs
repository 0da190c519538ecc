//! Disk speed, for small flushed writes and for large writes.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use quorate_log::disk::{Buffer, FlushModel, device_time};
use rustix::{fs::OFlags, thread::ClockId, time::Timespec};

use super::MeasuredCeiling;
use crate::{figure::round_to_four_digits, samples::Latencies, schedule::SECOND};

/// Size of the file that is overwritten repeatedly. It equals the three segments that a trimmed log
/// cycles through.
const FILE_BYTES: u64 = 192 << 20;
/// Size of the file used for a limited number of writes.
const SMALL_FILE_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: usize = 4096;
const LARGE_WRITE_BYTES: usize = 1 << 20;
const LARGE_WRITE_COUNT: u64 = 256;

/// A file with all blocks written in advance, so that writes change no metadata, as in an efficient
/// log.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    bytes: u64,
    write_offset: u64,
    flush_model: Option<FlushModel>,
}

impl LogFile {
    /// Creates a file of the default size, filled with zeros and flushed. `flush` simulates a
    /// slower device; zero uses the real flush time.
    pub fn create(path: &Path, flush: Duration) -> io::Result<Self> {
        Self::create_with_size(path, FILE_BYTES, flush)
    }

    /// Creates a file of `bytes` bytes, rounded down to whole MiB, like [`Self::create`].
    pub fn create_with_size(path: &Path, bytes: u64, flush: Duration) -> io::Result<Self> {
        let mut file = File::options().create(true).truncate(true).write(true).open(path)?;
        let zeros = vec![0; LARGE_WRITE_BYTES];
        for _ in 0..bytes / LARGE_WRITE_BYTES as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(Self {
            file,
            bytes,
            write_offset: 0,
            flush_model: (!flush.is_zero()).then(|| FlushModel::new(flush)),
        })
    }

    /// Writes the bytes and returns once they are on stable storage.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if self.write_offset + length > self.bytes {
            self.write_offset = 0;
        }
        self.file.write_all_at(bytes, self.write_offset)?;
        self.write_offset += length;
        self.file.sync_data()?;
        if let Some(model) = &mut self.flush_model {
            sleep_until(model.flush_end(device_time()));
        }
        Ok(())
    }
}

fn sleep_until(moment: u64) {
    let moment = Timespec {
        tv_sec: i64::try_from(moment / SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(moment % SECOND).expect("below a second"),
    };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &moment).is_err() {}
}

/// Measures flushed 4 KiB writes for `time`, one after another.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn measure_flushed_writes(
    folder: &Path,
    flush: Duration,
    time: Duration,
) -> io::Result<MeasuredCeiling> {
    let mut file = LogFile::create(&folder.join("append"), flush)?;
    let block = vec![7; BLOCK_BYTES];
    let mut latencies = Latencies::default();
    let began = Instant::now();
    while began.elapsed() < time {
        let before = Instant::now();
        file.append(&block)?;
        latencies.record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let rate = latencies.count() as f64 / began.elapsed().as_secs_f64();
    Ok(MeasuredCeiling {
        name: "write 4 KiB and flush, one after the other".to_owned(),
        value: round_to_four_digits(rate),
        unit: "/s".to_owned(),
        p50_us: Some(round_to_four_digits(latencies.quantile_us(0.5))),
        p99_us: Some(round_to_four_digits(latencies.quantile_us(0.99))),
        cpu_us_per_op: None,
    })
}

/// Measures up to `count` flushed 4 KiB writes to a small file, one after another; stops early
/// after `time`.
pub fn measure_flushes(folder: &Path, count: usize, time: Duration) -> io::Result<Latencies> {
    let mut file =
        LogFile::create_with_size(&folder.join("flushes"), SMALL_FILE_BYTES, Duration::ZERO)?;
    let block = vec![7; BLOCK_BYTES];
    let mut latencies = Latencies::default();
    let began = Instant::now();
    for _ in 0..count {
        let before = Instant::now();
        file.append(&block)?;
        latencies.record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if began.elapsed() > time {
            break;
        }
    }
    Ok(latencies)
}

/// Measures large writes with direct I/O and a single flush at the end.
#[expect(clippy::cast_precision_loss, reason = "a bandwidth for people")]
pub fn measure_bandwidth(folder: &Path) -> io::Result<MeasuredCeiling> {
    let path = folder.join("bandwidth");
    let bytes = LARGE_WRITE_COUNT * LARGE_WRITE_BYTES as u64;
    drop(LogFile::create_with_size(&path, bytes, Duration::ZERO)?);
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of the kernel fits");
    let opened = File::options().write(true).custom_flags(direct).open(&path);
    let (file, how) = match opened {
        Ok(file) => (file, "past the page cache"),
        Err(_) => (File::options().write(true).open(&path)?, "through the page cache"),
    };
    let buffer = Buffer::new(LARGE_WRITE_BYTES);
    let began = Instant::now();
    for number in 0..LARGE_WRITE_COUNT {
        file.write_all_at(&buffer, number * LARGE_WRITE_BYTES as u64)?;
    }
    file.sync_data()?;
    Ok(MeasuredCeiling {
        name: format!("write 256 x 1 MiB {how}, then flush"),
        value: round_to_four_digits(bytes as f64 / 1e9 / began.elapsed().as_secs_f64()),
        unit: "GB/s".to_owned(),
        p50_us: None,
        p99_us: None,
        cpu_us_per_op: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_written_over_from_the_start_and_never_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = LogFile::create(&path, Duration::ZERO).unwrap();
        file.write_offset = FILE_BYTES - 1;
        file.append(b"ab").unwrap();
        assert_eq!(file.write_offset, 2);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES);
        assert_eq!(&std::fs::read(&path).unwrap()[..3], b"ab\0");
    }

    #[test]
    fn flushes_are_limited_by_count_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let time = Duration::from_secs(60);
        assert_eq!(measure_flushes(folder.path(), 9, time).unwrap().count(), 9);
        let one = measure_flushes(folder.path(), 9, Duration::ZERO).unwrap();
        assert_eq!(one.count(), 1, "no time is left");
        assert!(measure_flushes(&folder.path().join("nowhere"), 9, time).is_err());
    }

    #[test]
    fn modelled_flush_takes_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let flush = Duration::from_millis(5);
        let mut file = LogFile::create(&folder.path().join("log"), flush).unwrap();
        let before = Instant::now();
        (0..3).for_each(|_| file.append(b"x").unwrap());
        assert!(before.elapsed() >= flush * 3);
    }
}
