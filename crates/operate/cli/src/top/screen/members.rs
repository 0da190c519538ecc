//! View of the members: a table with one row per member, and all details of the selected one.

use quorate_admin::{
    units::{bytes, era, micros, rate, slot, span},
    view::{MemberView, NodeView},
};
use ratatui::{style::Style, text::Line};

use super::{
    super::{
        app::App,
        cluster::{Node, Now},
        health::Severity,
        history::{History, state},
    },
    Canvas,
    paint::{mark, plain},
    parts::{self, Column, Row, ballot, field, marked, of_node},
};

const fn left(name: &'static str, rank: u8, widest: usize) -> Column {
    Column { name, at_right: false, rank, widest }
}

const fn right(name: &'static str, rank: u8) -> Column {
    Column { name, at_right: true, rank, widest: 14 }
}

const COLUMNS: [Column; 18] = [
    left("", 0, 1),
    right("node", 0),
    left("role", 0, 11),
    left("state", 0, 18),
    right("behind", 1),
    right("cmds/s", 2),
    right("applied", 3),
    right("decided", 7),
    right("durable", 8),
    left("plane", 5, 18),
    right("disk full", 4),
    right("log", 6),
    right("grows", 9),
    right("snapshot", 10),
    right("log from", 11),
    left("streams", 12, 22),
    right("sent", 13),
    left("version", 14, 12),
];

/// Formats the table of members.
pub(super) fn table(
    app: &App,
    now: &Now<'_>,
    history: &History,
    canvas: Canvas,
) -> Vec<Line<'static>> {
    let order = app.order(now, history);
    let selected = app.selected(&order);
    let nodes = order.iter().filter_map(|node| now.node(*node));
    let rows: Vec<Row> = nodes
        .map(|node| Row {
            cells: row(node, now, history, canvas),
            is_chosen: Some(node.node) == selected,
        })
        .collect();
    if rows.is_empty() {
        return vec![plain("no node has answered yet")];
    }
    parts::table(&COLUMNS, &rows, canvas.cells, canvas.paint)
}

/// Returns the severity of a node's state.
fn judged(state: &str) -> Severity {
    match state {
        "serves" => Severity::Good,
        "catching up" | "starting" => Severity::Wait,
        "removed" | "never seen" => Severity::Note,
        _ => Severity::Bad,
    }
}

/// Formats a node's state. For a node that does not respond, adds the time since its last status.
fn shown_state(node: &Node<'_>) -> String {
    let word = state(node);
    match (node.age, node.progress) {
        (_, Some(progress)) => format!("{word}, {} %", progress.percent),
        (Some(age), None) if node.is_stale && !node.is_starting => {
            format!("stale, {} old", span(age.as_secs()))
        }
        _ => word.to_owned(),
    }
}

fn row(node: &Node<'_>, now: &Now<'_>, history: &History, canvas: Canvas) -> Vec<(String, Style)> {
    let is = judged(state(node));
    let paint = canvas.paint;
    let style = if node.is_stale { paint.dim() } else { Style::new() };
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
    let behind = match now.lag(node.node) {
        _ if leads => String::new(),
        None => "?".to_owned(),
        Some(0) => "none".to_owned(),
        Some(lag) => lag.to_string(),
    };
    let of = |text: &dyn Fn(&NodeView) -> String| view.map_or_else(String::new, text);
    let rates = history.rates.get(&node.node);
    let sent = rates.and_then(|rates| rates.sent_bytes);
    let plane = match Some(node.node) == now.teller.map(|view| view.node) {
        true => String::new(),
        false => now.member(node.node).map_or_else(String::new, plane),
    };
    let plain = [
        behind,
        rates.map_or_else(String::new, |rates| rate(rates.commands)),
        of(&|view| slot(view.applied)),
        of(&|view| slot(view.decided)),
        of(&|view| slot(view.durable)),
        plane,
        of(&|view| view.disk.full_in_seconds.map_or_else(String::new, span)),
        of(&|view| bytes(view.log_bytes)),
        of(&|view| {
            let grows = view.disk.log_bytes_per_second;
            grows.map_or_else(String::new, |grows| format!("{}/s", bytes(grows)))
        }),
        of(&|view| view.snapshot.map_or_else(String::new, |snapshot| slot(snapshot.slot))),
        of(&|view| slot(view.log_start)),
        of(&|view| match view.streams.count {
            0 => view.streams.shown(),
            count => format!("{count}: {}", view.streams.shown()),
        }),
        sent.map_or_else(String::new, |sent| format!("{}/s", bytes(sent as u64))),
        of(&|view| view.version.clone()),
    ];
    let mut cells = vec![
        (mark(is).to_owned(), paint.is(is)),
        (name, style),
        (role, style),
        (shown_state(node), paint.is(is)),
    ];
    cells.extend(plain.map(|text| (text, style)));
    cells
}

/// Formats the plane over which the reporting node reaches a member.
fn plane(member: &MemberView) -> String {
    match &member.plane {
        Some(plane) => {
            let why = if plane.why.is_some() { "◐ " } else { "" };
            let rtt = plane.rtt_us.map(|us| format!(", {}", micros(us as f64)));
            format!("{why}{}{}", plane.way, rtt.unwrap_or_default())
        }
        None if !member.connected => "✕ not connected".to_owned(),
        None => String::new(),
    }
}

/// Formats the member table and the details of the selected node.
pub(super) fn lines(
    app: &App,
    now: &Now<'_>,
    history: &History,
    canvas: Canvas,
) -> Vec<Line<'static>> {
    let mut lines = table(app, now, history, canvas);
    let order = app.order(now, history);
    let selected = app.selected(&order);
    let Some(node) = selected.and_then(|node| now.node(node)) else {
        return lines;
    };
    // Keep the selected row visible, and leave space for the node's details.
    let room = (canvas.high / 2).max(3);
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
        lines.push(Line::styled(more, canvas.paint.dim()));
    }
    lines.push(plain(""));
    lines.extend(detail(node, now, history, canvas));
    lines
}

fn detail(node: &Node<'_>, now: &Now<'_>, history: &History, canvas: Canvas) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |name: &str, what: String| {
        if !what.is_empty() {
            lines.extend(field(name, &what, canvas.cells, canvas.paint));
        }
    };
    let member = now.member(node.node);
    let weight = member.map_or_else(String::new, |member| format!(", weight {}", member.weight));
    say("node", format!("{}: {}{weight}", node.node, shown_state(node)));
    if let Some(view) = node.view {
        let BallotAndLeader { ballot, leader } = believes(view);
        say("role", format!("{}, ballot {ballot}, era {}; {leader}", view.role, era(view.era)));
        let [decided, applied, durable, start] =
            [view.decided, view.applied, view.durable, view.log_start].map(slot);
        let slots =
            format!("decided {decided}, applied {applied}, durable {durable}, log from {start}");
        say("slots", slots);
        let snapshot = view.snapshot.map_or("none".to_owned(), |snapshot| {
            format!("at {}, {}", slot(snapshot.slot), bytes(snapshot.bytes))
        });
        say("snapshot", snapshot);
        let disk = &view.disk;
        let parts = [
            Some(format!("log {}", bytes(view.log_bytes))),
            disk.log_bytes_per_second.map(|rate| format!("grows {}/s", bytes(rate))),
            disk.free_bytes.map(|free| format!("{} free", bytes(free))),
            disk.full_in_seconds.map(|seconds| format!("full in {}", span(seconds))),
        ];
        say("disk", parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
        if view.streams.count > 0 || view.streams.missing_bytes > 0 {
            let streams = &view.streams;
            let what = format!("{}, {} open, {}", streams.count, streams.open, streams.shown());
            say("streams", what);
        }
        say(
            "program",
            format!("version {}, {}, store {}", view.version, view.durability, view.store),
        );
        let certificates = view.certificates.iter();
        let ends: Vec<_> = certificates
            .map(|certificate| match certificate.since() {
                Some(since) => format!("{} {since}", certificate.what),
                None => format!("{} {} days", certificate.what, certificate.days_left),
            })
            .collect();
        say("certificates", ends.join(", "));
    }
    if let Some(rates) = history.rates.get(&node.node) {
        let sent = rates
            .sent_bytes
            .map_or_else(String::new, |sent| format!(", receives {}/s", bytes(sent as u64)));
        say("does", format!("{} commands/s{sent}", rate(rates.commands)));
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
            let rtt =
                plane.rtt_us.map_or_else(String::new, |us| format!(", {}", micros(us as f64)));
            let why = plane.why.as_ref();
            let why = why.map_or_else(String::new, |why| format!("; {why}"));
            say("plane", format!("{}{frames}{rtt}{why}", plane.way));
        }
    }
    for (is, what) in of_node(node) {
        lines.extend(marked(mark(is), &what, canvas.cells, canvas.paint.is(is)));
    }
    lines
}

struct BallotAndLeader {
    ballot: String,
    leader: String,
}

fn believes(view: &NodeView) -> BallotAndLeader {
    BallotAndLeader {
        ballot: ballot(view.ballot),
        leader: match view.leader {
            Some(leader) => format!("follows leader {leader}"),
            None => "knows no leader".to_owned(),
        },
    }
}
