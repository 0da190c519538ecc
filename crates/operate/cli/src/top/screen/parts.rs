//! Elements that several views use: tables, charts, notes about nodes, and formatted numbers.

use std::time::Instant;

use quorate_admin::view::{BallotView, NodeView};
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{
    super::{
        cluster::Node,
        health::Severity,
        text::{pad_to_width, text_width, wrap_to_width},
    },
    paint::{TextStyles, plain_line},
};

/// A column of a table: its heading, alignment and width limit.
pub(super) struct TableColumn {
    pub(super) name: &'static str,
    /// Set if cells are aligned to the right, as for numbers.
    pub(super) is_right_aligned: bool,
    /// Columns with the highest rank are dropped first when the screen is too narrow. Columns with
    /// rank 0 are never dropped.
    pub(super) drop_rank: u8,
    /// Maximum width in cells.
    pub(super) width_max: usize,
}

/// A row of a table, with a style for each cell.
pub(super) struct TableRow {
    pub(super) cells: Vec<(String, Style)>,
    pub(super) is_chosen: bool,
}

/// Formats a table with as many of the columns as fit.
pub(super) fn format_table(
    columns: &[TableColumn],
    rows: &[TableRow],
    cells: usize,
    paint: TextStyles,
) -> Vec<Line<'static>> {
    const GAP: usize = 2;
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let said = rows.iter().map(|row| text_width(&row.cells[at].0));
            let said = said.max().unwrap_or(0);
            // Drop columns that have no content in any row.
            match said {
                0 => 0,
                said => said.max(text_width(column.name)).min(column.width_max),
            }
        })
        .collect();
    let mut kept: Vec<usize> = (0..columns.len()).filter(|at| widths[*at] > 0).collect();
    let total = |kept: &[usize]| kept.iter().map(|at| widths[*at] + GAP).sum::<usize>();
    while total(&kept) > cells + GAP {
        let last = kept.iter().max_by_key(|at| (columns[**at].drop_rank, **at));
        match last.copied().filter(|at| columns[*at].drop_rank > 0) {
            Some(last) => kept.retain(|at| *at != last),
            None => break,
        }
    }
    let line = |texts: &dyn Fn(usize) -> (String, Style), chosen: bool| {
        let mut spans = Vec::new();
        for (nth, at) in kept.iter().enumerate() {
            let (text, style) = texts(*at);
            let text = pad_to_width(&text, widths[*at], columns[*at].is_right_aligned);
            let gap = if nth > 0 { " ".repeat(GAP) } else { String::new() };
            spans.push(Span::raw(gap));
            spans.push(Span::styled(text, style));
        }
        let line = Line::from(spans);
        if chosen { line.style(paint.chosen_style()) } else { line }
    };
    let head = line(&|at| (columns[at].name.to_owned(), paint.bold_style()), false);
    let rows = rows.iter().map(|row| line(&|at| row.cells[at].clone(), row.is_chosen));
    std::iter::once(head).chain(rows).collect()
}

/// Draws a chart from block characters, with the newest value on the right. Unknown values are
/// blank.
pub(super) fn draw_chart(
    values: &[Option<f64>],
    cells: usize,
    high: usize,
    style: Style,
) -> Vec<Line<'static>> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &values[values.len().saturating_sub(cells)..];
    let most = shown.iter().flatten().copied().fold(0.0, f64::max);
    let filled = |value: &Option<f64>| match value {
        None => 0,
        // A known value remains visible even if it is 0.
        Some(_) if most <= 0.0 => 1,
        Some(value) => ((value / most * (high * 8) as f64).round() as usize).max(1),
    };
    let filled: Vec<usize> = shown.iter().map(filled).collect();
    (0..high)
        .rev()
        .map(|row| {
            let empty = " ".repeat(cells - shown.len());
            let blocks = filled.iter().map(|filled| EIGHTHS[filled.saturating_sub(row * 8).min(8)]);
            Line::styled(empty + &blocks.collect::<String>(), style)
        })
        .collect()
}

/// Formats `name  what`. Long text is wrapped and indented below its first line.
pub(super) fn field_lines(
    name: &str,
    what: &str,
    cells: usize,
    paint: TextStyles,
) -> Vec<Line<'static>> {
    const NAME: usize = 11;
    let lines = wrap_to_width(what, cells.saturating_sub(NAME).max(1));
    let lines = lines.into_iter().enumerate();
    lines
        .map(|(at, text)| {
            let name = if at == 0 { name } else { "" };
            let name = Span::styled(pad_to_width(name, NAME, false), paint.dim_style());
            Line::from(vec![name, Span::raw(text)])
        })
        .collect()
}

/// Wraps a text to the given width.
pub(super) fn wrap_paragraph(text: &str, cells: usize) -> Vec<Line<'static>> {
    wrap_to_width(text, cells).into_iter().map(plain_line).collect()
}

/// Formats a text after a symbol that shows its severity.
pub(super) fn marked_lines(
    mark: &str,
    text: &str,
    cells: usize,
    style: Style,
) -> Vec<Line<'static>> {
    let lines = wrap_to_width(text, cells.saturating_sub(2).max(1));
    let lines = lines.into_iter().enumerate();
    lines
        .map(|(at, text)| {
            let mark = if at == 0 { mark } else { " " };
            Line::from(vec![Span::styled(format!("{mark} "), style), Span::raw(text)])
        })
        .collect()
}

pub(super) fn format_ballot(ballot: BallotView) -> String {
    format!("{}.{}.{}", ballot.era, ballot.round, ballot.node)
}

/// Formats the notes about one node. The notes do not repeat the node's name.
pub(super) fn node_notes(node: &Node<'_>) -> Vec<(Severity, String)> {
    let mut said = Vec::new();
    if let Some(progress) = node.progress {
        said.push((Severity::Wait, progress.to_string()));
    } else if let Some(trouble) = node.last_failure {
        let is = if node.is_starting { Severity::Wait } else { Severity::Bad };
        said.push((is, trouble.to_owned()));
    }
    let Some(view) = node.fresh_view() else {
        return said;
    };
    said.extend(view_notes(view));
    said
}

fn view_notes(view: &NodeView) -> Vec<(Severity, String)> {
    let mut said: Vec<(Severity, String)> = Vec::new();
    said.extend(view.error.iter().map(|error| (Severity::Bad, error.clone())));
    if let Some(taking) = view.snapshot_taking {
        let so_far = quorate_admin::units::format_bytes(taking.bytes);
        let what = format!(
            "taking a snapshot at slot {}: {so_far} so far",
            quorate_admin::units::format_slot(taking.slot)
        );
        said.push((Severity::Note, what));
    }
    let notices = view.notices.iter();
    said.extend(notices.map(|notice| (Severity::Wait, notice.clone())));
    said.extend(view.device.iter().map(|device| {
        let is = if device.used { Severity::Note } else { Severity::Wait };
        (is, device.to_string())
    }));
    said
}

/// Formats the time elapsed from `then` to `at`.
pub(super) fn format_elapsed(at: Instant, then: Instant) -> String {
    quorate_admin::units::format_span(at.saturating_duration_since(then).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAINT: TextStyles = TextStyles { has_colours: false };

    fn column(name: &'static str, rank: u8) -> TableColumn {
        TableColumn { name, is_right_aligned: rank > 0, drop_rank: rank, width_max: 6 }
    }

    fn texts(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn less_important_columns_are_dropped_if_space_is_short() {
        let columns = [column("node", 0), column("slots", 2), column("log", 1), column("no", 1)];
        let row = |cells: [&str; 4]| TableRow {
            cells: cells.map(|cell| (cell.to_owned(), Style::new())).to_vec(),
            is_chosen: false,
        };
        let rows = [row(["1", "12345678", "7", ""]), row(["2", "1", "8", ""])];
        let table = |cells| texts(&format_table(&columns, &rows, cells, PAINT));
        assert_eq!(table(17), ["node   slots  log", "1     12345…    7", "2          1    8"]);
        assert_eq!(table(16), ["node  log", "1       7", "2       8"]);
        assert_eq!(table(3), ["node", "1   ", "2   "]);
    }

    #[test]
    fn chart_ends_with_the_newest_sample_and_shows_gaps() {
        let values = [Some(9.0), Some(1.0), None, Some(2.0), Some(4.0)];
        let style = Style::new();
        assert_eq!(texts(&draw_chart(&values, 4, 1, style)), ["▂ ▄█"]);
        assert_eq!(texts(&draw_chart(&values[1..], 6, 2, style)), ["     █", "  ▄ ██"]);
        assert_eq!(texts(&draw_chart(&[Some(0.0)], 2, 1, style)), [" ▁"]);
        assert_eq!(texts(&draw_chart(&[], 2, 1, style)), ["  "]);
    }
}
