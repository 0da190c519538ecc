//! Snapshots of a store: their items, and the cursor that moves over the store.
//!
//! The encoding is specified in `docs/spec/snapshot.md`, "Items of the key-value service".

use std::borrow::Cow;

use quorate_core::slot::Slot;
use quorate_replica::service::LoadError;

use super::{
    collection::{Header, Id, Kind, NAME_BYTES_MAX, collection_id},
    entry::{Bytes, Entry},
    merge::Merge,
    places::{Database, Position, Version},
    removals::Removals,
    table::Table,
};
use crate::{
    encode::{Decoder, Encoder, Fault, Malformed},
    key::{KEY_BYTES_MAX, Key},
    waits::Waits,
};

const FORMAT: u8 = 1;
/// Cost of an item in addition to its bytes, so that a step with many small items stays short.
const ITEM_BYTES: usize = 32;
/// Maximum length of a value in any store.
const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// First byte of an item.
mod kind {
    pub(super) const HEAD: u8 = 0;
    pub(super) const KEY: u8 = 1;
    pub(super) const KEY_WITH_DEADLINE: u8 = 2;
    /// Key of a collection. Its rows follow.
    pub(super) const COLLECTION: u8 = 3;
    pub(super) const COLLECTION_WITH_DEADLINE: u8 = 4;
    pub(super) const ROW: u8 = 5;
    /// Blocked client. These follow all keys.
    pub(super) const WAIT: u8 = 6;
    /// Versions of removed keys. This item precedes all keys.
    pub(super) const REMOVALS: u8 = 7;
    /// Database to which the keys after it belong.
    pub(super) const DATABASE: u8 = 8;
}

/// Database, key or row of a snapshot.
#[derive(Clone, Copy, Debug)]
pub enum ImagePart<'a> {
    /// Database of the keys after it, and its [`Store::since`](super::Store::since). Absent for
    /// database 0 if that is [`Version::ABSENT`].
    Database(Database, Version),
    Key(&'a [u8], &'a Entry<'a>),
    /// Name and value of a row of the preceding key.
    Row(&'a [u8], &'a [u8]),
}

pub(super) type VisitPart<'e> = dyn FnMut(ImagePart<'_>) + 'e;

/// Position and key. A store is ordered by them.
pub(super) type PositionedKey<'a> = (Position, Cow<'a, [u8]>);

/// Returns the records of a layer from `from` on, in stored order. `None` stands for a removed key.
pub(super) fn records(
    layer: &Table,
    from: Position,
) -> impl Iterator<Item = (PositionedKey<'_>, Option<Entry<'_>>)> {
    layer.from(from).map(|(position, record)| {
        let place = (position, Cow::Borrowed(record.key()));
        (place, (!record.is_absent()).then(|| record.entry()))
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    position: Position,
    /// Last key that the cursor has passed at its position.
    key: Option<Box<[u8]>>,
    /// Collection whose rows have been passed only in part.
    open_collection: Option<PartialCollection>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialCollection {
    pub(super) id: Id,
    /// Name of the last row passed.
    last: Option<Box<[u8]>>,
}

impl PartialCollection {
    /// Returns whether the row `name` has been passed.
    pub(super) fn has_passed(&self, name: &[u8]) -> bool {
        self.last.as_deref().is_some_and(|last| name <= last)
    }

    /// Returns the name at which the remaining rows start.
    pub(super) fn from(&self) -> &[u8] {
        self.last.as_deref().unwrap_or_default()
    }
}

/// Budget of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepBudget {
    cost: usize,
    bytes_max: usize,
    has_returned_items: bool,
}

impl StepBudget {
    pub(super) const fn of(bytes: usize) -> Self {
        Self { cost: 0, bytes_max: bytes, has_returned_items: false }
    }

    fn count_passed(&mut self) {
        self.cost = self.cost.saturating_add(ITEM_BYTES);
    }

    fn count_returned(&mut self, bytes: usize) {
        self.has_returned_items = true;
        self.cost = self.cost.saturating_add(bytes);
    }

    /// Passes the beginning of a database to `each`.
    pub(super) fn pass_database(
        &mut self,
        database: Database,
        since: Version,
        each: &mut VisitPart<'_>,
    ) {
        if database != Database::ZERO || since != Version::ABSENT {
            each(ImagePart::Database(database, since));
            self.count_returned(ITEM_BYTES);
        }
    }

    const fn is_exhausted(&self) -> bool {
        self.has_returned_items && self.cost >= self.bytes_max
    }
}

/// Reason why a pass over keys or rows ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassEnd {
    /// The budget of the step is used up.
    BudgetExhausted,
    /// A key with rows was passed, or the last row of a key.
    Rows,
    /// The snapshot is complete.
    ImageComplete,
}

impl Cursor {
    /// Returns the position below which all keys have been passed.
    pub(super) const fn position(&self) -> Position {
        self.position
    }

    /// Returns whether a key has been passed.
    pub(super) fn has_passed(&self, position: Position, key: &[u8]) -> bool {
        position < self.position
            || (position == self.position && self.key.as_deref().is_some_and(|last| key <= last))
    }

    /// Returns the collection whose rows come next.
    pub(super) const fn open_collection(&self) -> Option<&PartialCollection> {
        self.open_collection.as_ref()
    }

    /// Passes the keys from the cursor on to `each`, up to a key with rows.
    pub(super) fn pass_keys(
        &mut self,
        from_here: Merge<'_, PositionedKey<'_>, Option<Entry<'_>>>,
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> PassEnd {
        for ((position, key), entry) in from_here {
            if self.has_passed(position, &key) {
                continue;
            }
            turn.count_passed();
            let mut id = None;
            if let Some(entry) = entry {
                each(ImagePart::Key(&key, &entry));
                turn.count_returned(key.len() + entry.value.len());
                id = collection_id(entry.kind, &entry.value);
            }
            if id.is_some() || turn.is_exhausted() {
                (self.position, self.key) = (position, Some(key.into()));
                self.open_collection = id.map(|id| PartialCollection { id, last: None });
                return match turn.is_exhausted() {
                    true => PassEnd::BudgetExhausted,
                    false => PassEnd::Rows,
                };
            }
        }
        PassEnd::ImageComplete
    }

    /// Passes the remaining rows of the current collection to `each`.
    pub(super) fn pass_rows<'r>(
        &mut self,
        from_here: Merge<'r, Cow<'r, [u8]>, Option<Bytes<'r>>>,
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> PassEnd {
        let Some(within) = &mut self.open_collection else {
            return PassEnd::Rows;
        };
        for (name, value) in from_here {
            if within.has_passed(&name) {
                continue;
            }
            turn.count_passed();
            if let Some(value) = value {
                each(ImagePart::Row(&name, &value));
                turn.count_returned(name.len() + value.len());
            }
            if turn.is_exhausted() {
                within.last = Some(name.into());
                return PassEnd::BudgetExhausted;
            }
        }
        self.open_collection = None;
        PassEnd::Rows
    }
}

/// Encodes the first item, which contains the number of keys.
pub fn encode_head(keys: u64, item: &mut Vec<u8>) {
    item.clear();
    Encoder(item).byte(kind::HEAD).byte(FORMAT).count(keys);
}

pub fn encode_key(key: &[u8], entry: &Entry<'_>, item: &mut Vec<u8>) {
    item.clear();
    let Version { slot, index } = entry.version;
    let mut to = Encoder(item);
    match (entry.kind, entry.deadline) {
        (Kind::String, None) => to.byte(kind::KEY),
        (Kind::String, Some(deadline)) => to.byte(kind::KEY_WITH_DEADLINE).count(deadline),
        (of, None) => to.byte(kind::COLLECTION).byte(of as u8),
        (of, Some(deadline)) => {
            let to = to.byte(kind::COLLECTION_WITH_DEADLINE);
            to.byte(of as u8).count(deadline)
        }
    };
    to.count(slot).count(index.into()).bytes(key);
    item.extend_from_slice(&entry.value);
}

pub fn encode_part(part: ImagePart<'_>, item: &mut Vec<u8>) {
    match part {
        ImagePart::Database(database, since) => {
            item.clear();
            let mut to = Encoder(item);
            to.byte(kind::DATABASE).byte(database.number());
            to.count(since.slot).count(since.index.into());
        }
        ImagePart::Key(key, entry) => encode_key(key, entry, item),
        ImagePart::Row(name, value) => {
            item.clear();
            Encoder(item).byte(kind::ROW).bytes(name);
            item.extend_from_slice(value);
        }
    }
}

/// Encodes the versions of removed keys. Returns `false` if there is no such item.
pub fn encode_removals(removals: &Removals, item: &mut Vec<u8>) -> bool {
    item.clear();
    removals.encode(Encoder(item).byte(kind::REMOVALS))
}

pub fn encode_wait(since: Version, wait: &[u8], item: &mut Vec<u8>) {
    item.clear();
    Encoder(item).byte(kind::WAIT).count(since.slot).count(since.index.into());
    item.extend_from_slice(wait);
}

/// Checker of the items of a snapshot to load. Accepts only what a store could have written.
#[derive(Debug, Default)]
pub struct ImageChecker {
    /// Number of keys that have not arrived; `None` before the head.
    keys_left: Option<u64>,
    last: Cursor,
    /// Database of the next keys; `None` before the first item that names one.
    database: Option<Database>,
    /// True if the database has neither a version nor a key yet, so a key must follow.
    needs_key: bool,
    /// Highest slot of a version.
    newest: u64,
    /// Rows of the last key, if it is a collection.
    rows: Option<Rows>,
    removals: Option<Removals>,
    /// Blocked clients. No key may follow one.
    waits: Waits,
}

/// Rows that have not arrived.
#[derive(Debug)]
struct Rows {
    id: Id,
    left: u64,
    /// Name of the last row.
    last: Option<Box<[u8]>>,
}

/// Checked part of a snapshot.
#[derive(Debug)]
pub enum LoadedPart<'a> {
    /// Database of the keys after it, and its [`Store::since`](super::Store::since).
    Database(Database, Version),
    Key(Key<'a>, Entry<'a>),
    /// Collection, with the name and value of one of its rows.
    Row(Id, &'a [u8], &'a [u8]),
}

impl From<Malformed> for LoadError {
    fn from(_: Malformed) -> Self {
        Self::Malformed("an item cannot be read")
    }
}

impl Decoder<'_> {
    /// Reads the index of a version.
    fn index(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.count()?).map_err(|_| Malformed)
    }
}

impl ImageChecker {
    pub fn is_empty(&self) -> bool {
        self.keys_left.is_none()
    }

    /// Returns the versions of removed keys, if the snapshot has them, and the blocked clients.
    pub fn into_rest(self) -> (Option<Removals>, Waits) {
        (self.removals, self.waits)
    }

    /// Checks the next item. Returns its database, key or row, if any.
    pub fn check_item<'a>(&mut self, item: &'a [u8]) -> Result<Option<LoadedPart<'a>>, LoadError> {
        let mut from = Decoder(item);
        let kind = from.byte()?;
        if self.keys_left.is_none() {
            return self.check_head(kind, from).map(|()| None);
        }
        if kind == kind::REMOVALS {
            return self.check_removals(from).map(|()| None);
        }
        if kind == kind::DATABASE {
            return self.check_database(from).map(Some);
        }
        if kind == kind::WAIT {
            return self.check_blocked_client(from).map(|()| None);
        }
        if kind == kind::ROW {
            return self.check_row(from).map(Some);
        }
        self.check_key(kind, from).map(Some)
    }

    fn check_database(&mut self, mut from: Decoder<'_>) -> Result<LoadedPart<'static>, LoadError> {
        self.no_rows_left()?;
        let database = Database::new(from.byte()?.into());
        let database = database.ok_or(LoadError::Malformed("a database that no store has"))?;
        let since = Version { slot: from.count()?, index: from.index()? };
        from.end()?;
        // Keys before the first of these items belong to database 0.
        let is_first = self.database.is_none() && self.last == Cursor::default();
        let is_in_order = match database {
            Database::ZERO => is_first && since != Version::ABSENT,
            _ => self.database < Some(database),
        };
        if !is_in_order || self.needs_key || !self.waits.is_empty() {
            return Err(LoadError::Malformed("databases are out of order"));
        }
        if since.slot == 0 && since != Version::ABSENT {
            return Err(LoadError::Malformed("a database has a version that no command has"));
        }
        (self.database, self.needs_key) = (Some(database), since == Version::ABSENT);
        self.last = Cursor::default();
        self.newest = self.newest.max(since.slot);
        Ok(LoadedPart::Database(database, since))
    }

    fn check_key<'a>(
        &mut self,
        item_kind: u8,
        mut from: Decoder<'a>,
    ) -> Result<LoadedPart<'a>, LoadError> {
        self.no_rows_left()?;
        let mut kind = Kind::String;
        if matches!(item_kind, kind::COLLECTION | kind::COLLECTION_WITH_DEADLINE) {
            let of = Kind::from_byte(from.byte()?).filter(|kind| kind.has_rows());
            kind = of.ok_or(LoadError::Malformed("a key of an unknown type"))?;
        }
        let deadline = match item_kind {
            kind::KEY | kind::COLLECTION => None,
            kind::KEY_WITH_DEADLINE | kind::COLLECTION_WITH_DEADLINE => Some(from.count()?),
            _ => return Err(LoadError::Malformed("an item of an unknown kind")),
        };
        let (slot, index) = (from.count()?, from.index()?);
        let key = from.key().map_err(|fault| match fault {
            Fault::Malformed => Malformed.into(),
            _ => LoadError::Malformed("a key is too long"),
        })?;
        let value = from.0;
        let keys_left = self.keys_left.and_then(|left| left.checked_sub(1));
        self.keys_left =
            Some(keys_left.ok_or(LoadError::Malformed("there are more keys than it says"))?);
        if deadline == Some(u64::MAX) || slot == 0 || value.len() > VALUE_BYTES_MAX {
            return Err(LoadError::Malformed("a key has what no key can have"));
        }
        if kind.has_rows() {
            let header = Header::from_bytes(value)
                .filter(|header| header.id.version.slot <= slot)
                .filter(|header| can_be(kind, header));
            let header = header.ok_or(LoadError::Malformed("a collection makes no sense"))?;
            self.rows = Some(Rows { id: header.id, left: header.rows(kind), last: None });
        }
        let position = Position::of(key.bytes());
        if self.last.has_passed(position, key.bytes()) {
            return Err(LoadError::Malformed("keys are out of order"));
        }
        self.last = Cursor { position, key: Some(key.bytes().into()), open_collection: None };
        self.needs_key = false;
        self.newest = self.newest.max(slot);
        let entry = Entry {
            value: Bytes::Borrowed(value),
            version: Version { slot, index },
            deadline,
            kind,
        };
        Ok(LoadedPart::Key(key, entry))
    }

    fn check_row<'a>(&mut self, mut from: Decoder<'a>) -> Result<LoadedPart<'a>, LoadError> {
        let name = from.bytes()?;
        let rows = self.rows.as_mut().filter(|rows| rows.left > 0);
        let rows = rows.ok_or(LoadError::Malformed("there are more rows than it says"))?;
        if name.len() > NAME_BYTES_MAX || from.0.len() > VALUE_BYTES_MAX {
            return Err(LoadError::Malformed("a row is longer than any can be"));
        }
        if rows.last.as_deref().is_some_and(|last| name <= last) {
            return Err(LoadError::Malformed("rows are out of order"));
        }
        rows.left -= 1;
        rows.last = Some(name.into());
        Ok(LoadedPart::Row(rows.id, name, from.0))
    }

    fn check_removals(&mut self, mut from: Decoder<'_>) -> Result<(), LoadError> {
        if self.removals.is_some()
            || self.database.is_some()
            || self.last != Cursor::default()
            || !self.waits.is_empty()
        {
            return Err(LoadError::Malformed("removed keys come behind others"));
        }
        self.removals = Some(Removals::decode(&mut from)?);
        Ok(())
    }

    fn check_blocked_client(&mut self, mut from: Decoder<'_>) -> Result<(), LoadError> {
        self.no_rows_left()?;
        if self.keys_left != Some(0) || self.needs_key {
            return Err(LoadError::Malformed("clients come before keys"));
        }
        let (slot, index) = (from.count()?, from.index()?);
        let since = Version { slot, index };
        self.waits.load(since, from.0).map_err(LoadError::Malformed)
    }

    fn no_rows_left(&self) -> Result<(), LoadError> {
        match self.rows {
            Some(Rows { left: 1.., .. }) => Err(LoadError::Malformed("rows are missing")),
            _ => Ok(()),
        }
    }

    fn check_head(&mut self, kind: u8, mut from: Decoder<'_>) -> Result<(), LoadError> {
        if kind != kind::HEAD {
            return Err(LoadError::Malformed("it does not begin with a head"));
        }
        if from.byte()? != FORMAT {
            return Err(LoadError::Malformed("this version does not know its format"));
        }
        self.keys_left = Some(from.count()?);
        Ok(from.end()?)
    }

    /// Checks that the snapshot is complete and that all its slots are below `at`.
    pub fn end(&self, at: Slot) -> Result<(), LoadError> {
        self.no_rows_left()?;
        if self.keys_left != Some(0) || self.needs_key {
            return Err(LoadError::Malformed("keys are missing"));
        }
        let removed = self.removals.as_ref().map_or(0, Removals::newest);
        if self.newest.max(removed).max(self.waits.newest().unwrap_or(0)) >= at.0 {
            return Err(LoadError::Malformed("a key is newer than the image"));
        }
        Ok(())
    }
}

/// Returns whether the deadlines in a header are valid for a collection of type `kind`.
fn can_be(kind: Kind, header: &Header) -> bool {
    if (kind == Kind::Stream) != header.log.is_some() || (header.count == 0 && header.log.is_none())
    {
        return false;
    }
    header.field_deadlines.is_none_or(|timed| {
        let some = timed.fields > 0 || timed.removed > 0;
        let all_there = timed.fields <= header.count && timed.next < u64::MAX;
        kind == Kind::Hash && some && all_there
    })
}

const _: () = assert!(KEY_BYTES_MAX < VALUE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::collection::FieldDeadlines;

    fn key_item(key: &[u8], slot: u64, deadline: Option<u64>, value: &[u8]) -> Vec<u8> {
        let mut item = Vec::new();
        let entry = Entry {
            value: Bytes::Borrowed(value),
            version: Version { slot, index: 3 },
            deadline,
            kind: Kind::String,
        };
        encode_key(key, &entry, &mut item);
        item
    }

    /// Encodes a hash with `count` fields, created in slot `begun`.
    fn hash_item(key: &[u8], count: u64, begun: u64) -> Vec<u8> {
        timed_item(key, count, begun, (Kind::Hash, None))
    }

    /// Encodes a collection of a given type and deadlines.
    fn timed_item(
        key: &[u8],
        count: u64,
        begun: u64,
        of: (Kind, Option<FieldDeadlines>),
    ) -> Vec<u8> {
        let (kind, timed) = of;
        let version = Version { slot: begun, index: 0 };
        let header = Header {
            id: Id { version, number: 0 },
            count,
            bytes: 2,
            first: 0,
            field_deadlines: timed,
            log: None,
        };
        let mut item = Vec::new();
        let entry = Entry {
            value: Bytes::Borrowed(&header.to_bytes()),
            version: Version { slot: 5, index: 3 },
            deadline: None,
            kind,
        };
        encode_part(ImagePart::Key(key, &entry), &mut item);
        item
    }

    fn row_item(name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut item = Vec::new();
        encode_part(ImagePart::Row(name, value), &mut item);
        item
    }

    fn head(keys: u64) -> Vec<u8> {
        let mut item = Vec::new();
        encode_head(keys, &mut item);
        item
    }

    /// Encodes the beginning of a database, which may have a number that no database has.
    fn database_item(database: u8, since: u64) -> Vec<u8> {
        let since = Version { slot: since, index: 0 };
        let mut item = Vec::new();
        encode_part(ImagePart::Database(Database::ZERO, since), &mut item);
        item[1] = database;
        item
    }

    fn two() -> [&'static [u8]; 2] {
        let mut keys: [&[u8]; 2] = [b"a", b"b"];
        keys.sort_by_key(|key| Position::of(key));
        keys
    }

    #[test]
    fn item_encoding_is_stable() {
        assert_eq!(head(300), [0, 1, 0xac, 2]);
        assert_eq!(key_item(b"k", 5, None, b"val"), b"\x01\x05\x03\x01kval");
        let expected = b"\x02\x80\x01\x05\x03\x01kval";
        assert_eq!(key_item(b"k", 5, Some(128), b"val"), expected);
        let hash = hash_item(b"k", 1, 4);
        assert_eq!(hash[..6], *b"\x03\x01\x05\x03\x01k");
        assert_eq!(hash.len(), 6 + Header::BYTES);
        assert_eq!(row_item(b"n", b"val"), b"\x05\x01nval");
        assert_eq!(database_item(15, 300), b"\x08\x0f\xac\x02\0");
    }

    #[test]
    fn databases_are_in_order_and_not_empty() {
        let check = |items: &[&[u8]], at: u64| {
            let mut state = ImageChecker::default();
            for item in items {
                state.check_item(item)?;
            }
            state.end(Slot(at))
        };
        let [first, second] = two();
        let (first, second) = (key_item(first, 5, None, b"1"), key_item(second, 9, None, b"2"));
        let (zero, one, two) = (database_item(0, 7), database_item(1, 0), database_item(2, 8));
        let removals = {
            let (mut removals, mut item) = (Removals::default(), Vec::new());
            removals.replicate(Version { slot: 1, index: 0 });
            assert!(encode_removals(&removals, &mut item));
            item
        };
        let accepted: &[(&[&[u8]], u64)] = &[
            (&[&head(2), &first, &one, &first], 10),
            (&[&head(3), &first, &second, &one, &first], 10),
            (&[&head(3), &zero, &first, &one, &first, &two, &first], 10),
            (&[&head(1), &one, &first, &two], 10),
            (&[&head(0), &removals, &zero, &two], 9),
            (&[&head(1), &database_item(15, 0), &first], 10),
        ];
        for (items, at) in accepted {
            assert_eq!(check(items, *at), Ok(()), "{items:?}");
        }
        let refused: &[(&[&[u8]], u64)] = &[
            (&[&head(1), &database_item(16, 0), &first], 10),
            (&[&head(1), &database_item(200, 3), &first], 10),
            (&[&head(1), &database_item(0, 0), &first], 10),
            (&[&head(1), &first, &zero], 10),
            (&[&head(1), &one, &first, &zero], 10),
            (&[&head(2), &one, &first, &one, &second], 10),
            (&[&head(2), &two, &first, &one, &second], 10),
            (&[&head(0), &one], 10),
            (&[&head(1), &one, &two, &first], 10),
            (&[&head(1), &one], 10),
            (&[&head(2), &one, &second, &first], 10),
            (&[&head(0), &two], 8),
            (&[&head(0), &two, &removals], 10),
            (&[&one, &head(1), &first], 10),
            (&[&head(0), &[8, 2, 0, 1]], 10),
            (&[&head(0), &[8, 2, 5]], 10),
            (&[&head(0), &[8, 2, 5, 0, 0]], 10),
        ];
        for (items, at) in refused {
            let result = check(items, *at);
            assert!(matches!(result, Err(LoadError::Malformed(_))), "{items:?}");
        }
        // The order of keys starts anew in each database.
        assert_eq!(check(&[&head(3), &first, &second, &one, &first], 10), Ok(()));
    }

    #[test]
    fn rows_must_follow_their_key() {
        let (hash, row) = (hash_item(b"k", 1, 4), row_item(b"n", b"v"));
        let check = |items: &[&[u8]]| {
            let mut state = ImageChecker::default();
            for item in items {
                state.check_item(item)?;
            }
            state.end(Slot(10))
        };
        assert_eq!(check(&[&head(1), &hash, &row]), Ok(()));
        let [first, second] = two();
        let two_rows = hash_item(first, 2, 5);
        let (a, b) = (row_item(b"a", b""), row_item(b"b", b""));
        assert_eq!(check(&[&head(1), &two_rows, &a, &b]), Ok(()));
        let string = key_item(second, 5, None, b"1");
        assert_eq!(check(&[&head(2), &two_rows, &a, &b, &string]), Ok(()));
        let long = row_item(&[b'n'; NAME_BYTES_MAX + 1], b"");
        let mut unknown = hash.clone();
        unknown[1] = 9;
        let mut of_strings = hash.clone();
        of_strings[1] = 0;
        let refused: &[&[&[u8]]] = &[
            &[&head(1), &hash],
            &[&head(1), &hash, &row, &row_item(b"o", b"")],
            &[&head(1), &row],
            &[&head(1), &two_rows, &b, &a],
            &[&head(1), &two_rows, &a, &a],
            &[&head(2), &two_rows, &a, &string],
            &[&head(2), &two_rows, &a, &b, &string, &row],
            &[&head(1), &hash, &database_item(1, 3)],
            &[&head(1), &hash, &long],
            &[&head(1), &hash_item(b"k", 0, 4)],
            &[&head(1), &hash_item(b"k", 1, 6), &row],
            &[&head(1), &hash[..hash.len() - 1], &row],
            &[&head(1), &unknown, &row],
            &[&head(1), &of_strings, &row],
        ];
        for items in refused {
            let result = check(items);
            assert!(matches!(result, Err(LoadError::Malformed(_))), "{items:?}");
        }
    }

    #[test]
    fn deadlines_of_fields_are_rows_too() {
        let timed =
            |fields, next, removed| FieldDeadlines { fields, next, deadline: None, removed };
        let check = |of: (Kind, Option<FieldDeadlines>), rows: u8| {
            let mut state = ImageChecker::default();
            state.check_item(&head(1))?;
            state.check_item(&timed_item(b"k", 2, 5, of))?;
            for name in 0..rows {
                state.check_item(&row_item(&[name], b""))?;
            }
            state.end(Slot(10))
        };
        let hash = |timed| (Kind::Hash, Some(timed));
        assert_eq!(check(hash(timed(1, 7, 0)), 4), Ok(()));
        assert_eq!(check(hash(timed(2, 7, 0)), 6), Ok(()));
        assert_eq!(check(hash(timed(0, 0, 3)), 2), Ok(()));
        for (of, rows) in [
            (hash(timed(1, 7, 0)), 2),
            (hash(timed(1, 7, 0)), 5),
            (hash(timed(3, 7, 0)), 8),
            (hash(timed(u64::MAX, 7, 0)), 2),
            (hash(timed(1, u64::MAX, 0)), 4),
            (hash(timed(0, 0, 0)), 2),
            ((Kind::Set, Some(timed(1, 7, 0))), 4),
            ((Kind::List, Some(timed(0, 0, 1))), 2),
        ] {
            let result = check(of, rows);
            assert!(matches!(result, Err(LoadError::Malformed(_))), "{of:?}");
        }
    }

    #[test]
    fn malformed_images_are_refused() {
        let [first, second] = two();
        let (first, second) = (key_item(first, 5, None, b"1"), key_item(second, 9, Some(7), b"2"));
        let check = |items: &[&[u8]], at: u64| {
            let mut state = ImageChecker::default();
            for item in items {
                state.check_item(item)?;
            }
            state.end(Slot(at))
        };
        assert_eq!(check(&[&head(2), &first, &second], 10), Ok(()));
        assert_eq!(check(&[&head(0)], 1), Ok(()));
        let long = key_item(&[b'k'; KEY_BYTES_MAX + 1], 5, None, b"");
        let refused: &[(&[&[u8]], u64)] = &[
            (&[&head(2), &first, &second], 9),
            (&[&head(2), &first], 10),
            (&[&head(1), &first, &second], 10),
            (&[&head(2), &second, &first], 10),
            (&[&head(2), &first, &first], 10),
            (&[&first, &second], 10),
            (&[&head(2), &head(2)], 10),
            (&[], 10),
            (&[&[0, 2, 0]], 10),
            (&[&[0, 1, 0, 0]], 10),
            (&[&head(1), &[]], 10),
            (&[&head(1), &[6]], 10),
            (&[&head(1), &long], 10),
            (&[&head(1), &key_item(b"k", 0, None, b"")], 10),
            (&[&head(1), &key_item(b"k", 1, Some(u64::MAX), b"")], 10),
        ];
        for (items, at) in refused {
            let result = check(items, *at);
            assert!(matches!(result, Err(LoadError::Malformed(_))), "{items:?}");
        }
        // Every truncated item is refused.
        for end in 0..first.len() - 1 {
            assert!(check(&[&head(1), &first[..end]], 10).is_err());
        }
    }
}
