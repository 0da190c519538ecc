//! Blocked clients of this node, from the request to the reply.
//!
//! Their queue is replicated (`crate::waits`). A *look* polls this node's state for clients that
//! are next in line for an element. Each sends a claim, which is ordered by the log like any write.
//! Only claims assign elements, so a disconnected or timed-out client can be withdrawn at any time.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::{ConnectionId, Requests, Tag};

use crate::{
    commands::waiting::{ForeignTurn, PollAnswer},
    waits::FrontId,
};

/// Interval of polls without a notification.
const POLL_MS: u64 = 250;
/// Interval of polls for all queued clients of this node.
const FULL_POLL_MS: u64 = 1000;
/// Time for which an element may stay unclaimed by a client of another node. Then all clients of
/// that node are removed from the queue.
const PATIENCE_MS: u64 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockedStage {
    Requested,
    Queued,
    /// A claim is in flight: it takes an element or puts the client back in the queue.
    Claiming(Tag),
}

/// Reply of the blocked client, as chosen by CLIENT UNBLOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnblockReply {
    /// The same reply as after a timeout.
    Timeout,
    Error,
}

/// Connection and request number of a CLIENT UNBLOCK.
pub(super) type UnblockSender = (ConnectionId, u64);

#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: ConnectionId,
    /// Number of the blocked request on its connection.
    pub(super) request_number: u64,
    pub(super) until_ms: Option<u64>,
    /// Command that puts the client in the queue.
    pub(super) command: Vec<u8>,
    pub(super) stage: BlockedStage,
    /// True if a claim may have been executed, but its outcome is unknown.
    pub(super) is_outcome_unknown: bool,
    /// CLIENT UNBLOCK that ends the wait once nothing is in flight.
    pub(super) unblock: Option<(UnblockReply, UnblockSender)>,
}

#[derive(Debug, Default)]
pub(super) struct BlockedClients {
    pub(super) owner: Option<FrontId>,
    pub(super) last: u64,
    pub(super) clients: BTreeMap<u64, Client>,
    /// Timeouts of queued clients, each with the client's number.
    pub(super) timeouts: BTreeSet<(u64, u64)>,
    /// Clients to withdraw from the queue.
    pub(super) clients_to_withdraw: Vec<u64>,
    /// CLIENT UNBLOCK requests: the blocked connection, its reply, and the sender.
    pub(super) unblock_requests: Vec<(ConnectionId, UnblockReply, UnblockSender)>,
    /// Replies to CLIENT UNBLOCK: true if a wait was ended.
    pub(super) unblock_results: Vec<(UnblockSender, bool)>,
    /// True if an applied command may have given clients their turn.
    pub(super) may_have_turns: bool,
    /// True if clients of this node may be in the queue.
    pub(super) may_be_queued: bool,
    pub(super) next_poll_ms: u64,
    pub(super) next_full_poll_ms: u64,
    /// Key at which the next poll starts.
    pub(super) from: Vec<u8>,
    /// Clients of other nodes whose turn it is, with the time of the poll that first found them.
    pub(super) foreign_turns: BTreeMap<ForeignTurn, u64>,
    /// Clients of other nodes found in the current round of polls.
    pub(super) found_foreign_turns: BTreeSet<ForeignTurn>,
}

impl BlockedClients {
    /// Returns this front's name in the log.
    pub(super) fn front_owner(&mut self, requests: &dyn Requests) -> FrontId {
        let new =
            || FrontId { node: requests.status().member.node.0, incarnation: requests.wall_ms() };
        *self.owner.get_or_insert_with(new)
    }

    /// Adds a client that blocks. Returns the owner and the number of its queue entry.
    pub(super) fn add_client(
        &mut self,
        connection: ConnectionId,
        place: u64,
        wait_ms: u64,
        requests: &dyn Requests,
    ) -> (FrontId, u64) {
        let now_ms = requests.wall_ms();
        let owner = self.front_owner(requests);
        self.last += 1;
        let client = Client {
            connection,
            request_number: place,
            until_ms: (wait_ms > 0).then(|| now_ms.saturating_add(wait_ms)),
            command: Vec::new(),
            stage: BlockedStage::Requested,
            is_outcome_unknown: false,
            unblock: None,
        };
        self.clients.insert(self.last, client);
        self.may_be_queued = true;
        (owner, self.last)
    }

    /// Stores the command that puts the client back in the queue.
    pub(super) fn store_queue_command(&mut self, number: u64, command: &[u8]) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.command = command.to_vec();
        }
    }

    pub(super) fn mark_queued(&mut self, number: u64) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.stage = BlockedStage::Queued;
            let unblock = client.unblock.take();
            self.unblock_requests
                .extend(unblock.map(|(how, asker)| (client.connection, how, asker)));
            self.timeouts.extend(client.until_ms.map(|until| (until, number)));
            self.may_have_turns = true;
        }
    }

    /// Removes a client that is no longer blocked. If it is still queued, the caller withdraws it.
    pub(super) fn remove_client(&mut self, number: u64) -> Option<Client> {
        let client = self.clients.remove(&number)?;
        self.timeouts.retain_one(client.until_ms.map(|until| (until, number)));
        // The client got an element or disconnected, so no wait was ended.
        self.unblock_results.extend(client.unblock.map(|(_, asker)| (asker, false)));
        Some(client)
    }

    pub(super) fn is_client_blocked(&self, connection: ConnectionId) -> bool {
        self.client_number(connection).is_some()
    }

    pub(super) fn client_number(&self, connection: ConnectionId) -> Option<u64> {
        let mut clients = self.clients.iter();
        let found = clients.find(|(_, client)| client.connection == connection);
        found.map(|(number, _)| *number)
    }

    /// Requests the end of a wait. The result is sent to `asker`.
    pub(super) fn request_unblock(
        &mut self,
        connection: ConnectionId,
        how: UnblockReply,
        asker: UnblockSender,
    ) {
        self.unblock_requests.push((connection, how, asker));
    }

    /// Removes a client whose request was answered without a wait.
    pub(super) fn remove_answered(&mut self, number: u64) {
        self.remove_client(number);
    }

    /// Removes a disconnected client. Returns the tag of its claim in flight, if any.
    pub(super) fn remove_disconnected(&mut self, number: u64) -> Option<Tag> {
        let client = self.remove_client(number)?;
        self.clients_to_withdraw.push(number);
        match client.stage {
            BlockedStage::Claiming(tag) => Some(tag),
            BlockedStage::Requested | BlockedStage::Queued => None,
        }
    }

    /// Lets a client time out as soon as nothing is in flight for it.
    pub(super) fn time_out_early(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        self.timeouts.retain_one(client.until_ms.map(|until| (until, number)));
        client.until_ms = Some(0);
        if client.stage == BlockedStage::Queued {
            self.timeouts.insert((0, number));
        }
    }

    /// Returns the number of clients that are blocked or may become so.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Records that an applied command may have given clients their turn.
    pub(super) const fn note_applied(&mut self) {
        self.may_have_turns = true;
    }

    const fn is_idle(&self) -> bool {
        !self.may_be_queued && self.clients_to_withdraw.is_empty()
    }

    /// Returns whether there is work to do without delay.
    pub(super) const fn is_eager(&self) -> bool {
        let unblocks = !self.unblock_requests.is_empty() || !self.unblock_results.is_empty();
        unblocks
            || (!self.is_idle() && (self.may_have_turns || !self.clients_to_withdraw.is_empty()))
    }

    /// Returns the time of the next action, as Unix time in milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        if self.is_idle() {
            return None;
        }
        let end = self.timeouts.first().map(|(until, _)| *until);
        Some(end.map_or(self.next_poll_ms, |end| end.min(self.next_poll_ms)))
    }

    /// Returns `Some` if a poll is due, and `true` in it if the poll is for all clients.
    pub(super) fn poll_due(&mut self, now_ms: u64) -> Option<bool> {
        // The clock may have gone back.
        self.next_poll_ms = self.next_poll_ms.min(now_ms + POLL_MS);
        self.next_full_poll_ms = self.next_full_poll_ms.min(now_ms + FULL_POLL_MS);
        let (due, all) = (now_ms >= self.next_poll_ms, now_ms >= self.next_full_poll_ms);
        if self.is_idle() || !(due || all || self.may_have_turns) {
            return None;
        }
        self.may_have_turns = false;
        self.next_poll_ms = now_ms + POLL_MS;
        if all {
            self.next_full_poll_ms = now_ms + FULL_POLL_MS;
        }
        Some(all)
    }

    /// Returns the clients of other nodes that have left an element unclaimed for too long.
    pub(super) fn overdue_clients(&mut self, look: &PollAnswer, now_ms: u64) -> Vec<ForeignTurn> {
        for seen in &look.foreign_turns {
            self.foreign_turns.entry(*seen).or_insert(now_ms);
            self.found_foreign_turns.insert(*seen);
        }
        if look.next.is_empty() {
            let found = std::mem::take(&mut self.found_foreign_turns);
            self.foreign_turns.retain(|seen, _| found.contains(seen));
        }
        let mut overdue = Vec::new();
        for (seen, since_ms) in &mut self.foreign_turns {
            *since_ms = (*since_ms).min(now_ms);
            if now_ms - *since_ms >= PATIENCE_MS {
                *since_ms = now_ms;
                overdue.push(*seen);
            }
        }
        overdue
    }

    pub(super) fn client(&self, number: u64, stage: BlockedStage) -> Option<&Client> {
        self.clients.get(&number).filter(|client| client.stage == stage)
    }
}

pub(super) trait RetainOne<T> {
    fn retain_one(&mut self, gone: Option<T>);
}

impl<T: Ord> RetainOne<T> for BTreeSet<T> {
    fn retain_one(&mut self, gone: Option<T>) {
        if let Some(gone) = gone {
            self.remove(&gone);
        }
    }
}
