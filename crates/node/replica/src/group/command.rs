//! Commands to the group's table and their replies, with their encoding.
//!
//! Integers are big-endian; texts and lists are preceded by their length. The first byte selects
//! the command.

use std::fmt;

use quorate_core::{
    ballot::Era,
    configuration::Change,
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
};

use super::planner::Goal;
use crate::fields::Fields;

/// Intended role of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberRole {
    /// Member with a vote.
    #[default]
    Voter,
    /// Member that learns decisions and has no weight.
    Learner,
    /// Voter that receives no values while the other voters suffice ([aux-1]).
    Auxiliary,
}

impl MemberRole {
    /// Returns the role's name on command lines and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Voter => "voter",
            Self::Learner => "learner",
            Self::Auxiliary => "auxiliary",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Voter, Self::Learner, Self::Auxiliary].into_iter().find(|role| role.name() == name)
    }
}

/// A command that changes the group's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Assigns an id to the folder with this nonce, or reserves one if `nonce` is `None`. `node` is
    /// a previously reserved id, if any.
    Allocate { nonce: Option<u64>, node: Option<NodeId>, peer: String, role: MemberRole },
    /// Changes a node's peer address.
    Address { node: NodeId, peer: String },
    /// Sets a node's priority. Of several nodes that could lead, the one with the highest priority
    /// does.
    Priority { node: NodeId, priority: u32 },
    /// Starts a plan that moves towards these weights, or renews the plan in progress.
    Plan {
        /// Era for which the plan was made.
        era: Era,
        goal: Goal,
        /// Changes of roles and of the quorum rule, made once the weights have reached their
        /// targets.
        later_changes: Vec<Change>,
        /// Nodes to remove from the group once they have no weight.
        nodes_to_remove: Vec<NodeId>,
        description: String,
    },
    /// Cancels the plan made by the command in slot `plan`. Finished steps are not undone.
    Cancel { plan: u64 },
}

/// Effect of an executed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEffect {
    Done,
    /// The id that was assigned or reserved.
    Node(NodeId),
    /// A plan with this id is in progress.
    Plan(u64),
}

/// Reason why a command had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandDenied {
    /// This version cannot decode the command.
    Malformed,
    /// The address is empty or too long.
    BadAddress,
    /// The id has never been assigned, or has been removed.
    UnknownNode(NodeId),
    /// Another folder uses this id.
    IdTaken(NodeId),
    /// This node is already a member at that address.
    AddressTaken(NodeId),
    /// The folder belongs to this node, and the node has been removed.
    Removed(NodeId),
    /// No more ids can be assigned, because the table is full.
    TableFull,
    /// Another plan, with this id, is in progress.
    UnderWay(u64),
    /// The plan was made for an earlier era than this, the current one.
    OtherEra(Era),
    /// No valid steps lead to the plan's goal.
    NoPath,
    /// The plan to cancel is not in progress.
    NoSuchPlan,
    /// The command was for the table of users, which refused it for this reason.
    UsersDenied(quorate_access::Denied),
}

/// Reply to a command.
pub type CommandReply = Result<CommandEffect, CommandDenied>;

impl fmt::Display for CommandDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("this version does not understand the request"),
            Self::BadAddress => f.write_str("the address is empty or too long"),
            Self::UnknownNode(node) => write!(f, "there is no node {node}"),
            Self::IdTaken(node) => write!(f, "another folder already has the id of node {node}"),
            Self::AddressTaken(node) => write!(
                f,
                "node {node} is a member at this address; if its folder is lost, start the new node there with \
                 --as learner, then run 'quorate member replace {node} NEW' with the id that it gets"
            ),
            Self::Removed(node) => write!(f, "this folder was node {node}, which was removed"),
            Self::TableFull => f.write_str("no more ids are available: remove dead nodes"),
            Self::UnderWay(plan) => write!(f, "plan {plan} is in progress"),
            Self::OtherEra(era) => {
                write!(
                    f,
                    "the members were changed meanwhile: the era is now {era}"
                )
            }
            Self::NoPath => f.write_str(
                "no valid sequence of steps leads there: quorums would not overlap, or weights would overflow",
            ),
            Self::NoSuchPlan => f.write_str("that plan is not in progress"),
            Self::UsersDenied(denied) => denied.fmt(f),
        }
    }
}

const ALLOCATE: u8 = 1;
const ADDRESS: u8 = 2;
const PRIORITY: u8 = 3;
const PLAN: u8 = 4;
const CANCEL: u8 = 5;

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Allocate { nonce, node, peer, role } => {
                out.push(ALLOCATE);
                put_nonce(*nonce, &mut out);
                put_u32(node.map_or(0, |node| node.0), &mut out);
                put_text(peer, &mut out);
                out.push(encode_role(*role));
            }
            Self::Address { node, peer } => {
                out.push(ADDRESS);
                put_u32(node.0, &mut out);
                put_text(peer, &mut out);
            }
            Self::Priority { node, priority } => {
                out.push(PRIORITY);
                put_u32(node.0, &mut out);
                put_u32(*priority, &mut out);
            }
            Self::Plan {
                era,
                goal,
                later_changes: then,
                nodes_to_remove: leaving,
                description: what,
            } => {
                out.push(PLAN);
                put_u32(era.0, &mut out);
                put_goal(goal, &mut out);
                put_changes(then, &mut out);
                put_nodes(leaving, &mut out);
                put_text(what, &mut out);
            }
            Self::Cancel { plan } => {
                out.push(CANCEL);
                out.extend_from_slice(&plan.to_be_bytes());
            }
        }
        out
    }

    /// Decodes a command; `None` if this version does not understand it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let command = match fields.u8()? {
            ALLOCATE => Self::Allocate {
                nonce: take_nonce(&mut fields)?,
                node: Some(NodeId(fields.u32()?)).filter(|node| node.0 > 0),
                peer: take_text(&mut fields)?,
                role: decode_role(fields.u8()?)?,
            },
            ADDRESS => Self::Address { node: NodeId(fields.u32()?), peer: take_text(&mut fields)? },
            PRIORITY => Self::Priority { node: NodeId(fields.u32()?), priority: fields.u32()? },
            PLAN => Self::Plan {
                era: Era(fields.u32()?),
                goal: take_goal(&mut fields)?,
                later_changes: take_changes(&mut fields)?,
                nodes_to_remove: take_nodes(&mut fields)?,
                description: take_text(&mut fields)?,
            },
            CANCEL => Self::Cancel { plan: fields.u64()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(command)
    }
}

/// Encodes a reply as a kind and a number.
pub fn encode_reply(reply: &CommandReply, out: &mut Vec<u8>) {
    let (kind, number) = match *reply {
        Ok(CommandEffect::Done) => (0, 0),
        Ok(CommandEffect::Node(node)) => (1, u64::from(node.0)),
        Ok(CommandEffect::Plan(plan)) => (2, plan),
        Err(CommandDenied::Malformed) => (16, 0),
        Err(CommandDenied::BadAddress) => (17, 0),
        Err(CommandDenied::UnknownNode(node)) => (18, u64::from(node.0)),
        Err(CommandDenied::IdTaken(node)) => (19, u64::from(node.0)),
        Err(CommandDenied::TableFull) => (20, 0),
        Err(CommandDenied::UnderWay(plan)) => (21, plan),
        Err(CommandDenied::OtherEra(era)) => (22, u64::from(era.0)),
        Err(CommandDenied::NoPath) => (23, 0),
        Err(CommandDenied::NoSuchPlan) => (24, 0),
        Err(CommandDenied::Removed(node)) => (25, u64::from(node.0)),
        Err(CommandDenied::AddressTaken(node)) => (26, u64::from(node.0)),
        // The table of users has its own encoding of replies, so this one is not used for it.
        Err(CommandDenied::UsersDenied(_)) => (16, 0),
    };
    out.push(kind);
    out.extend_from_slice(&u64::to_be_bytes(number));
}

/// Decodes a reply; `None` if it is malformed.
pub fn decode_reply(bytes: &[u8]) -> Option<CommandReply> {
    let mut fields = Fields(bytes);
    let (kind, number) = (fields.u8()?, fields.u64()?);
    let small = u32::try_from(number).unwrap_or(u32::MAX);
    Some(match kind {
        0 => Ok(CommandEffect::Done),
        1 => Ok(CommandEffect::Node(NodeId(small))),
        2 => Ok(CommandEffect::Plan(number)),
        16 => Err(CommandDenied::Malformed),
        17 => Err(CommandDenied::BadAddress),
        18 => Err(CommandDenied::UnknownNode(NodeId(small))),
        19 => Err(CommandDenied::IdTaken(NodeId(small))),
        20 => Err(CommandDenied::TableFull),
        21 => Err(CommandDenied::UnderWay(number)),
        22 => Err(CommandDenied::OtherEra(Era(small))),
        23 => Err(CommandDenied::NoPath),
        24 => Err(CommandDenied::NoSuchPlan),
        25 => Err(CommandDenied::Removed(NodeId(small))),
        26 => Err(CommandDenied::AddressTaken(NodeId(small))),
        _ => return None,
    })
}

pub(super) fn put_u32(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes());
}

pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    // An overlong text is truncated here and refused when the command is executed.
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn take_text(fields: &mut Fields<'_>) -> Option<String> {
    let length = fields.u16()?;
    let bytes = fields.bytes(usize::from(length))?;
    String::from_utf8(bytes.to_vec()).ok()
}

pub(super) fn put_nonce(nonce: Option<u64>, out: &mut Vec<u8>) {
    out.push(u8::from(nonce.is_some()));
    out.extend_from_slice(&nonce.unwrap_or(0).to_be_bytes());
}

pub(super) fn take_nonce(fields: &mut Fields<'_>) -> Option<Option<u64>> {
    match (fields.u8()?, fields.u64()?) {
        (0, 0) => Some(None),
        (1, nonce) => Some(Some(nonce)),
        _ => None,
    }
}

pub(super) fn put_goal(goal: &Goal, out: &mut Vec<u8>) {
    let count = u8::try_from(goal.len()).unwrap_or(u8::MAX);
    out.push(count);
    for (member, weight) in goal.iter().take(usize::from(count)) {
        put_u32(member.node.0, out);
        put_u32(member.incarnation.0, out);
        put_u32(*weight, out);
    }
}

pub(super) fn take_goal(fields: &mut Fields<'_>) -> Option<Goal> {
    let count = fields.u8()?;
    let one = |_| {
        let member =
            Member { node: NodeId(fields.u32()?), incarnation: Incarnation(fields.u32()?) };
        Some((member, fields.u32()?))
    };
    (0..count).map(one).collect()
}

/// Encodes changes of roles and of the quorum rule, the only kinds in
/// [`super::Plan::later_changes`].
pub(super) fn put_changes(changes: &[Change], out: &mut Vec<u8>) {
    let count = u8::try_from(changes.len()).unwrap_or(u8::MAX);
    out.push(count);
    for change in changes.iter().take(usize::from(count)) {
        let (kind, words) = match *change {
            Change::Role { member, auxiliary } => {
                let Member { node, incarnation } = member;
                (u8::from(auxiliary), [node.0, incarnation.0])
            }
            Change::Rule(QuorumRule::Majority) => (2, [0, 0]),
            Change::Rule(QuorumRule::Flexible { phase1, phase2 }) => (3, [phase1, phase2]),
            // No decoder accepts this kind, so the command is refused.
            _ => (u8::MAX, [0, 0]),
        };
        out.push(kind);
        words.into_iter().for_each(|word| put_u32(word, out));
    }
}

pub(super) fn take_changes(fields: &mut Fields<'_>) -> Option<Vec<Change>> {
    let count = fields.u8()?;
    let one = |_| {
        let (kind, first, second) = (fields.u8()?, fields.u32()?, fields.u32()?);
        let member = Member { node: NodeId(first), incarnation: Incarnation(second) };
        Some(match kind {
            0 | 1 => Change::Role { member, auxiliary: kind == 1 },
            2 => Change::Rule(QuorumRule::Majority),
            3 => Change::Rule(QuorumRule::Flexible { phase1: first, phase2: second }),
            _ => return None,
        })
    };
    (0..count).map(one).collect()
}

pub(super) fn put_nodes(nodes: &[NodeId], out: &mut Vec<u8>) {
    let count = u8::try_from(nodes.len()).unwrap_or(u8::MAX);
    out.push(count);
    for node in nodes.iter().take(usize::from(count)) {
        put_u32(node.0, out);
    }
}

pub(super) fn take_nodes(fields: &mut Fields<'_>) -> Option<Vec<NodeId>> {
    let count = fields.u8()?;
    (0..count).map(|_| fields.u32().map(NodeId)).collect()
}

pub(super) const fn encode_role(role: MemberRole) -> u8 {
    match role {
        MemberRole::Voter => 0,
        MemberRole::Learner => 1,
        MemberRole::Auxiliary => 2,
    }
}

pub(super) const fn decode_role(number: u8) -> Option<MemberRole> {
    match number {
        0 => Some(MemberRole::Voter),
        1 => Some(MemberRole::Learner),
        2 => Some(MemberRole::Auxiliary),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_round_trips() {
        let node = NodeId(7);
        for reply in [
            Ok(CommandEffect::Done),
            Ok(CommandEffect::Node(node)),
            Ok(CommandEffect::Plan(1 << 40)),
            Err(CommandDenied::Malformed),
            Err(CommandDenied::BadAddress),
            Err(CommandDenied::UnknownNode(node)),
            Err(CommandDenied::IdTaken(node)),
            Err(CommandDenied::TableFull),
            Err(CommandDenied::UnderWay(1 << 40)),
            Err(CommandDenied::OtherEra(Era(3))),
            Err(CommandDenied::NoPath),
            Err(CommandDenied::NoSuchPlan),
            Err(CommandDenied::Removed(node)),
            Err(CommandDenied::AddressTaken(node)),
        ] {
            let mut bytes = Vec::new();
            encode_reply(&reply, &mut bytes);
            assert_eq!(decode_reply(&bytes), Some(reply));
            assert_eq!(decode_reply(&bytes[..8]), None);
        }
    }
}
