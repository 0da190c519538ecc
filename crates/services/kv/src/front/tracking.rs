//! CLIENT TRACKING on one node: the keys cached by its clients, and the clients to notify of a
//! change.
//!
//! A client is notified when this node executes a change. The key is then removed from the table
//! until it is read again. A key is entered when its read is *requested*, and a notice is queued
//! after the open requests, so no reply with the old value follows the notice.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::ConnectionId;

/// Maximum number of keys in the table, as in Redis. Each further key evicts another, whose readers
/// are notified as if it had changed.
const KEYS_MAX: usize = 1_000_000;
/// Maximum size in bytes of the keys in the table.
const BYTES_MAX: usize = 64 << 20;
/// Memory for a key in addition to its bytes, and for each reader.
const KEY_BYTES: usize = 128;
const READER_BYTES: usize = 16;

/// Keys that a client caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cached {
    /// All keys that it reads.
    Read,
    /// Keys that it reads immediately after CLIENT CACHING YES (OPTIN).
    ReadIfAsked,
    /// Keys that it reads, except immediately after CLIENT CACHING NO (OPTOUT).
    ReadUnlessAsked,
    /// All keys with one of the given prefixes (BCAST).
    Prefixes(Vec<Box<[u8]>>),
}

/// State of CLIENT TRACKING on a connection.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) cached: Cached,
    /// Connection that receives the notices instead of this one.
    pub(super) redirect: Option<ConnectionId>,
    /// True if NOLOOP was given. Only TRACKINGINFO shows it: a node does not know which client made
    /// a change, so a client is notified of its own changes too.
    pub(super) noloop: bool,
    /// True if CLIENT CACHING preceded this request, or the MULTI of this transaction.
    pub(super) asked: bool,
}

impl Tracked {
    /// Returns the memory that the prefixes take here and in [`Tracking`].
    pub(super) fn held_bytes(&self) -> usize {
        match &self.cached {
            Cached::Prefixes(all) => all.iter().map(|prefix| 2 * cost(prefix, 1)).sum(),
            _ => 0,
        }
    }

    pub(super) const fn caches_reads(&self) -> bool {
        match self.cached {
            Cached::Read => true,
            Cached::ReadIfAsked => self.asked,
            Cached::ReadUnlessAsked => !self.asked,
            Cached::Prefixes(_) => false,
        }
    }
}

/// Key removed from the table, with its readers, which are notified as if it had changed.
pub(super) type Forgotten = (Box<[u8]>, BTreeSet<ConnectionId>);

/// Table of keys and prefixes, with the clients that cache them.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    readers: BTreeMap<Box<[u8]>, BTreeSet<ConnectionId>>,
    /// Size in bytes of `readers`.
    bytes: usize,
    /// Clients that cache the keys that they read.
    reading: BTreeSet<ConnectionId>,
    prefixes: BTreeMap<Box<[u8]>, BTreeSet<ConnectionId>>,
    /// Number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
}

impl Tracking {
    pub(super) fn enter(&mut self, client: ConnectionId, cached: &Cached) {
        let Cached::Prefixes(prefixes) = cached else {
            self.reading.insert(client);
            return;
        };
        for prefix in prefixes {
            let clients = self.prefixes.entry(prefix.clone()).or_default();
            if clients.is_empty() {
                *self.lengths.entry(prefix.len()).or_default() += 1;
            }
            clients.insert(client);
        }
    }

    /// Removes a client. Its keys stay until they change or are evicted.
    pub(super) fn leave(&mut self, client: ConnectionId, cached: &Cached) {
        let Cached::Prefixes(prefixes) = cached else {
            self.reading.remove(&client);
            return;
        };
        for prefix in prefixes {
            let Some(clients) = self.prefixes.get_mut(prefix) else { continue };
            clients.remove(&client);
            if clients.is_empty() {
                self.prefixes.remove(prefix);
                let count = self.lengths.entry(prefix.len()).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.lengths.remove(&prefix.len());
                }
            }
        }
    }

    /// Removes keys that no client caches. Returns whether any client is left.
    pub(super) fn settle(&mut self) -> bool {
        if self.reading.is_empty() {
            self.take_all();
        }
        !self.reading.is_empty() || !self.prefixes.is_empty()
    }

    /// Returns the number of clients, keys and prefixes.
    pub(super) fn counts(&self) -> [usize; 3] {
        let by_prefix: BTreeSet<&ConnectionId> = self.prefixes.values().flatten().collect();
        [self.reading.len() + by_prefix.len(), self.readers.len(), self.prefixes.len()]
    }

    /// Records that a client has requested a key. Returns the evicted keys.
    #[must_use = "readers are to be told"]
    pub(super) fn remember(&mut self, client: ConnectionId, key: &[u8]) -> Vec<Forgotten> {
        let Self { readers, bytes, reading, .. } = self;
        if let Some(readers) = readers.get_mut(key) {
            if readers.insert(client) {
                *bytes += READER_BYTES;
                // Otherwise, clients that have left would stay here until the key changes.
                if readers.len().is_power_of_two() {
                    let before = readers.len();
                    readers.retain(|reader| reading.contains(reader));
                    *bytes -= (before - readers.len()) * READER_BYTES;
                }
            }
        } else {
            readers.insert(key.into(), BTreeSet::from([client]));
            *bytes += cost(key, 1);
        }
        let mut forgotten = Vec::new();
        while *bytes > BYTES_MAX || readers.len() > KEYS_MAX {
            let Some((key, readers)) = readers.pop_first() else { break };
            *bytes -= cost(&key, readers.len());
            forgotten.push((key, readers));
        }
        forgotten
    }

    /// Returns the clients that may cache a key, and removes it from the table.
    pub(super) fn take(&mut self, key: &[u8]) -> BTreeSet<ConnectionId> {
        let mut all = self.readers.remove(key).unwrap_or_default();
        if !all.is_empty() {
            self.bytes -= cost(key, all.len());
        }
        for length in self.lengths.range(..=key.len()).map(|(length, _)| *length) {
            all.extend(self.prefixes.get(&key[..length]).into_iter().flatten());
        }
        all
    }

    /// Removes all keys.
    pub(super) fn take_all(&mut self) {
        self.readers.clear();
        self.bytes = 0;
    }
}

fn cost(key: &[u8], readers: usize) -> usize {
    key.len() + KEY_BYTES + readers * READER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_limit_are_forgotten_with_their_readers() {
        let mut tracking = Tracking::default();
        tracking.enter(ConnectionId(1), &Cached::Read);
        let mut forgotten = Vec::new();
        for number in 0..100_u8 {
            let mut key = vec![0; 1 << 20];
            key[0] = number;
            forgotten.extend(tracking.remember(ConnectionId(1), &key));
        }
        assert_eq!(forgotten.len(), 37, "63 keys of 1 MiB and a little");
        let readers = forgotten.iter().all(|(_, readers)| readers.len() == 1);
        assert!(readers && forgotten.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(tracking.bytes <= BYTES_MAX);
        tracking.leave(ConnectionId(1), &Cached::Read);
        assert!(!tracking.settle());
        assert_eq!((tracking.bytes, tracking.counts()), (0, [0; 3]));
    }

    #[test]
    fn disconnected_readers_do_not_accumulate() {
        let mut tracking = Tracking::default();
        for client in 0..10_000 {
            tracking.enter(ConnectionId(client), &Cached::Read);
            assert!(tracking.remember(ConnectionId(client), b"hot").is_empty());
            tracking.leave(ConnectionId(client), &Cached::Read);
        }
        assert!(tracking.readers[&b"hot"[..]].len() <= 2);
        assert_eq!(tracking.take(b"hot").len(), tracking.take(b"hot").len() + 1);
        assert_eq!(tracking.bytes, 0);
    }

    #[test]
    fn prefixes_of_a_client_end_with_it() {
        let mut tracking = Tracking::default();
        let of = |names: &[&str]| {
            Cached::Prefixes(names.iter().map(|name| name.as_bytes().into()).collect())
        };
        let (one, both) = (of(&["a"]), of(&["a", "bc"]));
        tracking.enter(ConnectionId(1), &one);
        tracking.enter(ConnectionId(2), &both);
        assert_eq!(tracking.take(b"abc").len(), 2);
        assert_eq!(tracking.take(b"bcd").len(), 1);
        tracking.leave(ConnectionId(2), &both);
        assert_eq!((tracking.take(b"abc").len(), tracking.take(b"bcd").len()), (1, 0));
        tracking.leave(ConnectionId(1), &one);
        assert!(!tracking.settle() && tracking.lengths.is_empty());
    }
}
