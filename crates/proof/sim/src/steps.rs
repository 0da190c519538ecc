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
pub(crate) struct StepRecorder {
    text: String,
    explained_steps: BTreeSet<String>,
    decided: BTreeMap<usize, Slot>,
}

impl StepRecorder {
    /// Returns the initial state of a group with founding configuration `founding`.
    pub(crate) fn new(founding: &Configuration) -> Self {
        let mut members = String::new();
        for voter in founding.members() {
            let comma = if members.is_empty() { "" } else { "," };
            let (who, weight, auxiliary) =
                (member_json(voter.member), voter.weight, voter.auxiliary);
            let _ = write!(members, "{comma}[{who},{weight},{auxiliary}]");
        }
        let durable = founding.class() == Class::Durable;
        let rule = rule_json(founding.rule());
        Self {
            text: format!(
                "{{\"do\":\"founds\",\"durable\":{durable},\"rule\":{rule},\"members\":[{members}]}}\n"
            ),
            explained_steps: BTreeSet::new(),
            decided: BTreeMap::new(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Records that a log record of a member, and all records before it, are on stable storage.
    pub(crate) fn record_write(&mut self, by: Member, record: &Record) {
        let rest = match record {
            Record::Round { ballot } => {
                format!("\"round\",{},{}", by_member_json(by), ballot_json(*ballot))
            }
            Record::Promise { ballot } => {
                format!("\"promise\",{},{}", by_member_json(by), ballot_json(*ballot))
            }
            Record::Vote { ballot, range, value } => {
                let what = range_value_json(*range, value);
                format!("\"vote\",{},{},{what}", by_member_json(by), ballot_json(*ballot))
            }
            Record::Decided { range, value } => {
                format!("\"learned\",{},{}", by_member_json(by), range_value_json(*range, value))
            }
        };
        self.push_step(&rest);
    }

    /// Records a message sent by a member.
    pub(crate) fn record_sent(&mut self, by: Member, message: &Message) {
        let rest = match message {
            Message::Phase1a { ballot, from } => {
                format!("\"asks\",{},{},\"from\":{from}", by_member_json(by), ballot_json(*ballot))
            }
            Message::Phase1b(promise) => promise_json(by, promise),
            Message::Phase2a(proposal) => format!(
                "\"proposes\",{},{},{}",
                by_member_json(by),
                ballot_json(proposal.ballot),
                range_value_json(proposal.range, &proposal.value)
            ),
            Message::Phase2b(vote) if vote.from < vote.durable_to => format!(
                "\"votes\",{},{},\"from\":{},\"to\":{}",
                by_member_json(by),
                ballot_json(vote.ballot),
                vote.from,
                vote.durable_to
            ),
            _ => return,
        };
        if self.explained_steps.insert(rest.clone()) {
            self.push_step(&rest);
        }
    }

    /// Records that a node knows that all slots below `to` are decided.
    pub(crate) fn record_decided(&mut self, node: usize, to: Slot) {
        let known = self.decided.entry(node).or_insert(Slot::FIRST);
        if *known < to {
            *known = to;
            self.push_step(&format!("\"decides\",\"node\":{},\"to\":{to}", node + 1));
        }
    }

    fn push_step(&mut self, rest: &str) {
        let _ = writeln!(self.text, "{{\"do\":{rest}}}");
    }
}

fn promise_json(by: Member, promise: &Phase1b) -> String {
    let mut extents = String::new();
    for extent in &promise.extents {
        let comma = if extents.is_empty() { "" } else { "," };
        let what = range_value_json(extent.range, &extent.value);
        let _ = write!(extents, "{comma}{{{},{what}}}", ballot_json(extent.ballot));
    }
    format!(
        "\"answers\",{},{},\"from\":{},\"floor\":{},\"extents\":[{extents}]",
        by_member_json(by),
        ballot_json(promise.ballot),
        promise.from,
        promise.floor
    )
}

fn member_json(member: Member) -> String {
    format!("{},{}", member.node, member.incarnation.0)
}

fn by_member_json(by: Member) -> String {
    format!("\"by\":[{}]", member_json(by))
}

fn ballot_json(ballot: Ballot) -> String {
    let Ballot { era, round, node } = ballot;
    format!("\"ballot\":[{},{},{node}]", era.0, round)
}

fn range_value_json(range: SlotRange, what: &Value) -> String {
    let value = value(what);
    format!("\"from\":{},\"to\":{},\"value\":{value}", range.from, range.to)
}

fn rule_json(rule: QuorumRule) -> String {
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
        Change::Increment(who) => format!("\"up\",\"who\":[{}]", member_json(*who)),
        Change::Decrement(who) => format!("\"down\",\"who\":[{}]", member_json(*who)),
        Change::Multiply(factor) => format!("\"times\",\"factor\":{factor}"),
        Change::Divide(factor) => format!("\"by\",\"factor\":{factor}"),
        Change::Remove(node) => format!("\"remove\",\"node\":{node}"),
        Change::Role { member: who, auxiliary } => {
            format!("\"role\",\"who\":[{}],\"auxiliary\":{auxiliary}", member_json(*who))
        }
        Change::Rule(to) => format!("\"rule\",\"rule\":{}", rule_json(*to)),
    };
    format!("{{\"era\":{},\"change\":{what}}}", era.0)
}
