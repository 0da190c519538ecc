//! Commands answered by the connection itself: greetings, settings, and the start and end of
//! transactions.

use quorate_replica::front::{Requests, Sequenced};

use super::{Connection, attached::SessionAttachment, quiet::ReplyMode};
use crate::{
    command::{Encode, Local, Refusal, Request, SYNTAX, SubscriptionKind},
    commands::{inspect, transactions::ABSENT_LEVEL},
    encode::Encoder,
    front::{
        answers,
        asked::{AnswerUse, Freshness, Read, Write, WriteKind},
        buffers::clear_buffer,
        channels::{self, KINDS},
        client, cluster, info,
        info::REDIS_VERSION,
        readers::WaitEnd,
        shared::Shared,
        subcommands, table, topology,
        transaction::Transaction,
    },
    resp::{
        integer::parse_integer,
        reply::{Reply, Version},
        request::Arguments,
    },
    store::Database,
};

impl Connection {
    /// Handles a command that the connection answers without the service, or encodes itself.
    pub(super) fn handle_local_command(
        &mut self,
        local: Local,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        if self.transaction.is_some()
            && Self::outside_multi(local)
            && !self.is_sequenced_exec(arguments)
        {
            self.refuse_in_transaction(local, shared);
            return;
        }
        if let Err(text) = subcommands::check_subcommand(local, arguments) {
            self.refuse_request(&text, shared);
            return;
        }
        match local {
            Local::Multi => {
                self.transaction = Some(Transaction::new(self.database));
                self.reply(shared, |r| r.ok());
            }
            Local::Exec => self.handle_exec(None, shared, requests),
            Local::Discard => self.discard_transaction(shared),
            Local::Watch => self.watch(arguments, shared),
            Local::Quit => {
                self.reply(shared, |r| r.ok());
                self.stop_monitoring(shared);
                self.end();
            }
            Local::Monitor => self.start_monitoring(shared),
            Local::Reset => self.reset(shared),
            Local::Select => self.handle_select(arguments.at(1), shared, requests),
            Local::Hello => self.handle_hello(arguments, shared, requests),
            Local::Auth => self.handle_auth(arguments, shared, requests),
            Local::Quorate => self.handle_quorate(arguments, shared, requests),
            Local::Subscribe(of) => self.handle_subscribe(of, arguments, shared),
            Local::Unsubscribe(of) => self.handle_unsubscribe(of, arguments, shared),
            Local::Client if arguments.at(1).eq_ignore_ascii_case(b"unblock") => {
                self.handle_unblock(arguments, shared);
            }
            Local::Client if arguments.at(1).eq_ignore_ascii_case(b"kill") => {
                self.handle_kill(arguments, shared, requests);
            }
            Local::Client if arguments.at(1).eq_ignore_ascii_case(b"reply") => {
                self.set_reply_mode(arguments, shared);
            }
            Local::Object | Local::Memory if !is_help(arguments) => {
                self.query_property(local, arguments, shared, requests);
            }
            _ => {
                self.handle_simple_command(local, arguments, shared, requests);
                self.send_reply_in_order(shared, requests);
            }
        }
    }

    /// Handles CLIENT UNBLOCK. If the other client is blocked, the reply is sent later.
    fn handle_unblock(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        if self.transaction.is_some() {
            let text =
                "ERR CLIENT UNBLOCK is not allowed in a transaction: it is not part of the log";
            return self.refuse_request(text, shared);
        }
        match client::parse_unblock(arguments) {
            Err(text) => self.refuse_request(text, shared),
            Ok((client, how)) if shared.blocked_clients.is_client_blocked(client) => {
                let place = self.order.end();
                self.order.push_parked(self.version);
                shared.blocked_clients.request_unblock(client, how, (self.id, place));
            }
            Ok((client, how)) if let Some(number) = shared.readers.reader_number(client) => {
                let place = self.order.end();
                self.order.push_parked(self.version);
                shared.readers.end(number, WaitEnd::Unblocked(how, (self.id, place)));
            }
            Ok(_) => self.reply(shared, |r| r.integer(0)),
        }
    }

    /// Handles CLIENT KILL. Other clients lose their unsent replies; this one receives its own.
    fn handle_kill(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let killed =
            match client::select_clients_to_kill(self.id, arguments, shared, requests.wall_ms()) {
                Ok(killed) => killed,
                Err(text) => return self.send_error_in_order(&text, shared, requests),
            };
        let count = i64::try_from(killed.clients.len()).unwrap_or(i64::MAX);
        let mut r = shared.fresh_reply();
        if killed.by_address {
            r.ok()
        } else {
            r.integer(count)
        }
        self.send_reply_in_order(shared, requests);
        if killed.clients.contains(&self.id) {
            self.end();
        }
        shared.clients_to_kill.extend(killed.clients.into_iter().filter(|id| *id != self.id));
    }

    /// Fails EXEC with the reason `why` and ends the transaction.
    pub(super) fn abort_exec(&mut self, why: &str, shared: &mut Shared) {
        if self.take_transaction().is_some() {
            self.watching.end_epoch();
        }
        let why = why.strip_prefix("ERR ").unwrap_or(why);
        let text = format!("EXECABORT Transaction discarded because of: {why}");
        self.reply(shared, |r| r.error(&text));
    }

    fn refuse_in_transaction(&mut self, local: Local, shared: &mut Shared) {
        match local {
            // As in Redis, a nested MULTI or WATCH leaves the transaction unchanged.
            Local::Multi => {
                self.reply(shared, |r| r.error("ERR MULTI calls can not be nested"));
            }
            Local::Watch => {
                self.reply(shared, |r| r.error("ERR WATCH inside MULTI is not allowed"));
            }
            _ => self.refuse_request("ERR Command not allowed inside a transaction", shared),
        }
    }

    /// Replies at once. Within a transaction, queues the reply.
    fn handle_simple_command(
        &mut self,
        local: Local,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let mut reply = std::mem::take(&mut shared.reply);
        clear_buffer(&mut reply);
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
            Local::Acl => self.handle_acl(arguments, requests, r),
            Local::Client => {
                let now_ms = requests.wall_ms();
                self.update_entry(now_ms, shared);
                if !self.client_tracking(arguments, shared, r) {
                    client::client(self.id, self.client_slot, arguments, shared, now_ms, r);
                }
            }
            Local::Command => table::command(arguments, shared, r),
            Local::Info => info::info(arguments, shared, requests, r),
            Local::Config => answers::config(arguments, shared, requests, r),
            Local::ReadOnly | Local::ReadWrite => {
                self.freshness = match local {
                    Local::ReadOnly => Freshness::Stale,
                    _ => Freshness::Linearizable,
                };
                r.ok();
            }
            Local::Wait => answers::answer_wait(arguments, requests, r),
            Local::Role => topology::role(&requests.status(), r),
            Local::Sentinel => {
                if arguments.len() > 2 {
                    shared.switching.learn_name(arguments.at(2));
                }
                topology::answer_sentinel(&requests.status(), arguments, r);
            }
            Local::Cluster => {
                cluster::answer_cluster(
                    &requests.status(),
                    shared.settings.cluster_mode,
                    arguments,
                    r,
                );
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
            Local::Function => answers::answer_function(arguments, r),
            Local::Object | Local::Memory => subcommands::help(local, r),
            Local::Slowlog => shared.tally.slow.answer_slowlog(arguments, r),
            Local::Latency => shared.tally.latency.answer_latency(arguments, r),
            Local::Pubsub if is_help(arguments) => subcommands::help(local, r),
            Local::Pubsub => {
                shared.census.note_used();
                shared.channels.answer_pubsub(arguments, &shared.census, r);
            }
            Local::Script => answers::answer_script(arguments, &mut shared.scripts, r),
            Local::Multi
            | Local::Exec
            | Local::Discard
            | Local::Watch
            | Local::Quit
            | Local::Reset
            | Local::Select
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
    fn query_property(
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
            database: self.database(),
            wall_ms: requests.wall_ms(),
            value_bytes_max: requests.command_bytes_max(),
            seed: shared.seed(requests.wall_ms()),
        };
        clear_buffer(&mut shared.command);
        let encoded = encode(&request, &mut Encoder(&mut shared.command));
        self.handle_encoded(encoded, name, shared, requests);
    }

    /// Handles EXEC: encodes the queued commands as a single one.
    pub(super) fn handle_exec(
        &mut self,
        at: Option<Sequenced>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let Some(multi) = self.take_transaction() else {
            self.reply(shared, |r| r.error("ERR EXEC without MULTI"));
            return;
        };
        let epoch = self.watching.end_epoch();
        // A numbered EXEC may return an earlier reply, which clients must not cache.
        if at.is_none() && self.tracking.is_some() {
            shared.record_cached_reads(self.id, multi.read_keys());
        }
        let database = multi.database;
        let Some((command, count)) = multi.take_commands() else {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.reply(shared, |r| r.error(text));
            return;
        };
        if requests.level() < ABSENT_LEVEL {
            self.reread_absent_keys(epoch);
        }
        let how = WriteKind::Exec { epoch, count, session_number: at };
        let write = Write::new(command, how);
        self.expect_database(database);
        self.order.push_write(write, true, self.version);
        if self.pending_database.is_some() {
            // If it is refused at once, the input behind it goes on in this turn.
            self.advance(shared, requests);
        }
    }

    fn discard_transaction(&mut self, shared: &mut Shared) {
        if self.take_transaction().is_none() {
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
        if !self.watching.admit_keys(keys.len(), bytes) {
            let epoch = self.watching.epoch();
            self.watching.record_failed_watch(epoch);
            self.refuse_request("ERR too many keys are watched", shared);
            return;
        }
        let read = Read::watch(keys.iter(), self.database, self.watching.epoch());
        self.order.push_read(read, self.version);
    }

    /// [watch-4] Reads the versions of absent keys in an epoch again, before EXEC. Below the level
    /// with more databases, all are in the first one.
    fn reread_absent_keys(&mut self, epoch: u64) {
        let absent = self.watching.absent_keys(epoch);
        if !absent.is_empty() {
            let read = Read::watch(absent.into_iter(), Database::ZERO, epoch);
            self.order.push_own_read(read, self.version);
        }
    }

    fn reset(&mut self, shared: &mut Shared) {
        self.take_transaction();
        self.watching.end_epoch();
        self.version = Version::Resp2;
        self.database = Database::ZERO;
        self.freshness = Freshness::default();
        self.session = SessionAttachment::default();
        self.reply_mode = ReplyMode::default();
        self.order.is_silent = false;
        self.order.awaits_durability = false;
        self.login.set_user(None);
        if let Some(guest) = shared.clients.entry_mut(self.client_slot) {
            self.login.name().clone_into(&mut guest.user);
            guest.name.clear();
            guest.subscription_counts = [0; 3];
        }
        self.subscriptions.clear(self.id, &mut shared.channels);
        for of in KINDS {
            // Includes subscriptions requested by SUBSCRIBE commands that are still unanswered.
            for name in self.future_subscriptions(of) {
                self.queue_subscription_in_mode((of, false), &name, true);
            }
        }
        self.order.is_silent = false;
        self.stop_monitoring(shared);
        self.stop_tracking(shared);
        self.reply(shared, |r| r.simple("RESET"));
    }

    fn handle_hello(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) {
        let greeting = match HelloArguments::read(arguments, self.version) {
            Ok(greeting) => greeting,
            Err(text) => return self.reply(shared, |r| r.error(text)),
        };
        let HelloArguments { version, login, name } = greeting;
        if let Some(login) = login {
            return self.hello_auth((version, name), login, shared, requests);
        }
        match self.hello_refused(requests) {
            Some(text) => self.refuse_request(text, shared),
            None => self.send_hello_reply(version, name, shared),
        }
    }

    pub(super) fn send_hello_reply(
        &mut self,
        version: Version,
        name: Option<&[u8]>,
        shared: &mut Shared,
    ) {
        let named = name.map_or(Ok(()), |name| shared.clients.set_name(self.client_slot, name));
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
    fn handle_subscribe(
        &mut self,
        of: SubscriptionKind,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
    ) {
        let names = arguments.from(1);
        if let Err(text) = self.subscriptions.check_limits(of, &names) {
            return self.refuse_request(text, shared);
        }
        for name in names.iter() {
            self.queue_subscription(name, (of, true));
        }
    }

    fn handle_unsubscribe(
        &mut self,
        of: SubscriptionKind,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
    ) {
        let names = arguments.from(1);
        if !names.is_empty() {
            for name in names.iter() {
                self.queue_subscription(name, (of, false));
            }
            return;
        }
        // Includes subscriptions from earlier, unanswered requests.
        let names = self.future_subscriptions(of);
        if names.is_empty() {
            self.order.is_silent = false;
            let left = channels::left(of, KINDS.map(|of| self.future_subscriptions(of).len()));
            channels::confirm_change((of, false), None, left, &mut shared.fresh_reply());
            self.send_reply(shared);
        }
        for name in names {
            self.queue_subscription(&name, (of, false));
        }
    }

    /// Adds a subscription, or its end, to the order of requests.
    fn queue_subscription(&mut self, name: &[u8], what: (SubscriptionKind, bool)) {
        self.queue_subscription_in_mode(what, name, false);
    }

    fn queue_subscription_in_mode(
        &mut self,
        (of, listen): (SubscriptionKind, bool),
        name: &[u8],
        silent: bool,
    ) {
        self.order.is_silent = silent;
        let read = Read {
            after_all_writes: true,
            answer_use: AnswerUse::Subscribe(of, listen),
            ..Read::unrestricted(name.to_vec(), Freshness::Linearizable)
        };
        self.order.push_read(read, self.version);
    }

    pub(super) fn set_reply_mode(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        if self.transaction.is_some() {
            let text =
                "ERR CLIENT REPLY is not allowed in a transaction: replies of EXEC come together";
            return self.refuse_request(text, shared);
        }
        match &*arguments.at(2).to_ascii_lowercase() {
            b"on" => {
                self.reply_mode = ReplyMode::On;
                self.order.is_silent = false;
                self.reply(shared, |r| r.ok());
            }
            b"off" => self.reply_mode = ReplyMode::Off,
            // SKIP does not turn replies on again if they are off.
            b"skip" if self.reply_mode == ReplyMode::Off => {}
            b"skip" => self.reply_mode = ReplyMode::SkipNext,
            _ => self.refuse_request(SYNTAX, shared),
        }
    }
}

fn is_help(arguments: &Arguments<'_>) -> bool {
    arguments.at(1).eq_ignore_ascii_case(b"help")
}

struct HelloArguments<'a> {
    version: Version,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> HelloArguments<'a> {
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
