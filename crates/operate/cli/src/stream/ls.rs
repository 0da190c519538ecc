//! `quorate stream ls`: lists all streams.

use clap::Args;
use quorate_admin::units::bytes;
use serde::Serialize;

use super::{Place, View, problem};
use crate::output::{Exit, Output, Problem, table};

/// Arguments of `quorate stream ls`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    place: Place,
}

/// All streams, sorted by name.
#[derive(Serialize)]
struct List {
    streams: Vec<View>,
}

pub(super) fn run(args: &LsArgs, output: Output) -> Result<Exit, Problem> {
    let found = args.place.streams().list();
    let found = found.map_err(|error| problem(&error, "list streams"))?;
    let streams = found.into_iter().map(View::of).collect();
    let list = List { streams };
    output.result(&list, || human(&list.streams));
    Ok(Exit::Done)
}

fn human(streams: &[View]) -> String {
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
            bytes(stream.bytes),
            stream.writer.map_or("-".to_owned(), |node| node.to_string()),
            stream.pieces.to_string(),
            stream.format_retention(),
            stream.created.clone(),
        ]
    }));
    table(&rows)
}
