//! What keys do, and what signs mean.

use ratatui::text::{Line, Span};

use super::{super::text::padded, Canvas, paint::plain, parts::paragraph};

/// Each with what it does.
const KEYS: [(&str, &str); 11] = [
    ("1 … 5", "overview, members, links, elections, tuning"),
    ("Tab, ⇧Tab", "the next view, the one before"),
    (
        "↑ ↓ j k",
        "select a node, or move lines; also PgUp, PgDn, Home, End",
    ),
    ("Enter", "everything of the node that is selected"),
    ("s", "another order of the nodes"),
    (
        "p, space",
        "stand still, and go on; it is looked on meanwhile",
    ),
    ("?", "this, and away with it"),
    ("Ctrl-L", "draw everything anew"),
    ("Ctrl-Z", "to the shell; fg comes back"),
    ("q, Esc", "end"),
    ("Ctrl-C", "end, with exit code 130"),
];

pub(super) fn lines(canvas: Canvas) -> Vec<Line<'static>> {
    let mut lines = vec![canvas.paint.heading("Keys")];
    lines.extend(KEYS.map(|(key, what)| {
        let key = Span::styled(padded(key, 11, false), canvas.paint.bold());
        Line::from(vec![key, Span::raw(what)])
    }));
    lines.push(plain(""));
    lines.push(canvas.paint.heading("Signs"));
    let signs = "★ leads  ● serves  ◐ not level, starts, or not as wanted  ✕ does not answer, or says an error  ○ has nothing to do";
    lines.extend(paragraph(signs, canvas.cells));
    lines.push(plain(""));
    let words = "A node that has not answered for the time between two looks and 2.5 s is stale: what it said last is shown with its age. Behind is counted in slots, as the leader knows it. docs/operate/top.md says more.";
    lines.extend(paragraph(words, canvas.cells));
    lines
}
