//! Reference model of the hash commands.

use std::collections::BTreeMap;

use super::{Answer, Model, Value, Wrong, array, bulk, drawn, int, optional};

impl Model {
    pub(super) fn fields(&self, key: &str) -> Result<BTreeMap<String, String>, Wrong> {
        match self.keys.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Hash(fields)) => Ok(fields.clone()),
            Some(_) => Err(Wrong),
        }
    }

    pub(super) fn hash(&mut self, name: &str, words: &[&str], now_ms: u64, actual: &str) -> Answer {
        let key = words[0];
        if let Some(at) = words.iter().position(|word| *word == "FIELDS") {
            return self.hash_deadlines(name, words, (&words[1..at], &words[at + 2..]), now_ms);
        }
        let mut fields = self.fields(key)?;
        let get = |field: &str| fields.get(field).map(String::as_str);
        Ok(match (name, &words[1..]) {
            ("HGET", [field]) => optional(get(field)),
            ("HEXISTS", [field]) => int(i64::from(get(field).is_some())),
            ("HSTRLEN", [field]) => int(get(field).map_or(0, str::len)),
            ("HLEN", []) => int(fields.len()),
            ("HMGET", wanted) => {
                let values: String = wanted.iter().map(|field| optional(get(field))).collect();
                format!("*{}|{values}", wanted.len())
            }
            ("HKEYS", []) => array(&Vec::from_iter(fields.keys())),
            ("HVALS", []) => array(&Vec::from_iter(fields.values())),
            ("HGETALL", []) => {
                let all = fields.iter().flat_map(|(field, value)| [field, value]);
                array(&Vec::from_iter(all))
            }
            ("HRANDFIELD", []) => match drawn(actual).first() {
                Some(field) if fields.contains_key(field) => bulk(field),
                _ if fields.is_empty() => optional(None),
                other => panic!("{other:?} is no field"),
            },
            ("HRANDFIELD", [count]) => {
                let (count, found) = (count.parse::<i64>().unwrap(), drawn(actual));
                assert!(found.iter().all(|field| fields.contains_key(field)));
                let most = usize::try_from(count.abs()).unwrap();
                let expected = match count {
                    ..0 if fields.is_empty() => 0,
                    ..0 => most,
                    _ => most.min(fields.len()),
                };
                assert_eq!(found.len(), expected);
                array(&found)
            }
            ("HSET" | "HMSET", pairs) => {
                let before = fields.len();
                for pair in pairs.chunks(2) {
                    fields.insert(pair[0].to_owned(), pair[1].to_owned());
                    self.keep(key, pair[0]);
                }
                let added = fields.len() - before;
                self.change(key, Value::Hash(fields));
                match name {
                    "HSET" => int(added),
                    _ => "+OK|".to_owned(),
                }
            }
            ("HSETNX", [field, value]) => {
                let absent = get(field).is_none();
                if absent {
                    fields.insert((*field).to_owned(), (*value).to_owned());
                    self.change(key, Value::Hash(fields));
                }
                int(i64::from(absent))
            }
            ("HDEL", gone) => {
                let removed = gone.iter().filter(|field| fields.remove(**field).is_some());
                let removed = removed.count();
                self.change(key, Value::Hash(fields));
                int(removed)
            }
            ("HINCRBY", [field, delta]) => {
                let Ok(old) = get(field).unwrap_or("0").parse::<i64>() else {
                    return Ok("-ERR hash value is not an integer|".to_owned());
                };
                let new = old + delta.parse::<i64>().unwrap();
                fields.insert((*field).to_owned(), new.to_string());
                self.change(key, Value::Hash(fields));
                int(new)
            }
            (name, _) => panic!("{name} is not in the reference"),
        })
    }

    /// Removes the deadline of a field and returns it.
    fn keep(&mut self, key: &str, field: &str) -> Option<u64> {
        self.ends.get_mut(key)?.remove(field)
    }

    /// Executes a command for deadlines. `words` are the arguments before FIELDS.
    fn hash_deadlines(
        &mut self,
        name: &str,
        words: &[&str],
        (before, wanted): (&[&str], &[&str]),
        now_ms: u64,
    ) -> Answer {
        let key = words[0];
        let mut fields = self.fields(key)?;
        let mut answers = format!("*{}|", wanted.len());
        for field in wanted {
            let old = self.ends.get(key).and_then(|ends| ends.get(*field).copied());
            let answer = match (name, old) {
                _ if !fields.contains_key(*field) => -2,
                ("HPERSIST", None) | ("HTTL" | "HPTTL" | "HPEXPIRETIME", None) => -1,
                ("HTTL", Some(at)) => (at - now_ms).div_ceil(1000) as i64,
                ("HPTTL", Some(at)) => (at - now_ms) as i64,
                ("HPEXPIRETIME", Some(at)) => at as i64,
                ("HPERSIST", Some(_)) => {
                    self.keep(key, field);
                    1
                }
                ("HPEXPIRE", old) => {
                    let at = now_ms + before[0].parse::<u64>().unwrap();
                    let accepted = match before.get(1).copied().unwrap_or("") {
                        "NX" => old.is_none(),
                        "XX" => old.is_some(),
                        "GT" => old.is_some_and(|old| old < at),
                        "LT" => old.is_none_or(|old| old > at),
                        _ => true,
                    };
                    match accepted {
                        false => 0,
                        true if at == now_ms => {
                            self.keep(key, field);
                            fields.remove(*field);
                            2
                        }
                        true => {
                            let ends = self.ends.entry(key.to_owned()).or_default();
                            ends.insert((*field).to_owned(), at);
                            1
                        }
                    }
                }
                (name, _) => panic!("{name} is not in the reference"),
            };
            answers += &int(answer);
        }
        self.change(key, Value::Hash(fields));
        Ok(answers)
    }
}
