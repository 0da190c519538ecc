//! `quorate stream stat`: describes a stream.

use quorate_admin::units::bytes;

use super::{OneStream, View, problem};
use crate::output::{Exit, Output, Problem};

pub(super) fn run(args: &OneStream, output: Output) -> Result<Exit, Problem> {
    let found = args.place.streams().stat(&args.name);
    let view =
        View::of(found.map_err(|error| problem(&error, format_args!("stream {}", &args.name)))?);
    output.result(&view, || human(&view));
    Ok(Exit::Done)
}

fn human(view: &View) -> String {
    let View { name, state, start, durable, pieces, created, .. } = view;
    let (size, keeps) = (bytes(view.bytes), view.format_retention());
    let writer = view.writer.map_or(String::new(), |node| format!(", written at node {node}"));
    format!(
        "{name}: {state}{writer}, positions {start} to {durable} ({size}), pieces {pieces}, retention {keeps}, created {created}"
    )
}
