//! State shared by all connections: scratch buffers, memory accounting, waiting and paused clients.

use std::{borrow::Cow, collections::VecDeque};

use quorate_access::PendingChecks;
use quorate_replica::{
    front::{AccessPatience, ConnectionId, Requests, Tag, Tags},
    seldom::Seldom,
};

use super::{
    buffers::clear_buffer,
    census::Census,
    channels::Channels,
    monitor::{self, Monitors, is_hidden},
    readers::Readers,
    roster::{ClientSlot, ClientTable},
    settings::{ClusterMode, Settings},
    switching::MasterSwitchNotices,
    tally::CommandStatistics,
    tracking::{CachedKeys, EvictedKey, TrackingTable},
    traffic::Traffic,
    waiting::BlockedClients,
};
use crate::{
    command::{Refusal, Request, ScriptForm, Spec},
    commands::{
        self,
        events::Setting,
        operations::is_of_level_10,
        scripts::ScriptPermissions,
        selection::{SELECT_IN_CLUSTER_MODE, refusal_in_cluster_mode},
        transactions::ABSENT_LEVEL,
    },
    encode::Encoder,
    key::Key,
    op::Op,
    resp::{reply::Reply, request::Arguments},
    scripts::Scripts,
    store::Database,
};

/// Error for what is new at feature level 10 in a group that still has nodes of an earlier release
/// ([level-9]).
const NEEDS_LEVEL: &str = "need feature level 10, which the cluster reaches once all nodes are upgraded; see \
    `quorate member feature`";

const DATABASES: &str = "databases other than the first";

/// Recipient of a completion: a connection and the part of it that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionOwner {
    pub(super) connection: ConnectionId,
    pub(super) target: Target,
}

/// Part of a connection that waits for a completion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The request with this number.
    Request(u64),
    ReadRun,
    /// The claim of the blocked client with this number.
    Claim(u64),
    /// The attempt of the client with this number, which waits for stream entries.
    Reader(u64),
    /// Announcement of subscriptions.
    Announcement,
    /// Command on the queue of blocked clients, whose reply is ignored.
    QueueCommand,
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
    pub(super) tags: Tags<CompletionOwner>,
    /// Scratch buffer for the command being encoded.
    pub(super) command: Vec<u8>,
    /// Scratch buffer for the reply being built, in neutral form.
    pub(super) reply: Vec<u8>,
    /// Buffers of answered queries, for reuse.
    spare_buffers: Vec<Vec<u8>>,
    pub(super) dirty: VecDeque<ConnectionId>,
    pub(super) clients: ClientTable,
    pub(super) settings: Settings,
    pub(super) events: Setting,
    pub(super) traffic: Traffic,
    /// Bytes of all connections that count towards the memory limit.
    pub(super) held_bytes: usize,
    /// Rate limit of the log entry about clients that speak another protocol.
    pub(super) foreign_protocol_log: Seldom,
    /// Rate limit of the log entry about clients disconnected for their memory use.
    pub(super) oversized_clients: Seldom,
    pub(super) tally: CommandStatistics,
    pub(super) scripts: Scripts,
    pub(super) channels: Channels,
    pub(super) census: Census,
    pub(super) switching: MasterSwitchNotices,
    pub(super) tracking: TrackingTable,
    /// Keys no longer tracked. Clients that cache them are notified as if they had changed.
    pub(super) evicted_keys: Vec<EvictedKey>,
    pub(super) blocked_clients: BlockedClients,
    pub(super) readers: Readers,
    pub(super) monitors: Monitors,
    pub(super) password_checks: PendingChecks<ConnectionId>,
    /// Number of wrong passwords since the start.
    pub(super) wrong_passwords: u64,
    /// Number of requests refused since the start because of the client's role.
    pub(super) forbidden_requests: u64,
    /// Connections whose next request waits for the permissions, the time or the end of a pause.
    deferred_connections: Vec<ConnectionId>,
    pause: Option<Pause>,
    /// Clients to disconnect for CLIENT KILL.
    pub(super) clients_to_kill: Vec<ConnectionId>,
    patience: AccessPatience,
    /// Version of the user table at the last check of subscriptions.
    users_version: u64,
    /// Number of seeds generated since the start.
    seed_count: u64,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            tags: Tags::default(),
            command: Vec::new(),
            reply: Vec::new(),
            spare_buffers: Vec::new(),
            dirty: VecDeque::new(),
            clients: ClientTable::default(),
            settings,
            events: Setting::default(),
            traffic: Traffic::default(),
            held_bytes: 0,
            foreign_protocol_log: Seldom::default(),
            oversized_clients: Seldom::default(),
            tally: CommandStatistics::default(),
            scripts: Scripts::default(),
            channels: Channels::default(),
            census: Census::default(),
            switching: MasterSwitchNotices::default(),
            tracking: TrackingTable::default(),
            evicted_keys: Vec::new(),
            blocked_clients: BlockedClients::default(),
            readers: Readers::default(),
            monitors: Monitors::default(),
            password_checks: PendingChecks::default(),
            wrong_passwords: 0,
            forbidden_requests: 0,
            deferred_connections: Vec::new(),
            pause: None,
            clients_to_kill: Vec::new(),
            patience: AccessPatience::default(),
            users_version: 0,
            seed_count: 0,
        }
    }

    /// Adds the clients' addresses and names to new entries of the slow log.
    pub(super) fn sign_slow(&mut self) {
        self.tally.slow.sign_entries(&mut self.clients);
    }

    /// Returns whether the user table has changed since the last call.
    pub(super) fn users_changed(&mut self, requests: &dyn Requests) -> bool {
        let version = requests.users_version();
        std::mem::replace(&mut self.users_version, version) != version
    }

    /// Returns whether a request may still wait for the permissions and the time ([access-4],
    /// [time-4]). The wait is bounded, like a wait for a leader.
    pub(super) fn has_patience(&mut self, now_ms: u64) -> bool {
        !self.patience.has_expired(now_ms)
    }

    pub(super) fn defer_connection(&mut self, connection: ConnectionId) {
        self.deferred_connections.push(connection);
    }

    /// Starts a pause or extends the current one. As in Redis, a pause never becomes shorter or
    /// affects fewer requests.
    pub(super) fn extend_pause(&mut self, mut more: Pause, now_ms: u64) {
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
        self.pause.filter(|_| !self.deferred_connections.is_empty()).map(|pause| pause.until_ms)
    }

    /// Removes and returns the waiting connections whose requests can be handled now.
    pub(super) fn take_deferred(&mut self, requests: &dyn Requests) -> Vec<ConnectionId> {
        let over = !self.deferred_connections.is_empty()
            && self.current_pause(requests.wall_ms()).is_none()
            && (requests.users().is_some() && requests.knows_clock()
                || !self.has_patience(requests.wall_ms()));
        if over { std::mem::take(&mut self.deferred_connections) } else { Vec::new() }
    }

    pub(super) fn allocate_tag(&mut self, connection: ConnectionId, target: Target) -> Tag {
        self.tags.allocate(CompletionOwner { connection, target })
    }

    /// Looks up a command, ignoring case.
    pub(super) fn lookup(&self, name: &[u8]) -> Option<&'static Spec> {
        commands::lookup(name).map(|(_, spec)| spec)
    }

    /// Encodes `EVAL text …` or `EVALSHA hash …` into the scratch buffer.
    pub(super) fn encode_script(
        &mut self,
        by: ScriptForm,
        (name, operator, database): (&'static str, bool, Database),
        words: &Arguments<'_>,
        requests: &dyn Requests,
    ) -> Result<(), Refusal> {
        let request = Request {
            name,
            arguments: words.from(2),
            database,
            wall_ms: requests.wall_ms(),
            value_bytes_max: requests.command_bytes_max(),
            seed: self.seed(requests.wall_ms()),
        };
        clear_buffer(&mut self.command);
        let out = &mut Encoder(&mut self.command);
        let databases = self.settings.cluster_mode == ClusterMode::Off;
        let permissions = ScriptPermissions { operator, databases };
        self.scripts.encode(by, words.at(1), permissions, &request, out)
    }

    /// Prepares the command in the scratch buffer, which has no prefix yet, to be sent. Refuses it
    /// if it needs a higher level than the group has, or a second database in cluster mode.
    pub(super) fn seal(&mut self, requests: &dyn Requests) -> Result<(), Refusal> {
        let op = self.command.first().copied().and_then(Op::from_byte);
        if self.settings.cluster_mode != ClusterMode::Off
            && let Some(text) = op.and_then(refusal_in_cluster_mode)
        {
            return Err(text.into());
        }
        if requests.level() >= ABSENT_LEVEL {
            return Ok(());
        }
        if op == Some(Op::FlushAll) {
            // The only database is all of them.
            self.command[0] = Op::Flush as u8;
        }
        if !is_of_level_10(&self.command) {
            return Ok(());
        }
        let what = match op {
            Some(op) if op.is_script() => "scripts",
            Some(Op::PfAdd | Op::PfCount | Op::PfMerge) => "HyperLogLogs",
            Some(Op::GeoMembers | Op::GeoDist | Op::GeoSearch | Op::GeoStore) => "geo commands",
            Some(Op::MoveDb | Op::SwapDb | Op::CopyTo) => DATABASES,
            Some(Op::Lcs | Op::HGetDel | Op::ScanNames) => "LCS, HGETDEL and NOVALUES",
            _ => "streams",
        };
        Err(Refusal::Text(format!("ERR not executed: {what} {NEEDS_LEVEL}").into()))
    }

    /// Returns the error of SELECT if clients cannot use this database now.
    pub(super) fn check_database(
        &self,
        database: Database,
        requests: &dyn Requests,
    ) -> Result<(), Cow<'static, str>> {
        match database {
            Database::ZERO => Ok(()),
            _ if self.settings.cluster_mode != ClusterMode::Off => {
                Err(SELECT_IN_CLUSTER_MODE.into())
            }
            _ if requests.level() < ABSENT_LEVEL => {
                Err(format!("ERR not executed: {DATABASES} {NEEDS_LEVEL}").into())
            }
            _ => Ok(()),
        }
    }

    /// Replaces the keys that are tracked for a client.
    pub(super) fn replace_tracked_keys(
        &mut self,
        client: ConnectionId,
        known: Option<&CachedKeys>,
        cached: &CachedKeys,
    ) {
        if let Some(known) = known {
            self.tracking.remove_client(client, known);
        }
        self.tracking.add_client(client, cached);
        self.events.track(true);
    }

    pub(super) fn stop_tracking(&mut self, client: ConnectionId, known: &CachedKeys) {
        self.tracking.remove_client(client, known);
        self.events.track(self.tracking.remove_unused_keys());
    }

    /// Records that a client has read keys that it caches.
    pub(super) fn record_cached_reads<'k>(
        &mut self,
        client: ConnectionId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        for key in keys.filter(|key| Key::new(key).is_ok()) {
            self.evicted_keys.extend(self.tracking.record_read(client, key));
        }
    }

    /// Returns a random seed, unique to each request even across restarts.
    pub(super) const fn seed(&mut self, wall_ms: u64) -> u64 {
        self.seed_count = self.seed_count.wrapping_add(1);
        wall_ms.rotate_left(32) ^ self.seed_count
    }

    pub(super) fn query(&mut self) -> Vec<u8> {
        let mut query = self.spare_buffers.pop().unwrap_or_default();
        query.extend_from_slice(&self.command);
        query
    }

    /// Updates the bytes that an item counts towards the limit.
    pub(super) const fn update_charge(&mut self, counted: &mut usize, now: usize) {
        self.held_bytes = self.held_bytes - *counted + now;
        *counted = now;
    }

    /// Adds a command to the output for monitors, unless it contains a secret.
    #[cold]
    pub(super) fn show(
        &mut self,
        (seat, database): (ClientSlot, Database),
        spec: &Spec,
        arguments: &Arguments<'_>,
    ) {
        let inner = monitor::inner_command_name(spec, arguments).and_then(|name| self.lookup(name));
        if is_hidden(spec) || inner.is_some_and(is_hidden) {
            return;
        }
        let guest = self.clients.entry_mut(seat);
        let peer = guest.map_or("", |guest| &guest.endpoints.peer);
        self.monitors.add_command((database, peer), self.tally.now_ms, arguments);
    }

    pub(super) const fn is_full(&self, more: usize) -> bool {
        self.held_bytes.saturating_add(more) > self.settings.client_bytes_max
    }

    /// Retains the buffer of an answered query for reuse, if it is small.
    pub(super) fn retain_buffer(&mut self, mut query: Vec<u8>) {
        const SPARE_MAX: usize = 1024;
        const SPARE_BYTES_MAX: usize = 256;
        if self.spare_buffers.len() < SPARE_MAX && query.capacity() <= SPARE_BYTES_MAX {
            query.clear();
            self.spare_buffers.push(query);
        }
    }

    /// Clears the scratch buffer for replies, shrinks it if it is very large, and returns a writer
    /// to it.
    pub(super) fn fresh_reply(&mut self) -> Reply<'_> {
        clear_buffer(&mut self.reply);
        Reply(&mut self.reply)
    }
}
