//! The clients of this node that wait for an element: from their request to their answer.
//!
//! Their line is replicated (`crate::waits`); a *look* at this node's own state shows whose turn it
//! is. A client whose turn it is claims, which is decided in the log like any write. Elements are
//! assigned in no other way, so a client that is gone, or whose time is over, has only to be
//! withdrawn, at any time.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::{ConnectionId, Requests, Tag};

use crate::{
    commands::waiting::{Look, Seen},
    waits::Owner,
};

/// Interval of looks without notification, in milliseconds.
const LOOK_MS: u64 = 250;
/// Interval of queries for all of its clients that are in line, in milliseconds.
const ALL_MS: u64 = 1000;
/// Time in milliseconds for which another node may leave something unclaimed before its clients are
/// removed from the line.
const PATIENCE_MS: u64 = 2000;

/// Progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its request is on its way.
    Asked,
    /// Waits.
    InLine,
    /// Takes something, or joins the line again.
    Claiming(Tag),
}

/// Form in which CLIENT UNBLOCK ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The same as a timeout of the wait.
    Timeout,
    /// With an error.
    Error,
}

/// Request to end a wait: a connection, and the place of its request.
pub(super) type Asker = (ConnectionId, u64);

/// A client that waits.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: ConnectionId,
    /// Its request.
    pub(super) place: u64,
    pub(super) until_ms: Option<u64>,
    /// Gets it in line.
    pub(super) command: Vec<u8>,
    pub(super) stage: Stage,
    /// A claim may have been executed, and its result is unknown.
    pub(super) unsure: bool,
    /// Its wait is to end as soon as nothing is on its way for it.
    pub(super) unblock: Option<(How, Asker)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) owner: Option<Owner>,
    pub(super) last: u64,
    pub(super) clients: BTreeMap<u64, Client>,
    /// Ends of the waits of clients in line.
    pub(super) ends: BTreeSet<(u64, u64)>,
    /// Clients to be withdrawn.
    pub(super) gone: Vec<u64>,
    /// Waits that are to end.
    pub(super) unblocks: Vec<(ConnectionId, How, Asker)>,
    /// Results of these: whether the wait ended because of it.
    pub(super) unblocked: Vec<(Asker, bool)>,
    /// Something was applied that may give a client a turn.
    pub(super) news: bool,
    /// Clients of this front are in line, as far as it knows.
    pub(super) in_line: bool,
    pub(super) look_at_ms: u64,
    pub(super) all_at_ms: u64,
    /// Key at which the next look begins.
    pub(super) from: Vec<u8>,
    /// Clients of other nodes whose turn it is, and since when.
    pub(super) others: BTreeMap<Seen, u64>,
    /// Clients of `others` that this round of looks has found.
    pub(super) found: BTreeSet<Seen>,
}

impl Waiting {
    /// Adds a client that begins to wait; returns the owner and the client's number.
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

    /// Keeps the command with which it joins the line again, if need be.
    pub(super) fn keep(&mut self, number: u64, command: &[u8]) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.command = command.to_vec();
        }
    }

    /// Marks a client as in line.
    pub(super) fn stands(&mut self, number: u64) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.stage = Stage::InLine;
            let unblock = client.unblock.take();
            self.unblocks.extend(unblock.map(|(how, asker)| (client.connection, how, asker)));
            self.ends.extend(client.until_ms.map(|until| (until, number)));
            self.news = true;
        }
    }

    /// Removes a client that does not wait any more; the caller withdraws it from the line if it is
    /// there.
    pub(super) fn forget(&mut self, number: u64) -> Option<Client> {
        let client = self.clients.remove(&number)?;
        self.ends.retain_one(client.until_ms.map(|until| (until, number)));
        // It got its element, or is gone: its wait was not ended by another client.
        self.unblocked.extend(client.unblock.map(|(_, asker)| (asker, false)));
        Some(client)
    }

    /// Returns whether a client of this connection waits.
    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.number_of(connection).is_some()
    }

    pub(super) fn number_of(&self, connection: ConnectionId) -> Option<u64> {
        let mut clients = self.clients.iter();
        let found = clients.find(|(_, client)| client.connection == connection);
        found.map(|(number, _)| *number)
    }

    /// Requests the end of a wait; the asker is notified whether it ended.
    pub(super) fn unblock(&mut self, connection: ConnectionId, how: How, asker: Asker) {
        self.unblocks.push((connection, how, asker));
    }

    /// Its request was answered without waiting.
    pub(super) fn answered(&mut self, number: u64) {
        self.forget(number);
    }

    /// Removes a disconnected client. Returns the tag that is no longer needed.
    pub(super) fn leaves(&mut self, number: u64) -> Option<Tag> {
        let client = self.forget(number)?;
        self.gone.push(number);
        match client.stage {
            Stage::Claiming(tag) => Some(tag),
            Stage::Asked | Stage::InLine => None,
        }
    }

    /// Its time is over as soon as nothing is on its way.
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

    /// Returns the number of clients that wait, or have just asked.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Notes that something was applied that may give a client a turn.
    pub(super) const fn hear(&mut self) {
        self.news = true;
    }

    const fn is_idle(&self) -> bool {
        !self.in_line && self.gone.is_empty()
    }

    /// Returns whether there is something to do at once.
    pub(super) const fn is_eager(&self) -> bool {
        let unblocks = !self.unblocks.is_empty() || !self.unblocked.is_empty();
        unblocks || (!self.is_idle() && (self.news || !self.gone.is_empty()))
    }

    /// Returns the latest time for the next action.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        if self.is_idle() {
            return None;
        }
        let end = self.ends.first().map(|(until, _)| *until);
        Some(end.map_or(self.look_at_ms, |end| end.min(self.look_at_ms)))
    }

    /// Returns whether to look now, and whether for all.
    pub(super) fn look_due(&mut self, now_ms: u64) -> Option<bool> {
        // A clock that was set back.
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

    /// Clients of others that have had their turn for too long.
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

/// A set of which one is removed that may be none.
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
