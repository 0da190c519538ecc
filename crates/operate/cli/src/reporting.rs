//! Reports progress on standard error while the command's own thread is blocked.

use std::{
    io,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_admin::progress::{Progress, ProgressReport};

/// Interval between two progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Time after which a command reports that it is waiting.
const FIRST_REPORT_DELAY: Duration = Duration::from_secs(1);

/// A thread that reports progress until it is dropped.
#[derive(Debug)]
pub(crate) struct Reporter {
    end_sender: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts a thread that calls `report` at every interval.
    pub(crate) fn start(
        mut report: impl FnMut(&mut Progress) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, ended) = channel::<()>();
        let tell = move || {
            let mut told = Progress::start();
            while ended.recv_timeout(REPORT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                report(&mut told);
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(tell)?;
        Ok(Self { end_sender: Some(sender), thread: Some(thread) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.end_sender.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the reporting thread is harmless.
            let _ = thread.join();
        }
    }
}

/// Reports how long the command has been waiting for a reply, until the result is dropped. If no
/// thread can be started, there are no reports.
pub(crate) fn report_waiting(at_most: Duration) -> Option<Reporter> {
    let began = Instant::now();
    let report = move |told: &mut Progress| {
        if let Some(report) = waiting_report(began.elapsed(), at_most) {
            told.report(|| report);
        }
    };
    Reporter::start(report).ok()
}

/// Returns the report about a wait, or `None` if the wait has been short.
fn waiting_report(time: Duration, at_most: Duration) -> Option<ProgressReport> {
    let (time_s, at_most_s) = (time.as_secs(), at_most.as_secs());
    let text = format_args!("waiting for a reply: {time_s} s of {at_most_s} s");
    (time >= FIRST_REPORT_DELAY).then(|| ProgressReport::text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_after_a_second() {
        let after = |ms| waiting_report(Duration::from_millis(ms), Duration::from_secs(10));
        assert_eq!(after(999), None);
        let expected = ProgressReport::text("waiting for a reply: 3 s of 10 s");
        assert_eq!(after(3999), Some(expected));
    }

    #[test]
    fn a_reporter_reports_until_it_is_dropped() {
        let (sender, reports) = channel();
        let reporter = Reporter::start(move |_| sender.send(()).unwrap()).unwrap();
        reports.recv().unwrap();
        drop(reporter);
        while reports.try_recv().is_ok() {}
        assert!(reports.recv().is_err(), "the thread has ended");
    }
}
