//! XREADGROUP: delivers new entries to a consumer, or repeats those that it has not acknowledged.
//!
//! A command is one attempt: the front lets a client block by repeating it. A command never
//! delivers what its reply lacks: once there are enough, it stops, and the next command continues.

use std::ops::ControlFlow;

use super::{
    super::{
        entries::write_entry,
        id::{self, reply_id},
        read::{Options, limit},
        rows::{self, View},
    },
    ENOUGH_BYTES, ENTRIES_MAX,
    change::Change,
    clock, fits,
    lag::Positions,
    rows::{Group, Pending},
    text, visits_of_bytes,
};
use crate::{
    command::{Refusal, Request},
    commands::{
        budget::CHANGED_ROW,
        state::{TOO_LARGE, WriteContext, WrongType},
    },
    encode::{Decoder, Encoder, Fault, Keys},
    key::{FIELD_BYTES_MAX, FIELD_TOO_LONG, Key},
    op::Op,
    resp::reply::Reply,
    store::{Store, stream::EntryId},
};

/// Number of entries up to which the bound on the visits needs no walk.
const FEW_ENTRIES: u64 = 1000;
const MEANINGLESS: &str = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.";

/// Encodes XREADGROUP. The time to block and the clock come first, in eight bytes each, so that the
/// front can read the one and renew the other.
pub(super) fn encode(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let options = Options::parse(r, true)?;
    let (group, consumer) = options.group.ok_or("ERR Missing GROUP option for XREADGROUP")?;
    if group.len().max(consumer.len()) > FIELD_BYTES_MAX {
        return Err(FIELD_TOO_LONG.into());
    }
    out.byte(Op::XReadGroup as u8).word(options.block).word(r.wall_ms);
    out.bytes(group).bytes(consumer).byte(u8::from(options.noack));
    out.count(options.count).keys(&options.keys);
    for at in options.ids..r.arguments.len() {
        let after = match r.at(at) {
            b">" => None,
            b"$" => return Err(MEANINGLESS.into()),
            text => Some(id::parse(text, 0)?),
        };
        out.byte(u8::from(after.is_none()));
        id::encode(after.unwrap_or_default(), out);
    }
    Ok(())
}

/// Decoded command.
struct Query<'a> {
    now_ms: u64,
    group: &'a [u8],
    consumer: &'a [u8],
    noack: bool,
    count: u64,
    keys: Keys<'a>,
    ids: Decoder<'a>,
}

impl<'a> Query<'a> {
    fn decode(from: &mut Decoder<'a>, group_ms: u64) -> Result<Self, Fault> {
        from.word()?;
        let now_ms = clock(from, group_ms)?;
        let (group, consumer, noack) = (from.field()?, from.field()?, from.byte()? != 0);
        let count = limit(from.count()?).map_or(ENTRIES_MAX, |count| count.min(ENTRIES_MAX));
        let keys = from.keys()?;
        let ids = *from;
        for _ in keys {
            position(from)?;
        }
        from.end()?;
        if keys.is_empty() {
            return Err(Fault::Malformed);
        }
        Ok(Self { now_ms, group, consumer, noack, count, keys, ids })
    }

    /// Returns the keys, each with the id after which the consumer's own entries are wanted; `None`
    /// for new entries.
    fn streams(&self) -> impl Iterator<Item = (Key<'a>, Option<EntryId>)> + use<'a> {
        let mut ids = self.ids;
        self.keys.map_while(move |key| Some((key, position(&mut ids).ok()?)))
    }
}

fn position(from: &mut Decoder<'_>) -> Result<Option<EntryId>, Fault> {
    match (from.byte()?, id::decode(from)?) {
        (0, id) => Ok(Some(id)),
        (1, _) => Ok(None),
        _ => Err(Fault::Malformed),
    }
}

/// Returns an upper bound on the visits of a command beyond those of this function.
pub(super) fn visits(from: &mut Decoder<'_>, store: &dyn Store) -> Result<u64, Fault> {
    let query = Query::decode(from, 0)?;
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for (key, after) in query.streams() {
        let left = query.count.min(ENTRIES_MAX.saturating_sub(entries));
        let Ok(Some(view)) = View::find(store, key, &mut Reply(&mut Vec::new())) else {
            continue;
        };
        let Some(group) = view.group(query.group) else {
            continue;
        };
        let most = match after {
            Some(_) => left.min(group.pending),
            None if left <= FEW_ENTRIES => left.min(view.header.count),
            None => undelivered(&view, &group, left),
        };
        entries = entries.saturating_add(most);
        bytes = bytes.saturating_add(view.header.bytes);
    }
    // Each entry may have been pending for another consumer.
    let visits = entries.saturating_mul(3 + 5 * CHANGED_ROW);
    Ok(visits.saturating_add(visits_of_bytes(bytes)))
}

/// Counts the entries that a group has not delivered, up to `most` or until they are enough.
fn undelivered(view: &View<'_>, group: &Group, most: u64) -> u64 {
    let (mut count, mut bytes) = (0, 0);
    if let Some(next) = group.last.next().filter(|_| most > 0) {
        view.entries((next, EntryId::MAX), false, &mut |_, fields| {
            count += 1;
            bytes += fields.len();
            match count < most && bytes < ENOUGH_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }
    count
}

/// Reply being built, within its limits.
struct ReadReply {
    streams: usize,
    bytes: Vec<u8>,
    /// Number of entries that the reply may still get.
    left: u64,
    /// Set once an entry did not fit.
    is_full: bool,
}

impl ReadReply {
    fn is_full(&self) -> bool {
        self.is_full || self.left == 0 || self.bytes.len() > ENOUGH_BYTES
    }

    /// Adds a stream with its entries.
    fn add(&mut self, key: Key<'_>, entries: Entries) {
        self.streams += 1;
        self.left = self.left.saturating_sub(entries.count);
        self.is_full |= entries.is_full;
        let reply = &mut Reply(&mut self.bytes);
        reply.bulk(key.bytes());
        reply.array(usize::try_from(entries.count).unwrap_or(usize::MAX));
        self.bytes.extend_from_slice(&entries.bytes);
    }

    /// Begins the entries of a stream, of which the command wants up to `most`.
    fn entries(&self, most: u64) -> Entries {
        let before = if self.left < ENTRIES_MAX { self.bytes.len() } else { 0 };
        let most = most.min(self.left);
        Entries { count: 0, bytes: Vec::new(), most, earlier_bytes: before, is_full: false }
    }
}

/// Entries of one stream in a reply.
struct Entries {
    count: u64,
    bytes: Vec<u8>,
    most: u64,
    /// Size of the reply so far, if it has entries.
    earlier_bytes: usize,
    is_full: bool,
}

impl Entries {
    /// Adds an entry and returns whether it fits.
    fn add(&mut self, write: impl FnOnce(&mut Reply<'_>)) -> bool {
        let start = self.bytes.len();
        write(&mut Reply(&mut self.bytes));
        if !fits(self.earlier_bytes + start, self.earlier_bytes + self.bytes.len()) {
            self.bytes.truncate(start);
            self.is_full = true;
            return false;
        }
        self.count += 1;
        true
    }

    const fn wants_more(&self) -> bool {
        self.count < self.most && !self.is_full
    }
}

/// Executes XREADGROUP.
pub(super) fn read(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let query = Query::decode(from, state.store.time())?;
    if !all_exist(&query, state.store, reply) {
        return Ok(());
    }
    let mut answer = ReadReply { streams: 0, bytes: Vec::new(), left: ENTRIES_MAX, is_full: false };
    for (key, after) in query.streams() {
        let stream = rows::Change::find(&mut *state, key, reply);
        let Ok(Some(stream)) = stream else {
            continue;
        };
        let Some(mut change) = Change::open(stream, query.group) else {
            continue;
        };
        change.set_acting(query.consumer, query.now_ms);
        // A list of the consumer's own entries that is empty means that there are no more of them,
        // so a stream for which there is no room is left out.
        if !answer.is_full() {
            let mut entries = answer.entries(query.count);
            match after {
                Some(after) => repeat(&mut change, after, query.now_ms, &mut entries),
                None => deliver(&mut change, &query, &mut entries),
            }
            if entries.count > 0 || (after.is_some() && !entries.is_full) {
                answer.add(key, entries);
            } else {
                answer.is_full |= entries.is_full;
            }
        }
        change.close();
    }
    match (answer.streams, answer.is_full) {
        (0, true) => reply.error(TOO_LARGE),
        (0, false) => reply.null_array(),
        (streams, _) => {
            reply.nested_map(streams);
            reply.0.extend_from_slice(&answer.bytes);
        }
    }
    Ok(())
}

/// Checks that all streams have the group. If not, replies with an error.
fn all_exist(query: &Query<'_>, store: &dyn Store, reply: &mut Reply<'_>) -> bool {
    for (key, _) in query.streams() {
        let view = match View::find(store, key, reply) {
            Err(WrongType) => return false,
            Ok(view) => view,
        };
        if view.is_none_or(|view| view.group(query.group).is_none()) {
            let (key, group) = (text(key.bytes()), text(query.group));
            reply.error(&format!(
                "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
            ));
            return false;
        }
    }
    true
}

/// Delivers entries that the group has not delivered yet.
fn deliver(change: &mut Change<'_, '_, '_>, query: &Query<'_>, entries: &mut Entries) {
    let Some(next) = change.group.last.next() else {
        return;
    };
    let mut ids = Vec::new();
    let view = change.stream.view();
    view.entries((next, EntryId::MAX), false, &mut |id, fields| {
        if !entries.add(|reply| write_entry(id, fields, reply)) {
            return ControlFlow::Break(());
        }
        ids.push(id);
        match entries.wants_more() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    let Some(last) = ids.last() else {
        return;
    };
    let positions = Positions::of(&view);
    for id in &ids {
        change.group.read = positions.advance(change.group.read, *id);
    }
    change.group.last = *last;
    if query.noack {
        return;
    }
    for id in ids {
        // SETID may have moved the group back, so that the entry is pending already.
        let old = change.pending(id);
        change.assign(id, old, (query.now_ms, 1));
    }
    change.set_active();
}

/// Repeats entries that are pending for the consumer and follow `after`.
fn repeat(change: &mut Change<'_, '_, '_>, after: EntryId, now_ms: u64, entries: &mut Entries) {
    let (Some(consumer), Some(from)) = (change.consumer(), after.next()) else {
        return;
    };
    let (view, group) = (change.stream.view(), change.group.number);
    let mut found: Vec<(EntryId, Pending)> = Vec::new();
    let range = (from.max(consumer.first), EntryId::MAX);
    view.each_owned((group, consumer.number), range, &mut |id| {
        let fits = match (view.entry(id), view.pending(group, id)) {
            (Some(fields), Some(pending)) => {
                let fits = entries.add(|reply| write_entry(id, &fields, reply));
                if fits {
                    found.push((id, pending));
                }
                fits
            }
            // The entry was removed from the stream.
            _ => entries.add(|reply| {
                reply.array(2);
                reply_id(id, reply);
                reply.null_array();
            }),
        };
        match fits && entries.wants_more() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    for (id, old) in found {
        let deliveries = old.deliveries.saturating_add(1);
        change.assign(id, Some(old), (now_ms, deliveries));
    }
}
