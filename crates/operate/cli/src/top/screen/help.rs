//! Help screen: the keys and symbols.

use ratatui::text::{Line, Span};

use super::{super::text::pad_to_width, ViewArea, paint::plain_line, parts::wrap_paragraph};

/// Keys, and the action that each one triggers.
const KEYS_AND_ACTIONS: [(&str, &str); 11] = [
    ("1 … 5", "overview, members, links, elections, tuning"),
    ("Tab, ⇧Tab", "next view, previous view"),
    ("↑ ↓ j k", "select a node, or scroll; also PgUp, PgDn, Home, End"),
    ("Enter", "show details of the selected node"),
    ("s", "change the sort order"),
    ("p, space", "pause and resume the display; monitoring continues"),
    ("?", "show or hide this help"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "suspend to the shell; fg returns"),
    ("q, Esc", "quit"),
    ("Ctrl-C", "quit with exit code 130"),
];

pub(super) fn help_lines(canvas: ViewArea) -> Vec<Line<'static>> {
    let mut lines = vec![canvas.paint.heading_line("Keys")];
    lines.extend(KEYS_AND_ACTIONS.map(|(key, what)| {
        let key = Span::styled(pad_to_width(key, 11, false), canvas.paint.bold_style());
        Line::from(vec![key, Span::raw(what)])
    }));
    lines.push(plain_line(""));
    lines.push(canvas.paint.heading_line("Symbols"));
    let signs = "★ leads  ● serves  ◐ catching up, starting, or not as configured  ✕ no answer, or an error  ○ idle";
    lines.extend(wrap_paragraph(signs, canvas.width));
    lines.push(plain_line(""));
    let words = "A node that has not answered for 2.5 s plus the refresh interval is stale: its last data is shown with its age. Behind is counted in slots, as known to the leader. See docs/operate/top.md.";
    lines.extend(wrap_paragraph(words, canvas.width));
    lines
}
