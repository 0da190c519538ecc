//! Table of databases: the contents of each database and its version, stored with the state.
//!
//! The state contains database 0 in the format of the time when it was the only one. The table
//! repeats it, so that a table and a state of different commits are noticed.

use super::{
    failure::Failure,
    layout::{GENERATIONS_END, Space, State},
};
use crate::{
    encode::Malformed,
    store::{Database, Version},
};

const FORMAT: u8 = 1;
/// Flag of a database whose generation is indexed; see [`Space::indexed`].
const INDEXED: u8 = 1;
/// Flag of a database that has contents.
const HAS_CONTENTS: u8 = 2;

/// Encodes the table. It lists each database that has contents or a version.
pub(super) fn encode(state: &State) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&state.newest.to_le_bytes());
    bytes.push(0);
    for database in Database::all() {
        let (space, since) = (state.spaces[database.index()], state.since[database.index()]);
        if space.is_none() && since == Version::ABSENT {
            continue;
        }
        let flags = match space {
            None => 0,
            Some(Space { indexed: false, .. }) => HAS_CONTENTS,
            Some(Space { indexed: true, .. }) => HAS_CONTENTS | INDEXED,
        };
        let Space { generation, keys, .. } = space.unwrap_or(Space::new(0));
        bytes.extend_from_slice(&[database.number(), flags]);
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(&keys.to_le_bytes());
        bytes.extend_from_slice(&since.slot.to_le_bytes());
        bytes.extend_from_slice(&since.index.to_le_bytes());
        bytes[COUNT_AT] += 1;
    }
    bytes
}

/// Place of the number of listed databases.
const COUNT_AT: usize = 1 + 8;

/// Adds a stored table to the state of the same commit. One of another format is not damaged: a
/// later release has written it.
pub(super) fn read(table: &[u8], state: &mut State) -> Result<(), Failure> {
    match table.first() {
        Some(format) if *format != FORMAT => Err(Failure::Format(*format)),
        _ => decode(table, state)
            .map_err(|_| Failure::damaged("the table of databases makes no sense")),
    }
}

fn decode(bytes: &[u8], state: &mut State) -> Result<(), Malformed> {
    let mut from = Reader(bytes);
    if from.byte()? != FORMAT {
        return Err(Malformed);
    }
    let first = state.first();
    state.newest = from.word()?;
    if state.newest >= GENERATIONS_END {
        return Err(Malformed);
    }
    state.has_table = true;
    state.spaces = [None; Database::COUNT];
    let mut last = None;
    for _ in 0..from.byte()? {
        let database = Database::new(from.byte()?.into()).ok_or(Malformed)?;
        let flags = from.byte()?;
        let (generation, keys) = (from.word()?, from.word()?);
        let since = Version { slot: from.word()?, index: from.half()? };
        if last >= Some(database) || flags & !(INDEXED | HAS_CONTENTS) != 0 {
            return Err(Malformed);
        }
        last = Some(database);
        state.since[database.index()] = since;
        if flags & HAS_CONTENTS != 0 {
            let known = state.spaces.iter().flatten();
            if generation > state.newest || known.into_iter().any(|s| s.generation == generation) {
                return Err(Malformed);
            }
            let indexed = flags & INDEXED != 0;
            state.spaces[database.index()] = Some(Space { generation, keys, indexed });
        }
    }
    let listed = state.spaces[0].ok_or(Malformed)?;
    if !from.0.is_empty() || (listed.generation, listed.keys) != (first.generation, first.keys) {
        return Err(Malformed);
    }
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn half(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use quorate_core::slot::Slot;

    use super::*;
    use crate::store::{Store as _, lsm::LsmStore};

    const VERSION: Version = Version { slot: 1, index: 0 };

    fn state() -> State {
        let mut state = State { applied_position: Slot(9), newest: 12, ..State::EMPTY };
        state.spaces[0] = Some(Space { generation: 7, keys: 300, indexed: true });
        state.spaces[3] = Some(Space { generation: 12, keys: 1, indexed: true });
        state.spaces[15] = Some(Space { generation: 2, keys: 0, indexed: false });
        state.since[3] = Version { slot: 8, index: 5 };
        state.since[4] = Version { slot: 1, index: 0 };
        state.has_table = true;
        state
    }

    /// Returns the state after a restart.
    fn restarted(state: &State, table: &[u8]) -> Result<State, Malformed> {
        let mut restarted = State::from_bytes(&state.to_bytes()).unwrap();
        decode(table, &mut restarted)?;
        Ok(restarted)
    }

    #[test]
    fn table_is_read_as_it_was_written() {
        let state = state();
        let table = encode(&state);
        assert_eq!(table.len(), 1 + 8 + 1 + 4 * 30);
        assert_eq!(table[..12], [1, 12, 0, 0, 0, 0, 0, 0, 0, 4, 0, 3]);
        assert_eq!(restarted(&state, &table), Ok(state));
    }

    #[test]
    fn table_that_no_store_has_written_is_refused() {
        let state = state();
        let table = encode(&state);
        for end in 0..table.len() {
            assert!(restarted(&state, &table[..end]).is_err(), "{end}");
        }
        assert!(restarted(&state, &[&table[..], &[0]].concat()).is_err());
        let spoils: [(usize, u8); 9] = [
            (0, 2),        // Unknown format.
            (1, 11),       // A generation above the newest one.
            (6, 128),      // More generations than stored keys have room for.
            (10, 1),       // No database 0.
            (11, 7),       // Unknown flag.
            (12, 8),       // Another generation than in the state.
            (20, 1),       // Another number of keys.
            (10 + 30, 16), // No such database.
            (10 + 60, 3),  // A database twice.
        ];
        for (at, byte) in spoils {
            let mut spoiled = table.clone();
            spoiled[at] = byte;
            assert!(restarted(&state, &spoiled).is_err(), "{at}");
        }
        let mut twice = state;
        twice.spaces[15] = Some(Space { generation: 12, keys: 0, indexed: true });
        assert!(restarted(&state, &encode(&twice)).is_err());
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for another thread")]
    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn opened(folder: &tempfile::TempDir) -> LsmStore {
        LsmStore::open(&folder.path().join("kv")).unwrap().0
    }

    /// Writes a key in each of some databases, and commits.
    fn write(store: &mut LsmStore, databases: &[u64], slot: u64) {
        for number in databases {
            store.select(Database::new(*number).unwrap());
            store.put(b"k".into(), b"v", VERSION, None);
        }
        commit(store, slot);
    }

    fn clear(store: &mut LsmStore, database: u64, slot: u64) {
        store.select(Database::new(database).unwrap());
        store.clear();
        commit(store, slot);
    }

    fn commit(store: &mut LsmStore, slot: u64) {
        store.select(Database::ZERO);
        store.commit(Slot(slot), &[]);
        store.persist().unwrap();
    }

    /// The table is stored from the first write in another database on, and stays after the last.
    #[test]
    fn table_is_stored_once_there_was_another_database() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(&folder);
        write(&mut store, &[0], 2);
        let has_table = |store: &LsmStore| {
            let tree = store.tree.as_ref().unwrap();
            tree.get(&super::super::layout::DATABASES_KEY).unwrap().is_some()
        };
        assert!(!has_table(&store));
        write(&mut store, &[3], 3);
        assert!(has_table(&store));
        drop(store);
        let mut store = opened(&folder);
        store.select(Database::new(3).unwrap());
        assert_eq!(store.len(), 1);
        clear(&mut store, 3, 4);
        drop(store);
        let mut store = opened(&folder);
        assert_eq!((store.state.spaces[3], store.newest_generation), (None, 1));
        // Keys of an ended generation may still be stored, so no other begins among them.
        write(&mut store, &[3], 5);
        assert_eq!(store.state.spaces[3].unwrap().generation, 2);
        assert!(has_table(&store));
    }

    /// A flushed database is removed from the disk, also if its generation was the last one, and
    /// also by the next process.
    #[test]
    fn flushed_databases_are_purged() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(&folder);
        write(&mut store, &[0, 1, 2], 2);
        let live = store.state.live_generations();
        assert_eq!(live, [0, 1, 2]);
        until("a purge", || store.writer.purged_below(&live) == 2);
        write(&mut store, &[0], 3);
        assert_eq!(store.state.oldest, 2);
        store.select(Database::new(1).unwrap());
        store.clear();
        assert_eq!(store.state.oldest, 1);
        commit(&mut store, 4);
        // The keys of databases 0 and 2, the state and the table.
        until("the purge of database 1", || store.stored_entries() == 2 + 2);
        clear(&mut store, 2, 5);
        until("the purge of database 2", || store.stored_entries() == 1 + 2);
        drop(store);
        let store = opened(&folder);
        assert_eq!((store.len(), store.state.live_generations()), (1, vec![0]));
    }
}
