//! The identity record and its text format: lines of text, the last of which is a checksum.

use std::{collections::BTreeMap, fmt, fmt::Write as _};

use quorate_core::{
    level::Level,
    node_id::{Incarnation, NodeId},
    quorum::QuorumRule,
    record::Class,
};
use quorate_log::disk::sealed;
use quorate_replica::group::MemberRole;

use super::error::NODES_MAX;
use crate::terms::FoundingTerms;

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
    pub terms: FoundingTerms,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IdentityState {
    pub(super) founding: Founding,
    pub(super) boot: u32,
    pub(super) incarnation: Incarnation,
    pub(super) is_clean_stop: bool,
    /// Maximum length in microseconds of any lease that a process of this node may have granted.
    pub(super) lease_us_max: u64,
    pub(super) admitted_nodes: BTreeMap<NodeId, u64>,
    /// Role that the joining node is to take; `None` once it has been taken.
    pub(super) joining_role: Option<MemberRole>,
    pub(super) is_removed: bool,
    /// Level that the contents of the folder need ([level-8]).
    pub(super) level: Level,
}

/// Rejects contents that could not be read back from lines of text.
pub(super) fn check_founding(founding: &Founding) -> Result<(), &'static str> {
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

pub(super) fn encode(state: &IdentityState) -> String {
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
    line(format_args!("clean {}", u8::from(state.is_clean_stop)));
    line(format_args!("nonce {:016x}", founding.join_nonce));
    if state.lease_us_max > 0 {
        line(format_args!("leased {}", state.lease_us_max));
    }
    for (node, address) in &founding.members {
        line(format_args!("member {node} {address}"));
    }
    for node in &founding.terms.auxiliaries {
        line(format_args!("auxiliary {node}"));
    }
    if founding.terms.quorum_rule != QuorumRule::Majority {
        line(format_args!("quorum {}", founding.terms.quorum_rule));
    }
    for (node, nonce) in &state.admitted_nodes {
        line(format_args!("admitted {node} {nonce:016x}"));
    }
    if let Some(role) = state.joining_role {
        line(format_args!("joins {}", role.name()));
    }
    if state.is_removed {
        line(format_args!("removed"));
    }
    text
}

pub(super) fn decode(text: &str) -> Result<IdentityState, String> {
    let mut lines = sealed::open(text)?.lines();
    let first = lines.next();
    let mut fields = LineParser { lines };
    let level = match first {
        Some(FIRST_LINE) => Level::BASE,
        Some(FIRST_LINE_WITH_LEVEL) => Level(parse_number(fields.next_word("level")?.parse())?),
        _ => return Err("the first line is unknown".into()),
    };
    let founding = Founding {
        cluster: fields
            .next_hex("cluster")
            .and_then(|hex| parse_number(u128::from_str_radix(hex, 16)))?,
        node: NodeId(parse_number(fields.next_word("node")?.parse())?),
        class: match fields.next_word("durability")? {
            "volatile" => Class::Volatile,
            "durable" => Class::Durable,
            _ => return Err("unknown durability class".into()),
        },
        store: fields.next_word("store")?.to_owned(),
        members: BTreeMap::new(),
        join_nonce: 0,
        terms: FoundingTerms::default(),
    };
    let mut state = IdentityState {
        founding,
        boot: parse_number(fields.next_word("boot")?.parse())?,
        incarnation: Incarnation(parse_number(fields.next_word("incarnation")?.parse())?),
        is_clean_stop: fields.next_word("clean")? == "1",
        lease_us_max: 0,
        admitted_nodes: BTreeMap::new(),
        joining_role: None,
        is_removed: false,
        level,
    };
    state.founding.join_nonce =
        fields.next_hex("nonce").and_then(|hex| parse_number(u64::from_str_radix(hex, 16)))?;
    for line in fields.lines {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["member", node, address] => {
                let node = NodeId(parse_number(node.parse())?);
                state.founding.members.insert(node, address.to_owned());
            }
            ["leased", us] => state.lease_us_max = parse_number(us.parse())?,
            ["auxiliary", node] => {
                let node = NodeId(parse_number(node.parse())?);
                state.founding.terms.auxiliaries.insert(node);
            }
            ["quorum", rule] => {
                let rule = QuorumRule::parse(rule).ok_or("unknown quorum rule")?;
                state.founding.terms.quorum_rule = rule;
            }
            ["admitted", node, nonce] => {
                let nonce = parse_number(u64::from_str_radix(nonce, 16))?;
                state.admitted_nodes.insert(NodeId(parse_number(node.parse())?), nonce);
            }
            ["joins", role] => {
                let role =
                    MemberRole::from_name(role).ok_or_else(|| format!("unknown role: {role}"))?;
                state.joining_role = Some(role);
            }
            ["removed"] => state.is_removed = true,
            _ => return Err(format!("unknown line: {line}")),
        }
    }
    Ok(state)
}

fn parse_number<T>(parsed: Result<T, std::num::ParseIntError>) -> Result<T, String> {
    parsed.map_err(|error| error.to_string())
}

/// Parser for the file's lines. Their order is fixed.
struct LineParser<'a> {
    lines: std::str::Lines<'a>,
}

impl<'a> LineParser<'a> {
    fn next_word(&mut self, name: &str) -> Result<&'a str, String> {
        let line = self.lines.next().unwrap_or_default();
        let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
        rest.ok_or_else(|| format!("{name} is missing"))
    }

    fn next_hex(&mut self, name: &str) -> Result<&'a str, String> {
        self.next_word(name)
    }
}
