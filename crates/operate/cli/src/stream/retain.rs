//! `quorate stream retain`: sets the retention of a stream.

use clap::Args;
use serde::Serialize;

use super::{
    Place, client_problem,
    keep::{self, RetentionLimit, parse_age, parse_bytes},
};
use crate::output::{Exit, Output, Problem};

/// Arguments of `quorate stream retain`.
#[derive(Args, Clone, Debug)]
#[group(id = "bounds", required = true, multiple = true, args = ["bytes", "age"])]
pub(crate) struct RetainArgs {
    /// Name of the stream
    name: String,
    /// Keep the last N bytes
    #[arg(long, value_name = "N|all", value_parser = parse_bytes)]
    bytes: Option<RetentionLimit>,
    /// Keep bytes that are no older than this, such as 7d, 12h, 30m, 90s or 500ms
    #[arg(long, value_name = "TIME|forever", value_parser = parse_age)]
    age: Option<RetentionLimit>,
    #[command(flatten)]
    place: Place,
}

/// Result of `quorate stream retain`.
#[derive(Serialize)]
struct Retained<'a> {
    name: &'a str,
    keep_bytes: Option<u64>,
    keep_ms: Option<u64>,
    /// First retained position. Bytes below it are deleted shortly afterwards.
    start: u64,
}

pub(super) fn run(args: &RetainArgs, output: Output) -> Result<Exit, Problem> {
    let name = &args.name;
    let set = keep::set(&mut args.place.streams_client(), name, args.bytes, args.age);
    let (kept, start) =
        set.map_err(|error| client_problem(&error, format_args!("stream {name}")))?;
    let retained = Retained { name, keep_bytes: kept.bytes, keep_ms: kept.age_max_ms, start };
    output.print_result(&retained, || format!("{name}: retention {}", keep::format_limits(kept)));
    Ok(Exit::Done)
}
