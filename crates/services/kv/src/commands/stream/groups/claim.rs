//! XCLAIM and XAUTOCLAIM: a consumer takes over pending entries of others.
//!
//! A command never claims what its reply lacks: once there are enough entries, it stops.

use std::ops::ControlFlow;

use super::{
    super::{
        entries::write_entry,
        id::{self, reply_id},
        rows,
    },
    ENOUGH_BYTES, ENTRIES_MAX,
    change::Change,
    clock, fits,
    pending::no_group,
    read_ids,
    rows::Pending,
    text, visits_of_bytes, write_ids,
};
use crate::{
    command::{Refusal, Request, SYNTAX},
    commands::{
        budget::CHANGED_ROW,
        state::{TOO_LARGE, WriteContext, WrongType},
    },
    encode::{Decoder, Encoder, Fault, Malformed},
    key::Key,
    op::Op,
    resp::{integer::parse_integer, reply::Reply},
    store::{Store, collection::Kind, stream::EntryId},
};

/// Number of pending entries that XAUTOCLAIM examines for each one that it may claim.
const ATTEMPTS: u64 = 10;
/// Minimum number of pending entries read at a time.
const CHUNK: u64 = 64;
mod flag {
    pub(super) const JUST_ID: u8 = 1;
    pub(super) const FORCE: u8 = 2;
    /// A new time of delivery follows.
    pub(super) const TIME: u8 = 4;
    /// A time since delivery follows.
    pub(super) const IDLE: u8 = 8;
    /// A new number of deliveries follows.
    pub(super) const RETRIES: u8 = 16;
    pub(super) const LAST_ID: u8 = 32;
    pub(super) const ALL: u8 = 63;
}

/// Returns the minimum idle time of a request in milliseconds.
fn min_idle(r: &Request<'_>, error: &'static str) -> Result<u64, Refusal> {
    let ms = parse_integer(r.at(3)).ok_or(error)?;
    Ok(u64::try_from(ms).unwrap_or(0))
}

/// Options of XCLAIM.
#[derive(Default)]
struct Options {
    just_id: bool,
    force: bool,
    /// Unix time in milliseconds at which the entries are said to have been delivered.
    time: Option<i64>,
    idle: Option<i64>,
    retries: Option<u64>,
    last: Option<EntryId>,
}

impl Options {
    fn parse(r: &Request<'_>, mut at: usize) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let integer =
            |at: usize, error: &'static str| parse_integer(r.at(at)).ok_or(Refusal::from(error));
        while at < r.arguments.len() {
            let more = at + 1 < r.arguments.len();
            if r.is(at, "force") {
                options.force = true;
            } else if r.is(at, "justid") {
                options.just_id = true;
            } else if r.is(at, "idle") && more {
                at += 1;
                options.time = None;
                options.idle = Some(integer(at, "ERR Invalid IDLE option argument for XCLAIM")?);
            } else if r.is(at, "time") && more {
                at += 1;
                options.idle = None;
                options.time = Some(integer(at, "ERR Invalid TIME option argument for XCLAIM")?);
            } else if r.is(at, "retrycount") && more {
                at += 1;
                let count = integer(at, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                options.retries = u64::try_from(count).ok();
            } else if r.is(at, "lastid") && more {
                at += 1;
                options.last = Some(id::parse(r.at(at), 0)?);
            } else {
                let option = text(r.at(at));
                let error = format!("ERR Unrecognized XCLAIM option '{option}'");
                return Err(Refusal::Text(error.into()));
            }
            at += 1;
        }
        Ok(options)
    }

    fn encode(&self, out: &mut Encoder<'_>) {
        let flags = [
            (self.just_id, flag::JUST_ID),
            (self.force, flag::FORCE),
            (self.time.is_some(), flag::TIME),
            (self.idle.is_some(), flag::IDLE),
            (self.retries.is_some(), flag::RETRIES),
            (self.last.is_some(), flag::LAST_ID),
        ];
        out.byte(flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag));
        for number in [self.time, self.idle].into_iter().flatten() {
            out.signed(number);
        }
        if let Some(retries) = self.retries {
            out.count(retries);
        }
        if let Some(last) = self.last {
            id::encode(last, out);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let flags = from.byte()?;
        if flags > flag::ALL {
            return Err(Malformed);
        }
        let has = |flag| flags & flag != 0;
        Ok(Self {
            just_id: has(flag::JUST_ID),
            force: has(flag::FORCE),
            time: if has(flag::TIME) { Some(from.signed()?) } else { None },
            idle: if has(flag::IDLE) { Some(from.signed()?) } else { None },
            retries: if has(flag::RETRIES) { Some(from.count()?) } else { None },
            last: if has(flag::LAST_ID) { Some(id::decode(from)?) } else { None },
        })
    }

    /// Returns the time of delivery: the one given, unless it makes no sense.
    fn delivered_ms(&self, now_ms: u64) -> u64 {
        let now = now_ms.cast_signed();
        let given = self.idle.map_or(self.time, |idle| now.checked_sub(idle));
        let given = given.filter(|given| (0..=now).contains(given));
        given.map_or(now_ms, i64::cast_unsigned)
    }
}

/// Encodes XCLAIM as the key, the clock, group, consumer, idle time, ids and options.
pub(super) fn encode_xclaim(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let idle_ms = min_idle(r, "ERR Invalid min-idle-time argument for XCLAIM")?;
    // What follows the last id is an option.
    let ids: Vec<EntryId> =
        r.arguments.from(4).iter().map_while(|text| id::parse(text, 0).ok()).collect();
    let options = Options::parse(r, 4 + ids.len())?;
    write_head(Op::XClaim, idle_ms, r, out)?;
    write_ids(&ids, out);
    options.encode(out);
    Ok(())
}

/// Encodes XAUTOCLAIM as the key, the clock, group, consumer, idle time, first id, count and
/// JUSTID.
pub(super) fn encode_xautoclaim(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    const TOO_FEW: &str = "ERR COUNT must be > 0";
    let idle_ms = min_idle(r, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let (start, mut count, mut just_id) = (id::parse_start(r.at(4))?, 100, false);
    let mut at = 5;
    while at < r.arguments.len() {
        if r.is(at, "count") && at + 1 < r.arguments.len() {
            count = parse_integer(r.at(at + 1)).ok_or(TOO_FEW)?;
            // Redis' maximum, above which it says the same.
            if !(1..=i64::MAX / 16).contains(&count) {
                return Err(TOO_FEW.into());
            }
            at += 2;
        } else if r.is(at, "justid") {
            just_id = true;
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    write_head(Op::XAutoClaim, idle_ms, r, out)?;
    id::encode(start, out);
    out.count(count.cast_unsigned()).byte(u8::from(just_id));
    Ok(())
}

fn write_head(op: Op, idle_ms: u64, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(op as u8).bytes(r.at(0)).word(r.wall_ms);
    out.bytes(r.field(1)?).bytes(r.field(2)?).count(idle_ms);
    Ok(())
}

/// Fields common to both commands.
struct ClaimArguments<'a> {
    key: Key<'a>,
    now_ms: u64,
    group: &'a [u8],
    consumer: &'a [u8],
    idle_ms: u64,
}

impl<'a> ClaimArguments<'a> {
    fn decode(from: &mut Decoder<'a>, group_ms: u64) -> Result<Self, Fault> {
        let (key, now_ms) = (from.key()?, clock(from, group_ms)?);
        let (group, consumer, idle_ms) = (from.field()?, from.field()?, from.count()?);
        Ok(Self { key, now_ms, group, consumer, idle_ms })
    }

    /// Opens the group for the consumer. Replies with an error if it does not exist.
    fn open<'w, 'a2>(
        &self,
        state: &'w mut WriteContext<'a2>,
        reply: &mut Reply<'_>,
    ) -> Option<Change<'w, 'a2, 'a>>
    where
        'a: 'w,
    {
        let stream = match rows::Change::find(state, self.key, reply) {
            Err(WrongType) => return None,
            Ok(stream) => stream,
        };
        let change = stream.and_then(|stream| Change::open(stream, self.group));
        let Some(mut change) = change else {
            reply.error(&no_group(self.key, self.group));
            return None;
        };
        change.set_acting(self.consumer, self.now_ms);
        Some(change)
    }

    fn is_idle(&self, pending: Pending) -> bool {
        self.now_ms.saturating_sub(pending.delivered_ms) >= self.idle_ms
    }
}

/// Entries claimed so far, as the reply has them.
#[derive(Default)]
struct Claimed {
    count: usize,
    bytes: Vec<u8>,
    /// Total size of the entries examined.
    examined_bytes: usize,
    /// Ids of entries that no longer exist, removed from the pending ones.
    deleted: Vec<EntryId>,
    is_full: bool,
}

/// New state of claimed entries.
struct Claim {
    just_id: bool,
    delivered_ms: u64,
    /// New number of deliveries; `None` adds one, unless only ids are wanted.
    retries: Option<u64>,
}

impl Claimed {
    /// Returns whether an entry exists. If not, removes it from the pending ones.
    fn exists(
        &mut self,
        change: &mut Change<'_, '_, '_>,
        id: EntryId,
        old: Option<Pending>,
    ) -> bool {
        let bytes = change.stream.view().entry(id).map(|fields| fields.len());
        if let (None, Some(old)) = (bytes, old) {
            change.release(id, old);
            self.deleted.push(id);
        }
        self.examined_bytes = self.examined_bytes.saturating_add(bytes.unwrap_or(0));
        bytes.is_some()
    }

    /// Claims an existing entry, of which `old` is the pending state, if it fits.
    fn claim(
        &mut self,
        change: &mut Change<'_, '_, '_>,
        (id, old): (EntryId, Option<Pending>),
        claim: &Claim,
    ) {
        let start = self.bytes.len();
        let reply = &mut Reply(&mut self.bytes);
        match (claim.just_id, change.stream.view().entry(id)) {
            (false, Some(fields)) => write_entry(id, &fields, reply),
            _ => reply_id(id, reply),
        }
        if !fits(start, self.bytes.len()) {
            self.bytes.truncate(start);
            self.is_full = true;
            return;
        }
        self.count += 1;
        let before = old.map_or(1, |old| old.deliveries);
        let more = before.saturating_add(u64::from(!claim.just_id));
        change.assign(id, old, (claim.delivered_ms, claim.retries.unwrap_or(more)));
    }

    const fn wants_more(&self) -> bool {
        !self.is_full && self.examined_bytes <= ENOUGH_BYTES
    }

    /// Writes the changes. Does nothing but reply with an error if the first entry did not fit.
    fn close(&self, mut change: Change<'_, '_, '_>, reply: &mut Reply<'_>) -> bool {
        if self.is_full && self.count == 0 && self.deleted.is_empty() {
            reply.error(TOO_LARGE);
            return false;
        }
        if self.count > 0 {
            change.set_active();
        }
        change.close();
        true
    }

    fn write(&self, reply: &mut Reply<'_>) {
        reply.array(self.count);
        reply.0.extend_from_slice(&self.bytes);
    }
}

/// Executes XCLAIM.
pub(super) fn claim(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let head = ClaimArguments::decode(from, state.store.time())?;
    let (ids, options) = (read_ids(from)?, Options::decode(from)?);
    from.end()?;
    let Some(mut change) = head.open(state, reply) else {
        return Ok(());
    };
    let how = Claim {
        just_id: options.just_id,
        delivered_ms: options.delivered_ms(head.now_ms),
        retries: options.retries,
    };
    let mut claimed = Claimed::default();
    for id in ids {
        let old = change.pending(id);
        let may = old.map_or(options.force, |old| head.is_idle(old));
        if claimed.exists(&mut change, id, old) && may {
            claimed.claim(&mut change, (id, old), &how);
        }
        if !claimed.wants_more() {
            break;
        }
    }
    if let Some(last) = options.last {
        change.group.last = change.group.last.max(last);
    }
    if claimed.close(change, reply) {
        claimed.write(reply);
    }
    Ok(())
}

/// Visits of claiming an entry, which may have had a consumer of its own.
const CLAIMED: u64 = 6 + 7 * CHANGED_ROW;

/// Returns an upper bound on the visits of XCLAIM.
pub(super) fn visits(from: &mut Decoder<'_>, store: &dyn Store) -> Result<u64, Fault> {
    let head = ClaimArguments::decode(from, 0)?;
    let ids = read_ids(from)?.count() as u64;
    let view = rows::View::at(store, head.key);
    Ok(view.map_or(0, |view| {
        let bytes = visits_of_bytes(view.header.bytes);
        ids.min(view.header.rows(Kind::Stream)).saturating_mul(CLAIMED).saturating_add(bytes)
    }))
}

/// Returns an upper bound on the visits of XAUTOCLAIM.
pub(super) fn visits_idle(from: &mut Decoder<'_>, store: &dyn Store) -> Result<u64, Fault> {
    let head = ClaimArguments::decode(from, 0)?;
    id::decode(from)?;
    let count = from.count()?.min(ENTRIES_MAX);
    let view = rows::View::at(store, head.key);
    let found = view.and_then(|view| Some((view.group(head.group)?, view.header.bytes)));
    Ok(found.map_or(0, |(group, bytes)| {
        let examined = group.pending.min(count * ATTEMPTS);
        let claimed = group.pending.min(count);
        examined * 4 + CHUNK + claimed * CLAIMED + visits_of_bytes(bytes)
    }))
}

/// Executes XAUTOCLAIM.
pub(super) fn claim_idle(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let head = ClaimArguments::decode(from, state.store.time())?;
    let (start, count, just_id) = (id::decode(from)?, from.count()?, from.byte()? != 0);
    from.end()?;
    let Some(mut change) = head.open(state, reply) else {
        return Ok(());
    };
    let how = Claim { just_id, delivered_ms: head.now_ms, retries: None };
    let mut claimed = Claimed::default();
    let next = claim_from(start, count.min(ENTRIES_MAX), &head, &how, &mut change, &mut claimed);
    if claimed.close(change, reply) {
        reply.array(3);
        reply_id(next.unwrap_or(EntryId::MIN), reply);
        claimed.write(reply);
        reply.array(claimed.deleted.len());
        claimed.deleted.iter().for_each(|id| reply_id(*id, reply));
    }
    Ok(())
}

/// Claims up to `left` idle entries from an id on, and returns the id at which to continue; `None`
/// at the end. Deleted entries count, too.
fn claim_from(
    start: EntryId,
    mut left: u64,
    head: &ClaimArguments<'_>,
    how: &Claim,
    change: &mut Change<'_, '_, '_>,
    claimed: &mut Claimed,
) -> Option<EntryId> {
    let mut attempts = left * ATTEMPTS;
    let mut next = Some(start.max(change.group.first));
    while let Some(from) = next.filter(|_| left > 0 && attempts > 0) {
        let (found, after) = chunk(change, from, attempts.min(left.max(CHUNK)));
        next = after;
        for (id, old) in found {
            if left == 0 || !claimed.wants_more() {
                return Some(id);
            }
            attempts = attempts.saturating_sub(1);
            if !claimed.exists(change, id, Some(old)) {
                left -= 1;
            } else if head.is_idle(old) {
                claimed.claim(change, (id, Some(old)), how);
                if claimed.is_full {
                    return Some(id);
                }
                left -= 1;
            }
        }
    }
    next
}

/// Returns up to `most` pending entries from an id on, and the id of the next one.
fn chunk(
    change: &Change<'_, '_, '_>,
    from: EntryId,
    most: u64,
) -> (Vec<(EntryId, Pending)>, Option<EntryId>) {
    let (mut found, mut next) = (Vec::new(), None);
    let (view, group) = (change.stream.view(), change.group.number);
    view.each_pending(group, (from, EntryId::MAX), false, &mut |id, pending| {
        if found.len() as u64 >= most {
            next = Some(id);
            return ControlFlow::Break(());
        }
        found.push((id, pending));
        ControlFlow::Continue(())
    });
    (found, next)
}
