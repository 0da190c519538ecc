//! Attempts to take elements. A blocking command is a series of attempts, which every node
//! executes.

use crate::{
    commands::list::end::End,
    encode::{Decoder, Encoder, Fault, Keys, Malformed},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::collection::Kind,
};

/// Attempt to take elements from the first nonempty one of several keys.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) keys: Keys<'a>,
    pub(super) action: Action<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Action<'a> {
    /// Pops from a list. Without a count, replies with one element instead of an array.
    List(End, Option<u64>),
    /// Moves an element from the first end of the list to the second end of another list.
    Move(End, End, Key<'a>),
    /// Pops from a sorted set, highest scores first if `true`. The count is as for a list.
    Zset(bool, Option<u64>),
}

mod kind {
    pub(super) const LIST: u8 = 0;
    pub(super) const MOVE: u8 = 1;
    pub(super) const ZSET: u8 = 2;
}

/// Encodes a command that makes one attempt, or blocks for up to `ms` milliseconds; 0 is no limit.
pub(super) fn write(ms: u64, action: &Action<'_>, keys: &[&[u8]], out: &mut Encoder<'_>) {
    out.byte(Op::Attempt as u8).word(ms);
    // 0 stands for no count: parsers refuse a count of 0.
    match *action {
        Action::List(end, count) => out.byte(kind::LIST).byte(end as u8).count(count.unwrap_or(0)),
        Action::Move(from, to, target) => {
            out.byte(kind::MOVE).byte(from as u8).byte(to as u8).bytes(target.bytes())
        }
        Action::Zset(max, count) => {
            out.byte(kind::ZSET).byte(u8::from(max)).count(count.unwrap_or(0))
        }
    };
    out.keys(keys);
}

/// Splits an encoded command into the time to block and the attempt.
pub(super) fn parts(command: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut from = Decoder(command);
    if from.byte()? != Op::Attempt as u8 {
        return Err(Malformed);
    }
    Ok((from.word()?, from.0))
}

fn decode_count(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

impl<'a> Attempt<'a> {
    pub(crate) fn decode(from: &mut Decoder<'a>) -> Result<Self, Fault> {
        let action = match from.byte()? {
            kind::LIST => Action::List(End::decode(from)?, decode_count(from.count()?)),
            kind::MOVE => Action::Move(End::decode(from)?, End::decode(from)?, from.key()?),
            kind::ZSET => Action::Zset(from.byte()? != 0, decode_count(from.count()?)),
            _ => return Err(Fault::Malformed),
        };
        let keys = from.keys()?;
        from.end()?;
        if keys.is_empty() {
            return Err(Fault::Malformed);
        }
        Ok(Self { keys, action })
    }

    pub(crate) const fn kind(&self) -> Kind {
        match self.action {
            Action::List(..) | Action::Move(..) => Kind::List,
            Action::Zset(..) => Kind::Zset,
        }
    }

    pub(crate) const fn elements_wanted(&self) -> u64 {
        match self.action {
            Action::List(_, Some(count)) | Action::Zset(_, Some(count)) => count,
            Action::List(_, None) | Action::Zset(_, None) | Action::Move(..) => 1,
        }
    }

    /// Writes the reply of an attempt that finds no elements and does not block.
    pub(super) fn write_empty_reply(&self, reply: &mut Reply<'_>) {
        match self.action {
            Action::Move(..) => reply.null(),
            Action::List(..) | Action::Zset(..) => reply.null_array(),
        }
    }
}
