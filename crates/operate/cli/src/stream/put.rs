//! `quorate stream put`: writes a file or standard input to a stream.

mod pace;
mod source;

use std::{
    io::{self, Read, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use clap::Args;
use quorate_admin::units::format_bytes as size;
use quorate_client::stream::{
    Error, ErrorCode, OpenMode, Options, ProgressHandle, StreamInfo, StreamWriter,
};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use self::{
    pace::RateLimiter,
    source::{InputSource, compare_with_stream},
};
use super::{
    Place, client_problem,
    keep::{self, RetentionLimit, parse_age, parse_bytes},
    progress::{self, per_second},
};
use crate::values::{Number, Unit};
use crate::{
    output::{self, Exit, Output, Problem},
    reporting::report_waiting,
    signals,
};

/// Maximum size of one read, in bytes.
const READ_BYTES_MAX: usize = 256 << 10;
/// Bounds for `--buffer`.
const BUFFER_BOUNDS: Number = Number::between(1, 1 << 40, Unit::Bytes);

/// Arguments of `quorate stream put`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PutArgs {
    /// File to write; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: std::path::PathBuf,
    /// Name of the stream [default: a new name, which is printed]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Append to an open stream that has no writer
    #[arg(long, requires = "name", conflicts_with_all = ["resume", "takeover"])]
    append: bool,
    /// Continue FILE where the stream ends, if the stream holds the beginning of FILE; create the
    /// stream if there is none
    #[arg(long, requires = "name")]
    resume: bool,
    /// Append to an open stream, and lock out its current writer permanently
    #[arg(long, requires = "name")]
    takeover: bool,
    /// Most bytes in flight (sent but not yet durable); the command stops reading at this limit
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = BUFFER_BOUNDS.argument::<u64>())]
    buffer: u64,
    /// Send at most this many bytes per second
    #[arg(long, value_name = "BYTES/s", value_parser = Number::at_least(1, Unit::BytesPerSecond).argument::<u64>())]
    limit: Option<u64>,
    /// Leave the stream open, so that --append can continue it
    #[arg(long)]
    no_close: bool,
    /// Retention by size: keep the last N bytes of the stream
    #[arg(long, value_name = "N|all", value_parser = parse_bytes)]
    retain_bytes: Option<RetentionLimit>,
    /// Retention by age: keep bytes that are no older than this, such as 7d, 12h, 30m, 90s or 500ms
    #[arg(long, value_name = "TIME|forever", value_parser = parse_age)]
    retain_age: Option<RetentionLimit>,
    /// Print only errors
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    place: Place,
}

/// Result of `quorate stream put`.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    /// Number of bytes that this command wrote.
    bytes: u64,
    /// Position below which every byte of the stream is durable.
    position: u64,
    reconnects: u64,
    seconds: f64,
}

impl Report {
    fn human(&self) -> String {
        let Self { name, bytes, position, reconnects, seconds } = self;
        let rate = size(per_second(*bytes, Duration::from_secs_f64(*seconds)));
        let bytes = size(*bytes);
        let lost = match reconnects {
            0 => String::new(),
            times => format!(", reconnects {times}"),
        };
        format!(
            "{name}: {bytes} in {seconds:.1} s ({rate}/s), durable to position {position}{lost}"
        )
    }
}

/// State of a running command. The signal handler reads it.
#[derive(Debug, Default)]
struct RunningPut {
    name: String,
    progress_handle: Option<ProgressHandle>,
}

pub(super) fn run(args: &PutArgs, output: Output) -> Result<Exit, Problem> {
    let began = Instant::now();
    let mut source = InputSource::open(&args.file)?;
    if args.resume && !source.is_file() {
        return Err(Problem::usage_error("--resume needs a FILE, not standard input")
            .with_hint("a pipe cannot be read again from the start"));
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => random_name()?,
    };
    if args.name.is_none() {
        // The user needs the name in order to resume.
        output::progress(&format!("stream {name}"));
    }
    let underway = Arc::new(Mutex::new(RunningPut { name: name.clone(), progress_handle: None }));
    let interrupted = Arc::clone(&underway);
    signals::end_at_first_signal(move || {
        let underway = interrupted.lock().unwrap_or_else(PoisonError::into_inner);
        underway.report_durable(output);
    })?;

    let failed = |error: Error| client_problem(&error, format_args!("stream {name}"));
    let wait = || (!args.quiet).then(|| report_waiting(super::client_options().open));
    let waits = wait();
    let found = match args.resume {
        true => stream_to_resume(args, &name).map_err(failed)?,
        false => None,
    };
    drop(waits);
    let tell = |report: &Report| {
        if !args.quiet {
            output.print_result(report, || report.human());
        }
    };
    let mut same = 0;
    if let Some(info) = &found {
        compare_with_stream(&args.place.stream, info, info.start..info.durable_end, &mut source)?;
        same = info.durable_end;
        if info.is_finished && source.length() == Some(info.durable_end) {
            let report = Report {
                name,
                bytes: 0,
                position: info.durable_end,
                reconnects: 0,
                seconds: began.elapsed().as_secs_f64(),
            };
            tell(&report);
            return Ok(Exit::Done);
        }
    }
    let how = match (args.takeover, args.append, args.resume, &found) {
        (_, _, true, None) | (false, false, false, _) => OpenMode::Create,
        (true, ..) => OpenMode::Takeover,
        _ => OpenMode::Append,
    };
    let options = Options {
        buffer_bytes_max: usize::try_from(args.buffer).expect("BUFFER fits"),
        ..super::client_options()
    };
    let waits = wait();
    let mut writer = StreamWriter::open(&args.place.stream, &name, how, options).map_err(failed)?;
    drop(waits);
    underway.lock().unwrap_or_else(PoisonError::into_inner).progress_handle =
        Some(writer.progress_handle());
    let (bytes, age) = (args.retain_bytes, args.retain_age);
    if bytes.is_some() || age.is_some() {
        keep::set(&mut args.place.streams_client(), &name, bytes, age).map_err(failed)?;
    }
    let first = writer.first_position();
    if let Some(info) = &found {
        // Bytes from the previous writer may have been decided in the meantime.
        compare_with_stream(&args.place.stream, info, same..first, &mut source)?;
        source.seek(first)?;
    }
    let end = source.length().map(|length| match args.resume {
        true => length,
        false => first + length,
    });
    let watch = writer.progress_handle();
    let drawn = (!args.quiet).then(|| progress::start(watch.clone(), end)).transpose();
    let drawn = drawn.map_err(|error| Problem::io_error("start a thread", &error))?;
    let copied = copy_source(&mut source, &mut writer, &mut RateLimiter::new(args.limit));
    let position = copied.and_then(|()| match args.no_close {
        true => writer.detach().map_err(CopyError::Stream),
        false => writer.finish().map_err(CopyError::Stream),
    });
    drop(drawn);
    let position = position.map_err(|broken| {
        let durable = watch.progress().durable_position;
        broken.into_problem(&source, &name, durable)
    })?;
    let report = Report {
        name,
        bytes: position - first,
        position,
        reconnects: watch.progress().reconnect_count,
        seconds: began.elapsed().as_secs_f64(),
    };
    tell(&report);
    Ok(Exit::Done)
}

/// Returns the state of the stream to resume, if the stream exists.
fn stream_to_resume(args: &PutArgs, name: &str) -> Result<Option<StreamInfo>, Error> {
    match args.place.streams_client().stat(name) {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.code() == Some(ErrorCode::Unknown) => Ok(None),
        Err(error) => Err(error),
    }
}

fn random_name() -> Result<String, Problem> {
    let mut bytes = [0; 8];
    let drawn = getrandom(&mut bytes, GetRandomFlags::empty());
    drawn.map_err(|error| Problem::io_error("random numbers", &error.into()))?;
    Ok(format!("stream-{:016x}", u64::from_ne_bytes(bytes)))
}

impl RunningPut {
    /// Reports the durable position to a user who interrupted the command, and how to resume.
    fn report_durable(&self, output: Output) {
        let name = &self.name;
        let what = match &self.progress_handle {
            None => format!("interrupted before stream {name} was open"),
            Some(watch) => {
                let position = watch.progress().durable_position;
                format!("interrupted; stream {name} is durable to position {position}")
            }
        };
        let problem = Problem::new(Exit::Interrupted, "interrupted", what);
        output.print_problem(&problem.with_hint("use --resume to continue with the same file"));
    }
}

/// Reason why copying ended before the end of the input.
#[derive(Debug)]
enum CopyError {
    Input(io::Error),
    Stream(Error),
}

impl CopyError {
    fn into_problem(self, source: &InputSource, name: &str, durable: u64) -> Problem {
        let mut problem = match self {
            Self::Input(error) => Problem::io_error(format_args!("read {source}"), &error),
            Self::Stream(error) => client_problem(&error, format_args!("stream {name}")),
        };
        problem.message += &format!("; stream {name} is durable to position {durable}");
        problem
    }
}

/// Copies the source to the stream, never reading more than fits into the writer's buffer.
fn copy_source(
    source: &mut dyn Read,
    writer: &mut StreamWriter,
    pace: &mut RateLimiter,
) -> Result<(), CopyError> {
    let mut piece = vec![0; READ_BYTES_MAX];
    loop {
        let room = writer.wait_for_room().map_err(CopyError::Stream)?;
        let most = room.min(pace.bytes_allowed(READ_BYTES_MAX));
        let count = match source.read(&mut piece[..most]) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Input(error)),
        };
        writer.write_all(&piece[..count]).map_err(|error| {
            let error = Error::from_io_error(&error).cloned();
            CopyError::Stream(error.expect("a writer's errors are of its own kind"))
        })?;
        pace.sleep_after(count);
    }
}
