//! Reference model of the set commands.

use std::collections::BTreeSet;

use super::{Answer, Model, Value, Wrong, array, bulk, drawn, int, optional};

impl Model {
    pub(super) fn members(&self, key: &str) -> Result<BTreeSet<String>, Wrong> {
        match self.keys.get(key) {
            None => Ok(BTreeSet::new()),
            Some(Value::Set(members)) => Ok(members.clone()),
            Some(_) => Err(Wrong),
        }
    }

    fn combined(&self, name: &str, keys: &[&str]) -> Result<BTreeSet<String>, Wrong> {
        let sets = keys.iter().map(|key| self.members(key));
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        let (first, others) = sets.split_first().unwrap();
        let has = |set: &BTreeSet<String>, member: &String| set.contains(member);
        let found = first.iter().filter(|member| match &name[..4] {
            "SINT" => others.iter().all(|other| has(other, member)),
            "SDIF" => !others.iter().any(|other| has(other, member)),
            _ => true,
        });
        let mut found: BTreeSet<String> = found.cloned().collect();
        if name.starts_with("SUNION") {
            found.extend(others.iter().flatten().cloned());
        }
        Ok(found)
    }

    pub(super) fn set(&mut self, name: &str, words: &[&str], actual: &str) -> Answer {
        match name {
            "SINTER" | "SUNION" | "SDIFF" => {
                return Ok(array(&Vec::from_iter(self.combined(name, words)?)));
            }
            "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => {
                let found = self.combined(name, &words[1..])?;
                let count = found.len();
                self.put(words[0], Value::Set(found));
                return Ok(int(count));
            }
            "SINTERCARD" => {
                let count = words[0].parse::<usize>().unwrap();
                let found = self.combined(name, &words[1..=count])?.len();
                let limit = words.get(count + 2).map_or(0, |limit| limit.parse().unwrap());
                return Ok(int(if limit > 0 { found.min(limit) } else { found }));
            }
            _ => {}
        }
        let key = words[0];
        let mut set = self.members(key)?;
        Ok(match (name, &words[1..]) {
            ("SADD", members) => {
                let added = members.iter().filter(|member| set.insert((**member).to_owned()));
                let added = added.count();
                self.change(key, Value::Set(set));
                int(added)
            }
            ("SREM", members) => {
                let removed = members.iter().filter(|member| set.remove(**member)).count();
                self.change(key, Value::Set(set));
                int(removed)
            }
            ("SISMEMBER", [member]) => int(i64::from(set.contains(*member))),
            ("SMISMEMBER", members) => {
                let found = members.iter().map(|member| int(i64::from(set.contains(*member))));
                format!("*{}|{}", members.len(), found.collect::<String>())
            }
            ("SCARD", []) => int(set.len()),
            ("SMEMBERS", []) => array(&Vec::from_iter(set)),
            ("SMOVE", [target, member]) => {
                if set.is_empty() {
                    return Ok(int(0));
                }
                let mut other = self.members(target)?;
                let moved = set.contains(*member);
                if moved && key != *target {
                    set.remove(*member);
                    other.insert((*member).to_owned());
                    self.change(key, Value::Set(set));
                    self.change(target, Value::Set(other));
                }
                int(i64::from(moved))
            }
            ("SPOP", []) if set.is_empty() => optional(None),
            ("SPOP", count) => {
                let found = drawn(actual);
                let most = count.first().map_or(1, |count| count.parse().unwrap());
                assert_eq!(found.len(), set.len().min(most), "{actual}");
                assert!(found.iter().all(|member| set.remove(member)), "{actual}");
                self.change(key, Value::Set(set));
                match count {
                    [] => bulk(&found[0]),
                    _ => array(&found),
                }
            }
            ("SRANDMEMBER", []) if set.is_empty() => optional(None),
            ("SRANDMEMBER", count) => {
                let found = drawn(actual);
                assert!(found.iter().all(|member| set.contains(member)), "{actual}");
                let count = count.first().map(|count| count.parse::<i64>().unwrap());
                let most = usize::try_from(count.unwrap_or(1).abs()).unwrap();
                let different = BTreeSet::from_iter(&found).len();
                match count {
                    None => return Ok(bulk(&found[0])),
                    Some(0..) => {
                        assert_eq!(found.len(), set.len().min(most));
                        assert_eq!(different, found.len());
                    }
                    Some(_) => assert_eq!(found.len(), if set.is_empty() { 0 } else { most }),
                }
                array(&found)
            }
            (name, _) => panic!("{name} is not in the reference"),
        })
    }
}
