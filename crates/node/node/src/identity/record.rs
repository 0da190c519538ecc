//! The identity record and its text format: lines of text, the last of which is a checksum.

use std::{collections::BTreeMap, fmt, fmt::Write as _};

use quorate_core::{
    level::Level,
    node_id::{Incarnation, NodeId},
    quorum::QuorumRule,
    record::Class,
};
use quorate_log::disk::sealed;
use quorate_replica::group::As;

use super::error::NODES_MAX;
use crate::terms::Terms;

/// First line of an identity at level 8. Such an identity has no line with the level.
const FIRST_LINE: &str = "quorate identity 1";
/// First line above level 8. A line with the level follows. Releases without levels then refuse to
/// start and change nothing ([level-8]).
const FIRST_LINE_WITH_LEVEL: &str = "quorate identity 2";

/// Founding record of a folder, written at its first start and never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Random cluster id, chosen by the founder.
    pub cluster: u128,
    pub node: NodeId,
    pub class: Class,
    /// Name of the service's store, such as `lsm` or `memory`.
    pub store: String,
    /// Peer addresses of the founding members, each with weight 1; not of nodes that joined later.
    pub members: BTreeMap<NodeId, String>,
    /// Random number of this folder, so that the founder detects another one with the same node id.
    pub join_nonce: u64,
    /// Auxiliaries and quorum rule at the founding.
    pub terms: Terms,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) founding: Founding,
    pub(super) boot: u32,
    pub(super) incarnation: Incarnation,
    pub(super) clean: bool,
    /// Maximum length in microseconds of any lease that a process of this node may have granted.
    pub(super) leased_us: u64,
    pub(super) admitted: BTreeMap<NodeId, u64>,
    /// Role that the joining node is to take; `None` once it has been taken.
    pub(super) joins: Option<As>,
    pub(super) removed: bool,
    /// Level that the contents of the folder need ([level-8]).
    pub(super) level: Level,
}

/// Rejects contents that could not be read back from lines of text.
pub(super) fn check(founding: &Founding) -> Result<(), &'static str> {
    let plain = |text: &str| {
        !text.is_empty() && text.len() <= 256 && !text.chars().any(|c| c.is_whitespace())
    };
    if !plain(&founding.store) {
        return Err("the name of the store is not one word");
    }
    if founding.members.len() > NODES_MAX {
        return Err("too many members");
    }
    if !founding.members.values().all(|address| plain(address)) {
        return Err("an address is not one word");
    }
    if founding.terms.configuration(founding.members.keys(), founding.class).is_err() {
        return Err("its members can form no quorums that meet");
    }
    Ok(())
}

pub(super) fn encode(state: &State) -> String {
    let mut text = String::new();
    let founding = &state.founding;
    let mut line = |line: fmt::Arguments<'_>| {
        text.write_fmt(line).expect("writing to a string does not fail");
        text.push('\n');
    };
    match state.level {
        Level::BASE => line(format_args!("{FIRST_LINE}")),
        level => {
            line(format_args!("{FIRST_LINE_WITH_LEVEL}"));
            line(format_args!("level {level}"));
        }
    }
    line(format_args!("cluster {:032x}", founding.cluster));
    line(format_args!("node {}", founding.node));
    line(format_args!("durability {}", founding.class.name()));
    line(format_args!("store {}", founding.store));
    line(format_args!("boot {}", state.boot));
    line(format_args!("incarnation {}", state.incarnation.0));
    line(format_args!("clean {}", u8::from(state.clean)));
    line(format_args!("nonce {:016x}", founding.join_nonce));
    if state.leased_us > 0 {
        line(format_args!("leased {}", state.leased_us));
    }
    for (node, address) in &founding.members {
        line(format_args!("member {node} {address}"));
    }
    for node in &founding.terms.auxiliaries {
        line(format_args!("auxiliary {node}"));
    }
    if founding.terms.rule != QuorumRule::Majority {
        line(format_args!("quorum {}", founding.terms.rule));
    }
    for (node, nonce) in &state.admitted {
        line(format_args!("admitted {node} {nonce:016x}"));
    }
    if let Some(role) = state.joins {
        line(format_args!("joins {}", role.name()));
    }
    if state.removed {
        line(format_args!("removed"));
    }
    text
}

pub(super) fn decode(text: &str) -> Result<State, String> {
    let mut lines = sealed::open(text)?.lines();
    let first = lines.next();
    let mut fields = Lines { lines };
    let level = match first {
        Some(FIRST_LINE) => Level::BASE,
        Some(FIRST_LINE_WITH_LEVEL) => Level(number(fields.word("level")?.parse())?),
        _ => return Err("the first line is unknown".into()),
    };
    let founding = Founding {
        cluster: fields.hex("cluster").and_then(|hex| number(u128::from_str_radix(hex, 16)))?,
        node: NodeId(number(fields.word("node")?.parse())?),
        class: match fields.word("durability")? {
            "volatile" => Class::Volatile,
            "durable" => Class::Durable,
            _ => return Err("unknown durability class".into()),
        },
        store: fields.word("store")?.to_owned(),
        members: BTreeMap::new(),
        join_nonce: 0,
        terms: Terms::default(),
    };
    let mut state = State {
        founding,
        boot: number(fields.word("boot")?.parse())?,
        incarnation: Incarnation(number(fields.word("incarnation")?.parse())?),
        clean: fields.word("clean")? == "1",
        leased_us: 0,
        admitted: BTreeMap::new(),
        joins: None,
        removed: false,
        level,
    };
    state.founding.join_nonce =
        fields.hex("nonce").and_then(|hex| number(u64::from_str_radix(hex, 16)))?;
    for line in fields.lines {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["member", node, address] => {
                let node = NodeId(number(node.parse())?);
                state.founding.members.insert(node, address.to_owned());
            }
            ["leased", us] => state.leased_us = number(us.parse())?,
            ["auxiliary", node] => {
                let node = NodeId(number(node.parse())?);
                state.founding.terms.auxiliaries.insert(node);
            }
            ["quorum", rule] => {
                let rule = QuorumRule::parse(rule).ok_or("unknown quorum rule")?;
                state.founding.terms.rule = rule;
            }
            ["admitted", node, nonce] => {
                let nonce = number(u64::from_str_radix(nonce, 16))?;
                state.admitted.insert(NodeId(number(node.parse())?), nonce);
            }
            ["joins", role] => {
                let role = As::named(role).ok_or_else(|| format!("unknown role: {role}"))?;
                state.joins = Some(role);
            }
            ["removed"] => state.removed = true,
            _ => return Err(format!("unknown line: {line}")),
        }
    }
    Ok(state)
}

fn number<T>(parsed: Result<T, std::num::ParseIntError>) -> Result<T, String> {
    parsed.map_err(|error| error.to_string())
}

/// Parser for the file's lines. Their order is fixed.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
}

impl<'a> Lines<'a> {
    fn word(&mut self, name: &str) -> Result<&'a str, String> {
        let line = self.lines.next().unwrap_or_default();
        let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
        rest.ok_or_else(|| format!("{name} is missing"))
    }

    fn hex(&mut self, name: &str) -> Result<&'a str, String> {
        self.word(name)
    }
}
