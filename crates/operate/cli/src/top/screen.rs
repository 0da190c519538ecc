//! Draws the screen: banners at the top, the current view, and the keys at the bottom.

mod elections;
mod help;
mod links;
mod members;
mod overview;
mod paint;
mod parts;
mod tuning;

use std::time::Instant;

use quorate_admin::units::format_span;
use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};

pub(super) use paint::TextStyles;
use paint::{plain_line, severity_mark};

use super::{
    app::{App, View},
    cluster::ClusterSnapshot,
    health::{banners, health_summary, voter_health},
    text::{cut_to_width, text_width, wrap_to_width},
};

/// Size and style of the area in which a view is drawn.
#[derive(Clone, Copy, Debug)]
struct ViewArea {
    width: usize,
    height: usize,
    paint: TextStyles,
}

impl ViewArea {
    const fn with_width(self, cells: usize) -> Self {
        Self { width: cells, ..self }
    }
}

/// Draws the whole screen. Returns the maximum scroll offset of the view in lines.
pub(super) fn draw_screen(
    frame: &mut Frame<'_>,
    app: &App,
    at: Instant,
    paint: TextStyles,
) -> usize {
    let area = frame.area();
    let (cells, high) = (usize::from(area.width), usize::from(area.height));
    let (watched, then) = app.contents_at(at);
    let now = watched.cluster.snapshot_at(then);
    let canvas = ViewArea { width: cells, height: high, paint };
    let mut above = vec![header_line(app, &now, at, canvas), tab_line(app, canvas)];
    above.extend(banner_lines(&now, canvas));
    above.truncate(high.saturating_sub(1));
    let room = high.saturating_sub(above.len() + 1);
    let canvas = ViewArea { height: room, ..canvas };
    let body = match app.view {
        _ if app.shows_help => help::help_lines(canvas),
        View::Overview => overview::overview_lines(app, &now, &watched.history, canvas),
        View::Members => members::member_view_lines(app, &now, &watched.history, canvas),
        View::Links => links::link_lines(&now, canvas),
        View::Elections => elections::election_lines(&now, &watched.history, canvas),
        View::Tuning => tuning::tuning_lines(&now, canvas),
    };
    let scroll_max = body.len().saturating_sub(room);
    let skipped = app.scrolled_lines.min(scroll_max);
    let below = scroll_max - skipped;
    let mut shown: Vec<_> = body.into_iter().skip(skipped).take(room).collect();
    // The marker for further lines disappears when the end is visible.
    if below > 0
        && let Some(last) = shown.last_mut()
    {
        *last = Line::styled(format!("▼ {} more lines", below + 1), paint.dim_style());
    }
    let lines = above.len();
    draw_lines(frame, above, area);
    let body = Rect { y: area.y + lines as u16, height: room as u16, ..area };
    draw_lines(frame, shown, body);
    if high > 0 {
        let foot = Rect { y: area.y + area.height - 1, height: 1, ..area };
        draw_lines(frame, vec![footer_line(app, canvas)], foot);
    }
    scroll_max
}

fn draw_lines(frame: &mut Frame<'_>, lines: Vec<Line<'static>>, area: Rect) {
    let cells = usize::from(area.width);
    let lines: Vec<_> = lines.into_iter().map(|line| shorten_line(line, cells)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// Shortens a line that is too wide, and marks the cut with an ellipsis.
fn shorten_line(mut line: Line<'static>, cells: usize) -> Line<'static> {
    if line.width() <= cells {
        return line;
    }
    let mut room = cells;
    let mut kept = Vec::new();
    for span in line.spans {
        let wide = text_width(&span.content);
        if wide < room {
            room -= wide;
            kept.push(span);
            continue;
        }
        // The ellipsis is added even if this span fits, because another span follows.
        let text = cut_to_width(&format!("{}…", span.content), room);
        kept.push(Span::styled(text, span.style));
        break;
    }
    line.spans = kept;
    line
}

/// Formats the state of the cluster in one line, with the most important part first.
fn header_line(
    app: &App,
    now: &ClusterSnapshot<'_>,
    at: Instant,
    canvas: ViewArea,
) -> Line<'static> {
    let (is, words) = health_summary(now);
    let mut said = Vec::new();
    if let Some(since) = app.paused_since() {
        said.push(format!("PAUSED for {}", parts::format_elapsed(at, since)));
    }
    said.push(match now.leader {
        Some(leader) => format!("node {leader} leads"),
        None => "no leader".to_owned(),
    });
    let standing = voter_health(now);
    if !standing.voters.is_empty() && !now.is_silent() {
        let (alive, all) = (standing.voters_up.len(), standing.voters.len());
        said.push(format!("{alive} of {all} voters"));
    }
    if let Some(view) = now.best_view {
        said.push(format!("ballot {}", parts::format_ballot(view.ballot)));
        said.push(format!("{} slots", view.decided));
        if view.streams.count > 0 {
            said.push(format!("{} streams, {} open", view.streams.count, view.streams.open));
        }
        said.push(format!("cluster {}", view.cluster));
        said.push(format!("{}, store {}", view.durability, view.store));
        said.push(format!("quorum {}", view.quorum));
    }
    let pill = format!(" {} {words} ", severity_mark(is));
    let mut room = canvas.width.saturating_sub(text_width(&pill));
    let mut line = Line::from(Span::styled(
        pill,
        canvas.paint.severity_style(is).patch(canvas.paint.chosen_style()),
    ));
    for part in said {
        let part = format!("  {part}");
        if text_width(&part) > room {
            break;
        }
        room -= text_width(&part);
        line.push_span(part);
    }
    line
}

fn tab_line(app: &App, canvas: ViewArea) -> Line<'static> {
    let is_wide = canvas.width >= 60;
    let mut line = Line::default();
    for (at, view) in View::ALL.into_iter().enumerate() {
        let is_shown = view == app.view && !app.shows_help;
        let name = match is_shown || is_wide {
            true => format!(" {} {} ", at + 1, view.name()),
            false => format!(" {} ", at + 1),
        };
        let style = if is_shown { canvas.paint.chosen_style() } else { canvas.paint.dim_style() };
        line.push_span(Span::styled(name, style));
        line.push_span(" ");
    }
    line
}

/// Formats the banners in a limited number of lines.
fn banner_lines(now: &ClusterSnapshot<'_>, canvas: ViewArea) -> Vec<Line<'static>> {
    let most = (canvas.height / 4).max(2);
    let mut lines = Vec::new();
    for banner in banners(now) {
        let style = canvas.paint.severity_style(banner.severity);
        let text = format!("{} {}", severity_mark(banner.severity), banner.title);
        let title = wrap_to_width(&text, canvas.width);
        let bold = style.patch(canvas.paint.bold_style());
        lines.extend(title.into_iter().map(|line| Line::styled(line, bold)));
        let what = wrap_to_width(&banner.message, canvas.width.saturating_sub(2));
        lines.extend(what.into_iter().map(|line| plain_line(format!("  {line}"))));
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            // Leave space for the ellipsis.
            let text = last.to_string();
            let style = last.style;
            let text = cut_to_width(&text, canvas.width.saturating_sub(2));
            let text = text.trim_end_matches('…');
            *last = Line::styled(format!("{text} …"), style);
        }
    }
    lines
}

fn footer_line(app: &App, canvas: ViewArea) -> Line<'static> {
    let all = [
        "q quit".to_owned(),
        "? help".to_owned(),
        match app.paused_since() {
            Some(_) => "p resume".to_owned(),
            None => "p pause".to_owned(),
        },
        format!("s order: {}", app.sort_order.name()),
        "↑↓ select".to_owned(),
        "Tab view".to_owned(),
        format!("every {}", format_span(app.poll_interval.as_secs())),
    ];
    let mut text = String::new();
    for part in all {
        if text_width(&text) + text_width(&part) + 2 > canvas.width {
            break;
        }
        text.push_str(&part);
        text.push_str("  ");
    }
    Line::styled(text, canvas.paint.dim_style())
}

#[cfg(test)]
mod tests;
