//! The node and the connection: what needs no data, or all of it.

use std::ops::ControlFlow;

use crate::{
    command::{Local, Spec},
    commands::family::{Family, Operation},
    commands::state::Reading,
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::reply::{Reply, is_whole},
    store,
};

/// The family.
pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Literal, literal),
        Operation::read(Op::Digest, digest),
        Operation::read(Op::Keyspace, keyspace),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::local("ping", -1, Local::Ping),
    Spec::local("echo", 2, Local::Echo),
    Spec::local("hello", -1, Local::Hello),
    Spec::local("select", 2, Local::Select),
    Spec::local("quit", -1, Local::Quit),
    Spec::local("reset", 1, Local::Reset),
    Spec::local("auth", -2, Local::Auth),
    Spec::local("acl", -2, Local::Acl),
    Spec::local("client", -2, Local::Client),
    Spec::local("command", -1, Local::Command),
    Spec::local("info", -1, Local::Info),
    Spec::local("config", -2, Local::Config),
    Spec::local("readonly", 1, Local::ReadOnly),
    Spec::local("readwrite", 1, Local::ReadWrite),
    Spec::local("wait", 3, Local::Wait),
    Spec::local("time", 1, Local::Time),
    Spec::local("quorate", -2, Local::Quorate),
];

/// A reply that the front knows already, to be given in its place within a transaction.
pub fn encode_literal(reply: &[u8], out: &mut Encoder<'_>) {
    out.byte(Op::Literal as u8).bytes(reply);
}

pub(super) fn literal(
    from: &mut Decoder<'_>,
    _: &Reading<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let bytes = from.bytes()?;
    from.end()?;
    if !is_whole(bytes) {
        return Err(Fault::Malformed);
    }
    reply.0.extend_from_slice(bytes);
    Ok(())
}

/// Most keys with a deadline that INFO counts.
const DEADLINES_MAX: u64 = 10_000;

/// Asks for what INFO says of the keys.
pub fn encode_keyspace(out: &mut Encoder<'_>) {
    out.byte(Op::Keyspace as u8);
}

pub(super) fn keyspace(
    from: &mut Decoder<'_>,
    state: &Reading<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.end()?;
    let mut expires = 0;
    let above = state.store.time().saturating_add(1);
    state.store.deadlines(above, u64::MAX, &mut |_, _| {
        expires += 1;
        if expires < DEADLINES_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let keys = state.store.len();
    reply.simple(&format!("keys={keys},expires={expires},avg_ttl=0"));
    Ok(())
}

/// Asks for `<applied> <digest>`.
pub fn encode_digest(out: &mut Encoder<'_>) {
    out.byte(Op::Digest as u8);
}

pub(super) fn digest(
    from: &mut Decoder<'_>,
    state: &Reading<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.end()?;
    reply.simple(&format!(
        "{} {:032x}",
        state.applied_to,
        store::digest(state.store)
    ));
    Ok(())
}
