//! Encoding of the group's table: for the service's metadata and for snapshots.

use quorate_core::{level::Level, node_id::NodeId, slot::Slot};

use super::{
    Ended, Group, NODES_MAX, NodeEntry, Plan,
    command::{
        put_changes, put_goal, put_nodes, put_nonce, put_text, put32, role_number, role_numbered,
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
        put32(self.next, &mut out);
        let count = u32::try_from(self.nodes.len()).expect("bounded by NODES_MAX");
        put32(count, &mut out);
        for (node, known) in &self.nodes {
            put32(node.0, &mut out);
            put_nonce(known.nonce, &mut out);
            put_text(&known.peer, &mut out);
            out.push(role_number(known.role));
            put32(known.priority, &mut out);
            out.push(u8::from(known.founding));
        }
        let gone = u32::try_from(self.removed_nonces.len()).expect("ids are numbered by 32 bits");
        put32(gone, &mut out);
        for (nonce, node) in &self.removed_nonces {
            out.extend_from_slice(&nonce.to_be_bytes());
            put32(node.0, &mut out);
        }
        out.push(u8::from(self.plan.is_some()));
        if let Some(plan) = &self.plan {
            out.extend_from_slice(&plan.id.to_be_bytes());
            put_goal(&plan.goal, &mut out);
            put_changes(&plan.then, &mut out);
            put_nodes(&plan.leaving, &mut out);
            put_text(&plan.what, &mut out);
        }
        out.push(u8::from(self.ended.is_some()));
        if let Some(Ended { id, reached, at }) = self.ended {
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
                role: role_numbered(fields.u8()?)?,
                priority: fields.u32()?,
                founding: flag(&mut fields)?,
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
                then: take_changes(&mut fields)?,
                leaving: take_nodes(&mut fields)?,
                what: take_text(&mut fields)?,
            });
        }
        if flag(&mut fields)? {
            group.ended = Some(Ended {
                id: fields.u64()?,
                reached: flag(&mut fields)?,
                at: Slot(fields.u64()?),
            });
        }
        fields.0.is_empty().then_some(group)
    }
}
