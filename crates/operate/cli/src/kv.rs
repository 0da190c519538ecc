//! `quorate kv`: runs key-value commands, for users and scripts without a Redis client.

mod shell;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::Args;
use quorate_admin::client::{ListenerKind, NEEDS_TLS, probe_listener, tls_remedy};
use quorate_client::{Client, Error, Options, Reply};
use quorate_kv::{command::Spec, commands::FAMILIES, resp::request};
use serde_json::{Value as Json, json};

use crate::{
    addresses::address_argument,
    config::DEFAULT_CLIENT,
    output::{Exit, Output, Problem, print_unless_closed, progress},
    proof,
    reporting::report_waiting,
    signals::Interrupt,
};

/// Timeout for determining what listens at an address.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const ADDRESS_HINT: &str =
    "'quorate status' shows which nodes serve; give their addresses for clients with --client";
const REPEAT_HINT: &str = "read before you repeat it; 'quorate status' shows which nodes serve";
const NO_QUORUM_HINT: &str =
    "'quorate status' shows which nodes run; commands work again once a majority does";
const DISK_FULL_HINT: &str =
    "'quorate status' shows the free space; 'quorate kv DEL' and FLUSHALL still work";
const ROLE_HINT: &str = "an admin can grant another role with 'quorate user set NAME --role ROLE'";
const DATABASE_HINT: &str = "use 'quorate kv --database N'";
const LOGIN_HINT: &str = "check --login and the password, or use --tls with a user's certificate";

/// Arguments of `quorate kv`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate kv SET hello world
quorate kv GET hello
quorate kv --client 10.0.0.1:7450,10.0.0.2:7450 INCR visits
quorate kv --json LRANGE list 0 -1                        flags of quorate come before the command
quorate kv SUBSCRIBE news                                 prints messages until Ctrl-C
quorate kv < commands.txt                                 one command per line, quoted as in Redis
quorate kv                                                asks for commands, and keeps a history

A write is executed once, also if a node fails on the way and another one is asked.")]
pub(crate) struct KvArgs {
    /// The command and its arguments, as in the Redis protocol; without one, commands are read from
    /// standard input
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
    /// Client addresses of one or more nodes; the next one is tried when one does not answer
    #[arg(long, env = "QUORATE_CLIENT", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_CLIENT, value_parser = address_argument)]
    client: Vec<String>,
    /// Database of the commands; others than 0 need feature level 10
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    database: u8,
}

pub(crate) fn run(args: &KvArgs, output: Output) -> Result<Exit, Problem> {
    let words: Vec<&[u8]> = args.words.iter().map(|word| word.as_encoded_bytes()).collect();
    if words.first().is_some_and(|first| first.starts_with(b"-")) {
        let what = format_args!("unexpected argument '{}'", args.words[0].display());
        return Err(Problem::usage_error(what).with_hint("'quorate kv --help' lists the flags"));
    }
    let options = Options {
        database: args.database,
        tls: proof::certificate(),
        login: proof::login(),
        ..Options::default()
    };
    let deadline = options.command_timeout;
    let mut client = Client::new(&args.client, options);
    let is_typed = words.is_empty() && io::stdin().is_terminal();
    let interrupt = is_typed.then(Interrupt::listen).transpose()?;
    let is_shown_typed = is_typed && io::stdout().is_terminal();
    let mut execute = |words: &[&[u8]]| {
        let is = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
        let mut waits = report_waiting(deadline);
        let reply = match may_change_data(words[0]) {
            _ if is(b"SUBSCRIBE") || is(b"PSUBSCRIBE") => {
                let show = |message: &Reply| {
                    drop(waits.take());
                    show_message(message, output)
                };
                let subscribe = |goes_on: &dyn Fn() -> bool| client.subscribe(words, goes_on, show);
                let subscribed = match &interrupt {
                    Some(interrupt) => interrupt.defer_during(subscribe),
                    None => subscribe(&|| true),
                };
                subscribed.map(|()| None)
            }
            true => client.run(words).map(Some),
            false => client.read(words).map(Some),
        };
        drop(waits);
        // With TLS, every port of a node answers a handshake.
        let probed = || match proof::certificate() {
            Some(_) => ListenerKind::Other,
            None => probe_listener(&args.client[0], PROBE_TIMEOUT),
        };
        if let Some(reply) = reply.map_err(|error| problem_with_cause(&error, probed))? {
            output.print_result(&json!({ "reply": reply_json(&reply) }), || match is_shown_typed {
                true => format_typed(&reply, 0),
                false => format_lines(&reply),
            });
        }
        Ok(())
    };
    match words.is_empty() {
        true => shell::run(&args.client[0], is_typed, output, execute),
        false => execute(&words).map(|()| Exit::Done),
    }
}

/// Prints a subscription's message with its channel. Returns whether the output is still being
/// read.
fn show_message(message: &Reply, output: Output) -> bool {
    let Reply::Array(parts) = message else {
        return true;
    };
    match parts.as_slice() {
        _ if output.json => {
            print_unless_closed(&json!({ "reply": reply_json(message) }).to_string())
        }
        [kind, .., channel, text] if kind.to_string().ends_with("message") => {
            print_unless_closed(&format!("{channel} {text}"))
        }
        _ => {
            progress(&format!("{message} (Ctrl-C ends it)"));
            true
        }
    }
}

/// Returns whether a command may change data, so that it must not be executed twice.
fn may_change_data(name: &[u8]) -> bool {
    let is_it = |spec: &&Spec| name.eq_ignore_ascii_case(spec.name.as_bytes());
    let mut all = FAMILIES.iter().flat_map(|family| family.commands);
    let found = all.find(is_it);
    found.is_some_and(|spec| spec.can_be_numbered() && !spec.flags.contains(&"readonly"))
}

/// Formats a reply with one value per line.
fn format_lines(reply: &Reply) -> String {
    match reply {
        Reply::Array(replies) if replies.is_empty() => "(empty)".to_owned(),
        Reply::Array(replies) => replies.iter().map(format_lines).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

/// Formats a reply as `redis-cli` does at a terminal. Lines after the first one are indented.
fn format_typed(reply: &Reply, indent: usize) -> String {
    match reply {
        Reply::Error(text) => format!("(error) {text}"),
        Reply::Integer(number) => format!("(integer) {number}"),
        Reply::Bulk(bytes) => {
            let mut text = String::new();
            request::quote(bytes, &mut text);
            text
        }
        Reply::Array(replies) if replies.is_empty() => "(empty array)".to_owned(),
        Reply::Array(replies) => {
            let width = replies.len().to_string().len();
            let within = indent + width + 2;
            let elements = replies.iter().zip(1..);
            let elements =
                elements.map(|(reply, n)| format!("{n:>width$}) {}", format_typed(reply, within)));
            elements.collect::<Vec<_>>().join(&format!("\n{:indent$}", ""))
        }
        Reply::Simple(_) | Reply::Nil => reply.to_string(),
    }
}

fn reply_json(reply: &Reply) -> Json {
    match reply {
        Reply::Integer(number) => (*number).into(),
        Reply::Nil => Json::Null,
        Reply::Array(replies) => replies.iter().map(reply_json).collect(),
        other => other.to_string().into(),
    }
}

/// Converts an error of a command, without asking what listens at the address.
pub(crate) fn client_problem(error: &Error) -> Problem {
    problem_with_cause(error, || ListenerKind::Other)
}

/// Converts an error, adding the cause and the remedy if they are known.
fn problem_with_cause(error: &Error, probed: impl FnOnce() -> ListenerKind) -> Problem {
    let (exit, code, text, usual) = match error {
        Error::Refused(text) => (Exit::Failed, "refused", &**text, ""),
        Error::NotExecuted(text) => (Exit::Unreachable, "not_executed", &**text, ADDRESS_HINT),
        Error::UnknownOutcome(text) => (Exit::Unreachable, "unknown_outcome", &**text, REPEAT_HINT),
        _ => (Exit::Unreachable, "unknown_outcome", "", REPEAT_HINT),
    };
    let (cause, hint) = probable_cause(text, probed);
    let hint = if hint.is_empty() || usual == REPEAT_HINT { usual } else { hint };
    Problem::new(exit, code, format_args!("{error}{cause}")).with_hint(hint)
}

/// Returns the probable cause of a failure, to be appended to its text, and the remedy. Both are
/// empty if unknown.
fn probable_cause(
    text: &str,
    probed: impl FnOnce() -> ListenerKind,
) -> (&'static str, &'static str) {
    let is = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match tls_remedy(text) {
        Some(hint) => ("", hint),
        None if is(&["the database is an option"]) => ("", DATABASE_HINT),
        None if is(&["NOPERM"]) => ("", ROLE_HINT),
        None if is(&["NOAUTH", "WRONGPASS"]) => ("", LOGIN_HINT),
        None if is(&["NOQUORUM"]) => ("", NO_QUORUM_HINT),
        None if is(&["DISKFULL"]) => ("", DISK_FULL_HINT),
        // A node without a quorum also replies, but only after a longer time.
        None if text == "no reply in time" => {
            (": the cluster seems to have lost its quorum", NO_QUORUM_HINT)
        }
        None if is(&["closed the connection", "Redis protocol"]) => match probed() {
            ListenerKind::Tls => {
                (": the node expects TLS", tls_remedy(NEEDS_TLS).unwrap_or_default())
            }
            ListenerKind::Http => (": the address speaks HTTP, as --admin does", ADDRESS_HINT),
            ListenerKind::Other => {
                (": the address may be --admin, --peer or --stream", ADDRESS_HINT)
            }
        },
        None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;
    use crate::proof::Global;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: KvArgs,
        #[command(flatten)]
        global: Global,
    }

    #[test]
    fn words_after_the_command_name_are_its_arguments() {
        for words in ["LRANGE l 0 -1", "ECHO --json", "SET --client -- -x", "GET -h --help"] {
            let line: Vec<&str> =
                "kv --json --client h:1".split(' ').chain(words.split(' ')).collect();
            let line = Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(line.args.words.join(OsStr::new(" ")), words);
            assert!(line.global.output().json);
            assert_eq!(line.args.client, ["h:1"]);
        }
        let flag = Line::try_parse_from(["kv", "--clinet", "h:1"]).unwrap().args;
        let problem = run(&flag, Output { json: false }).unwrap_err();
        assert_eq!(problem.message, "unexpected argument '--clinet'");
        assert_eq!(problem.exit, Exit::Usage);
    }

    #[test]
    fn a_database_is_one_of_sixteen() {
        let database =
            |line: &str| Line::try_parse_from(line.split(' ')).map(|it| it.args.database);
        assert_eq!(database("kv GET k").unwrap(), 0);
        assert_eq!(database("kv --database 15 FLUSHDB").unwrap(), 15);
        for number in ["16", "-1", "x"] {
            assert!(database(&format!("kv --database {number} FLUSHDB")).is_err(), "{number}");
        }
    }

    #[test]
    fn commands_that_may_write_are_not_retried() {
        for name in ["SET", "incr", "LPUSH", "EVAL", "BLPOP", "PUBLISH", "XADD"] {
            assert!(may_change_data(name.as_bytes()), "{name}");
        }
        for name in ["GET", "mget", "PING", "INFO", "MULTI", "XRANGE", "LOLWUT", ""] {
            assert!(!may_change_data(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn failures_have_specific_messages_and_hints() {
        let tls = tls_remedy(NEEDS_TLS).unwrap();
        let expired = "TLS: invalid peer certificate: certificate expired: …";
        for (text, listener, cause, hint) in [
            ("NOPERM User ann has no permissions", ListenerKind::Other, "", ROLE_HINT),
            ("WRONGPASS invalid username-password pair", ListenerKind::Other, "", LOGIN_HINT),
            (
                "no reply in time",
                ListenerKind::Other,
                ": the cluster seems to have lost",
                NO_QUORUM_HINT,
            ),
            ("NOQUORUM no leader", ListenerKind::Other, "", NO_QUORUM_HINT),
            ("DISKFULL not executed", ListenerKind::Other, "", DISK_FULL_HINT),
            ("Connection refused (os error 111)", ListenerKind::Other, "", ADDRESS_HINT),
            (expired, ListenerKind::Tls, "", tls_remedy(expired).unwrap()),
            ("the node closed the connection", ListenerKind::Tls, ": the node expects TLS", tls),
            (
                "not a reply of the Redis protocol",
                ListenerKind::Http,
                ": the address speaks",
                ADDRESS_HINT,
            ),
            (
                "the node closed the connection",
                ListenerKind::Other,
                ": the address may be",
                ADDRESS_HINT,
            ),
        ] {
            let problem = problem_with_cause(&Error::NotExecuted(text.to_owned()), || listener);
            let begin = format!("not executed: {text}{cause}");
            assert!(problem.message.starts_with(&begin), "{problem}");
            assert_eq!(problem.hint, hint, "{text}");
        }
        let said = |error| problem_with_cause(&error, || ListenerKind::Other).hint;
        assert_eq!(said(Error::UnknownOutcome("no reply in time".to_owned())), REPEAT_HINT);
        assert_eq!(said(Error::Refused("WRONGTYPE not a counter".to_owned())), "");
    }

    #[test]
    fn a_reply_is_a_line_or_several() {
        let both = Reply::Array(vec![Reply::Bulk(b"a".to_vec()), Reply::Nil]);
        let deep = Reply::Array(vec![both.clone(), Reply::Integer(-1)]);
        assert_eq!(format_lines(&deep), "a\n(nil)\n-1");
        assert_eq!(reply_json(&deep), json!([["a", null], -1]));
        assert_eq!(format_lines(&Reply::Array(Vec::new())), "(empty)");
        assert_eq!(format_lines(&Reply::Simple("OK".to_owned())), "OK");
    }

    #[test]
    fn a_reply_at_a_terminal_shows_its_type() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        assert_eq!(format_typed(&bulk(""), 0), r#""""#);
        assert_eq!(format_typed(&bulk("a \"b\"\n\u{1}"), 0), r#""a \"b\"\n\x01""#);
        assert_eq!(format_typed(&Reply::Simple("OK".to_owned()), 0), "OK");
        assert_eq!(format_typed(&Reply::Array(Vec::new()), 0), "(empty array)");
        let inner = Reply::Array(vec![bulk("x"), Reply::Nil]);
        let mut all = vec![Reply::Integer(1); 8];
        all.extend([inner, Reply::Error("ERR no".to_owned())]);
        let shown = format_typed(&Reply::Array(all), 0);
        let end = "\n 8) (integer) 1\n 9) 1) \"x\"\n    2) (nil)\n10) (error) ERR no";
        assert!(shown.starts_with(" 1) (integer) 1\n") && shown.ends_with(end), "{shown}");
    }
}
