//! What a connection answers by itself: greetings, its own settings, transactions' brackets.

use quorate_replica::front::Requests;

use super::{
    Shared,
    connection::{Connection, Multi},
    info,
    order::{How, Query, Read, Write},
    roster::label,
    subcommands,
};
use crate::{
    command::{Handler, Local, NOT_AN_INTEGER, Refusal, Spec},
    commands::FAMILIES,
    commands::transactions::encode_versions,
    encode::Encoder,
    glob,
    resp::{
        reply::{Reply, Version},
        request::{Arguments, parse_integer},
    },
    scripts::{self, Scripts},
};

/// The version of Redis whose commands these are: some clients choose by it what to ask.
pub(super) const REDIS_VERSION: &str = "7.2.0";

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
    default user. Are you sure your configuration is correct?";

pub(super) fn too_big(bytes_max: usize) -> String {
    format!("TOOBIG not executed: a command may have {bytes_max} bytes (--command-max)")
}

impl Connection {
    /// A command that needs no data.
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
            Local::Exec => self.exec(None, shared),
            Local::Discard => self.discard(shared),
            Local::Watch => self.watch(arguments, shared),
            Local::Quit => {
                self.reply(shared, |r| r.ok());
                self.end();
            }
            Local::Reset => self.reset(shared),
            Local::Hello => self.hello(arguments, shared),
            Local::Quorate => self.quorate(arguments, shared, requests),
            Local::Subscribe => self.subscribe(arguments, shared),
            Local::Unsubscribe => self.unsubscribe(arguments, shared),
            _ => {
                self.simple(local, arguments, shared, requests);
                if self.multi.is_some() {
                    self.queue_reply(shared, requests);
                } else {
                    self.answer(shared);
                }
            }
        }
    }

    /// EXEC that cannot be: the transaction ends.
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
            // These two leave the transaction as it is, as in Redis.
            Local::Multi => {
                self.reply(shared, |r| r.error("ERR MULTI calls can not be nested"));
            }
            Local::Watch => {
                self.reply(shared, |r| r.error("ERR WATCH inside MULTI is not allowed"));
            }
            _ => self.refuse("ERR Command not allowed inside a transaction", shared),
        }
    }

    /// Leaves the reply in the scratch buffer; it may be wanted at once or in a transaction.
    fn simple(
        &mut self,
        local: Local,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let mut reply = std::mem::take(&mut shared.reply);
        super::fresh(&mut reply);
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
            Local::Auth => r.error(NO_PASSWORD),
            Local::Client => self.client(arguments, shared, requests, r),
            Local::Command => command(arguments, shared, r),
            Local::Info => info::info(arguments, shared, requests, r),
            Local::Config => config(arguments, requests, r),
            Local::ReadOnly | Local::ReadWrite => {
                self.stale = local == Local::ReadOnly;
                r.ok();
            }
            Local::Wait => wait(arguments, requests, r),
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
            Local::Script => script(arguments, &mut shared.scripts, r),
            Local::Multi
            | Local::Exec
            | Local::Discard
            | Local::Watch
            | Local::Quit
            | Local::Reset
            | Local::Hello
            | Local::Subscribe
            | Local::Unsubscribe
            | Local::Quorate => r.error("ERR not a simple command"),
        }
        shared.reply = reply;
    }

    /// Ends the transaction: what was queued becomes one command.
    pub(super) fn exec(
        &mut self,
        at: Option<quorate_replica::front::Sequenced>,
        shared: &mut Shared,
    ) {
        let Some(multi) = self.take_multi() else {
            self.reply(shared, |r| r.error("ERR EXEC without MULTI"));
            return;
        };
        let epoch = self.watching.end_epoch();
        if multi.broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.reply(shared, |r| r.error(text));
            return;
        }
        let how = How::Exec {
            epoch,
            count: multi.count,
            at,
        };
        self.order.push_write(
            Write {
                command: multi.commands,
                how,
            },
            true,
            self.version,
        );
    }

    fn discard(&mut self, shared: &mut Shared) {
        if self.take_multi().is_none() {
            self.reply(shared, |r| r.error("ERR DISCARD without MULTI"));
            return;
        }
        self.watching.end_epoch();
        self.reply(shared, |r| r.ok());
    }

    /// A linearizable read of versions, even on a connection that reads stale data.
    fn watch(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        let keys = arguments.from(1);
        let bytes = keys.iter().map(<[u8]>::len).sum();
        if !self.watching.admit(keys.len(), bytes) {
            let epoch = self.watching.epoch;
            self.watching.failed(epoch);
            self.refuse("ERR too many keys are watched", shared);
            return;
        }
        let mut query = Vec::new();
        encode_versions(keys.iter(), &mut Encoder(&mut query));
        let read = Read {
            query,
            stale: false,
            alone: true,
            what: Query::Watch(self.watching.epoch),
        };
        self.order.push_read(read, self.version);
    }

    fn reset(&mut self, shared: &mut Shared) {
        self.take_multi();
        self.watching.end_epoch();
        self.version = Version::Resp2;
        self.stale = false;
        self.session = None;
        self.acknowledged_below = 0;
        if let Some(guest) = shared.roster.guest(self.seat) {
            guest.name.clear();
        }
        self.subscriptions.clear(self.id, &mut shared.channels);
        self.reply(shared, |r| r.simple("RESET"));
    }

    fn hello(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        match self.greet(arguments, shared) {
            Err(text) => self.reply(shared, |r| r.error(text)),
            Ok(version) => {
                self.version = version;
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
                    for (name, value) in [("mode", "standalone"), ("role", "master")] {
                        r.bulk(name.as_bytes());
                        r.bulk(value.as_bytes());
                    }
                    r.bulk(b"modules");
                    r.array(0);
                });
            }
        }
    }

    /// HELLO's arguments: the version, a name.
    fn greet(
        &self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
    ) -> Result<Version, &'static str> {
        let version = match arguments.at(1) {
            b"" if arguments.len() == 1 => return Ok(self.version),
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
                return Err(NO_PASSWORD);
            } else if word.eq_ignore_ascii_case(b"setname") && at + 1 < arguments.len() {
                self.set_name(arguments.at(at + 1), shared)?;
                at += 2;
            } else {
                return Err("ERR Syntax error in HELLO option");
            }
        }
        Ok(version)
    }

    pub(super) fn set_name(&self, name: &[u8], shared: &mut Shared) -> Result<(), &'static str> {
        let Some(name) = label(name) else {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        };
        if let Some(guest) = shared.roster.guest(self.seat) {
            guest.name = name;
        }
        Ok(())
    }
}

/// COMMAND and its subcommands, from the table.
fn command(arguments: &Arguments<'_>, shared: &Shared, r: &mut Reply<'_>) {
    let all = || FAMILIES.iter().flat_map(|family| family.commands);
    let sub = arguments.at(1).to_ascii_lowercase();
    match (&*sub, arguments.len()) {
        (_, 1) | (b"info", 2) => {
            r.array(all().count());
            all().for_each(|spec| describe(spec, r));
        }
        (b"count", _) => r.count(all().count()),
        (b"list", _) => {
            r.array(all().count());
            all().for_each(|spec| r.bulk(spec.name.as_bytes()));
        }
        (b"info", _) => {
            r.array(arguments.len() - 2);
            for name in arguments.from(2).iter() {
                match shared.lookup(name) {
                    Some(spec) => describe(spec, r),
                    None => r.null(),
                }
            }
        }
        (b"docs", _) => r.map(0),
        (b"getkeys", _) => get_keys(&arguments.from(2), shared, r),
        _ => subcommands::help(Local::Command, r),
    }
}

fn describe(spec: &Spec, r: &mut Reply<'_>) {
    let (first, last, step) = spec.keys;
    r.array(10);
    r.bulk(spec.name.as_bytes());
    r.integer(spec.arity.into());
    r.array(spec.flags.len());
    spec.flags.iter().for_each(|flag| r.simple(flag));
    [first, last, step]
        .into_iter()
        .for_each(|place| r.integer(place.into()));
    // Categories, tips, key specifications, subcommands.
    (0..4).for_each(|_| r.array(0));
}

fn get_keys(command: &Arguments<'_>, shared: &Shared, r: &mut Reply<'_>) {
    let Some(spec) = shared
        .lookup(command.at(0))
        .filter(|spec| spec.takes(command.len()))
    else {
        r.error("ERR Invalid command specified, or invalid number of arguments");
        return;
    };
    let keys = spec.key_places(command.len());
    if spec.keys.0 == 0 {
        r.error("ERR The command has no key arguments");
        return;
    }
    r.array(keys.clone().count());
    keys.for_each(|at| r.bulk(command.at(at)));
}

/// The few settings that clients ask for.
fn config(arguments: &Arguments<'_>, requests: &dyn Requests, r: &mut Reply<'_>) {
    let sub = arguments.at(1).to_ascii_lowercase();
    let bytes_max = requests.command_bytes_max().to_string();
    let settings = [
        ("appendonly", "yes"),
        ("databases", "1"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("proto-max-bulk-len", &*bytes_max),
        ("save", ""),
        ("timeout", "0"),
    ];
    match (&*sub, arguments.len()) {
        (b"get", 3..) => {
            let patterns: Vec<Vec<u8>> = arguments
                .from(2)
                .iter()
                .take(64)
                .map(<[u8]>::to_ascii_lowercase)
                .collect();
            let wanted = |name: &str| {
                patterns
                    .iter()
                    .any(|pattern| glob::matches(pattern, name.as_bytes()))
            };
            let found = || settings.iter().filter(|(name, _)| wanted(name));
            r.map(found().count());
            for (name, value) in found() {
                r.bulk(name.as_bytes());
                r.bulk(value.as_bytes());
            }
        }
        (b"resetstat", 2) => r.ok(),
        (b"set", _) => r.error("ERR CONFIG SET is not supported: settings are flags of the node"),
        _ => subcommands::help(Local::Config, r),
    }
}

/// SCRIPT and its subcommands.
fn script(arguments: &Arguments<'_>, scripts: &mut Scripts, r: &mut Reply<'_>) {
    let sub = arguments.at(1).to_ascii_lowercase();
    match (&*sub, arguments.len()) {
        (b"load", 3) => match scripts.learn(arguments.at(2)) {
            Some(_) => r.bulk(scripts::hash_of(arguments.at(2)).as_bytes()),
            None => r.error(scripts::UNKNOWN),
        },
        (b"exists", 3..) => {
            r.array(arguments.len() - 2);
            for hash in arguments.from(2).iter() {
                r.integer(i64::from(scripts.find(hash).is_some()));
            }
        }
        (b"flush", 2 | 3) => {
            scripts.flush();
            r.ok();
        }
        (b"kill", _) => r.error("NOTBUSY No scripts in execution right now."),
        (b"flush", _) => r.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        _ => subcommands::help(Local::Script, r),
    }
}

/// WAIT: what was acknowledged is at a quorum, so it reached the others of a majority.
fn wait(arguments: &Arguments<'_>, requests: &dyn Requests, r: &mut Reply<'_>) {
    match (
        parse_integer(arguments.at(1)),
        parse_integer(arguments.at(2)),
    ) {
        (Some(_), Some(timeout)) if timeout >= 0 => {
            let voters = requests
                .status()
                .peers
                .iter()
                .filter(|peer| peer.weight > 0)
                .count();
            r.count(voters / 2);
        }
        (Some(_), Some(_)) => r.error("ERR timeout is negative"),
        _ => r.error(NOT_AN_INTEGER),
    }
}

/// Whether a command changes or reads data, and so can be numbered.
pub(super) const fn can_be_numbered(spec: &Spec) -> bool {
    match spec.handler {
        Handler::Data(_) | Handler::Script(_) => true,
        Handler::Local(_) => false,
    }
}
