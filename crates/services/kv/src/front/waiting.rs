//! Blocked clients of this node, from request to reply.
//!
//! Their queue is replicated (`crate::waits`). A *look* polls this node's state for clients whose
//! turn it is; each then sends a claim, which the log decides like any write. Only claims assign
//! elements, so a disconnected or timed-out client can be withdrawn at any time.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::{ConnectionId, Requests, Tag};

use crate::{
    commands::waiting::{Look, Seen},
    waits::Owner,
};

/// Polling interval if no notification arrives.
const LOOK_MS: u64 = 250;
/// Interval between polls for all queued clients of this node.
const ALL_MS: u64 = 1000;
/// Time for which a client of another node may leave an element unclaimed, before all clients of
/// that node are removed from the queue.
const PATIENCE_MS: u64 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Asked,
    InLine,
    /// A claim is in flight, which takes an element or puts the client back into the queue.
    Claiming(Tag),
}

/// Reply that CLIENT UNBLOCK selects for the blocked client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnblockReply {
    /// The reply is the same as after a timeout.
    Timeout,
    Error,
}

/// Connection and request number of a CLIENT UNBLOCK.
pub(super) type Asker = (ConnectionId, u64);

#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: ConnectionId,
    /// Number of the blocked request on its connection.
    pub(super) place: u64,
    pub(super) until_ms: Option<u64>,
    /// Command that joins the queue.
    pub(super) command: Vec<u8>,
    pub(super) stage: Stage,
    /// A claim may have been executed; the outcome is unknown.
    pub(super) unsure: bool,
    /// Pending CLIENT UNBLOCK, which ends the wait once nothing is in flight.
    pub(super) unblock: Option<(UnblockReply, Asker)>,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) owner: Option<Owner>,
    pub(super) last: u64,
    pub(super) clients: BTreeMap<u64, Client>,
    /// Timeouts of queued clients, with their numbers.
    pub(super) ends: BTreeSet<(u64, u64)>,
    /// Clients to withdraw from the queue.
    pub(super) gone: Vec<u64>,
    /// CLIENT UNBLOCK requests: the blocked connection, its reply, and the requester.
    pub(super) unblocks: Vec<(ConnectionId, UnblockReply, Asker)>,
    /// Results of CLIENT UNBLOCK: whether a wait was ended.
    pub(super) unblocked: Vec<(Asker, bool)>,
    /// An applied command may have made it a client's turn.
    pub(super) news: bool,
    /// This front may have queued clients.
    pub(super) in_line: bool,
    pub(super) look_at_ms: u64,
    pub(super) all_at_ms: u64,
    /// Key at which the next poll starts.
    pub(super) from: Vec<u8>,
    /// Clients of other nodes whose turn it is, with the time of the poll that first found them.
    pub(super) others: BTreeMap<Seen, u64>,
    /// Clients of other nodes found in the current round of polls.
    pub(super) found: BTreeSet<Seen>,
}

impl Waiting {
    /// Adds a client that blocks. Returns owner and number of its queue entry.
    pub(super) fn enter(
        &mut self,
        connection: ConnectionId,
        place: u64,
        wait_ms: u64,
        requests: &dyn Requests,
    ) -> (Owner, u64) {
        let now_ms = requests.wall_ms();
        let owner = *self
            .owner
            .get_or_insert_with(|| Owner { node: requests.status().member.node.0, life: now_ms });
        self.last += 1;
        let client = Client {
            connection,
            place,
            until_ms: (wait_ms > 0).then(|| now_ms.saturating_add(wait_ms)),
            command: Vec::new(),
            stage: Stage::Asked,
            unsure: false,
            unblock: None,
        };
        self.clients.insert(self.last, client);
        self.in_line = true;
        (owner, self.last)
    }

    /// Stores the command with which the client can rejoin the queue.
    pub(super) fn keep(&mut self, number: u64, command: &[u8]) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.command = command.to_vec();
        }
    }

    pub(super) fn mark_queued(&mut self, number: u64) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.stage = Stage::InLine;
            let unblock = client.unblock.take();
            self.unblocks.extend(unblock.map(|(how, asker)| (client.connection, how, asker)));
            self.ends.extend(client.until_ms.map(|until| (until, number)));
            self.news = true;
        }
    }

    /// Removes a client that is no longer blocked. The caller withdraws it if still queued.
    pub(super) fn forget(&mut self, number: u64) -> Option<Client> {
        let client = self.clients.remove(&number)?;
        self.ends.retain_one(client.until_ms.map(|until| (until, number)));
        // The client got an element or disconnected: nothing was unblocked.
        self.unblocked.extend(client.unblock.map(|(_, asker)| (asker, false)));
        Some(client)
    }

    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.number_of(connection).is_some()
    }

    pub(super) fn number_of(&self, connection: ConnectionId) -> Option<u64> {
        let mut clients = self.clients.iter();
        let found = clients.find(|(_, client)| client.connection == connection);
        found.map(|(number, _)| *number)
    }

    /// Requests the end of a wait, whose result `asker` gets.
    pub(super) fn unblock(&mut self, connection: ConnectionId, how: UnblockReply, asker: Asker) {
        self.unblocks.push((connection, how, asker));
    }

    /// Records a request answered without blocking.
    pub(super) fn answered(&mut self, number: u64) {
        self.forget(number);
    }

    /// Removes a disconnected client. Returns the tag of the request or claim that is no longer
    /// needed.
    pub(super) fn leaves(&mut self, number: u64) -> Option<Tag> {
        let client = self.forget(number)?;
        self.gone.push(number);
        match client.stage {
            Stage::Claiming(tag) => Some(tag),
            Stage::Asked | Stage::InLine => None,
        }
    }

    /// Makes a client time out once nothing is in flight for it.
    pub(super) fn hurry(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        self.ends.retain_one(client.until_ms.map(|until| (until, number)));
        client.until_ms = Some(0);
        if client.stage == Stage::InLine {
            self.ends.insert((0, number));
        }
    }

    /// Returns the number of clients that are blocked or have just sent a blocking request.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Records that an applied command may have made it a client's turn.
    pub(super) const fn note_applied(&mut self) {
        self.news = true;
    }

    const fn is_idle(&self) -> bool {
        !self.in_line && self.gone.is_empty()
    }

    /// Returns whether there is work to do at once.
    pub(super) const fn is_eager(&self) -> bool {
        let unblocks = !self.unblocks.is_empty() || !self.unblocked.is_empty();
        unblocks || (!self.is_idle() && (self.news || !self.gone.is_empty()))
    }

    /// Returns the time of the next action in Unix milliseconds.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        if self.is_idle() {
            return None;
        }
        let end = self.ends.first().map(|(until, _)| *until);
        Some(end.map_or(self.look_at_ms, |end| end.min(self.look_at_ms)))
    }

    /// Returns whether a poll is due, with `true` for all clients.
    pub(super) fn look_due(&mut self, now_ms: u64) -> Option<bool> {
        // The clock may have been set back.
        self.look_at_ms = self.look_at_ms.min(now_ms + LOOK_MS);
        self.all_at_ms = self.all_at_ms.min(now_ms + ALL_MS);
        let (due, all) = (now_ms >= self.look_at_ms, now_ms >= self.all_at_ms);
        if self.is_idle() || !(due || all || self.news) {
            return None;
        }
        self.news = false;
        self.look_at_ms = now_ms + LOOK_MS;
        if all {
            self.all_at_ms = now_ms + ALL_MS;
        }
        Some(all)
    }

    /// Returns the clients of other nodes that left an element unclaimed for too long.
    pub(super) fn overdue(&mut self, look: &Look, now_ms: u64) -> Vec<Seen> {
        for seen in &look.others {
            self.others.entry(*seen).or_insert(now_ms);
            self.found.insert(*seen);
        }
        if look.next.is_empty() {
            let found = std::mem::take(&mut self.found);
            self.others.retain(|seen, _| found.contains(seen));
        }
        let mut overdue = Vec::new();
        for (seen, since_ms) in &mut self.others {
            *since_ms = (*since_ms).min(now_ms);
            if now_ms - *since_ms >= PATIENCE_MS {
                *since_ms = now_ms;
                overdue.push(*seen);
            }
        }
        overdue
    }

    pub(super) fn client(&self, number: u64, stage: Stage) -> Option<&Client> {
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
