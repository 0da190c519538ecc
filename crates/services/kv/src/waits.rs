//! Replicated queue of blocked clients and the keys that they wait for, in log order.
//!
//! The queue is replicated state, in memory on every node. A store on disk saves it in the metadata
//! of its commits, and snapshots contain it after the keys. `docs/decisions/0023` has the reasons.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quorate_replica::service::{MetaChange, Metadata};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    commands::waiting::attempt::Attempt,
    encode::{Decoder, Encoder, Fault, Malformed},
    store::{
        collection::Kind,
        places::{Database, Version},
    },
};

/// Limit on blocked clients in the group, and on the size of their attempts.
const LIMIT: Share = Share { count: 65_536, bytes: 64 << 20 };
/// Limit on blocked clients per node, and on the size of their attempts.
const NODE_LIMIT: Share = Share { count: 16_384, bytes: 16 << 20 };
/// Approximate memory of a wait besides its attempt.
const WAIT_BYTES: usize = 256;
const KEY_BYTES: usize = 384;

/// Prefix of the metadata keys of waits, which the replica does not use.
const META: &[u8] = b"kv.wait.";

/// [db-4] Bit of the first byte of an encoded wait's attempt that makes it the number of its
/// database. The kinds of attempts are below it.
const IN_DATABASE: u8 = 0x80;

/// Ready keys that each commit checks, to forget those without elements.
const CHECKED_PER_COMMIT: usize = 16;

/// One incarnation of a front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrontId {
    pub node: u32,
    /// Number of the incarnation, different for each start of the process.
    pub incarnation: u64,
}

impl FrontId {
    pub fn encode(self, out: &mut Encoder<'_>) {
        out.count(self.node.into()).word(self.incarnation);
    }

    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let node = u32::try_from(from.count()?).map_err(|_| Malformed)?;
        Ok(Self { node, incarnation: from.word()? })
    }

    /// Returns a lower bound of all owners on a node.
    const fn first(node: u32) -> Self {
        Self { node, incarnation: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Front of the client.
    pub front: FrontId,
    /// Number assigned by the front.
    pub number: u64,
    /// Version at which the client joined the queue or last retried in vain.
    pub last_activity: Version,
    /// Database of the keys.
    pub database: Database,
    /// Encoded attempt, shared with snapshots in progress.
    attempt: Arc<[u8]>,
    kind: Kind,
    elements_wanted: u64,
    keys: usize,
}

impl Wait {
    /// Creates the queue entry of a client. Fails if the encoded attempt is invalid.
    pub fn new(
        (owner, number): (FrontId, u64),
        sign: Version,
        database: Database,
        attempt: &[u8],
    ) -> Result<Self, Fault> {
        let read = Attempt::decode(&mut Decoder(attempt))?;
        Ok(Self {
            front: owner,
            number,
            last_activity: sign,
            database,
            attempt: attempt.into(),
            kind: read.kind(),
            elements_wanted: read.elements_wanted(),
            keys: read.keys.len(),
        })
    }

    /// Encodes the entry for metadata and snapshots.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Encoder(&mut bytes);
        self.front.encode(&mut out);
        out.count(self.number).word(self.last_activity.slot).count(self.last_activity.index.into());
        if self.database != Database::ZERO {
            out.byte(IN_DATABASE | self.database.number());
        }
        bytes.extend_from_slice(&self.attempt);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let mut from = Decoder(bytes);
        let (owner, number) = (FrontId::decode(&mut from)?, from.count()?);
        let slot = from.word()?;
        let index = u32::try_from(from.count()?).map_err(|_| Malformed)?;
        let mut database = Database::ZERO;
        if let Some((first, rest)) = from.0.split_first()
            && first & IN_DATABASE != 0
        {
            let named = Database::new((first & !IN_DATABASE).into());
            database = named.filter(|named| *named != Database::ZERO).ok_or(Malformed)?;
            from.0 = rest;
        }
        Self::new((owner, number), Version { slot, index }, database, from.0)
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let attempt = Attempt::decode(&mut Decoder(&self.attempt)).ok();
        attempt.into_iter().flat_map(|attempt| attempt.keys).map(crate::key::Key::bytes)
    }

    /// Returns the keys that the client waits for, as places in [`Waits`].
    fn places(&self) -> impl Iterator<Item = Place> {
        self.keys().map(|key| (self.database, key.into()))
    }

    fn share(&self) -> Share {
        // Queues and ready keys contain the keys too, so these count three times.
        Share { count: 1, bytes: WAIT_BYTES + 3 * self.attempt.len() + KEY_BYTES * self.keys }
    }
}

/// Number and total size of waits, as a limit or as usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    count: usize,
    bytes: usize,
}

impl Share {
    const fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, bytes: self.bytes.saturating_add(other.bytes) }
    }

    const fn minus(self, other: Self) -> Self {
        Self { count: self.count - other.count, bytes: self.bytes - other.bytes }
    }

    const fn fits(self, limit: Self) -> bool {
        self.count <= limit.count && self.bytes <= limit.bytes
    }
}

/// Error for a client that cannot join the queue because this limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    Node,
    Group,
}

impl QueueFull {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Node => {
                "BUSY not executed: 16384 clients may wait at a node, for keys of 16 MiB together; use another node or try later"
            }
            Self::Group => {
                "BUSY not executed: 65536 clients may wait in a cluster, for keys of 64 MiB together; try later"
            }
        }
    }
}

/// Key with its database.
pub type Place = (Database, Box<[u8]>);

/// Client in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Queued<'a> {
    /// Version at which the client joined.
    pub since: Version,
    pub database: Database,
    /// Encoded attempt.
    pub attempt: &'a [u8],
}

#[derive(Debug, Default)]
pub struct Waits {
    /// Waits by the version of the command that joined the queue.
    waits: BTreeMap<Version, Wait>,
    numbers: BTreeMap<(FrontId, u64), Version>,
    /// Clients by key, for each database.
    lines: [BTreeMap<Box<[u8]>, BTreeSet<Version>>; Database::COUNT],
    shares: BTreeMap<FrontId, Share>,
    total_usage: Share,
    /// Waits changed since the last commit.
    changed: BTreeSet<Version>,
    /// Keys with blocked clients and perhaps elements. A hint, not part of the state.
    ready_keys: BTreeSet<Place>,
    /// Ready key at which the next commit resumes checking.
    next_ready_check: Place,
    /// A change has occurred to which a front may have to react.
    has_news: bool,
}

impl Waits {
    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waits.len()
    }

    pub fn join_queue(&mut self, since: Version, wait: Wait) -> Result<(), QueueFull> {
        let share = wait.share();
        let of_owner = self.shares.get(&wait.front).copied().unwrap_or_default();
        if !of_owner.plus(share).fits(NODE_LIMIT) {
            return Err(QueueFull::Node);
        }
        if !self.total_usage.plus(share).fits(LIMIT) {
            return Err(QueueFull::Group);
        }
        self.shares.insert(wait.front, of_owner.plus(share));
        self.total_usage = self.total_usage.plus(share);
        self.numbers.insert((wait.front, wait.number), since);
        let lines = &mut self.lines[wait.database.index()];
        for key in wait.keys() {
            match lines.get_mut(key) {
                Some(line) => {
                    line.insert(since);
                }
                None => {
                    lines.insert(key.into(), BTreeSet::from([since]));
                }
            }
        }
        // If an earlier client leaves without an element, the key may have one for this client
        // already.
        self.ready_keys.extend(wait.places());
        self.waits.insert(since, wait);
        self.changed.insert(since);
        self.has_news = true;
        Ok(())
    }

    /// Returns a client if it is queued.
    pub fn find(&self, owner: FrontId, number: u64) -> Option<Queued<'_>> {
        let since = *self.numbers.get(&(owner, number))?;
        let wait = self.waits.get(&since)?;
        Some(Queued { since, database: wait.database, attempt: &wait.attempt })
    }

    /// Returns the version at which a client joined the queue or last retried in vain.
    pub fn last_activity_of(&self, owner: FrontId, number: u64) -> Option<Version> {
        let since = self.numbers.get(&(owner, number))?;
        self.waits.get(since).map(|wait| wait.last_activity)
    }

    /// Records a retry in vain at version `now`.
    pub fn record_activity(&mut self, since: Version, now: Version) {
        if let Some(wait) = self.waits.get_mut(&since) {
            wait.last_activity = now;
            self.changed.insert(since);
            self.has_news = true;
        }
    }

    pub fn remove_client(&mut self, since: Version) {
        let Some(wait) = self.waits.remove(&since) else {
            return;
        };
        self.numbers.remove(&(wait.front, wait.number));
        let lines = &mut self.lines[wait.database.index()];
        for place in wait.places() {
            if let Some(line) = lines.get_mut(&place.1) {
                line.remove(&since);
                if line.is_empty() {
                    lines.remove(&place.1);
                    self.ready_keys.remove(&place);
                }
            }
        }
        let share = wait.share();
        self.total_usage = self.total_usage.minus(share);
        if let Some(of_owner) = self.shares.get_mut(&wait.front) {
            *of_owner = of_owner.minus(share);
            if of_owner.count == 0 {
                self.shares.remove(&wait.front);
            }
        }
        self.changed.insert(since);
        self.has_news = true;
    }

    /// Removes all clients of a front and returns their number.
    pub fn remove_front(&mut self, owner: FrontId) -> usize {
        let numbers = self.numbers.range((owner, 0)..=(owner, u64::MAX));
        let gone: Vec<Version> = numbers.map(|(_, since)| *since).collect();
        for since in &gone {
            self.remove_client(*since);
        }
        gone.len()
    }

    /// Starts an incarnation of a front: removes the clients of earlier ones.
    pub fn begin_life(&mut self, owner: FrontId) {
        let lives = self.shares.range(FrontId::first(owner.node)..);
        let lives = lives.map(|(life, _)| *life);
        let gone: Vec<FrontId> = lives
            .take_while(|life| life.node == owner.node)
            .filter(|life| *life != owner)
            .collect();
        for life in gone {
            self.remove_front(life);
        }
    }

    /// Returns whether the client that joined at `since` may pop from a key of `count` elements:
    /// the clients before it leave at least one.
    pub fn may_pop(
        &self,
        since: Version,
        (database, key): (Database, &[u8]),
        kind: Kind,
        count: u64,
    ) -> bool {
        let mut before = 0_u64;
        let Some(line) = self.lines[database.index()].get(key) else {
            return count > 0;
        };
        for other in line.range(..since) {
            if before >= count {
                break;
            }
            let other = self.waits.get(other).filter(|other| other.kind == kind);
            before = before.saturating_add(other.map_or(0, |other| other.elements_wanted));
        }
        before < count
    }

    /// Visits the clients that may pop from a key of `count` elements.
    pub fn visit_turns(
        &self,
        (database, key): (Database, &[u8]),
        kind: Kind,
        count: u64,
        each: &mut dyn FnMut(&Wait),
    ) {
        let line = self.lines[database.index()].get(key).into_iter().flatten();
        let mut before = 0_u64;
        for wait in line.filter_map(|since| self.waits.get(since)) {
            if before >= count {
                return;
            }
            if wait.kind == kind {
                each(wait);
                before = before.saturating_add(wait.elements_wanted);
            }
        }
    }

    /// Returns the numbers of a front's clients, ascending.
    pub fn client_numbers(&self, owner: FrontId) -> Vec<u64> {
        let numbers = self.numbers.range((owner, 0)..=(owner, u64::MAX));
        numbers.map(|((_, number), _)| *number).collect()
    }

    /// Marks a key with new elements as ready.
    pub fn mark_ready(&mut self, database: Database, key: &[u8]) {
        if self.lines[database.index()].contains_key(key) {
            self.ready_keys.insert((database, key.into()));
            self.has_news = true;
        }
    }

    /// Marks all keys of a database that clients wait for as ready.
    pub fn mark_all_ready(&mut self, database: Database) {
        let names = self.lines[database.index()].keys();
        self.ready_keys.extend(names.map(|key| (database, key.clone())));
        self.has_news |= self.names_in(database) > 0;
    }

    /// Returns the number of keys of a database that clients wait for.
    pub fn names_in(&self, database: Database) -> u64 {
        self.lines[database.index()].len() as u64
    }

    /// Returns the ready keys from `from` on.
    pub fn stirred_from(&self, from: Place) -> impl Iterator<Item = (Database, &[u8])> {
        self.ready_keys.range(from..).map(|(database, key)| (*database, &**key))
    }

    /// Forgets some of the ready keys without elements.
    fn forget_empty_keys(&mut self, has_some: &dyn Fn(Database, &[u8]) -> bool) {
        let next = self.ready_keys.range(self.next_ready_check.clone()..);
        let looked_at: Vec<Place> = next.take(CHECKED_PER_COMMIT).cloned().collect();
        self.next_ready_check = match looked_at.last() {
            Some(last) if looked_at.len() == CHECKED_PER_COMMIT => last.clone(),
            _ => Place::default(),
        };
        for place in looked_at {
            if !has_some(place.0, &place.1) {
                self.ready_keys.remove(&place);
            }
        }
    }

    /// Commits the queue and returns the changes of metadata. `has_some` tells whether a key has
    /// elements.
    pub fn commit(&mut self, has_some: &dyn Fn(Database, &[u8]) -> bool) -> Vec<MetaChange> {
        self.forget_empty_keys(has_some);
        let changed = std::mem::take(&mut self.changed);
        let change = |since: Version| MetaChange {
            key: meta_key(since),
            value: self.waits.get(&since).map(Wait::encode),
        };
        changed.into_iter().map(change).collect()
    }

    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty() && self.ready_keys.is_empty()
    }

    pub fn mark_committed(&mut self) {
        self.changed.clear();
    }

    /// Returns whether a front may have to react to a change since the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Takes the waits out of the metadata.
    pub fn restore(meta: &mut Metadata) -> Self {
        let mut waits = Self::default();
        for (key, bytes) in meta.extract_if(.., |(key, _)| key.starts_with(META)) {
            let since = key.get(META.len()..).and_then(since_from);
            if let (Some(since), Ok(wait)) = (since, Wait::decode(&bytes)) {
                // The limits were checked at admission, and they depend only on the release.
                waits.join_queue(since, wait).ok();
            }
        }
        waits.changed.clear();
        waits
    }

    /// Returns all waits as metadata, for a store without an earlier version of them.
    pub fn as_metadata(&self) -> impl Iterator<Item = MetaChange> {
        self.waits
            .iter()
            .map(|(since, wait)| MetaChange { key: meta_key(*since), value: Some(wait.encode()) })
    }

    /// Returns all waits in order, with shared attempts.
    pub fn clients_in_order(&self) -> impl Iterator<Item = (Version, Wait)> {
        self.waits.iter().map(|(since, wait)| (*since, wait.clone()))
    }

    /// Adds a wait from a snapshot, in order.
    pub fn load(&mut self, since: Version, bytes: &[u8]) -> Result<(), &'static str> {
        let wait = Wait::decode(bytes).map_err(|_| "a client that waits makes no sense")?;
        if self.waits.last_key_value().is_some_and(|(last, _)| *last >= since) {
            return Err("clients that wait are out of order");
        }
        if wait.last_activity < since || self.numbers.contains_key(&(wait.front, wait.number)) {
            return Err("a client that waits cannot be so");
        }
        self.join_queue(since, wait).map_err(|_| "more clients wait than may")
    }

    /// Returns the latest slot at which a client joined or retried.
    pub fn newest(&self) -> Option<u64> {
        self.waits.values().map(|wait| wait.last_activity.slot).max()
    }

    /// Combines the fingerprint of the data with that of the blocked clients, if any.
    pub fn digest(&self, data: u128) -> u128 {
        if self.is_empty() {
            return data;
        }
        let mut hasher = Xxh3::new();
        hasher.update(&data.to_le_bytes());
        for (since, wait) in &self.waits {
            let bytes = wait.encode();
            hasher.update(&meta_key(*since));
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(&bytes);
        }
        hasher.digest128()
    }
}

fn meta_key(since: Version) -> Vec<u8> {
    let slot = since.slot.to_be_bytes();
    [META, &slot, &since.index.to_be_bytes()].concat()
}

fn since_from(bytes: &[u8]) -> Option<Version> {
    let (slot, rest) = bytes.split_first_chunk()?;
    let (index, []) = rest.split_first_chunk()? else {
        return None;
    };
    Some(Version { slot: u64::from_be_bytes(*slot), index: u32::from_be_bytes(*index) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FrontId = FrontId { node: 1, incarnation: 7 };
    const B: FrontId = FrontId { node: 2, incarnation: 7 };

    /// Encodes `BLPOP key … 0`, or an attempt to pop `count` elements.
    fn attempt(keys: &[&str], count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Encoder(&mut bytes);
        out.byte(0).byte(0).count(count).length(keys.len());
        keys.iter().for_each(|key| {
            out.bytes(key.as_bytes());
        });
        bytes
    }

    const fn at(slot: u64) -> Version {
        Version { slot, index: 0 }
    }

    fn enter(waits: &mut Waits, slot: u64, owner: FrontId, keys: &[&str], count: u64) {
        enter_in(waits, slot, owner, Database::ZERO, keys, count);
    }

    fn enter_in(
        waits: &mut Waits,
        slot: u64,
        owner: FrontId,
        database: Database,
        keys: &[&str],
        count: u64,
    ) {
        let attempt = attempt(keys, count);
        let wait = Wait::new((owner, slot), at(slot), database, &attempt).unwrap();
        waits.join_queue(at(slot), wait).unwrap();
    }

    fn turns(waits: &Waits, key: &str, count: u64) -> Vec<u64> {
        turns_in(waits, Database::ZERO, key, count)
    }

    fn turns_in(waits: &Waits, database: Database, key: &str, count: u64) -> Vec<u64> {
        let mut turns = Vec::new();
        waits.visit_turns((database, key.as_bytes()), Kind::List, count, &mut |wait| {
            turns.push(wait.number);
        });
        turns
    }

    #[test]
    fn turns_follow_the_queue_and_leave_enough_for_earlier_clients() {
        let mut waits = Waits::default();
        enter(&mut waits, 1, A, &["k", "l"], 0);
        enter(&mut waits, 2, B, &["k"], 3);
        enter(&mut waits, 3, A, &["k"], 0);
        assert_eq!(turns(&waits, "k", 0), []);
        assert_eq!(turns(&waits, "k", 1), [1]);
        assert_eq!(turns(&waits, "k", 2), [1, 2], "it takes up to three");
        assert_eq!(turns(&waits, "k", 4), [1, 2]);
        assert_eq!(turns(&waits, "k", 5), [1, 2, 3]);
        let key = (Database::ZERO, &b"k"[..]);
        assert!(waits.may_pop(at(2), key, Kind::List, 2));
        assert!(!waits.may_pop(at(2), key, Kind::List, 1));
        assert!(!waits.may_pop(at(9), key, Kind::List, 5), "the end of the line");
        assert!(waits.may_pop(at(9), key, Kind::Zset, 1), "no line");
        waits.remove_client(at(1));
        assert_eq!(turns(&waits, "k", 1), [2]);
        assert_eq!(turns(&waits, "l", 1), []);
    }

    #[test]
    fn new_life_of_a_node_ends_only_its_own_old_waits() {
        let mut waits = Waits::default();
        enter(&mut waits, 1, A, &["k"], 0);
        enter(&mut waits, 2, B, &["k"], 0);
        waits.begin_life(A);
        assert_eq!(waits.len(), 2);
        waits.begin_life(FrontId { incarnation: 3, ..A });
        assert_eq!(turns(&waits, "k", 9), [2]);
        assert_eq!(waits.remove_front(B), 1);
        assert!(waits.is_empty());
        assert_eq!(waits.total_usage, Share::default());
        assert!(waits.lines.iter().all(BTreeMap::is_empty));
        assert!(waits.shares.is_empty() && waits.ready_keys.is_empty());
    }

    #[test]
    fn waits_are_restored_from_metadata_and_image() {
        let mut waits = Waits::default();
        enter(&mut waits, 1, A, &["k", "l"], 2);
        enter(&mut waits, 2, B, &["k"], 0);
        waits.record_activity(at(1), at(5));
        let mut meta = vec![(b"time".to_vec(), vec![1])];
        enter_in(&mut waits, 3, B, Database::new(15).unwrap(), &["k"], 0);
        let changes = waits.commit(&|_, _| true);
        meta.extend(changes.into_iter().map(|c| (c.key, c.value.unwrap())));
        let kept = Waits::restore(&mut meta);
        assert_eq!(meta.len(), 1, "the rest is not its own");
        assert_eq!(kept.waits, waits.waits);
        let mut loaded = Waits::default();
        for (since, bytes) in waits.clients_in_order().map(|(since, wait)| (since, wait.encode())) {
            loaded.load(since, &bytes).unwrap();
            assert!(loaded.load(since, &bytes).is_err(), "twice");
        }
        assert_eq!(loaded.waits, waits.waits);
        assert_eq!((loaded.total_usage, kept.total_usage), (waits.total_usage, waits.total_usage));
        assert_eq!(loaded.newest(), Some(5));
        waits.remove_client(at(1));
        let gone = waits.commit(&|_, _| true);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].value, None);
        assert!(waits.commit(&|_, _| true).is_empty());
    }

    /// Clients wait at the number of their database, whatever keys other databases have.
    #[test]
    fn lines_of_equal_names_in_two_databases_are_separate() {
        let (first, other) = (Database::ZERO, Database::new(3).unwrap());
        let mut waits = Waits::default();
        enter_in(&mut waits, 1, A, first, &["k"], 0);
        enter_in(&mut waits, 2, A, other, &["k"], 0);
        assert_eq!(turns_in(&waits, first, "k", 9), [1]);
        assert_eq!(turns_in(&waits, other, "k", 9), [2]);
        assert_eq!(waits.find(A, 2).unwrap().database, other);
        for _ in 0..2 {
            waits.commit(&|_, _| false);
        }
        assert!(waits.stirred_from(Place::default()).next().is_none());
        waits.mark_ready(other, b"k");
        assert_eq!(waits.stirred_from(Place::default()).collect::<Vec<_>>(), [(other, &b"k"[..])]);
        waits.mark_all_ready(first);
        assert_eq!(waits.stirred_from(Place::default()).count(), 2);
        waits.remove_client(at(2));
        assert_eq!((waits.names_in(first), waits.names_in(other)), (1, 0));
        assert_eq!(waits.stirred_from(Place::default()).count(), 1);
    }

    #[test]
    fn encoded_wait_names_a_database_in_one_way_only() {
        let encoded = |database: u64| {
            let database = Database::new(database).unwrap();
            Wait::new((A, 7), at(1), database, &attempt(&["k"], 0)).unwrap().encode()
        };
        let (plain, with) = (encoded(0), encoded(15));
        assert_eq!(with.len(), plain.len() + 1);
        assert_eq!(Wait::decode(&with).unwrap().database.number(), 15);
        let place = with.len() - attempt(&["k"], 0).len() - 1;
        assert_eq!(with[place], IN_DATABASE | 15);
        for byte in [IN_DATABASE, IN_DATABASE | 16, 0xff, 0x0f] {
            let mut bytes = with.clone();
            bytes[place] = byte;
            assert!(Wait::decode(&bytes).is_err(), "{byte:#x}");
        }
        let twice = [&with[..=place], &with[place..]].concat();
        assert!(Wait::decode(&twice).is_err());
    }

    #[test]
    fn number_of_waiting_clients_is_bounded() {
        let mut waits = Waits::default();
        for slot in 0..NODE_LIMIT.count as u64 {
            enter(&mut waits, slot, A, &["k"], 0);
        }
        let one = |owner, keys: &[&str]| {
            Wait::new((owner, 0), at(0), Database::ZERO, &attempt(keys, 0)).unwrap()
        };
        assert_eq!(waits.join_queue(at(1 << 20), one(A, &["k"])), Err(QueueFull::Node));
        enter(&mut waits, 1 << 20, B, &["k"], 0);
        let long = "x".repeat(60_000);
        let long = vec![long.as_str(); 140];
        assert_eq!(waits.join_queue(at(2 << 20), one(B, &long)), Err(QueueFull::Node), "bytes");
        for node in 3..6 {
            let owner = FrontId { node, incarnation: 1 };
            for slot in 0..NODE_LIMIT.count as u64 {
                let since = u64::from(node) << 32 | slot;
                let attempt = attempt(&["k"], 0);
                let wait = Wait::new((owner, slot), at(since), Database::ZERO, &attempt).unwrap();
                let entered = waits.join_queue(at(since), wait);
                if waits.len() == LIMIT.count {
                    continue;
                }
                entered.unwrap();
            }
        }
        let other = FrontId { node: 9, incarnation: 1 };
        assert_eq!(waits.join_queue(at(u64::MAX), one(other, &["k"])), Err(QueueFull::Group));
    }

    #[test]
    fn keys_without_elements_are_dropped_in_small_steps() {
        let mut waits = Waits::default();
        for slot in 0..40 {
            enter(&mut waits, slot, A, &[&format!("k{slot}")], 0);
        }
        assert_eq!(waits.ready_keys.len(), 40);
        for _ in 0..4 {
            waits.commit(&|_, key| key == b"k7");
        }
        let ready: Vec<_> = waits.stirred_from(Place::default()).collect();
        assert_eq!(ready, [(Database::ZERO, &b"k7"[..])]);
        waits.mark_ready(Database::ZERO, b"k8");
        waits.mark_ready(Database::ZERO, b"no client waits for it");
        assert_eq!(waits.ready_keys.len(), 2);
    }
}
