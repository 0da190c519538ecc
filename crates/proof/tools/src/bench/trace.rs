//! `quorate bench log --trace FILE`: shows the life of one command as a picture and as a table.

use std::path::Path;

use quorate_bench::{life::Life, run::series::Series};

use super::{args::FileArgs, measure, publish};
use quorate_cli::output::{Exit, Problem, table};

/// Traces commands, then writes the picture and prints the table.
pub(super) fn run(series: &Series, picture: &Path, files: &FileArgs) -> Result<Exit, Problem> {
    publish::check_file(picture)?;
    let mut drawn = Ok(());
    let exit = measure(series.network(), files, |document| {
        let traced = series.trace(document);
        if !document.lives.is_empty() {
            drawn = publish::write_file(picture, &document.svg());
        }
        traced
    })?;
    drawn?;
    Ok(exit)
}

/// Formats a table with one row per trace point, in the order of time.
pub(super) fn shown(life: &Life) -> String {
    let mut rows: Vec<(f64, Vec<String>)> = Vec::new();
    for lane in &life.lanes {
        for hop in &lane.hops {
            let cells = [
                hop.p50_us.to_string(),
                hop.p99_us.to_string(),
                hop.typical_us.to_string(),
                lane.name.clone(),
                hop.hop.to_owned(),
            ];
            rows.push((hop.p50_us, cells.into()));
        }
    }
    rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let head = ["p50 µs", "p99 µs", "one command", "who", "what"];
    let mut lines = vec![publish::cells(head)];
    lines.extend(rows.into_iter().map(|(_, cells)| cells));
    let plane = life.plane.as_deref().map(|plane| format!(", {plane}"));
    format!(
        "{}{}, {} B, {} commands one after the other\n{}",
        life.durability,
        plane.unwrap_or_default(),
        life.value_bytes,
        life.commands,
        table(&lines)
    )
}
