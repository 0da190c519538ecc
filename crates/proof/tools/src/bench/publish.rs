//! Publishes the results of a measurement as a table and in the requested files.

use std::{
    env, fs, io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate_bench::{
    environment::Environment, figure::round, life::CommandTimeline, report::Document, row::Row,
};

use super::args::FileArgs;
use quorate_cli::output::{Exit, Problem, is_switched_off, is_switched_on, print, progress, table};

/// Creates an empty results document for this run of `program`.
pub(super) fn document(program: &str) -> Document {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let arguments: Vec<String> = env::args().skip(1).collect();
    Document {
        command: format!("{program} {}", arguments.join(" ")),
        unix_time: since.map_or(0, |since| since.as_secs()),
        environment: Environment::now(),
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
fn json_file(files: &FileArgs) -> Option<&Path> {
    let given = files.json.as_deref()?;
    (!is_switched_on(given) && !is_switched_off(given)).then(|| Path::new(given))
}

/// Returns whether `--json` requests the document on standard output.
fn json_to_stdout(files: &FileArgs) -> bool {
    files.json.as_deref().is_some_and(is_switched_on)
}

/// Checks that every output file can be written, before minutes are spent on measuring. Existing
/// files are not changed and new files are removed again, because the run may end without a result.
pub(super) fn check(files: &FileArgs) -> Result<(), Problem> {
    let wanted = [json_file(files), files.csv.as_deref(), files.html.as_deref()];
    wanted.into_iter().flatten().try_for_each(check_file)
}

/// Checks that a file can be written, without changing it.
pub(super) fn check_file(path: &Path) -> Result<(), Problem> {
    try_writing(path).map_err(|error| Problem::io(path.display(), &error))
}

fn try_writing(path: &Path) -> io::Result<()> {
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
pub(super) fn rescue(mut document: Document, files: &FileArgs, problem: &Problem) {
    if document.rows.is_empty() {
        return;
    }
    document.notes.push(format!("cut short: {problem}"));
    if let Err(also) = write_files(&document, files) {
        progress(&format!("cannot write the results: {also}"));
    }
}

/// Writes the files and prints the table. The exit code shows whether every row is valid.
pub(super) fn publish(document: &Document, files: &FileArgs) -> Result<Exit, Problem> {
    write_files(document, files)?;
    if json_to_stdout(files) {
        print(document.json().trim_end());
    } else {
        print(human(document).trim_end());
    }
    Ok(if document.rows.iter().all(|row| row.valid) { Exit::Done } else { Exit::Failed })
}

/// Reports that a measurement was skipped. Skipping is not a failure.
pub(super) fn skip(program: &str, why: &str, files: &FileArgs) -> Result<Exit, Problem> {
    let mut document = document(program);
    document.notes.push(format!("skipped: {why}"));
    publish(&document, files)
}

fn write_files(document: &Document, files: &FileArgs) -> Result<(), Problem> {
    let write = |path: Option<&Path>, render: fn(&Document) -> String| match path {
        None => Ok(()),
        Some(path) => write_file(path, &render(document)),
    };
    write(json_file(files), Document::json)?;
    write(files.csv.as_deref(), Document::csv)?;
    write(files.html.as_deref(), Document::html)
}

/// Writes a file and reports its path.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Problem> {
    fs::write(path, text)
        .map(|()| progress(&format!("wrote {}", path.display())))
        .map_err(|error| Problem::io(path.display(), &error))
}

fn human(document: &Document) -> String {
    let environment = &document.environment;
    let mut text = format!(
        "commit {}, {}, {} CPUs\n",
        environment.commit, environment.kernel, environment.cpus
    );
    if !document.ceilings.is_empty() {
        let mut lines = vec![cells(["what", "figure", "", "p50 µs", "p99 µs"])];
        for ceiling in &document.ceilings {
            lines.push(vec![
                ceiling.name.clone(),
                ceiling.value.to_string(),
                ceiling.unit.clone(),
                optional(ceiling.p50_us),
                optional(ceiling.p99_us),
            ]);
        }
        text.push_str(&format!("\n{}", table(&lines)));
    }
    let (segments, others): (Vec<&Row>, Vec<&Row>) =
        document.rows.iter().partition(|row| row.segment.is_some());
    let (streams, others): (Vec<&Row>, Vec<&Row>) =
        others.into_iter().partition(|row| row.stream.is_some());
    if !others.is_empty() {
        text.push_str(&format!("\n{}", rows(&others)));
    }
    if !streams.is_empty() {
        text.push_str(&format!("\n{}", of_streams(&streams)));
    }
    if !segments.is_empty() {
        text.push_str(&format!("\n{}", of_segments(&segments)));
    }
    for life in &document.lives {
        text.push_str(&format!("\n{}", of_life(life)));
    }
    if !document.published.is_empty() {
        let head = ["source", "what", "published", "ours"];
        let mut lines = vec![cells(head)];
        for one in &document.published {
            let about = if one.approximate { "≈ " } else { "" };
            lines.push(vec![
                one.source.clone(),
                one.what.clone(),
                format!("{about}{} {}", one.published, one.unit),
                optional(one.ours),
            ]);
        }
        text.push_str(&format!("\n{}", table(&lines)));
    }
    if !document.predictions.is_empty() {
        let head = ["what", "model/s", "measured/s", "error", "w_cpu", "w_net"];
        let mut lines = vec![cells(head)];
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
        text.push_str(&format!("\n{}", table(&lines)));
    }
    for row in document.rows.iter().filter(|row| !row.valid) {
        let why = row.why_not.join("; ");
        text.push_str(&format!("\nno result: {} at {}: {why}", row.scenario, row.load()));
    }
    for note in &document.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text
}

fn rows(rows: &[&Row]) -> String {
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
    let mut lines = vec![cells(head)];
    for row in rows {
        let [mark, title] = begin(row);
        lines.push(vec![
            mark,
            title,
            row.durability.clone(),
            row.store.clone(),
            row.value_bytes.to_string(),
            row.load(),
            row.achieved_per_s.to_string(),
            row.p50_us.to_string(),
            row.p95_us.to_string(),
            row.p99_us.to_string(),
            row.p999_us.to_string(),
            optional(row.cpu_us_per_op),
            optional(row.writes_per_op),
            optional(row.flushes_per_op),
            percent(row.foreign_cpu),
            optional(row.ceiling),
            percent(row.ratio_to_ceiling),
        ]);
    }
    table(&lines)
}

fn of_streams(rows: &[&Row]) -> String {
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
    let mut lines = vec![cells(head)];
    for row in rows {
        let Some(figures) = &row.stream else { continue };
        let [mark, title] = begin(row);
        // Latencies that are counted from the intended time grow without bound if the rate is not
        // sustained.
        let meant = |us: f64| optional(row.has_latency().then_some(us));
        lines.push(vec![
            mark,
            title,
            if row.disk_flush_ms > 0.0 {
                format!("{}, flush {} ms", row.durability, row.disk_flush_ms)
            } else {
                row.durability.clone()
            },
            row.value_bytes.to_string(),
            row.load(),
            round(figures.bytes_per_s / 1e6).to_string(),
            optional(figures.delivered),
            row.achieved_per_s.to_string(),
            figures.acknowledged_bytes.to_string(),
            meant(row.p50_us),
            meant(row.p99_us),
            figures.from_call_p50_us.to_string(),
            figures.from_call_p99_us.to_string(),
            figures.shown_cpu(),
            percent(row.foreign_cpu),
            percent(row.ratio_to_ceiling),
        ]);
    }
    table(&lines)
}

/// Formats the results for senders and receivers on a network segment, with one line per row.
fn of_segments(rows: &[&Row]) -> String {
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
    let mut lines = vec![cells(head)];
    for row in rows {
        let Some(figures) = &row.segment else {
            continue;
        };
        let given = |number: Option<u32>| optional(number.map(f64::from));
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
            lost(figures.loss),
            lost(figures.loss_worst),
            figures.sender_cpus.to_string(),
            figures.sender_s_per_gb.to_string(),
            percent(figures.cpus_busy),
            percent(row.foreign_cpu),
            figures.limit.clone(),
        ]);
    }
    table(&lines)
}

/// Formats the share of lost datagrams. Small shares are shown precisely, because they matter here.
fn lost(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Formats the life of a command as a table with one row per trace point, in the order of time.
fn of_life(life: &CommandTimeline) -> String {
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
    let mut lines = vec![cells(head)];
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

/// Returns the first two cells of a row: a mark if the row is invalid, and its title.
pub(super) fn begin(row: &Row) -> [String; 2] {
    let mark = if row.valid { "" } else { "✗" };
    let ours = row.system == "quorate";
    let title = if ours { &row.scenario } else { &row.system };
    [mark.to_owned(), title.clone()]
}

pub(super) fn cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

pub(super) fn optional(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

pub(super) fn percent(share: Option<f64>) -> String {
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
        check(&files(&path("new"), path("old"), path("link"))).unwrap();
        assert!(!path("new").exists() && !path("nothing").exists());
        assert!(path("link").is_symlink());
        assert_eq!(fs::read(path("old")).unwrap(), b"results");
        let problem = check(&files(&path("new"), path("no/folder"), path("link")));
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
        check(&files).unwrap();
        write_files(&document("quorate"), &files).unwrap();
        assert!(fs::read_to_string(path("new")).unwrap().starts_with('{'));
        assert!(fs::read_to_string(path("old")).unwrap().contains("scenario"));
        assert!(fs::read_to_string(path("target")).unwrap().contains("html"));
    }
}
