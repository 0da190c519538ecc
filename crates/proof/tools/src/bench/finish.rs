//! Publishes the rows of a measurement, even if the measurement failed.

use quorate_bench::{report::Document, row::Row};

use super::{args::FileArgs, publish};
use quorate_cli::output::{Exit, Output, Problem, is_switched_on, print, table};

/// Publishes the rows, then reports the problem if there is one. If there are no rows, reports only
/// the problem.
pub(super) fn finish(
    mut document: Document,
    files: &FileArgs,
    measured: Result<(), Problem>,
) -> Result<Exit, Problem> {
    let Err(problem) = measured else {
        let exit = publish::publish(&document, files)?;
        print_spread(&document.rows, files);
        return Ok(exit);
    };
    if document.rows.is_empty() {
        return Err(problem);
    }
    publish::rescue(document.clone(), files, &problem);
    document.notes.push(format!("cut short: {problem}"));
    let json = files.json.clone().filter(|given| is_switched_on(given));
    let to_stdout = json.is_some();
    let shown = FileArgs { json, csv: None, html: None };
    publish::publish(&document, &shown)?;
    print_spread(&document.rows, &shown);
    if to_stdout {
        // Standard output already contains the document, which includes the problem.
        return Ok(Output { json: false }.problem(&problem));
    }
    Err(problem)
}

/// Prints the spread of the repetitions below the table, which has no space for another column.
fn print_spread(rows: &[Row], files: &FileArgs) {
    let json = files.json.as_deref().is_some_and(is_switched_on);
    if !json && !rows.is_empty() {
        print(&format!("\n{}", spread(rows).trim_end()));
    }
}

/// Formats the range of the repetitions. At a fixed rate, adds the share of commands that were sent
/// late.
fn spread(rows: &[Row]) -> String {
    let head = [
        "",
        "scenario",
        "class",
        "bytes",
        "load",
        "repetitions",
        "achieved/s, least–greatest",
        "p99 µs, least–greatest",
        "sent late",
    ];
    let mut lines = vec![publish::cells(head)];
    for row in rows {
        let [mark, title] = publish::begin(row);
        let late = row.lateness();
        lines.push(vec![
            mark,
            title,
            row.durability.clone(),
            row.value_bytes.to_string(),
            row.load(),
            row.repeats.to_string(),
            row.achieved_spread.to_string(),
            if row.has_latency() { row.p99_spread.to_string() } else { "-".to_owned() },
            late.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0)),
        ]);
    }
    table(&lines)
}

#[cfg(test)]
mod tests {
    use quorate_bench::{
        environment::Environment, load::Offer, repetition::Repetition, row::Setting,
    };

    use super::*;

    fn row(offer: Offer) -> Row {
        let repetition = |completed: u64, late| {
            let mut repetition = Repetition::default();
            repetition.samples.completed = completed;
            repetition.samples.measured = 1_000_000_000;
            (repetition.samples.sent, repetition.samples.late) = (1000, late);
            repetition.samples.latencies.record(completed * 1000);
            repetition
        };
        let all = [repetition(900, 4), repetition(1000, 0)];
        let setting = Setting::new("log", "durable", "none", 64, offer);
        Row::new(&setting, &Environment::now(), &all).unwrap()
    }

    #[test]
    fn the_spread_of_a_row_and_its_lateness_are_shown() {
        let rows = [row(Offer::Closed { outstanding: 8 }), row(Offer::Open { per_second: 1000 })];
        let text = spread(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for line in &lines[1..] {
            assert!(line.contains("900–1000") && line.contains("900.1–1000"), "{text}");
        }
        assert!(lines[1].ends_with('-') && lines[2].ends_with("0.40 %"), "{text}");
    }
}
