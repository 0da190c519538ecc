//! One client connection: what it has asked for, and what it is being told.

use std::collections::VecDeque;

use quorate_core::time::Time;
use quorate_replica::front::{ConnectionId, Requests, SessionId, Tag};

use super::{
    Shared,
    channels::Subscriptions,
    order::{Order, Read, Write},
    roster::Seat,
};
use crate::{
    command::{Handler, Local, Refusal, Request},
    commands::{server::encode_literal, transactions::Watched},
    encode::Encoder,
    op::Kind,
    resp::{
        reply::{Reply, Version},
        request::{Arguments, Parser},
    },
    store,
};

/// Most requests of a connection that are not answered yet.
const PLACES_MAX: usize = 1024;
/// Most bytes of them; a single request may be larger.
const OPEN_BYTES_MAX: usize = 1024 * 1024;
/// Most of them whose replies may be as large as a value, not counting reads.
const RETURNING_MAX: usize = 8;
/// With so many bytes of replies waiting, no more requests are taken.
const OUTPUT_BYTES_SOFT: usize = 1024 * 1024;
/// Most keys that a connection may watch.
const WATCHED_MAX: usize = 4096;
/// Most bytes of those keys.
const WATCHED_BYTES_MAX: usize = 1024 * 1024;

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Multi {
    /// Encoded, each with its length before it.
    pub(super) commands: Vec<u8>,
    pub(super) count: usize,
    /// One of them was refused: EXEC will be too.
    pub(super) broken: bool,
}

/// What WATCH saw. EXEC, DISCARD and UNWATCH end an epoch: a WATCH that was sent before them may
/// be answered after they were read, and must not count for what follows.
#[derive(Debug, Default)]
pub(super) struct Watching {
    pub(super) epoch: u64,
    seen: Vec<(u64, Watched)>,
    /// Keys asked for in this epoch, and their bytes.
    asked: usize,
    asked_bytes: usize,
    /// The last epoch with a WATCH that got no answer.
    failed: Option<u64>,
}

impl Watching {
    /// Whether `count` more keys of `bytes` together can be watched.
    pub(super) const fn admit(&mut self, count: usize, bytes: usize) -> bool {
        self.asked += count;
        self.asked_bytes += bytes;
        self.asked <= WATCHED_MAX && self.asked_bytes <= WATCHED_BYTES_MAX
    }

    pub(super) fn saw(&mut self, epoch: u64, key: &[u8], version: store::Version) {
        // Everything of earlier epochs is sent by now: a WATCH waits for it.
        self.seen.retain(|(seen, _)| *seen >= epoch);
        self.seen.push((
            epoch,
            Watched {
                key: key.to_vec(),
                version,
            },
        ));
    }

    pub(super) const fn failed(&mut self, epoch: u64) {
        self.failed = Some(epoch);
    }

    /// Memory of the keys, those asked for included.
    fn held_bytes(&self) -> usize {
        self.asked_bytes + (self.asked + self.seen.capacity()) * size_of::<(u64, Watched)>()
    }

    /// Nothing seen so far counts for what follows.
    pub(super) const fn end_epoch(&mut self) -> u64 {
        let epoch = self.epoch;
        self.epoch += 1;
        (self.asked, self.asked_bytes) = (0, 0);
        epoch
    }

    /// What was seen in an epoch that ended; `None` if a WATCH got no answer.
    pub(super) fn take(&mut self, epoch: u64) -> Option<Vec<Watched>> {
        let (taken, kept) = std::mem::take(&mut self.seen)
            .into_iter()
            .partition(|(seen, _)| *seen <= epoch);
        self.seen = kept;
        let taken: Vec<(u64, Watched)> = taken;
        let of_epoch = taken.into_iter().filter(|(seen, _)| *seen == epoch);
        (self.failed != Some(epoch)).then(|| of_epoch.map(|(_, watched)| watched).collect())
    }
}

/// A client connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) seat: Seat,
    parser: Parser,
    pub(super) order: Order,
    pub(super) version: Version,
    pub(super) multi: Option<Multi>,
    pub(super) watching: Watching,
    pub(super) subscriptions: Subscriptions,
    /// Reads are answered from this node as it stands (READONLY).
    pub(super) stale: bool,
    pub(super) session: Option<SessionId>,
    pub(super) acknowledged_below: u64,
    /// The name of its last command.
    command: &'static str,
    /// Memory that is counted, besides that of the order.
    counted: usize,
    /// Nothing more is taken; it closes when all is answered.
    ending: bool,
    /// It was not ready when it was last asked: input may be waiting.
    blocked: bool,
    marked: bool,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, seat: Seat) -> Self {
        Self {
            id,
            seat,
            command: "NULL",
            parser: Parser::default(),
            order: Order::default(),
            version: Version::default(),
            multi: None,
            watching: Watching::default(),
            subscriptions: Subscriptions::default(),
            stale: false,
            session: None,
            acknowledged_below: 0,
            counted: 0,
            ending: false,
            blocked: false,
            marked: false,
        }
    }

    /// Whether there is room for another request.
    pub(super) fn ready(&self) -> bool {
        !self.ending
            && self.order.len() < PLACES_MAX
            && self.order.open_bytes < OPEN_BYTES_MAX
            && self.order.returning < RETURNING_MAX
            && self.order.buffered() < OUTPUT_BYTES_SOFT
    }

    pub(super) const fn ending(&self) -> bool {
        self.ending
    }

    pub(super) fn is_idle(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn closing(&self) -> bool {
        self.ending && self.order.is_empty()
    }

    pub(super) const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.order.output
    }

    pub(super) fn open_tags(&self) -> VecDeque<Tag> {
        self.order.open_tags()
    }

    pub(super) fn lend_parser(&mut self) -> Parser {
        std::mem::take(&mut self.parser)
    }

    pub(super) fn return_parser(&mut self, mut parser: Parser) {
        parser.rest();
        self.parser = parser;
    }

    /// Memory that is counted.
    pub(super) const fn held_bytes(&self) -> usize {
        self.counted + self.order.counted()
    }

    /// Counts the memory that is held now.
    pub(super) fn recount(&mut self, shared: &mut Shared) {
        self.order.recount(shared);
        let multi = self.multi.as_ref();
        let multi = multi.map_or(0, |multi| multi.commands.capacity());
        let mut held = multi + self.watching.held_bytes() + self.parser.held_bytes();
        if !self.subscriptions.is_empty() {
            held += self.subscriptions.held_bytes();
        }
        shared.recount(&mut self.counted, held);
    }

    /// Writes into the roster what it says of this connection.
    pub(super) fn sign(&self, now_ms: u64, shared: &mut Shared) {
        if let Some(guest) = shared.roster.guest(self.seat) {
            guest.seen_ms = now_ms;
            guest.command = self.command;
            guest.channels = self.subscriptions.len();
            guest.queued = self.multi.as_ref().map(|multi| multi.count);
            guest.protocol = if self.version == Version::Resp3 { 3 } else { 2 };
            guest.stale = self.stale;
            guest.waiting = self.order.len();
            guest.output_bytes = self.order.buffered();
            guest.held_bytes = self.held_bytes();
        }
    }

    /// Output was sent.
    pub(super) fn sent(&mut self, shared: &mut Shared) {
        self.order.sent();
        self.order.recount(shared);
    }

    /// Tells the reactor that there is something to send, that it is time to close, or that there
    /// is room again for input that was left over.
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

    /// One request.
    pub(super) fn request(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let Some(spec) = shared.lookup(arguments.at(0)) else {
            if is_of_http(arguments.at(0)) {
                return self.end_foreign(HTTP, shared, requests);
            }
            let name: String = arguments
                .at(0)
                .iter()
                .take(64)
                .map(|&b| printable(b))
                .collect();
            self.refuse(
                &format!("ERR unknown command '{name}', see docs/commands.md"),
                shared,
            );
            return;
        };
        if let Err(refusal) = spec.check(arguments) {
            let text = refusal.text(spec.name);
            if let Handler::Local(Local::Exec) = spec.handler {
                self.abort_exec(&text, shared);
            } else {
                self.refuse(&text, shared);
            }
            return;
        }
        self.command = spec.name;
        if !self.may_ask(spec.name) {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context",
                spec.name
            );
            self.refuse(&text, shared);
            return;
        }
        match spec.handler {
            Handler::Local(local) => self.local(local, arguments, shared, requests),
            Handler::Script(by) => {
                let encoded = shared.encode_script(by, spec.name, arguments, requests);
                self.encoded(encoded, spec.name, shared, requests);
            }
            Handler::Data(encode) => {
                let request = Request {
                    name: spec.name,
                    arguments: arguments.from(1),
                    wall_ms: requests.wall_ms(),
                    value_bytes_max: requests.command_bytes_max(),
                };
                super::fresh(&mut shared.command);
                let encoded = encode(&request, &mut Encoder(&mut shared.command));
                self.encoded(encoded, spec.name, shared, requests);
            }
        }
    }

    /// A command or query is in the scratch buffer, or it is none.
    fn encoded(
        &mut self,
        encoded: Result<(), Refusal>,
        name: &str,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match encoded {
            Ok(()) => self.data(shared, requests),
            Err(Refusal::Text(text)) => self.refuse_in_place(&text, shared, requests),
            Err(refusal) => self.refuse(&refusal.text(name), shared),
        }
    }

    /// A command or query, in the scratch buffer.
    fn data(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        if self.multi.is_some() {
            self.queue(shared, requests);
            return;
        }
        match Kind::of(&shared.command) {
            Kind::Read => {
                let read = Read::plain(shared.query(), self.stale);
                self.order.push_read(read, self.version);
            }
            kind => {
                let returning = kind == Kind::WriteReturning;
                let command = std::mem::take(&mut shared.command);
                if self.order.has_unsent() {
                    self.advance_to_write(shared, requests);
                }
                if self.order.may_write() {
                    self.order.write_now(
                        self.id,
                        &command,
                        returning,
                        self.version,
                        shared,
                        requests,
                    );
                } else {
                    self.order
                        .push_write(Write::plain(command.clone()), returning, self.version);
                }
                shared.command = command;
            }
        }
    }

    /// Keeps the command in the scratch buffer for EXEC.
    fn queue(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        let bytes_max = requests.command_bytes_max();
        let Some(multi) = &mut self.multi else { return };
        if multi.commands.len() + shared.command.len() > bytes_max {
            self.refuse(&super::local::too_big(bytes_max), shared);
            return;
        }
        if shared.is_full(shared.command.len()) {
            self.refuse(super::FULL, shared);
            return;
        }
        Encoder(&mut multi.commands).bytes(&shared.command);
        multi.count += 1;
        shared.recount(&mut self.counted, multi.commands.capacity());
        shared.fresh_reply().simple("QUEUED");
        self.answer(shared);
    }

    /// An error that takes the place of the reply: within a transaction, when that is executed.
    fn refuse_in_place(&mut self, text: &str, shared: &mut Shared, requests: &mut dyn Requests) {
        shared.fresh_reply().error(text);
        if self.multi.is_some() {
            self.queue_reply(shared, requests);
        } else {
            self.answer(shared);
        }
    }

    /// Queues the reply in the scratch buffer, to be given by EXEC.
    pub(super) fn queue_reply(&mut self, shared: &mut Shared, requests: &mut dyn Requests) {
        super::fresh(&mut shared.command);
        encode_literal(&shared.reply, &mut Encoder(&mut shared.command));
        self.queue(shared, requests);
    }

    /// An error at once; a transaction does not survive it.
    pub(super) fn refuse(&mut self, text: &str, shared: &mut Shared) {
        if let Some(multi) = &mut self.multi {
            multi.broken = true;
            multi.commands = Vec::new();
        }
        shared.fresh_reply().error(text);
        self.answer(shared);
    }

    /// Another protocol, before anything of it is taken for a request. A web page can make a browser
    /// send requests of HTTP to this port, with commands in their bodies.
    pub(super) fn end_foreign(
        &mut self,
        what: &str,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let now = Time(requests.wall_ms().saturating_mul(1000));
        if let Some(untold) = shared.strangers.say(now) {
            let client = self.id.0;
            tracing::warn!(
                client,
                what,
                untold,
                "closed a client that does not speak the Redis protocol; if it is a browser, a web page \
                 may have tried to send commands"
            );
        }
        self.end_with(
            &format!("ERR Protocol error: {what} is not spoken here"),
            shared,
        );
    }

    /// An error, in its place among the replies; then the connection closes.
    pub(super) fn end_with(&mut self, text: &str, shared: &mut Shared) {
        shared.fresh_reply().error(text);
        self.answer(shared);
        self.ending = true;
    }

    /// Closes once all is answered.
    pub(super) const fn end(&mut self) {
        self.ending = true;
    }

    /// The reply in the scratch buffer is the next request's.
    pub(super) fn answer(&mut self, shared: &Shared) {
        self.order.push_answer(&shared.reply, self.version);
    }

    /// Appends to the scratch buffer and answers.
    pub(super) fn reply(&mut self, shared: &mut Shared, build: impl FnOnce(&mut Reply<'_>)) {
        build(&mut shared.fresh_reply());
        self.answer(shared);
    }

    /// MULTI's end: EXEC, perhaps within a session.
    pub(super) fn take_multi(&mut self) -> Option<Multi> {
        self.multi.take()
    }

    /// Whether this may not be asked between MULTI and EXEC.
    pub(super) const fn outside_multi(local: Local) -> bool {
        matches!(
            local,
            Local::Multi
                | Local::Watch
                | Local::Hello
                | Local::Quorate
                | Local::Subscribe
                | Local::Unsubscribe
        )
    }
}

/// What browsers speak.
pub(super) const HTTP: &str = "HTTP";

/// Whether these are the words of the line that starts a request of HTTP, whose method may be the
/// name of a command.
pub(super) fn starts_http(words: &Arguments<'_>) -> bool {
    words.len() == 3 && words.at(2).starts_with(b"HTTP/")
}

/// Whether this is the first word of a line of HTTP: of one that brings a body, or of the header that
/// every request has before its body.
const fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

pub(super) fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() && byte != b'\'' {
        char::from(byte)
    } else {
        '?'
    }
}
