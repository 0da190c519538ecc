//! Steps of nodes in the terms of the TLA+ specification, as one JSON object per line for `cargo
//! xtask tla --trace`.
//!
//! Some lines record state on stable storage (`round`, `promise`, `vote`, `learned`), others
//! messages (`asks`, `answers`, `proposes`, `votes`) or knowledge (`decides`). Each message appears
//! once, however often it is resent. The manual is `docs/spec/tla/README.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use quorate_core::{
    ballot::Ballot,
    configuration::{Change, Configuration},
    message::{Message, Phase1b},
    node_id::Member,
    quorum::QuorumRule,
    record::{Class, Record},
    slot::{Slot, SlotRange},
    value::Value,
};

/// Recorder of the steps in a run.
#[derive(Debug)]
pub(crate) struct Steps {
    text: String,
    explained: BTreeSet<String>,
    decided: BTreeMap<usize, Slot>,
}

impl Steps {
    /// Returns the initial state of a group with founding configuration `founding`.
    pub(crate) fn new(founding: &Configuration) -> Self {
        let mut members = String::new();
        for voter in founding.members() {
            let comma = if members.is_empty() { "" } else { "," };
            let (who, weight, auxiliary) = (member(voter.member), voter.weight, voter.auxiliary);
            let _ = write!(members, "{comma}[{who},{weight},{auxiliary}]");
        }
        let durable = founding.class() == Class::Durable;
        let rule = rule(founding.rule());
        Self {
            text: format!(
                "{{\"do\":\"founds\",\"durable\":{durable},\"rule\":{rule},\"members\":[{members}]}}\n"
            ),
            explained: BTreeSet::new(),
            decided: BTreeMap::new(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Records that a log record of a member, and all records before it, are on stable storage.
    pub(crate) fn wrote(&mut self, by: Member, record: &Record) {
        let rest = match record {
            Record::Round { ballot } => format!("\"round\",{},{}", of(by), in_ballot(*ballot)),
            Record::Promise { ballot } => format!("\"promise\",{},{}", of(by), in_ballot(*ballot)),
            Record::Vote { ballot, range, value } => {
                let what = over_slots(*range, value);
                format!("\"vote\",{},{},{what}", of(by), in_ballot(*ballot))
            }
            Record::Decided { range, value } => {
                format!("\"learned\",{},{}", of(by), over_slots(*range, value))
            }
        };
        self.line(&rest);
    }

    /// Records a message sent by a member.
    pub(crate) fn sent(&mut self, by: Member, message: &Message) {
        let rest = match message {
            Message::Phase1a { ballot, from } => {
                format!("\"asks\",{},{},\"from\":{from}", of(by), in_ballot(*ballot))
            }
            Message::Phase1b(promise) => answers(by, promise),
            Message::Phase2a(proposal) => format!(
                "\"proposes\",{},{},{}",
                of(by),
                in_ballot(proposal.ballot),
                over_slots(proposal.range, &proposal.value)
            ),
            Message::Phase2b(vote) if vote.from < vote.durable_to => format!(
                "\"votes\",{},{},\"from\":{},\"to\":{}",
                of(by),
                in_ballot(vote.ballot),
                vote.from,
                vote.durable_to
            ),
            _ => return,
        };
        if self.explained.insert(rest.clone()) {
            self.line(&rest);
        }
    }

    /// Records that a node knows that all slots below `to` are decided.
    pub(crate) fn decides(&mut self, node: usize, to: Slot) {
        let known = self.decided.entry(node).or_insert(Slot::FIRST);
        if *known < to {
            *known = to;
            self.line(&format!("\"decides\",\"node\":{},\"to\":{to}", node + 1));
        }
    }

    fn line(&mut self, rest: &str) {
        let _ = writeln!(self.text, "{{\"do\":{rest}}}");
    }
}

fn answers(by: Member, promise: &Phase1b) -> String {
    let mut extents = String::new();
    for extent in &promise.extents {
        let comma = if extents.is_empty() { "" } else { "," };
        let what = over_slots(extent.range, &extent.value);
        let _ = write!(extents, "{comma}{{{},{what}}}", in_ballot(extent.ballot));
    }
    format!(
        "\"answers\",{},{},\"from\":{},\"floor\":{},\"extents\":[{extents}]",
        of(by),
        in_ballot(promise.ballot),
        promise.from,
        promise.floor
    )
}

fn member(member: Member) -> String {
    format!("{},{}", member.node, member.incarnation.0)
}

fn of(by: Member) -> String {
    format!("\"by\":[{}]", member(by))
}

fn in_ballot(ballot: Ballot) -> String {
    let Ballot { era, round, node } = ballot;
    format!("\"ballot\":[{},{},{node}]", era.0, round)
}

fn over_slots(range: SlotRange, what: &Value) -> String {
    let value = value(what);
    format!("\"from\":{},\"to\":{},\"value\":{value}", range.from, range.to)
}

fn rule(rule: QuorumRule) -> String {
    match rule {
        QuorumRule::Flexible { phase1, phase2 } => format!("[{phase1},{phase2}]"),
        QuorumRule::Majority | QuorumRule::Grid { .. } => format!("\"{rule}\""),
    }
}

/// Returns the name of a value. The name of a reconfiguration includes its change.
fn value(value: &Value) -> String {
    let Value::Reconfigure { era, change } = value else {
        return match value {
            // Batches with the same name and different bytes are different values.
            Value::Batch(name) => format!("\"{value} {:08x}\"", name.checksum),
            _ => format!("\"{value}\""),
        };
    };
    let what = match change {
        Change::Increment(who) => format!("\"up\",\"who\":[{}]", member(*who)),
        Change::Decrement(who) => format!("\"down\",\"who\":[{}]", member(*who)),
        Change::Multiply(factor) => format!("\"times\",\"factor\":{factor}"),
        Change::Divide(factor) => format!("\"by\",\"factor\":{factor}"),
        Change::Remove(node) => format!("\"remove\",\"node\":{node}"),
        Change::Role { member: who, auxiliary } => {
            format!("\"role\",\"who\":[{}],\"auxiliary\":{auxiliary}", member(*who))
        }
        Change::Rule(to) => format!("\"rule\",\"rule\":{}", rule(*to)),
    };
    format!("{{\"era\":{},\"change\":{what}}}", era.0)
}
