//! Subscriptions of this node's clients to channels, patterns and shard channels.
//!
//! SUBSCRIBE is a linearizable read without a query. When it is answered, this node has applied
//! every message published before, so the client receives no old one. Messages published later, on
//! any node, are applied later on this node, so the client receives them all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_replica::front::ConnectionId;

use super::census::Census;
use crate::{
    command::{Refusal, SubscriptionKind},
    commands::state::Items,
    encode::Decoder,
    glob,
    op::Op,
    resp::{reply::Reply, request::Arguments},
};

/// Maximum number of channels per connection, and separately of shard channels.
const CHANNELS_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 1024;
/// Maximum number of patterns per connection. Each message is matched against all of them.
const PATTERNS_MAX: usize = 128;
const PATTERN_BYTES_MAX: usize = 256;

/// Subscribers by channel or pattern.
type Listeners = BTreeMap<Box<[u8]>, BTreeSet<ConnectionId>>;

/// Subscriptions of all connections on this node.
#[derive(Debug, Default)]
pub(super) struct Channels {
    channels: Listeners,
    patterns: Listeners,
    shards: Listeners,
    /// Names whose numbers of subscribers have changed since they were last taken.
    changed_names: Vec<(SubscriptionKind, Box<[u8]>)>,
}

impl Channels {
    const fn listeners_mut(&mut self, of: SubscriptionKind) -> &mut Listeners {
        match of {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }

    fn add_subscriber(&mut self, of: SubscriptionKind, name: &[u8], connection: ConnectionId) {
        let listeners = self.listeners_mut(of).entry(name.into()).or_default();
        if listeners.insert(connection) {
            self.changed_names.push((of, name.into()));
        }
    }

    fn remove_subscriber(&mut self, of: SubscriptionKind, name: &[u8], connection: ConnectionId) {
        let space = self.listeners_mut(of);
        if let Some(listeners) = space.get_mut(name) {
            listeners.remove(&connection);
            if listeners.is_empty() {
                space.remove(name);
            }
            self.changed_names.push((of, name.into()));
        }
    }

    /// Returns whether any client has subscribed to a channel or pattern.
    pub(super) fn has_receivers(&self) -> bool {
        self.channels.len() + self.patterns.len() > 0
    }

    /// Returns the receivers of a message in order of delivery, each with the pattern that matched,
    /// if any.
    pub(super) fn receivers(&self, channel: &[u8]) -> Vec<(ConnectionId, Option<Box<[u8]>>)> {
        let named = self.channels.get(channel).into_iter().flatten();
        let mut all: Vec<_> = named.map(|listener| (*listener, None)).collect();
        // No pattern matches a name that is too long for a subscription.
        if channel.len() <= NAME_BYTES_MAX {
            for (pattern, listeners) in &self.patterns {
                if glob::matches(pattern, channel) {
                    let each = listeners.iter();
                    all.extend(each.map(|listener| (*listener, Some(pattern.clone()))));
                }
            }
        }
        all
    }

    pub(super) fn shard_receivers(&self, channel: &[u8]) -> Vec<ConnectionId> {
        let listeners = self.shards.get(channel).into_iter().flatten();
        listeners.copied().collect()
    }

    /// Returns the number of channels, patterns and shard channels that have subscribers.
    pub(super) fn subscribed_counts(&self) -> [usize; 3] {
        [&self.channels, &self.patterns, &self.shards].map(Listeners::len)
    }

    pub(super) fn take_changed_names(&mut self) -> Vec<(SubscriptionKind, Box<[u8]>)> {
        std::mem::take(&mut self.changed_names)
    }

    /// Returns the number of this node's subscribers to a name.
    pub(super) fn count(&self, of: SubscriptionKind, name: &[u8]) -> usize {
        let space = match of {
            SubscriptionKind::Channel => &self.channels,
            SubscriptionKind::Pattern => &self.patterns,
            SubscriptionKind::Shard => &self.shards,
        };
        space.get(name).map_or(0, BTreeSet::len)
    }

    /// Returns all names that have subscribers.
    pub(super) fn names(&self) -> impl Iterator<Item = (SubscriptionKind, Box<[u8]>)> {
        let spaces = [&self.channels, &self.patterns, &self.shards];
        let named = KINDS.into_iter().zip(spaces);
        named.flat_map(|(of, space)| space.keys().map(move |name| (of, name.clone())))
    }

    /// Returns the number of receivers of a message on all nodes.
    pub(super) fn receiver_count(
        &self,
        of: SubscriptionKind,
        channel: &[u8],
        census: &Census,
    ) -> usize {
        if of == SubscriptionKind::Shard {
            return self.shard_receivers(channel).len() + census.count(of, channel);
        }
        let patterns = census.names(SubscriptionKind::Pattern);
        let matching = patterns.filter(|(pattern, _)| glob::matches(pattern, channel));
        let matching: u64 = matching.map(|(_, count)| count).sum();
        let named = census.count(SubscriptionKind::Channel, channel);
        self.receivers(channel).len() + named + usize::try_from(matching).unwrap_or(0)
    }

    /// Answers PUBSUB, except PUBSUB HELP.
    pub(super) fn answer_pubsub(
        &self,
        arguments: &Arguments<'_>,
        census: &Census,
        r: &mut Reply<'_>,
    ) {
        let names = arguments.from(2);
        match &*arguments.at(1).to_ascii_lowercase() {
            b"channels" => {
                write_names(&self.names_on_all_nodes(SubscriptionKind::Channel, census), &names, r)
            }
            b"shardchannels" => {
                write_names(&self.names_on_all_nodes(SubscriptionKind::Shard, census), &names, r)
            }
            b"numsub" => self.write_subscriber_counts(SubscriptionKind::Channel, &names, census, r),
            b"shardnumsub" => {
                self.write_subscriber_counts(SubscriptionKind::Shard, &names, census, r)
            }
            _ => r.count(self.names_on_all_nodes(SubscriptionKind::Pattern, census).len()),
        }
    }

    /// Returns the names of a kind that have subscribers at any node.
    fn names_on_all_nodes<'s>(
        &'s self,
        of: SubscriptionKind,
        census: &'s Census,
    ) -> BTreeSet<&'s [u8]> {
        let space = match of {
            SubscriptionKind::Channel => &self.channels,
            SubscriptionKind::Pattern => &self.patterns,
            SubscriptionKind::Shard => &self.shards,
        };
        let others = census.names(of).map(|(name, _)| name);
        space.keys().map(|name| &**name).chain(others).collect()
    }

    /// Lists the given names, each with its number of subscribers.
    fn write_subscriber_counts(
        &self,
        of: SubscriptionKind,
        names: &Arguments<'_>,
        census: &Census,
        r: &mut Reply<'_>,
    ) {
        let mut items = Items::default();
        for name in names.iter() {
            items.next().bulk(name);
            items.next().count(self.count(of, name) + census.count(of, name));
        }
        items.write(r, Reply::array);
    }
}

/// Lists the names that have subscribers. A pattern restricts the list.
fn write_names(all: &BTreeSet<&[u8]>, patterns: &Arguments<'_>, r: &mut Reply<'_>) {
    let pattern = patterns.iter().next();
    if patterns.len() > 1 {
        return r.error(&Refusal::Arity.text("pubsub|channels"));
    }
    // Limits the cost, because every name is matched against the pattern.
    if pattern.is_some_and(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
        return r.error("ERR a pattern of channels may have 256 bytes");
    }
    let mut items = Items::default();
    for name in all {
        if pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
            items.next().bulk(name);
        }
    }
    items.write(r, Reply::array);
}

pub(super) type Names = BTreeSet<Box<[u8]>>;

pub(super) const KINDS: [SubscriptionKind; 3] =
    [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard];

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: Names,
    patterns: Names,
    shards: Names,
}

impl Subscriptions {
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.shards.is_empty()
    }

    const fn names_ref(&self, of: SubscriptionKind) -> &Names {
        match of {
            SubscriptionKind::Channel => &self.channels,
            SubscriptionKind::Pattern => &self.patterns,
            SubscriptionKind::Shard => &self.shards,
        }
    }

    const fn space_mut(&mut self, of: SubscriptionKind) -> &mut Names {
        match of {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }

    pub(super) fn name_counts(&self) -> [usize; 3] {
        [&self.channels, &self.patterns, &self.shards].map(BTreeSet::len)
    }

    /// Returns an error if further subscriptions would exceed the limits.
    pub(super) fn check_limits(
        &self,
        of: SubscriptionKind,
        names: &Arguments<'_>,
    ) -> Result<(), &'static str> {
        let (bytes_max, most, why) = match of {
            SubscriptionKind::Channel | SubscriptionKind::Shard => (
                NAME_BYTES_MAX,
                CHANNELS_MAX,
                "ERR a connection may listen to 1024 channels, with names of 1024 bytes",
            ),
            SubscriptionKind::Pattern => (
                PATTERN_BYTES_MAX,
                PATTERNS_MAX,
                "ERR a connection may listen to 128 patterns of 256 bytes",
            ),
        };
        let long = names.iter().any(|name| name.len() > bytes_max);
        match !long && self.names_ref(of).len() + names.len() <= most {
            true => Ok(()),
            false => Err(why),
        }
    }

    pub(super) fn names(&self, of: SubscriptionKind) -> Names {
        self.names_ref(of).clone()
    }

    pub(super) fn held_bytes(&self) -> usize {
        let all = [&self.channels, &self.patterns, &self.shards];
        let names = all.into_iter().flatten();
        names.map(|name| name.len() + 64).sum()
    }

    pub(super) fn clear(&mut self, connection: ConnectionId, channels: &mut Channels) {
        for of in KINDS {
            for name in std::mem::take(self.space_mut(of)) {
                channels.remove_subscriber(of, &name, connection);
            }
        }
    }

    /// Subscribes to a name or unsubscribes from it, and writes the reply.
    pub(super) fn apply_change(
        &mut self,
        connection: ConnectionId,
        (of, listen): (SubscriptionKind, bool),
        name: &[u8],
        shared: &mut Channels,
        reply: &mut Reply<'_>,
    ) {
        if listen {
            self.space_mut(of).insert(name.into());
            shared.add_subscriber(of, name, connection);
        } else {
            self.space_mut(of).remove(name);
            shared.remove_subscriber(of, name, connection);
        }
        confirm_change((of, listen), Some(name), left(of, self.name_counts()), reply);
    }
}

/// Returns the number of subscriptions in a reply: channels plus patterns, or shard channels.
pub(super) const fn left(of: SubscriptionKind, [channels, patterns, shards]: [usize; 3]) -> usize {
    match of {
        SubscriptionKind::Channel | SubscriptionKind::Pattern => channels + patterns,
        SubscriptionKind::Shard => shards,
    }
}

/// Confirms a subscription or its end, with the number of remaining subscriptions. UNSUBSCRIBE is
/// confirmed without a name if there was no subscription.
pub(super) fn confirm_change(
    what: (SubscriptionKind, bool),
    name: Option<&[u8]>,
    left: usize,
    reply: &mut Reply<'_>,
) {
    let word: &[u8] = match what {
        (SubscriptionKind::Channel, true) => b"subscribe",
        (SubscriptionKind::Channel, false) => b"unsubscribe",
        (SubscriptionKind::Pattern, true) => b"psubscribe",
        (SubscriptionKind::Pattern, false) => b"punsubscribe",
        (SubscriptionKind::Shard, true) => b"ssubscribe",
        (SubscriptionKind::Shard, false) => b"sunsubscribe",
    };
    reply.push(3);
    reply.bulk(word);
    reply.optional(name);
    reply.count(left);
}

/// PUBLISH commands on a connection, with their request numbers. Each is answered with the number
/// of receivers among this node's clients, once it has been executed.
#[derive(Debug, Default)]
pub(super) struct PendingPublishes {
    open: VecDeque<(u64, SubscriptionKind, Box<[u8]>)>,
    /// Total size in bytes of the channel names.
    bytes: usize,
}

/// Reply of the service to PUBLISH, the same on every node.
const PUBLISHED_REPLY: &[u8] = b":0\r\n";

impl PendingPublishes {
    /// Records request `place` if its command publishes a message. Returns whether it does.
    pub(super) fn note_published(&mut self, place: u64, command: &[u8]) -> bool {
        const CHANNEL: u8 = Op::Publish as u8;
        const SHARD: u8 = Op::PublishShard as u8;
        let of = match command.first() {
            Some(&CHANNEL) => SubscriptionKind::Channel,
            Some(&SHARD) => SubscriptionKind::Shard,
            _ => return false,
        };
        let channel = Decoder(command.get(1..).unwrap_or_default()).bytes();
        // A subscription cannot have a longer name.
        let channel = channel.ok().filter(|channel| channel.len() <= NAME_BYTES_MAX);
        if let Some(channel) = channel {
            self.bytes += channel.len();
            self.open.push_back((place, of, channel.into()));
        }
        channel.is_some()
    }

    /// Handles the reply to request `place`. Returns the number of receivers if a message was
    /// published.
    pub(super) fn handle_reply(
        &mut self,
        place: u64,
        reply: &[u8],
        (channels, census): (&Channels, &Census),
    ) -> Option<usize> {
        // Earlier messages failed, so their replies were not handled here.
        while self.open.front().is_some_and(|(at, ..)| *at < place) {
            self.pop();
        }
        let (at, of, channel) = self.open.front()?;
        if *at != place {
            return None;
        }
        let heard = channels.receiver_count(*of, channel, census);
        self.pop();
        (reply == PUBLISHED_REPLY).then_some(heard)
    }

    fn pop(&mut self) {
        if let Some((_, _, channel)) = self.open.pop_front() {
            self.bytes -= channel.len();
        }
        if self.open.is_empty() {
            self.open.shrink_to(0);
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + self.open.capacity() * size_of::<(u64, SubscriptionKind, Box<[u8]>)>()
    }
}

/// Kind of subscription that delivers a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum MatchedBy<'a> {
    Channel,
    /// The pattern that matched.
    Pattern(&'a [u8]),
    Shard,
}

/// Writes a message as a push reply.
pub(super) fn message(how: MatchedBy<'_>, channel: &[u8], text: &[u8], reply: &mut Reply<'_>) {
    match how {
        MatchedBy::Channel => {
            reply.push(3);
            reply.bulk(b"message");
        }
        MatchedBy::Pattern(pattern) => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
        MatchedBy::Shard => {
            reply.push(3);
            reply.bulk(b"smessage");
        }
    }
    reply.bulk(channel);
    reply.bulk(text);
}
