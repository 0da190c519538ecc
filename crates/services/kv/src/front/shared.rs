//! State shared by all connections: the table of commands, scratch buffers, and the memory that is
//! counted for all of them.

use std::collections::VecDeque;

use quorate_access::Desk;
use quorate_replica::{
    front::{ConnectionId, Patience, Requests, Tag, Tags},
    seldom::Seldom,
};
use rustc_hash::FxHashMap;

use super::{
    buffers::fresh,
    channels::Channels,
    monitor::{self, Monitors, is_hidden},
    roster::{Roster, Seat},
    settings::Settings,
    tally::{self, Tally},
    waiting::Waiting,
};
use crate::{
    command::{Refusal, Request, ScriptBy, Spec},
    commands::events::Setting,
    encode::Encoder,
    resp::{reply::Reply, request::Arguments},
    scripts::{self, Scripts},
};

/// Destination of a completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) connection: ConnectionId,
    pub(super) target: Target,
}

/// Part of a connection that a tag stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The request with this number.
    Place(u64),
    /// A run of reads.
    Run,
    /// A claim of a client in line.
    Claim(u64),
    /// A command about the line that no client waits for.
    Line,
}

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tags: Tags<Owner>,
    table: FxHashMap<&'static [u8], (u16, &'static Spec)>,
    /// The command being encoded; its memory is reused.
    pub(super) command: Vec<u8>,
    /// The neutral reply being made; its memory is reused.
    pub(super) reply: Vec<u8>,
    /// Memory of queries that were answered.
    spare: Vec<Vec<u8>>,
    pub(super) dirty: VecDeque<ConnectionId>,
    pub(super) roster: Roster,
    pub(super) settings: Settings,
    /// Keyspace events that this node's service makes.
    pub(super) events: Setting,
    /// Requests taken since the start.
    pub(super) processed: u64,
    /// Memory of all connections.
    pub(super) held_bytes: usize,
    /// Complaints about clients of another protocol.
    pub(super) strangers: Seldom,
    /// Lines about clients that were closed because they held too much memory.
    pub(super) hoarders: Seldom,
    pub(super) tally: Tally,
    pub(super) scripts: Scripts,
    pub(super) channels: Channels,
    pub(super) waiting: Waiting,
    pub(super) monitors: Monitors,
    /// Passwords that are being checked.
    pub(super) desk: Desk<ConnectionId>,
    /// Passwords that did not fit, since the start.
    pub(super) wrong_passwords: u64,
    /// Requests that were refused for want of a role, since the start.
    pub(super) forbidden: u64,
    /// Connections whose next request waits until this node knows the permissions.
    patient: Vec<ConnectionId>,
    patience: Patience,
    /// The version of the table of users that subscriptions were last judged by.
    users_version: u64,
    /// Number of seeds made.
    seeds: u64,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        let specs = (0..).zip(tally::commands());
        Self {
            tags: Tags::default(),
            table: specs.map(|(number, spec)| (spec.name.as_bytes(), (number, spec))).collect(),
            command: Vec::new(),
            reply: Vec::new(),
            spare: Vec::new(),
            dirty: VecDeque::new(),
            roster: Roster::default(),
            settings,
            events: Setting::default(),
            processed: 0,
            held_bytes: 0,
            strangers: Seldom::default(),
            hoarders: Seldom::default(),
            tally: Tally::default(),
            scripts: Scripts::default(),
            channels: Channels::default(),
            waiting: Waiting::default(),
            monitors: Monitors::default(),
            desk: Desk::default(),
            wrong_passwords: 0,
            forbidden: 0,
            patient: Vec::new(),
            patience: Patience::default(),
            users_version: 0,
            seeds: 0,
        }
    }

    /// Writes down who asked for what was slow.
    pub(super) fn sign_slow(&mut self) {
        self.tally.slow.sign(&mut self.roster);
    }

    /// Returns whether the users have changed since the last call.
    pub(super) fn users_changed(&mut self, requests: &dyn Requests) -> bool {
        let version = requests.users_version();
        std::mem::replace(&mut self.users_version, version) != version
    }

    /// [access-4] [time-4] Says whether a request waits, as it would for a leader: this node does
    /// not know yet who may do what, or what time it is, and has not been asked for long.
    pub(super) fn has_patience(&mut self, now_ms: u64) -> bool {
        !self.patience.is_over(now_ms)
    }

    /// Adds a connection that waits.
    pub(super) fn waits(&mut self, connection: ConnectionId) {
        self.patient.push(connection);
    }

    /// Returns the connections that need not wait any more.
    pub(super) fn take_patient(&mut self, requests: &dyn Requests) -> Vec<ConnectionId> {
        let over = !self.patient.is_empty()
            && (requests.users().is_some() && requests.knows_clock()
                || !self.has_patience(requests.wall_ms()));
        if over { std::mem::take(&mut self.patient) } else { Vec::new() }
    }

    pub(super) fn tag(&mut self, connection: ConnectionId, target: Target) -> Tag {
        self.tags.give(Owner { connection, target })
    }

    /// The command of this name, in any case.
    pub(super) fn lookup(&self, name: &[u8]) -> Option<&'static Spec> {
        self.find(name).map(|(_, spec)| spec)
    }

    /// The same, with its number in the table.
    pub(super) fn find(&self, name: &[u8]) -> Option<(u16, &'static Spec)> {
        let mut lower = [0; 16];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.table.get(&*lower).copied()
    }

    /// Encodes `EVAL text …` or `EVALSHA hash …` into the scratch buffer.
    pub(super) fn encode_script(
        &mut self,
        by: ScriptBy,
        name: &'static str,
        words: &Arguments<'_>,
        requests: &dyn Requests,
    ) -> Result<(), Refusal> {
        let meaning = match by {
            ScriptBy::Text => self.scripts.learn(words.at(1)).ok_or(scripts::UNKNOWN),
            ScriptBy::Hash => self.scripts.find(words.at(1)).ok_or(scripts::NO_SCRIPT),
        };
        let request = Request {
            name,
            arguments: words.from(2),
            wall_ms: requests.wall_ms(),
            value_bytes_max: requests.command_bytes_max(),
            seed: self.seed(requests.wall_ms()),
        };
        fresh(&mut self.command);
        scripts::encode(meaning?, &request, &mut Encoder(&mut self.command))
    }

    /// Returns the seed for random choices of the next request: different for each of them, and
    /// after a restart.
    pub(super) const fn seed(&mut self, wall_ms: u64) -> u64 {
        self.seeds = self.seeds.wrapping_add(1);
        wall_ms.rotate_left(32) ^ self.seeds
    }

    /// A copy of the query in the scratch buffer.
    pub(super) fn query(&mut self) -> Vec<u8> {
        let mut query = self.spare.pop().unwrap_or_default();
        query.extend_from_slice(&self.command);
        query
    }

    /// Counts memory that something held before, and holds now.
    pub(super) const fn recount(&mut self, counted: &mut usize, now: usize) {
        self.held_bytes = self.held_bytes - *counted + now;
        *counted = now;
    }

    /// Shows a command to those who watch, unless it is a secret.
    #[cold]
    pub(super) fn show(&mut self, seat: Seat, spec: &Spec, arguments: &Arguments<'_>) {
        let inner = monitor::inner(spec, arguments).and_then(|name| self.lookup(name));
        if is_hidden(spec) || inner.is_some_and(is_hidden) {
            return;
        }
        let guest = self.roster.guest(seat);
        let peer = guest.map_or("", |guest| &guest.endpoints.peer);
        self.monitors.add(peer, self.tally.now_ms, arguments);
    }

    /// Returns whether `more` bytes exceed the limit.
    pub(super) const fn is_full(&self, more: usize) -> bool {
        self.held_bytes.saturating_add(more) > self.settings.client_bytes_max
    }

    /// Keeps the memory of a query that was answered, if it is small.
    pub(super) fn reuse(&mut self, mut query: Vec<u8>) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256;
        if self.spare.len() < SPARE_MAX && query.capacity() <= SPARE_BYTES_MAX {
            query.clear();
            self.spare.push(query);
        }
    }

    /// The scratch for a reply, empty; a very large one is not kept.
    pub(super) fn fresh_reply(&mut self) -> Reply<'_> {
        fresh(&mut self.reply);
        Reply(&mut self.reply)
    }
}
