//! `quorate stream cat`: writes the durable bytes of a stream, and nothing else, to standard
//! output.

use std::{
    fs::File,
    io::{self, BufRead as _, ErrorKind, Write as _},
    os::fd::AsFd as _,
    process, thread,
    time::Duration,
};

use clap::Args;
use quorate_client::stream::{Error, ErrorCode, StreamReader};
use serde::Serialize;

use super::{Place, client_problem};
use crate::{
    output::{Exit, Output, Problem, progress, wait_for_reader_end},
    reporting::report_waiting,
    values::{Number, Unit},
};

/// Duration of one wait for the reader to close the output, which the thread repeats.
const READER_WAIT: Duration = Duration::from_secs(3600);

const LAST_BOUNDS: Number = Number::at_least(1, Unit::Bytes);

/// Arguments of `quorate stream cat`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CatArgs {
    /// Name of the stream
    name: String,
    /// First position to read [default: that of the first byte that is left]
    #[arg(long, value_name = "POS")]
    from: Option<u64>,
    /// Read only the last bytes, such as 64KiB
    #[arg(long, value_name = "BYTES", conflicts_with = "from", value_parser = LAST_BOUNDS.argument::<u64>())]
    last: Option<u64>,
    /// Position after the last byte to read [default: the end]
    #[arg(long, value_name = "POS")]
    to: Option<u64>,
    /// Wait for more bytes at the end of the stream, until it is closed
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    place: Place,
}

/// Result of `quorate stream cat`: the number of bytes printed, and the position after them.
#[derive(Serialize)]
struct PrintedRange<'a> {
    name: &'a str,
    bytes: u64,
    position: u64,
    state: &'static str,
}

/// Runs `quorate stream cat`. Standard output is reserved for the stream's bytes, so `--json`
/// prints the result or the error to standard error.
pub(super) fn run(args: &CatArgs, output: Output) -> Result<Exit, Problem> {
    match (print_stream(args), output.json) {
        (Ok(None), _) | (Ok(Some(_)), false) => Ok(Exit::Done),
        (Ok(Some(given)), true) => {
            progress(&serde_json::to_string(&given).expect("plain data"));
            Ok(Exit::Done)
        }
        (Err(problem), false) => Err(problem),
        (Err(problem), true) => {
            progress(&problem.to_json());
            Ok(problem.exit)
        }
    }
}

/// Prints the stream. Returns `None` if the reader closed the output, which is not an error.
fn print_stream(args: &CatArgs) -> Result<Option<PrintedRange<'_>>, Problem> {
    let name = &args.name;
    let failed = |error| client_problem(&error, format_args!("stream {name}"));
    let to = args.to.unwrap_or(u64::MAX);
    let mut from = match (args.from, args.last) {
        (from, None) => from.unwrap_or_default(),
        (_, Some(last)) => {
            let info = args.place.streams_client().stat(name).map_err(failed)?;
            info.durable_end.saturating_sub(last).max(info.start)
        }
    };
    if to < from {
        return Err(Problem::usage_error(format_args!("--to {to} is before --from {from}")));
    }
    let reader_from = |from| {
        let reader = StreamReader::new(&args.place.stream, name, super::client_options())
            .from(from)
            .stop_at(to);
        if args.follow { reader.follow() } else { reader }
    };
    let mut reader = reader_from(from);
    if args.follow {
        end_when_reader_closes().map_err(|error| Problem::io_error("start a thread", &error))?;
    }
    // Avoid the line buffering of standard output.
    let out = io::stdout().as_fd().try_clone_to_owned();
    let mut out = File::from(out.map_err(|error| Problem::io_error("standard output", &error))?);
    let mut waits = (!args.follow).then(|| report_waiting(super::client_options().open));
    loop {
        let at = reader.position();
        let next = reader.next_bytes();
        drop(waits.take());
        let bytes = match (next, args.from) {
            (Ok(bytes), _) => bytes,
            // Nothing was read, and the caller did not request a trimmed position.
            (Err(Error::Refused(refusal)), None)
                if ErrorCode::from_number(refusal.code) == Some(ErrorCode::Trimmed)
                    && at == from
                    && refusal.position <= to =>
            {
                from = refusal.position;
                progress(&format!("stream {name}: trimmed, so it starts at {from}"));
                reader = reader_from(from);
                continue;
            }
            (Err(error), _) => return Err(failed(error)),
        };
        if bytes.is_empty() {
            break;
        }
        match out.write_all(bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(None),
            Err(error) => return Err(Problem::io_error("write to standard output", &error)),
        }
        let count = bytes.len();
        reader.consume(count);
    }
    let position = reader.position();
    let finished = reader.end().is_some_and(|end| end.is_finished);
    if args.to.is_some_and(|to| position < to) {
        let what = format_args!("stream {name}: it ends at {position}, before --to {to}");
        return Err(Problem::new(Exit::Failed, "behind_end", what)
            .with_hint("all existing bytes were written; use --follow to wait for more"));
    }
    Ok(Some(PrintedRange {
        name,
        bytes: position - from,
        position,
        state: match finished {
            true => "closed",
            false => "open",
        },
    }))
}

/// Starts a thread that ends the process once the reader closes the output, which the process would
/// otherwise not notice while it waits for more bytes.
fn end_when_reader_closes() -> io::Result<()> {
    let watch = || {
        while !wait_for_reader_end(READER_WAIT) {}
        process::exit(Exit::Done as i32);
    };
    thread::Builder::new().name("reader".to_owned()).spawn(watch)?;
    Ok(())
}
