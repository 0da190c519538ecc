//! COMMAND: the command table, and the key positions in requests.

use std::ops::Range;

use super::{shared::Shared, subcommands};
use crate::{
    command::{Doc, Local, SYNTAX, Spec},
    commands::specs,
    glob,
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
};

pub(super) fn command(arguments: &Arguments<'_>, shared: &Shared, r: &mut Reply<'_>) {
    let sub = arguments.at(1).to_ascii_lowercase();
    match (&*sub, arguments.len()) {
        (_, 1) | (b"info", 2) => {
            r.array(specs().count());
            specs().for_each(|spec| write_command_info(spec, r));
        }
        (b"count", _) => r.count(specs().count()),
        (b"list", _) => list(&arguments.from(2), r),
        (b"info", _) => {
            r.array(arguments.len() - 2);
            for name in arguments.from(2).iter() {
                match shared.lookup(name) {
                    Some(spec) => write_command_info(spec, r),
                    None => r.null(),
                }
            }
        }
        (b"docs", 2) => {
            r.map(specs().count());
            specs().for_each(|spec| write_command_doc(spec, r));
        }
        (b"docs", _) => {
            // As in Redis, unknown names are omitted. Each command is described once, to bound the
            // size of the reply.
            let mut known: Vec<&Spec> = Vec::new();
            for spec in arguments.from(2).iter().filter_map(|name| shared.lookup(name)) {
                if !known.iter().any(|told| told.name == spec.name) {
                    known.push(spec);
                }
            }
            r.map(known.len());
            known.into_iter().for_each(|spec| write_command_doc(spec, r));
        }
        (b"getkeys", _) => get_keys(&arguments.from(2), shared, r),
        _ => subcommands::help(Local::Command, r),
    }
}

fn write_command_info(spec: &Spec, r: &mut Reply<'_>) {
    let (first, last, step) = spec.keys;
    r.array(10);
    r.bulk(spec.name.as_bytes());
    r.integer(spec.arity.into());
    r.array(spec.flags.len());
    spec.flags.iter().for_each(|flag| r.simple(flag));
    [first, last, step].into_iter().for_each(|place| r.integer(place.into()));
    // No categories, tips, key specifications or subcommands.
    (0..4).for_each(|_| r.array(0));
}

fn write_command_doc(spec: &Spec, r: &mut Reply<'_>) {
    let Doc { group, since, complexity, summary, .. } = spec.doc;
    r.bulk(spec.name.as_bytes());
    r.map(4);
    for (name, value) in
        [("summary", summary), ("since", since), ("group", group), ("complexity", complexity)]
    {
        r.bulk(name.as_bytes());
        r.bulk(value.as_bytes());
    }
}

/// Answers `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(filter: &Arguments<'_>, r: &mut Reply<'_>) {
    let by = filter.at(1).to_ascii_lowercase();
    let value = filter.at(2).to_ascii_lowercase();
    let is = |spec: &Spec| match &*by {
        b"aclcat" => is_in_category(spec, &value),
        b"pattern" => glob::matches(&value, spec.name.as_bytes()),
        _ => false,
    };
    let known: [&[u8]; 3] = [b"module", b"aclcat", b"pattern"];
    let found: Vec<&Spec> = match filter.len() {
        0 => specs().collect(),
        3 if filter.at(0).eq_ignore_ascii_case(b"filterby") && known.contains(&&*by) => {
            specs().filter(|spec| is(spec)).collect()
        }
        _ => return r.error(SYNTAX),
    };
    r.array(found.len());
    found.into_iter().for_each(|spec| r.bulk(spec.name.as_bytes()));
}

/// Returns whether a command belongs to one of Redis' categories, according to its group and flags.
fn is_in_category(spec: &Spec, category: &[u8]) -> bool {
    let has = |flag: &str| spec.flags.contains(&flag);
    match category {
        b"keyspace" => spec.doc.group == "generic",
        b"sortedset" => spec.doc.group == "sorted-set",
        b"transaction" => spec.doc.group == "transactions",
        b"read" => has("readonly"),
        b"fast" => has("fast"),
        b"slow" => !has("fast"),
        b"write" => has("write"),
        b"blocking" => has("blocking"),
        b"admin" => has("admin"),
        _ => spec.doc.group.as_bytes() == category,
    }
}

fn get_keys(command: &Arguments<'_>, shared: &Shared, r: &mut Reply<'_>) {
    let Some(spec) = shared.lookup(command.at(0)) else {
        return r.error("ERR Invalid command specified");
    };
    if !spec.accepts_count(command.len()) {
        return r.error("ERR Invalid number of arguments specified for command");
    }
    if spec.keys.0 == 0 && key_count_index(spec.name).is_none() && !reads_streams(spec.name) {
        return r.error("ERR The command has no key arguments");
    }
    let Some(places) = key_places(spec, command) else {
        return r.error("ERR Invalid arguments specified for command");
    };
    r.array(places.len());
    places.into_iter().for_each(|at| r.bulk(command.at(at)));
}

/// Returns the argument indexes of a command's keys, or `None` if the number of keys is invalid.
pub(super) fn key_places(spec: &Spec, command: &Arguments<'_>) -> Option<Vec<usize>> {
    let count = command.len();
    let mut places: Vec<usize> = spec.key_indexes(count).filter(|place| *place < count).collect();
    if let Some(at) = key_count_index(spec.name) {
        let keys = parse_integer(command.at(at)).and_then(|keys| usize::try_from(keys).ok());
        let keys = keys.filter(|keys| *keys < count - at)?;
        places.extend(at + 1..=at + keys);
    } else if spec.name == "sort" {
        places.extend(target(command));
    } else if matches!(spec.name, "georadius" | "georadiusbymember") {
        places.extend(geo_target(command));
    } else if reads_streams(spec.name) {
        places.extend(stream_key_range(command)?);
    }
    Some(places)
}

/// Returns the index of the argument that contains the number of keys, if the command has one.
fn key_count_index(name: &str) -> Option<usize> {
    match name {
        "lmpop" | "zmpop" | "zunion" | "zinter" | "zdiff" | "zintercard" | "sintercard" => Some(1),
        "blmpop" | "bzmpop" | "eval" | "evalsha" | "eval_ro" | "evalsha_ro" => Some(2),
        "zunionstore" | "zinterstore" | "zdiffstore" => Some(2),
        _ => None,
    }
}

fn reads_streams(name: &str) -> bool {
    matches!(name, "xread" | "xreadgroup")
}

/// Returns the indexes of the keys of XREAD or XREADGROUP: the first half of what follows STREAMS.
fn stream_key_range(command: &Arguments<'_>) -> Option<Range<usize>> {
    let mut at = 1;
    while at < command.len() {
        match &*command.at(at).to_ascii_lowercase() {
            b"block" | b"count" => at += 2,
            b"group" => at += 3,
            b"noack" => at += 1,
            b"streams" => {
                let keys = (command.len() - at - 1) / 2;
                let is_balanced = (command.len() - at - 1).is_multiple_of(2);
                return (keys > 0 && is_balanced).then(|| at + 1..at + 1 + keys);
            }
            _ => return None,
        }
    }
    None
}

/// Returns the argument index of SORT's target key. The last STORE counts, except as an argument of
/// BY, GET or LIMIT.
fn target(sort: &Arguments<'_>) -> Option<usize> {
    let (mut at, mut target) = (2, None);
    while at + 1 < sort.len() {
        match &*sort.at(at).to_ascii_lowercase() {
            b"limit" => at += 2,
            b"by" | b"get" => at += 1,
            b"store" => {
                target = Some(at + 1);
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    target
}

/// Returns the argument index of the target key of GEORADIUS or GEORADIUSBYMEMBER, the last one
/// after STORE or STOREDIST.
fn geo_target(command: &Arguments<'_>) -> Option<usize> {
    let (mut at, mut target) = (5, None);
    while at + 1 < command.len() {
        if matches!(&*command.at(at).to_ascii_lowercase(), b"store" | b"storedist") {
            at += 1;
            target = Some(at);
        }
        at += 1;
    }
    target
}
