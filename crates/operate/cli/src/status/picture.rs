//! Text picture of the cluster for `quorate status --watch`: members, their progress, throughput,
//! and changes in progress.

use quorate_admin::{
    members::PlanInProgressView,
    units::{format_bytes, format_slot, format_span},
    view::{Answer, ClusterView, MemberView, NodeView, ProgressView},
};

use super::{
    headline, plan_in_progress,
    rates::{ClusterRates, highest_decided},
};

/// Width of a progress bar in characters.
const BAR_CHARS: usize = 24;
/// Indentation of a node's details in characters.
const INDENT_CHARS: usize = 8;

/// Data that the picture shows.
pub(super) struct ClusterPicture<'a> {
    pub(super) cluster: &'a ClusterView,
    pub(super) rates: &'a ClusterRates,
    /// Remaining steps of the plan in progress, if known.
    pub(super) remaining_steps: Option<&'a PlanInProgressView>,
    /// Set if colours are used, which only terminals support.
    pub(super) uses_colours: bool,
}

#[derive(Clone, Copy)]
enum TextColour {
    Good = 32,
    Busy = 33,
    Bad = 31,
    Dim = 2,
}

impl ClusterPicture<'_> {
    /// Formats the picture without a trailing line break.
    pub(super) fn draw(&self) -> String {
        let mut lines = vec![headline(self.cluster), self.format_throughput(), String::new()];
        let rows: Vec<NodeRow> =
            self.cluster.nodes.iter().map(|answer| self.node_row(answer)).collect();
        let widths = [0, 1, 2, 3].map(|column| {
            let cells = rows.iter().map(|row| row.cells[column].chars().count());
            cells.max().unwrap_or(0)
        });
        for row in rows {
            let mut line = self.paint(row.colour, row.mark) + " ";
            for (cell, width) in row.cells.iter().zip(widths).take(2) {
                line.push_str(&format!("{cell:width$}  "));
            }
            line.push_str(&match &row.bar {
                Some(bar) => self.paint(row.colour, bar),
                None => " ".repeat(BAR_CHARS),
            });
            for (cell, width) in row.cells.iter().zip(widths).skip(2) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            line.push_str(&format!("  {}", row.details));
            lines.push(line.trim_end().to_owned());
            let notes = row.notes.iter();
            lines.extend(notes.map(|note| format!("{:INDENT_CHARS$}{note}", "")));
        }
        lines.extend(self.cluster.strangers.iter().cloned());
        lines.extend(self.format_plan());
        lines.join("\n")
    }

    fn paint(&self, colour: TextColour, text: &str) -> String {
        match self.uses_colours {
            true => format!("\x1b[{}m{text}\x1b[0m", colour as u8),
            false => text.to_owned(),
        }
    }

    /// Formats the cluster's current and past throughput.
    fn format_throughput(&self) -> String {
        let slots = format_slot(highest_decided(self.cluster));
        let Some(rate) = self.rates.decided_history.back() else {
            return format!("{slots} slots decided");
        };
        let most = self.rates.decided_history.iter().max().copied().unwrap_or(0).max(1);
        let level = |rate: &u64| {
            const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
            let at = u128::from(*rate) * 7 / u128::from(most);
            LEVELS[usize::try_from(at).unwrap_or(7).min(7)]
        };
        let line: String = self.rates.decided_history.iter().map(level).collect();
        format!("{slots} slots decided, {rate}/s {line}")
    }

    fn node_row(&self, answer: &Answer) -> NodeRow {
        let name = answer.node().map_or_else(|| "?".to_owned(), |node| node.to_string());
        match answer {
            Answer::Node(view) => self.running_node_row(name, view),
            Answer::Starting { error, progress, .. } => {
                let mut row = NodeRow::new(name, "starting", "◐", TextColour::Busy);
                row.notes = match progress {
                    Some(progress) => vec![self.draw_transfer(progress)],
                    None => vec![error.clone()],
                };
                row
            }
            Answer::Unreachable { error, .. } => {
                let mut row = NodeRow::new(name, "unreachable", "✕", TextColour::Bad);
                row.notes = vec![error.clone()];
                row
            }
        }
    }

    fn running_node_row(&self, name: String, view: &NodeView) -> NodeRow {
        let member = self.member_by_leader(view.node);
        let idle = member.is_some_and(|member| member.engaged == Some(false));
        let (role, mark, colour) = match () {
            () if view.removed => ("removed", "○", TextColour::Dim),
            () if view.error.is_some() => (&*view.role, "✕", TextColour::Bad),
            () if view.progress.is_some() => (&*view.role, "◐", TextColour::Busy),
            () if view.role == "auxiliary" && idle => (&*view.role, "○", TextColour::Dim),
            () if view.role == "auxiliary" => ("auxiliary, engaged", "●", TextColour::Busy),
            () => (&*view.role, "●", TextColour::Good),
        };
        let mut row = NodeRow::new(name, role, mark, colour);
        // A bypassed auxiliary is not expected to have data.
        if should_be_complete(view) {
            row.bar = Some(self.draw_position(view));
            row.cells[2] = format_slot(view.applied);
        }
        row.cells[3] = match member.and_then(|member| member.lag) {
            Some(0) => "caught up".to_owned(),
            Some(lag) => format!("{lag} behind"),
            None => String::new(),
        };
        row.details = self.format_rates(view);
        let error = view.error.iter();
        row.notes.extend(error.map(|error| self.paint(TextColour::Bad, error)));
        row.notes.extend(view.notices.iter().cloned());
        row.notes.extend(view.progress.as_ref().map(|progress| self.draw_transfer(progress)));
        row.notes.extend(view.snapshot_taking.map(|taking| {
            format!(
                "taking a snapshot at slot {}: {} so far",
                format_slot(taking.slot),
                format_bytes(taking.bytes)
            )
        }));
        row
    }

    /// Formats the payload rate to a node, and the node's storage.
    fn format_rates(&self, view: &NodeView) -> String {
        let mut said = Vec::new();
        let applied = self.rates.applied_rates.get(&view.node);
        if let Some(rate) = applied.filter(|_| should_be_complete(view)) {
            said.push(format!("{rate} slots/s"));
        }
        let sent = self.rates.sent_rates.get(&view.node);
        if let Some(rate) = sent.filter(|_| !view.removed) {
            said.push(format!("receives {}/s", format_bytes(*rate)));
        }
        said.push(format!(
            "log {} from {}",
            format_bytes(view.log_bytes),
            format_slot(view.log_start)
        ));
        if let Some(snapshot) = view.snapshot {
            said.push(format!(
                "snapshot {} at {}",
                format_bytes(snapshot.bytes),
                format_slot(snapshot.slot)
            ));
        }
        if view.streams.count > 0 {
            said.push(format!("streams {}", view.streams.short_summary()));
        }
        if let Some(seconds) = view.disk.full_in_seconds {
            said.push(format!("disk full in {}", format_span(seconds)));
        }
        said.join(", ")
    }

    fn member_by_leader(&self, node: u32) -> Option<&MemberView> {
        let mut views = self.cluster.nodes.iter().filter_map(Answer::node_view);
        let leader = views.find(|view| Some(view.node) == self.cluster.leader)?;
        leader.members.iter().find(|member| member.node == node)
    }

    /// Draws a node's position within the leader's log. A full bar means that it is caught up, an
    /// empty one that it needs a snapshot.
    fn draw_position(&self, view: &NodeView) -> String {
        let mut views = self.cluster.nodes.iter().filter_map(Answer::node_view);
        let leader = views.find(|view| Some(view.node) == self.cluster.leader);
        let from = leader.unwrap_or(view).log_start;
        let to = highest_decided(self.cluster);
        match to.checked_sub(from) {
            // The log is empty, so a node that has applied everything is caught up.
            None | Some(0) if view.applied >= to => draw_bar(1, 1),
            None | Some(0) => draw_bar(0, 1),
            Some(all) => draw_bar(view.applied.saturating_sub(from).min(all), all),
        }
    }

    fn draw_transfer(&self, progress: &ProgressView) -> String {
        let bar = draw_bar(progress.percent.min(100), 100);
        format!("{} {progress}", self.paint(TextColour::Busy, &bar))
    }

    fn format_plan(&self) -> Vec<String> {
        let Some(plan) = plan_in_progress(self.cluster) else {
            return Vec::new();
        };
        let mut lines = vec![String::new(), format!("plan {}: {}", plan.id, plan.what)];
        let steps = self.remaining_steps.filter(|steps| steps.id == plan.id);
        let left = steps.map_or(&[][..], |steps| &steps.steps);
        if let [next, others @ ..] = left {
            let more = match others.len() {
                0 => "the last step".to_owned(),
                more => format!("{more} more steps after it"),
            };
            lines.push(format!("{:INDENT_CHARS$}next: {} ({more})", "", next.change));
        }
        let waits = plan.waits.as_ref();
        lines.extend(waits.map(|waits| format!("{:INDENT_CHARS$}waits: {waits}", "")));
        lines
    }
}

/// Returns whether a node should have all decided values.
fn should_be_complete(view: &NodeView) -> bool {
    view.role != "auxiliary" && !view.removed
}

/// Line about a node, with the details below it.
struct NodeRow {
    mark: &'static str,
    colour: TextColour,
    /// Columns: name, role, position and lag.
    cells: [String; 4],
    bar: Option<String>,
    details: String,
    notes: Vec<String>,
}

impl NodeRow {
    fn new(name: String, role: &str, mark: &'static str, colour: TextColour) -> Self {
        Self {
            mark,
            colour,
            cells: [name, role.to_owned(), String::new(), String::new()],
            bar: None,
            details: String::new(),
            notes: Vec::new(),
        }
    }
}

/// Draws a bar with a resolution of an eighth of a character. It is drawn full only at 100 %, and
/// empty only at 0.
fn draw_bar(at: u64, of: u64) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let cells = BAR_CHARS as u128 * 8;
    let filled = u128::from(at) * cells / u128::from(of.max(1));
    let filled = match at {
        0 => 0,
        at if at >= of => cells,
        _ => filled.clamp(1, cells - 1),
    };
    let (whole, part) = ((filled / 8) as usize, (filled % 8) as usize);
    let mut bar = "█".repeat(whole);
    bar.extend(part.checked_sub(1).map(|part| EIGHTHS[part]));
    let drawn = whole + usize::from(part > 0);
    bar + &"░".repeat(BAR_CHARS - drawn)
}

#[cfg(test)]
mod tests;
