//! `quorate stream ls`: lists all streams.

use clap::Args;
use quorate_admin::units::format_bytes;
use serde::Serialize;

use super::{Place, StreamView, client_problem};
use crate::output::{Exit, Output, Problem, format_table};

/// Arguments of `quorate stream ls`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    place: Place,
}

/// All streams, sorted by name.
#[derive(Serialize)]
struct List {
    streams: Vec<StreamView>,
}

pub(super) fn run(args: &LsArgs, output: Output) -> Result<Exit, Problem> {
    let found = args.place.streams_client().list();
    let found = found.map_err(|error| client_problem(&error, "list streams"))?;
    let streams = found.into_iter().map(StreamView::from_info).collect();
    let list = List { streams };
    output.print_result(&list, || human(&list.streams));
    Ok(Exit::Done)
}

fn human(streams: &[StreamView]) -> String {
    if streams.is_empty() {
        return "no streams".to_owned();
    }
    let heads =
        ["name", "state", "start", "durable", "bytes", "writer", "pieces", "keeps", "created"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(streams.iter().map(|stream| {
        vec![
            stream.name.clone(),
            stream.state.to_owned(),
            stream.start.to_string(),
            stream.durable.to_string(),
            format_bytes(stream.bytes),
            stream.writer.map_or("-".to_owned(), |node| node.to_string()),
            stream.pieces.to_string(),
            stream.format_retention(),
            stream.created.clone(),
        ]
    }));
    format_table(&rows)
}
