//! Linearizability: every operation on a key takes effect at one moment between its call and its
//! reply.
//!
//! This is Herlihy and Wing's condition, checked by Wing and Gong's search with Lowe's refinements,
//! separately for each key: a history is linearizable if and only if the history of each of its
//! objects is. Operations without a reply may take effect at any later moment, or never.

use std::collections::{BTreeMap, HashSet};

use super::{Verdict, Violation};
use crate::history::{Act, Answer, Operation};

/// Maximum number of search steps per key. If they do not suffice, the key is undecided.
const STEPS_MAX: usize = 400_000;

/// State of a key: its value, and whether an elapsed deadline may have deleted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    value: Option<i64>,
    expires: bool,
}

impl State {
    /// Returns the state after the operation `act` with reply `answer`; `None` if the reply is
    /// impossible.
    fn after(self, act: Act, answer: Answer) -> Option<Self> {
        let plain = |value| Some(Self { value, expires: false });
        match (act, answer) {
            (Act::Set(value), Answer::Ok | Answer::Unknown) => plain(Some(value)),
            (Act::SetExpiring(value), Answer::Ok | Answer::Unknown) => {
                Some(Self { value: Some(value), expires: true })
            }
            (Act::Delete, Answer::Removed(removed)) => {
                let possible = self.value.is_some() == removed || (self.expires && !removed);
                possible.then_some(Self::default())
            }
            (Act::Delete, Answer::Unknown) => plain(None),
            (Act::Get, Answer::Value(None)) => {
                (self.value.is_none() || self.expires).then_some(Self::default())
            }
            (Act::Get, Answer::Value(value)) => (self.value == value).then_some(self),
            (Act::Increment, Answer::Number(number)) => {
                (self.value.unwrap_or(0) + 1 == number).then_some(())?;
                plain(Some(number))
            }
            (Act::Increment, Answer::Unknown) => plain(Some(self.value.unwrap_or(0) + 1)),
            (Act::Swap { seen, new }, Answer::Ok | Answer::Unknown) => {
                (self.value == seen).then_some(())?;
                plain(Some(new))
            }
            _ => None,
        }
    }
}

/// Numbers of keys checked and undecided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Number of keys whose history was checked.
    pub keys: usize,
    /// Number of keys whose check exceeded the maximum number of steps.
    pub undecided: usize,
}

/// Checks the history of every key, and reports the first that is not linearizable.
pub fn check(operations: &[Operation]) -> Result<Judged, Violation> {
    let mut by_key: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_key.entry(&operation.key).or_default().push(operation);
    }
    let mut judged = Judged::default();
    for (key, operations) in by_key {
        match search(&relevant(&operations)) {
            Some(true) => judged.keys += 1,
            Some(false) => return Err(broken(key, &operations)),
            None => judged.undecided += 1,
        }
    }
    Ok(judged)
}

/// Drops unanswered writes of values that were never read. Their execution does not affect any
/// other operation, but each of them doubles the search.
fn relevant<'a>(operations: &[&'a Operation]) -> Vec<&'a Operation> {
    let mut seen = HashSet::new();
    let mut others = false;
    for operation in operations {
        match operation.answer {
            Answer::Value(Some(value)) | Answer::Number(value) => {
                seen.insert(value);
            }
            _ => {}
        }
        others |= matches!(operation.act, Act::Increment | Act::Delete);
        if let Act::Swap { seen: Some(value), .. } = operation.act {
            seen.insert(value);
        }
    }
    let matters = |operation: &&&Operation| match operation.act {
        Act::Set(value) if operation.answer == Answer::Unknown => others || seen.contains(&value),
        _ => true,
    };
    operations.iter().filter(matters).copied().collect()
}

fn broken(key: &str, operations: &[&Operation]) -> Violation {
    // Reports the shortest prefix of the history that is not linearizable.
    let mut answers: Vec<u64> = operations.iter().map(|o| o.returned).collect();
    answers.sort_unstable();
    let mut shown: Vec<Operation> = operations.iter().map(|o| (*o).clone()).collect();
    for moment in answers {
        let prefix: Vec<Operation> = operations
            .iter()
            .filter(|o| o.called < moment)
            .map(|o| {
                let mut o = (*o).clone();
                if o.returned > moment {
                    (o.returned, o.answer) = (u64::MAX, Answer::Unknown);
                }
                o
            })
            .filter(|o| o.act != Act::Get || o.answer != Answer::Unknown)
            .collect();
        if search(&relevant(&prefix.iter().collect::<Vec<_>>())) == Some(false) {
            shown = prefix;
            break;
        }
    }
    shown.sort_by_key(|o| o.called);
    let skipped = shown.len().saturating_sub(24);
    let mut detail = format!("the history of {key} is not linearizable:");
    for o in &shown[skipped..] {
        let end = if o.returned == u64::MAX { "…".to_owned() } else { o.returned.to_string() };
        detail += &format!(
            "\n    {}..{end} client {}: {:?} -> {:?}",
            o.called, o.client, o.act, o.answer
        );
    }
    Violation::new("linearizable", detail)
}

/// Calls and replies in a doubly linked list. Operations are removed once they are ordered.
struct Events {
    /// Index of the operation of each event, and whether the event is its reply. The last event is
    /// a sentinel.
    events: Vec<(usize, bool)>,
    next: Vec<usize>,
    previous: Vec<usize>,
    answer_of: Vec<Option<usize>>,
}

impl Events {
    fn new(operations: &[&Operation]) -> Self {
        let mut moments = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            moments.push((operation.called, index, false));
            if operation.returned != u64::MAX {
                moments.push((operation.returned, index, true));
            }
        }
        moments.sort_unstable();
        let mut events = vec![(usize::MAX, false)];
        events.extend(moments.iter().map(|(_, index, answer)| (*index, *answer)));
        let count = events.len();
        let mut answer_of = vec![None; operations.len()];
        for (at, (index, answer)) in events.iter().enumerate().skip(1) {
            if *answer {
                answer_of[*index] = Some(at);
            }
        }
        Self {
            events,
            next: (1..=count).map(|at| if at == count { 0 } else { at }).collect(),
            previous: (0..count).map(|at| if at == 0 { count - 1 } else { at - 1 }).collect(),
            answer_of,
        }
    }

    fn unlink(&mut self, at: usize) {
        let (before, behind) = (self.previous[at], self.next[at]);
        self.next[before] = behind;
        self.previous[behind] = before;
    }

    fn relink(&mut self, at: usize) {
        let (before, behind) = (self.previous[at], self.next[at]);
        self.next[before] = at;
        self.previous[behind] = at;
    }

    fn lift(&mut self, call: usize) {
        self.unlink(call);
        if let Some(answer) = self.answer_of[self.events[call].0] {
            self.unlink(answer);
        }
    }

    fn put_back(&mut self, call: usize) {
        if let Some(answer) = self.answer_of[self.events[call].0] {
            self.relink(answer);
        }
        self.relink(call);
    }
}

/// Returns whether a valid order exists; `None` if the search exceeds the maximum number of steps.
fn search(operations: &[&Operation]) -> Option<bool> {
    let mut events = Events::new(operations);
    let mut done = vec![0u64; operations.len().div_ceil(64)];
    let mut tried: HashSet<(Vec<u64>, State)> = HashSet::new();
    let mut order: Vec<(usize, State)> = Vec::new();
    let mut state = State::default();
    let mut at = events.next[0];
    for _ in 0..STEPS_MAX {
        if at == 0 {
            // Only calls without replies remain.
            return Some(true);
        }
        let (index, answer) = events.events[at];
        if !answer {
            let operation = operations[index];
            if let Some(after) = state.after(operation.act, operation.answer) {
                done[index / 64] |= 1 << (index % 64);
                if tried.insert((done.clone(), after)) {
                    order.push((at, state));
                    state = after;
                    events.lift(at);
                    at = events.next[0];
                    continue;
                }
                done[index / 64] &= !(1 << (index % 64));
            }
            at = events.next[at];
            continue;
        }
        // The reply belongs to an operation that is not ordered yet, so backtrack.
        let Some((call, before)) = order.pop() else {
            return Some(false);
        };
        let index = events.events[call].0;
        done[index / 64] &= !(1 << (index % 64));
        state = before;
        events.put_back(call);
        at = events.next[call];
    }
    None
}

/// Checks the history of every key, without reporting the numbers.
pub fn verdict(operations: &[Operation]) -> Verdict {
    check(operations).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(called: u64, returned: u64, act: Act, answer: Answer) -> Operation {
        Operation { key: "k".into(), client: 0, act, called, returned, answer }
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn reads_see_the_latest_write_or_a_concurrent_one() {
        let good = [
            op(1, 2, Act::Set(1), Answer::Ok),
            op(3, 8, Act::Set(2), Answer::Ok),
            op(4, 5, Act::Get, Answer::Value(Some(1))),
            op(6, 7, Act::Get, Answer::Value(Some(2))),
        ];
        assert!(verdict(&good).is_ok());
        let mut bad = good;
        bad[2].answer = Answer::Value(Some(2));
        bad[3].answer = Answer::Value(Some(1));
        assert!(verdict(&bad).is_err(), "a read may not go back");
    }

    #[test]
    fn stale_read_and_lost_write_are_found() {
        let stale = [op(1, 2, Act::Set(1), Answer::Ok), op(3, 4, Act::Get, Answer::Value(None))];
        assert!(verdict(&stale).is_err());
        let lost = [
            op(1, 2, Act::Increment, Answer::Number(1)),
            op(3, 4, Act::Increment, Answer::Number(1)),
        ];
        assert!(verdict(&lost).is_err());
    }

    #[test]
    fn unanswered_operation_happens_late_or_never() {
        let never = [
            op(1, NEVER, Act::Increment, Answer::Unknown),
            op(2, 3, Act::Get, Answer::Value(None)),
        ];
        assert!(verdict(&never).is_ok());
        let late = [
            op(1, NEVER, Act::Set(5), Answer::Unknown),
            op(2, 3, Act::Get, Answer::Value(None)),
            op(4, 5, Act::Get, Answer::Value(Some(5))),
        ];
        assert!(verdict(&late).is_ok());
        let gone_again =
            [late[0].clone(), late[2].clone(), op(6, 7, Act::Get, Answer::Value(None))];
        assert!(verdict(&gone_again).is_err());
    }

    #[test]
    fn expiring_key_may_vanish_and_does_not_return() {
        let set = op(1, 2, Act::SetExpiring(1), Answer::Ok);
        let gone = op(3, 4, Act::Get, Answer::Value(None));
        assert!(verdict(&[set.clone(), gone.clone()]).is_ok());
        let back = op(5, 6, Act::Get, Answer::Value(Some(1)));
        assert!(verdict(&[set.clone(), gone.clone(), back]).is_err());
        let kept = op(3, 4, Act::Set(2), Answer::Ok);
        let lost = op(5, 6, Act::Get, Answer::Value(None));
        assert!(verdict(&[set, kept, lost]).is_err(), "the deadline was taken away");
    }

    #[test]
    fn swap_needs_the_expected_value() {
        let swap = |called, seen, new| op(called, called + 1, Act::Swap { seen, new }, Answer::Ok);
        assert!(verdict(&[swap(1, None, 5), swap(3, Some(5), 6)]).is_ok());
        assert!(verdict(&[swap(1, None, 5), swap(3, None, 6)]).is_err());
    }

    /// A history of a hundred concurrent increments, some of them unanswered, is checked quickly.
    #[test]
    fn concurrent_history_is_checked_quickly() {
        let mut operations = Vec::new();
        for round in 0..40 {
            let start = round * 10;
            for client in 0..3 {
                let number = i64::try_from(round * 3 + client + 1).unwrap();
                operations.push(op(
                    start + client,
                    start + 9 - client,
                    Act::Increment,
                    Answer::Number(number),
                ));
            }
        }
        assert_eq!(check(&operations), Ok(Judged { keys: 1, undecided: 0 }));
    }
}
