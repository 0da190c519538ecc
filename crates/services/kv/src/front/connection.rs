//! Client connection: parses requests, executes or forwards them, and sends replies in order.

mod attached;
mod checking;
mod local;
mod login;
mod quiet;
mod session;
mod tracking;

use std::collections::VecDeque;

use quorate_access::Role;
use quorate_core::{record::Class, time::Time};
use quorate_replica::front::{ConnectionId, Failure, Requests, SessionId, State as Moment, Tag};

use self::{attached::Attached, checking::Checking, quiet::Quiet};
use super::{
    access::{self, Login, Standing},
    asked::{Freshness, Read, Write},
    buffers::fresh,
    channels::{self, MatchedBy, Names, Published, SPACES, Subscriptions},
    monitor,
    order::{ConnectionParts, OUTPUT_BYTES_HARD, Order},
    readers::End,
    refusals::{FULL, failure_text, printable, too_big},
    roster::ClientSlot,
    shared::Shared,
    tally::Stamp,
    tracking::Tracked,
    transaction::{Multi, Watching},
};
use crate::{
    command::{Handler, Local, Refusal, Request, Spec, SubscriptionKind},
    commands::{lookup, server::encode_literal, stream::waiting::Wanted, waiting},
    encode::Encoder,
    op::Kind,
    resp::{
        reply::{Reply, Version},
        request::{Arguments, Parser},
    },
};

/// Maximum number of unanswered requests per connection.
const PLACES_MAX: usize = 1024;
/// Maximum total size in bytes of unanswered requests. A single larger request is accepted.
const OPEN_BYTES_MAX: usize = 1024 * 1024;
/// Commands, other than PING, QUIT and RESET, that a subscriber may use.
const LISTENS: [&str; 6] =
    ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe"];
/// Error for a blocking command on a connection with the class durable in a volatile cluster. A
/// blocked client is always answered in the cluster's class, thus without waiting for a disk.
const WAITS_AT_GROUP: &str = "ERR not executed: this volatile cluster answers commands that may wait only at its own \
    class; QUORATE CLASS group allows them";
/// Memory charged for a blocked client, in addition to its command.
const WAIT_BYTES: usize = 256;
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
    place: u64,
    bytes: usize,
    /// True if more input has arrived. It is not accepted before the wait ends.
    crowded: bool,
    on: BlockedOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockedOn {
    /// Elements of lists or sorted sets: the client is in the replicated queue.
    Elements,
    /// Entries of streams. An XREAD needs the role of a reader only.
    Entries { takes: bool },
}

#[derive(Debug)]
pub(super) struct Connection {
    id: ConnectionId,
    seat: ClientSlot,
    parser: Parser,
    order: Order,
    version: Version,
    multi: Option<Multi>,
    watching: Watching,
    subscriptions: Subscriptions,
    /// PUBLISH commands whose replies are pending.
    published: Published,
    /// State of CLIENT REPLY.
    quiet: Quiet,
    monitors: bool,
    /// Keys that the client caches, if client-side caching is on.
    tracked: Option<Tracked>,
    /// Required freshness of reads.
    fresh: Freshness,
    attached: Attached,
    login: Login,
    checking: Option<Checking>,
    /// True if the next request waits for the permissions, the time or the end of CLIENT PAUSE.
    patient: bool,
    /// The last request, if it is blocked or may block.
    parked: Option<BlockedRequest>,
    /// Name of the last command, for CLIENT LIST.
    command: &'static str,
    /// Bytes charged to the shared memory limit, except those of `order`.
    counted: usize,
    /// True if the connection accepts no more requests and closes once all are answered.
    ending: bool,
    /// True if the connection neither accepts nor sends anything more.
    cut: bool,
    /// True if the connection was not ready at the last check, so input may be pending.
    blocked: bool,
    marked: bool,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, seat: ClientSlot, login: Login) -> Self {
        Self {
            id,
            seat,
            command: "NULL",
            parser: Parser::default(),
            order: Order::new(seat),
            version: Version::default(),
            multi: None,
            watching: Watching::default(),
            subscriptions: Subscriptions::default(),
            published: Published::default(),
            quiet: Quiet::default(),
            monitors: false,
            tracked: None,
            fresh: Freshness::default(),
            attached: Attached::default(),
            login,
            checking: None,
            patient: false,
            parked: None,
            counted: 0,
            ending: false,
            cut: false,
            blocked: false,
            marked: false,
        }
    }

    /// Returns whether another request can be accepted.
    pub(super) fn ready(&self) -> bool {
        !self.ending
            && self.checking.is_none()
            && !self.patient
            // Input of a blocked client is still read, so that a disconnect is noticed.
            && self.parked.is_none_or(|parked| !parked.crowded)
            && self.order.len() < PLACES_MAX
            && self.order.open_bytes < OPEN_BYTES_MAX
            && self.order.returning.ready()
            && self.order.buffered() < OUTPUT_BYTES_SOFT
    }

    pub(super) fn takes(&self) -> bool {
        self.ready() && self.parked.is_none()
    }

    /// Records that unparsed input is pending (`left`) while the client is blocked.
    pub(super) const fn crowds(&mut self, left: bool) {
        if let Some(parked) = &mut self.parked {
            parked.crowded |= left;
        }
    }

    pub(super) const fn ending(&self) -> bool {
        self.ending
    }

    pub(super) fn is_idle(&self) -> bool {
        self.order.is_empty() && self.checking.is_none() && !self.patient
    }

    pub(super) fn closing(&self) -> bool {
        self.cut || (self.ending && self.order.is_empty())
    }

    /// Closes the connection at once and drops unsent replies.
    pub(super) fn cut(&mut self) {
        (self.ending, self.cut) = (true, true);
        self.order.drop_output();
    }

    /// Returns whether to retry this request later: clients are paused, or this node lacks the
    /// permissions or the time ([access-4], [time-4]).
    pub(super) fn must_wait(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) -> bool {
        let name = arguments.at(0);
        let greets = [&b"hello"[..], b"quit", b"reset", b"ping", b"client", b"info"];
        let lacks = match self.login.standing(requests) {
            Standing::Unknown => !greets.iter().any(|one| name.eq_ignore_ascii_case(one)),
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
            self.patient = true;
            shared.waits(self.id);
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
        let queued = self.multi.as_ref().and_then(Multi::needs);
        let needs = shared
            .lookup(arguments.at(0))
            .map(|spec| (spec, access::needs(spec, arguments, queued, |name| shared.lookup(name))));
        match needs {
            None => false,
            Some((spec, _)) if matches!(spec.handler, Handler::Local(Local::Client)) => false,
            Some((_, needs)) => !pause.only_writes || needs >= Some(Role::Writer),
        }
    }

    pub(super) const fn end_permission_wait(&mut self) {
        self.patient = false;
    }

    pub(super) fn ticket(&self) -> Option<u64> {
        self.checking.as_ref().map(Checking::ticket)
    }

    /// [access-2] Returns whether the client may make this request. Otherwise sends an error.
    fn permitted(
        &mut self,
        spec: &Spec,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) -> bool {
        let queued = self.multi.as_ref().and_then(Multi::needs);
        let needs = access::needs(spec, arguments, queued, |name| shared.lookup(name));
        let standing = self.login.standing(requests);
        let may = match (needs, standing) {
            (None, _) => true,
            (Some(needs), Standing::May(role)) => role >= needs,
            // Commands that return no data and nothing about the cluster that is not public. MULTI
            // is one of these: if it were refused but the next command permitted, that command
            // would be executed outside a transaction.
            (Some(_), Standing::Unknown) => {
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
            (Some(_), Standing::Nothing) => false,
        };
        if !may {
            shared.forbidden += 1;
            let needs = needs.unwrap_or(Role::Reader);
            let name = access::name_needing(needs, spec, arguments, |name| shared.lookup(name));
            let text = self.login.refusal(standing, name, needs);
            match spec.handler {
                Handler::Local(Local::Exec) => self.abort_exec(&text, shared),
                Handler::Local(Local::Watch) => {
                    // EXEC may be permitted later, and must fail without the versions.
                    self.watching.failed(self.watching.epoch());
                    self.refuse(&text, shared);
                }
                _ => self.refuse(&text, shared),
            }
        } else if let Some(multi) = &mut self.multi {
            multi.need(needs);
        }
        may
    }

    /// Disconnects a subscriber or a client that caches keys if it may no longer read, and a
    /// monitor that is no longer an admin ([access-2]).
    pub(super) fn end_forbidden_streams(&mut self, shared: &mut Shared, requests: &dyn Requests) {
        self.end_forbidden_wait(shared, requests);
        let listens = !self.subscriptions.is_empty() || self.tracked.is_some();
        if self.ending || !(listens || self.monitors) {
            return;
        }
        let standing = self.login.standing(requests);
        let name = if self.monitors && standing != Standing::May(Role::Admin) {
            "monitor"
        } else if listens && standing == Standing::Nothing {
            "subscribe"
        } else {
            return;
        };
        shared.forbidden += 1;
        let text = self.login.refusal(standing, name, Role::Admin);
        self.order.stamp = Stamp::NO_COMMAND;
        self.order.silent = false;
        self.refuse(&text, shared);
        self.stop_monitoring(shared);
        self.end();
    }

    /// Ends a blocking request as its timeout would, if the client may no longer make it.
    fn end_forbidden_wait(&mut self, shared: &mut Shared, requests: &dyn Requests) {
        let Some(parked) = self.parked else {
            return;
        };
        let needs = match parked.on {
            BlockedOn::Entries { takes: false } => Role::Reader,
            BlockedOn::Entries { takes: true } | BlockedOn::Elements => Role::Writer,
        };
        let standing = self.login.standing(requests);
        let may_not = match standing {
            Standing::May(role) => role < needs,
            Standing::Nothing => true,
            Standing::Unknown => false,
        };
        if may_not {
            self.hurry_wait(shared);
        }
    }

    /// Returns the bytes to send. Returns none once the connection was cut, since a later reply
    /// would follow a truncated one.
    pub(super) fn output(&self) -> &[u8] {
        if self.cut { &[] } else { &self.order.output }
    }

    pub(super) fn open_tags(&self) -> VecDeque<Tag> {
        self.order.open_tags()
    }

    pub(super) fn lend_parser(&mut self) -> Parser {
        std::mem::take(&mut self.parser)
    }

    pub(super) fn return_parser(&mut self, mut parser: Parser) {
        parser.shrink();
        self.parser = parser;
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.counted + self.order.counted()
    }

    pub(super) fn recount(&mut self, shared: &mut Shared) {
        self.order.recount(shared);
        let multi = self.multi.as_ref();
        let multi = multi.map_or(0, Multi::held_bytes);
        let mut held = multi + self.watching.held_bytes() + self.parser.held_bytes();
        held += self.parked.map_or(0, |parked| parked.bytes);
        held += self.published.held_bytes();
        held += self.tracked.as_ref().map_or(0, Tracked::held_bytes);
        if !self.subscriptions.is_empty() {
            held += self.subscriptions.held_bytes();
        }
        shared.recount(&mut self.counted, held);
        if let Some(guest) = shared.roster.guest(self.seat) {
            guest.output_bytes = self.order.buffered();
            guest.held_bytes = self.held_bytes();
        }
    }

    pub(super) fn update_entry(&self, now_ms: u64, shared: &mut Shared) {
        if let Some(guest) = shared.roster.guest(self.seat) {
            guest.seen_ms = now_ms;
            guest.command = self.command;
            guest.blocked = self.parked.is_some();
            guest.monitors = self.monitors;
            guest.queued = self.multi.as_ref().map(Multi::count);
            guest.protocol = if self.version == Version::Resp3 { 3 } else { 2 };
            guest.stale = self.fresh == Freshness::Stale;
            guest.waiting = self.order.len();
        }
    }

    pub(super) fn sent(&mut self, count: usize, shared: &mut Shared) {
        self.order.output.drain(..count);
        self.order.sent();
        self.recount(shared);
    }

    /// Queues the connection for the reactor: output, a close, or input that is accepted again.
    pub(super) fn mark(&mut self, shared: &mut Shared) {
        let (was_blocked, ready) = (self.blocked, self.ready());
        self.blocked = !ready;
        let resumed = was_blocked && ready;
        if !self.marked && (resumed || !self.order.output.is_empty() || self.closing()) {
            self.marked = true;
            shared.dirty.push_back(self.id);
        }
    }

    pub(super) const fn unmark(&mut self) {
        self.marked = false;
    }

    fn split(&mut self) -> (&mut Order, ConnectionParts<'_>) {
        let own = ConnectionParts {
            id: self.id,
            watching: &mut self.watching,
            subscriptions: &mut self.subscriptions,
        };
        (&mut self.order, own)
    }

    pub(super) fn advance(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let (order, mut own) = self.split();
        order.advance(false, &mut own, shared, requests);
        // The blocked request may have been refused before it was sent.
        if let Some(parked) = self.parked
            && !self.order.is_open(parked.place)
        {
            self.unpark(shared);
        }
        self.begin_reading(shared, requests);
    }

    /// Makes the first attempt of a client that waits for entries, once its earlier requests are
    /// answered.
    fn begin_reading(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if let Some(parked) = self.parked
            && parked.on != BlockedOn::Elements
            && self.order.is_next(parked.place)
            && let Some(reply) = shared.begin_reading(parked.number, requests)
        {
            shared.readers.leave(parked.number);
            self.end_wait(parked.place, &reply, shared);
            self.update_entry(shared.tally.now_ms, shared);
        }
    }

    /// Sends all requests that can be sent before a write.
    fn advance_to_write(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let (order, mut own) = self.split();
        order.advance(true, &mut own, shared, requests);
    }

    /// Executes an in-order read on the state between the writes before and after it.
    pub(super) fn read_now(&mut self, number: u64, shared: &mut Shared, state: &dyn Moment) {
        let (order, mut own) = self.split();
        order.read_now(number, &mut own, shared, state);
    }

    /// Counts an in-order read as executed.
    pub(super) const fn read_in_order(&mut self) {
        self.order.read_in_order();
    }

    pub(super) fn written(&mut self, number: u64, reply: &[u8], shared: &mut Shared) {
        if let Some(parked) = self.parked
            && parked.place == number
        {
            if reply == waiting::WAITING && parked.on == BlockedOn::Elements {
                self.order.park(number);
                return shared.waiting.mark_queued(parked.number);
            }
            self.unpark(shared);
        }
        if let Some(heard) = self.published.take(number, reply, (&shared.channels, &shared.census))
        {
            shared.fresh_reply().count(heard);
            return self.order.written(number, &shared.reply, &mut shared.tally);
        }
        self.order.written(number, reply, &mut shared.tally);
    }

    /// Forgets the blocking request, which may not have been sent.
    fn unpark(&mut self, shared: &mut Shared) {
        if let Some(parked) = self.parked.take() {
            match parked.on {
                BlockedOn::Elements => shared.waiting.answered(parked.number),
                BlockedOn::Entries { .. } => drop(shared.readers.leave(parked.number)),
            }
        }
    }

    pub(super) fn end_wait(&mut self, place: u64, reply: &[u8], shared: &mut Shared) {
        self.parked = None;
        self.order.unpark(place, reply, &mut shared.tally);
    }

    pub(super) fn unblocked(&mut self, place: u64, ended: bool, shared: &mut Shared) {
        shared.fresh_reply().integer(i64::from(ended));
        self.order.unpark(place, &shared.reply, &mut shared.tally);
    }

    /// Requests an early end of the blocking request, because the client has disconnected.
    pub(super) fn hurry_wait(&self, shared: &mut Shared) {
        match self.parked {
            Some(BlockedRequest { number, on: BlockedOn::Elements, .. }) => {
                shared.waiting.hurry(number);
            }
            Some(BlockedRequest { number, .. }) => shared.readers.end(number, End::Timeout),
            None => {}
        }
    }

    /// Attaches the connection to a new session.
    pub(super) fn registered(&mut self, number: u64, session: SessionId, shared: &mut Shared) {
        self.attached.to(session);
        shared.fresh_reply().bulk(format!("{}.{}", session.slot, session.index).as_bytes());
        self.order.written(number, &shared.reply, &mut shared.tally);
    }

    /// Handles a write or in-order read that was not executed, or whose outcome is unknown.
    pub(super) fn place_failed(
        &mut self,
        number: u64,
        failure: Failure,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        if self.parked.is_some_and(|parked| parked.place == number) {
            self.unpark(shared);
        }
        let (order, mut own) = self.split();
        order.place_failed(number, failure, &mut own, shared, requests);
    }

    /// Answers a run of reads whose freshness is confirmed.
    pub(super) fn readable(&mut self, tag: Tag, shared: &mut Shared, requests: &mut dyn Requests) {
        let (order, mut own) = self.split();
        order.readable(tag, &mut own, shared, requests);
    }

    pub(super) fn run_failed(&mut self, tag: Tag, failure: Failure, shared: &mut Shared) {
        let (order, mut own) = self.split();
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
        if self.order.buffered() > OUTPUT_BYTES_HARD || shared.is_full(message.len()) {
            // A dropped message would go unnoticed by the client, so disconnect it.
            self.cut();
        }
        if self.ending {
            return;
        }
        let mut neutral = Vec::with_capacity(channel.len() + message.len() + 64);
        channels::message(how, channel, message, &mut Reply(&mut neutral));
        self.order.push_message(&neutral, self.version);
    }

    /// Sends a message after the replies to all open requests, even if replies are turned off.
    fn send_in_turn(&mut self, neutral: &[u8], shared: &mut Shared) {
        if self.order.buffered() > OUTPUT_BYTES_HARD || shared.is_full(neutral.len()) {
            // A dropped message would go unnoticed by the client, so disconnect it.
            self.cut();
        }
        if self.ending {
            return;
        }
        // The reply to a blocked request may never come.
        let before = self.parked.map(|parked| parked.place);
        self.order.push_notice(neutral, self.version, before);
    }

    /// Makes the connection a monitor. The output of MONITOR starts after the reply.
    pub(super) fn monitor(&mut self, shared: &mut Shared) {
        self.monitors = true;
        shared.monitors.enter(self.id);
        self.reply(shared, |r| r.ok());
    }

    pub(super) fn stop_monitoring(&mut self, shared: &mut Shared) {
        if std::mem::take(&mut self.monitors) {
            shared.monitors.leave(self.id);
        }
    }

    pub(super) fn watch_lines(&mut self, lines: &[u8], shared: &mut Shared) {
        // The reply to MONITOR comes first; later requests of a monitor are answered at once.
        if self.ending || !self.monitors || !self.order.is_empty() {
            return;
        }
        let unsent = self.order.buffered() + lines.len();
        if unsent >= monitor::UNSENT_BYTES_MAX || shared.is_full(lines.len()) {
            shared.monitors.cut += 1;
            self.stop_monitoring(shared);
            self.end_with(monitor::CUT, shared);
            return;
        }
        self.order.output.extend_from_slice(lines);
    }

    /// Returns whether the client may only change its subscriptions. This applies to RESP2, where
    /// messages and replies look alike.
    fn only_listens(&self) -> bool {
        !self.subscriptions.is_empty()
            && self.version == Version::Resp2
            && SPACES.iter().any(|of| !self.will_listen(*of).is_empty())
    }

    /// Returns the subscriptions of one kind once all pending requests are answered.
    fn will_listen(&self, of: SubscriptionKind) -> Names {
        self.order.will_listen(of, self.subscriptions.names(of))
    }

    /// Returns the error for a request that a subscriber or monitor may not make.
    fn not_now(&self, name: &str) -> Option<String> {
        let always = ["ping", "quit", "reset"].contains(&name);
        if self.monitors && !always && name != "monitor" {
            return Some(format!(
                "ERR Can't execute '{name}': only PING / QUIT / RESET are allowed after MONITOR"
            ));
        }
        let may = always || LISTENS.contains(&name);
        (self.only_listens() && !may).then(|| {
            format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )
        })
    }

    /// Removes a disconnected client from the shared state. Returns the tag of the blocking
    /// request, if any.
    pub(super) fn leave(&mut self, shared: &mut Shared) -> Option<Tag> {
        shared.roster.leave(self.seat);
        shared.tally.slow.leave(self.seat);
        self.stop_monitoring(shared);
        self.stop_tracking(shared);
        self.subscriptions.clear(self.id, &mut shared.channels);
        let parked = self.parked.take()?;
        match parked.on {
            BlockedOn::Elements => shared.waiting.leaves(parked.number),
            BlockedOn::Entries { .. } => shared.leave_readers(parked.number),
        }
    }

    pub(super) fn request(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        self.order.stamp = Stamp::NO_COMMAND;
        self.order.silent = self.quiet.next();
        let Some((number, spec)) = lookup(arguments.at(0)) else {
            if is_of_http(arguments.at(0)) {
                return self.end_foreign(HTTP, shared, requests);
            }
            let name: String = arguments.at(0).iter().take(64).map(|&b| printable(b)).collect();
            self.refuse(&format!("ERR unknown command '{name}', see docs/commands.md"), shared);
            return;
        };
        if let Err(refusal) = spec.check(arguments) {
            shared.tally.rejects(number);
            let text = refusal.text(spec.name);
            if let Handler::Local(Local::Exec) = spec.handler {
                self.abort_exec(&text, shared);
            } else {
                self.refuse(&text, shared);
            }
            return;
        }
        self.command = spec.name;
        if let Some(text) = self.not_now(spec.name) {
            shared.tally.rejects(number);
            self.refuse(&text, shared);
            return;
        }
        if !self.permitted(spec, arguments, shared, requests) {
            shared.tally.rejects(number);
            return;
        }
        if !requests.knows_clock()
            && access::needs_clock(spec, arguments, |name| shared.lookup(name))
        {
            shared.tally.rejects(number);
            return self.refuse(&failure_text(Failure::NoQuorum), shared);
        }
        self.order.stamp = shared.tally.calls(number);
        if shared.monitors.any() {
            shared.show(self.seat, spec, arguments);
        }
        let place = self.order.end();
        self.note_read(spec, arguments, shared);
        self.execute(spec, arguments, shared, requests);
        // Passwords never reach this line: AUTH and HELLO are answered at once or delay requests.
        if shared.tally.slow.keeps(shared.tally.now_ms) && self.order.is_open(place) {
            shared.tally.slow.keep_note(self.seat, place, arguments);
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
            Handler::Local(local) => self.local(local, arguments, shared, requests),
            Handler::Script(by) => {
                let name = (spec.name, self.is_operator(requests));
                let encoded = shared.encode_script(by, name, arguments, requests);
                self.encoded(encoded, spec.name, shared, requests);
            }
            Handler::Data(encode) => {
                let request = Request {
                    name: spec.name,
                    arguments: arguments.from(1),
                    wall_ms: requests.wall_ms(),
                    value_bytes_max: requests.command_bytes_max(),
                    seed: shared.seed(requests.wall_ms()),
                };
                fresh(&mut shared.command);
                let encoded = encode(&request, &mut Encoder(&mut shared.command));
                self.encoded(encoded, spec.name, shared, requests);
            }
        }
    }

    /// Returns whether scripts of this client may execute commands reserved to operators.
    fn is_operator(&mut self, requests: &dyn Requests) -> bool {
        matches!(self.login.standing(requests), Standing::May(role) if role >= Role::Operator)
    }

    fn encoded(
        &mut self,
        encoded: Result<(), Refusal>,
        name: &str,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match encoded.and_then(|()| shared.check_level(requests)) {
            Ok(()) => self.data(shared, requests),
            Err(Refusal::KeyTooLong) => self.refuse(&Refusal::KeyTooLong.text(name), shared),
            // The argument count matches the table, so Redis too reports this error only in EXEC.
            Err(refusal) => self.refuse_in_place(&refusal.text(name), shared, requests),
        }
    }

    fn data(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if self.multi.is_some() {
            self.queue(shared, requests);
            return;
        }
        if let Some(wait_ms) = waiting::waits_ms(&shared.command) {
            return self.wait(wait_ms, shared, requests);
        }
        if let Some(wanted) = Wanted::decode(&shared.command) {
            let takes = wanted.group.is_some();
            return self.wait_for_entries(takes, shared, requests);
        }
        match Kind::of(&shared.command) {
            Kind::Read => {
                let read = Read::of(shared.query(), self.fresh);
                self.order.push_read(read, self.version);
            }
            kind => {
                let command = std::mem::take(&mut shared.command);
                if self.published.note_published(self.order.end(), &command) {
                    shared.census.note_used();
                }
                let returning = kind == Kind::WriteReturning;
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
            self.order.push_write(Write::plain(command.to_vec()), returning, self.version);
        }
    }

    /// Sends the blocking command in the scratch buffer. No further request is accepted until the
    /// wait ends.
    fn wait(&mut self, wait_ms: u64, shared: &mut Shared, requests: &mut dyn Requests) {
        if shared.is_full(2 * shared.command.len()) {
            return self.refuse(FULL, shared);
        }
        if self.order.lasting && requests.status().class == Class::Volatile {
            return self.refuse(WAITS_AT_GROUP, shared);
        }
        if self.order.has_unsent() {
            self.advance_to_write(shared, requests);
        }
        let place = self.order.end();
        let (owner, number) = shared.waiting.enter(self.id, place, wait_ms, requests);
        let mut command = Vec::new();
        let waits =
            waiting::encode_await(owner, number, &shared.command, &mut Encoder(&mut command));
        debug_assert!(waits, "it says how long it waits");
        shared.waiting.keep(number, &command);
        self.parked = Some(BlockedRequest {
            number,
            place,
            bytes: command.len() + WAIT_BYTES,
            crowded: false,
            on: BlockedOn::Elements,
        });
        self.write(&command, true, shared, requests);
        if !self.order.is_open(place) {
            // The request was refused at once.
            self.unpark(shared);
        }
    }

    /// Blocks the client with the XREAD or XREADGROUP in the scratch buffer. No further request is
    /// accepted until the wait ends, and the first attempt follows the replies to earlier requests.
    fn wait_for_entries(&mut self, takes: bool, shared: &mut Shared, requests: &mut dyn Requests) {
        // What can be answered at once is, so that the wait does not end while input is handled.
        self.advance(shared, requests);
        let keys = Wanted::decode(&shared.command).map_or(0, |wanted| wanted.keys.len());
        if keys > AWAITED_MAX {
            return self.refuse(TOO_MANY_STREAMS, shared);
        }
        let bytes = WAIT_BYTES + 4 * shared.command.len() + AWAITED_BYTES * keys;
        if shared.is_full(bytes) {
            return self.refuse(FULL, shared);
        }
        if takes && self.order.lasting && requests.status().class == Class::Volatile {
            return self.refuse(WAITS_AT_GROUP, shared);
        }
        let place = self.order.end();
        let now_ms = requests.wall_ms();
        let entered = shared.readers.enter((self.id, place), &shared.command, self.fresh, now_ms);
        let Some(number) = entered else { return };
        self.order.push_parked(self.version);
        let on = BlockedOn::Entries { takes };
        self.parked = Some(BlockedRequest { number, place, bytes, crowded: false, on });
        shared.events.await_entries(true);
        self.begin_reading(shared, requests);
    }

    fn queue(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let bytes_max = requests.command_bytes_max();
        let Some(multi) = &mut self.multi else { return };
        if multi.bytes() + shared.command.len() > bytes_max {
            self.refuse(&too_big(bytes_max), shared);
            return;
        }
        if shared.is_full(shared.command.len()) {
            self.refuse(FULL, shared);
            return;
        }
        multi.queue(&shared.command);
        shared.recount(&mut self.counted, multi.held_bytes());
        shared.fresh_reply().simple("QUEUED");
        self.answer(shared);
    }

    /// Replies with an error. Within a transaction, it becomes part of EXEC's reply.
    fn refuse_in_place(&mut self, text: &str, shared: &mut Shared, requests: &mut dyn Requests) {
        shared.fresh_reply().error(text);
        self.answer_in_place(shared, requests);
    }

    /// Sends the reply in the scratch buffer. Within a transaction, EXEC returns the reply.
    fn answer_in_place(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if self.multi.is_none() {
            return self.answer(shared);
        }
        fresh(&mut shared.command);
        encode_literal(&shared.reply, &mut Encoder(&mut shared.command));
        self.queue(shared, requests);
    }

    /// Sends an error at once and aborts the transaction, if any.
    pub(super) fn refuse(&mut self, text: &str, shared: &mut Shared) {
        if let Some(multi) = &mut self.multi {
            multi.refuse();
        }
        shared.fresh_reply().error(text);
        self.answer(shared);
    }

    /// Refuses a request that is too large to parse.
    pub(super) fn refuse_unread(&mut self, text: &str, shared: &mut Shared) {
        self.order.stamp = Stamp::NO_COMMAND;
        self.order.silent = self.quiet.next();
        self.refuse(text, shared);
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
        if let Some(untold) = shared.strangers.allow_line(now) {
            let client = self.id.0;
            tracing::warn!(
                client,
                what,
                untold,
                "closed a client that does not speak the Redis protocol; if it is a browser, a web page \
                 may have tried to send commands"
            );
        }
        self.end_with(&format!("ERR Protocol error: {what} is not spoken here"), shared);
    }

    /// Sends an error after the pending replies, then closes the connection.
    pub(super) fn end_with(&mut self, text: &str, shared: &mut Shared) {
        self.order.stamp = Stamp::NO_COMMAND;
        self.order.silent = false;
        shared.fresh_reply().error(text);
        self.answer(shared);
        self.ending = true;
    }

    const fn end(&mut self) {
        self.ending = true;
    }

    fn answer(&mut self, shared: &mut Shared) {
        shared.tally.answers(self.order.stamp, &shared.reply);
        self.order.push_answer(&shared.reply, self.version);
    }

    fn reply(&mut self, shared: &mut Shared, build: impl FnOnce(&mut Reply<'_>)) {
        build(&mut shared.fresh_reply());
        self.answer(shared);
    }

    fn take_multi(&mut self) -> Option<Multi> {
        self.multi.take()
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
const fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}
