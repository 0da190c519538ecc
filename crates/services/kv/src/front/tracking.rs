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
pub(super) enum CachedKeys {
    /// All keys that it reads.
    Read,
    /// Keys that it reads immediately after CLIENT CACHING YES (OPTIN).
    ReadOnOptIn,
    /// Keys that it reads, except immediately after CLIENT CACHING NO (OPTOUT).
    ReadUnlessOptOut,
    /// All keys with one of the given prefixes (BCAST).
    Prefixes(Vec<Box<[u8]>>),
}

/// State of CLIENT TRACKING on a connection.
#[derive(Clone, Debug)]
pub(super) struct TrackingState {
    pub(super) cached: CachedKeys,
    /// Connection that receives the notices instead of this one.
    pub(super) redirect: Option<ConnectionId>,
    /// True if NOLOOP was given. Only TRACKINGINFO shows it: a node does not know which client made
    /// a change, so a client is notified of its own changes too.
    pub(super) noloop: bool,
    /// True if CLIENT CACHING preceded this request, or the MULTI of this transaction.
    pub(super) caching_was_set: bool,
}

impl TrackingState {
    /// Returns the memory that the prefixes take here and in [`TrackingTable`].
    pub(super) fn held_bytes(&self) -> usize {
        match &self.cached {
            CachedKeys::Prefixes(all) => all.iter().map(|prefix| 2 * cost(prefix, 1)).sum(),
            _ => 0,
        }
    }

    pub(super) const fn caches_reads(&self) -> bool {
        match self.cached {
            CachedKeys::Read => true,
            CachedKeys::ReadOnOptIn => self.caching_was_set,
            CachedKeys::ReadUnlessOptOut => !self.caching_was_set,
            CachedKeys::Prefixes(_) => false,
        }
    }
}

/// Key removed from the table, with its readers, which are notified as if it had changed.
pub(super) type EvictedKey = (Box<[u8]>, BTreeSet<ConnectionId>);

/// Table of keys and prefixes, with the clients that cache them.
#[derive(Debug, Default)]
pub(super) struct TrackingTable {
    readers_by_key: BTreeMap<Box<[u8]>, BTreeSet<ConnectionId>>,
    /// Size in bytes of `readers_by_key`.
    bytes: usize,
    /// Clients that cache the keys that they read.
    reading_clients: BTreeSet<ConnectionId>,
    clients_by_prefix: BTreeMap<Box<[u8]>, BTreeSet<ConnectionId>>,
    /// Number of prefixes of each length.
    prefix_lengths: BTreeMap<usize, usize>,
}

impl TrackingTable {
    pub(super) fn add_client(&mut self, client: ConnectionId, cached: &CachedKeys) {
        let CachedKeys::Prefixes(prefixes) = cached else {
            self.reading_clients.insert(client);
            return;
        };
        for prefix in prefixes {
            let clients = self.clients_by_prefix.entry(prefix.clone()).or_default();
            if clients.is_empty() {
                *self.prefix_lengths.entry(prefix.len()).or_default() += 1;
            }
            clients.insert(client);
        }
    }

    /// Removes a client. Its keys stay until they change or are evicted.
    pub(super) fn remove_client(&mut self, client: ConnectionId, cached: &CachedKeys) {
        let CachedKeys::Prefixes(prefixes) = cached else {
            self.reading_clients.remove(&client);
            return;
        };
        for prefix in prefixes {
            let Some(clients) = self.clients_by_prefix.get_mut(prefix) else { continue };
            clients.remove(&client);
            if clients.is_empty() {
                self.clients_by_prefix.remove(prefix);
                let count = self.prefix_lengths.entry(prefix.len()).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.prefix_lengths.remove(&prefix.len());
                }
            }
        }
    }

    /// Removes keys that no client caches. Returns whether any client is left.
    pub(super) fn remove_unused_keys(&mut self) -> bool {
        if self.reading_clients.is_empty() {
            self.clear_keys();
        }
        !self.reading_clients.is_empty() || !self.clients_by_prefix.is_empty()
    }

    /// Returns the number of clients, keys and prefixes.
    pub(super) fn table_counts(&self) -> [usize; 3] {
        let by_prefix: BTreeSet<&ConnectionId> =
            self.clients_by_prefix.values().flatten().collect();
        [
            self.reading_clients.len() + by_prefix.len(),
            self.readers_by_key.len(),
            self.clients_by_prefix.len(),
        ]
    }

    /// Records that a client has requested a key. Returns the evicted keys.
    #[must_use = "readers are to be told"]
    pub(super) fn record_read(&mut self, client: ConnectionId, key: &[u8]) -> Vec<EvictedKey> {
        let Self { readers_by_key: readers, bytes, reading_clients: reading, .. } = self;
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
    pub(super) fn take_readers(&mut self, key: &[u8]) -> BTreeSet<ConnectionId> {
        let mut all = self.readers_by_key.remove(key).unwrap_or_default();
        if !all.is_empty() {
            self.bytes -= cost(key, all.len());
        }
        for length in self.prefix_lengths.range(..=key.len()).map(|(length, _)| *length) {
            all.extend(self.clients_by_prefix.get(&key[..length]).into_iter().flatten());
        }
        all
    }

    /// Removes all keys.
    pub(super) fn clear_keys(&mut self) {
        self.readers_by_key.clear();
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
        let mut tracking = TrackingTable::default();
        tracking.add_client(ConnectionId(1), &CachedKeys::Read);
        let mut forgotten = Vec::new();
        for number in 0..100_u8 {
            let mut key = vec![0; 1 << 20];
            key[0] = number;
            forgotten.extend(tracking.record_read(ConnectionId(1), &key));
        }
        assert_eq!(forgotten.len(), 37, "63 keys of 1 MiB and a little");
        let readers = forgotten.iter().all(|(_, readers)| readers.len() == 1);
        assert!(readers && forgotten.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(tracking.bytes <= BYTES_MAX);
        tracking.remove_client(ConnectionId(1), &CachedKeys::Read);
        assert!(!tracking.remove_unused_keys());
        assert_eq!((tracking.bytes, tracking.table_counts()), (0, [0; 3]));
    }

    #[test]
    fn disconnected_readers_do_not_accumulate() {
        let mut tracking = TrackingTable::default();
        for client in 0..10_000 {
            tracking.add_client(ConnectionId(client), &CachedKeys::Read);
            assert!(tracking.record_read(ConnectionId(client), b"hot").is_empty());
            tracking.remove_client(ConnectionId(client), &CachedKeys::Read);
        }
        assert!(tracking.readers_by_key[&b"hot"[..]].len() <= 2);
        assert_eq!(tracking.take_readers(b"hot").len(), tracking.take_readers(b"hot").len() + 1);
        assert_eq!(tracking.bytes, 0);
    }

    #[test]
    fn prefixes_of_a_client_end_with_it() {
        let mut tracking = TrackingTable::default();
        let of = |names: &[&str]| {
            CachedKeys::Prefixes(names.iter().map(|name| name.as_bytes().into()).collect())
        };
        let (one, both) = (of(&["a"]), of(&["a", "bc"]));
        tracking.add_client(ConnectionId(1), &one);
        tracking.add_client(ConnectionId(2), &both);
        assert_eq!(tracking.take_readers(b"abc").len(), 2);
        assert_eq!(tracking.take_readers(b"bcd").len(), 1);
        tracking.remove_client(ConnectionId(2), &both);
        assert_eq!(
            (tracking.take_readers(b"abc").len(), tracking.take_readers(b"bcd").len()),
            (1, 0)
        );
        tracking.remove_client(ConnectionId(1), &one);
        assert!(!tracking.remove_unused_keys() && tracking.prefix_lengths.is_empty());
    }
}
