//! Formats a report of `quorate doctor` for people.

use quorate_admin::units::{format_seconds, format_thousands};
use quorate_bench::doctor::{
    bundle::Manifest,
    examination::Report,
    figures::Figures,
    finding::{Finding, FindingState},
    flushes::FlushTimes,
    measure::PredictionCheck,
    reach::ReachReport,
    trips::MemberPath,
    verdict::PlaneVerdict,
};

use quorate_cli::output::format_table;

/// Formats the whole report: always the findings, planes and figures, and the other sections if
/// present.
pub(super) fn format_report(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{}, {} CPUs ({}): {}\n\n",
        machine.kernel,
        machine.cpus,
        machine.cpu_model,
        if report.healthy { "a node can run here" } else { "something needs fixing" }
    );
    text.push_str(&format_findings(&report.findings));
    if let Some(reach) = &report.reach {
        text.push_str(&format!("\n{}", format_reach_matrix(reach)));
    }
    if let Some(trips) = &report.trips {
        text.push_str(&format!("\n{}", format_round_trips(trips)));
    }
    text.push_str(&format!("\n{}", format_planes(&report.planes)));
    text.push_str(&format!("\n{}", format_figures(&report.figures)));
    if let Some(flushes) = &report.flushes {
        text.push_str(&format!("\n{}", format_flush_histogram(flushes)));
    }
    if let Some(all) = &report.measured {
        text.push_str(&format!("\n{}", format_prediction_checks(all)));
    }
    if let Some(manifest) = &report.bundle {
        text.push_str(&format!("\n{}", format_bundle(manifest)));
    }
    text
}

fn format_bundle(manifest: &Manifest) -> String {
    let lines: usize = manifest.files.iter().filter_map(|file| file.redacted_lines).sum();
    let mut text = format!(
        "the bundle has {} files, readable only by its owner; parts of {lines} lines were redacted. Read it before you send it.\n",
        manifest.files.len() + 1
    );
    for missing in &manifest.missing {
        text.push_str(&format!("not included: {}: {}\n", missing.what, missing.why));
    }
    text
}

/// Formats one line per finding. Below a finding that is not ok, adds its details and a remedy.
fn format_findings(all: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let (name, state) = (finding.name.clone(), finding.state.name().to_owned());
        vec![name, state, finding.what.clone()]
    };
    let mut rows = vec![["finding", "state", ""].map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(row));
    let lines = format_table(&rows);
    let mut lines = lines.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, finding) in lines.zip(all) {
        text.push_str(&format!("{line}\n"));
        if finding.state == FindingState::Ok {
            continue;
        }
        if !finding.detail.is_empty() {
            text.push_str(&format!("    {}\n", finding.detail));
        }
        if !finding.hint.is_empty() {
            text.push_str(&format!("    hint: {}\n", finding.hint));
        }
    }
    text
}

/// Formats the multicast test as a matrix with a row per sender and a column per listener.
fn format_reach_matrix(reach: &ReachReport) -> String {
    let mut head = vec!["from \\ to".to_owned(), "sent".to_owned()];
    head.extend(reach.members.iter().map(|placed| match &placed.interface {
        Some(interface) => format!("{} ({interface})", placed.node),
        None => placed.node.to_string(),
    }));
    let shown =
        |count: Option<u32>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let mut rows = vec![head];
    for row in &reach.matrix {
        let mut cells = vec![row.sender.to_string(), shown(row.sent)];
        cells.extend(row.heard.iter().copied().map(shown));
        rows.push(cells);
    }
    let mut text = format!(
        "multicast datagrams to {} received by each member:\n{}",
        reach.group,
        format_table(&rows)
    );
    for problem in &reach.problems {
        text.push_str(&format!("{problem}\n"));
    }
    text
}

/// Formats the round trips as a table with a row per pair of nodes.
fn format_round_trips(trips: &[MemberPath]) -> String {
    let mut rows = vec![["from", "to", "by", "there and back", ""].map(str::to_owned).to_vec()];
    rows.extend(trips.iter().map(|trip| {
        let way = match (&*trip.way, &trip.frames) {
            ("", _) => "not connected".to_owned(),
            (way, Some(frames)) => format!("{way} by {frames}"),
            (way, None) => way.to_owned(),
        };
        let rtt = trip.rtt_us.map(|us| format!("{us} µs"));
        vec![
            trip.from.to_string(),
            trip.to.to_string(),
            way,
            rtt.unwrap_or_default(),
            trip.why.clone(),
        ]
    }));
    format!("connections between members:\n{}", format_table(&rows))
}

fn format_planes(all: &[PlaneVerdict]) -> String {
    let head = ["plane", "here", "used by nodes", "commands/s", "latency", "class", "because"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    for verdict in all {
        let predicted = &verdict.predicted;
        rows.push(vec![
            verdict.plane.name().to_owned(),
            if verdict.works { "works" } else { "does not" }.to_owned(),
            if verdict.spoken { "yes" } else { "not yet" }.to_owned(),
            predicted
                .throughput_per_s
                .map_or_else(|| "?".to_owned(), |rate| format_thousands(rate).trim().to_owned()),
            predicted.latency_us.map_or_else(|| "?".to_owned(), |us| format_seconds(us / 1e6)),
            predicted.class.unwrap_or_default().to_owned(),
            verdict.because.join(", "),
        ]);
        let name = verdict.plane.name();
        let known = predicted.latency_us.is_some();
        let how = if known { "predicted from" } else { "not predicted:" };
        notes.push_str(&format!("{name}: {how} {}\n", predicted.why));
        for hint in &verdict.what_to_do {
            notes.push_str(&format!("{name}: {hint}\n"));
        }
    }
    let nodes = all.iter().find_map(|verdict| verdict.predicted.nodes);
    let nodes = nodes.map_or_else(String::new, |nodes| format!(" of {nodes} nodes"));
    format!(
        "planes; the model's bare commit{nodes}, 64 bytes, 64 at a time and one alone:\n{}\n{notes}",
        format_table(&rows)
    )
}

fn format_figures(all: &Figures) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|figure| {
            let value = figure
                .value_us
                .map_or_else(|| "not known".to_owned(), |us| format_seconds(us / 1e6));
            vec![figure.name.replace('_', " "), value, figure.source.clone()]
        })
        .collect();
    format!("the prediction is based on:\n{}", format_table(&rows))
}

/// Formats a histogram of flush times, scaled to the most frequent range.
fn format_flush_histogram(flushes: &FlushTimes) -> String {
    const WIDTH: u64 = 40;
    let most = flushes.histogram.iter().map(|bar| bar.count).max();
    let most = most.unwrap_or_default().max(1);
    let rows: Vec<Vec<String>> = flushes
        .histogram
        .iter()
        .map(|bar| {
            let width = (bar.count * WIDTH).div_ceil(most);
            let drawn = "#".repeat(usize::try_from(width).unwrap_or_default());
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let to = format_seconds(bar.to_us as f64 / 1e6);
            vec![format!("to {to}"), bar.count.to_string(), drawn]
        })
        .collect();
    let [p50, p90, p99, max] = [flushes.p50_us, flushes.p90_us, flushes.p99_us, flushes.max_us]
        .map(|us| format_seconds(us / 1e6));
    format!(
        "{} flushes: half within {p50}, 90 % {p90}, 99 % {p99}, all {max}\n{}",
        flushes.count,
        format_table(&rows)
    )
}

fn format_prediction_checks(all: &[PredictionCheck]) -> String {
    let head = ["plane", "", "predicted", "measured", "error"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    for one in all {
        let shown = |value: Option<f64>| match (value, one.unit) {
            (None, _) => "?".to_owned(),
            (Some(value), "us") => format_seconds(value / 1e6),
            (Some(value), _) => format!("{}/s", format_thousands(value)),
        };
        rows.push(vec![
            one.plane.name().to_owned(),
            one.what.to_owned(),
            shown(one.predicted),
            shown(one.measured),
            one.error_percent.map_or_else(|| "?".to_owned(), |error| format!("{error:+.1} %")),
        ]);
        if !one.why.is_empty() {
            notes.push_str(&format!("{} {}: {}\n", one.plane.name(), one.what, one.why));
        }
    }
    format!(
        "predicted for three nodes on this machine, or by a leader of its own setting, and measured:\n{}{notes}",
        format_table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use quorate_bench::doctor::{
        flushes::Bar,
        plane::Plane,
        predict::PlanePrediction,
        reach::{ListeningMember, SenderRow},
    };

    use super::*;

    #[test]
    fn hints_follow_findings_that_are_not_ok() {
        let all = [
            Finding::ok("kernel", "Linux 6.1").with_detail("6.1.0"),
            Finding::warning("rmem_max", "small", "do this").with_detail("why"),
        ];
        assert_eq!(
            format_findings(&all),
            "finding   state\nkernel    ok       Linux 6.1\nrmem_max  warning  small\n    why\n    hint: do this\n"
        );
    }

    #[test]
    fn flush_histogram_has_a_bar_per_bucket() {
        let bar = |to_us, count| Bar { to_us, count };
        let flushes = FlushTimes {
            count: 81,
            p50_us: 500.0,
            p90_us: 900.0,
            p99_us: 1500.0,
            max_us: 1900.0,
            histogram: vec![bar(512, 80), bar(1024, 0), bar(2048, 1)],
            ..FlushTimes::default()
        };
        let text = format_flush_histogram(&flushes);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("81 flushes: half within "), "{text}");
        assert!(lines[1].ends_with(&format!("80  {}", "#".repeat(40))), "{text}");
        assert!(lines[2].ends_with("  0"), "{text}");
        assert!(lines[3].ends_with("1   #"), "{text}");
    }

    #[test]
    fn reachability_is_a_matrix_with_gaps() {
        let reach = ReachReport {
            group: "239.1.2.3:4".to_owned(),
            count: 9,
            members: vec![
                ListeningMember { node: 1, interface: Some("eth0".to_owned()) },
                ListeningMember { node: 2, interface: None },
            ],
            matrix: vec![
                SenderRow { sender: 1, sent: Some(9), heard: vec![Some(9), None] },
                SenderRow { sender: 2, sent: None, heard: vec![Some(0), None] },
            ],
            problems: vec!["node 2: gone".to_owned()],
        };
        assert_eq!(
            format_reach_matrix(&reach),
            "multicast datagrams to 239.1.2.3:4 received by each member:\n\
             from \\ to  sent  1 (eth0)  2\n1          9     9         ?\n2          ?     0         ?\nnode 2: gone\n"
        );
    }

    #[test]
    fn missing_predictions_are_question_marks_with_a_reason() {
        let verdict =
            PlaneVerdict::new(Plane::Chain, &[], |_| PlanePrediction::unknown("not known"));
        let text = format_planes(&[verdict]);
        assert!(text.contains("chain  works  yes            ?           ?"), "{text}");
        assert!(text.contains("chain: not predicted: not known"), "{text}");
    }
}
