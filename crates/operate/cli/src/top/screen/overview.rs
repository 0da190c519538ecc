//! Overview of the cluster: members, notes, batching and charts.

use quorate_admin::units::{micros, rate};
use ratatui::text::Line;

use super::{
    super::{app::App, cluster::Now, health::Severity, history::History},
    Canvas, elections, members,
    paint::{mark, plain},
    parts::{chart, field, marked, of_node},
};

/// Minimum width in cells for a layout with two columns.
const WIDE: usize = 160;

pub(super) fn lines(
    app: &App,
    now: &Now<'_>,
    history: &History,
    canvas: Canvas,
) -> Vec<Line<'static>> {
    if canvas.cells >= WIDE {
        let left = canvas.of(canvas.cells * 5 / 9);
        let right = canvas.of(canvas.cells - left.cells - 3);
        let told = member_lines(app, now, history, left);
        let mut seen = pulse(history, right, (canvas.high / 5).clamp(3, 10));
        seen.push(plain(""));
        seen.extend(chosen(now, right));
        seen.push(plain(""));
        seen.extend(elections::lines(now, history, right));
        return side_by_side(told, seen, left.cells);
    }
    let mut lines = member_lines(app, now, history, canvas);
    let mut rest = Vec::new();
    rest.extend(chosen(now, canvas));
    rest.push(plain(""));
    rest.extend(elections::lines(now, history, canvas));
    // The remaining lines are used for charts.
    let room = canvas.high.saturating_sub(lines.len() + 4 + 4);
    lines.push(plain(""));
    lines.extend(pulse(history, canvas, (room / 4).clamp(1, 6)));
    lines.push(plain(""));
    lines.extend(rest);
    lines
}

/// Formats the member table and the notes about the members.
fn member_lines(app: &App, now: &Now<'_>, history: &History, canvas: Canvas) -> Vec<Line<'static>> {
    let mut lines = members::table(app, now, history, canvas);
    let notes = notes(now, canvas);
    if !notes.is_empty() {
        lines.push(plain(""));
        lines.extend(notes);
    }
    lines
}

/// Joins two columns line by line.
fn side_by_side(
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
fn pulse(history: &History, canvas: Canvas, high: usize) -> Vec<Line<'static>> {
    let samples = &history.samples;
    let commands: Vec<_> = samples.iter().map(|sample| sample.commands).collect();
    let latency = samples.iter().map(|sample| sample.latency_us);
    let (latency, most): (Vec<_>, Vec<_>) = latency.map(Option::unzip).unzip();
    let most = most.last().copied().flatten();
    let most = most.map_or_else(String::new, |us| format!(", p99 {}", micros(us)));
    let mut lines = Vec::new();
    for (name, values, shown, more) in [
        ("commands/s", commands, rate as fn(f64) -> String, ""),
        ("latency", latency, micros, &*most),
    ] {
        let seen = &values[values.len().saturating_sub(canvas.cells)..];
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
            lines.extend(field(name, &words, canvas.cells, canvas.paint));
            lines.extend(chart(&values, canvas.cells, high, canvas.paint.data()));
        } else {
            // A single-line chart shows the last value and the curve.
            let last = values.last().copied().flatten().map_or("–".to_owned(), shown);
            let head = format!("{name:<11}{last:>8} ");
            let curve = chart(
                &values,
                canvas.cells.saturating_sub(head.chars().count()),
                1,
                canvas.paint.data(),
            );
            let mut line = plain(head);
            line.spans.extend(curve.into_iter().flat_map(|curve| {
                let style = curve.style;
                curve.spans.into_iter().map(move |span| span.patch_style(style))
            }));
            lines.push(line);
        }
    }
    if samples.iter().any(|sample| sample.changed) && high > 1 {
        let shown = samples.len().min(canvas.cells);
        let marks = samples.iter().skip(samples.len() - shown);
        let marks: String = marks.map(|sample| if sample.changed { '▲' } else { ' ' }).collect();
        let line = " ".repeat(canvas.cells - shown) + &marks;
        lines.push(plain(line));
        lines.push(Line::styled("▲ leadership changed", canvas.paint.dim()));
    }
    lines
}

/// Formats the batch size and window that the leader has chosen.
fn chosen(now: &Now<'_>, canvas: Canvas) -> Vec<Line<'static>> {
    let said = match now.tuning {
        Some(tuning) => format!("{}: {}", tuning.chosen.shown(), tuning.reason),
        None => "not reported by the leader".to_owned(),
    };
    field("batches", &said, canvas.cells, canvas.paint)
}

/// Formats the current plan, progress, errors, notices, certificates and devices.
pub(super) fn notes(now: &Now<'_>, canvas: Canvas) -> Vec<Line<'static>> {
    let mut said: Vec<(Severity, String)> = Vec::new();
    if let Some(plan) = now.teller.and_then(|view| view.plan.as_ref()) {
        let waits = plan.waits.as_ref();
        let waits = waits.map_or_else(String::new, |waits| format!("; waits: {waits}"));
        said.push((Severity::Wait, format!("plan {}: {}{waits}", plan.id, plan.what)));
    }
    for node in &now.nodes {
        said.extend(
            of_node(node).into_iter().map(|(is, what)| (is, format!("node {}: {what}", node.node))),
        );
    }
    for (address, why) in now.strangers {
        let why = match why.contains(&**address) {
            true => why.clone(),
            false => format!("{address}: {why}"),
        };
        said.push((Severity::Bad, why));
    }
    said.into_iter()
        .flat_map(|(is, what)| marked(mark(is), &what, canvas.cells, canvas.paint.is(is)))
        .collect()
}
