//! Standard error for a process that must not block on its reader. Lines pass through a bounded
//! queue to a separate thread. A line that does not fit or cannot be written is dropped and
//! counted. No failure here ends the process.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

/// Maximum total size of the queued lines, in bytes.
const BYTES_MAX: usize = 1 << 20;

static LINE_QUEUE: OnceLock<LineQueue> = OnceLock::new();

/// Passes all further writes to [`Stderr`] through a separate thread.
pub fn start_writer_thread() -> io::Result<()> {
    if LINE_QUEUE.get().is_some() {
        return Ok(());
    }
    let lines = LineQueue::default();
    let of_thread = lines.clone();
    let run = move || of_thread.run(io::stderr(), report_dropped);
    thread::Builder::new().name("stderr".to_owned()).spawn(run)?;
    let _ = LINE_QUEUE.set(lines);
    Ok(())
}

/// Waits until all lines are written, for at most `within`.
pub fn wait_until_written(within: Duration) {
    if let Some(lines) = LINE_QUEUE.get() {
        lines.wait_until_written(within);
    }
}

/// Returns the number of lines that were dropped.
pub fn dropped_line_count() -> u64 {
    LINE_QUEUE.get().map_or(0, |lines| lines.lock().dropped_count)
}

fn report_dropped(count: u64) {
    tracing::warn!(count, "log lines dropped: standard error was full, or its reader too slow");
}

/// A writer of whole lines to standard error that never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match LINE_QUEUE.get() {
            Some(lines) => lines.push(line),
            None => drop(io::stderr().write_all(line)),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Queue of lines for the writing thread.
#[derive(Clone, Debug, Default)]
struct LineQueue(Arc<(Mutex<QueuedLines>, Condvar)>);

#[derive(Debug, Default)]
struct QueuedLines {
    lines: VecDeque<Box<[u8]>>,
    /// Total size of all lines in bytes, including the one being written.
    bytes: usize,
    dropped_count: u64,
}

impl LineQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedLines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut queue = self.lock();
        if queue.bytes + line.len() > BYTES_MAX {
            queue.dropped_count += 1;
            return;
        }
        queue.bytes += line.len();
        queue.lines.push_back(line.into());
        drop(queue);
        self.0.1.notify_all();
    }

    /// Writes lines to `out` in an endless loop. When it has caught up after dropping lines, passes
    /// the number of lines dropped since the last report to `report`.
    fn run(&self, mut out: impl Write, report: impl Fn(u64)) {
        let mut reported = 0;
        loop {
            let line = self.next();
            let written = out.write_all(&line);
            let mut queue = self.lock();
            queue.bytes -= line.len();
            queue.dropped_count += u64::from(written.is_err());
            let dropped = queue.dropped_count;
            let is_back = written.is_ok() && queue.lines.is_empty() && dropped > reported;
            drop(queue);
            if is_back {
                report(dropped - reported);
                reported = dropped;
            }
            self.0.1.notify_all();
        }
    }

    fn next(&self) -> Box<[u8]> {
        let mut queue = self.lock();
        loop {
            match queue.lines.pop_front() {
                Some(line) => return line,
                None => queue = self.0.1.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn wait_until_written(&self, within: Duration) {
        let waits = |queue: &mut QueuedLines| queue.bytes > 0;
        drop(self.0.1.wait_timeout_while(self.lock(), within, waits));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A fake standard error that accepts a line, or fails, on command.
    struct Reader {
        verdicts: Receiver<io::Result<()>>,
        read: Sender<Vec<u8>>,
    }

    impl Write for Reader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.verdicts.recv().expect("the test goes on")?;
            self.read.send(line.to_vec()).expect("the test goes on");
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Stage {
        lines: LineQueue,
        verdicts: Sender<io::Result<()>>,
        read: Receiver<Vec<u8>>,
        reports: Receiver<u64>,
    }

    fn stage() -> Stage {
        let ((verdicts, of_reader), (sender, read)) = (channel(), channel());
        let reader = Reader { verdicts: of_reader, read: sender };
        let (report, reports) = channel();
        let lines = LineQueue::default();
        let of_thread = lines.clone();
        thread::spawn(move || of_thread.run(reader, |count| report.send(count).unwrap()));
        Stage { lines, verdicts, read, reports }
    }

    /// A stalled reader does not block the process, and reads the retained lines in order.
    #[test]
    fn stalled_reader_loses_lines_but_does_not_block() {
        let Stage { lines, verdicts, read, reports } = stage();
        let line = |number: usize| format!("{number:04} {}", "x".repeat(BYTES_MAX / 100 - 5));
        (0..110).for_each(|number| lines.push(line(number).as_bytes()));
        assert_eq!(lines.lock().dropped_count, 10);
        lines.wait_until_written(Duration::ZERO);
        for number in 0..100 {
            assert!(reports.try_recv().is_err(), "it reports when it has caught up");
            verdicts.send(Ok(())).unwrap();
            assert_eq!(read.recv().unwrap(), line(number).as_bytes());
        }
        assert_eq!(reports.recv(), Ok(10));
        lines.wait_until_written(Duration::MAX);
        assert_eq!(lines.lock().bytes, 0);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted() {
        let Stage { lines, verdicts, read, reports } = stage();
        for verdict in [Err(io::ErrorKind::StorageFull), Err(io::ErrorKind::BrokenPipe), Ok(())] {
            lines.push(b"line\n");
            verdicts.send(verdict.map_err(io::Error::from)).unwrap();
            lines.wait_until_written(Duration::MAX);
        }
        assert_eq!(read.recv().unwrap(), b"line\n");
        assert_eq!(reports.recv(), Ok(2));
    }
}
