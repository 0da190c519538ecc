//! The end of a measurement: what there is gets published, also if something failed on the way.

use quorate_bench::report::Document;

use super::{args::FileArgs, publish};
use crate::output::{Exit, Output, Problem, is_on};

/// Publishes the rows, then says what failed, if something did. Without any row the problem is all there is to say.
pub(super) fn finish(
    mut document: Document,
    files: &FileArgs,
    measured: Result<(), Problem>,
) -> Result<Exit, Problem> {
    let Err(problem) = measured else {
        return publish::publish(&document, files);
    };
    if document.rows.is_empty() {
        return Err(problem);
    }
    publish::rescue(document.clone(), files, &problem);
    document.notes.push(format!("cut short: {problem}"));
    let json = files.json.clone().filter(|given| is_on(given));
    let to_stdout = json.is_some();
    let shown = FileArgs {
        json,
        csv: None,
        html: None,
    };
    publish::publish(&document, &shown)?;
    if to_stdout {
        // Standard output has its one document, which says it as well.
        return Ok(Output { json: false }.problem(&problem));
    }
    Err(problem)
}
