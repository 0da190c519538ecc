//! Publishes the rows of a measurement, even if the measurement failed.

use quorate_bench::{report::BenchReport, row::Row};

use super::{args::FileArgs, publish};
use quorate_cli::output::{Exit, Output, Problem, format_table, is_switched_on, print_line};

/// Publishes the rows, then reports the problem if there is one. If there are no rows, reports only
/// the problem.
pub(super) fn publish_and_report(
    mut document: BenchReport,
    files: &FileArgs,
    measured: Result<(), Problem>,
) -> Result<Exit, Problem> {
    let Err(problem) = measured else {
        let exit = publish::publish_results(&document, files)?;
        print_spread(&document.rows, files);
        return Ok(exit);
    };
    if document.rows.is_empty() {
        return Err(problem);
    }
    publish::publish_partial(document.clone(), files, &problem);
    document.notes.push(format!("cut short: {problem}"));
    let json = files.json.clone().filter(|given| is_switched_on(given));
    let to_stdout = json.is_some();
    let shown = FileArgs { json, csv: None, html: None };
    publish::publish_results(&document, &shown)?;
    print_spread(&document.rows, &shown);
    if to_stdout {
        // Standard output already contains the document, which includes the problem.
        return Ok(Output { json: false }.print_problem(&problem));
    }
    Err(problem)
}

/// Prints the spread of the repetitions below the table, which has no space for another column.
fn print_spread(rows: &[Row], files: &FileArgs) {
    let json = files.json.as_deref().is_some_and(is_switched_on);
    if !json && !rows.is_empty() {
        print_line(&format!("\n{}", format_spread(rows).trim_end()));
    }
}

/// Formats the range of the repetitions. At a fixed rate, adds the share of commands that were sent
/// late.
fn format_spread(rows: &[Row]) -> String {
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
    let mut lines = vec![publish::owned_cells(head)];
    for row in rows {
        let [mark, title] = publish::leading_cells(row);
        let late = row.late_share_if_open();
        lines.push(vec![
            mark,
            title,
            row.durability.clone(),
            row.value_bytes.to_string(),
            row.describe_load(),
            row.repeats.to_string(),
            row.achieved_spread.to_string(),
            if row.has_latency() { row.p99_spread.to_string() } else { "-".to_owned() },
            late.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0)),
        ]);
    }
    format_table(&lines)
}

#[cfg(test)]
mod tests {
    use quorate_bench::{
        environment::Environment, load::OfferedLoad, repetition::Repetition, row::RowSetting,
    };

    use super::*;

    fn row(offer: OfferedLoad) -> Row {
        let repetition = |completed: u64, late| {
            let mut repetition = Repetition::default();
            repetition.samples.completed = completed;
            repetition.samples.measured_ns = 1_000_000_000;
            (repetition.samples.sent_count, repetition.samples.late_count) = (1000, late);
            repetition.samples.latencies.record(completed * 1000);
            repetition
        };
        let all = [repetition(900, 4), repetition(1000, 0)];
        let setting = RowSetting::new("log", "durable", "none", 64, offer);
        Row::new(&setting, &Environment::of_this_machine(), &all).unwrap()
    }

    #[test]
    fn the_spread_of_a_row_and_its_lateness_are_shown() {
        let rows = [
            row(OfferedLoad::Closed { outstanding: 8 }),
            row(OfferedLoad::Open { per_second: 1000 }),
        ];
        let text = format_spread(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for line in &lines[1..] {
            assert!(line.contains("900–1000") && line.contains("900.1–1000"), "{text}");
        }
        assert!(lines[1].ends_with('-') && lines[2].ends_with("0.40 %"), "{text}");
    }
}
