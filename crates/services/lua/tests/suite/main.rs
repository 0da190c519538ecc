//! Scripts without a service: their results, their limits, and their isolation.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod attacks;
mod blob;
mod costs;
mod equality;
mod hostile;
mod language;
mod libraries;
mod limits;
mod redis;

use quorate_lua::{Data, Host, Interpreter, Outcome, Run};

pub(crate) const VISITS: u64 = 1 << 20;

/// Host whose command returns its last argument as the kind of reply named by the first one.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) called: u64,
}

impl Host for Echo {
    fn call(&mut self, words: &[&[u8]]) -> (Data, u64) {
        self.called += 1;
        let last = words.last().unwrap().to_vec();
        let item = || vec![Data::Integer(1), Data::Bulk(last.clone())];
        let pair = || vec![(Data::Bulk(b"name".to_vec()), Data::Bulk(last.clone()))];
        let reply = match words[0] {
            b"null" => Data::Null,
            b"true" => Data::Boolean(true),
            b"integer" => Data::Integer(7),
            b"double" => Data::Double(last),
            b"status" => Data::Status(last),
            b"error" => Data::Error(last),
            b"verbatim" => Data::Verbatim(last),
            b"array" => Data::Array(item()),
            b"set" => Data::Set(item()),
            b"map" => Data::Map(pair()),
            b"pairs" => Data::Pairs(pair()),
            b"nested" => Data::NestedMap(pair()),
            _ => Data::Bulk(last),
        };
        (reply, 3)
    }
}

pub(crate) fn outcome(text: &str) -> (Outcome, u64) {
    let one = Run {
        text: text.as_bytes(),
        keys: &[b"k1", b"k2"],
        arguments: &[b"a1", b"a2"],
        seed: 9,
        visits: VISITS,
    };
    Interpreter::new().run(&one, &mut Echo::default())
}

/// Returns the result of a script as text, as a client would print it.
pub(crate) fn eval(text: &str) -> String {
    match outcome(text).0 {
        Outcome::Returned(data) => show(&data),
        Outcome::Failed(text) => format!("! {text}"),
        Outcome::Stopped(limit) => format!("stopped at {limit}"),
    }
}

fn show(data: &Data) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let list = |items: &[Data]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match data {
        Data::Null => "nil".to_owned(),
        Data::Boolean(value) => value.to_string(),
        Data::Integer(value) => format!(":{value}"),
        Data::Double(bytes) => format!(",{}", text(bytes)),
        Data::Bulk(bytes) => text(bytes),
        Data::Status(bytes) => format!("+{}", text(bytes)),
        Data::Error(bytes) => format!("-{}", text(bytes)),
        Data::Verbatim(bytes) => format!("={}", text(bytes)),
        Data::BigNumber(bytes) => format!("({}", text(bytes)),
        Data::Array(items) => format!("[{}]", list(items)),
        Data::Set(items) => format!("~[{}]", list(items)),
        Data::Map(pairs) | Data::Pairs(pairs) | Data::NestedMap(pairs) => {
            let each = |(name, value): &(Data, Data)| format!("{}={}", show(name), show(value));
            format!("{{{}}}", pairs.iter().map(each).collect::<Vec<_>>().join(" "))
        }
    }
}

/// Executes scripts and compares the results with the expected ones.
pub(crate) fn check(all: &[(&str, &str)]) {
    let mut wrong = String::new();
    for (text, expected) in all {
        let reply = eval(text);
        // An error begins with its place, followed by the message and the script's hash.
        let reply = match reply.strip_prefix("! ERR user_script:1: ") {
            Some(rest) => format!("! ERR {rest}"),
            None => reply,
        };
        let part = if expected.starts_with('!') { reply.get(..expected.len()) } else { None };
        let found = part.unwrap_or(&reply);
        if found != *expected {
            wrong.push_str(&format!("{text}\n    {reply}, not {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
