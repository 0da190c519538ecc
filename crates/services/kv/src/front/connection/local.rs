//! Commands answered by the connection itself: greetings, settings, and the start and end of
//! transactions.

use quorate_replica::front::{Requests, Sequenced};

use super::{Connection, attached::Attached, quiet::Quiet};
use crate::{
    command::{Encode, Local, NOT_AN_INTEGER, Refusal, Request, SYNTAX, SubscriptionKind},
    commands::{inspect, transactions::ABSENT_LEVEL},
    encode::Encoder,
    front::{
        answers,
        asked::{Freshness, Query, Read, Write, WriteKind},
        buffers::fresh,
        channels::{self, SPACES},
        client, cluster, info,
        info::REDIS_VERSION,
        readers::End,
        shared::Shared,
        subcommands, table, topology,
        transaction::Multi,
    },
    resp::{
        integer::parse_integer,
        reply::{Reply, Version},
        request::Arguments,
    },
};

impl Connection {
    /// Handles a command that the connection answers without the service, or encodes itself.
    pub(super) fn local(
        &mut self,
        local: Local,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        if self.multi.is_some() && Self::outside_multi(local) && !self.is_sequenced_exec(arguments)
        {
            self.not_in_multi(local, shared);
            return;
        }
        if let Err(text) = subcommands::check(local, arguments) {
            self.refuse(&text, shared);
            return;
        }
        match local {
            Local::Multi => {
                self.multi = Some(Multi::default());
                self.reply(shared, |r| r.ok());
            }
            Local::Exec => self.exec(None, shared, requests),
            Local::Discard => self.discard(shared),
            Local::Watch => self.watch(arguments, shared),
            Local::Quit => {
                self.reply(shared, |r| r.ok());
                self.stop_monitoring(shared);
                self.end();
            }
            Local::Monitor => self.monitor(shared),
            Local::Reset => self.reset(shared),
            Local::Hello => self.hello(arguments, shared, requests),
            Local::Auth => self.auth(arguments, shared, requests),
            Local::Quorate => self.quorate(arguments, shared, requests),
            Local::Subscribe(of) => self.subscribe(of, arguments, shared),
            Local::Unsubscribe(of) => self.unsubscribe(of, arguments, shared),
            Local::Client if arguments.at(1).eq_ignore_ascii_case(b"unblock") => {
                self.unblock(arguments, shared);
            }
            Local::Client if arguments.at(1).eq_ignore_ascii_case(b"kill") => {
                self.kill(arguments, shared, requests);
            }
            Local::Client if arguments.at(1).eq_ignore_ascii_case(b"reply") => {
                self.hush(arguments, shared);
            }
            Local::Object | Local::Memory if !is_help(arguments) => {
                self.inspect(local, arguments, shared, requests);
            }
            _ => {
                self.simple(local, arguments, shared, requests);
                self.answer_in_place(shared, requests);
            }
        }
    }

    /// Handles CLIENT UNBLOCK. If the other client is blocked, the reply is sent later.
    fn unblock(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        if self.multi.is_some() {
            let text =
                "ERR CLIENT UNBLOCK is not allowed in a transaction: it is not part of the log";
            return self.refuse(text, shared);
        }
        match client::unblocks(arguments) {
            Err(text) => self.refuse(text, shared),
            Ok((client, how)) if shared.waiting.has(client) => {
                let place = self.order.end();
                self.order.push_parked(self.version);
                shared.waiting.unblock(client, how, (self.id, place));
            }
            Ok((client, how)) if let Some(number) = shared.readers.number_of(client) => {
                let place = self.order.end();
                self.order.push_parked(self.version);
                shared.readers.end(number, End::Unblocked(how, (self.id, place)));
            }
            Ok(_) => self.reply(shared, |r| r.integer(0)),
        }
    }

    /// Handles CLIENT KILL. Other clients lose their unsent replies; this one receives its own.
    fn kill(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let killed = match client::kills(self.id, arguments, shared, requests.wall_ms()) {
            Ok(killed) => killed,
            Err(text) => return self.refuse_in_place(&text, shared, requests),
        };
        let count = i64::try_from(killed.clients.len()).unwrap_or(i64::MAX);
        let mut r = shared.fresh_reply();
        if killed.by_address {
            r.ok()
        } else {
            r.integer(count)
        }
        self.answer_in_place(shared, requests);
        if killed.clients.contains(&self.id) {
            self.end();
        }
        shared.killed.extend(killed.clients.into_iter().filter(|id| *id != self.id));
    }

    /// Fails EXEC with the reason `why` and ends the transaction.
    pub(super) fn abort_exec(&mut self, why: &str, shared: &mut Shared) {
        if self.take_multi().is_some() {
            self.watching.end_epoch();
        }
        let why = why.strip_prefix("ERR ").unwrap_or(why);
        let text = format!("EXECABORT Transaction discarded because of: {why}");
        self.reply(shared, |r| r.error(&text));
    }

    fn not_in_multi(&mut self, local: Local, shared: &mut Shared) {
        match local {
            // As in Redis, a nested MULTI or WATCH leaves the transaction unchanged.
            Local::Multi => {
                self.reply(shared, |r| r.error("ERR MULTI calls can not be nested"));
            }
            Local::Watch => {
                self.reply(shared, |r| r.error("ERR WATCH inside MULTI is not allowed"));
            }
            _ => self.refuse("ERR Command not allowed inside a transaction", shared),
        }
    }

    /// Replies at once. Within a transaction, queues the reply.
    fn simple(
        &mut self,
        local: Local,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let mut reply = std::mem::take(&mut shared.reply);
        fresh(&mut reply);
        let r = &mut Reply(&mut reply);
        match local {
            Local::Ping => match arguments.len() {
                1 | 2 if self.only_listens() => {
                    r.array(2);
                    r.bulk(b"pong");
                    r.bulk(arguments.at(1));
                }
                1 => r.simple("PONG"),
                2 => r.bulk(arguments.at(1)),
                _ => r.error(&Refusal::Arity.text("ping")),
            },
            Local::Echo => r.bulk(arguments.at(1)),
            Local::Select => match parse_integer(arguments.at(1)) {
                Some(0) => r.ok(),
                Some(_) => r.error("ERR DB index is out of range"),
                None => r.error(NOT_AN_INTEGER),
            },
            Local::Acl => self.acl(arguments, requests, r),
            Local::Client => {
                let now_ms = requests.wall_ms();
                self.update_entry(now_ms, shared);
                if !self.client_tracking(arguments, shared, r) {
                    client::client(self.id, self.seat, arguments, shared, now_ms, r);
                }
            }
            Local::Command => table::command(arguments, shared, r),
            Local::Info => info::info(arguments, shared, requests, r),
            Local::Config => answers::config(arguments, shared, requests, r),
            Local::ReadOnly | Local::ReadWrite => {
                self.fresh = match local {
                    Local::ReadOnly => Freshness::Stale,
                    _ => Freshness::Linearizable,
                };
                r.ok();
            }
            Local::Wait => answers::wait(arguments, requests, r),
            Local::Role => topology::role(&requests.status(), r),
            Local::Sentinel => {
                if arguments.len() > 2 {
                    shared.switching.learn_name(arguments.at(2));
                }
                topology::sentinel(&requests.status(), arguments, r);
            }
            Local::Cluster => {
                cluster::cluster(&requests.status(), shared.settings.cluster_mode, arguments, r);
            }
            Local::Asking => r.ok(),
            Local::Time => {
                let now = requests.wall_ms();
                r.array(2);
                r.bulk((now / 1000).to_string().as_bytes());
                r.bulk((now % 1000 * 1000).to_string().as_bytes());
            }
            Local::Unwatch => {
                self.watching.end_epoch();
                r.ok();
            }
            Local::Function => answers::function(arguments, r),
            Local::Object | Local::Memory => subcommands::help(local, r),
            Local::Slowlog => shared.tally.slow.answer(arguments, r),
            Local::Latency => shared.tally.latency.answer(arguments, r),
            Local::Pubsub if is_help(arguments) => subcommands::help(local, r),
            Local::Pubsub => {
                shared.census.note_used();
                shared.channels.answer_pubsub(arguments, &shared.census, r);
            }
            Local::Script => answers::script(arguments, &mut shared.scripts, r),
            Local::Multi
            | Local::Exec
            | Local::Discard
            | Local::Watch
            | Local::Quit
            | Local::Reset
            | Local::Hello
            | Local::Auth
            | Local::Subscribe(_)
            | Local::Unsubscribe(_)
            | Local::Monitor
            | Local::Quorate => r.error("ERR not a simple command"),
        }
        shared.reply = reply;
    }

    /// Handles OBJECT and MEMORY for a key. Both are queries.
    fn inspect(
        &mut self,
        local: Local,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let (name, encode): (_, Encode) = match local {
            Local::Object => ("object", inspect::encode_object),
            _ => ("memory", inspect::encode_memory),
        };
        let request = Request {
            name,
            arguments: arguments.from(1),
            wall_ms: requests.wall_ms(),
            value_bytes_max: requests.command_bytes_max(),
            seed: shared.seed(requests.wall_ms()),
        };
        fresh(&mut shared.command);
        let encoded = encode(&request, &mut Encoder(&mut shared.command));
        self.encoded(encoded, name, shared, requests);
    }

    /// Handles EXEC: encodes the queued commands as a single one.
    pub(super) fn exec(
        &mut self,
        at: Option<Sequenced>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let Some(multi) = self.take_multi() else {
            self.reply(shared, |r| r.error("ERR EXEC without MULTI"));
            return;
        };
        let epoch = self.watching.end_epoch();
        // A numbered EXEC may return an earlier reply, which clients must not cache.
        if at.is_none() && self.tracked.is_some() {
            shared.remember(self.id, multi.reads());
        }
        let Some((command, count)) = multi.take() else {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.reply(shared, |r| r.error(text));
            return;
        };
        if requests.level() < ABSENT_LEVEL {
            self.watch_again(epoch);
        }
        let how = WriteKind::Exec { epoch, count, at };
        let write = Write::new(command, how);
        self.order.push_write(write, true, self.version);
    }

    fn discard(&mut self, shared: &mut Shared) {
        if self.take_multi().is_none() {
            self.reply(shared, |r| r.error("ERR DISCARD without MULTI"));
            return;
        }
        self.watching.end_epoch();
        self.reply(shared, |r| r.ok());
    }

    /// Reads the versions for WATCH, linearizably even if other reads of the connection are not.
    fn watch(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        let keys = arguments.from(1);
        let bytes = keys.iter().map(<[u8]>::len).sum();
        if !self.watching.admit(keys.len(), bytes) {
            let epoch = self.watching.epoch();
            self.watching.failed(epoch);
            self.refuse("ERR too many keys are watched", shared);
            return;
        }
        let read = Read::watch(keys.iter(), self.watching.epoch());
        self.order.push_read(read, self.version);
    }

    /// [watch-4] Reads the versions of absent keys in an epoch again, before EXEC.
    fn watch_again(&mut self, epoch: u64) {
        let absent = self.watching.absent(epoch);
        if !absent.is_empty() {
            let read = Read::watch(absent.into_iter(), epoch);
            self.order.push_own_read(read, self.version);
        }
    }

    fn reset(&mut self, shared: &mut Shared) {
        self.take_multi();
        self.watching.end_epoch();
        self.version = Version::Resp2;
        self.fresh = Freshness::default();
        self.attached = Attached::default();
        self.quiet = Quiet::default();
        self.order.silent = false;
        self.order.lasting = false;
        self.login.becomes(None);
        if let Some(guest) = shared.roster.guest(self.seat) {
            self.login.name().clone_into(&mut guest.user);
            guest.name.clear();
            guest.listens = [0; 3];
        }
        self.subscriptions.clear(self.id, &mut shared.channels);
        for of in SPACES {
            // Includes subscriptions requested by SUBSCRIBE commands that are still unanswered.
            for name in self.will_listen(of) {
                self.listen_as((of, false), &name, true);
            }
        }
        self.order.silent = false;
        self.stop_monitoring(shared);
        self.stop_tracking(shared);
        self.reply(shared, |r| r.simple("RESET"));
    }

    fn hello(&mut self, arguments: &Arguments<'_>, shared: &mut Shared, requests: &dyn Requests) {
        let greeting = match Greeting::read(arguments, self.version) {
            Ok(greeting) => greeting,
            Err(text) => return self.reply(shared, |r| r.error(text)),
        };
        let Greeting { version, login, name } = greeting;
        if let Some(login) = login {
            return self.hello_auth((version, name), login, shared, requests);
        }
        match self.hello_refused(requests) {
            Some(text) => self.refuse(text, shared),
            None => self.welcome(version, name, shared),
        }
    }

    pub(super) fn welcome(&mut self, version: Version, name: Option<&[u8]>, shared: &mut Shared) {
        let named = name.map_or(Ok(()), |name| shared.roster.set_name(self.seat, name));
        if let Err(text) = named {
            return self.reply(shared, |r| r.error(text));
        }
        self.version = version;
        let mode = shared.settings.cluster_mode.redis_name();
        let id = i64::try_from(self.id.0).unwrap_or(i64::MAX);
        self.reply(shared, |r| {
            r.map(7);
            for (name, value) in [("server", "quorate"), ("version", REDIS_VERSION)] {
                r.bulk(name.as_bytes());
                r.bulk(value.as_bytes());
            }
            r.bulk(b"proto");
            r.integer(if version == Version::Resp3 { 3 } else { 2 });
            r.bulk(b"id");
            r.integer(id);
            for (name, value) in [("mode", mode), ("role", "master")] {
                r.bulk(name.as_bytes());
                r.bulk(value.as_bytes());
            }
            r.bulk(b"modules");
            r.array(0);
        });
    }

    /// Subscribes to each name in a separate request, because each has its own reply.
    fn subscribe(&mut self, of: SubscriptionKind, arguments: &Arguments<'_>, shared: &mut Shared) {
        let names = arguments.from(1);
        if let Err(text) = self.subscriptions.admits(of, &names) {
            return self.refuse(text, shared);
        }
        for name in names.iter() {
            self.listen(name, (of, true));
        }
    }

    fn unsubscribe(
        &mut self,
        of: SubscriptionKind,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
    ) {
        let names = arguments.from(1);
        if !names.is_empty() {
            for name in names.iter() {
                self.listen(name, (of, false));
            }
            return;
        }
        // Includes subscriptions from earlier, unanswered requests.
        let names = self.will_listen(of);
        if names.is_empty() {
            self.order.silent = false;
            let left = channels::left(of, SPACES.map(|of| self.will_listen(of).len()));
            channels::confirm((of, false), None, left, &mut shared.fresh_reply());
            self.answer(shared);
        }
        for name in names {
            self.listen(&name, (of, false));
        }
    }

    /// Adds a subscription, or its end, to the order of requests.
    fn listen(&mut self, name: &[u8], what: (SubscriptionKind, bool)) {
        self.listen_as(what, name, false);
    }

    fn listen_as(&mut self, (of, listen): (SubscriptionKind, bool), name: &[u8], silent: bool) {
        self.order.silent = silent;
        let read = Read {
            alone: true,
            what: Query::Listen(of, listen),
            ..Read::plain(name.to_vec(), Freshness::Linearizable)
        };
        self.order.push_read(read, self.version);
    }

    pub(super) fn hush(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        if self.multi.is_some() {
            let text =
                "ERR CLIENT REPLY is not allowed in a transaction: replies of EXEC come together";
            return self.refuse(text, shared);
        }
        match &*arguments.at(2).to_ascii_lowercase() {
            b"on" => {
                self.quiet = Quiet::No;
                self.order.silent = false;
                self.reply(shared, |r| r.ok());
            }
            b"off" => self.quiet = Quiet::Yes,
            // SKIP does not turn replies on again if they are off.
            b"skip" if self.quiet == Quiet::Yes => {}
            b"skip" => self.quiet = Quiet::Once,
            _ => self.refuse(SYNTAX, shared),
        }
    }
}

fn is_help(arguments: &Arguments<'_>) -> bool {
    arguments.at(1).eq_ignore_ascii_case(b"help")
}

struct Greeting<'a> {
    version: Version,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Greeting<'a> {
    fn read(arguments: &Arguments<'a>, now: Version) -> Result<Self, &'static str> {
        let mut greeting = Self { version: now, login: None, name: None };
        greeting.version = match arguments.at(1) {
            b"" if arguments.len() == 1 => return Ok(greeting),
            b"2" => Version::Resp2,
            b"3" => Version::Resp3,
            other if parse_integer(other).is_none() => {
                return Err("ERR Protocol version is not an integer or out of range");
            }
            _ => return Err("NOPROTO unsupported protocol version"),
        };
        let mut at = 2;
        while at < arguments.len() {
            let word = arguments.at(at);
            if word.eq_ignore_ascii_case(b"auth") && at + 2 < arguments.len() {
                greeting.login = Some((arguments.at(at + 1), arguments.at(at + 2)));
                at += 3;
            } else if word.eq_ignore_ascii_case(b"setname") && at + 1 < arguments.len() {
                greeting.name = Some(arguments.at(at + 1));
                at += 2;
            } else {
                return Err("ERR Syntax error in HELLO option");
            }
        }
        Ok(greeting)
    }
}
