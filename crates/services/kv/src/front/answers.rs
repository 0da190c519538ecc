//! Replies that do not depend on the connection, such as replies about settings and scripts.

use quorate_replica::front::Requests;

use super::{access::EVENTS_SETTING, refusals::printable, shared::Shared, slow, subcommands};
use crate::{
    command::{Local, NOT_AN_INTEGER, SYNTAX},
    commands::events::Setting,
    glob,
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
    scripts::{self, Scripts},
    store::Database,
};

/// Answers CONFIG for the few settings that clients read.
pub(super) fn config(
    arguments: &Arguments<'_>,
    shared: &mut Shared,
    requests: &dyn Requests,
    r: &mut Reply<'_>,
) {
    let sub = arguments.at(1).to_ascii_lowercase();
    let bytes_max = requests.command_bytes_max().to_string();
    let slower_than_ms = slow::SLOW_MS.to_string();
    let slower_than_us = (slow::SLOW_MS * 1000).to_string();
    let entries_max = slow::ENTRIES_MAX.to_string();
    let events = shared.events.text();
    let databases = Database::COUNT.to_string();
    let settings = [
        ("appendonly", "yes"),
        ("databases", &*databases),
        ("latency-monitor-threshold", &*slower_than_ms),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        (EVENTS_SETTING, &*events),
        ("proto-max-bulk-len", &*bytes_max),
        ("save", ""),
        ("slowlog-log-slower-than", &*slower_than_us),
        ("slowlog-max-len", &*entries_max),
        ("timeout", "0"),
    ];
    match (&*sub, arguments.len()) {
        (b"get", 3..) => {
            let patterns: Vec<Vec<u8>> =
                arguments.from(2).iter().take(64).map(<[u8]>::to_ascii_lowercase).collect();
            let wanted =
                |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
            let found = || settings.iter().filter(|(name, _)| wanted(name));
            r.map(found().count());
            for (name, value) in found() {
                r.bulk(name.as_bytes());
                r.bulk(value.as_bytes());
            }
        }
        (b"resetstat", 2) => {
            shared.tally.reset();
            shared.traffic.reset();
            shared.clients.connections_total = 0;
            r.ok();
        }
        (b"set", _) => config_set(&settings, &arguments.from(2), &shared.events, r),
        _ => subcommands::help(Local::Config, r),
    }
}

/// Answers CONFIG SET: changes keyspace events, accepts the current values of other settings.
fn config_set(
    settings: &[(&str, &str)],
    wanted: &Arguments<'_>,
    events: &Setting,
    r: &mut Reply<'_>,
) {
    if !wanted.len().is_multiple_of(2) {
        return r.error(SYNTAX);
    }
    let (mut seen, mut classes) = (Vec::new(), None);
    for at in (0..wanted.len()).step_by(2) {
        let (name, value) = (wanted.at(at), wanted.at(at + 1));
        let known = settings.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        let Some((known, is)) = known else {
            let name = name.iter().take(64).map(|&byte| printable(byte));
            let name: String = name.collect();
            return r.error(&format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ));
        };
        let failed = |why: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{known}') - {why}")
        };
        if seen.contains(known) {
            return r.error(&failed("duplicate parameter"));
        }
        seen.push(known);
        if *known == EVENTS_SETTING {
            match Setting::parse(value) {
                Ok(wanted) => classes = Some(wanted),
                Err(why) => return r.error(&failed(why)),
            }
        } else if !value.eq_ignore_ascii_case(is.as_bytes()) {
            let why = format!("it is '{is}' here and cannot be changed by clients");
            return r.error(&failed(&why));
        }
    }
    if let Some(classes) = classes {
        events.set(classes);
    }
    r.ok();
}

/// Answers FUNCTION as a server without any functions.
pub(super) fn answer_function(arguments: &Arguments<'_>, r: &mut Reply<'_>) {
    let sub = arguments.at(1).to_ascii_lowercase();
    match &*sub {
        b"flush" => match (arguments.len(), &*arguments.at(2).to_ascii_lowercase()) {
            (2, _) | (3, b"sync" | b"async") => r.ok(),
            (3, _) => r.error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
            _ => {
                let sub: String = arguments.at(1).iter().map(|&byte| printable(byte)).collect();
                r.error(&format!(
                    "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try FUNCTION HELP."
                ));
            }
        },
        b"list" => {
            let mut words = arguments.from(2).iter();
            while let Some(word) = words.next() {
                match &*word.to_ascii_lowercase() {
                    b"withcode" => {}
                    b"libraryname" => {
                        if words.next().is_none() {
                            return r.error("ERR library name argument was not given");
                        }
                    }
                    _ => {
                        let word = word.iter().take(64).map(|&byte| printable(byte));
                        let word: String = word.collect();
                        return r.error(&format!("ERR Unknown argument {word}"));
                    }
                }
            }
            r.array(0);
        }
        _ => subcommands::help(Local::Function, r),
    }
}

pub(super) fn answer_script(arguments: &Arguments<'_>, scripts: &mut Scripts, r: &mut Reply<'_>) {
    let sub = arguments.at(1).to_ascii_lowercase();
    match (&*sub, arguments.len()) {
        (b"load", 3) => match scripts.load(arguments.at(2)) {
            Ok(()) => r.bulk(scripts::hash_of(arguments.at(2)).as_bytes()),
            Err(refusal) => r.error(&refusal.text("script|load")),
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

/// Answers WAIT. An acknowledged write is at a quorum, so the other members of a majority have it.
pub(super) fn answer_wait(arguments: &Arguments<'_>, requests: &dyn Requests, r: &mut Reply<'_>) {
    match (parse_integer(arguments.at(1)), parse_integer(arguments.at(2))) {
        (Some(_), Some(timeout)) if timeout >= 0 => {
            let voters = requests.status().peers.iter().filter(|peer| peer.weight > 0).count();
            r.count(voters / 2);
        }
        (Some(_), Some(_)) => r.error("ERR timeout is negative"),
        _ => r.error(NOT_AN_INTEGER),
    }
}
