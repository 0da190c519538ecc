//! Subscriptions of the other nodes' clients, so that the replies of PUBLISH and PUBSUB count those
//! of the whole cluster.
//!
//! A node announces through the log how many of its clients subscribe to each name: at once, then at
//! most every 100 ms, and only what has changed. An announcement changes no data: each node passes it
//! to its front, like a message. When a node loses the connection to another one, it forgets that
//! one's counts, and when it gets one back, it announces all of its own. A node that may have missed
//! announcements, as after loading a snapshot, asks for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    command::SubscriptionKind,
    commands::channels::{Announcement, Subscribed},
    waits::Owner,
};

/// Minimum time between two announcements.
const ANNOUNCE_MS: u64 = 100;
/// Time after which an announcement that was refused is sent again.
const RETRY_MS: u64 = 1000;
/// Maximum number of names in an announcement; more follow in the next one.
const NAMES_MAX: usize = 512;
/// Maximum number of a node's names that it announces, and of their bytes. The subscriptions beyond
/// count on their own node only.
const ANNOUNCED_MAX: usize = 65_536;
const ANNOUNCED_BYTES_MAX: usize = 16 << 20;

/// Subscription to a name, by the number of its kind.
type Subject = (u8, Box<[u8]>);

/// Subscriptions of a node's clients, as it has announced them.
#[derive(Debug, Default)]
struct Announced {
    life: u64,
    counts: BTreeMap<Subject, u64>,
}

/// Announcement in flight.
#[derive(Debug)]
struct Sent {
    names: Vec<Subject>,
    begins: bool,
    asks: bool,
}

/// Subscriptions of all nodes' clients besides those of this node.
#[derive(Debug, Default)]
pub(super) struct Census {
    owner: Option<Owner>,
    others: BTreeMap<u32, Announced>,
    /// Nodes connected at the last look.
    connected: BTreeSet<u32>,
    look_at_ms: u64,
    /// Names whose counts have changed since they were announced.
    changed: BTreeSet<Subject>,
    /// Names that have been announced with subscribers.
    announced: BTreeSet<Subject>,
    bytes: usize,
    sent: Option<Sent>,
    /// The first announcement of this process has been decided.
    has_begun: bool,
    /// The others have been asked for their counts.
    has_asked: bool,
    /// A client has needed a count, or has subscribed.
    is_used: bool,
    next_at_ms: u64,
}

impl Census {
    /// Records that the number of this node's subscribers to a name has changed.
    pub(super) fn note_changed(&mut self, of: SubscriptionKind, name: &[u8]) {
        let subject = (of.number(), name.into());
        if self.announced.contains(&subject) || self.has_room(name) {
            self.changed.insert(subject);
            self.is_used = true;
        }
    }

    fn has_room(&self, name: &[u8]) -> bool {
        self.announced.len() + self.changed.len() < ANNOUNCED_MAX
            && self.bytes + name.len() <= ANNOUNCED_BYTES_MAX
    }

    /// Records that a client needs counts.
    pub(super) const fn note_used(&mut self) {
        self.is_used = true;
    }

    /// Records that this node may have missed announcements.
    pub(super) const fn note_missed(&mut self) {
        self.has_asked = false;
    }

    /// Records an announcement, perhaps of this node. `own` lists this node's names.
    pub(super) fn record(
        &mut self,
        announcement: &Announcement<'_>,
        own: impl Iterator<Item = (SubscriptionKind, Box<[u8]>)>,
    ) {
        if self.owner == Some(announcement.owner) {
            return;
        }
        let node = self.others.entry(announcement.owner.node).or_default();
        if announcement.begins || node.life != announcement.owner.life {
            *node = Announced { life: announcement.owner.life, ..Announced::default() };
        }
        for Subscribed { of, name, count } in announcement.names() {
            let subject = (of.number(), name.into());
            match count {
                0 => drop(node.counts.remove(&subject)),
                _ => drop(node.counts.insert(subject, count)),
            }
        }
        if announcement.asks {
            own.for_each(|(of, name)| self.note_changed(of, &name));
        }
    }

    /// Returns whether an announcement is due.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let has_some = !self.has_begun || !self.has_asked || !self.changed.is_empty();
        self.is_used && has_some && self.sent.is_none() && self.next_at_ms <= now_ms
    }

    /// Puts the next announcement off.
    pub(super) const fn wait(&mut self, now_ms: u64) {
        self.next_at_ms = now_ms + RETRY_MS;
    }

    /// Returns the time of the next announcement in Unix milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        self.is_due(u64::MAX).then_some(self.next_at_ms)
    }

    /// Encodes the next announcement. `count` returns the number of this node's subscribers.
    pub(super) fn next(
        &mut self,
        owner: Owner,
        now_ms: u64,
        count: impl Fn(&Subject) -> usize,
    ) -> Vec<u8> {
        self.owner = Some(owner);
        self.next_at_ms = now_ms + ANNOUNCE_MS;
        let mut names = Vec::new();
        while names.len() < NAMES_MAX
            && let Some(subject) = self.changed.pop_first()
        {
            names.push(subject);
        }
        let counted = names.iter().filter_map(|subject| {
            let of = SubscriptionKind::from_number(subject.0)?;
            Some(Subscribed { of, name: &subject.1, count: count(subject) as u64 })
        });
        let (begins, asks) = (!self.has_begun, !self.has_asked);
        let command = Announcement::encode(owner, begins, asks, counted);
        for subject in &names {
            let has_some = count(subject) > 0;
            if has_some && self.announced.insert(subject.clone()) {
                self.bytes += subject.1.len();
            } else if !has_some && self.announced.remove(subject) {
                self.bytes -= subject.1.len();
            }
        }
        self.sent = Some(Sent { names, begins, asks });
        command
    }

    /// Handles the end of the announcement in flight.
    pub(super) fn ended(&mut self, is_decided: bool, now_ms: u64) {
        let Some(sent) = self.sent.take() else {
            return;
        };
        if is_decided {
            self.has_begun |= sent.begins;
            self.has_asked |= sent.asks;
        } else {
            self.changed.extend(sent.names);
            self.wait(now_ms);
        }
    }

    /// Returns whether to look which nodes are connected.
    pub(super) const fn is_look_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.is_used && self.look_at_ms <= now_ms;
        if is_due {
            self.look_at_ms = now_ms + ANNOUNCE_MS;
        }
        is_due
    }

    /// Sets the connected nodes. Returns whether one of them was not connected before, so that it may
    /// lack announcements.
    pub(super) fn set_connected(&mut self, nodes: BTreeSet<u32>) -> bool {
        self.others.retain(|node, _| nodes.contains(node));
        let is_new = !nodes.is_subset(&self.connected);
        self.connected = nodes;
        is_new
    }

    /// Returns the number of the other nodes' subscribers to a name.
    pub(super) fn count(&self, of: SubscriptionKind, name: &[u8]) -> usize {
        let subject = (of.number(), name.into());
        let counts = self.others.values().filter_map(|node| node.counts.get(&subject));
        counts.fold(0, |sum, count| sum.saturating_add(usize::try_from(*count).unwrap_or(0)))
    }

    /// Returns the other nodes' names of a kind with their numbers of subscribers.
    pub(super) fn names(&self, of: SubscriptionKind) -> impl Iterator<Item = (&[u8], u64)> {
        let range = (of.number(), Box::default())..(of.number() + 1, Box::default());
        self.others
            .values()
            .flat_map(move |node| node.counts.range(range.clone()))
            .map(|((_, name), count)| (&**name, *count))
    }
}
