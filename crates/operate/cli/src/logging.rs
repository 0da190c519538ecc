//! Log lines on standard error, filtered by `QUORATE_LOG`, as plain text, text for the systemd
//! journal, or JSON. Messages are lower-case fragments with fields.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    env, fmt,
    io::{self, IsTerminal as _, Write as _},
    panic,
    sync::{LazyLock, OnceLock},
    thread,
    time::Duration,
};

use quorate::stderr::{self, Stderr};
use quorate_admin::progress;
use serde_json::{Map, Value as Json, json};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{self, Writer},
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

use crate::output::Problem;

/// Environment variable that contains the log filter.
pub(crate) const FILTER_VARIABLE: &str = "QUORATE_LOG";
/// Log levels in the order of increasing verbosity.
const LEVEL_NAMES: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Common prefix of the crates for which a filter may set a level.
const CRATE_PREFIX: &str = "quorate";

/// Starts logging to standard error with the given filter, or else the default one.
pub(crate) fn start(wanted: Option<&str>) -> Result<(), Problem> {
    let filter = parse_filter(wanted.unwrap_or_default())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal())
        .event_format(LineFormatter)
        .init();
    Ok(())
}

/// Format of a node's log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

impl Format {
    /// Parses the value of `--log-format`.
    pub(crate) fn parse_name(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Format of the log; unset in a process that only prints messages.
static LOG_FORMAT: OnceLock<Format> = OnceLock::new();

/// Set if standard error is the systemd journal, whose device and inode systemd passes in the
/// environment.
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    let own = rustix::fs::fstat(rustix::stdio::stderr());
    own.is_ok_and(|own| stream == format!("{}:{}", own.st_dev, own.st_ino))
});

/// A formatter of log lines.
struct LineFormatter;

impl<S, N> FormatEvent<S, N> for LineFormatter
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let text = format::format().with_target(false);
        if LOG_FORMAT.get() == Some(&Format::Json) {
            return writeln!(out, "{}", event_json(event));
        }
        if !*IS_JOURNAL {
            return text.format_event(context, out, event);
        }
        // The journal adds the time, and stores each line as a separate entry with its own
        // priority.
        let mut lines = String::new();
        text.without_time().format_event(context, Writer::new(&mut lines), event)?;
        let priority = syslog_priority(event.metadata().level());
        lines.trim_start().lines().try_for_each(|line| writeln!(out, "<{priority}>{line}"))
    }
}

/// Returns the priority of the syslog protocol.
fn syslog_priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

fn event_json(event: &Event<'_>) -> Json {
    let mut time = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut fields = JsonFields::default();
    event.record(&mut fields);
    let message = fields.0.remove("message").unwrap_or_default();
    json!({
        "time": time.trim_end(),
        "level": event.metadata().level().as_str().to_ascii_lowercase(),
        "target": event.metadata().target(),
        "message": message,
        "fields": fields.0,
    })
}

#[derive(Default)]
struct JsonFields(Map<String, Json>);

impl JsonFields {
    fn add(&mut self, field: &Field, value: impl Into<Json>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

/// Maximum time for which the process waits at exit until its output has been read.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Logs all output, including panic messages, in format `format` and through the queue of
/// [`stderr`]. A stalled or closed standard error can then neither block nor end this process.
pub(crate) fn start_log(format: Format) -> Result<(), Problem> {
    stderr::start_writer_thread().map_err(|error| Problem::io_error("start a thread", &error))?;
    let _ = LOG_FORMAT.set(format);
    progress::redirect_output(|text| tracing::info!("{}", text.trim_end()));
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let trace = Backtrace::capture();
        error(&match trace.status() {
            BacktraceStatus::Captured => format!("thread '{name}' {info}\n{trace}"),
            _ => format!("thread '{name}' {info}"),
        });
        flush_output();
    }));
    Ok(())
}

/// Returns whether errors are written as log lines rather than as messages to a user.
pub(crate) fn is_logging() -> bool {
    LOG_FORMAT.get().is_some() || *IS_JOURNAL
}

/// Logs an error, or prints it if the filter hides errors.
pub(crate) fn error(text: &str) {
    match tracing::enabled!(Level::ERROR) {
        true => tracing::error!("{text}"),
        // A write to the queue cannot fail.
        false => drop(writeln!(Stderr, "error: {text}")),
    }
}

/// Writes the queued output. Gives up after a second if the output is not read.
pub(crate) fn flush_output() {
    stderr::wait_until_written(FLUSH_TIMEOUT);
}

/// Parses a filter and rejects unknown words, which the library would take for crate names, and
/// then log nothing.
fn parse_filter(wanted: &str) -> Result<EnvFilter, Problem> {
    let wanted = match wanted.trim() {
        "" => "info",
        wanted => wanted,
    };
    let known = |part: &str| match part.split_once('=') {
        None => is_level(part),
        Some((target, level)) => is_target(target) && is_level(level),
    };
    let refused = |detail: &str| {
        Problem::usage_error(format_args!("{FILTER_VARIABLE}={wanted}: {detail}")).with_hint(
            format!(
                "use one of {}; a module can have its own level, as in info,quorate_net=debug",
                LEVEL_NAMES.join(", ")
            ),
        )
    };
    if let Some(part) = wanted.split(',').map(str::trim).find(|part| !known(part)) {
        return Err(refused(&format!("{part:?} is not a level")));
    }
    let wanted = wanted.replace(' ', "");
    EnvFilter::try_new(&wanted).map_err(|error| refused(&error.to_string()))
}

fn is_level(word: &str) -> bool {
    LEVEL_NAMES.iter().any(|level| word.eq_ignore_ascii_case(level))
}

fn is_target(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    word.starts_with(CRATE_PREFIX) && word.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_level_may_be_global_or_for_a_module() {
        for (wanted, expected) in [
            ("", "info"),
            ("warn", "warn"),
            ("DEBUG", "debug"),
            ("off", "off"),
            ("info, quorate_net=debug", "quorate_net=debug,info"),
            ("quorate::journal=trace", "quorate::journal=trace"),
        ] {
            assert_eq!(parse_filter(wanted).unwrap().to_string(), expected, "{wanted}");
        }
    }

    #[test]
    fn invalid_log_filter_is_one_error() {
        for wanted in [
            "verbose",
            "inf",
            "1",
            "info,",
            "info;debug",
            "net=debug",
            "quorate_net=loud",
            "quorate[x]=info",
        ] {
            let problem = parse_filter(wanted).unwrap_err();
            assert_eq!(problem.exit, crate::output::Exit::Usage);
            let begin = format!("QUORATE_LOG={wanted}: ");
            assert!(problem.message.starts_with(&begin), "{problem}");
            assert!(problem.hint.contains("off, error, warn, info, debug, trace"));
        }
    }
}
