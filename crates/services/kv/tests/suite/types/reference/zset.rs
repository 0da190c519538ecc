//! Reference model of the sorted set commands, for scores that all implementations format alike.

use std::collections::BTreeMap;

use super::{Answer, Model, Value, Wrong, array, bulk, drawn, int, optional, places};

type Members = BTreeMap<String, f64>;

fn text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Negative zero becomes zero.
    format!("{}", score + 0.0)
}

/// Returns the number, or 0 for NaN, as results from opposite infinities.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Returns the members in order of score, then of name.
fn in_order(members: &Members) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = members.clone().into_iter().collect();
    all.sort_by(|(name, score), (other_name, other)| {
        let by_score = score.partial_cmp(other).unwrap();
        by_score.then_with(|| name.cmp(other_name))
    });
    all
}

fn listed(members: &[(String, f64)], scores: bool) -> String {
    let words = members.iter().flat_map(|(member, score)| {
        let score = scores.then(|| text(*score));
        std::iter::once(member.clone()).chain(score)
    });
    array(&Vec::from_iter(words))
}

/// Returns whether a score is within two bounds given as text.
fn within_scores(score: f64, least: &str, most: &str) -> bool {
    let end = |text: &str| {
        let (excluded, text) = match text.strip_prefix('(') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        (excluded, text.parse::<f64>().unwrap())
    };
    let ((low_out, low), (high_out, high)) = (end(least), end(most));
    let above = if low_out { score > low } else { score >= low };
    let below = if high_out { score < high } else { score <= high };
    above && below
}

fn within_names(name: &str, least: &str, most: &str) -> bool {
    let above = match least.split_at(1) {
        ("-", _) => true,
        ("[", end) => name >= end,
        ("(", end) => name > end,
        _ => false,
    };
    let below = match most.split_at(1) {
        ("+", _) => true,
        ("[", end) => name <= end,
        ("(", end) => name < end,
        _ => false,
    };
    above && below
}

/// Returns the members selected by a form of ZRANGE, and whether the reply contains scores.
fn range(members: &Members, words: &[&str]) -> (Vec<(String, f64)>, bool) {
    let has = |word: &str| words.contains(&word);
    let back = has("REV");
    let mut all = in_order(members);
    if back {
        all.reverse();
    }
    let (mut first, mut last) = (words[0], words[1]);
    if has("BYSCORE") || has("BYLEX") {
        if back {
            std::mem::swap(&mut first, &mut last);
        }
        all.retain(|(name, score)| match has("BYSCORE") {
            true => within_scores(*score, first, last),
            false => within_names(name, first, last),
        });
        if let Some(at) = words.iter().position(|word| *word == "LIMIT") {
            let (offset, count) = (words[at + 1].parse::<i64>(), words[at + 2].parse::<i64>());
            let skipped = usize::try_from(offset.unwrap()).unwrap_or(usize::MAX);
            let most = usize::try_from(count.unwrap()).unwrap_or(usize::MAX);
            all = all.into_iter().skip(skipped).take(most).collect();
        }
    } else {
        let found = places(first.parse().unwrap(), last.parse().unwrap(), all.len());
        all = all[found].to_vec();
    }
    (all, has("WITHSCORES"))
}

impl Model {
    fn scored(&self, key: &str) -> Result<Members, Wrong> {
        match self.keys.get(key) {
            None => Ok(Members::new()),
            Some(Value::Zset(members)) => Ok(members.clone()),
            Some(_) => Err(Wrong),
        }
    }

    /// Returns the value of a key as a sorted set. The members of a plain set have the score 1.
    fn source(&self, key: &str) -> Result<Members, Wrong> {
        match self.keys.get(key) {
            Some(Value::Set(members)) => {
                Ok(members.iter().map(|member| (member.clone(), 1.0)).collect())
            }
            _ => self.scored(key),
        }
    }

    /// Combines the sets given as `numkeys key … [WEIGHTS …] [AGGREGATE …] [WITHSCORES]`.
    fn united(&self, name: &str, words: &[&str]) -> Result<Members, Wrong> {
        let count = words[0].parse::<usize>().unwrap();
        let (keys, options) = words[1..].split_at(count);
        let at = |word: &str| options.iter().position(|other| *other == word);
        let weight = |number: usize| {
            at("WEIGHTS").map_or(1.0, |at| options[at + 1 + number].parse::<f64>().unwrap())
        };
        let sources = keys.iter().map(|key| self.source(key));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let mut weighted: Vec<Members> = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let of = |score: &f64| number_or_zero(score * weight(number));
            let members = source.iter().map(|(member, score)| (member.clone(), of(score)));
            weighted.push(members.collect());
        }
        if name.starts_with("ZDIFF") {
            let (first, others) = weighted.split_first().unwrap();
            let mut left = first.clone();
            left.retain(|member, _| !others.iter().any(|other| other.contains_key(member)));
            return Ok(left);
        }
        let aggregate = at("AGGREGATE").map_or("SUM", |at| options[at + 1]);
        let mut found = Members::new();
        for (member, score) in weighted.iter().flatten() {
            let all = weighted.iter().filter(|source| source.contains_key(member));
            if name.starts_with("ZINTER") && all.count() < weighted.len() {
                continue;
            }
            let old = found.get(member).copied();
            let new = old.map_or(*score, |old| match aggregate {
                "SUM" => number_or_zero(old + score),
                "MIN" => old.min(*score),
                _ => old.max(*score),
            });
            found.insert(member.clone(), new);
        }
        Ok(found)
    }

    pub(super) fn zset(&mut self, name: &str, words: &[&str], actual: &str) -> Answer {
        match name {
            "ZUNION" | "ZINTER" | "ZDIFF" => {
                let found = self.united(name, words)?;
                return Ok(listed(&in_order(&found), words.contains(&"WITHSCORES")));
            }
            "ZUNIONSTORE" | "ZINTERSTORE" | "ZDIFFSTORE" => {
                let found = self.united(name, &words[1..])?;
                let count = found.len();
                self.put(words[0], Value::Zset(found));
                return Ok(int(count));
            }
            "ZINTERCARD" => return Ok(int(self.united(name, words)?.len())),
            "ZRANGESTORE" => {
                let (found, _) = range(&self.scored(words[1])?, &words[2..]);
                let count = found.len();
                self.put(words[0], Value::Zset(found.into_iter().collect()));
                return Ok(int(count));
            }
            "ZMPOP" => return self.pop_scored(words),
            _ => {}
        }
        let key = words[0];
        let mut set = self.scored(key)?;
        Ok(match (name, &words[1..]) {
            ("ZADD", rest) => self.add(key, set, rest),
            ("ZINCRBY", [delta, member]) => self.add(key, set, &["INCR", delta, member]),
            ("ZREM", members) => {
                let removed = members.iter().filter(|member| set.remove(**member).is_some());
                let removed = removed.count();
                self.change(key, Value::Zset(set));
                int(removed)
            }
            ("ZSCORE", [member]) => optional(set.get(*member).map(|s| text(*s)).as_deref()),
            ("ZMSCORE", members) => {
                let scores = members
                    .iter()
                    .map(|member| optional(set.get(*member).map(|s| text(*s)).as_deref()));
                format!("*{}|{}", members.len(), scores.collect::<String>())
            }
            ("ZCARD", []) => int(set.len()),
            ("ZRANK" | "ZREVRANK", [member]) => {
                let mut all = in_order(&set);
                if name == "ZREVRANK" {
                    all.reverse();
                }
                let at = all.iter().position(|(other, _)| other == member);
                at.map_or(optional(None), int)
            }
            ("ZCOUNT", [least, most]) => {
                let found = set.values();
                int(found.filter(|score| within_scores(**score, least, most)).count())
            }
            ("ZRANGE", rest) => {
                let (found, scores) = range(&set, rest);
                listed(&found, scores)
            }
            ("ZREMRANGEBYRANK", rest) => self.cut(key, set, rest, ""),
            ("ZREMRANGEBYSCORE", rest) => self.cut(key, set, rest, "BYSCORE"),
            ("ZPOPMIN" | "ZPOPMAX", [count]) => {
                let mut all = in_order(&set);
                if name == "ZPOPMAX" {
                    all.reverse();
                }
                all.truncate(count.parse().unwrap());
                set.retain(|member, _| !all.iter().any(|(gone, _)| gone == member));
                self.change(key, Value::Zset(set));
                listed(&all, true)
            }
            ("ZRANDMEMBER", [count]) => {
                let found = drawn(actual);
                assert!(found.iter().all(|member| set.contains_key(member)), "{actual}");
                let count = count.parse::<i64>().unwrap();
                let most = usize::try_from(count.abs()).unwrap();
                let expected = match count {
                    ..0 if set.is_empty() => 0,
                    ..0 => most,
                    _ => most.min(set.len()),
                };
                assert_eq!(found.len(), expected, "{actual}");
                array(&found)
            }
            (name, _) => panic!("{name} is not in the reference"),
        })
    }

    fn cut(&mut self, key: &str, mut set: Members, ends: &[&str], by: &str) -> String {
        let (gone, _) = range(&set, &[ends[0], ends[1], by]);
        set.retain(|member, _| !gone.iter().any(|(other, _)| other == member));
        self.change(key, Value::Zset(set));
        int(gone.len())
    }

    fn add(&mut self, key: &str, mut set: Members, words: &[&str]) -> String {
        let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
        let count = words.iter().take_while(|word| options.contains(word)).count();
        let (options, pairs) = words.split_at(count);
        let has = |word: &str| options.contains(&word);
        let (mut added, mut updated, mut last) = (0, 0, None);
        for pair in pairs.chunks(2) {
            let (mut score, member) = (pair[0].parse::<f64>().unwrap(), pair[1].to_owned());
            let old = set.get(&member).copied();
            if has("INCR") {
                score += old.unwrap_or(0.0);
            }
            let refused = match old {
                None => has("XX"),
                Some(old) => {
                    has("NX") || (has("GT") && score <= old) || (has("LT") && score >= old)
                }
            };
            if refused {
                continue;
            }
            last = Some(score);
            added += i64::from(old.is_none());
            updated += i64::from(old.is_some_and(|old| old != score));
            if old != Some(score) {
                set.insert(member, score);
            }
        }
        self.change(key, Value::Zset(set));
        if has("INCR") {
            return optional(last.map(text).as_deref());
        }
        int(if has("CH") { added + updated } else { added })
    }

    fn pop_scored(&mut self, words: &[&str]) -> Answer {
        let count = words[0].parse::<usize>().unwrap();
        let (keys, rest) = words[1..].split_at(count);
        for key in keys {
            if self.scored(key)?.is_empty() {
                continue;
            }
            let pop = if rest[0] == "MIN" { "ZPOPMIN" } else { "ZPOPMAX" };
            let taken = drawn(&self.zset(pop, &[key, rest[2]], "")?);
            let pairs = taken.chunks(2).map(array);
            let pairs: String = pairs.collect();
            return Ok(format!("*2|{}*{}|{pairs}", bulk(key), taken.len() / 2));
        }
        Ok("*-1|".to_owned())
    }
}
