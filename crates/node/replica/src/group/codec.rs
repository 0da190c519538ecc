//! Encoding of the group's table: for the service's metadata and for snapshots.

use quorate_core::{level::Level, node_id::NodeId, slot::Slot};

use super::{
    Group, NODES_MAX, NodeEntry, Plan, PlanEnd,
    command::{
        decode_role, encode_role, put_changes, put_goal, put_nodes, put_nonce, put_text, put_u32,
        take_changes, take_goal, take_nodes, take_nonce, take_text,
    },
};
use crate::fields::Fields;

/// Format of a table at level 8.
const FORMAT: u8 = 1;
/// Format of a table above level 8, in which the level follows the format number. A release without
/// levels refuses it ([level-8]).
const FORMAT_WITH_LEVEL: u8 = 2;

impl Group {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.level {
            Level::BASE => out.push(FORMAT),
            Level(level) => {
                out.push(FORMAT_WITH_LEVEL);
                out.extend_from_slice(&level.to_be_bytes());
            }
        }
        put_u32(self.next, &mut out);
        let count = u32::try_from(self.nodes.len()).expect("bounded by NODES_MAX");
        put_u32(count, &mut out);
        for (node, known) in &self.nodes {
            put_u32(node.0, &mut out);
            put_nonce(known.nonce, &mut out);
            put_text(&known.peer, &mut out);
            out.push(encode_role(known.role));
            put_u32(known.priority, &mut out);
            out.push(u8::from(known.is_founding));
        }
        let gone = u32::try_from(self.removed_nonces.len()).expect("ids are numbered by 32 bits");
        put_u32(gone, &mut out);
        for (nonce, node) in &self.removed_nonces {
            out.extend_from_slice(&nonce.to_be_bytes());
            put_u32(node.0, &mut out);
        }
        out.push(u8::from(self.plan.is_some()));
        if let Some(plan) = &self.plan {
            out.extend_from_slice(&plan.id.to_be_bytes());
            put_goal(&plan.goal, &mut out);
            put_changes(&plan.later_changes, &mut out);
            put_nodes(&plan.nodes_to_remove, &mut out);
            put_text(&plan.description, &mut out);
        }
        out.push(u8::from(self.last_end.is_some()));
        if let Some(PlanEnd { id, is_goal_reached: reached, slot: at }) = self.last_end {
            out.extend_from_slice(&id.to_be_bytes());
            out.push(u8::from(reached));
            out.extend_from_slice(&at.0.to_be_bytes());
        }
        out
    }

    /// Decodes a table; `None` if it is malformed or of a later version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let level = match fields.u8()? {
            FORMAT => Level::BASE,
            FORMAT_WITH_LEVEL => Some(Level(fields.u16()?)).filter(|level| *level > Level::BASE)?,
            _ => return None,
        };
        let next = fields.u32()?;
        let count = usize::try_from(fields.u32()?).ok()?;
        if count > NODES_MAX {
            return None;
        }
        let flag = |fields: &mut Fields<'_>| match fields.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let mut group = Self { next, level, ..Self::default() };
        for _ in 0..count {
            let node = NodeId(fields.u32()?);
            let known = NodeEntry {
                nonce: take_nonce(&mut fields)?,
                peer: take_text(&mut fields)?,
                role: decode_role(fields.u8()?)?,
                priority: fields.u32()?,
                is_founding: flag(&mut fields)?,
            };
            group.nodes.insert(node, known);
        }
        for _ in 0..fields.u32()? {
            group.removed_nonces.insert(fields.u64()?, NodeId(fields.u32()?));
        }
        if flag(&mut fields)? {
            group.plan = Some(Plan {
                id: fields.u64()?,
                goal: take_goal(&mut fields)?,
                later_changes: take_changes(&mut fields)?,
                nodes_to_remove: take_nodes(&mut fields)?,
                description: take_text(&mut fields)?,
            });
        }
        if flag(&mut fields)? {
            group.last_end = Some(PlanEnd {
                id: fields.u64()?,
                is_goal_reached: flag(&mut fields)?,
                slot: Slot(fields.u64()?),
            });
        }
        fields.0.is_empty().then_some(group)
    }
}
