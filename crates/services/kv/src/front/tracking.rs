//! Keys that clients cache, from which a change of a key finds the clients to tell (CLIENT
//! TRACKING).
//!
//! A client is told when this node executes a change, and its key is then forgotten until it is
//! read again. A key is entered when its read is *requested*, and a notice takes its place behind
//! the requests that are open, so no reply with the old value follows it.

use std::collections::BTreeMap;

use quorate_replica::front::ConnectionId;

use crate::commands::events::Setting;

/// Maximum number of keys that are remembered, as in Redis. Beyond, one is forgotten for each that
/// comes, and its clients are told as if it had changed.
const KEYS_MAX: usize = 1_000_000;
/// Maximum size in bytes of the keys that are remembered, and of all clients' prefixes.
const BYTES_MAX: usize = 64 << 20;
/// Memory of a key besides its bytes.
const KEY_BYTES: usize = 64;

/// Part of the keys that a client caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cached {
    /// The keys that it reads.
    Read,
    /// The keys that it reads right after CLIENT CACHING YES.
    ReadIfAsked,
    /// The keys that it reads, unless right after CLIENT CACHING NO.
    ReadUnlessAsked,
    /// All keys with one of these prefixes.
    Prefixes(Vec<Box<[u8]>>),
}

/// Setting of CLIENT TRACKING.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) cached: Cached,
    /// Connection that gets the notices instead.
    pub(super) redirect: Option<ConnectionId>,
    /// Shown by TRACKINGINFO. A node does not know whose change it executes, so a client is told
    /// of its own changes as well.
    pub(super) noloop: bool,
    /// CLIENT CACHING came right before this request, or before the MULTI of this transaction.
    pub(super) asked: bool,
}

impl Tracked {
    pub(super) const fn caches_reads(&self) -> bool {
        match self.cached {
            Cached::Read => true,
            Cached::ReadIfAsked => self.asked,
            Cached::ReadUnlessAsked => !self.asked,
            Cached::Prefixes(_) => false,
        }
    }
}

/// Clients to tell of a change.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    readers: BTreeMap<Box<[u8]>, Vec<ConnectionId>>,
    bytes: usize,
    prefixes: BTreeMap<ConnectionId, Vec<Box<[u8]>>>,
    /// Number of clients that cache the keys that they read.
    reading: usize,
}

impl Tracking {
    pub(super) fn enter(&mut self, client: ConnectionId, cached: &Cached, events: &Setting) {
        match cached {
            Cached::Prefixes(prefixes) => {
                self.bytes += bytes_of(prefixes);
                self.prefixes.insert(client, prefixes.clone());
            }
            _ => self.reading += 1,
        }
        events.track(true);
    }

    /// Removes a client. Its keys stay until they change.
    pub(super) fn leave(&mut self, client: ConnectionId, cached: &Cached, events: &Setting) {
        match cached {
            Cached::Prefixes(_) => {
                let prefixes = self.prefixes.remove(&client).unwrap_or_default();
                self.bytes -= bytes_of(&prefixes);
            }
            _ => self.reading -= 1,
        }
        if self.reading == 0 {
            self.take_all();
        }
        events.track(self.reading + self.prefixes.len() > 0);
    }

    /// Records that a client requested a key. Returns the keys that had to be forgotten for it.
    #[must_use = "their readers are to be told"]
    pub(super) fn remember(&mut self, client: ConnectionId, key: &[u8]) -> Vec<Box<[u8]>> {
        if let Some(readers) = self.readers.get_mut(key) {
            if !readers.contains(&client) {
                readers.push(client);
                self.bytes += size_of::<ConnectionId>();
            }
        } else {
            self.readers.insert(key.into(), vec![client]);
            self.bytes += cost(key, 1);
        }
        let (mut forgotten, mut excess) = (Vec::new(), self.bytes.saturating_sub(BYTES_MAX));
        while excess > 0 || self.readers.len() - forgotten.len() > KEYS_MAX {
            let Some((key, readers)) = self.readers.iter().nth(forgotten.len()) else { break };
            excess = excess.saturating_sub(cost(key, readers.len()));
            forgotten.push(key.clone());
        }
        forgotten
    }

    /// Returns the clients that may cache a key, and forgets its readers.
    pub(super) fn take(&mut self, key: &[u8]) -> Vec<ConnectionId> {
        let readers = self.readers.remove(key).unwrap_or_default();
        if !readers.is_empty() {
            self.bytes -= cost(key, readers.len());
        }
        let matching =
            |prefixes: &[Box<[u8]>]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let all = self.prefixes.iter().filter(|(_, prefixes)| matching(prefixes));
        readers.into_iter().chain(all.map(|(client, _)| *client)).collect()
    }

    /// Forgets all readers.
    pub(super) fn take_all(&mut self) {
        let of_readers = self.readers.iter().map(|(key, readers)| cost(key, readers.len()));
        self.bytes -= of_readers.sum::<usize>();
        self.readers.clear();
    }
}

fn cost(key: &[u8], readers: usize) -> usize {
    key.len() + KEY_BYTES + readers * size_of::<ConnectionId>()
}

fn bytes_of(prefixes: &[Box<[u8]>]) -> usize {
    prefixes.iter().map(|prefix| cost(prefix, 0)).sum()
}
