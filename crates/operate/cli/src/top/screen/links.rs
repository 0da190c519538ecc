//! View of round-trip times between all pairs of nodes. Each row of the matrix is a measuring node,
//! each column a measured one.

use quorate_admin::units::micros;
use quorate_admin::view::MemberView;
use ratatui::{style::Style, text::Line};

use super::{
    super::{
        cluster::{Node, Now},
        health::Severity,
        text::width,
    },
    Canvas,
    paint::{mark, plain},
    parts::{marked, paragraph},
};

/// A cell of the matrix: its severity, and its text in a long and a short form.
struct Cell {
    is: Option<Severity>,
    long: String,
    short: String,
}

fn cell(from: &Node<'_>, to: u32) -> Cell {
    let set = |is: Option<Severity>, long: &str, short: &str| {
        let mark = is.map_or("", mark);
        Cell {
            is,
            long: format!("{mark} {long}").trim().to_owned(),
            short: format!("{mark}{short}"),
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
    let rtt = rtt.map_or("–".to_owned(), |us| micros(us as f64));
    let way = plane.map_or("", |plane| &plane.way);
    let is = match plane.is_some_and(|plane| plane.why.is_some()) {
        true => Severity::Wait,
        false => Severity::Good,
    };
    set(Some(is), &format!("{rtt} {way}"), &rtt)
}

pub(super) fn lines(now: &Now<'_>, canvas: Canvas) -> Vec<Line<'static>> {
    let paint = canvas.paint;
    let mut lines =
        vec![paint.heading("Round trips from the node of the row to that of the column")];
    let rows: Vec<Vec<Cell>> = now
        .nodes
        .iter()
        .map(|from| now.nodes.iter().map(|to| cell(from, to.node)).collect())
        .collect();
    let widest = |text: fn(&Cell) -> &String| {
        let all = rows.iter().flatten().map(|cell| width(text(cell)));
        all.max().unwrap_or(0).max(6)
    };
    let needs = |cells: usize| 10 + now.nodes.len() * (cells + 2);
    let long = widest(|cell| &cell.long);
    let is_long = needs(long) <= canvas.cells;
    let wide = if is_long { long } else { widest(|cell| &cell.short) };
    let shown = (canvas.cells.saturating_sub(10) / (wide + 2)).min(now.nodes.len());
    let head: String = now.nodes[..shown]
        .iter()
        .map(|to| format!("{:<wide$}  ", format!("to {}", to.node)))
        .collect();
    lines.push(Line::styled(format!("{:<10}{head}", "from"), paint.bold()));
    for (from, row) in now.nodes.iter().zip(&rows) {
        let mut line = plain(format!("{:<10}", format!("node {}", from.node)));
        for cell in &row[..shown] {
            let text = if is_long { &cell.long } else { &cell.short };
            let style = cell.is.map_or(Style::new(), |is| paint.is(is));
            let text = super::super::text::padded(text, wide + 2, false);
            line.push_span(ratatui::text::Span::styled(text, style));
        }
        lines.push(line);
    }
    if shown < now.nodes.len() {
        let more = format!("… {} more columns: too narrow", now.nodes.len() - shown);
        lines.push(Line::styled(more, paint.dim()));
    }
    lines.push(plain(""));
    lines.extend(paragraph(
        "● as configured  ◐ by another plane  ✕ cut  – connected, not probed (--plane tcp)  ? unknown",
        canvas.cells,
    ));
    lines.extend(reasons(now).into_iter().flat_map(|reason| {
        marked(mark(Severity::Wait), &reason, canvas.cells, paint.is(Severity::Wait))
    }));
    lines
}

/// Returns the reasons for which preferred planes are not used.
fn reasons(now: &Now<'_>) -> Vec<String> {
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
