//! View of the members: a table with one row per member, and all details of the selected one.

use quorate_admin::{
    units::{format_bytes, format_era, format_micros, format_rate, format_slot, format_span},
    view::{MemberView, NodeView},
};
use ratatui::{style::Style, text::Line};

use super::{
    super::{
        app::App,
        cluster::{ClusterSnapshot, Node},
        health::Severity,
        history::{History, node_state_text},
    },
    ViewArea,
    paint::{plain_line, severity_mark},
    parts::{self, TableColumn, TableRow, field_lines, format_ballot, marked_lines, node_notes},
};

const fn left_column(name: &'static str, rank: u8, widest: usize) -> TableColumn {
    TableColumn { name, is_right_aligned: false, drop_rank: rank, width_max: widest }
}

const fn right_column(name: &'static str, rank: u8) -> TableColumn {
    TableColumn { name, is_right_aligned: true, drop_rank: rank, width_max: 14 }
}

const MEMBER_COLUMNS: [TableColumn; 18] = [
    left_column("", 0, 1),
    right_column("node", 0),
    left_column("role", 0, 11),
    left_column("state", 0, 18),
    right_column("behind", 1),
    right_column("cmds/s", 2),
    right_column("applied", 3),
    right_column("decided", 7),
    right_column("durable", 8),
    left_column("plane", 5, 18),
    right_column("disk full", 4),
    right_column("log", 6),
    right_column("grows", 9),
    right_column("snapshot", 10),
    right_column("log from", 11),
    left_column("streams", 12, 22),
    right_column("sent", 13),
    left_column("version", 14, 12),
];

/// Formats the table of members.
pub(super) fn member_table(
    app: &App,
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<Line<'static>> {
    let order = app.sorted_nodes(now, history);
    let selected = app.selected_node(&order);
    let nodes = order.iter().filter_map(|node| now.node(*node));
    let rows: Vec<TableRow> = nodes
        .map(|node| TableRow {
            cells: member_row(node, now, history, canvas),
            is_chosen: Some(node.node) == selected,
        })
        .collect();
    if rows.is_empty() {
        return vec![plain_line("no node has answered yet")];
    }
    parts::format_table(&MEMBER_COLUMNS, &rows, canvas.width, canvas.paint)
}

/// Returns the severity of a node's state.
fn state_severity(state: &str) -> Severity {
    match state {
        "serves" => Severity::Good,
        "catching up" | "starting" => Severity::Wait,
        "removed" | "never seen" => Severity::Note,
        _ => Severity::Bad,
    }
}

/// Formats a node's state. For a node that does not respond, adds the time since its last status.
fn shown_state(node: &Node<'_>) -> String {
    let word = node_state_text(node);
    match (node.age, node.progress) {
        (_, Some(progress)) => format!("{word}, {} %", progress.percent),
        (Some(age), None) if node.is_stale && !node.is_starting => {
            format!("stale, {} old", format_span(age.as_secs()))
        }
        _ => word.to_owned(),
    }
}

fn member_row(
    node: &Node<'_>,
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<(String, Style)> {
    let is = state_severity(node_state_text(node));
    let paint = canvas.paint;
    let style = if node.is_stale { paint.dim_style() } else { Style::new() };
    let view = node.view;
    let leads = Some(node.node) == now.leader;
    let name = format!("{}{}", if leads { "★" } else { "" }, node.node);
    let role = match (leads, view) {
        // The node that the rest of the cluster follows is the leader, even if its own last status
        // differs.
        (true, _) => "leader".to_owned(),
        (false, Some(view)) => view.role.clone(),
        (false, None) => now.member(node.node).map_or_else(String::new, |m| m.role.clone()),
    };
    let behind = match now.lag_slots(node.node) {
        _ if leads => String::new(),
        None => "?".to_owned(),
        Some(0) => "none".to_owned(),
        Some(lag) => lag.to_string(),
    };
    let of = |text: &dyn Fn(&NodeView) -> String| view.map_or_else(String::new, text);
    let rates = history.rates.get(&node.node);
    let sent = rates.and_then(|rates| rates.bytes_per_second);
    let plane = match Some(node.node) == now.best_view.map(|view| view.node) {
        true => String::new(),
        false => now.member(node.node).map_or_else(String::new, format_plane),
    };
    let plain = [
        behind,
        rates.map_or_else(String::new, |rates| format_rate(rates.commands_per_second)),
        of(&|view| format_slot(view.applied)),
        of(&|view| format_slot(view.decided)),
        of(&|view| format_slot(view.durable)),
        plane,
        of(&|view| view.disk.full_in_seconds.map_or_else(String::new, format_span)),
        of(&|view| format_bytes(view.log_bytes)),
        of(&|view| {
            let grows = view.disk.log_bytes_per_second;
            grows.map_or_else(String::new, |grows| format!("{}/s", format_bytes(grows)))
        }),
        of(&|view| view.snapshot.map_or_else(String::new, |snapshot| format_slot(snapshot.slot))),
        of(&|view| format_slot(view.log_start)),
        of(&|view| match view.streams.count {
            0 => view.streams.short_summary(),
            count => format!("{count}: {}", view.streams.short_summary()),
        }),
        sent.map_or_else(String::new, |sent| format!("{}/s", format_bytes(sent as u64))),
        of(&|view| view.version.clone()),
    ];
    let mut cells = vec![
        (severity_mark(is).to_owned(), paint.severity_style(is)),
        (name, style),
        (role, style),
        (shown_state(node), paint.severity_style(is)),
    ];
    cells.extend(plain.map(|text| (text, style)));
    cells
}

/// Formats the plane over which the reporting node reaches a member.
fn format_plane(member: &MemberView) -> String {
    match &member.plane {
        Some(plane) => {
            let why = if plane.why.is_some() { "◐ " } else { "" };
            let rtt = plane.rtt_us.map(|us| format!(", {}", format_micros(us as f64)));
            format!("{why}{}{}", plane.way, rtt.unwrap_or_default())
        }
        None if !member.connected => "✕ not connected".to_owned(),
        None => String::new(),
    }
}

/// Formats the member table and the details of the selected node.
pub(super) fn member_view_lines(
    app: &App,
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<Line<'static>> {
    let mut lines = member_table(app, now, history, canvas);
    let order = app.sorted_nodes(now, history);
    let selected = app.selected_node(&order);
    let Some(node) = selected.and_then(|node| now.node(node)) else {
        return lines;
    };
    // Keep the selected row visible, and leave space for the node's details.
    let room = (canvas.height / 2).max(3);
    if lines.len() > room {
        let place = order.iter().position(|id| *id == node.node).unwrap_or(0);
        let shown = room - 1;
        let first = (place + 1).saturating_sub(shown);
        let below = lines.len() - 1 - first - shown;
        lines = lines
            .into_iter()
            .enumerate()
            .filter(|(at, _)| *at == 0 || (first + 1..=first + shown).contains(at))
            .map(|(_, line)| line)
            .collect();
        let more = format!("… {first} more above, {below} below");
        lines.push(Line::styled(more, canvas.paint.dim_style()));
    }
    lines.push(plain_line(""));
    lines.extend(detail_lines(node, now, history, canvas));
    lines
}

fn detail_lines(
    node: &Node<'_>,
    now: &ClusterSnapshot<'_>,
    history: &History,
    canvas: ViewArea,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |name: &str, what: String| {
        if !what.is_empty() {
            lines.extend(field_lines(name, &what, canvas.width, canvas.paint));
        }
    };
    let member = now.member(node.node);
    let weight = member.map_or_else(String::new, |member| format!(", weight {}", member.weight));
    say("node", format!("{}: {}{weight}", node.node, shown_state(node)));
    if let Some(view) = node.view {
        let BallotAndLeader { ballot, leader } = ballot_and_leader(view);
        say(
            "role",
            format!("{}, ballot {ballot}, era {}; {leader}", view.role, format_era(view.era)),
        );
        let [decided, applied, durable, start] =
            [view.decided, view.applied, view.durable, view.log_start].map(format_slot);
        let slots =
            format!("decided {decided}, applied {applied}, durable {durable}, log from {start}");
        say("slots", slots);
        let snapshot = view.snapshot.map_or("none".to_owned(), |snapshot| {
            format!("at {}, {}", format_slot(snapshot.slot), format_bytes(snapshot.bytes))
        });
        say("snapshot", snapshot);
        let disk = &view.disk;
        let parts = [
            Some(format!("log {}", format_bytes(view.log_bytes))),
            disk.log_bytes_per_second.map(|rate| format!("grows {}/s", format_bytes(rate))),
            disk.free_bytes.map(|free| format!("{} free", format_bytes(free))),
            disk.full_in_seconds.map(|seconds| format!("full in {}", format_span(seconds))),
        ];
        say("disk", parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
        if view.streams.count > 0 || view.streams.missing_bytes > 0 {
            let streams = &view.streams;
            let what =
                format!("{}, {} open, {}", streams.count, streams.open, streams.short_summary());
            say("streams", what);
        }
        say(
            "program",
            format!("version {}, {}, store {}", view.version, view.durability, view.store),
        );
        let certificates = view.certificates.iter();
        let ends: Vec<_> = certificates
            .map(|certificate| match certificate.invalidity_period() {
                Some(since) => format!("{} {since}", certificate.what),
                None => format!("{} {} days", certificate.what, certificate.days_left),
            })
            .collect();
        say("certificates", ends.join(", "));
    }
    if let Some(rates) = history.rates.get(&node.node) {
        let sent = rates
            .bytes_per_second
            .map_or_else(String::new, |sent| format!(", receives {}/s", format_bytes(sent as u64)));
        say("does", format!("{} commands/s{sent}", format_rate(rates.commands_per_second)));
    }
    if let Some(member) = member {
        let places = [
            ("peer", &member.peer),
            ("client", &member.client),
            ("admin", &member.admin),
            ("stream", &member.stream),
        ];
        let places = places.into_iter();
        let places = places.filter_map(|(name, place)| Some(format!("{name} {}", place.as_ref()?)));
        say("addresses", places.collect::<Vec<_>>().join(", "));
        if let Some(plane) = &member.plane {
            let frames = plane.frames.as_ref();
            let frames = frames.map_or_else(String::new, |frames| format!(" by {frames}"));
            let rtt = plane
                .rtt_us
                .map_or_else(String::new, |us| format!(", {}", format_micros(us as f64)));
            let why = plane.why.as_ref();
            let why = why.map_or_else(String::new, |why| format!("; {why}"));
            say("plane", format!("{}{frames}{rtt}{why}", plane.way));
        }
    }
    for (is, what) in node_notes(node) {
        lines.extend(marked_lines(
            severity_mark(is),
            &what,
            canvas.width,
            canvas.paint.severity_style(is),
        ));
    }
    lines
}

struct BallotAndLeader {
    ballot: String,
    leader: String,
}

fn ballot_and_leader(view: &NodeView) -> BallotAndLeader {
    BallotAndLeader {
        ballot: format_ballot(view.ballot),
        leader: match view.leader {
            Some(leader) => format!("follows leader {leader}"),
            None => "knows no leader".to_owned(),
        },
    }
}
