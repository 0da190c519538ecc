//! Blocking commands: replicated execution of join, claim and leave.

use super::attempt::{Action, Attempt, parts};
use crate::{
    commands::{
        list,
        selection::{in_database, within},
        state::{ReadContext, WRONG_TYPE, WriteContext},
        zset,
    },
    encode::{Decoder, Encoder, Fault, Malformed},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{Database, Store, Version, collection::Header, collection::Kind},
    waits::{FrontId, Place, Queued, Wait, Waits},
};

/// Reply that makes a front block its client. No attempt replies this.
pub const WAITING: &[u8] = b"+WAITING\r\n";
/// Reply to a claim by a client that is not queued.
pub const GONE: &[u8] = b"+GONE\r\n";

/// Maximum number of keys that one poll examines.
const LOOK_KEYS_MAX: usize = 1024;

fn write_owner(op: Op, owner: FrontId, out: &mut Encoder<'_>) {
    out.byte(op as u8);
    owner.encode(out);
}

/// Encodes joining the queue. Returns `false` if `command` does not block.
#[must_use]
pub fn encode_await(owner: FrontId, number: u64, command: &[u8], out: &mut Encoder<'_>) -> bool {
    let Ok((_, attempt)) = parts(command) else {
        return false;
    };
    write_owner(Op::Await, owner, out);
    out.count(number);
    out.0.extend_from_slice(attempt);
    true
}

pub fn encode_claim(owner: FrontId, number: u64, out: &mut Encoder<'_>) {
    write_owner(Op::Claim, owner, out);
    out.count(number);
}

pub fn encode_withdraw(owner: FrontId, numbers: &[u64], out: &mut Encoder<'_>) {
    write_owner(Op::Withdraw, owner, out);
    out.length(numbers.len());
    for number in numbers {
        out.count(*number);
    }
}

/// Encodes the removal of all clients of a front that has left an element unclaimed.
pub fn encode_depose(seen: ForeignTurn, out: &mut Encoder<'_>) {
    write_owner(Op::Depose, seen.owner, out);
    out.count(seen.number).word(seen.version.slot).count(seen.version.index.into());
}

/// Encodes a poll for the clients of a front whose turn it is, from the place `from` on, as in an
/// earlier answer. With `all`, the answer also lists all queued clients of the front.
pub fn encode_look(owner: FrontId, all: bool, from: &[u8], out: &mut Encoder<'_>) {
    write_owner(Op::Look, owner, out);
    out.byte(u8::from(all)).bytes(from);
}

/// Client of another front whose turn it is, with the version of its last activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignTurn {
    pub owner: FrontId,
    /// Number assigned by the front.
    pub number: u64,
    /// Version at which the client joined the queue or last retried without success.
    pub version: Version,
}

/// Answer to a poll for clients whose turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollAnswer {
    /// Clients of the polling front whose turn it is.
    pub own_turns: Vec<u64>,
    /// Clients of other fronts whose turn it is.
    pub foreign_turns: Vec<ForeignTurn>,
    /// All queued clients of the polling front, in order, if requested.
    pub queued_clients: Option<Vec<u64>>,
    /// Place at which the next poll resumes, the number of a database and a key; empty at the end.
    pub next: Vec<u8>,
}

impl PollAnswer {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.length(self.own_turns.len());
        for number in &self.own_turns {
            out.count(*number);
        }
        out.length(self.foreign_turns.len());
        for seen in &self.foreign_turns {
            seen.owner.encode(out);
            out.count(seen.number).word(seen.version.slot).count(seen.version.index.into());
        }
        out.byte(u8::from(self.queued_clients.is_some()));
        if let Some(all) = &self.queued_clients {
            out.length(all.len());
            for number in all {
                out.count(*number);
            }
        }
        out.bytes(&self.next);
    }

    pub fn decode(answer: &[u8]) -> Result<Self, Malformed> {
        let mut from = Decoder(answer);
        let mut look = Self::default();
        for _ in 0..from.length()? {
            look.own_turns.push(from.count()?);
        }
        for _ in 0..from.length()? {
            look.foreign_turns.push(decode_foreign_turn(&mut from)?);
        }
        if from.byte()? != 0 {
            let mut all = Vec::new();
            for _ in 0..from.length()? {
                all.push(from.count()?);
            }
            look.queued_clients = Some(all);
        }
        look.next = from.bytes()?.to_vec();
        from.end()?;
        Ok(look)
    }
}

fn decode_foreign_turn(from: &mut Decoder<'_>) -> Result<ForeignTurn, Malformed> {
    let (owner, number) = (FrontId::decode(from)?, from.count()?);
    let slot = from.word()?;
    let index = u32::try_from(from.count()?).map_err(|_| Malformed)?;
    Ok(ForeignTurn { owner, number, version: Version { slot, index } })
}

/// Returns the type and number of elements of a key, if clients can wait for its type.
pub(crate) fn elements(store: &dyn Store, key: &[u8]) -> Option<(Kind, u64)> {
    let entry = store.get(Key::new(key).ok()?)?;
    if !matches!(entry.kind, Kind::List | Kind::Zset) {
        return None;
    }
    Some((entry.kind, Header::from_bytes(&entry.value)?.count))
}

/// Returns whether a client queued since `since` may pop from a key: the clients before it leave at
/// least one element.
fn may_pop(state: &WriteContext<'_>, since: Version, key: Key<'_>) -> bool {
    let found = elements(state.store, key.bytes());
    let place = (state.store.selected(), key.bytes());
    found.is_some_and(|(kind, count)| state.waits.may_pop(since, place, kind, count))
}

impl Attempt<'_> {
    /// Takes elements from the first key where it is the client's turn. Returns `false` and writes
    /// nothing if there is none.
    fn run(
        &self,
        state: &mut WriteContext<'_>,
        reply: &mut Reply<'_>,
        may: &dyn Fn(&WriteContext<'_>, Key<'_>) -> bool,
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

/// Makes one attempt without blocking, as between MULTI and EXEC.
pub(super) fn attempt_once(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.word()?;
    let attempt = Attempt::decode(from)?;
    if !attempt.run(state, reply, &|_, _| true) {
        attempt.write_empty_reply(reply);
    }
    Ok(())
}

/// Makes an attempt at the end of the queue. Without elements, the client joins the queue.
pub(super) fn wait(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (owner, number) = (FrontId::decode(from)?, from.count()?);
    let wait = Wait::new((owner, number), state.version, state.store.selected(), from.0)?;
    let attempt = Attempt::decode(from)?;
    state.waits.begin_life(owner);
    // Repeated by a front that does not know the outcome: the client keeps its position.
    if state.waits.find(owner, number).is_some() {
        return retry_or_queue(owner, number, state, reply);
    }
    let since = state.version;
    if attempt.run(state, reply, &|state, key| may_pop(state, since, key)) {
        return Ok(());
    }
    match state.waits.join_queue(since, wait) {
        Ok(()) => reply.0.extend_from_slice(WAITING),
        Err(full) => reply.error(full.text()),
    }
    Ok(())
}

/// Takes elements for a queued client, if they still exist.
pub(super) fn claim(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (owner, number) = (FrontId::decode(from)?, from.count()?);
    from.end()?;
    retry_or_queue(owner, number, state, reply)
}

fn retry_or_queue(
    owner: FrontId,
    number: u64,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let Some(Queued { since, database, attempt }) = state.waits.find(owner, number) else {
        reply.0.extend_from_slice(GONE);
        return Ok(());
    };
    let bytes = attempt.to_vec();
    let attempt = Attempt::decode(&mut Decoder(&bytes))?;
    // The client waits in the database that it had selected, whatever database this command names.
    let taken = within(state, database, |state| {
        attempt.run(state, reply, &|state, key| may_pop(state, since, key))
    });
    if taken {
        state.waits.remove_client(since);
    } else {
        state.waits.record_activity(since, state.version);
        reply.0.extend_from_slice(WAITING);
    }
    Ok(())
}

/// Removes clients from the queue and replies with their number.
pub(super) fn withdraw(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let owner = FrontId::decode(from)?;
    let start = *from;
    let mut left = 0;
    // Decodes the whole command before it has an effect.
    for _ in 0..from.length()? {
        from.count()?;
    }
    from.end()?;
    let mut numbers = start;
    for _ in 0..numbers.length()? {
        let number = numbers.count()?;
        if let Some(queued) = state.waits.find(owner, number) {
            let since = queued.since;
            state.waits.remove_client(since);
            left += 1;
        }
    }
    reply.count(left);
    Ok(())
}

/// Removes all clients of a front that left an element unclaimed, as its node is presumed dead.
pub(super) fn depose(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let seen = decode_foreign_turn(from)?;
    from.end()?;
    let gone = match state.waits.last_activity_of(seen.owner, seen.number) {
        Some(version) if version == seen.version => state.waits.remove_front(seen.owner),
        _ => 0,
    };
    reply.count(gone);
    Ok(())
}

/// Decodes the place at which a poll resumes. An answer of this process contained it.
fn decode_place(bytes: &[u8]) -> Place {
    let place = bytes.split_first().and_then(|(number, key)| {
        let database = Database::new((*number).into())?;
        Some((database, key.into()))
    });
    place.unwrap_or_default()
}

/// Finds the keys with elements and the clients whose turn it is. The answer has an internal format
/// that clients never see.
pub(super) fn find_turns(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let owner = FrontId::decode(from)?;
    let (all, first) = (from.byte()? != 0, decode_place(from.bytes()?));
    from.end()?;
    let waits: &Waits = state.waits;
    let mut look = PollAnswer {
        queued_clients: all.then(|| waits.client_numbers(owner)),
        ..PollAnswer::default()
    };
    for (at, (database, key)) in waits.stirred_from(first).enumerate() {
        if at == LOOK_KEYS_MAX {
            look.next = [&[database.number()], key].concat();
            break;
        }
        let found = in_database(state.store, database, || elements(state.store, key));
        let Some((kind, count)) = found else {
            continue;
        };
        let mut other = None;
        waits.visit_turns((database, key), kind, count, &mut |wait| {
            if wait.front == owner {
                look.own_turns.push(wait.number);
            } else {
                other.get_or_insert(ForeignTurn {
                    owner: wait.front,
                    number: wait.number,
                    version: wait.last_activity,
                });
            }
        });
        look.foreign_turns.extend(other);
    }
    look.encode(&mut Encoder(reply.0));
    Ok(())
}
