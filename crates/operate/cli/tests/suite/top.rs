//! `quorate top` as users run it: on a terminal, with a cluster of real processes.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::common::{Cluster, Signal, free_port, program, quorate, quorate_json, wait_for};
use rustix::{
    process::{Pid, kill_process},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};

const WIDE: usize = 100;
const HIGH: usize = 30;

/// Terminal that interprets only the output of `quorate top`.
struct Shown {
    rows: Vec<Vec<char>>,
    at: (usize, usize),
    is_alternate: bool,
    has_cursor: bool,
    /// Bytes of an incomplete character or sequence.
    rest: Vec<u8>,
}

impl Shown {
    fn new() -> Self {
        Self {
            rows: vec![vec![' '; WIDE]; HIGH],
            at: (0, 0),
            is_alternate: false,
            has_cursor: true,
            rest: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8(self.rest.drain(..whole).collect()).unwrap();
        let mut text = &text[..];
        while let Some(c) = text.chars().next() {
            if let Some(sequence) = text.strip_prefix("\x1b[") {
                let Some(end) = sequence.find(|c: char| ('@'..='~').contains(&c)) else {
                    break;
                };
                self.obey(&sequence[..end], sequence.as_bytes()[end]);
                text = &sequence[end + 1..];
                continue;
            }
            if text == "\x1b" {
                break;
            }
            assert!(!c.is_control(), "{text:?}");
            let (row, column) = self.at;
            self.rows[row][column] = c;
            self.at.1 = (column + 1).min(WIDE - 1);
            text = &text[c.len_utf8()..];
        }
        self.rest.splice(..0, text.bytes());
    }

    fn obey(&mut self, what: &str, end: u8) {
        match (what, end) {
            ("?1049", b'h') => self.is_alternate = true,
            ("?1049", b'l') => self.is_alternate = false,
            ("?25", b'h') => self.has_cursor = true,
            ("?25", b'l') => self.has_cursor = false,
            ("2", b'J') => self.rows = vec![vec![' '; WIDE]; HIGH],
            (place, b'H') => {
                let (row, column) = place.split_once(';').unwrap();
                let number = |text: &str| text.parse::<usize>().unwrap() - 1;
                self.at = (number(row), number(column));
            }
            (_, b'm') => {}
            other => panic!("{other:?}"),
        }
    }

    fn text(&self) -> String {
        let rows = self.rows.iter();
        let rows: Vec<String> =
            rows.map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect();
        rows.join("\n")
    }
}

/// Returns both sides of a new terminal: the keyboard and screen, and the program's side.
pub(crate) fn terminal() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let its = ioctl_tiocgptpeer(&ours, flags).unwrap();
    (ours.into(), its)
}

/// `quorate top`, running on its own terminal.
struct Top {
    child: Child,
    keys: File,
    /// The program's side of the terminal, used to inspect the terminal modes.
    its: OwnedFd,
    modes_before: String,
    shown: Arc<Mutex<Shown>>,
}

impl Top {
    fn start(arguments: &[&str]) -> Self {
        let (ours, its) = terminal();
        let size = Winsize { ws_row: HIGH as u16, ws_col: WIDE as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).unwrap();
        let modes_before = modes(&its);
        let mut command = quorate_testbed::process::command_of(&program());
        let end = || Stdio::from(its.try_clone().unwrap());
        command
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("QUORATE_LOG")
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let child = command.spawn().unwrap();
        let shown = Arc::new(Mutex::new(Shown::new()));
        let (mut reads, shows) = (ours.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reads.read(&mut bytes) {
                shows.lock().unwrap().take(&bytes[..count]);
            }
        });
        Self { child, keys: ours, its, modes_before, shown }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a line contains all of the parts, and returns the screen.
    fn sees(&mut self, parts: &[&str]) -> String {
        let mut last = String::new();
        let what = format!("a line with {parts:?} on the screen");
        let found =
            quorate_testbed::wait::wait_at_most(crate::common::START_TIMEOUT, &what, || {
                last = self.shown.lock().unwrap().text();
                let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
                last.lines().any(has_all).then_some(())
            });
        found.unwrap_or_else(|error| panic!("{error}:\n{last}"));
        last
    }

    /// Waits for the program to end with exit code `code`, and checks that the terminal is
    /// restored.
    fn ends(mut self, code: i32) {
        let child = &mut self.child;
        let status = wait_for("the end", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(code));
        assert_eq!(modes(&self.its), self.modes_before);
        wait_for("the screen that was there before, and its cursor", || {
            let shown = self.shown.lock().unwrap();
            (!shown.is_alternate && shown.has_cursor).then_some(())
        });
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn modes(terminal: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(terminal).unwrap())
}

/// The node given by the user dies. The other nodes are still watched, and the banner warns that
/// one more failure loses the quorum.
#[test]
fn a_cluster_is_watched_while_a_node_dies() {
    let mut cluster = Cluster::start(3, &[]);
    let leader = cluster.leader();
    let asked = (1..=3).find(|node| *node != leader).unwrap();
    let admin = cluster.node(asked).ready.admin.clone();
    let mut top = Top::start(&["--admin", &admin]);
    top.sees(&["● serves", &format!("node {leader} leads"), "3 of 3 voters"]);
    for node in 1..=3 {
        let name = match node == leader {
            true => format!("★{node}  leader"),
            false => format!(" {node}  follower"),
        };
        top.sees(&["●", &name, "serves"]);
    }
    assert!(top.shown.lock().unwrap().is_alternate);
    assert_ne!(modes(&top.its), top.modes_before);

    cluster.node(asked).kill().unwrap();
    top.sees(&["◐ no spare"]);
    top.sees(&["One failure away from quorum loss: 2 of 3 voters are up."]);
    top.sees(&["✕", &asked.to_string(), "stale, ", " old"]);
    top.press("4");
    top.sees(&["✕", &format!("ago node {asked}: no answer")]);
    top.press("2");
    top.sees(&["addresses", "admin 127.0.0.1:"]);
    top.press("3");
    top.sees(&["✕ cut"]);
    top.press("5");
    top.sees(&["Batching by the leader"]);
    top.press("?");
    top.sees(&["q, Esc", "quit"]);

    cluster.node(asked).restart().unwrap();
    top.press("1");
    top.sees(&["● serves", "3 of 3 voters"]);
    top.press("q");
    top.ends(0);
}

/// The terminal is restored at every exit, even if no node responds.
#[test]
fn the_terminal_is_given_back_at_every_end() {
    let closed = format!("127.0.0.1:{}", free_port());
    let start = || {
        let mut top = Top::start(&["--admin", &closed]);
        top.sees(&["✕ No node answers."]);
        top.sees(&[&format!("no node answers at {closed}: Connection refused")]);
        top
    };
    let mut top = start();
    top.press("\x03");
    top.ends(130);
    let mut top = start();
    top.press("\x1b");
    top.ends(0);
    for signal in [Signal::TERM, Signal::INT] {
        let top = start();
        let id = Pid::from_child(&top.child);
        kill_process(id, signal).unwrap();
        top.ends(130);
    }
}

/// Without a terminal an error names the command to use instead.
#[test]
fn without_a_terminal_there_is_an_error_with_a_hint() {
    let output = quorate(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("standard output is not a terminal"), "{text}");
    assert!(text.contains("quorate status --watch"), "{text}");
    let (code, json) = quorate_json(&["top", "--json"]);
    assert_eq!((code, &json["error"]["code"]), (2, &"no_terminal".into()));
    let hint = json["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("--json"), "{hint}");
    for every in ["0", "61", "x"] {
        let output = Command::new(program()).args(["top", "--every", every]).output();
        assert_eq!(output.unwrap().status.code(), Some(2), "{every}");
    }
}
