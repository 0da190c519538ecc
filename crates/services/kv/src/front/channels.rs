//! Who listens to which channel on this node.
//!
//! SUBSCRIBE is a linearizable read that asks for nothing: when it is answered, everything that was
//! published before is applied here, so nothing old is heard; and what is published later, on
//! whichever node, is applied here later, and heard.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::ConnectionId;

use crate::resp::{reply::Reply, request::Arguments};

/// Most channels of one connection, and most bytes of their names.
const CHANNELS_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 1024;

/// The subscriptions of all connections.
#[derive(Debug, Default)]
pub(super) struct Channels {
    listeners: BTreeMap<Box<[u8]>, BTreeSet<ConnectionId>>,
}

impl Channels {
    fn enter(&mut self, channel: &[u8], connection: ConnectionId) {
        let listeners = self.listeners.entry(channel.into()).or_default();
        listeners.insert(connection);
    }

    pub(super) fn leave(&mut self, channel: &[u8], connection: ConnectionId) {
        if let Some(listeners) = self.listeners.get_mut(channel) {
            listeners.remove(&connection);
            if listeners.is_empty() {
                self.listeners.remove(channel);
            }
        }
    }

    /// Who listens to a channel.
    pub(super) fn of(&self, channel: &[u8]) -> Vec<ConnectionId> {
        let listeners = self.listeners.get(channel);
        listeners.map_or(Vec::new(), |listeners| listeners.iter().copied().collect())
    }
}

/// The channels that one connection listens to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Box<[u8]>>,
}

impl Subscriptions {
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether it may listen to these too.
    pub(super) fn admits(&self, names: &Arguments<'_>) -> bool {
        let long = names.iter().any(|name| name.len() > NAME_BYTES_MAX);
        !long && self.channels.len() + names.len() <= CHANNELS_MAX
    }

    /// All of them.
    pub(super) fn names(&self) -> Vec<Box<[u8]>> {
        self.channels.iter().cloned().collect()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.channels.iter().map(|name| name.len() + 64).sum()
    }

    /// Listens to nothing any more.
    pub(super) fn clear(&mut self, connection: ConnectionId, channels: &mut Channels) {
        for channel in std::mem::take(&mut self.channels) {
            channels.leave(&channel, connection);
        }
    }

    /// The reply to one word of SUBSCRIBE or UNSUBSCRIBE, which takes effect now.
    pub(super) fn change(
        &mut self,
        connection: ConnectionId,
        listen: bool,
        channel: &[u8],
        shared: &mut Channels,
        reply: &mut Reply<'_>,
    ) {
        if listen {
            self.channels.insert(channel.into());
            shared.enter(channel, connection);
        } else {
            self.channels.remove(channel);
            shared.leave(channel, connection);
        }
        let what: &[u8] = if listen { b"subscribe" } else { b"unsubscribe" };
        confirm(what, Some(channel), self.channels.len(), reply);
    }
}

/// A message on a channel.
pub(super) fn message(channel: &[u8], text: &[u8], reply: &mut Reply<'_>) {
    reply.push(3);
    reply.bulk(b"message");
    reply.bulk(channel);
    reply.bulk(text);
}

/// What UNSUBSCRIBE is told of a connection that listens to nothing.
pub(super) fn nothing_left(reply: &mut Reply<'_>) {
    confirm(b"unsubscribe", None, 0, reply);
}

fn confirm(what: &[u8], channel: Option<&[u8]>, count: usize, reply: &mut Reply<'_>) {
    reply.push(3);
    reply.bulk(what);
    reply.optional(channel);
    reply.count(count);
}
