//! `quorate stream stat`: describes a stream.

use quorate_admin::units::format_bytes;

use super::{OneStream, StreamView, client_problem};
use crate::output::{Exit, Output, Problem};

pub(super) fn run(args: &OneStream, output: Output) -> Result<Exit, Problem> {
    let found = args.place.streams_client().stat(&args.name);
    let view = StreamView::from_info(
        found.map_err(|error| client_problem(&error, format_args!("stream {}", &args.name)))?,
    );
    output.print_result(&view, || human(&view));
    Ok(Exit::Done)
}

fn human(view: &StreamView) -> String {
    let StreamView { name, state, start, durable, pieces, created, .. } = view;
    let (size, keeps) = (format_bytes(view.bytes), view.format_retention());
    let writer = view.writer.map_or(String::new(), |node| format!(", written at node {node}"));
    format!(
        "{name}: {state}{writer}, positions {start} to {durable} ({size}), pieces {pieces}, retention {keeps}, created {created}"
    )
}
