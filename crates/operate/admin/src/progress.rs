//! Writes messages and progress to standard error. On a terminal, the progress is a single line
//! that is redrawn. Elsewhere, such as in a log, it is an occasional line.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write as _},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::units;

/// Interval between two redraws on a terminal.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before the first line if standard error is not a terminal. Shorter activities write none.
const FIRST_LINE_DELAY: Duration = Duration::from_secs(1);
/// Width of the progress bar in characters.
const BAR_CHARS: u64 = 24;
/// Escape sequence that clears the line.
const CLEAR_LINE: &str = "\r\x1b[K";
/// Escape sequences that disable and enable line wrapping. A wrapped line cannot be redrawn.
const LINE_WRAP_OFF_ON: [&str; 2] = ["\x1b[?7l", "\x1b[?7h"];

/// Set while the terminal shows a progress line, which must be cleared before other output. Only
/// accessed while standard error is locked.
static LINE_IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Function that receives all output in place of standard error.
static OUTPUT_SINK: OnceLock<fn(&str)> = OnceLock::new();

/// Sends all later output to `sink`. Used by a process that must not block on standard error.
pub fn redirect_output(sink: fn(&str)) {
    let _ = OUTPUT_SINK.set(sink);
}

/// Writes a line to standard error. Write errors are ignored.
pub fn write_line(text: &str) {
    if let Some(sink) = OUTPUT_SINK.get() {
        return sink(&format!("{text}\n"));
    }
    let mut out = io::stderr().lock();
    let _ = clear_line(&mut out).and_then(|()| writeln!(out, "{text}"));
}

/// Clears the progress line. Must be called before other code writes to the terminal.
pub fn clear() {
    if LINE_IS_DRAWN.load(Ordering::SeqCst) {
        let _ = clear_line(&mut io::stderr().lock());
    }
}

fn clear_line(out: &mut io::StderrLock<'_>) -> io::Result<()> {
    match LINE_IS_DRAWN.swap(false, Ordering::SeqCst) {
        true => out.write_all(CLEAR_LINE.as_bytes()),
        false => Ok(()),
    }
}

/// Progress of an activity at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressReport {
    /// Text before the figures, such as `backup: `.
    prefix: String,
    /// Completed amount and total amount.
    done_and_total: Option<(u64, u64)>,
    /// Text after the percentage, such as `256 KiB of 1.3 MiB`.
    suffix: String,
}

impl ProgressReport {
    /// Creates a report that consists only of text.
    pub fn text(text: impl fmt::Display) -> Self {
        Self { prefix: String::new(), done_and_total: None, suffix: text.to_string() }
    }

    /// Creates a report that shows a percentage between two texts.
    pub fn with_share(
        before: impl fmt::Display,
        (done, all): (u64, u64),
        after: impl fmt::Display,
    ) -> Self {
        Self {
            prefix: before.to_string(),
            done_and_total: Some((done, all)),
            suffix: after.to_string(),
        }
    }

    /// Creates a report about `done` of `all` bytes.
    pub fn bytes(what: &str, done: u64, all: u64) -> Self {
        let done = done.min(all);
        let sizes = format!("{} of {}", units::format_bytes(done), units::format_bytes(all));
        Self::with_share(format_args!("{what}: "), (done, all), sizes)
    }

    fn format_report(&self, terminal: bool) -> String {
        let Self { prefix: before, done_and_total: share, suffix: after } = self;
        let Some((done, all)) = *share else {
            return format!("{before}{after}");
        };
        let all = all.max(1);
        let part = |of: u64| u128::from(done.min(all)) * u128::from(of) / u128::from(all);
        let bar = match terminal {
            true => {
                let full = usize::try_from(part(BAR_CHARS)).unwrap_or_default();
                let width = BAR_CHARS as usize;
                format!("[{:-<width$}] ", "#".repeat(full))
            }
            false => String::new(),
        };
        format!("{before}{bar}{} %, {after}", part(100))
    }
}

/// Schedule and format of reports. The caller passes the current time.
#[derive(Debug)]
struct ReportSchedule {
    is_terminal: bool,
    started_at: Instant,
    last_report: Option<Instant>,
    last_shown: Option<ProgressReport>,
}

impl ReportSchedule {
    fn new(terminal: bool, started_at: Instant) -> Self {
        Self { is_terminal: terminal, started_at, last_report: None, last_shown: None }
    }

    /// Returns the text to write at `now`, if a report is due.
    fn text_if_due(
        &mut self,
        now: Instant,
        report: impl FnOnce() -> ProgressReport,
    ) -> Option<String> {
        let (first, every) = match self.is_terminal {
            true => (REDRAW_INTERVAL, REDRAW_INTERVAL),
            false => (FIRST_LINE_DELAY, LINE_INTERVAL),
        };
        let due = self.last_report.map_or(self.started_at + first, |told| told + every);
        if now < due {
            return None;
        }
        let report = report();
        // Repeating a line is useless in a log. On a terminal, other output may have replaced it.
        if !self.is_terminal && self.last_shown.as_ref() == Some(&report) {
            return None;
        }
        self.last_report = Some(now);
        let shown = report.format_report(self.is_terminal);
        self.last_shown = Some(report);
        let [cut, wrap] = LINE_WRAP_OFF_ON;
        Some(match self.is_terminal {
            true => format!("{CLEAR_LINE}{cut}{shown}{wrap}"),
            false => format!("{shown}\n"),
        })
    }
}

/// Progress reporter on standard error. Dropping it clears the line.
#[derive(Debug)]
pub struct Progress(ReportSchedule);

impl Progress {
    /// Starts a reporter that redraws its line if standard error is a terminal.
    pub fn start() -> Self {
        Self(ReportSchedule::new(io::stderr().is_terminal(), Instant::now()))
    }

    /// Starts a reporter that writes separate lines. Used if the process logs to the same terminal.
    pub fn separate_lines() -> Self {
        Self(ReportSchedule::new(false, Instant::now()))
    }

    /// Returns whether the reporter redraws a line on a terminal.
    pub fn redraws_line(&self) -> bool {
        self.0.is_terminal
    }

    /// Writes a report if one is due. May be called as often as convenient.
    pub fn report(&mut self, report: impl FnOnce() -> ProgressReport) {
        let Some(text) = self.0.text_if_due(Instant::now(), report) else {
            return;
        };
        if let Some(sink) = OUTPUT_SINK.get() {
            return sink(&text);
        }
        let mut out = io::stderr().lock();
        // Cleared in the same write, so that other processes cannot write in between.
        let _ = clear_line(&mut out)
            .and_then(|()| out.write_all(text.as_bytes()))
            .and_then(|()| out.flush());
        LINE_IS_DRAWN.store(self.0.is_terminal, Ordering::SeqCst);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0.is_terminal {
            clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines that a terminal with `columns` columns shows after the bytes in `written`.
    /// The last one is unterminated.
    fn screen(columns: usize, written: &str) -> Vec<String> {
        let (mut rows, mut column, mut wraps) = (vec![String::new()], 0, true);
        let mut rest = written;
        while let Some(char) = rest.chars().next() {
            let row = rows.last_mut().unwrap();
            if let Some(after) = rest.strip_prefix("\x1b[K") {
                let kept = row.chars().take(column).collect();
                (*row, rest) = (kept, after);
                continue;
            }
            if let Some(after) = rest.strip_prefix(LINE_WRAP_OFF_ON[0]) {
                (wraps, rest) = (false, after);
                continue;
            }
            if let Some(after) = rest.strip_prefix(LINE_WRAP_OFF_ON[1]) {
                (wraps, rest) = (true, after);
                continue;
            }
            match char {
                '\r' => column = 0,
                '\n' => {
                    rows.push(String::new());
                    column = 0;
                }
                _ if column == columns && wraps => {
                    rows.push(char.to_string());
                    column = 1;
                }
                _ => {
                    let at = column.min(columns - 1);
                    let mut chars: Vec<char> = row.chars().collect();
                    chars.resize(chars.len().max(at + 1), ' ');
                    chars[at] = char;
                    *row = chars.into_iter().collect();
                    column = at + 1;
                }
            }
            rest = &rest[char.len_utf8()..];
        }
        assert!(wraps, "a terminal is left as it was");
        rows
    }

    /// Returns all output and its times, for an activity that advances by one step per interval.
    fn written(terminal: bool, step: Duration, steps: u64) -> Vec<(Duration, String)> {
        let began = Instant::now();
        let mut pace = ReportSchedule::new(terminal, began);
        let mut written = Vec::new();
        for at in 0..=steps {
            let after = step * u32::try_from(at).unwrap();
            let report = || ProgressReport::bytes("backup", at << 10, steps << 10);
            written.extend(pace.text_if_due(began + after, report).map(|text| (after, text)));
        }
        written
    }

    #[test]
    fn a_log_gets_a_line_every_five_seconds() {
        let lines = written(false, Duration::from_millis(10), 1200);
        let expected = [
            (1, "backup: 8 %, 100 KiB of 1.1 MiB\n"),
            (6, "backup: 50 %, 600 KiB of 1.1 MiB\n"),
            (11, "backup: 91 %, 1 MiB of 1.1 MiB\n"),
        ];
        let expected = expected.map(|(at, text)| (Duration::from_secs(at), text.to_owned()));
        assert_eq!(lines, expected);
    }

    #[test]
    fn short_work_writes_no_progress_to_a_log() {
        assert_eq!(written(false, Duration::from_millis(1), 999), []);
    }

    #[test]
    fn progress_on_a_terminal_redraws_one_line() {
        let drawn = written(true, Duration::from_millis(10), 100);
        let times: Vec<u128> = drawn.iter().map(|(at, _)| at.as_millis()).collect();
        assert_eq!(times, [200, 400, 600, 800, 1000]);
        let all: String = drawn.iter().map(|(_, text)| &**text).collect();
        let last = "backup: [########################] 100 %, 100 KiB of 100 KiB";
        assert_eq!(screen(80, &all), [last]);
        let half: String = drawn[..2].iter().map(|(_, text)| &**text).collect();
        let shown = "backup: [#########---------------] 40 %, 40 KiB of 100 KiB";
        assert_eq!(screen(80, &half), [shown]);
        assert_eq!(screen(80, &format!("{half}{CLEAR_LINE}done\n")), ["done", ""]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_not_wrapped() {
        let drawn = written(true, Duration::from_millis(100), 10);
        let all: String = drawn.iter().map(|(_, text)| &**text).collect();
        let rows = screen(20, &all);
        assert_eq!(rows.len(), 1);
        assert!(rows[0].starts_with("backup: [##########"), "{rows:?}");
    }

    #[test]
    fn unchanged_progress_is_redrawn_but_not_logged_again() {
        for (terminal, times) in [(true, 100), (false, 1)] {
            let began = Instant::now();
            let mut pace = ReportSchedule::new(terminal, began);
            let mut count = 0;
            for second in 1..=100 {
                let now = began + Duration::from_secs(second);
                count += usize::from(
                    pace.text_if_due(now, || ProgressReport::text("waiting")).is_some(),
                );
            }
            assert_eq!(count, times);
        }
    }

    #[test]
    fn percentages_are_clamped_and_plain_text_has_none() {
        let empty = ProgressReport::bytes("checking", 0, 0);
        assert_eq!(empty.format_report(false), "checking: 0 %, 0 B of 0 B");
        // A file of 5000 bytes may have grown by the time it is read.
        let more = ProgressReport::with_share("", (7000, 5000), "2 MiB/s");
        assert_eq!(more.format_report(false), "100 %, 2 MiB/s");
        assert_eq!(more.format_report(true), "[########################] 100 %, 2 MiB/s");
        let most = ProgressReport::with_share("", (u64::MAX / 2, u64::MAX), "so far");
        assert_eq!(most.format_report(false), "49 %, so far");
        for terminal in [true, false] {
            assert_eq!(ProgressReport::text("9 slots").format_report(terminal), "9 slots");
        }
    }
}
