//! Client connection: parses requests, executes or forwards them, and sends replies in order.

mod attached;
mod checking;
mod databases;
mod local;
mod login;
mod quiet;
mod session;
mod tracking;

use std::collections::VecDeque;

use quorate_access::Role;
use quorate_core::{record::Class, time::Time};
use quorate_replica::front::{ConnectionId, Failure, Requests, SessionId, State as Moment, Tag};

use self::{attached::SessionAttachment, checking::PasswordCheck, quiet::ReplyMode};
use super::{
    access::{self, Login, Permission},
    asked::{Freshness, Read, Write},
    buffers::clear_buffer,
    channels::{self, KINDS, MatchedBy, Names, PendingPublishes, Subscriptions},
    monitor,
    order::{ConnectionParts, OUTPUT_BYTES_HARD, RequestOrder},
    readers::WaitEnd,
    refusals::{MEMORY_IS_FULL, failure_text, printable, too_big},
    roster::ClientSlot,
    shared::Shared,
    tally::RequestStamp,
    tracking::TrackingState,
    transaction::{Transaction, WatchedKeys},
};
use crate::{
    command::{Handler, Local, Refusal, Request, Spec, SubscriptionKind},
    commands::{lookup, server::encode_literal, stream::waiting::AwaitedEntries, waiting},
    encode::Encoder,
    op::{Kind, Op},
    resp::{
        reply::{Reply, Version},
        request::{Arguments, Parser},
    },
    store::Database,
};

/// Maximum number of unanswered requests per connection.
const PLACES_MAX: usize = 1024;
/// Maximum total size in bytes of unanswered requests. A single larger request is accepted.
const OPEN_BYTES_MAX: usize = 1024 * 1024;
/// Commands, other than PING, QUIT and RESET, that a subscriber may use.
const SUBSCRIBER_COMMANDS: [&str; 6] =
    ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe"];
/// Error for a blocking command on a connection with the class durable in a volatile cluster. A
/// blocked client is always answered in the cluster's class, thus without waiting for a disk.
const BLOCKING_IS_VOLATILE: &str = "ERR not executed: this volatile cluster answers commands that may wait only at its own \
    class; QUORATE CLASS group allows them";
/// Memory charged for a blocked client, in addition to its command.
const BLOCKED_CLIENT_BYTES: usize = 256;
/// Maximum number of streams that a client may wait for.
const AWAITED_MAX: usize = 1024;
/// Memory of each of them, besides copies of its name.
const AWAITED_BYTES: usize = 256;
const TOO_MANY_STREAMS: &str = "ERR a client may wait for 1024 streams; use several connections";
/// Unsent bytes above which the connection accepts no more requests.
const OUTPUT_BYTES_SOFT: usize = 1024 * 1024;

/// Request that is blocked, or may become so once it is executed.
#[derive(Clone, Copy, Debug)]
struct BlockedRequest {
    /// Number of the client among the blocked clients of this node.
    number: u64,
    request_number: u64,
    bytes: usize,
    /// True if more input has arrived. It is not accepted before the wait ends.
    has_unparsed_input: bool,
    blocked_on: BlockedOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockedOn {
    /// Elements of lists or sorted sets: the client is in the replicated queue.
    Elements,
    /// Entries of streams. An XREAD needs the role of a reader only.
    Entries { consumes: bool },
}

#[derive(Debug)]
pub(super) struct Connection {
    id: ConnectionId,
    client_slot: ClientSlot,
    parser: Parser,
    order: RequestOrder,
    version: Version,
    /// Selected database.
    database: Database,
    /// EXEC in flight that selects a database, with the number of its request. Until its reply
    /// tells whether it was executed, no request is accepted.
    pending_database: Option<(u64, Database)>,
    transaction: Option<Transaction>,
    watching: WatchedKeys,
    subscriptions: Subscriptions,
    /// PUBLISH commands whose replies are pending.
    pending_publishes: PendingPublishes,
    /// State of CLIENT REPLY.
    reply_mode: ReplyMode,
    is_monitor: bool,
    /// Keys that the client caches, if client-side caching is on.
    tracking: Option<TrackingState>,
    /// Required freshness of reads.
    freshness: Freshness,
    session: SessionAttachment,
    login: Login,
    password_check: Option<PasswordCheck>,
    /// True if the next request waits for the permissions, the time or the end of CLIENT PAUSE.
    is_deferred: bool,
    /// The last request, if it is blocked or may block.
    blocked_request: Option<BlockedRequest>,
    /// Name of the last command, for CLIENT LIST.
    command: &'static str,
    /// Bytes charged to the shared memory limit, except those of `order`.
    charged_bytes: usize,
    /// True if the connection accepts no more requests and closes once all are answered.
    closes_after_replies: bool,
    /// True if the connection neither accepts nor sends anything more.
    is_dropped: bool,
    /// True if the connection was not ready at the last check, so input may be pending.
    was_not_ready: bool,
    is_queued_for_reactor: bool,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, client_slot: ClientSlot, login: Login) -> Self {
        Self {
            id,
            client_slot,
            command: "NULL",
            parser: Parser::default(),
            order: RequestOrder::new(client_slot),
            version: Version::default(),
            database: Database::ZERO,
            pending_database: None,
            transaction: None,
            watching: WatchedKeys::default(),
            subscriptions: Subscriptions::default(),
            pending_publishes: PendingPublishes::default(),
            reply_mode: ReplyMode::default(),
            is_monitor: false,
            tracking: None,
            freshness: Freshness::default(),
            session: SessionAttachment::default(),
            login,
            password_check: None,
            is_deferred: false,
            blocked_request: None,
            charged_bytes: 0,
            closes_after_replies: false,
            is_dropped: false,
            was_not_ready: false,
            is_queued_for_reactor: false,
        }
    }

    /// Returns whether another request can be accepted.
    pub(super) fn can_accept_request(&self) -> bool {
        !self.closes_after_replies
            && self.password_check.is_none()
            && !self.is_deferred
            && self.pending_database.is_none()
            // Input of a blocked client is still read, so that a disconnect is noticed.
            && self.blocked_request.is_none_or(|parked| !parked.has_unparsed_input)
            && self.order.len() < PLACES_MAX
            && self.order.open_bytes < OPEN_BYTES_MAX
            && self.order.large_replies.has_capacity()
            && self.order.unsent_bytes() < OUTPUT_BYTES_SOFT
    }

    pub(super) fn can_receive(&self) -> bool {
        self.can_accept_request() && self.blocked_request.is_none()
    }

    /// Records that unparsed input is pending (`left`) while the client is blocked.
    pub(super) const fn note_unparsed_input(&mut self, left: bool) {
        if let Some(parked) = &mut self.blocked_request {
            parked.has_unparsed_input |= left;
        }
    }

    pub(super) const fn is_ending(&self) -> bool {
        self.closes_after_replies
    }

    pub(super) fn is_idle(&self) -> bool {
        self.order.is_empty() && self.password_check.is_none() && !self.is_deferred
    }

    pub(super) fn can_close(&self) -> bool {
        self.is_dropped || (self.closes_after_replies && self.order.is_empty())
    }

    /// Closes the connection at once and drops unsent replies.
    pub(super) fn drop_connection(&mut self) {
        (self.closes_after_replies, self.is_dropped) = (true, true);
        self.order.drop_output();
    }

    /// Returns whether to retry this request later: clients are paused, or this node lacks the
    /// permissions or the time ([access-4], [time-4]).
    pub(super) fn must_defer(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) -> bool {
        let name = arguments.at(0);
        let greets = [&b"hello"[..], b"quit", b"reset", b"ping", b"client", b"info"];
        let lacks = match self.login.permission(requests) {
            Permission::Unknown => !greets.iter().any(|one| name.eq_ignore_ascii_case(one)),
            _ if requests.knows_clock() => false,
            _ => {
                let spec = shared.lookup(name);
                let lookup = |name: &[u8]| shared.lookup(name);
                spec.is_some_and(|spec| access::needs_clock(spec, arguments, lookup))
            }
        };
        let waits = lacks && shared.has_patience(requests.wall_ms())
            || self.is_paused(arguments, shared, requests);
        if waits {
            self.is_deferred = true;
            shared.defer_connection(self.id);
        }
        waits
    }

    /// Returns whether CLIENT PAUSE delays this request. CLIENT is exempt, so that any client can
    /// end the pause.
    fn is_paused(
        &self,
        arguments: &Arguments<'_>,
        shared: &Shared,
        requests: &dyn Requests,
    ) -> bool {
        let Some(pause) = shared.current_pause(requests.wall_ms()) else {
            return false;
        };
        let queued = self.transaction.as_ref().and_then(Transaction::required_role);
        let needs = shared.lookup(arguments.at(0)).map(|spec| {
            (spec, access::required_role(spec, arguments, queued, |name| shared.lookup(name)))
        });
        match needs {
            None => false,
            Some((spec, _)) if matches!(spec.handler, Handler::Local(Local::Client)) => false,
            Some((_, needs)) => !pause.only_writes || needs >= Some(Role::Writer),
        }
    }

    pub(super) const fn stop_deferring(&mut self) {
        self.is_deferred = false;
    }

    pub(super) fn check_ticket(&self) -> Option<u64> {
        self.password_check.as_ref().map(PasswordCheck::ticket)
    }

    /// [access-2] Returns whether the client may make this request. Otherwise sends an error.
    fn check_permission(
        &mut self,
        spec: &Spec,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) -> bool {
        let queued = self.transaction.as_ref().and_then(Transaction::required_role);
        let needs = access::required_role(spec, arguments, queued, |name| shared.lookup(name));
        let standing = self.login.permission(requests);
        let may = match (needs, standing) {
            (None, _) => true,
            (Some(needs), Permission::Granted(role)) => role >= needs,
            // Commands that return no data and nothing about the cluster that is not public. MULTI
            // is one of these: if it were refused but the next command permitted, that command
            // would be executed outside a transaction.
            (Some(_), Permission::Unknown) => {
                matches!(
                    spec.handler,
                    Handler::Local(
                        Local::Ping
                            | Local::Client
                            | Local::Info
                            | Local::Multi
                            | Local::Discard
                            | Local::Unwatch
                    )
                )
            }
            (Some(_), Permission::Unauthenticated) => false,
        };
        if !may {
            shared.forbidden_requests += 1;
            let needs = needs.unwrap_or(Role::Reader);
            let name = access::name_needing(needs, spec, arguments, |name| shared.lookup(name));
            let text = self.login.permission_error(standing, name, needs);
            match spec.handler {
                Handler::Local(Local::Exec) => self.abort_exec(&text, shared),
                Handler::Local(Local::Watch) => {
                    // EXEC may be permitted later, and must fail without the versions.
                    self.watching.record_failed_watch(self.watching.epoch());
                    self.refuse_request(&text, shared);
                }
                _ => self.refuse_request(&text, shared),
            }
        } else if let Some(multi) = &mut self.transaction {
            multi.require_role(needs);
        }
        may
    }

    /// Disconnects a subscriber or a client that caches keys if it may no longer read, and a
    /// monitor that is no longer an admin ([access-2]).
    pub(super) fn end_forbidden_streams(&mut self, shared: &mut Shared, requests: &dyn Requests) {
        self.end_forbidden_wait(shared, requests);
        let listens = !self.subscriptions.is_empty() || self.tracking.is_some();
        if self.closes_after_replies || !(listens || self.is_monitor) {
            return;
        }
        let standing = self.login.permission(requests);
        let name = if self.is_monitor && standing != Permission::Granted(Role::Admin) {
            "monitor"
        } else if listens && standing == Permission::Unauthenticated {
            "subscribe"
        } else {
            return;
        };
        shared.forbidden_requests += 1;
        let text = self.login.permission_error(standing, name, Role::Admin);
        self.order.stamp = RequestStamp::NO_COMMAND;
        self.order.is_silent = false;
        self.refuse_request(&text, shared);
        self.stop_monitoring(shared);
        self.end();
    }

    /// Ends a blocking request as its timeout would, if the client may no longer make it.
    fn end_forbidden_wait(&mut self, shared: &mut Shared, requests: &dyn Requests) {
        let Some(parked) = self.blocked_request else {
            return;
        };
        let needs = match parked.blocked_on {
            BlockedOn::Entries { consumes: false } => Role::Reader,
            BlockedOn::Entries { consumes: true } | BlockedOn::Elements => Role::Writer,
        };
        let standing = self.login.permission(requests);
        let may_not = match standing {
            Permission::Granted(role) => role < needs,
            Permission::Unauthenticated => true,
            Permission::Unknown => false,
        };
        if may_not {
            self.request_early_timeout(shared);
        }
    }

    /// Returns the bytes to send. Returns none once the connection was cut, since a later reply
    /// would follow a truncated one.
    pub(super) fn output(&self) -> &[u8] {
        if self.is_dropped { &[] } else { &self.order.output }
    }

    pub(super) fn open_tags(&self) -> VecDeque<Tag> {
        self.order.open_tags()
    }

    pub(super) fn take_parser(&mut self) -> Parser {
        std::mem::take(&mut self.parser)
    }

    pub(super) fn return_parser(&mut self, mut parser: Parser) {
        parser.shrink();
        self.parser = parser;
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.charged_bytes + self.order.charged_bytes()
    }

    pub(super) fn update_charged_bytes(&mut self, shared: &mut Shared) {
        self.order.update_charged_bytes(shared);
        let multi = self.transaction.as_ref();
        let multi = multi.map_or(0, Transaction::held_bytes);
        let mut held = multi + self.watching.held_bytes() + self.parser.held_bytes();
        held += self.blocked_request.map_or(0, |parked| parked.bytes);
        held += self.pending_publishes.held_bytes();
        held += self.tracking.as_ref().map_or(0, TrackingState::held_bytes);
        if !self.subscriptions.is_empty() {
            held += self.subscriptions.held_bytes();
        }
        shared.update_charge(&mut self.charged_bytes, held);
        if let Some(guest) = shared.clients.entry_mut(self.client_slot) {
            guest.output_bytes = self.order.unsent_bytes();
            guest.held_bytes = self.held_bytes();
        }
    }

    pub(super) fn update_entry(&self, now_ms: u64, shared: &mut Shared) {
        if let Some(guest) = shared.clients.entry_mut(self.client_slot) {
            guest.seen_ms = now_ms;
            guest.database = self.database.number();
            guest.command = self.command;
            guest.blocked = self.blocked_request.is_some();
            guest.monitors = self.is_monitor;
            guest.queued_commands = self.transaction.as_ref().map(Transaction::count);
            guest.protocol = if self.version == Version::Resp3 { 3 } else { 2 };
            guest.reads_stale = self.freshness == Freshness::Stale;
            guest.unanswered_requests = self.order.len();
        }
    }

    pub(super) fn handle_sent(&mut self, count: usize, shared: &mut Shared) {
        self.order.output.drain(..count);
        self.order.release_burst_memory();
        self.update_charged_bytes(shared);
    }

    /// Queues the connection for the reactor: output, a close, or input that is accepted again.
    pub(super) fn queue_for_reactor(&mut self, shared: &mut Shared) {
        let (was_blocked, ready) = (self.was_not_ready, self.can_accept_request());
        self.was_not_ready = !ready;
        let resumed = was_blocked && ready;
        if !self.is_queued_for_reactor
            && (resumed || !self.order.output.is_empty() || self.can_close())
        {
            self.is_queued_for_reactor = true;
            shared.dirty.push_back(self.id);
        }
    }

    pub(super) const fn clear_queued(&mut self) {
        self.is_queued_for_reactor = false;
    }

    fn split_parts(&mut self) -> (&mut RequestOrder, ConnectionParts<'_>) {
        let own = ConnectionParts {
            id: self.id,
            watching: &mut self.watching,
            subscriptions: &mut self.subscriptions,
        };
        (&mut self.order, own)
    }

    pub(super) fn advance(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let (order, mut own) = self.split_parts();
        order.send_ready_requests(false, &mut own, shared, requests);
        // The blocked request may have been refused before it was sent.
        if let Some(parked) = self.blocked_request
            && !self.order.is_open(parked.request_number)
        {
            self.forget_blocked_request(shared);
        }
        self.forget_unsent_exec();
        self.begin_reading(shared, requests);
    }

    /// Makes the first attempt of a client that waits for entries, once its earlier requests are
    /// answered.
    fn begin_reading(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if let Some(parked) = self.blocked_request
            && parked.blocked_on != BlockedOn::Elements
            && self.order.is_next(parked.request_number)
            && let Some(reply) = shared.begin_reading(parked.number, requests)
        {
            shared.readers.remove_reader(parked.number);
            self.end_blocked_request(parked.request_number, &reply, shared);
            self.update_entry(shared.tally.now_ms, shared);
        }
    }

    /// Sends all requests that can be sent before a write.
    fn advance_to_write(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let (order, mut own) = self.split_parts();
        order.send_ready_requests(true, &mut own, shared, requests);
    }

    /// Executes an in-order read on the state between the writes before and after it.
    pub(super) fn read_now(&mut self, number: u64, shared: &mut Shared, state: &dyn Moment) {
        let (order, mut own) = self.split_parts();
        order.read_now(number, &mut own, shared, state);
    }

    /// Counts an in-order read as executed.
    pub(super) const fn count_in_order_read(&mut self) {
        self.order.count_in_order_read();
    }

    pub(super) fn complete_write(&mut self, number: u64, reply: &[u8], shared: &mut Shared) {
        self.adopt_database(number, reply, shared);
        if let Some(parked) = self.blocked_request
            && parked.request_number == number
        {
            if reply == waiting::WAITING && parked.blocked_on == BlockedOn::Elements {
                self.order.mark_blocked(number);
                return shared.blocked_clients.mark_queued(parked.number);
            }
            self.forget_blocked_request(shared);
        }
        if let Some(heard) =
            self.pending_publishes.handle_reply(number, reply, (&shared.channels, &shared.census))
        {
            shared.fresh_reply().count(heard);
            return self.order.complete_write(number, &shared.reply, &mut shared.tally);
        }
        self.order.complete_write(number, reply, &mut shared.tally);
    }

    /// Forgets the blocking request, which may not have been sent.
    fn forget_blocked_request(&mut self, shared: &mut Shared) {
        if let Some(parked) = self.blocked_request.take() {
            match parked.blocked_on {
                BlockedOn::Elements => shared.blocked_clients.remove_answered(parked.number),
                BlockedOn::Entries { .. } => drop(shared.readers.remove_reader(parked.number)),
            }
        }
    }

    pub(super) fn end_blocked_request(&mut self, place: u64, reply: &[u8], shared: &mut Shared) {
        self.blocked_request = None;
        self.order.complete_blocked(place, reply, &mut shared.tally);
    }

    pub(super) fn answer_unblock(&mut self, place: u64, ended: bool, shared: &mut Shared) {
        shared.fresh_reply().integer(i64::from(ended));
        self.order.complete_blocked(place, &shared.reply, &mut shared.tally);
    }

    /// Requests an early end of the blocking request, because the client has disconnected.
    pub(super) fn request_early_timeout(&self, shared: &mut Shared) {
        match self.blocked_request {
            Some(BlockedRequest { number, blocked_on: BlockedOn::Elements, .. }) => {
                shared.blocked_clients.time_out_early(number);
            }
            Some(BlockedRequest { number, .. }) => shared.readers.end(number, WaitEnd::Timeout),
            None => {}
        }
    }

    /// Attaches the connection to a new session.
    pub(super) fn attach_new_session(
        &mut self,
        number: u64,
        session: SessionId,
        shared: &mut Shared,
    ) {
        self.session.attach_to(session);
        shared.fresh_reply().bulk(format!("{}.{}", session.slot, session.index).as_bytes());
        self.order.complete_write(number, &shared.reply, &mut shared.tally);
    }

    /// Handles a write or in-order read that was not executed, or whose outcome is unknown.
    pub(super) fn handle_failed_request(
        &mut self,
        number: u64,
        failure: Failure,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        if self.blocked_request.is_some_and(|parked| parked.request_number == number) {
            self.forget_blocked_request(shared);
        }
        self.keep_database(number, failure);
        let (order, mut own) = self.split_parts();
        order.handle_failed_request(number, failure, &mut own, shared, requests);
    }

    /// Answers a run of reads whose freshness is confirmed.
    pub(super) fn answer_reads(
        &mut self,
        tag: Tag,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let (order, mut own) = self.split_parts();
        order.answer_reads(tag, &mut own, shared, requests);
    }

    pub(super) fn run_failed(&mut self, tag: Tag, failure: Failure, shared: &mut Shared) {
        let (order, mut own) = self.split_parts();
        order.run_failed(tag, failure, &mut own, shared);
    }

    /// Sends a message from a channel to which the client is subscribed.
    pub(super) fn send_message(
        &mut self,
        how: MatchedBy<'_>,
        channel: &[u8],
        message: &[u8],
        shared: &mut Shared,
    ) {
        if self.order.unsent_bytes() > OUTPUT_BYTES_HARD || shared.is_full(message.len()) {
            // A dropped message would go unnoticed by the client, so disconnect it.
            self.drop_connection();
        }
        if self.closes_after_replies {
            return;
        }
        let mut neutral = Vec::with_capacity(channel.len() + message.len() + 64);
        channels::message(how, channel, message, &mut Reply(&mut neutral));
        self.order.push_message(&neutral, self.version);
    }

    /// Sends a message after the replies to all open requests, even if replies are turned off.
    fn send_after_replies(&mut self, neutral: &[u8], shared: &mut Shared) {
        if self.order.unsent_bytes() > OUTPUT_BYTES_HARD || shared.is_full(neutral.len()) {
            // A dropped message would go unnoticed by the client, so disconnect it.
            self.drop_connection();
        }
        if self.closes_after_replies {
            return;
        }
        // The reply to a blocked request may never come.
        let before = self.blocked_request.map(|parked| parked.request_number);
        self.order.push_notice(neutral, self.version, before);
    }

    /// Makes the connection a monitor. The output of MONITOR starts after the reply.
    pub(super) fn start_monitoring(&mut self, shared: &mut Shared) {
        self.is_monitor = true;
        shared.monitors.add_monitor(self.id);
        self.reply(shared, |r| r.ok());
    }

    pub(super) fn stop_monitoring(&mut self, shared: &mut Shared) {
        if std::mem::take(&mut self.is_monitor) {
            shared.monitors.remove_monitor(self.id);
        }
    }

    pub(super) fn watch_lines(&mut self, lines: &[u8], shared: &mut Shared) {
        // The reply to MONITOR comes first; later requests of a monitor are answered at once.
        if self.closes_after_replies || !self.is_monitor || !self.order.is_empty() {
            return;
        }
        let unsent = self.order.unsent_bytes() + lines.len();
        if unsent >= monitor::UNSENT_BYTES_MAX || shared.is_full(lines.len()) {
            shared.monitors.disconnected_count += 1;
            self.stop_monitoring(shared);
            self.close_with_error(monitor::MONITOR_TOO_SLOW, shared);
            return;
        }
        self.order.output.extend_from_slice(lines);
    }

    /// Returns whether the client may only change its subscriptions. This applies to RESP2, where
    /// messages and replies look alike.
    fn only_listens(&self) -> bool {
        !self.subscriptions.is_empty()
            && self.version == Version::Resp2
            && KINDS.iter().any(|of| !self.future_subscriptions(*of).is_empty())
    }

    /// Returns the subscriptions of one kind once all pending requests are answered.
    fn future_subscriptions(&self, of: SubscriptionKind) -> Names {
        self.order.future_subscriptions(of, self.subscriptions.names(of))
    }

    /// Returns the error for a request that a subscriber or monitor may not make.
    fn not_now(&self, name: &str) -> Option<String> {
        let always = ["ping", "quit", "reset"].contains(&name);
        if self.is_monitor && !always && name != "monitor" {
            return Some(format!(
                "ERR Can't execute '{name}': only PING / QUIT / RESET are allowed after MONITOR"
            ));
        }
        let may = always || SUBSCRIBER_COMMANDS.contains(&name);
        (self.only_listens() && !may).then(|| {
            format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )
        })
    }

    /// Removes a disconnected client from the shared state. Returns the tag of the blocking
    /// request, if any.
    pub(super) fn remove_from_shared(&mut self, shared: &mut Shared) -> Option<Tag> {
        shared.clients.remove_client(self.client_slot);
        shared.tally.slow.drop_client_notes(self.client_slot);
        self.stop_monitoring(shared);
        self.stop_tracking(shared);
        self.subscriptions.clear(self.id, &mut shared.channels);
        let parked = self.blocked_request.take()?;
        match parked.blocked_on {
            BlockedOn::Elements => shared.blocked_clients.remove_disconnected(parked.number),
            BlockedOn::Entries { .. } => shared.leave_readers(parked.number),
        }
    }

    pub(super) fn request(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        self.order.stamp = RequestStamp::NO_COMMAND;
        self.order.is_silent = self.reply_mode.next();
        let Some((number, spec)) = lookup(arguments.at(0)) else {
            if is_http_word(arguments.at(0)) {
                return self.end_foreign(HTTP, shared, requests);
            }
            let name: String = arguments.at(0).iter().take(64).map(|&b| printable(b)).collect();
            self.refuse_request(
                &format!("ERR unknown command '{name}', see docs/commands.md"),
                shared,
            );
            return;
        };
        if let Err(refusal) = spec.check(arguments) {
            shared.tally.count_rejection(number);
            let text = refusal.text(spec.name);
            if let Handler::Local(Local::Exec) = spec.handler {
                self.abort_exec(&text, shared);
            } else {
                self.refuse_request(&text, shared);
            }
            return;
        }
        self.command = spec.name;
        if let Some(text) = self.not_now(spec.name) {
            shared.tally.count_rejection(number);
            self.refuse_request(&text, shared);
            return;
        }
        if !self.check_permission(spec, arguments, shared, requests) {
            shared.tally.count_rejection(number);
            return;
        }
        if !requests.knows_clock()
            && access::needs_clock(spec, arguments, |name| shared.lookup(name))
        {
            shared.tally.count_rejection(number);
            return self.refuse_request(&failure_text(Failure::NoQuorum), shared);
        }
        self.order.stamp = shared.tally.count_call(number);
        if shared.monitors.has_monitors() {
            shared.show((self.client_slot, self.database()), spec, arguments);
        }
        let place = self.order.end();
        self.note_read(spec, arguments, shared);
        self.execute(spec, arguments, shared, requests);
        // Passwords never reach this line: AUTH and HELLO are answered at once or delay requests.
        if shared.tally.slow.is_recording(shared.tally.now_ms) && self.order.is_open(place) {
            shared.tally.slow.record_arguments(self.client_slot, place, arguments);
        }
    }

    fn execute(
        &mut self,
        spec: &Spec,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match spec.handler {
            Handler::Local(local) => self.handle_local_command(local, arguments, shared, requests),
            Handler::Script(by) => {
                let (operator, database) = (self.is_operator(requests), self.database());
                let name = (spec.name, operator, database);
                let encoded = shared.encode_script(by, name, arguments, requests);
                self.handle_encoded(encoded, spec.name, shared, requests);
            }
            Handler::Data(encode) => {
                let request = Request {
                    name: spec.name,
                    arguments: arguments.from(1),
                    database: self.database(),
                    wall_ms: requests.wall_ms(),
                    value_bytes_max: requests.command_bytes_max(),
                    seed: shared.seed(requests.wall_ms()),
                };
                clear_buffer(&mut shared.command);
                let encoded = encode(&request, &mut Encoder(&mut shared.command));
                self.handle_encoded(encoded, spec.name, shared, requests);
            }
        }
    }

    /// Returns whether scripts of this client may execute commands reserved to operators.
    fn is_operator(&mut self, requests: &dyn Requests) -> bool {
        matches!(self.login.permission(requests), Permission::Granted(role) if role >= Role::Operator)
    }

    fn handle_encoded(
        &mut self,
        encoded: Result<(), Refusal>,
        name: &str,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match encoded.and_then(|()| shared.seal(requests)) {
            Ok(()) => self.data(shared, requests),
            Err(Refusal::KeyTooLong) => {
                self.refuse_request(&Refusal::KeyTooLong.text(name), shared)
            }
            // The argument count matches the table, so Redis too reports this error only in EXEC.
            Err(refusal) => self.send_error_in_order(&refusal.text(name), shared, requests),
        }
    }

    fn data(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if self.transaction.is_some() {
            self.queue_in_transaction(shared, requests);
            return;
        }
        if let Some(wait_ms) = waiting::waits_ms(&shared.command) {
            return self.block_for_elements(wait_ms, shared, requests);
        }
        if let Some(wanted) = AwaitedEntries::decode(&shared.command) {
            let takes = wanted.group.is_some();
            return self.block_for_entries(takes, shared, requests);
        }
        match Kind::of(&shared.command) {
            Kind::Read => {
                let read = Read::for_client(shared.query(), self.database, self.freshness);
                self.order.push_read(read, self.version);
            }
            kind => {
                let mut command = std::mem::take(&mut shared.command);
                if self.pending_publishes.note_published(self.order.end(), &command) {
                    shared.census.note_used();
                }
                let returning = kind == Kind::WriteReturning;
                Op::address(&mut command, self.database);
                self.write(&command, returning, shared, requests);
                shared.command = command;
            }
        }
    }

    fn write(
        &mut self,
        command: &[u8],
        returning: bool,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        if self.order.has_unsent() {
            self.advance_to_write(shared, requests);
        }
        if self.order.may_write() {
            self.order.write_now(self.id, command, returning, self.version, shared, requests);
        } else {
            self.order.push_write(
                Write::without_session(command.to_vec()),
                returning,
                self.version,
            );
        }
    }

    /// Sends the blocking command in the scratch buffer. No further request is accepted until the
    /// wait ends.
    fn block_for_elements(
        &mut self,
        wait_ms: u64,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        if shared.is_full(2 * shared.command.len()) {
            return self.refuse_request(MEMORY_IS_FULL, shared);
        }
        if self.order.awaits_durability && requests.status().class == Class::Volatile {
            return self.refuse_request(BLOCKING_IS_VOLATILE, shared);
        }
        if self.order.has_unsent() {
            self.advance_to_write(shared, requests);
        }
        let place = self.order.end();
        let (owner, number) = shared.blocked_clients.add_client(self.id, place, wait_ms, requests);
        let mut command = Vec::new();
        let waits =
            waiting::encode_await(owner, number, &shared.command, &mut Encoder(&mut command));
        debug_assert!(waits, "it says how long it waits");
        Op::address(&mut command, self.database);
        shared.blocked_clients.store_queue_command(number, &command);
        self.blocked_request = Some(BlockedRequest {
            number,
            request_number: place,
            bytes: command.len() + BLOCKED_CLIENT_BYTES,
            has_unparsed_input: false,
            blocked_on: BlockedOn::Elements,
        });
        self.write(&command, true, shared, requests);
        if !self.order.is_open(place) {
            // The request was refused at once.
            self.forget_blocked_request(shared);
        }
    }

    /// Blocks the client with the XREAD or XREADGROUP in the scratch buffer. No further request is
    /// accepted until the wait ends, and the first attempt follows the replies to earlier requests.
    fn block_for_entries(&mut self, takes: bool, shared: &mut Shared, requests: &mut dyn Requests) {
        // What can be answered at once is, so that the wait does not end while input is handled.
        self.advance(shared, requests);
        let keys = AwaitedEntries::decode(&shared.command).map_or(0, |wanted| wanted.keys.len());
        if keys > AWAITED_MAX {
            return self.refuse_request(TOO_MANY_STREAMS, shared);
        }
        let bytes = BLOCKED_CLIENT_BYTES + 4 * shared.command.len() + AWAITED_BYTES * keys;
        if shared.is_full(bytes) {
            return self.refuse_request(MEMORY_IS_FULL, shared);
        }
        if takes && self.order.awaits_durability && requests.status().class == Class::Volatile {
            return self.refuse_request(BLOCKING_IS_VOLATILE, shared);
        }
        let place = self.order.end();
        let now_ms = requests.wall_ms();
        let from = (self.database, self.freshness);
        let entered = shared.readers.add_reader((self.id, place), &shared.command, from, now_ms);
        let Some(number) = entered else { return };
        self.order.push_parked(self.version);
        let on = BlockedOn::Entries { consumes: takes };
        self.blocked_request = Some(BlockedRequest {
            number,
            request_number: place,
            bytes,
            has_unparsed_input: false,
            blocked_on: on,
        });
        shared.events.await_entries(true);
        self.begin_reading(shared, requests);
    }

    fn queue_in_transaction(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let bytes_max = requests.command_bytes_max();
        let Some(multi) = &mut self.transaction else { return };
        Op::address(&mut shared.command, multi.database);
        if multi.bytes() + shared.command.len() > bytes_max {
            self.refuse_request(&too_big(bytes_max), shared);
            return;
        }
        if shared.is_full(shared.command.len()) {
            self.refuse_request(MEMORY_IS_FULL, shared);
            return;
        }
        multi.queue_command(&shared.command);
        shared.update_charge(&mut self.charged_bytes, multi.held_bytes());
        shared.fresh_reply().simple("QUEUED");
        self.send_reply(shared);
    }

    /// Replies with an error. Within a transaction, it becomes part of EXEC's reply.
    fn send_error_in_order(
        &mut self,
        text: &str,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        shared.fresh_reply().error(text);
        self.send_reply_in_order(shared, requests);
    }

    /// Sends the reply in the scratch buffer. Within a transaction, EXEC returns the reply.
    fn send_reply_in_order(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if self.transaction.is_none() {
            return self.send_reply(shared);
        }
        clear_buffer(&mut shared.command);
        encode_literal(&shared.reply, &mut Encoder(&mut shared.command));
        self.queue_in_transaction(shared, requests);
    }

    /// Sends an error at once and aborts the transaction, if any.
    pub(super) fn refuse_request(&mut self, text: &str, shared: &mut Shared) {
        if let Some(multi) = &mut self.transaction {
            multi.abort();
        }
        shared.fresh_reply().error(text);
        self.send_reply(shared);
    }

    /// Refuses a request that is too large to parse.
    pub(super) fn refuse_unread(&mut self, text: &str, shared: &mut Shared) {
        self.order.stamp = RequestStamp::NO_COMMAND;
        self.order.is_silent = self.reply_mode.next();
        self.refuse_request(text, shared);
    }

    /// Closes a connection that uses another protocol before any of its input is executed: a web
    /// page can make a browser send HTTP requests to this port, with commands in their bodies.
    pub(super) fn end_foreign(
        &mut self,
        what: &str,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let now = Time(requests.wall_ms().saturating_mul(1000));
        if let Some(untold) = shared.foreign_protocol_log.allow_line(now) {
            let client = self.id.0;
            tracing::warn!(
                client,
                what,
                untold,
                "closed a client that does not speak the Redis protocol; if it is a browser, a web page \
                 may have tried to send commands"
            );
        }
        self.close_with_error(&format!("ERR Protocol error: {what} is not spoken here"), shared);
    }

    /// Sends an error after the pending replies, then closes the connection.
    pub(super) fn close_with_error(&mut self, text: &str, shared: &mut Shared) {
        self.order.stamp = RequestStamp::NO_COMMAND;
        self.order.is_silent = false;
        shared.fresh_reply().error(text);
        self.send_reply(shared);
        self.closes_after_replies = true;
    }

    const fn end(&mut self) {
        self.closes_after_replies = true;
    }

    fn send_reply(&mut self, shared: &mut Shared) {
        shared.tally.count_direct_answer(self.order.stamp, &shared.reply);
        self.order.push_answer(&shared.reply, self.version);
    }

    fn reply(&mut self, shared: &mut Shared, build: impl FnOnce(&mut Reply<'_>)) {
        build(&mut shared.fresh_reply());
        self.send_reply(shared);
    }

    fn take_transaction(&mut self) -> Option<Transaction> {
        self.transaction.take()
    }

    const fn outside_multi(local: Local) -> bool {
        matches!(
            local,
            Local::Multi
                | Local::Watch
                | Local::Hello
                | Local::Auth
                | Local::Quorate
                | Local::Object
                | Local::Slowlog
                | Local::Sentinel
                | Local::Cluster
                | Local::Latency
                | Local::Monitor
                | Local::Memory
                | Local::Subscribe(_)
                | Local::Unsubscribe(_)
        )
    }
}

pub(super) const HTTP: &str = "HTTP";

/// Returns whether the words are an HTTP request line. Its method may be the name of a command.
pub(super) fn starts_http(words: &Arguments<'_>) -> bool {
    words.len() == 3 && words.at(2).starts_with(b"HTTP/")
}

/// Returns whether the first word of a line marks HTTP: POST, or the Host header, which precedes
/// the body.
const fn is_http_word(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}
