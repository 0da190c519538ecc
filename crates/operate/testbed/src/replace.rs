//! Replaces the nodes of a cluster as an operator does: a newcomer joins, takes the place of an old
//! node, and the old one is switched off.
//!
//! [`kill`] kills a node half way.

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

/// Log line of a newcomer that is caught up.
const LEVEL: &str = "is caught up: it learns";

/// A completed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A newcomer runs, with this id.
    Joined(u32),
    /// The newcomer is caught up.
    Level(u32),
    /// The newcomer has replaced the old node.
    Replaced(Replaced),
    /// The old one has ended.
    Off(u32),
}

/// An old node and its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The replaced node.
    pub old: u32,
    /// The newcomer.
    pub new: u32,
    /// Eras that it took.
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

/// Returns the specs of nodes that join later by way of any member. Their addresses are chosen
/// here, so that clients can know them before.
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

/// The same for one of them that listens at these places.
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

/// Joins newcomers as learners, one after the other, and waits until they are caught up.
pub fn learners(nodes: &mut Nodes, newcomers: Vec<Spec>) -> io::Result<()> {
    for spec in newcomers {
        let new = join(nodes, spec)?;
        nodes.node(new)?.wait_ready()?;
        check_id(nodes, new)?;
        wait_level(nodes, new)?;
    }
    Ok(())
}

/// Returns the client addresses of a cluster, with those of newcomers.
pub fn client_addresses(nodes: &Nodes, newcomers: &[Spec]) -> Vec<String> {
    let later = newcomers.iter().filter_map(|spec| spec.flag("--client"));
    let mut addresses = nodes.client_addresses();
    addresses.extend(later.map(str::to_owned));
    addresses
}

/// Every member makes room for a newcomer, one after the other; the one that leads is the last.
/// `told` hears of each step.
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

/// The newcomer takes the place of this node.
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

/// Starts a newcomer, which is to get the next id; returns the id.
fn join(nodes: &mut Nodes, mut spec: Spec) -> io::Result<u32> {
    let admins = admins(nodes);
    spec.flags.extend(["--join".to_owned(), admins]);
    nodes.spawn(spec)
}

/// Checks that a newcomer took the next id: no id is used twice.
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

/// `quorate member replace`, by way of any of the nodes.
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

/// Returns the admin addresses of all listening nodes.
fn admins(nodes: &Nodes) -> String {
    let mut admins = nodes.admin_addresses();
    admins.retain(|admin| !admin.is_empty());
    admins.join(",")
}

/// The document with which that command ends; the fields of an error are there instead if it
/// failed.
#[derive(Debug, Deserialize)]
struct Ended {
    #[serde(default)]
    result: String,
    /// Planned steps.
    #[serde(default)]
    steps: Vec<serde_json::Value>,
    /// Eras that came into force meanwhile.
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

    /// Returns the number of eras if the plan was reached, now or before, and the old node may be
    /// switched off.
    fn reached(&self) -> io::Result<usize> {
        let done = matches!(self.result.as_str(), "reached" | "nothing_to_do");
        match done && self.settled == Some(true) {
            true => Ok(self.eras.len()),
            false => Err(io::Error::other(format!("member replace: {self:?}"))),
        }
    }
}

/// Returns the members known to the node with this admin address.
fn members(admin: &str) -> Option<MembersView> {
    client::get(admin, "/members", QUESTION).ok()?.json().ok()
}
