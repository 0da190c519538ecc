//! Who listens to which channel on this node.
//!
//! SUBSCRIBE is a linearizable read that asks for nothing: when it is answered, everything that was
//! published before is applied here, so nothing old is heard; and what is published later, on
//! whichever node, is applied here later, and heard.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::ConnectionId;

use super::{
    Shared,
    connection::Connection,
    order::{OUTPUT_BYTES_HARD, Query, Read},
};
use crate::resp::{
    reply::{Reply, Version, render},
    request::Arguments,
};

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

fn confirm(what: &[u8], channel: Option<&[u8]>, count: usize, reply: &mut Reply<'_>) {
    reply.push(3);
    reply.bulk(what);
    reply.optional(channel);
    reply.count(count);
}

impl Connection {
    /// Each channel has a reply of its own, so each is a request of its own.
    pub(super) fn subscribe(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        let names = arguments.from(1);
        let long = names.iter().any(|name| name.len() > NAME_BYTES_MAX);
        if long || self.subscriptions.len() + names.len() > CHANNELS_MAX {
            let text = "ERR a connection may listen to 1024 channels, with names of 1024 bytes";
            return self.refuse(text, shared);
        }
        for name in names.iter() {
            self.ask_about_channel(name, Query::Subscribe);
        }
    }

    pub(super) fn unsubscribe(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        let names = arguments.from(1);
        if !names.is_empty() {
            for name in names.iter() {
                self.ask_about_channel(name, Query::Unsubscribe);
            }
        } else if self.subscriptions.is_empty() {
            self.reply(shared, |r| confirm(b"unsubscribe", None, 0, r));
        } else {
            for name in self.subscriptions.channels.clone() {
                self.ask_about_channel(&name, Query::Unsubscribe);
            }
        }
    }

    fn ask_about_channel(&mut self, name: &[u8], what: Query) {
        let read = Read {
            alone: true,
            what,
            ..Read::plain(name.to_vec(), false)
        };
        self.order.push_read(read, self.version);
    }

    /// A message on a channel that this connection listens to.
    pub(super) fn hear(&mut self, channel: &[u8], message: &[u8], shared: &mut Shared) {
        if self.order.buffered() > OUTPUT_BYTES_HARD || shared.is_full(message.len()) {
            // It would miss something without knowing.
            self.end();
            return;
        }
        let mut neutral = Vec::with_capacity(channel.len() + message.len() + 64);
        let mut reply = Reply(&mut neutral);
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(channel);
        reply.bulk(message);
        render(&neutral, self.version, &mut self.order.output);
    }

    /// Whether it listens and does nothing else: before RESP3, messages and replies look alike.
    pub(super) fn only_listens(&self) -> bool {
        !self.subscriptions.is_empty() && self.version == Version::Resp2
    }

    /// Whether it may ask for this all the same.
    pub(super) fn may_ask(&self, name: &str) -> bool {
        let always = ["subscribe", "unsubscribe", "ping", "quit", "reset"];
        !self.only_listens() || always.contains(&name)
    }
}
