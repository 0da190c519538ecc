//! State shared by all connections: scratch buffers, memory accounting, waiting and paused clients.

use std::collections::VecDeque;

use quorate_access::PendingChecks;
use quorate_replica::{
    front::{ConnectionId, Patience, Requests, Tag, Tags},
    seldom::Seldom,
};

use super::{
    buffers::fresh,
    census::Census,
    channels::Channels,
    monitor::{self, Monitors, is_hidden},
    readers::Readers,
    roster::{ClientSlot, ClientTable},
    settings::Settings,
    switching::Switching,
    tally::Tally,
    tracking::{Cached, Forgotten, Tracking},
    traffic::Traffic,
    waiting::Waiting,
};
use crate::{
    command::{Refusal, Request, ScriptBy, Spec},
    commands::{self, events::Setting, operations::is_of_level_10, transactions::ABSENT_LEVEL},
    encode::Encoder,
    key::Key,
    op::Op,
    resp::{reply::Reply, request::Arguments},
    scripts::Scripts,
};

/// Error for a script or a stream in a group that still has nodes of an earlier release ([level-9]).
const NEEDS_LEVEL: &str = "need feature level 10, which the cluster reaches once all nodes are upgraded; see \
    `quorate member feature`";

/// Recipient of a completion: a connection and the part of it that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) connection: ConnectionId,
    pub(super) target: Target,
}

/// Part of a connection that waits for a completion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The request with this number.
    Place(u64),
    Run,
    /// The claim of the blocked client with this number.
    Claim(u64),
    /// The attempt of the client with this number, which waits for stream entries.
    Reader(u64),
    /// Announcement of subscriptions.
    Announcement,
    /// Command on the queue of blocked clients, whose reply is ignored.
    Line,
}

/// CLIENT PAUSE in effect: requests are not accepted until it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// End as Unix time in milliseconds.
    pub(super) until_ms: u64,
    /// True if reads are accepted.
    pub(super) only_writes: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tags: Tags<Owner>,
    /// Scratch buffer for the command being encoded.
    pub(super) command: Vec<u8>,
    /// Scratch buffer for the reply being built, in neutral form.
    pub(super) reply: Vec<u8>,
    /// Buffers of answered queries, for reuse.
    spare: Vec<Vec<u8>>,
    pub(super) dirty: VecDeque<ConnectionId>,
    pub(super) roster: ClientTable,
    pub(super) settings: Settings,
    pub(super) events: Setting,
    pub(super) traffic: Traffic,
    /// Bytes of all connections that count towards the memory limit.
    pub(super) held_bytes: usize,
    /// Rate limit of the log entry about clients that speak another protocol.
    pub(super) strangers: Seldom,
    /// Rate limit of the log entry about clients disconnected for their memory use.
    pub(super) oversized_clients: Seldom,
    pub(super) tally: Tally,
    pub(super) scripts: Scripts,
    pub(super) channels: Channels,
    pub(super) census: Census,
    pub(super) switching: Switching,
    pub(super) tracking: Tracking,
    /// Keys no longer tracked. Clients that cache them are notified as if they had changed.
    pub(super) forgotten: Vec<Forgotten>,
    pub(super) waiting: Waiting,
    pub(super) readers: Readers,
    pub(super) monitors: Monitors,
    pub(super) desk: PendingChecks<ConnectionId>,
    /// Number of wrong passwords since the start.
    pub(super) wrong_passwords: u64,
    /// Number of requests refused since the start because of the client's role.
    pub(super) forbidden: u64,
    /// Connections whose next request waits for the permissions, the time or the end of a pause.
    patient: Vec<ConnectionId>,
    pause: Option<Pause>,
    /// Clients to disconnect for CLIENT KILL.
    pub(super) killed: Vec<ConnectionId>,
    patience: Patience,
    /// Version of the user table at the last check of subscriptions.
    users_version: u64,
    /// Number of seeds generated since the start.
    seeds: u64,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            tags: Tags::default(),
            command: Vec::new(),
            reply: Vec::new(),
            spare: Vec::new(),
            dirty: VecDeque::new(),
            roster: ClientTable::default(),
            settings,
            events: Setting::default(),
            traffic: Traffic::default(),
            held_bytes: 0,
            strangers: Seldom::default(),
            oversized_clients: Seldom::default(),
            tally: Tally::default(),
            scripts: Scripts::default(),
            channels: Channels::default(),
            census: Census::default(),
            switching: Switching::default(),
            tracking: Tracking::default(),
            forgotten: Vec::new(),
            waiting: Waiting::default(),
            readers: Readers::default(),
            monitors: Monitors::default(),
            desk: PendingChecks::default(),
            wrong_passwords: 0,
            forbidden: 0,
            patient: Vec::new(),
            pause: None,
            killed: Vec::new(),
            patience: Patience::default(),
            users_version: 0,
            seeds: 0,
        }
    }

    /// Adds the clients' addresses and names to new entries of the slow log.
    pub(super) fn sign_slow(&mut self) {
        self.tally.slow.sign_entries(&mut self.roster);
    }

    /// Returns whether the user table has changed since the last call.
    pub(super) fn users_changed(&mut self, requests: &dyn Requests) -> bool {
        let version = requests.users_version();
        std::mem::replace(&mut self.users_version, version) != version
    }

    /// Returns whether a request may still wait for the permissions and the time ([access-4],
    /// [time-4]). The wait is bounded, like a wait for a leader.
    pub(super) fn has_patience(&mut self, now_ms: u64) -> bool {
        !self.patience.is_over(now_ms)
    }

    pub(super) fn waits(&mut self, connection: ConnectionId) {
        self.patient.push(connection);
    }

    /// Starts a pause or extends the current one. As in Redis, a pause never becomes shorter or
    /// affects fewer requests.
    pub(super) fn pause(&mut self, mut more: Pause, now_ms: u64) {
        if let Some(now) = self.current_pause(now_ms) {
            more.until_ms = more.until_ms.max(now.until_ms);
            more.only_writes &= now.only_writes;
        }
        self.pause = Some(more);
    }

    pub(super) const fn end_pause(&mut self) {
        self.pause = None;
    }

    pub(super) fn current_pause(&self, now_ms: u64) -> Option<Pause> {
        self.pause.filter(|pause| now_ms < pause.until_ms)
    }

    /// Returns the end of the pause, if requests wait for it.
    pub(super) fn wake_ms(&self) -> Option<u64> {
        self.pause.filter(|_| !self.patient.is_empty()).map(|pause| pause.until_ms)
    }

    /// Removes and returns the waiting connections whose requests can be handled now.
    pub(super) fn take_patient(&mut self, requests: &dyn Requests) -> Vec<ConnectionId> {
        let over = !self.patient.is_empty()
            && self.current_pause(requests.wall_ms()).is_none()
            && (requests.users().is_some() && requests.knows_clock()
                || !self.has_patience(requests.wall_ms()));
        if over { std::mem::take(&mut self.patient) } else { Vec::new() }
    }

    pub(super) fn tag(&mut self, connection: ConnectionId, target: Target) -> Tag {
        self.tags.give(Owner { connection, target })
    }

    /// Looks up a command, ignoring case.
    pub(super) fn lookup(&self, name: &[u8]) -> Option<&'static Spec> {
        commands::lookup(name).map(|(_, spec)| spec)
    }

    /// Encodes `EVAL text …` or `EVALSHA hash …` into the scratch buffer.
    pub(super) fn encode_script(
        &mut self,
        by: ScriptBy,
        (name, operator): (&'static str, bool),
        words: &Arguments<'_>,
        requests: &dyn Requests,
    ) -> Result<(), Refusal> {
        let request = Request {
            name,
            arguments: words.from(2),
            wall_ms: requests.wall_ms(),
            value_bytes_max: requests.command_bytes_max(),
            seed: self.seed(requests.wall_ms()),
        };
        fresh(&mut self.command);
        let out = &mut Encoder(&mut self.command);
        self.scripts.encode(by, words.at(1), operator, &request, out)
    }

    /// Refuses the command in the scratch buffer if it needs a higher level than the group has.
    pub(super) fn check_level(&self, requests: &dyn Requests) -> Result<(), Refusal> {
        if requests.level() >= ABSENT_LEVEL || !is_of_level_10(&self.command) {
            return Ok(());
        }
        let op = self.command.first().copied().and_then(Op::from_byte);
        let what = if op.is_some_and(Op::is_script) { "scripts" } else { "streams" };
        Err(Refusal::Text(format!("ERR not executed: {what} {NEEDS_LEVEL}").into()))
    }

    /// Replaces the keys that are tracked for a client.
    pub(super) fn track(&mut self, client: ConnectionId, known: Option<&Cached>, cached: &Cached) {
        if let Some(known) = known {
            self.tracking.leave(client, known);
        }
        self.tracking.enter(client, cached);
        self.events.track(true);
    }

    pub(super) fn untrack(&mut self, client: ConnectionId, known: &Cached) {
        self.tracking.leave(client, known);
        self.events.track(self.tracking.settle());
    }

    /// Records that a client has read keys that it caches.
    pub(super) fn remember<'k>(
        &mut self,
        client: ConnectionId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        for key in keys.filter(|key| Key::new(key).is_ok()) {
            self.forgotten.extend(self.tracking.remember(client, key));
        }
    }

    /// Returns a random seed, unique to each request even across restarts.
    pub(super) const fn seed(&mut self, wall_ms: u64) -> u64 {
        self.seeds = self.seeds.wrapping_add(1);
        wall_ms.rotate_left(32) ^ self.seeds
    }

    pub(super) fn query(&mut self) -> Vec<u8> {
        let mut query = self.spare.pop().unwrap_or_default();
        query.extend_from_slice(&self.command);
        query
    }

    /// Updates the bytes that an item counts towards the limit.
    pub(super) const fn recount(&mut self, counted: &mut usize, now: usize) {
        self.held_bytes = self.held_bytes - *counted + now;
        *counted = now;
    }

    /// Adds a command to the output for monitors, unless it contains a secret.
    #[cold]
    pub(super) fn show(&mut self, seat: ClientSlot, spec: &Spec, arguments: &Arguments<'_>) {
        let inner = monitor::inner(spec, arguments).and_then(|name| self.lookup(name));
        if is_hidden(spec) || inner.is_some_and(is_hidden) {
            return;
        }
        let guest = self.roster.guest(seat);
        let peer = guest.map_or("", |guest| &guest.endpoints.peer);
        self.monitors.add(peer, self.tally.now_ms, arguments);
    }

    pub(super) const fn is_full(&self, more: usize) -> bool {
        self.held_bytes.saturating_add(more) > self.settings.client_bytes_max
    }

    /// Retains the buffer of an answered query for reuse, if it is small.
    pub(super) fn reuse(&mut self, mut query: Vec<u8>) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256;
        if self.spare.len() < SPARE_MAX && query.capacity() <= SPARE_BYTES_MAX {
            query.clear();
            self.spare.push(query);
        }
    }

    /// Clears the scratch buffer for replies, shrinks it if it is very large, and returns a writer
    /// to it.
    pub(super) fn fresh_reply(&mut self) -> Reply<'_> {
        fresh(&mut self.reply);
        Reply(&mut self.reply)
    }
}
