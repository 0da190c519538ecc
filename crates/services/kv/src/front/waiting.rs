//! The clients of this node that wait for an element: from their request to their answer.
//!
//! Their line is replicated (`crate::waits`); a *look* at this node's own state shows whose turn it
//! is. A client whose turn it is claims, which is decided in the log like any write. Elements are
//! assigned in no other way, so a client that is gone, or whose time is over, has only to be
//! withdrawn, at any time.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::front::{ConnectionId, Failure, Requests, Tag};

use super::{
    RespFront,
    refusals::failure_text,
    shared::{Owner as TagOwner, Shared, Target, fresh},
};
use crate::{
    commands::waiting::{
        GONE, Look, Seen, WAITING, encode_claim, encode_depose, encode_look, encode_withdraw,
    },
    encode::Encoder,
    resp::reply::{NULL_ARRAY, Reply},
    waits::Owner,
};

/// Interval of looks without notification, in milliseconds.
const LOOK_MS: u64 = 250;
/// Interval of queries for all of its clients that are in line, in milliseconds.
const ALL_MS: u64 = 1000;
/// Time in milliseconds for which another node may leave something unclaimed before its clients are
/// removed from the line.
const PATIENCE_MS: u64 = 2000;
/// Most clients that one command withdraws.
const WITHDRAWN_MAX: usize = 1024;

/// Progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
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
struct Client {
    connection: ConnectionId,
    /// Its request.
    place: u64,
    until_ms: Option<u64>,
    /// Gets it in line.
    command: Vec<u8>,
    stage: Stage,
    /// A claim may have been executed, and its result is unknown.
    unsure: bool,
    /// Its wait is to end as soon as nothing is on its way for it.
    unblock: Option<(How, Asker)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    owner: Option<Owner>,
    last: u64,
    clients: BTreeMap<u64, Client>,
    /// Ends of the waits of clients in line.
    ends: BTreeSet<(u64, u64)>,
    /// Clients to be withdrawn.
    gone: Vec<u64>,
    /// Waits that are to end.
    unblocks: Vec<(ConnectionId, How, Asker)>,
    /// Results of these: whether the wait ended because of it.
    unblocked: Vec<(Asker, bool)>,
    /// Something was applied that may give a client a turn.
    news: bool,
    /// Clients of this front are in line, as far as it knows.
    in_line: bool,
    look_at_ms: u64,
    all_at_ms: u64,
    /// Key at which the next look begins.
    from: Vec<u8>,
    /// Clients of other nodes whose turn it is, and since when.
    others: BTreeMap<Seen, u64>,
    /// Clients of `others` that this round of looks has found.
    found: BTreeSet<Seen>,
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
    fn forget(&mut self, number: u64) -> Option<Client> {
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

    fn number_of(&self, connection: ConnectionId) -> Option<u64> {
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
    fn look_due(&mut self, now_ms: u64) -> Option<bool> {
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
    fn overdue(&mut self, look: &Look, now_ms: u64) -> Vec<Seen> {
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

    fn client(&self, number: u64, stage: Stage) -> Option<&Client> {
        self.clients.get(&number).filter(|client| client.stage == stage)
    }
}

/// The reply to a client whose wait another one ended; Redis' words.
const UNBLOCKED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

/// A set of which one is removed that may be none.
trait RetainOne<T> {
    fn retain_one(&mut self, gone: Option<T>);
}

impl<T: Ord> RetainOne<T> for BTreeSet<T> {
    fn retain_one(&mut self, gone: Option<T>) {
        if let Some(gone) = gone {
            self.remove(&gone);
        }
    }
}

impl RespFront {
    /// Sees to the clients that wait.
    pub(super) fn serve_line(&mut self, requests: &mut dyn Requests) {
        let now_ms = requests.wall_ms();
        self.unblock();
        while let Some(&(until, number)) = self.shared.waiting.ends.first()
            && until <= now_ms
        {
            self.give_up(number);
        }
        self.withdraw(requests);
        if let Some(all) = self.shared.waiting.look_due(now_ms) {
            self.look(all, now_ms, requests);
            self.withdraw(requests);
        }
    }

    /// Ends the waits that other clients want to end. Without a claim nothing can have been taken
    /// for a client in line; what is on its way for one is waited for.
    fn unblock(&mut self) {
        for (connection, how, asker) in std::mem::take(&mut self.shared.waiting.unblocks) {
            let waiting = &mut self.shared.waiting;
            let number = waiting.number_of(connection);
            let client = number.and_then(|number| waiting.clients.get_mut(&number));
            match (number, client) {
                (Some(number), Some(client)) if client.stage == Stage::InLine => {
                    let unsure = client.unsure;
                    match how {
                        _ if unsure => self.end_wait(number, &unknown(), true),
                        How::Timeout => self.end_wait(number, NULL_ARRAY, true),
                        How::Error => self.end_wait(number, UNBLOCKED, true),
                    }
                    self.shared.waiting.unblocked.push((asker, true));
                }
                (_, Some(client)) if client.unblock.is_none() => {
                    client.unblock = Some((how, asker));
                }
                // It waits no more, or another request was first.
                _ => waiting.unblocked.push((asker, false)),
            }
        }
        for ((connection, place), ended) in std::mem::take(&mut self.shared.waiting.unblocked) {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.unblocked(place, ended, &mut self.shared);
                client.recount(&mut self.shared);
                client.mark(&mut self.shared);
            }
        }
    }

    /// Looks whose turn it is.
    fn look(&mut self, all: bool, now_ms: u64, requests: &mut dyn Requests) {
        let Some(owner) = self.shared.waiting.owner else {
            return;
        };
        let from = std::mem::take(&mut self.shared.waiting.from);
        let (mut query, mut answer) = (Vec::new(), Vec::new());
        encode_look(owner, all, &from, &mut Encoder(&mut query));
        // A service that cannot answer is asked again.
        let asked = requests.query(&query, &mut answer);
        let Some(look) = asked.ok().and_then(|()| Look::decode(&answer).ok()) else {
            return;
        };
        let waiting = &mut self.shared.waiting;
        waiting.from.clone_from(&look.next);
        waiting.news |= !look.next.is_empty();
        let overdue = waiting.overdue(&look, now_ms);
        let unknown = |number: &u64| !waiting.clients.contains_key(number);
        let in_line = look.all.as_deref().unwrap_or_default();
        let mut gone: BTreeSet<u64> = look.turns.iter().copied().filter(unknown).collect();
        gone.extend(in_line.iter().copied().filter(unknown));
        waiting.gone.extend(gone);
        let missing = |(number, client): (&u64, &Client)| {
            let missing = client.stage == Stage::InLine && in_line.binary_search(number).is_err();
            missing.then_some(*number)
        };
        if look.all.is_some() {
            let missing: Vec<u64> = waiting.clients.iter().filter_map(missing).collect();
            waiting.in_line = !in_line.is_empty() || !waiting.clients.is_empty();
            for number in missing {
                self.is_missing(number, requests);
            }
        }
        for number in look.turns {
            if self.shared.waiting.client(number, Stage::InLine).is_some() {
                let mut command = Vec::new();
                encode_claim(owner, number, &mut Encoder(&mut command));
                self.claim(number, &command, requests);
            }
        }
        for seen in overdue {
            let mut command = Vec::new();
            encode_depose(seen, &mut Encoder(&mut command));
            self.shared.tell_line(&command, requests);
        }
    }

    /// Ends the wait of a client in line whose time is over.
    fn give_up(&mut self, number: u64) {
        let client = self.shared.waiting.clients.get(&number);
        if client.is_some_and(|client| client.unsure) {
            // Something may have been taken for it, or may be still.
            self.end_wait(number, &unknown(), true);
        } else {
            self.end_wait(number, NULL_ARRAY, true);
        }
    }

    /// Handles a client that should be in line and is not: its node was taken for dead, or it has
    /// got something and was not notified.
    fn is_missing(&mut self, number: u64, requests: &mut dyn Requests) {
        let Some(client) = self.shared.waiting.clients.get(&number) else {
            return;
        };
        if client.unsure {
            self.end_wait(number, &unknown(), false);
        } else {
            let command = client.command.clone();
            self.claim(number, &command, requests);
        }
    }

    /// Sends what a client in line wants to be decided.
    fn claim(&mut self, number: u64, command: &[u8], requests: &mut dyn Requests) {
        let Some(client) = self.shared.waiting.clients.get(&number) else {
            return;
        };
        let end = client.until_ms.map(|until| (until, number));
        let tag = self.shared.tag(client.connection, Target::Claim(number));
        if requests.write(tag, command).is_err() {
            // It is tried again with the next look.
            self.shared.tags.take(tag);
            return;
        }
        let waiting = &mut self.shared.waiting;
        waiting.ends.retain_one(end);
        if let Some(client) = waiting.clients.get_mut(&number) {
            client.stage = Stage::Claiming(tag);
        }
    }

    /// Handles the result of a claim.
    pub(super) fn claimed(
        &mut self,
        number: u64,
        reply: Result<&[u8], Failure>,
        requests: &mut dyn Requests,
    ) {
        match reply {
            Ok(WAITING) => self.shared.waiting.stands(number),
            Ok(GONE) => self.is_missing(number, requests),
            Ok(reply) => self.end_wait(number, reply, false),
            Err(failure) => {
                if let Some(client) = self.shared.waiting.clients.get_mut(&number) {
                    client.unsure |= failure == Failure::Unknown;
                }
                // Without news: it is tried again, and not at once.
                let news = self.shared.waiting.news;
                self.shared.waiting.stands(number);
                self.shared.waiting.news = news;
            }
        }
    }

    /// Ends a client's wait with a reply.
    fn end_wait(&mut self, number: u64, reply: &[u8], withdraw: bool) {
        let Some(client) = self.shared.waiting.forget(number) else {
            return;
        };
        if withdraw {
            self.shared.waiting.gone.push(number);
        }
        if let Some(connection) = self.connections.get_mut(&client.connection) {
            connection.end_wait(client.place, reply, &mut self.shared);
            connection.recount(&mut self.shared);
            let now_ms = self.shared.tally.now_ms;
            connection.sign(now_ms, &mut self.shared);
            connection.mark(&mut self.shared);
        }
    }

    /// Withdraws those that are gone; if that cannot be sent, the next look at all finds them.
    fn withdraw(&mut self, requests: &mut dyn Requests) {
        let gone = std::mem::take(&mut self.shared.waiting.gone);
        let Some(owner) = self.shared.waiting.owner else {
            return;
        };
        for some in gone.chunks(WITHDRAWN_MAX) {
            let mut command = Vec::new();
            encode_withdraw(owner, some, &mut Encoder(&mut command));
            self.shared.tell_line(&command, requests);
        }
    }
}

/// Returns the error for a claim that may have been executed.
fn unknown() -> Vec<u8> {
    let mut reply = Vec::new();
    Reply(&mut reply).error(failure_text(Failure::Unknown));
    reply
}

impl Shared {
    /// Sends a command about the line whose reply is ignored.
    fn tell_line(&mut self, command: &[u8], requests: &mut dyn Requests) {
        let owner = TagOwner { connection: ConnectionId::default(), target: Target::Line };
        let tag = self.tags.give(owner);
        if requests.write(tag, command).is_err() {
            self.tags.take(tag);
        }
        fresh(&mut self.command);
    }
}
