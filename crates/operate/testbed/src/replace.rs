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
    nodes::{ADMIN_TIMEOUT, NodeCluster, START_TIMEOUT},
    process::{self, NodeAddresses, NodeSpec, insecure_flag},
    wait,
};

/// Log message of a new node when it has caught up.
const CAUGHT_UP_MESSAGE: &str = "is caught up: it learns";

/// A step of a replacement that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The new node is running under this id.
    Joined(u32),
    /// The new node with this id has caught up.
    CaughtUp(u32),
    /// The new node has replaced the old one.
    Replaced(Replacement),
    /// The old node with this id has stopped.
    Stopped(u32),
}

/// A replacement of an old node by a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    pub old_node: u32,
    pub new: u32,
    /// Number of eras that the replacement took.
    pub era_count: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined(node) => write!(f, "node {node} has joined"),
            Self::CaughtUp(node) => write!(f, "node {node} is caught up"),
            Self::Replaced(Replacement { old_node: old, new, era_count: eras }) => {
                write!(f, "node {new} has the place of node {old}, in {eras} eras")
            }
            Self::Stopped(node) => write!(f, "node {node} is switched off"),
        }
    }
}

/// Returns the specs of nodes that join later, through any member. Their addresses are assigned
/// now, so that clients can know them in advance.
pub fn newcomer_specs(
    nodes: &NodeCluster,
    program: &Path,
    count: usize,
    flags: &[&str],
) -> io::Result<Vec<NodeSpec>> {
    let first = nodes.all().len() + 1;
    (first..first + count)
        .map(|number| {
            let places = NodeAddresses::on_free_ports()?;
            Ok(newcomer_spec(program, nodes.data_folder(), number, &places, flags))
        })
        .collect()
}

/// Returns the spec of one new node with the given addresses.
pub fn newcomer_spec(
    program: &Path,
    folder: &Path,
    number: usize,
    places: &NodeAddresses,
    flags: &[&str],
) -> NodeSpec {
    let own = [
        ("--as", "learner"),
        ("--peer", &places.peer),
        ("--client", &places.client),
        ("--admin", &places.admin),
        ("--stream", &places.stream),
    ];
    let own = own.into_iter().flat_map(|(flag, value)| [flag, value]);
    let own = own.chain(insecure_flag(&places.peer, flags).map(|flag| flag as &str));
    let flags = own.chain(flags.iter().copied());
    NodeSpec {
        program: program.to_owned(),
        data_folder: folder.join(format!("node-{number}")),
        flags: flags.map(str::to_owned).collect(),
        environment: Vec::new(),
        log_path: folder.join(format!("node-{number}.log")),
        dies_with_parent: true,
    }
}

/// Joins new nodes as learners, one by one. Waits for each to catch up.
pub fn add_learners(nodes: &mut NodeCluster, newcomers: Vec<NodeSpec>) -> io::Result<()> {
    for spec in newcomers {
        let new = join_node(nodes, spec)?;
        nodes.node(new)?.wait_ready()?;
        check_id(nodes, new)?;
        wait_until_caught_up(nodes, new)?;
    }
    Ok(())
}

pub fn client_addresses(nodes: &NodeCluster, newcomers: &[NodeSpec]) -> Vec<String> {
    let later = newcomers.iter().filter_map(|spec| spec.flag_value("--client"));
    let mut addresses = nodes.client_addresses();
    addresses.extend(later.map(str::to_owned));
    addresses
}

/// Replaces every member, one by one and the leader last. Calls `told` after each step.
pub fn replace_all(
    nodes: &mut NodeCluster,
    program: &Path,
    newcomers: Vec<NodeSpec>,
    told: &mut dyn FnMut(&NodeCluster, &Step),
) -> io::Result<()> {
    let leader = nodes.agreed_leader()?;
    let mut old = nodes.ids();
    old.sort_by_key(|id| *id == leader);
    for (old, spec) in old.into_iter().zip(newcomers) {
        replace_one(nodes, program, old, spec, told)?;
    }
    Ok(())
}

/// Replaces one member with a new node.
pub fn replace_one(
    nodes: &mut NodeCluster,
    program: &Path,
    old: u32,
    spec: NodeSpec,
    told: &mut dyn FnMut(&NodeCluster, &Step),
) -> io::Result<()> {
    let new = join_node(nodes, spec)?;
    nodes.node(new)?.wait_ready()?;
    check_id(nodes, new)?;
    told(nodes, &Step::Joined(new));
    wait_until_caught_up(nodes, new)?;
    told(nodes, &Step::CaughtUp(new));
    let ended = replace_command(nodes, program, old, new).output()?;
    let eras = CommandOutput::parse(&ended.stdout)?.reached_eras()?;
    told(nodes, &Step::Replaced(Replacement { old_node: old, new, era_count: eras }));
    nodes.terminate(&[old])?;
    nodes.mark_departed(old);
    told(nodes, &Step::Stopped(old));
    Ok(())
}

/// Starts a new node and returns its id, which should be the next one.
fn join_node(nodes: &mut NodeCluster, mut spec: NodeSpec) -> io::Result<u32> {
    let admins = admin_addresses(nodes);
    spec.flags.extend(["--join".to_owned(), admins]);
    nodes.spawn(spec)
}

/// Checks that the new node got the next id, since ids are not reused.
fn check_id(nodes: &mut NodeCluster, new: u32) -> io::Result<()> {
    match nodes.node(new)?.ready.node {
        id if id == new => Ok(()),
        id => Err(io::Error::other(format!("node {new} has id {id}"))),
    }
}

fn wait_until_caught_up(nodes: &mut NodeCluster, new: u32) -> io::Result<()> {
    let mut ended = Ok(());
    let level = wait::wait_at_most(START_TIMEOUT, &format!("node {new} to be level"), || {
        ended = nodes.check_alive();
        (ended.is_err() || nodes.log_path(new).contains(CAUGHT_UP_MESSAGE)).then_some(())
    });
    let said = nodes.node(new)?.log_tail();
    ended.and(level).map_err(|error| {
        let error = nodes.with_statuses(&error);
        io::Error::new(error.kind(), format!("{error}\nnode {new}: {said}"))
    })
}

/// Returns the command `quorate member replace`. It may contact any node.
fn replace_command(nodes: &NodeCluster, program: &Path, old: u32, new: u32) -> Command {
    let mut command = process::command_of(program);
    command
        .args(["member", "replace", &old.to_string(), &new.to_string()])
        .args(["--json", "--admin", &admin_addresses(nodes)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Returns the admin addresses of all listening nodes, separated by commas.
fn admin_addresses(nodes: &NodeCluster) -> String {
    let mut admins = nodes.admin_addresses();
    admins.retain(|admin| !admin.is_empty());
    admins.join(",")
}

/// Output of `quorate member replace`. If the command fails, only `error` is set.
#[derive(Debug, Deserialize)]
struct CommandOutput {
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

impl CommandOutput {
    fn parse(text: &[u8]) -> io::Result<Self> {
        serde_json::from_slice(text).map_err(|error| {
            let text = String::from_utf8_lossy(text);
            io::Error::other(format!("member replace: {error}: {text:?}"))
        })
    }

    /// Returns the number of eras, if the plan reached its goal and the old node may be stopped.
    fn reached_eras(&self) -> io::Result<usize> {
        let done = matches!(self.result.as_str(), "reached" | "nothing_to_do");
        match done && self.settled == Some(true) {
            true => Ok(self.eras.len()),
            false => Err(io::Error::other(format!("member replace: {self:?}"))),
        }
    }
}

fn fetch_members(admin: &str) -> Option<MembersView> {
    client::get(admin, "/members", ADMIN_TIMEOUT).ok()?.parse_json().ok()
}
