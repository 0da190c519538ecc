//! View of round-trip times between all pairs of nodes. Each row of the matrix is a measuring node,
//! each column a measured one.

use quorate_admin::units::format_micros;
use quorate_admin::view::MemberView;
use ratatui::{style::Style, text::Line};

use super::{
    super::{
        cluster::{ClusterSnapshot, Node},
        health::Severity,
        text::text_width,
    },
    ViewArea,
    paint::{plain_line, severity_mark},
    parts::{marked_lines, wrap_paragraph},
};

/// A cell of the matrix: its severity, and its text in a long and a short form.
struct LinkCell {
    severity: Option<Severity>,
    long_text: String,
    short_text: String,
}

fn link_cell(from: &Node<'_>, to: u32) -> LinkCell {
    let set = |is: Option<Severity>, long: &str, short: &str| {
        let mark = is.map_or("", severity_mark);
        LinkCell {
            severity: is,
            long_text: format!("{mark} {long}").trim().to_owned(),
            short_text: format!("{mark}{short}"),
        }
    };
    if from.node == to {
        return set(None, "·", "·");
    }
    let Some(view) = from.fresh_view() else {
        return set(None, "? stale", "?");
    };
    let Some(member) = view.members.iter().find(|member| member.node == to) else {
        return set(None, "? unknown", "?");
    };
    if !member.connected {
        return set(Some(Severity::Bad), "cut", "");
    }
    let plane = member.plane.as_ref();
    let rtt = plane.and_then(|plane| plane.rtt_us);
    let rtt = rtt.map_or("–".to_owned(), |us| format_micros(us as f64));
    let way = plane.map_or("", |plane| &plane.way);
    let is = match plane.is_some_and(|plane| plane.why.is_some()) {
        true => Severity::Wait,
        false => Severity::Good,
    };
    set(Some(is), &format!("{rtt} {way}"), &rtt)
}

pub(super) fn link_lines(now: &ClusterSnapshot<'_>, canvas: ViewArea) -> Vec<Line<'static>> {
    let paint = canvas.paint;
    let mut lines =
        vec![paint.heading_line("Round trips from the node of the row to that of the column")];
    let rows: Vec<Vec<LinkCell>> = now
        .nodes
        .iter()
        .map(|from| now.nodes.iter().map(|to| link_cell(from, to.node)).collect())
        .collect();
    let widest = |text: fn(&LinkCell) -> &String| {
        let all = rows.iter().flatten().map(|cell| text_width(text(cell)));
        all.max().unwrap_or(0).max(6)
    };
    let needs = |cells: usize| 10 + now.nodes.len() * (cells + 2);
    let long = widest(|cell| &cell.long_text);
    let is_long = needs(long) <= canvas.width;
    let wide = if is_long { long } else { widest(|cell| &cell.short_text) };
    let shown = (canvas.width.saturating_sub(10) / (wide + 2)).min(now.nodes.len());
    let head: String = now.nodes[..shown]
        .iter()
        .map(|to| format!("{:<wide$}  ", format!("to {}", to.node)))
        .collect();
    lines.push(Line::styled(format!("{:<10}{head}", "from"), paint.bold_style()));
    for (from, row) in now.nodes.iter().zip(&rows) {
        let mut line = plain_line(format!("{:<10}", format!("node {}", from.node)));
        for cell in &row[..shown] {
            let text = if is_long { &cell.long_text } else { &cell.short_text };
            let style = cell.severity.map_or(Style::new(), |is| paint.severity_style(is));
            let text = super::super::text::pad_to_width(text, wide + 2, false);
            line.push_span(ratatui::text::Span::styled(text, style));
        }
        lines.push(line);
    }
    if shown < now.nodes.len() {
        let more = format!("… {} more columns: too narrow", now.nodes.len() - shown);
        lines.push(Line::styled(more, paint.dim_style()));
    }
    lines.push(plain_line(""));
    lines.extend(wrap_paragraph(
        "● as configured  ◐ by another plane  ✕ cut  – connected, not probed (--plane tcp)  ? unknown",
        canvas.width,
    ));
    lines.extend(unused_plane_reasons(now).into_iter().flat_map(|reason| {
        marked_lines(
            severity_mark(Severity::Wait),
            &reason,
            canvas.width,
            paint.severity_style(Severity::Wait),
        )
    }));
    lines
}

/// Returns the reasons for which preferred planes are not used.
fn unused_plane_reasons(now: &ClusterSnapshot<'_>) -> Vec<String> {
    let fresh = now.nodes.iter().filter_map(Node::fresh_view);
    let all = fresh.flat_map(|view| {
        let why = |member: &MemberView| {
            let plane = member.plane.as_ref()?;
            let why = plane.why.as_ref()?;
            Some(format!("{} to {}: {}, {why}", view.node, member.node, plane.way))
        };
        view.members.iter().filter_map(why)
    });
    all.collect()
}
