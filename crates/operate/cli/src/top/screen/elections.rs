//! View of leadership changes and events. A strip and a list show the latest leadership changes.
//! Below them are the events since the program started.

use std::time::Duration;

use quorate_admin::{units::span, view::ReignView};
use ratatui::text::Line;

use super::{
    super::{cluster::Now, health::Severity, history::History},
    Canvas,
    paint::{mark, plain},
    parts::{ballot, marked, since},
};

/// Maximum number of leadership changes in the list.
const LISTED: usize = 12;

pub(super) fn lines(now: &Now<'_>, history: &History, canvas: Canvas) -> Vec<Line<'static>> {
    let paint = canvas.paint;
    let mut lines = Vec::new();
    let teller = now
        .nodes
        .iter()
        .filter_map(|node| Some((node.view?, node.age?)))
        .find(|(view, _)| Some(view.node) == now.teller.map(|teller| teller.node));
    if let Some((view, age)) = teller.filter(|(view, _)| !view.reigns.is_empty()) {
        let title = format!("Leaders, as seen by node {}", view.node);
        lines.push(paint.heading(&title));
        let reigns: Vec<_> = view
            .reigns
            .iter()
            .map(|reign| (*reign, Duration::from_millis(reign.ago_ms) + age))
            .collect();
        lines.push(Line::styled(strip(&reigns, canvas.cells), paint.data()));
        let ago = span(reigns[0].1.as_secs());
        let ends = canvas.cells.saturating_sub(ago.len() + 4 + 3);
        let scale = format!("{ago} ago{}now", " ".repeat(ends));
        lines.push(Line::styled(scale, paint.dim()));
        for (reign, ago) in reigns.iter().rev().take(LISTED) {
            let (is, words) = match reign.leader {
                Some(leader) => (
                    Severity::Good,
                    format!("node {leader} leads, ballot {}", ballot(reign.ballot)),
                ),
                None => (Severity::Bad, "no leader".to_owned()),
            };
            let words = format!("{} ago {words}", span(ago.as_secs()));
            lines.extend(marked(mark(is), &words, canvas.cells, paint.is(is)));
        }
        lines.push(plain(""));
    }
    lines.push(paint.heading("Events since start"));
    if history.events.is_empty() {
        lines.push(Line::styled("none yet", paint.dim()));
    }
    for event in history.events.iter().rev() {
        let is = if event.is_bad { Severity::Bad } else { Severity::Note };
        let words = format!("{} ago {}", since(now.at, event.at), event.what);
        lines.extend(marked(mark(is), &words, canvas.cells, paint.is(is)));
    }
    lines
}

/// Draws a strip in which each term starts with the leader's id, followed by a line for its
/// duration. × marks a time without a leader. The time scale is logarithmic, so that the most
/// recent minutes get the most space.
fn strip(reigns: &[(ReignView, Duration)], cells: usize) -> String {
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
        let view = fixtures::view(1);
        let reigns: Vec<_> =
            view.reigns.iter().map(|reign| (*reign, Duration::from_millis(reign.ago_ms))).collect();
        let strip = strip(&reigns, 40);
        assert_eq!(strip.chars().count(), 40);
        assert!(strip.starts_with("2──"), "{strip}");
        assert!(strip.contains("1────"), "{strip}");
        // If two terms begin in the same cell, the later one is drawn.
        assert!(super::strip(&reigns, 1).chars().count() == 1);
        assert_eq!(super::strip(&reigns, 0), "");
    }
}
