//! Sends and receives the announcements of subscriptions ([`super::census`]).

use quorate_replica::front::{ConnectionId, Requests};

use super::{
    RespFront,
    shared::{CompletionOwner, Target},
};
use crate::{
    command::SubscriptionKind,
    commands::{channels::Announcement, transactions::ABSENT_LEVEL},
    encode::Decoder,
};

impl RespFront {
    /// Announces what has changed in the subscriptions of this node's clients, if that is due.
    pub(super) fn announce_subscriptions(&mut self, requests: &mut dyn Requests) {
        let shared = &mut self.shared;
        for (of, name) in shared.channels.take_changed_names() {
            shared.census.note_changed(of, &name);
        }
        let now_ms = requests.wall_ms();
        if shared.census.is_connection_check_due(now_ms) {
            let peers = requests.status().peers.into_iter().filter(|peer| peer.connected);
            if shared.census.set_connected(peers.map(|peer| peer.member.node.0).collect()) {
                for (of, name) in shared.channels.names() {
                    shared.census.note_changed(of, &name);
                }
            }
        }
        if !shared.census.is_announcement_due(now_ms) {
            return;
        }
        if requests.level() < ABSENT_LEVEL {
            return shared.census.postpone_announcement(now_ms);
        }
        let owner = shared.blocked_clients.front_owner(requests);
        let channels = &shared.channels;
        let command = shared.census.next(owner, now_ms, |(of, name)| {
            SubscriptionKind::from_number(*of).map_or(0, |of| channels.count(of, name))
        });
        let sender =
            CompletionOwner { connection: ConnectionId::default(), target: Target::Announcement };
        let tag = shared.tags.allocate(sender);
        if requests.write(tag, &command).is_err() {
            shared.tags.release(tag);
            shared.census.end_announcement(false, now_ms);
        }
    }

    /// Records an announcement that this node has executed.
    pub(super) fn note_announced(&mut self, message: &[u8]) {
        if let Ok(announcement) = Announcement::decode(&mut Decoder(message)) {
            self.shared.census.record_announcement(&announcement, self.shared.channels.names());
        }
    }
}
