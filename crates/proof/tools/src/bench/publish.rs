//! Publishes the results of a measurement as a table and in the requested files.

use std::{
    env, fs, io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate_bench::{
    environment::Environment, figure::round_to_four_digits, life::CommandTimeline,
    report::BenchReport, row::Row,
};

use super::args::FileArgs;
use quorate_cli::output::{
    Exit, Problem, format_table, is_switched_off, is_switched_on, print_line, progress,
};

/// Creates an empty results document for this run of `program`.
pub(super) fn empty_document(program: &str) -> BenchReport {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let arguments: Vec<String> = env::args().skip(1).collect();
    BenchReport {
        command: format!("{program} {}", arguments.join(" ")),
        unix_time: since.map_or(0, |since| since.as_secs()),
        environment: Environment::of_this_machine(),
        ceilings: Vec::new(),
        rows: Vec::new(),
        published: Vec::new(),
        lives: Vec::new(),
        predictions: Vec::new(),
        notes: Vec::new(),
    }
}

/// Returns the file given by `--json`; `None` if the document goes to standard output, or if it is
/// not requested.
fn json_path(files: &FileArgs) -> Option<&Path> {
    let given = files.json.as_deref()?;
    (!is_switched_on(given) && !is_switched_off(given)).then(|| Path::new(given))
}

/// Returns whether `--json` requests the document on standard output.
fn is_json_to_stdout(files: &FileArgs) -> bool {
    files.json.as_deref().is_some_and(is_switched_on)
}

/// Checks that every output file can be written, before minutes are spent on measuring. Existing
/// files are not changed and new files are removed again, because the run may end without a result.
pub(super) fn check_outputs_writable(files: &FileArgs) -> Result<(), Problem> {
    let wanted = [json_path(files), files.csv.as_deref(), files.html.as_deref()];
    wanted.into_iter().flatten().try_for_each(check_file_writable)
}

/// Checks that a file can be written, without changing it.
pub(super) fn check_file_writable(path: &Path) -> Result<(), Problem> {
    try_open(path).map_err(|error| Problem::io_error(path.display(), &error))
}

fn try_open(path: &Path) -> io::Result<()> {
    let is_new = !path.try_exists()?;
    let file = fs::File::options().create(true).append(true).open(path)?;
    // Another process may have created and written the file in the meantime.
    if is_new && file.metadata()?.len() == 0 {
        // Do not remove a symbolic link whose target did not exist.
        fs::remove_file(path.canonicalize()?)?;
    }
    Ok(())
}

/// Publishes the rows that were measured before a failure.
pub(super) fn publish_partial(mut document: BenchReport, files: &FileArgs, problem: &Problem) {
    if document.rows.is_empty() {
        return;
    }
    document.notes.push(format!("cut short: {problem}"));
    if let Err(also) = write_files(&document, files) {
        progress(&format!("cannot write the results: {also}"));
    }
}

/// Writes the files and prints the table. The exit code shows whether every row is valid.
pub(super) fn publish_results(document: &BenchReport, files: &FileArgs) -> Result<Exit, Problem> {
    write_files(document, files)?;
    if is_json_to_stdout(files) {
        print_line(document.to_json().trim_end());
    } else {
        print_line(format_document(document).trim_end());
    }
    Ok(if document.rows.iter().all(|row| row.valid) { Exit::Done } else { Exit::Failed })
}

/// Reports that a measurement was skipped. Skipping is not a failure.
pub(super) fn report_skipped(program: &str, why: &str, files: &FileArgs) -> Result<Exit, Problem> {
    let mut document = empty_document(program);
    document.notes.push(format!("skipped: {why}"));
    publish_results(&document, files)
}

fn write_files(document: &BenchReport, files: &FileArgs) -> Result<(), Problem> {
    let write = |path: Option<&Path>, render: fn(&BenchReport) -> String| match path {
        None => Ok(()),
        Some(path) => write_file(path, &render(document)),
    };
    write(json_path(files), BenchReport::to_json)?;
    write(files.csv.as_deref(), BenchReport::to_csv)?;
    write(files.html.as_deref(), BenchReport::to_html)
}

/// Writes a file and reports its path.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Problem> {
    fs::write(path, text)
        .map(|()| progress(&format!("wrote {}", path.display())))
        .map_err(|error| Problem::io_error(path.display(), &error))
}

fn format_document(document: &BenchReport) -> String {
    let environment = &document.environment;
    let mut text = format!(
        "commit {}, {}, {} CPUs\n",
        environment.commit, environment.kernel, environment.cpus
    );
    if !document.ceilings.is_empty() {
        let mut lines = vec![owned_cells(["what", "figure", "", "p50 µs", "p99 µs"])];
        for ceiling in &document.ceilings {
            lines.push(vec![
                ceiling.name.clone(),
                ceiling.value.to_string(),
                ceiling.unit.clone(),
                format_optional(ceiling.p50_us),
                format_optional(ceiling.p99_us),
            ]);
        }
        text.push_str(&format!("\n{}", format_table(&lines)));
    }
    let (segments, others): (Vec<&Row>, Vec<&Row>) =
        document.rows.iter().partition(|row| row.segment.is_some());
    let (streams, others): (Vec<&Row>, Vec<&Row>) =
        others.into_iter().partition(|row| row.stream.is_some());
    if !others.is_empty() {
        text.push_str(&format!("\n{}", format_rows(&others)));
    }
    if !streams.is_empty() {
        text.push_str(&format!("\n{}", format_streams(&streams)));
    }
    if !segments.is_empty() {
        text.push_str(&format!("\n{}", format_segments(&segments)));
    }
    for life in &document.lives {
        text.push_str(&format!("\n{}", format_timeline(life)));
    }
    if !document.published.is_empty() {
        let head = ["source", "what", "published", "ours"];
        let mut lines = vec![owned_cells(head)];
        for one in &document.published {
            let about = if one.approximate { "≈ " } else { "" };
            lines.push(vec![
                one.source.clone(),
                one.what.clone(),
                format!("{about}{} {}", one.published, one.unit),
                format_optional(one.ours),
            ]);
        }
        text.push_str(&format!("\n{}", format_table(&lines)));
    }
    if !document.predictions.is_empty() {
        let head = ["what", "model/s", "measured/s", "error", "w_cpu", "w_net"];
        let mut lines = vec![owned_cells(head)];
        for one in &document.predictions {
            lines.push(vec![
                one.what.clone(),
                one.predicted.to_string(),
                one.measured.to_string(),
                format!("{:+.1} %", one.error * 100.0),
                one.window_cpu.to_string(),
                one.window_net.to_string(),
            ]);
        }
        text.push_str(&format!("\n{}", format_table(&lines)));
    }
    for row in document.rows.iter().filter(|row| !row.valid) {
        let why = row.why_not.join("; ");
        text.push_str(&format!("\nno result: {} at {}: {why}", row.scenario, row.describe_load()));
    }
    for note in &document.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text
}

fn format_rows(rows: &[&Row]) -> String {
    let head = [
        "",
        "scenario",
        "class",
        "store",
        "bytes",
        "load",
        "achieved/s",
        "p50 µs",
        "p95",
        "p99",
        "p99.9",
        "CPU µs/op",
        "writes/op",
        "flushes/op",
        "foreign",
        "ceiling/s",
        "of it",
    ];
    let mut lines = vec![owned_cells(head)];
    for row in rows {
        let [mark, title] = leading_cells(row);
        lines.push(vec![
            mark,
            title,
            row.durability.clone(),
            row.store.clone(),
            row.value_bytes.to_string(),
            row.describe_load(),
            row.achieved_per_s.to_string(),
            row.p50_us.to_string(),
            row.p95_us.to_string(),
            row.p99_us.to_string(),
            row.p999_us.to_string(),
            format_optional(row.cpu_us_per_op),
            format_optional(row.writes_per_op),
            format_optional(row.flushes_per_op),
            format_percent(row.foreign_cpu),
            format_optional(row.ceiling),
            format_percent(row.ratio_to_ceiling),
        ]);
    }
    format_table(&lines)
}

fn format_streams(rows: &[&Row]) -> String {
    let head = [
        "",
        "scenario",
        "class",
        "write, B",
        "load",
        "MB/s",
        "delivered",
        "writes/s",
        "batch, B",
        "p50 µs",
        "p99",
        "p50 from call",
        "p99",
        "CPU s/GB, user + kernel",
        "foreign",
        "of ceiling",
    ];
    let mut lines = vec![owned_cells(head)];
    for row in rows {
        let Some(figures) = &row.stream else { continue };
        let [mark, title] = leading_cells(row);
        // Latencies that are counted from the intended time grow without bound if the rate is not
        // sustained.
        let meant = |us: f64| format_optional(row.has_latency().then_some(us));
        lines.push(vec![
            mark,
            title,
            if row.disk_flush_ms > 0.0 {
                format!("{}, flush {} ms", row.durability, row.disk_flush_ms)
            } else {
                row.durability.clone()
            },
            row.value_bytes.to_string(),
            row.describe_load(),
            round_to_four_digits(figures.bytes_per_s / 1e6).to_string(),
            format_optional(figures.delivered),
            row.achieved_per_s.to_string(),
            figures.acknowledged_bytes.to_string(),
            meant(row.p50_us),
            meant(row.p99_us),
            figures.from_call_p50_us.to_string(),
            figures.from_call_p99_us.to_string(),
            figures.describe_cpu(),
            format_percent(row.foreign_cpu),
            format_percent(row.ratio_to_ceiling),
        ]);
    }
    format_table(&lines)
}

/// Formats the results for senders and receivers on a network segment, with one line per row.
fn format_segments(rows: &[&Row]) -> String {
    let head = [
        "",
        "scenario",
        "way",
        "senders",
        "receivers",
        "queue, KiB",
        "load, % of link",
        "burst",
        "sent, Mbit/s",
        "slowest",
        "mean",
        "lost",
        "by the worst",
        "sender CPUs",
        "s/GB",
        "CPUs busy",
        "foreign",
        "limit",
    ];
    let mut lines = vec![owned_cells(head)];
    for row in rows {
        let Some(figures) = &row.segment else {
            continue;
        };
        let given = |number: Option<u32>| format_optional(number.map(f64::from));
        lines.push(vec![
            if row.valid { "" } else { "✗" }.to_owned(),
            row.scenario.clone(),
            figures.way.clone(),
            figures.senders.to_string(),
            figures.receivers.to_string(),
            given(figures.queue_kib),
            given(figures.load_percent),
            figures.burst.to_string(),
            figures.sent_mbit.to_string(),
            figures.slowest_mbit.to_string(),
            figures.mean_mbit.to_string(),
            format_loss(figures.loss),
            format_loss(figures.loss_worst),
            figures.sender_cpus.to_string(),
            figures.sender_s_per_gb.to_string(),
            format_percent(figures.cpus_busy),
            format_percent(row.foreign_cpu),
            figures.limit.clone(),
        ]);
    }
    format_table(&lines)
}

/// Formats the share of lost datagrams. Small shares are shown precisely, because they matter here.
fn format_loss(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Formats the life of a command as a table with one row per trace point, in the order of time.
fn format_timeline(life: &CommandTimeline) -> String {
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
    let mut lines = vec![owned_cells(head)];
    lines.extend(rows.into_iter().map(|(_, cells)| cells));
    let plane = life.plane.as_deref().map(|plane| format!(", {plane}"));
    format!(
        "{}{}, {} B, {} commands one after the other\n{}",
        life.durability,
        plane.unwrap_or_default(),
        life.value_bytes,
        life.commands,
        format_table(&lines)
    )
}

/// Returns the first two cells of a row: a mark if the row is invalid, and its title.
pub(super) fn leading_cells(row: &Row) -> [String; 2] {
    let mark = if row.valid { "" } else { "✗" };
    let ours = row.system == "quorate";
    let title = if ours { &row.scenario } else { &row.system };
    [mark.to_owned(), title.clone()]
}

pub(super) fn owned_cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

pub(super) fn format_optional(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

pub(super) fn format_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf};

    use super::*;

    fn files(json: &Path, csv: PathBuf, html: PathBuf) -> FileArgs {
        FileArgs { json: Some(json.to_str().unwrap().to_owned()), csv: Some(csv), html: Some(html) }
    }

    #[test]
    fn check_for_writable_files_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "results").unwrap();
        symlink(path("nothing"), path("link")).unwrap();
        check_outputs_writable(&files(&path("new"), path("old"), path("link"))).unwrap();
        assert!(!path("new").exists() && !path("nothing").exists());
        assert!(path("link").is_symlink());
        assert_eq!(fs::read(path("old")).unwrap(), b"results");
        let problem = check_outputs_writable(&files(&path("new"), path("no/folder"), path("link")));
        assert_eq!(problem.unwrap_err().code, "io");
        assert!(!path("new").exists());
    }

    #[test]
    fn results_replace_files_and_follow_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "results").unwrap();
        symlink(path("target"), path("link")).unwrap();
        let files = files(&path("new"), path("old"), path("link"));
        check_outputs_writable(&files).unwrap();
        write_files(&empty_document("quorate"), &files).unwrap();
        assert!(fs::read_to_string(path("new")).unwrap().starts_with('{'));
        assert!(fs::read_to_string(path("old")).unwrap().contains("scenario"));
        assert!(fs::read_to_string(path("target")).unwrap().contains("html"));
    }
}
