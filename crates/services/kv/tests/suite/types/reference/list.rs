//! Reference model of the list commands.

use super::{Answer, Model, Value, Wrong, array, bulk, int, optional, places};

impl Model {
    fn elements(&self, key: &str) -> Result<Vec<String>, Wrong> {
        match self.keys.get(key) {
            None => Ok(Vec::new()),
            Some(Value::List(elements)) => Ok(elements.clone()),
            Some(_) => Err(Wrong),
        }
    }

    pub(super) fn list(&mut self, name: &str, words: &[&str]) -> Answer {
        if name == "LMPOP" {
            return self.pop_first(words);
        }
        let key = words[0];
        let mut list = self.elements(key)?;
        let number = |word: &str| word.parse::<i64>().unwrap();
        let place = |index: i64, length: usize| {
            let length = i64::try_from(length).unwrap();
            let index = if index < 0 { index + length } else { index };
            usize::try_from(index).ok().filter(|at| index < length && *at < usize::MAX)
        };
        Ok(match (name, &words[1..]) {
            ("LPUSHX" | "RPUSHX", _) if list.is_empty() => int(0),
            ("LPUSH" | "LPUSHX", values) => {
                for value in values {
                    list.insert(0, (*value).to_owned());
                }
                let length = list.len();
                self.change(key, Value::List(list));
                int(length)
            }
            ("RPUSH" | "RPUSHX", values) => {
                list.extend(values.iter().map(|value| (*value).to_owned()));
                let length = list.len();
                self.change(key, Value::List(list));
                int(length)
            }
            ("LPOP" | "RPOP", []) if list.is_empty() => optional(None),
            ("LPOP" | "RPOP", [_]) if list.is_empty() => "*-1|".to_owned(),
            ("LPOP" | "RPOP", count) => {
                let most = count.first().map_or(1, |count| number(count));
                let mut taken = Vec::new();
                while !list.is_empty() && (taken.len() as u64) < most.unsigned_abs() {
                    let at = if name == "LPOP" { 0 } else { list.len() - 1 };
                    taken.push(list.remove(at));
                }
                self.change(key, Value::List(list));
                match count {
                    [] => bulk(&taken[0]),
                    _ => array(&taken),
                }
            }
            ("LLEN", []) => int(list.len()),
            ("LINDEX", [index]) => {
                let at = place(number(index), list.len());
                optional(at.map(|at| list[at].as_str()))
            }
            ("LSET", _) if list.is_empty() => "-ERR no such key|".to_owned(),
            ("LSET", [index, value]) => match place(number(index), list.len()) {
                None => "-ERR index out of range|".to_owned(),
                Some(at) => {
                    list[at] = (*value).to_owned();
                    self.change(key, Value::List(list));
                    "+OK|".to_owned()
                }
            },
            ("LRANGE", [start, stop]) => {
                array(&list[places(number(start), number(stop), list.len())])
            }
            ("LTRIM", [start, stop]) => {
                let kept = places(number(start), number(stop), list.len());
                self.change(key, Value::List(list[kept].to_vec()));
                "+OK|".to_owned()
            }
            ("LREM", [count, element]) => {
                let (count, before) = (number(count), list.len());
                let mut left = match count.unsigned_abs() {
                    0 => u64::MAX,
                    most => most,
                };
                if count < 0 {
                    list.reverse();
                }
                list.retain(|other| {
                    let goes = other == element && left > 0;
                    left -= u64::from(goes);
                    !goes
                });
                if count < 0 {
                    list.reverse();
                }
                let removed = before - list.len();
                self.change(key, Value::List(list));
                int(removed)
            }
            ("LINSERT", _) if list.is_empty() => int(0),
            ("LINSERT", [side, pivot, value]) => {
                match list.iter().position(|element| element == pivot) {
                    None => int(-1),
                    Some(at) => {
                        list.insert(at + usize::from(*side == "AFTER"), (*value).to_owned());
                        let length = list.len();
                        self.change(key, Value::List(list));
                        int(length)
                    }
                }
            }
            ("LPOS", [element, "RANK", rank, "COUNT", count, "MAXLEN", most]) => {
                let (rank, count, most) = (number(rank), number(count), number(most));
                let mut all: Vec<usize> = (0..list.len()).collect();
                if rank < 0 {
                    all.reverse();
                }
                if most > 0 {
                    all.truncate(usize::try_from(most).unwrap());
                }
                all.retain(|at| list[*at] == *element);
                let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap();
                let mut found: Vec<usize> = all.into_iter().skip(skipped).collect();
                if count > 0 {
                    found.truncate(usize::try_from(count).unwrap());
                }
                let items: String = found.iter().map(|at| int(*at)).collect();
                format!("*{}|{items}", found.len())
            }
            ("LPOS", [element]) => match list.iter().position(|other| other == element) {
                Some(at) => int(at),
                None => optional(None),
            },
            ("LMOVE", [target, from, to]) => self.transfer(key, list, target, from, to)?,
            ("RPOPLPUSH", [target]) => self.transfer(key, list, target, "RIGHT", "LEFT")?,
            (name, _) => panic!("{name} is not in the reference"),
        })
    }

    fn transfer(
        &mut self,
        key: &str,
        mut list: Vec<String>,
        target: &str,
        from: &str,
        to: &str,
    ) -> Answer {
        if list.is_empty() {
            return Ok(optional(None));
        }
        let mut other = self.elements(target)?;
        let at = if from == "LEFT" { 0 } else { list.len() - 1 };
        let element = list.remove(at);
        if key == target {
            other.clone_from(&list);
        }
        let at = if to == "LEFT" { 0 } else { other.len() };
        other.insert(at, element.clone());
        if key != target {
            self.change(key, Value::List(list));
        }
        self.change(target, Value::List(other));
        Ok(bulk(&element))
    }

    fn pop_first(&mut self, words: &[&str]) -> Answer {
        let count = words[0].parse::<usize>().unwrap();
        let (keys, rest) = words[1..].split_at(count);
        for key in keys {
            if self.elements(key)?.is_empty() {
                continue;
            }
            let pop = if rest[0] == "LEFT" { "LPOP" } else { "RPOP" };
            let most = rest.get(2).unwrap_or(&"1");
            let taken = self.list(pop, &[key, most])?;
            return Ok(format!("*2|{}{taken}", bulk(key)));
        }
        Ok("*-1|".to_owned())
    }
}
