//! Clients that wait: what every node does when one gets in line, claims what has come, or leaves.

use super::attempt::{Action, Attempt, parts};
use crate::{
    commands::{
        list,
        state::{Reading, WRONG_TYPE, Writing},
        zset,
    },
    encode::{Decoder, Encoder, Fault, Malformed},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{Store, Version, collection::Header, collection::Kind},
    waits::{Owner, Wait, Waits},
};

/// The reply to a front whose client has to wait. No attempt says this.
pub const WAITING: &[u8] = b"+WAITING\r\n";
/// The reply to a claim of a client that is not in line (any more).
pub const GONE: &[u8] = b"+GONE\r\n";

/// Keys that one look goes through.
const LOOK_KEYS_MAX: usize = 1024;

fn write_owner(op: Op, owner: Owner, out: &mut Encoder<'_>) {
    out.byte(op as u8);
    owner.encode(out);
}

/// Gets in line with a command as it was encoded; `false`: that is none that waits.
#[must_use]
pub fn encode_await(owner: Owner, number: u64, command: &[u8], out: &mut Encoder<'_>) -> bool {
    let Ok((_, attempt)) = parts(command) else {
        return false;
    };
    write_owner(Op::Await, owner, out);
    out.count(number);
    out.0.extend_from_slice(attempt);
    true
}

/// Takes what has come.
pub fn encode_claim(owner: Owner, number: u64, out: &mut Encoder<'_>) {
    write_owner(Op::Claim, owner, out);
    out.count(number);
}

/// Leaves the line.
pub fn encode_withdraw(owner: Owner, numbers: &[u64], out: &mut Encoder<'_>) {
    write_owner(Op::Withdraw, owner, out);
    out.length(numbers.len());
    for number in numbers {
        out.count(*number);
    }
}

/// Removes all that wait at a node which does not claim what has come.
pub fn encode_depose(seen: Seen, out: &mut Encoder<'_>) {
    write_owner(Op::Depose, seen.owner, out);
    out.count(seen.number).word(seen.version.slot).count(seen.version.index.into());
}

/// Asks what has come for the clients of a front, from a key on; with `all`, who of them is in
/// line, too.
pub fn encode_look(owner: Owner, all: bool, from: &[u8], out: &mut Encoder<'_>) {
    write_owner(Op::Look, owner, out);
    out.byte(u8::from(all)).bytes(from);
}

/// A client of another node for which an element has arrived, and the command of its last sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Owner of the client.
    pub owner: Owner,
    /// Number of the client at its owner.
    pub number: u64,
    /// Version at which it joined the line, or last tried in vain.
    pub version: Version,
}

/// The answer to a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Clients of the front whose turn it is.
    pub turns: Vec<u64>,
    /// Clients of others whose turn it is.
    pub others: Vec<Seen>,
    /// All clients of the front that are in line, in their order, if that was asked for.
    pub all: Option<Vec<u64>>,
    /// Position at which the next look resumes, if there is more.
    pub next: Vec<u8>,
}

impl Look {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.length(self.turns.len());
        for number in &self.turns {
            out.count(*number);
        }
        out.length(self.others.len());
        for seen in &self.others {
            seen.owner.encode(out);
            out.count(seen.number).word(seen.version.slot).count(seen.version.index.into());
        }
        out.byte(u8::from(self.all.is_some()));
        if let Some(all) = &self.all {
            out.length(all.len());
            for number in all {
                out.count(*number);
            }
        }
        out.bytes(&self.next);
    }

    /// Reads an answer.
    pub fn decode(answer: &[u8]) -> Result<Self, Malformed> {
        let mut from = Decoder(answer);
        let mut look = Self::default();
        for _ in 0..from.length()? {
            look.turns.push(from.count()?);
        }
        for _ in 0..from.length()? {
            look.others.push(decode_seen(&mut from)?);
        }
        if from.byte()? != 0 {
            let mut all = Vec::new();
            for _ in 0..from.length()? {
                all.push(from.count()?);
            }
            look.all = Some(all);
        }
        look.next = from.bytes()?.to_vec();
        from.end()?;
        Ok(look)
    }
}

fn decode_seen(from: &mut Decoder<'_>) -> Result<Seen, Malformed> {
    let (owner, number) = (Owner::decode(from)?, from.count()?);
    let slot = from.word()?;
    let index = u32::try_from(from.count()?).map_err(|_| Malformed)?;
    Ok(Seen { owner, number, version: Version { slot, index } })
}

/// Returns the number of elements of a key, if it is of a kind that clients wait for.
pub(crate) fn elements(store: &dyn Store, key: &[u8]) -> Option<(Kind, u64)> {
    let entry = store.get(Key::new(key).ok()?)?;
    if !matches!(entry.kind, Kind::List | Kind::Zset) {
        return None;
    }
    Some((entry.kind, Header::from_bytes(&entry.value)?.count))
}

/// Returns whether a client that joined the line then may take from a key: there is one more
/// element than those before it take.
fn has_turn(state: &Writing<'_>, since: Version, key: Key<'_>) -> bool {
    let found = elements(state.store, key.bytes());
    found.is_some_and(|(kind, count)| state.waits.has_turn(since, key.bytes(), kind, count))
}

impl Attempt<'_> {
    /// Takes from the first key that has something and whose turn it is; `false`: there is none,
    /// and nothing is said.
    fn run(
        &self,
        state: &mut Writing<'_>,
        reply: &mut Reply<'_>,
        may: &dyn Fn(&Writing<'_>, Key<'_>) -> bool,
    ) -> bool {
        for key in self.keys {
            match state.store.get(key).map(|entry| entry.kind) {
                None => continue,
                Some(kind) if kind != self.kind() => {
                    reply.error(WRONG_TYPE);
                    return true;
                }
                Some(_) if !may(state, key) => continue,
                Some(_) => {}
            }
            let taken = match self.action {
                Action::List(end, count) => list::run::pop_from(key, end, count, state, reply),
                Action::Move(from, to, target) => {
                    list::run::move_from((key, from), (target, to), state, reply)
                }
                Action::Zset(max, count) => zset::run::pop_from(key, max, count, state, reply),
            };
            if taken {
                return true;
            }
        }
        false
    }
}

/// Makes one attempt without waiting, as between MULTI and EXEC.
pub(super) fn attempt(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.word()?;
    let attempt = Attempt::decode(from)?;
    if !attempt.run(state, reply, &|_, _| true) {
        attempt.nothing(reply);
    }
    Ok(())
}

/// Makes an attempt at the end of the line; if there is nothing, the client stands there from now
/// on.
pub(super) fn wait(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (owner, number) = (Owner::decode(from)?, from.count()?);
    let wait = Wait::new(owner, number, state.version, from.0)?;
    let attempt = Attempt::decode(from)?;
    state.waits.begin_life(owner);
    // A front that is not sure repeats it: the place is kept.
    if state.waits.find(owner, number).is_some() {
        return try_again(owner, number, state, reply);
    }
    let since = state.version;
    if attempt.run(state, reply, &|state, key| has_turn(state, since, key)) {
        return Ok(());
    }
    match state.waits.enter(since, wait) {
        Ok(()) => reply.0.extend_from_slice(WAITING),
        Err(full) => reply.error(full.text()),
    }
    Ok(())
}

/// Takes an arrived element for a client, if it is still there.
pub(super) fn claim(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (owner, number) = (Owner::decode(from)?, from.count()?);
    from.end()?;
    try_again(owner, number, state, reply)
}

fn try_again(
    owner: Owner,
    number: u64,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let Some((since, bytes)) = state.waits.find(owner, number) else {
        reply.0.extend_from_slice(GONE);
        return Ok(());
    };
    let bytes = bytes.to_vec();
    let attempt = Attempt::decode(&mut Decoder(&bytes))?;
    if attempt.run(state, reply, &|state, key| has_turn(state, since, key)) {
        state.waits.leave(since);
    } else {
        state.waits.sign(since, state.version);
        reply.0.extend_from_slice(WAITING);
    }
    Ok(())
}

/// Clients leave; says how many were in line.
pub(super) fn withdraw(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let owner = Owner::decode(from)?;
    let start = *from;
    let mut left = 0;
    // Looked at as a whole before anything is done.
    for _ in 0..from.length()? {
        from.count()?;
    }
    from.end()?;
    let mut numbers = start;
    for _ in 0..numbers.length()? {
        let number = numbers.count()?;
        if let Some((since, _)) = state.waits.find(owner, number) {
            state.waits.leave(since);
            left += 1;
        }
    }
    reply.count(left);
    Ok(())
}

/// Removes all clients of a front, one of which has not claimed its element: the whole node is
/// taken for dead.
pub(super) fn depose(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let seen = decode_seen(from)?;
    from.end()?;
    let gone = match state.waits.sign_of(seen.owner, seen.number) {
        Some(version) if version == seen.version => state.waits.leave_all(seen.owner),
        _ => 0,
    };
    reply.count(gone);
    Ok(())
}

/// Looks for arrived elements and the clients that may take them. Not for clients: the answer is no
/// reply.
pub(super) fn look(
    from: &mut Decoder<'_>,
    state: &Reading<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let owner = Owner::decode(from)?;
    let (all, first) = (from.byte()? != 0, from.bytes()?);
    from.end()?;
    let waits: &Waits = state.waits;
    let mut look = Look { all: all.then(|| waits.numbers_of(owner)), ..Look::default() };
    for (at, key) in waits.stirred_from(first).enumerate() {
        if at == LOOK_KEYS_MAX {
            look.next = key.to_vec();
            break;
        }
        let Some((kind, count)) = elements(state.store, key) else {
            continue;
        };
        let mut other = None;
        waits.turns(key, kind, count, &mut |wait| {
            if wait.owner == owner {
                look.turns.push(wait.number);
            } else {
                other.get_or_insert(Seen {
                    owner: wait.owner,
                    number: wait.number,
                    version: wait.sign,
                });
            }
        });
        look.others.extend(other);
    }
    look.encode(&mut Encoder(reply.0));
    Ok(())
}
