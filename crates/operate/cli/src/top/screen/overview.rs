//! Overview of the cluster: members, notes, batching and charts.

use quorate_admin::units::{format_micros, format_rate};
use ratatui::text::Line;

use super::{
    super::{app::App, cluster::ClusterSnapshot, health::Severity, history::History},
    ViewArea, elections, members,
    paint::{plain_line, severity_mark},
    parts::{draw_chart, field_lines, marked_lines, node_notes},
};

/// Minimum width in cells for a layout with two columns.
const TWO_COLUMN_WIDTH: usize = 160;

pub(super) fn overview_lines(
    app: &App,
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<Line<'static>> {
    if canvas.width >= TWO_COLUMN_WIDTH {
        let left = canvas.with_width(canvas.width * 5 / 9);
        let right = canvas.with_width(canvas.width - left.width - 3);
        let told = member_lines(app, now, history, left);
        let mut seen = chart_lines(history, right, (canvas.height / 5).clamp(3, 10));
        seen.push(plain_line(""));
        seen.extend(setting_line(now, right));
        seen.push(plain_line(""));
        seen.extend(elections::election_lines(now, history, right));
        return join_columns(told, seen, left.width);
    }
    let mut lines = member_lines(app, now, history, canvas);
    let mut rest = Vec::new();
    rest.extend(setting_line(now, canvas));
    rest.push(plain_line(""));
    rest.extend(elections::election_lines(now, history, canvas));
    // The remaining lines are used for charts.
    let room = canvas.height.saturating_sub(lines.len() + 4 + 4);
    lines.push(plain_line(""));
    lines.extend(chart_lines(history, canvas, (room / 4).clamp(1, 6)));
    lines.push(plain_line(""));
    lines.extend(rest);
    lines
}

/// Formats the member table and the notes about the members.
fn member_lines(
    app: &App,
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<Line<'static>> {
    let mut lines = members::member_table(app, now, history, canvas);
    let notes = note_lines(now, canvas);
    if !notes.is_empty() {
        lines.push(plain_line(""));
        lines.extend(notes);
    }
    lines
}

/// Joins two columns line by line.
fn join_columns(
    left: Vec<Line<'static>>,
    right: Vec<Line<'static>>,
    cells: usize,
) -> Vec<Line<'static>> {
    let count = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    (0..count)
        .map(|_| {
            let line = left.next().unwrap_or_default();
            let style = line.style;
            let rest = cells.saturating_sub(line.width());
            let spans = line.spans.into_iter().map(|span| span.patch_style(style));
            let mut line = Line::from(spans.collect::<Vec<_>>());
            line.push_span(" ".repeat(rest) + " │ ");
            line.spans.extend(right.next().unwrap_or_default().spans);
            line
        })
        .collect()
}

/// Formats the charts of throughput and latency.
fn chart_lines(history: &History, canvas: ViewArea, high: usize) -> Vec<Line<'static>> {
    let samples = &history.samples;
    let commands: Vec<_> = samples.iter().map(|sample| sample.commands_per_second).collect();
    let latency = samples.iter().map(|sample| sample.latency_us);
    let (latency, most): (Vec<_>, Vec<_>) = latency.map(Option::unzip).unzip();
    let most = most.last().copied().flatten();
    let most = most.map_or_else(String::new, |us| format!(", p99 {}", format_micros(us)));
    let mut lines = Vec::new();
    for (name, values, shown, more) in [
        ("commands/s", commands, format_rate as fn(f64) -> String, ""),
        ("latency", latency, format_micros, &*most),
    ] {
        let seen = &values[values.len().saturating_sub(canvas.width)..];
        let known = || seen.iter().flatten().copied();
        let most = known().fold(0.0, f64::max);
        let least = known().fold(most, f64::min);
        let words = match (values.last(), known().next()) {
            (_, None) => "not known yet".to_owned(),
            (Some(Some(now)), _) => {
                format!("{}{more}, between {} and {}", shown(*now), shown(least), shown(most))
            }
            _ => format!("unknown now, was between {} and {}", shown(least), shown(most)),
        };
        if high > 1 {
            lines.extend(field_lines(name, &words, canvas.width, canvas.paint));
            lines.extend(draw_chart(&values, canvas.width, high, canvas.paint.data_style()));
        } else {
            // A single-line chart shows the last value and the curve.
            let last = values.last().copied().flatten().map_or("–".to_owned(), shown);
            let head = format!("{name:<11}{last:>8} ");
            let curve = draw_chart(
                &values,
                canvas.width.saturating_sub(head.chars().count()),
                1,
                canvas.paint.data_style(),
            );
            let mut line = plain_line(head);
            line.spans.extend(curve.into_iter().flat_map(|curve| {
                let style = curve.style;
                curve.spans.into_iter().map(move |span| span.patch_style(style))
            }));
            lines.push(line);
        }
    }
    if samples.iter().any(|sample| sample.leader_changed) && high > 1 {
        let shown = samples.len().min(canvas.width);
        let marks = samples.iter().skip(samples.len() - shown);
        let marks: String =
            marks.map(|sample| if sample.leader_changed { '▲' } else { ' ' }).collect();
        let line = " ".repeat(canvas.width - shown) + &marks;
        lines.push(plain_line(line));
        lines.push(Line::styled("▲ leadership changed", canvas.paint.dim_style()));
    }
    lines
}

/// Formats the batch size and window that the leader has chosen.
fn setting_line(now: &ClusterSnapshot<'_>, canvas: ViewArea) -> Vec<Line<'static>> {
    let said = match now.tuning {
        Some(tuning) => format!("{}: {}", tuning.chosen.format_setting(), tuning.reason),
        None => "not reported by the leader".to_owned(),
    };
    field_lines("batches", &said, canvas.width, canvas.paint)
}

/// Formats the current plan, progress, errors, notices, certificates and devices.
pub(super) fn note_lines(now: &ClusterSnapshot<'_>, canvas: ViewArea) -> Vec<Line<'static>> {
    let mut said: Vec<(Severity, String)> = Vec::new();
    if let Some(plan) = now.best_view.and_then(|view| view.plan.as_ref()) {
        let waits = plan.waits.as_ref();
        let waits = waits.map_or_else(String::new, |waits| format!("; waits: {waits}"));
        said.push((Severity::Wait, format!("plan {}: {}{waits}", plan.id, plan.what)));
    }
    for node in &now.nodes {
        said.extend(
            node_notes(node)
                .into_iter()
                .map(|(is, what)| (is, format!("node {}: {what}", node.node))),
        );
    }
    for (address, why) in now.unreachable_addresses {
        let why = match why.contains(&**address) {
            true => why.clone(),
            false => format!("{address}: {why}"),
        };
        said.push((Severity::Bad, why));
    }
    said.into_iter()
        .flat_map(|(is, what)| {
            marked_lines(severity_mark(is), &what, canvas.width, canvas.paint.severity_style(is))
        })
        .collect()
}
