//! Tests of the screen's contents at three sizes.

use std::time::Duration;

use quorate_admin::{
    certificates::CertificateView,
    view::{Answer, NodeView, PlanView, ProgressView, StreamsView},
};
use quorate_tls::Validity;
use ratatui::{Terminal, backend::TestBackend, style::Color};

use super::{
    super::{
        app::Action,
        fixtures::{sample_status, sample_tuning, traffic_with},
        gather::NodeResponse,
    },
    *,
};

const SMALL: (u16, u16) = (40, 12);
const USUAL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);
const SIZES: [(u16, u16); 3] = [SMALL, USUAL, LARGE];
const SECOND: Duration = Duration::from_secs(1);

/// Cluster that has been watched for some time.
struct Screen {
    app: App,
    began: Instant,
    at: Instant,
}

impl Screen {
    /// Creates a cluster whose nodes have responded twice, two seconds apart. `change` may modify
    /// or remove a node's second response.
    fn new(change: impl Fn(NodeView) -> Option<NodeView>) -> Self {
        let began = Instant::now();
        let mut screen = Self { app: App::new(SECOND), began, at: began };
        screen.hear(Some);
        screen.at += 2 * SECOND;
        screen.hear(|mut view| {
            view.traffic.applied += 24_690;
            view.traffic.add(&traffic_with(1000, 896));
            change(view)
        });
        screen
    }

    fn hear(&mut self, change: impl Fn(NodeView) -> Option<NodeView>) {
        for node in 1..=3 {
            let answer = match change(sample_status(node)) {
                Some(view) => Answer::Node(Box::new(view)),
                None => Answer::Unreachable {
                    node: Some(node),
                    error: format!("no node answers at admin:{node}: refused"),
                },
            };
            self.take(NodeResponse::Answer(format!("admin:{node}"), answer));
        }
        self.take(NodeResponse::Tuning(1, Box::new(sample_tuning())));
        self.app.record_state(self.at);
    }

    fn take(&mut self, news: NodeResponse) {
        self.app.record_response(news, self.at);
    }

    fn wish(&mut self, wish: Action) {
        self.app.apply_action(wish, self.at);
    }

    /// Draws the screen and returns its lines.
    fn seen(&mut self, size: (u16, u16)) -> Vec<String> {
        let (lines, _) = self.drawn(size, false);
        lines
    }

    /// Draws the screen and returns its lines, and whether any cell is coloured.
    fn drawn(&mut self, (wide, high): (u16, u16), colours: bool) -> (Vec<String>, bool) {
        let mut terminal = Terminal::new(TestBackend::new(wide, high)).unwrap();
        let mut scroll_max = 0;
        terminal
            .draw(|frame| {
                scroll_max =
                    draw_screen(frame, &self.app, self.at, TextStyles { has_colours: colours })
            })
            .unwrap();
        self.app.scrolled_lines_max = scroll_max;
        let buffer = terminal.backend().buffer();
        let lines = (0..high).map(|y| {
            let cells = (0..wide).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        });
        let is_coloured =
            buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        (lines.collect(), is_coloured)
    }
}

/// Checks that a single line contains all of the parts.
#[track_caller]
fn assert_line(lines: &[String], parts: &[&str]) {
    let found = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line has {parts:?}:\n{}", lines.join("\n"));
}

#[track_caller]
fn assert_nowhere(lines: &[String], part: &str) {
    assert!(!lines.join("\n").contains(part), "{part:?}:\n{}", lines.join("\n"));
}

#[test]
fn healthy_cluster_is_shown_at_every_size() {
    let mut screen = Screen::new(Some);
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines[..1], &["● serves", "node 1 leads"]);
        assert_line(&lines[1..2], &["1 Overview"]);
        assert_line(&lines, &["★1", "leader", "serves"]);
        assert_line(&lines, &["3", "follower", "serves", "40"]);
        assert_line(&lines[usize::from(size.1) - 1..], &["q quit", "? help"]);
        assert_nowhere(&lines, "One failure");
    }
    let lines = screen.seen(USUAL);
    assert_line(&lines[..1], &["3 of 3 voters", "ballot 0.3.1"]);
    assert_line(&lines, &["role", "behind", "cmds/s", "applied", "disk full"]);
    assert_line(&lines, &["2", "follower", "none", "12 k", "8900", "udp, 102 µs", "11 h"]);
    assert_line(&lines, &["commands/s", "12 k"]);
    assert_line(&lines, &["latency", "832 µs", "p99 895 µs"]);
    assert_line(&lines, &["batches", "64 KiB x 4: 64 KiB x 4 is the least latency"]);
    // A smaller screen has fewer columns, a larger one has all of them.
    let lines = screen.seen(SMALL);
    assert_line(&lines, &["node", "role", "state", "behind"]);
    assert_nowhere(&lines, "applied");
    let lines = screen.seen(LARGE);
    assert_line(
        &lines[..1],
        &["cluster 794452eab31f9c12c68b63f40562eb29", "store lsm", "quorum majority"],
    );
    screen.wish(Action::Show(View::Members));
    let lines = screen.seen(LARGE);
    assert_line(
        &lines,
        &["decided", "durable", "plane", "snapshot", "log from", "sent", "version"],
    );
    assert_line(&lines, &["★1", "9000", "8950", "128 MiB", "1 MiB/s", "700", "500", "0.1.0"]);
}

#[test]
fn banner_says_what_to_do_before_quorum_loss() {
    let cut = |gone: &'static [u32]| {
        move |mut view: NodeView| {
            for member in &mut view.members {
                member.connected = !gone.contains(&member.node);
            }
            (!gone.contains(&view.node)).then_some(view)
        }
    };
    let mut screen = Screen::new(cut(&[3]));
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines[..1], &["◐ no spare"]);
        assert_line(&lines[2..4], &["◐ One failure away from quorum loss"]);
    }
    let lines = screen.seen(USUAL);
    assert_line(&lines, &["Restart node 3 (no node answers at admin:3: refused), or replace"]);
    let mut screen = Screen::new(cut(&[2, 3]));
    for size in SIZES {
        assert_line(&screen.seen(size)[..1], &["✕ no quorum"]);
    }
    let lines = screen.seen(USUAL);
    assert_line(&lines, &["✕ Quorum lost: 1 of 2 needed votes available. Nothing is written."]);
    assert_line(&lines, &["Restart nodes 2 and 3"]);
}

#[test]
fn stale_status_is_shown_with_its_age() {
    let mut screen = Screen::new(|view| (view.node != 3).then_some(view));
    // Two nodes still respond.
    screen.at += 10 * SECOND;
    screen.hear(|view| (view.node != 3).then_some(view));
    for size in SIZES {
        assert_line(&screen.seen(size), &["✕", "3", "stale, 12 s old"]);
    }
    assert_line(&screen.seen(USUAL), &["✕ node 3: no node answers at admin:3: refused"]);
    // From now on, no node responds.
    screen.at += 30 * SECOND;
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines[..1], &["✕ no answer: stale"]);
        assert_line(&lines, &["✕ No node answers."]);
        assert_line(&lines, &["Everything below is 30 s old."]);
        assert_line(&lines, &["★1", "stale, 30 s old"].map(|part| part.trim_start_matches('★')));
    }
    assert!(screen.began < screen.at);
}

#[test]
fn missing_answers_are_shown_without_ending() {
    let mut screen = Screen::new(Some);
    screen.app = App::new(SECOND);
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines[..1], &["◐ connecting"]);
        assert_line(&lines, &["No answer yet."]);
    }
    let error = "no node answers at h:9: Connection refused".to_owned();
    let answer = Answer::Unreachable { node: None, error };
    screen.take(NodeResponse::Answer("h:9".to_owned(), answer));
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines, &["✕ No node answers."]);
    }
    assert_line(&screen.seen(USUAL), &["no node answers at h:9: Connection refused"]);
}

#[test]
fn each_view_shows_its_data_and_details_show_all() {
    let mut screen = Screen::new(|mut view| {
        view.streams = StreamsView {
            count: 4,
            open: 1,
            bytes: 3 << 20,
            missing_bytes: 1 << 20,
            stopped: None,
        };
        let lasts = |days: i64| Validity { begins_unix_s: 0, ends_unix_s: days * 86_400 };
        // The node itself reports the problem with its certificates.
        view.certificates = vec![
            CertificateView::view_at("node", lasts(8), 3 * 86_400),
            CertificateView::view_at("server", lasts(2), 3 * 86_400),
        ];
        view.notices = view.certificates[0].warning().into_iter().collect();
        if view.node == 2 {
            view.members[2].connected = false;
            let plane = view.members[0].plane.as_mut().unwrap();
            plane.why = Some("no answer to probes".to_owned());
            view.notices = vec!["a slow disk".to_owned()];
            view.progress = Some(ProgressView {
                doing: "receiving_snapshot".to_owned(),
                unit: "bytes".to_owned(),
                from: 0,
                at: 80 << 20,
                to: 160 << 20,
                percent: 50,
                per_second: Some(10 << 20),
                seconds_left: Some(8),
            });
        }
        view.plan = Some(PlanView {
            id: 88,
            what: "remove node 3".to_owned(),
            waits: Some("node 2 is to lead on".to_owned()),
        });
        view.choices = vec!["datagrams, as all answer probes".to_owned()];
        Some(view)
    });
    let lines = screen.seen((100, 50));
    assert_line(&lines, &["plan 88: remove node 3; waits: node 2 is to lead on"]);
    assert_line(
        &lines,
        &["◐ node 2: receiving a snapshot: 80 MiB of 160 MiB, 50 %, 10 MiB/s, about 8 s left"],
    );
    assert_line(&lines, &["◐ node 2: a slow disk"]);
    assert_line(&lines, &["◐ node 1: the certificate of the node expires in 5 days"]);
    assert_line(&lines, &["catching up, 50 %"]);
    screen.wish(Action::Move(1));
    screen.wish(Action::Details);
    let lines = screen.seen((100, 50));
    assert_line(&lines, &["slots", "decided 9000, applied 8900, durable 8950, log from 500"]);
    assert_line(&lines, &["disk", "log 128 MiB, grows 1 MiB/s, 40 GiB free, full in 11 h"]);
    assert_line(&lines, &["streams", "4, 1 open, 3 MiB, lacks 1 MiB"]);
    assert_line(&lines, &["node 5 days, server expired on 1970-01-03 00:00:00 UTC"]);
    assert_line(&lines, &["addresses", "peer peer:2, client client:2, admin admin:2"]);
    assert_line(&lines, &["role", "follower, ballot 0.3.1, era 0; follows leader 1"]);
    screen.wish(Action::Show(View::Links));
    let lines = screen.seen(USUAL);
    assert_line(&lines, &["from", "to 1", "to 2", "to 3"]);
    assert_line(&lines, &["node 1", "·", "● 102 µs udp", "● 103 µs udp"]);
    assert_line(&lines, &["node 2", "◐ 201 µs udp", "✕ cut"]);
    assert_line(&lines, &["◐ 2 to 1: udp, no answer to probes"]);
    screen.wish(Action::Show(View::Elections));
    let lines = screen.seen(USUAL);
    assert_line(&lines, &["Leaders, as seen by node 1"]);
    assert_line(&lines, &["● ", "60 s ago node 1 leads, ballot 0.3.1"]);
    assert_line(&lines, &["✕ ", "61 s ago no leader"]);
    assert_line(&lines, &["○ ", "0 s ago plan 88: remove node 3"]);
    screen.wish(Action::Show(View::Tuning));
    let lines = screen.seen(USUAL);
    assert_line(&lines, &["in force", "64 KiB x 4"]);
    assert_line(&lines, &["why", "64 KiB x 4 is the least latency at this load."]);
    assert_line(&lines, &["measured", "12 k commands/s at 850 µs"]);
    assert_line(&lines, &["limit", "the disk"]);
    assert_line(&lines, &["datagrams, as all answer probes"]);
    assert_line(&lines, &["sync time", "1.25 ms ± 4 %"]);
    screen.wish(Action::Help);
    assert_line(&screen.seen(USUAL), &["q, Esc", "quit"]);
}

#[test]
fn truncated_content_is_marked() {
    let mut screen = Screen::new(Some);
    let lines = screen.seen(SMALL);
    assert_line(&lines, &["▼ ", "more lines"]);
    screen.wish(Action::Show(View::Tuning));
    for _ in 0..2 {
        screen.seen(SMALL);
        screen.wish(Action::Last);
    }
    let lines = screen.seen(SMALL);
    assert_nowhere(&lines, "▼");
    assert_line(&lines, &["sync time"]);
    let long = "very ".repeat(60);
    let mut screen = Screen::new(|mut view| {
        view.role = long.clone();
        Some(view)
    });
    assert_line(&screen.seen(USUAL), &["very very …"]);
}

/// The selected node remains visible in a table that is too long for the screen.
#[test]
fn a_table_that_is_too_long_moves_with_the_selection() {
    let mut screen = Screen::new(Some);
    for node in 4..=40 {
        let mut other = sample_status(node);
        other.members = Vec::new();
        let answer = Answer::Node(Box::new(other));
        screen.take(NodeResponse::Answer(format!("admin:{node}"), answer));
    }
    screen.wish(Action::Show(View::Members));
    screen.wish(Action::Move(29));
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines, &["● ", "30", "follower"]);
        assert_line(&lines, &["node", "30: serves"]);
    }
}

#[test]
fn no_information_is_shown_by_colour_alone() {
    let mut screen = Screen::new(|view| (view.node != 3).then_some(view));
    for view in View::ALL {
        screen.wish(Action::Show(view));
        let (plain, is_coloured) = screen.drawn(USUAL, false);
        assert!(!is_coloured, "{view:?}");
        let (coloured, is_coloured) = screen.drawn(USUAL, true);
        assert!(is_coloured, "{view:?}");
        assert_eq!(plain, coloured);
    }
}

#[test]
fn pause_is_shown() {
    let mut screen = Screen::new(Some);
    screen.wish(Action::Pause);
    screen.at += 7 * SECOND;
    for size in SIZES {
        let lines = screen.seen(size);
        assert_line(&lines[..1], &["PAUSED for 7 s"]);
        assert_nowhere(&lines, "stale");
    }
}

/// Texts from hostile nodes reach the terminal without control sequences, at any screen size.
#[test]
fn hostile_nodes_draw_text_only() {
    let evil = "\x1b[2J\x1b]0;owned\x07\r\n\u{9b}31m\u{202e}漢字\u{301}".repeat(200);
    let mut screen = Screen::new(|mut view| {
        for text in [
            &mut view.cluster,
            &mut view.role,
            &mut view.quorum,
            &mut view.durability,
            &mut view.store,
            &mut view.version,
        ] {
            text.clone_from(&evil);
        }
        view.error = Some(evil.clone());
        view.notices = vec![evil.clone(); 50];
        view.choices = vec![evil.clone(); 50];
        for member in &mut view.members {
            member.client = Some(evil.clone());
            if let Some(plane) = &mut member.plane {
                (plane.way, plane.why) = (evil.clone(), Some(evil.clone()));
                plane.rtt_us = Some(u64::MAX);
            }
        }
        (view.decided, view.applied, view.log_bytes) = (u64::MAX, u64::MAX, u64::MAX);
        view.disk.full_in_seconds = Some(u64::MAX);
        view.reigns.iter_mut().for_each(|reign| reign.ago_ms = u64::MAX);
        Some(view)
    });
    let sizes = [(1, 1), (2, 3), (7, 5), (40, 12), (80, 24), (200, 60)];
    for view in View::ALL {
        screen.wish(Action::Show(view));
        for size in sizes {
            let (lines, _) = screen.drawn(size, true);
            let bad = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!lines.iter().any(|line| line.contains(bad)), "{lines:#?}");
        }
    }
}

/// The screen can be drawn at every size that a window can have, even if the result is unreadable.
#[test]
fn no_size_is_too_small() {
    let mut screen = Screen::new(|view| (view.node != 2).then_some(view));
    for view in View::ALL {
        screen.wish(Action::Show(view));
        for wide in (0..60).chain([159, 160, 161]) {
            for high in [0, 1, 2, 3, 5, 9, 30] {
                screen.seen((wide, high));
            }
        }
    }
    screen.wish(Action::Help);
    screen.seen((3, 3));
}
