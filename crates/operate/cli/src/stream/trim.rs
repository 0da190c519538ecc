//! `quorate stream trim`: discards the bytes of a stream below a position.

use clap::Args;
use serde::Serialize;

use super::{Place, client_problem};
use crate::output::{Exit, Output, Problem};

/// Arguments of `quorate stream trim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TrimArgs {
    /// Name of the stream
    name: String,
    /// First position to keep
    #[arg(long, value_name = "POS")]
    before: u64,
    #[command(flatten)]
    place: Place,
}

/// Result of `quorate stream trim`.
#[derive(Serialize)]
struct Trimmed<'a> {
    name: &'a str,
    /// First position that is still retained.
    start: u64,
}

pub(super) fn run(args: &TrimArgs, output: Output) -> Result<Exit, Problem> {
    let name = &args.name;
    let trimmed = args.place.streams_client().trim(name, args.before);
    let start = trimmed.map_err(|error| client_problem(&error, format_args!("stream {name}")))?;
    output.print_result(&Trimmed { name, start }, || format!("{name}: starts at {start}"));
    Ok(Exit::Done)
}
