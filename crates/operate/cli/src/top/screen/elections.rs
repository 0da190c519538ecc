//! View of leadership changes and events. A strip and a list show the latest leadership changes.
//! Below them are the events since the program started.

use std::time::Duration;

use quorate_admin::{units::format_span, view::ReignView};
use ratatui::text::Line;

use super::{
    super::{cluster::ClusterSnapshot, health::Severity, history::History},
    ViewArea,
    paint::{plain_line, severity_mark},
    parts::{format_ballot, format_elapsed, marked_lines},
};

/// Maximum number of leadership changes in the list.
const LISTED_CHANGES_MAX: usize = 12;

pub(super) fn election_lines(
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<Line<'static>> {
    let paint = canvas.paint;
    let mut lines = Vec::new();
    let teller = now
        .nodes
        .iter()
        .filter_map(|node| Some((node.view?, node.age?)))
        .find(|(view, _)| Some(view.node) == now.best_view.map(|teller| teller.node));
    if let Some((view, age)) = teller.filter(|(view, _)| !view.reigns.is_empty()) {
        let title = format!("Leaders, as seen by node {}", view.node);
        lines.push(paint.heading_line(&title));
        let reigns: Vec<_> = view
            .reigns
            .iter()
            .map(|reign| (*reign, Duration::from_millis(reign.ago_ms) + age))
            .collect();
        lines.push(Line::styled(draw_reigns(&reigns, canvas.width), paint.data_style()));
        let ago = format_span(reigns[0].1.as_secs());
        let ends = canvas.width.saturating_sub(ago.len() + 4 + 3);
        let scale = format!("{ago} ago{}now", " ".repeat(ends));
        lines.push(Line::styled(scale, paint.dim_style()));
        for (reign, ago) in reigns.iter().rev().take(LISTED_CHANGES_MAX) {
            let (is, words) = match reign.leader {
                Some(leader) => (
                    Severity::Good,
                    format!("node {leader} leads, ballot {}", format_ballot(reign.ballot)),
                ),
                None => (Severity::Bad, "no leader".to_owned()),
            };
            let words = format!("{} ago {words}", format_span(ago.as_secs()));
            lines.extend(marked_lines(
                severity_mark(is),
                &words,
                canvas.width,
                paint.severity_style(is),
            ));
        }
        lines.push(plain_line(""));
    }
    lines.push(paint.heading_line("Events since start"));
    if history.events.is_empty() {
        lines.push(Line::styled("none yet", paint.dim_style()));
    }
    for event in history.events.iter().rev() {
        let is = if event.is_bad { Severity::Bad } else { Severity::Note };
        let words = format!("{} ago {}", format_elapsed(now.time, event.time), event.description);
        lines.extend(marked_lines(
            severity_mark(is),
            &words,
            canvas.width,
            paint.severity_style(is),
        ));
    }
    lines
}

/// Draws a strip in which each term starts with the leader's id, followed by a line for its
/// duration. × marks a time without a leader. The time scale is logarithmic, so that the most
/// recent minutes get the most space.
fn draw_reigns(reigns: &[(ReignView, Duration)], cells: usize) -> String {
    let far = |ago: Duration| ago.as_secs_f64().ln_1p();
    let oldest = far(reigns[0].1).max(1.0);
    let place = |ago: Duration| {
        let at = (1.0 - far(ago) / oldest) * cells as f64;
        (at.max(0.0) as usize).min(cells.saturating_sub(1))
    };
    let mut strip = vec![' '; cells];
    for (at, (reign, ago)) in reigns.iter().enumerate() {
        let from = place(*ago);
        let to = reigns.get(at + 1).map_or(cells, |(_, ago)| place(*ago));
        let fill = if reign.leader.is_some() { '─' } else { '×' };
        let to = to.max(from + 1).min(cells);
        strip[from..to].fill(fill);
        let name = reign.leader.map_or_else(String::new, |leader| leader.to_string());
        if name.len() <= to - from {
            for (cell, c) in strip[from..].iter_mut().zip(name.chars()) {
                *cell = c;
            }
        }
    }
    strip.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{super::super::fixtures, *};

    #[test]
    fn strip_shows_leaders_and_their_durations() {
        let view = fixtures::sample_status(1);
        let reigns: Vec<_> =
            view.reigns.iter().map(|reign| (*reign, Duration::from_millis(reign.ago_ms))).collect();
        let strip = draw_reigns(&reigns, 40);
        assert_eq!(strip.chars().count(), 40);
        assert!(strip.starts_with("2──"), "{strip}");
        assert!(strip.contains("1────"), "{strip}");
        // If two terms begin in the same cell, the later one is drawn.
        assert!(draw_reigns(&reigns, 1).chars().count() == 1);
        assert_eq!(draw_reigns(&reigns, 0), "");
    }
}
