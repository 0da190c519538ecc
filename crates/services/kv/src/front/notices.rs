//! Delivers Pub/Sub messages, invalidations and notices of a new leader to the clients concerned.

use quorate_replica::front::{ConnectionId, Requests};

use super::{RespFront, channels::MatchedBy, connection::Connection, switching::SWITCH_MASTER};

impl RespFront {
    /// Notifies subscribers of `+switch-master` of a new leader.
    pub(super) fn tell_new_master(&mut self, requests: &dyn Requests) {
        if !self.shared.channels.has_receivers() {
            return self.shared.switching.rest();
        }
        for message in self.shared.switching.messages(requests) {
            self.publish(SWITCH_MASTER, message.as_bytes());
        }
    }

    /// Sends a message on a channel to this node's subscribers.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) {
        for (listener, pattern) in self.shared.channels.receivers(channel) {
            let how = pattern.as_deref().map_or(MatchedBy::Channel, MatchedBy::Pattern);
            self.send_to_subscriber(listener, how, channel, message);
        }
    }

    pub(super) fn publish_to_shard(&mut self, channel: &[u8], message: &[u8]) {
        for listener in self.shared.channels.shard_receivers(channel) {
            self.send_to_subscriber(listener, MatchedBy::Shard, channel, message);
        }
    }

    /// Sends an invalidation for `key` to every client that may have cached it.
    #[cold]
    pub(super) fn tell_changed(&mut self, key: &[u8]) {
        for client in self.shared.tracking.take(key) {
            self.invalidate(client, Some(key));
        }
    }

    #[cold]
    pub(super) fn tell_all_changed(&mut self) {
        self.shared.tracking.take_all();
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|client| self.invalidate(client, None));
    }

    /// Invalidates a key, or all if `None`, at a client or the one to which it redirects notices.
    pub(super) fn invalidate(&mut self, client: ConnectionId, key: Option<&[u8]>) {
        let Some(told) = self.connections.get(&client).and_then(Connection::notified) else {
            return;
        };
        self.make_room(key.map_or(0, <[u8]>::len));
        let is_open = self.connections.contains_key(&told);
        let told = if is_open { told } else { client };
        if let Some(receiver) = self.connections.get_mut(&told) {
            if is_open {
                receiver.send_changed(key, told != client, &mut self.shared);
            } else {
                receiver.send_broken(&mut self.shared);
            }
            receiver.recount(&mut self.shared);
            receiver.mark(&mut self.shared);
        }
    }

    fn send_to_subscriber(
        &mut self,
        listener: ConnectionId,
        how: MatchedBy<'_>,
        channel: &[u8],
        message: &[u8],
    ) {
        self.make_room(message.len());
        if let Some(client) = self.connections.get_mut(&listener) {
            client.send_message(how, channel, message, &mut self.shared);
            client.recount(&mut self.shared);
            client.mark(&mut self.shared);
        }
    }
}
