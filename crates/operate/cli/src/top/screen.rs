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

use quorate_admin::units::span;
use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};

pub(super) use paint::Paint;
use paint::{mark, plain};

use super::{
    app::{App, View},
    cluster::Now,
    health::{banners, pill, standing},
    text::{cut, width, wrapped},
};

/// Size and style of the area in which a view is drawn.
#[derive(Clone, Copy, Debug)]
struct Canvas {
    cells: usize,
    high: usize,
    paint: Paint,
}

impl Canvas {
    const fn of(self, cells: usize) -> Self {
        Self { cells, ..self }
    }
}

/// Draws the whole screen. Returns the maximum scroll offset of the view in lines.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, at: Instant, paint: Paint) -> usize {
    let area = frame.area();
    let (cells, high) = (usize::from(area.width), usize::from(area.height));
    let (watched, then) = app.contents_at(at);
    let now = watched.cluster.read(then);
    let canvas = Canvas { cells, high, paint };
    let mut above = vec![header(app, &now, at, canvas), tabs(app, canvas)];
    above.extend(banner_lines(&now, canvas));
    above.truncate(high.saturating_sub(1));
    let room = high.saturating_sub(above.len() + 1);
    let canvas = Canvas { high: room, ..canvas };
    let body = match app.view {
        _ if app.is_help => help::lines(canvas),
        View::Overview => overview::lines(app, &now, &watched.history, canvas),
        View::Members => members::lines(app, &now, &watched.history, canvas),
        View::Links => links::lines(&now, canvas),
        View::Elections => elections::lines(&now, &watched.history, canvas),
        View::Tuning => tuning::lines(&now, canvas),
    };
    let scroll_max = body.len().saturating_sub(room);
    let skipped = app.scrolled.min(scroll_max);
    let below = scroll_max - skipped;
    let mut shown: Vec<_> = body.into_iter().skip(skipped).take(room).collect();
    // The marker for further lines disappears when the end is visible.
    if below > 0
        && let Some(last) = shown.last_mut()
    {
        *last = Line::styled(format!("▼ {} more lines", below + 1), paint.dim());
    }
    let lines = above.len();
    put(frame, above, area);
    let body = Rect { y: area.y + lines as u16, height: room as u16, ..area };
    put(frame, shown, body);
    if high > 0 {
        let foot = Rect { y: area.y + area.height - 1, height: 1, ..area };
        put(frame, vec![footer(app, canvas)], foot);
    }
    scroll_max
}

fn put(frame: &mut Frame<'_>, lines: Vec<Line<'static>>, area: Rect) {
    let cells = usize::from(area.width);
    let lines: Vec<_> = lines.into_iter().map(|line| fitted(line, cells)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// Shortens a line that is too wide, and marks the cut with an ellipsis.
fn fitted(mut line: Line<'static>, cells: usize) -> Line<'static> {
    if line.width() <= cells {
        return line;
    }
    let mut room = cells;
    let mut kept = Vec::new();
    for span in line.spans {
        let wide = width(&span.content);
        if wide < room {
            room -= wide;
            kept.push(span);
            continue;
        }
        // The ellipsis is added even if this span fits, because another span follows.
        let text = cut(&format!("{}…", span.content), room);
        kept.push(Span::styled(text, span.style));
        break;
    }
    line.spans = kept;
    line
}

/// Formats the state of the cluster in one line, with the most important part first.
fn header(app: &App, now: &Now<'_>, at: Instant, canvas: Canvas) -> Line<'static> {
    let (is, words) = pill(now);
    let mut said = Vec::new();
    if let Some(since) = app.paused_since() {
        said.push(format!("PAUSED for {}", parts::since(at, since)));
    }
    said.push(match now.leader {
        Some(leader) => format!("node {leader} leads"),
        None => "no leader".to_owned(),
    });
    let standing = standing(now);
    if !standing.voters.is_empty() && !now.is_silent() {
        let (alive, all) = (standing.alive.len(), standing.voters.len());
        said.push(format!("{alive} of {all} voters"));
    }
    if let Some(view) = now.teller {
        said.push(format!("ballot {}", parts::ballot(view.ballot)));
        said.push(format!("{} slots", view.decided));
        if view.streams.count > 0 {
            said.push(format!("{} streams, {} open", view.streams.count, view.streams.open));
        }
        said.push(format!("cluster {}", view.cluster));
        said.push(format!("{}, store {}", view.durability, view.store));
        said.push(format!("quorum {}", view.quorum));
    }
    let pill = format!(" {} {words} ", mark(is));
    let mut room = canvas.cells.saturating_sub(width(&pill));
    let mut line = Line::from(Span::styled(pill, canvas.paint.is(is).patch(canvas.paint.chosen())));
    for part in said {
        let part = format!("  {part}");
        if width(&part) > room {
            break;
        }
        room -= width(&part);
        line.push_span(part);
    }
    line
}

fn tabs(app: &App, canvas: Canvas) -> Line<'static> {
    let is_wide = canvas.cells >= 60;
    let mut line = Line::default();
    for (at, view) in View::ALL.into_iter().enumerate() {
        let is_shown = view == app.view && !app.is_help;
        let name = match is_shown || is_wide {
            true => format!(" {} {} ", at + 1, view.name()),
            false => format!(" {} ", at + 1),
        };
        let style = if is_shown { canvas.paint.chosen() } else { canvas.paint.dim() };
        line.push_span(Span::styled(name, style));
        line.push_span(" ");
    }
    line
}

/// Formats the banners in a limited number of lines.
fn banner_lines(now: &Now<'_>, canvas: Canvas) -> Vec<Line<'static>> {
    let most = (canvas.high / 4).max(2);
    let mut lines = Vec::new();
    for banner in banners(now) {
        let style = canvas.paint.is(banner.is);
        let text = format!("{} {}", mark(banner.is), banner.title);
        let title = wrapped(&text, canvas.cells);
        let bold = style.patch(canvas.paint.bold());
        lines.extend(title.into_iter().map(|line| Line::styled(line, bold)));
        let what = wrapped(&banner.what, canvas.cells.saturating_sub(2));
        lines.extend(what.into_iter().map(|line| plain(format!("  {line}"))));
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            // Leave space for the ellipsis.
            let text = last.to_string();
            let style = last.style;
            let text = cut(&text, canvas.cells.saturating_sub(2));
            let text = text.trim_end_matches('…');
            *last = Line::styled(format!("{text} …"), style);
        }
    }
    lines
}

fn footer(app: &App, canvas: Canvas) -> Line<'static> {
    let all = [
        "q quit".to_owned(),
        "? help".to_owned(),
        match app.paused_since() {
            Some(_) => "p resume".to_owned(),
            None => "p pause".to_owned(),
        },
        format!("s order: {}", app.sort.name()),
        "↑↓ select".to_owned(),
        "Tab view".to_owned(),
        format!("every {}", span(app.every.as_secs())),
    ];
    let mut text = String::new();
    for part in all {
        if width(&text) + width(&part) + 2 > canvas.cells {
            break;
        }
        text.push_str(&part);
        text.push_str("  ");
    }
    Line::styled(text, canvas.paint.dim())
}

#[cfg(test)]
mod tests;
