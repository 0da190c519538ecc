//! `quorate stream rm`: removes a stream.

use serde::Serialize;

use super::{OneStream, client_problem};
use crate::output::{Exit, Output, Problem};

/// Result of `quorate stream rm`.
#[derive(Serialize)]
struct Removed<'a> {
    name: &'a str,
}

pub(super) fn run(args: &OneStream, output: Output) -> Result<Exit, Problem> {
    let name = &args.name;
    let removed = args.place.streams_client().remove(name);
    removed.map_err(|error| client_problem(&error, format_args!("stream {name}")))?;
    output.print_result(&Removed { name }, || format!("{name}: removed"));
    Ok(Exit::Done)
}
