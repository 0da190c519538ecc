//! Encoding of configurations and eras, for the base of the log and the header of a snapshot.

use quorate_core::{
    ballot::Era,
    class::Class,
    configuration::{Configuration, Voter},
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
    reconfigure::{Eras, Identity},
    slot::Slot,
};

use crate::fields::Fields;

const AUXILIARY_FLAG: u8 = 1;

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_configuration(configuration: &Configuration, out: &mut Vec<u8>) {
    out.push(match configuration.class() {
        Class::Volatile => 0,
        Class::Durable => 1,
    });
    let (kind, first, second) = match configuration.rule() {
        QuorumRule::Majority => (0, 0, 0),
        QuorumRule::Flexible { phase1, phase2 } => (1, phase1, phase2),
        QuorumRule::Grid { columns } => (2, u32::from(columns), 0),
    };
    out.push(kind);
    put_u32(out, first);
    put_u32(out, second);
    let members = configuration.members();
    out.push(u8::try_from(members.len()).expect("at most 16 members"));
    for voter in members {
        put_u32(out, voter.member.node.0);
        put_u32(out, voter.member.incarnation.0);
        put_u32(out, voter.weight);
        out.push(u8::from(voter.auxiliary) * AUXILIARY_FLAG);
    }
}

fn take_configuration(fields: &mut Fields<'_>) -> Option<Configuration> {
    let class = match fields.u8()? {
        0 => Class::Volatile,
        1 => Class::Durable,
        _ => return None,
    };
    let rule = match (fields.u8()?, fields.u32()?, fields.u32()?) {
        (0, 0, 0) => QuorumRule::Majority,
        (1, phase1, phase2) => QuorumRule::Flexible { phase1, phase2 },
        (2, columns, 0) => QuorumRule::Grid { columns: u8::try_from(columns).ok()? },
        _ => return None,
    };
    let count = fields.u8()?;
    let member = |fields: &mut Fields<'_>| {
        let member =
            Member { node: NodeId(fields.u32()?), incarnation: Incarnation(fields.u32()?) };
        let (weight, flags) = (fields.u32()?, fields.u8()?);
        (flags <= AUXILIARY_FLAG).then_some(Voter {
            member,
            weight,
            auxiliary: flags == AUXILIARY_FLAG,
        })
    };
    let members: Option<Vec<Voter>> = (0..count).map(|_| member(fields)).collect();
    Configuration::new(members?, rule, class).ok()
}

pub(crate) fn put_eras(eras: &Eras, out: &mut Vec<u8>) {
    put_u32(out, eras.era().0);
    out.extend_from_slice(&eras.era_start().0.to_be_bytes());
    let ids = eras.identities();
    put_u32(out, u32::try_from(ids.len()).expect("ids are numbered by 32 bits"));
    for id in ids {
        put_u32(out, id.node.0);
        put_u32(out, id.incarnation.0);
        out.push(u8::from(id.is_removed));
    }
    put_configuration(eras.current(), out);
    out.push(u8::from(eras.previous().is_some()));
    if let Some(previous) = eras.previous() {
        put_configuration(previous, out);
    }
}

pub(crate) fn take_eras(fields: &mut Fields<'_>) -> Option<Eras> {
    let (era, since) = (Era(fields.u32()?), Slot(fields.u64()?));
    let count = fields.u32()?;
    let id = |fields: &mut Fields<'_>| {
        let (node, incarnation) = (NodeId(fields.u32()?), Incarnation(fields.u32()?));
        let spent = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Identity { node, incarnation, is_removed: spent })
    };
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(id(fields)?);
    }
    let current = take_configuration(fields)?;
    let previous = match fields.u8()? {
        0 => None,
        1 => Some(take_configuration(fields)?),
        _ => return None,
    };
    Eras::restored(era, since, current, previous, ids).ok()
}
