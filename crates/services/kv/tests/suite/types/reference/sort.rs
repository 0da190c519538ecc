//! Reference model of SORT, without the keys named by BY and GET.

use super::{Answer, Model, Value, Wrong, array, int};

const NOT_A_SCORE: &str = "-ERR One or more scores can't be converted into double|";

impl Model {
    pub(super) fn sort(&mut self, words: &[&str]) -> Answer {
        let (mut elements, has_order) = match self.keys.get(words[0]) {
            None => (Vec::new(), true),
            Some(Value::List(elements)) => (elements.clone(), true),
            Some(Value::Set(members)) => (members.iter().cloned().collect(), false),
            Some(Value::Zset(members)) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by(|one, other| one.1.total_cmp(other.1).then(one.0.cmp(other.0)));
                (members.into_iter().map(|(name, _)| name.clone()).collect(), true)
            }
            Some(_) => return Err(Wrong),
        };
        let behind = |word: &str| words.iter().position(|at| *at == word).map(|at| at + 1);
        let has = |word: &str| behind(word).is_some();
        let target = behind("STORE").map(|at| words[at]);
        let as_it_is = has("BY") && (has_order || target.is_none());
        if !as_it_is && (has("ALPHA") || has("BY")) {
            elements.sort();
        } else if !as_it_is {
            let numbers = elements.iter().map(|text| text.parse::<f64>().ok());
            let Some(numbers) = numbers.collect::<Option<Vec<f64>>>() else {
                return Ok(NOT_A_SCORE.to_owned());
            };
            let mut both: Vec<(f64, String)> = numbers.into_iter().zip(elements).collect();
            both.sort_by(|one, other| {
                one.0.partial_cmp(&other.0).unwrap().then(one.1.cmp(&other.1))
            });
            elements = both.into_iter().map(|(_, text)| text).collect();
        }
        if has("DESC") {
            elements.reverse();
        }
        if let Some(at) = behind("LIMIT") {
            let skipped = words[at].parse::<i64>().unwrap().max(0);
            let wanted = usize::try_from(words[at + 1].parse::<i64>().unwrap());
            let from = elements.into_iter().skip(usize::try_from(skipped).unwrap());
            elements = from.take(wanted.unwrap_or(usize::MAX)).collect();
        }
        match target {
            None => Ok(array(&elements)),
            Some(target) => {
                let count = elements.len();
                self.put(target, Value::List(elements));
                Ok(int(count))
            }
        }
    }
}
