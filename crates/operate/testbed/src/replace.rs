//! Replaces nodes as an operator would: a new node joins and replaces an old one, which is stopped.
//!
//! [`kill`] kills a process in the middle of a replacement.

pub mod kill;

use std::{
    fmt, io,
    path::Path,
    process::{Command, Stdio},
};

use quorate_admin::{client, members::MembersView};
use serde::Deserialize;

use crate::{
    nodes::{Nodes, PATIENCE, QUESTION},
    process::{self, Places, Spec, trusting},
    wait,
};

/// Log message of a new node when it has caught up.
const LEVEL: &str = "is caught up: it learns";

/// A step of a replacement that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The new node is running under this id.
    Joined(u32),
    /// The new node with this id has caught up.
    Level(u32),
    /// The new node has replaced the old one.
    Replaced(Replaced),
    /// The old node with this id has stopped.
    Off(u32),
}

/// A replacement of an old node by a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub old: u32,
    pub new: u32,
    /// Number of eras that the replacement took.
    pub eras: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined(node) => write!(f, "node {node} has joined"),
            Self::Level(node) => write!(f, "node {node} is caught up"),
            Self::Replaced(Replaced { old, new, eras }) => {
                write!(f, "node {new} has the place of node {old}, in {eras} eras")
            }
            Self::Off(node) => write!(f, "node {node} is switched off"),
        }
    }
}

/// Returns the specs of nodes that join later, through any member. Their addresses are assigned
/// now, so that clients can know them in advance.
pub fn newcomers(
    nodes: &Nodes,
    program: &Path,
    count: usize,
    flags: &[&str],
) -> io::Result<Vec<Spec>> {
    let first = nodes.all().len() + 1;
    (first..first + count)
        .map(|number| {
            let places = Places::free()?;
            Ok(newcomer(program, nodes.folder(), number, &places, flags))
        })
        .collect()
}

/// Returns the spec of one new node with the given addresses.
pub fn newcomer(
    program: &Path,
    folder: &Path,
    number: usize,
    places: &Places,
    flags: &[&str],
) -> Spec {
    let own = [
        ("--as", "learner"),
        ("--peer", &places.peer),
        ("--client", &places.client),
        ("--admin", &places.admin),
        ("--stream", &places.stream),
    ];
    let own = own.into_iter().flat_map(|(flag, value)| [flag, value]);
    let own = own.chain(trusting(&places.peer, flags).map(|flag| flag as &str));
    let flags = own.chain(flags.iter().copied());
    Spec {
        program: program.to_owned(),
        data: folder.join(format!("node-{number}")),
        flags: flags.map(str::to_owned).collect(),
        variables: Vec::new(),
        stderr: folder.join(format!("node-{number}.log")),
        tied: true,
    }
}

/// Joins new nodes as learners, one by one. Waits for each to catch up.
pub fn learners(nodes: &mut Nodes, newcomers: Vec<Spec>) -> io::Result<()> {
    for spec in newcomers {
        let new = join(nodes, spec)?;
        nodes.node(new)?.wait_ready()?;
        check_id(nodes, new)?;
        wait_level(nodes, new)?;
    }
    Ok(())
}

pub fn client_addresses(nodes: &Nodes, newcomers: &[Spec]) -> Vec<String> {
    let later = newcomers.iter().filter_map(|spec| spec.flag("--client"));
    let mut addresses = nodes.client_addresses();
    addresses.extend(later.map(str::to_owned));
    addresses
}

/// Replaces every member, one by one and the leader last. Calls `told` after each step.
pub fn all(
    nodes: &mut Nodes,
    program: &Path,
    newcomers: Vec<Spec>,
    told: &mut dyn FnMut(&Nodes, &Step),
) -> io::Result<()> {
    let leader = nodes.agreed_leader()?;
    let mut old = nodes.ids();
    old.sort_by_key(|id| *id == leader);
    for (old, spec) in old.into_iter().zip(newcomers) {
        one(nodes, program, old, spec, told)?;
    }
    Ok(())
}

/// Replaces one member with a new node.
pub fn one(
    nodes: &mut Nodes,
    program: &Path,
    old: u32,
    spec: Spec,
    told: &mut dyn FnMut(&Nodes, &Step),
) -> io::Result<()> {
    let new = join(nodes, spec)?;
    nodes.node(new)?.wait_ready()?;
    check_id(nodes, new)?;
    told(nodes, &Step::Joined(new));
    wait_level(nodes, new)?;
    told(nodes, &Step::Level(new));
    let ended = command(nodes, program, old, new).output()?;
    let eras = Ended::of(&ended.stdout)?.reached()?;
    told(nodes, &Step::Replaced(Replaced { old, new, eras }));
    nodes.terminate(&[old])?;
    nodes.leave(old);
    told(nodes, &Step::Off(old));
    Ok(())
}

/// Starts a new node and returns its id, which should be the next one.
fn join(nodes: &mut Nodes, mut spec: Spec) -> io::Result<u32> {
    let admins = admins(nodes);
    spec.flags.extend(["--join".to_owned(), admins]);
    nodes.spawn(spec)
}

/// Checks that the new node got the next id, since ids are not reused.
fn check_id(nodes: &mut Nodes, new: u32) -> io::Result<()> {
    match nodes.node(new)?.ready.node {
        id if id == new => Ok(()),
        id => Err(io::Error::other(format!("node {new} has id {id}"))),
    }
}

fn wait_level(nodes: &mut Nodes, new: u32) -> io::Result<()> {
    let mut ended = Ok(());
    let level = wait::at_most(PATIENCE, &format!("node {new} to be level"), || {
        ended = nodes.check_alive();
        (ended.is_err() || nodes.log(new).contains(LEVEL)).then_some(())
    });
    let said = nodes.node(new)?.last_words();
    ended.and(level).map_err(|error| {
        let error = nodes.explained(&error);
        io::Error::new(error.kind(), format!("{error}\nnode {new}: {said}"))
    })
}

/// Returns the command `quorate member replace`. It may contact any node.
fn command(nodes: &Nodes, program: &Path, old: u32, new: u32) -> Command {
    let mut command = process::command(program);
    command
        .args(["member", "replace", &old.to_string(), &new.to_string()])
        .args(["--json", "--admin", &admins(nodes)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Returns the admin addresses of all listening nodes, separated by commas.
fn admins(nodes: &Nodes) -> String {
    let mut admins = nodes.admin_addresses();
    admins.retain(|admin| !admin.is_empty());
    admins.join(",")
}

/// Output of `quorate member replace`. If the command fails, only `error` is set.
#[derive(Debug, Deserialize)]
struct Ended {
    #[serde(default)]
    result: String,
    #[serde(default)]
    steps: Vec<serde_json::Value>,
    /// Eras that took effect during the command.
    #[serde(default)]
    eras: Vec<serde_json::Value>,
    #[serde(default)]
    settled: Option<bool>,
    #[serde(default)]
    error: serde_json::Value,
}

impl Ended {
    fn of(text: &[u8]) -> io::Result<Self> {
        serde_json::from_slice(text).map_err(|error| {
            let text = String::from_utf8_lossy(text);
            io::Error::other(format!("member replace: {error}: {text:?}"))
        })
    }

    /// Returns the number of eras, if the plan reached its goal and the old node may be stopped.
    fn reached(&self) -> io::Result<usize> {
        let done = matches!(self.result.as_str(), "reached" | "nothing_to_do");
        match done && self.settled == Some(true) {
            true => Ok(self.eras.len()),
            false => Err(io::Error::other(format!("member replace: {self:?}"))),
        }
    }
}

fn members(admin: &str) -> Option<MembersView> {
    client::get(admin, "/members", QUESTION).ok()?.json().ok()
}
