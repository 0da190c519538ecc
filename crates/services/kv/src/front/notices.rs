//! Delivers Pub/Sub messages, invalidations and notices of a new leader to the clients concerned.

use quorate_replica::front::{ConnectionId, Requests};

use super::{RespFront, channels::MatchedBy, connection::Connection, switching::SWITCH_MASTER};

impl RespFront {
    /// Notifies subscribers of `+switch-master` of a new leader.
    pub(super) fn notify_new_master(&mut self, requests: &dyn Requests) {
        if !self.shared.channels.has_receivers() {
            return self.shared.switching.discard_master();
        }
        for message in self.shared.switching.messages(requests) {
            self.deliver_message(SWITCH_MASTER, message.as_bytes());
        }
    }

    /// Sends a message on a channel to this node's subscribers.
    pub(super) fn deliver_message(&mut self, channel: &[u8], message: &[u8]) {
        for (listener, pattern) in self.shared.channels.receivers(channel) {
            let how = pattern.as_deref().map_or(MatchedBy::Channel, MatchedBy::Pattern);
            self.send_to_subscriber(listener, how, channel, message);
        }
    }

    pub(super) fn deliver_shard_message(&mut self, channel: &[u8], message: &[u8]) {
        for listener in self.shared.channels.shard_receivers(channel) {
            self.send_to_subscriber(listener, MatchedBy::Shard, channel, message);
        }
    }

    /// Sends an invalidation for `key` to every client that may have cached it.
    #[cold]
    pub(super) fn invalidate_key(&mut self, key: &[u8]) {
        for client in self.shared.tracking.take_readers(key) {
            self.send_invalidation(client, Some(key));
        }
    }

    #[cold]
    pub(super) fn invalidate_all_keys(&mut self) {
        self.shared.tracking.clear_keys();
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|client| self.send_invalidation(client, None));
    }

    /// Invalidates a key, or all if `None`, at a client or the one to which it redirects notices.
    pub(super) fn send_invalidation(&mut self, client: ConnectionId, key: Option<&[u8]>) {
        let Some(told) = self.connections.get(&client).and_then(Connection::notice_receiver) else {
            return;
        };
        self.free_memory(key.map_or(0, <[u8]>::len));
        let is_open = self.connections.contains_key(&told);
        let told = if is_open { told } else { client };
        if let Some(receiver) = self.connections.get_mut(&told) {
            if is_open {
                receiver.send_changed(key, told != client, &mut self.shared);
            } else {
                receiver.send_broken(&mut self.shared);
            }
            receiver.update_charged_bytes(&mut self.shared);
            receiver.queue_for_reactor(&mut self.shared);
        }
    }

    fn send_to_subscriber(
        &mut self,
        listener: ConnectionId,
        how: MatchedBy<'_>,
        channel: &[u8],
        message: &[u8],
    ) {
        self.free_memory(message.len());
        if let Some(client) = self.connections.get_mut(&listener) {
            client.send_message(how, channel, message, &mut self.shared);
            client.update_charged_bytes(&mut self.shared);
            client.queue_for_reactor(&mut self.shared);
        }
    }
}
