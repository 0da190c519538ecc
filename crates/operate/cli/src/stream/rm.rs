//! `quorate stream rm`: removes a stream.

use serde::Serialize;

use super::{OneStream, problem};
use crate::output::{Exit, Output, Problem};

/// Result of `quorate stream rm`.
#[derive(Serialize)]
struct Removed<'a> {
    name: &'a str,
}

pub(super) fn run(args: &OneStream, output: Output) -> Result<Exit, Problem> {
    let name = &args.name;
    let removed = args.place.streams().remove(name);
    removed.map_err(|error| problem(&error, format_args!("stream {name}")))?;
    output.result(&Removed { name }, || format!("{name}: removed"));
    Ok(Exit::Done)
}
