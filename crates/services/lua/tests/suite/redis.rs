//! Expressions with the replies of Redis 7.0.15 on x86.
//!
//! Two kinds are omitted. The sign of a NaN depends on the machine in Redis and is always positive
//! here. Fractions that a script passes to commands are formatted as in Redis 7.2.

use quorate_lua::{Data, Host, Interpreter, Outcome, Run};

use crate::VISITS;

/// Host with the commands that the expressions call.
struct Few;

impl Host for Few {
    fn call(&mut self, words: &[&[u8]]) -> (Data, u64) {
        let reply = match words[0] {
            b"echo" => Data::Bulk(words[1].to_vec()),
            b"get" => {
                Data::Error(b"ERR Wrong number of args calling Redis command from script".to_vec())
            }
            _ => Data::Error(b"ERR Unknown Redis command called from script".to_vec()),
        };
        (reply, 1)
    }
}

fn show(data: &Data) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match data {
        Data::Null => "nil".to_owned(),
        Data::Integer(number) => format!(":{number}"),
        Data::Bulk(bytes) => format!("${}", text(bytes)),
        Data::Status(bytes) => format!("+{}", text(bytes)),
        Data::Error(bytes) => format!("-{}", text(bytes)),
        Data::Array(items) => {
            format!("*{}", items.iter().map(show).collect::<Vec<_>>().join(" "))
        }
        _ => format!("{data:?}"),
    }
}

#[test]
fn answers_are_those_of_redis() {
    let mut interpreter = Interpreter::new();
    let mut wrong = String::new();
    for line in include_str!("redis.txt").lines() {
        let (expression, expected) = line.split_once('\t').unwrap();
        let text = format!("return {expression}");
        let run = Run { text: text.as_bytes(), keys: &[], arguments: &[], seed: 0, visits: VISITS };
        let found = match interpreter.run(&run, &mut Few).0 {
            Outcome::Returned(data) => show(&data),
            Outcome::Failed(why) => format!("-{}", why.as_bytes().escape_ascii()),
            Outcome::Stopped(limit) => format!("stopped at {limit}"),
        };
        let found = found.split(" script: ").next().unwrap_or_default();
        if found != expected {
            wrong.push_str(&format!("{expression}\n    {found}, not {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
