//! Subscriptions of the other nodes' clients, so that the replies of PUBLISH and PUBSUB count those
//! of the whole cluster.
//!
//! A node announces through the log how many of its clients subscribe to each name: at once, then
//! at most every 100 ms, and only what has changed. An announcement changes no data: each node
//! passes it to its front, like a message. When a node loses the connection to another one, it
//! forgets that one's counts, and when it gets one back, it announces all of its own. A node that
//! may have missed announcements, as after loading a snapshot, asks for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    command::SubscriptionKind,
    commands::channels::{Announcement, Subscribed},
    waits::FrontId,
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
type SubscribedName = (u8, Box<[u8]>);

/// Subscriptions of a node's clients, as it has announced them.
#[derive(Debug, Default)]
struct NodeSubscriptions {
    incarnation: u64,
    counts: BTreeMap<SubscribedName, u64>,
}

/// Announcement in flight.
#[derive(Debug)]
struct SentAnnouncement {
    names: Vec<SubscribedName>,
    is_first: bool,
    requests_counts: bool,
}

/// Subscriptions of all nodes' clients besides those of this node.
#[derive(Debug, Default)]
pub(super) struct Census {
    owner: Option<FrontId>,
    by_node: BTreeMap<u32, NodeSubscriptions>,
    /// Nodes connected at the last look.
    connected_nodes: BTreeSet<u32>,
    next_check_ms: u64,
    /// Names whose counts have changed since they were announced.
    changed_names: BTreeSet<SubscribedName>,
    /// Names that have been announced with subscribers.
    announced_names: BTreeSet<SubscribedName>,
    bytes: usize,
    in_flight: Option<SentAnnouncement>,
    /// The first announcement of this process has been decided.
    first_is_decided: bool,
    /// The others have been asked for their counts.
    counts_requested: bool,
    /// A client has needed a count, or has subscribed.
    is_used: bool,
    next_announcement_ms: u64,
}

impl Census {
    /// Records that the number of this node's subscribers to a name has changed.
    pub(super) fn note_changed(&mut self, of: SubscriptionKind, name: &[u8]) {
        let subject = (of.number(), name.into());
        if self.announced_names.contains(&subject) || self.has_capacity(name) {
            self.changed_names.insert(subject);
            self.is_used = true;
        }
    }

    fn has_capacity(&self, name: &[u8]) -> bool {
        self.announced_names.len() + self.changed_names.len() < ANNOUNCED_MAX
            && self.bytes + name.len() <= ANNOUNCED_BYTES_MAX
    }

    /// Records that a client needs counts.
    pub(super) const fn note_used(&mut self) {
        self.is_used = true;
    }

    /// Records that this node may have missed announcements.
    pub(super) const fn note_missed(&mut self) {
        self.counts_requested = false;
    }

    /// Records an announcement, perhaps of this node. `own` lists this node's names.
    pub(super) fn record_announcement(
        &mut self,
        announcement: &Announcement<'_>,
        own: impl Iterator<Item = (SubscriptionKind, Box<[u8]>)>,
    ) {
        if self.owner == Some(announcement.owner) {
            return;
        }
        let node = self.by_node.entry(announcement.owner.node).or_default();
        if announcement.begins || node.incarnation != announcement.owner.incarnation {
            *node = NodeSubscriptions {
                incarnation: announcement.owner.incarnation,
                ..NodeSubscriptions::default()
            };
        }
        for Subscribed { of, name, count } in announcement.names() {
            let subject = (of.number(), name.into());
            match count {
                0 => drop(node.counts.remove(&subject)),
                _ => drop(node.counts.insert(subject, count)),
            }
        }
        if announcement.requests_counts {
            own.for_each(|(of, name)| self.note_changed(of, &name));
        }
    }

    /// Returns whether an announcement is due.
    pub(super) fn is_announcement_due(&self, now_ms: u64) -> bool {
        let has_some =
            !self.first_is_decided || !self.counts_requested || !self.changed_names.is_empty();
        self.is_used && has_some && self.in_flight.is_none() && self.next_announcement_ms <= now_ms
    }

    /// Puts the next announcement off.
    pub(super) const fn postpone_announcement(&mut self, now_ms: u64) {
        self.next_announcement_ms = now_ms + RETRY_MS;
    }

    /// Returns the time of the next announcement in Unix milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        self.is_announcement_due(u64::MAX).then_some(self.next_announcement_ms)
    }

    /// Encodes the next announcement. `count` returns the number of this node's subscribers.
    pub(super) fn next(
        &mut self,
        owner: FrontId,
        now_ms: u64,
        count: impl Fn(&SubscribedName) -> usize,
    ) -> Vec<u8> {
        self.owner = Some(owner);
        self.next_announcement_ms = now_ms + ANNOUNCE_MS;
        let mut names = Vec::new();
        while names.len() < NAMES_MAX
            && let Some(subject) = self.changed_names.pop_first()
        {
            names.push(subject);
        }
        let counted = names.iter().filter_map(|subject| {
            let of = SubscriptionKind::from_number(subject.0)?;
            Some(Subscribed { of, name: &subject.1, count: count(subject) as u64 })
        });
        let (begins, asks) = (!self.first_is_decided, !self.counts_requested);
        let command = Announcement::encode(owner, begins, asks, counted);
        for subject in &names {
            let has_some = count(subject) > 0;
            if has_some && self.announced_names.insert(subject.clone()) {
                self.bytes += subject.1.len();
            } else if !has_some && self.announced_names.remove(subject) {
                self.bytes -= subject.1.len();
            }
        }
        self.in_flight = Some(SentAnnouncement { names, is_first: begins, requests_counts: asks });
        command
    }

    /// Handles the end of the announcement in flight.
    pub(super) fn end_announcement(&mut self, is_decided: bool, now_ms: u64) {
        let Some(sent) = self.in_flight.take() else {
            return;
        };
        if is_decided {
            self.first_is_decided |= sent.is_first;
            self.counts_requested |= sent.requests_counts;
        } else {
            self.changed_names.extend(sent.names);
            self.postpone_announcement(now_ms);
        }
    }

    /// Returns whether to look which nodes are connected.
    pub(super) const fn is_connection_check_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.is_used && self.next_check_ms <= now_ms;
        if is_due {
            self.next_check_ms = now_ms + ANNOUNCE_MS;
        }
        is_due
    }

    /// Sets the connected nodes. Returns whether one of them was not connected before, so that it
    /// may lack announcements.
    pub(super) fn set_connected(&mut self, nodes: BTreeSet<u32>) -> bool {
        self.by_node.retain(|node, _| nodes.contains(node));
        let is_new = !nodes.is_subset(&self.connected_nodes);
        self.connected_nodes = nodes;
        is_new
    }

    /// Returns the number of the other nodes' subscribers to a name.
    pub(super) fn count(&self, of: SubscriptionKind, name: &[u8]) -> usize {
        let subject = (of.number(), name.into());
        let counts = self.by_node.values().filter_map(|node| node.counts.get(&subject));
        counts.fold(0, |sum, count| sum.saturating_add(usize::try_from(*count).unwrap_or(0)))
    }

    /// Returns the other nodes' names of a kind with their numbers of subscribers.
    pub(super) fn names(&self, of: SubscriptionKind) -> impl Iterator<Item = (&[u8], u64)> {
        let range = (of.number(), Box::default())..(of.number() + 1, Box::default());
        self.by_node
            .values()
            .flat_map(move |node| node.counts.range(range.clone()))
            .map(|((_, name), count)| (&**name, *count))
    }
}
