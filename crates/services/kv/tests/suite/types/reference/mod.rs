//! Reference model of the commands on each type, written for clarity: one file per type, without
//! storage or encoding. Replies are RESP2 with `|` for line ends; unordered elements are sorted by
//! name.

mod hash;
mod list;
mod set;
mod sort;
mod zset;

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(crate) enum Value {
    String(String),
    Hash(BTreeMap<String, String>),
    List(Vec<String>),
    Set(BTreeSet<String>),
    Zset(BTreeMap<String, f64>),
}

/// Values and deadlines of all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) keys: BTreeMap<String, Value>,
    pub(crate) deadlines: BTreeMap<String, u64>,
    pub(crate) ends: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Error for a key of another type.
pub(crate) struct Wrong;

type Answer = Result<String, Wrong>;

pub(crate) const WRONG: &str =
    "-WRONGTYPE Operation against a key holding the wrong kind of value|";

fn int(number: impl TryInto<i64>) -> String {
    format!(":{}|", number.try_into().ok().unwrap())
}

fn bulk(text: &str) -> String {
    format!("${}|{text}|", text.len())
}

fn optional(text: Option<&str>) -> String {
    text.map_or("$-1|".to_owned(), bulk)
}

fn array<T: AsRef<str>>(items: &[T]) -> String {
    let items = items.iter().map(|item| bulk(item.as_ref()));
    format!("*{}|{}", items.len(), items.collect::<String>())
}

/// Converts inclusive indexes to a half-open range.
fn places(start: i64, stop: i64, count: usize) -> std::ops::Range<usize> {
    let count = i64::try_from(count).unwrap();
    let place = |at: i64| if at < 0 { at + count } else { at };
    let (start, stop) = (place(start).max(0), place(stop).min(count - 1));
    if start > stop {
        return 0..0;
    }
    usize::try_from(start).unwrap()..usize::try_from(stop + 1).unwrap()
}

/// Returns the randomly drawn elements in the actual reply.
fn drawn(actual: &str) -> Vec<String> {
    let mut lines = actual.split('|');
    let mut words = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') && line != "$-1" {
            words.push(lines.next().unwrap().to_owned());
        }
    }
    words
}

impl Model {
    /// Returns the expected reply. Random choices are taken from the actual reply.
    pub(crate) fn reply(&mut self, words: &[&str], now_ms: u64, actual: &str) -> String {
        let (name, rest) = words.split_first().unwrap();
        let answer = match *name {
            name if name.starts_with('H') => self.hash(name, rest, now_ms, actual),
            "LPUSH" | "RPUSH" | "LPUSHX" | "RPUSHX" | "LPOP" | "RPOP" | "LLEN" | "LINDEX"
            | "LSET" | "LRANGE" | "LTRIM" | "LREM" | "LINSERT" | "LPOS" | "LMOVE" | "RPOPLPUSH"
            | "LMPOP" => self.list(name, rest),
            name if name.starts_with('Z') => self.zset(name, rest, actual),
            "SADD" | "SREM" | "SISMEMBER" | "SMISMEMBER" | "SCARD" | "SMEMBERS" | "SMOVE"
            | "SPOP" | "SRANDMEMBER" | "SINTER" | "SUNION" | "SDIFF" | "SINTERSTORE"
            | "SUNIONSTORE" | "SDIFFSTORE" | "SINTERCARD" => self.set(name, rest, actual),
            "SORT" | "SORT_RO" => self.sort(rest),
            name => Ok(self.any(name, rest, now_ms)),
        };
        answer.unwrap_or_else(|Wrong| WRONG.to_owned())
    }

    /// Removes expired keys and fields.
    pub(crate) fn pass(&mut self, now_ms: u64) {
        for (key, ends) in self.ends.clone() {
            let mut fields = self.fields(&key).ok().expect("a hash");
            fields.retain(|field, _| ends.get(field).is_none_or(|at| *at > now_ms));
            self.change(&key, Value::Hash(fields));
        }
        let over = self.deadlines.iter().filter(|(_, at)| **at <= now_ms);
        let over: Vec<String> = over.map(|(key, _)| key.clone()).collect();
        for key in over {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &str) -> Option<Value> {
        self.deadlines.remove(key);
        self.ends.remove(key);
        self.keys.remove(key)
    }

    /// Sets the value of a key. An empty value removes the key.
    fn put(&mut self, key: &str, value: Value) {
        self.remove(key);
        let is_empty = match &value {
            Value::String(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::List(elements) => elements.is_empty(),
            Value::Set(members) => members.is_empty(),
            Value::Zset(members) => members.is_empty(),
        };
        if !is_empty {
            self.keys.insert(key.to_owned(), value);
        }
    }

    /// Sets the value of a key, and keeps the deadlines of the key and its fields.
    fn change(&mut self, key: &str, value: Value) {
        let all = self.all_deadlines(key);
        self.put(key, value);
        self.give_deadlines(key, all);
    }

    fn all_deadlines(&self, key: &str) -> (Option<u64>, BTreeMap<String, u64>) {
        let ends = self.ends.get(key).cloned();
        (self.deadlines.get(key).copied(), ends.unwrap_or_default())
    }

    fn give_deadlines(&mut self, key: &str, (own, mut ends): (Option<u64>, BTreeMap<String, u64>)) {
        let Some(value) = self.keys.get(key) else {
            return;
        };
        self.deadlines.extend(own.map(|at| (key.to_owned(), at)));
        if let Value::Hash(fields) = value {
            ends.retain(|field, _| fields.contains_key(field));
            if !ends.is_empty() {
                self.ends.insert(key.to_owned(), ends);
            }
        }
    }

    fn any(&mut self, name: &str, words: &[&str], now_ms: u64) -> String {
        let key = words[0];
        match name {
            "SET" => {
                self.put(key, Value::String(words[1].to_owned()));
                "+OK|".to_owned()
            }
            "GET" => match self.keys.get(key) {
                None => optional(None),
                Some(Value::String(text)) => bulk(text),
                Some(_) => WRONG.to_owned(),
            },
            "DEL" => {
                let gone = words.iter().filter(|key| self.remove(key).is_some());
                int(gone.count())
            }
            "TYPE" => {
                let name = match self.keys.get(key) {
                    None => "none",
                    Some(Value::String(_)) => "string",
                    Some(Value::Hash(_)) => "hash",
                    Some(Value::List(_)) => "list",
                    Some(Value::Set(_)) => "set",
                    Some(Value::Zset(_)) => "zset",
                };
                format!("+{name}|")
            }
            "RENAME" => {
                let Some(value) = self.keys.get(key).cloned() else {
                    return "-ERR no such key|".to_owned();
                };
                if key != words[1] {
                    let all = self.all_deadlines(key);
                    self.remove(key);
                    self.put(words[1], value);
                    self.give_deadlines(words[1], all);
                }
                "+OK|".to_owned()
            }
            "COPY" => {
                let Some(value) = self.keys.get(key).cloned() else {
                    return int(0);
                };
                let all = self.all_deadlines(key);
                self.put(words[1], value);
                self.give_deadlines(words[1], all);
                int(1)
            }
            "PEXPIRE" => {
                let is_there = self.keys.contains_key(key);
                match words[1].parse::<u64>().unwrap() {
                    _ if !is_there => {}
                    0 => drop(self.remove(key)),
                    ms => drop(self.deadlines.insert(key.to_owned(), now_ms + ms)),
                }
                int(i64::from(is_there))
            }
            "PERSIST" => int(i64::from(self.deadlines.remove(key).is_some())),
            "FLUSHALL" => {
                *self = Self::default();
                "+OK|".to_owned()
            }
            "DBSIZE" => int(self.keys.len()),
            name => panic!("{name} is not in the reference"),
        }
    }
}
