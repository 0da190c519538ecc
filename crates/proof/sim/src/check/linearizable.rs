//! Linearizability: every operation on a key takes effect at one moment between its call and its
//! reply.
//!
//! This is Herlihy and Wing's condition, checked by Wing and Gong's search with Lowe's refinements,
//! separately for each key: a history is linearizable if and only if the history of each of its
//! objects is. Operations without a reply may take effect at any later moment, or never.

use std::collections::{BTreeMap, HashSet};

use super::{Verdict, Violation};
use crate::history::{KeyAction, Operation, OperationReply};

/// Maximum number of search steps per key. If they do not suffice, the key is undecided.
const STEPS_MAX: usize = 400_000;

/// State of a key: its value, and whether an elapsed deadline may have deleted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct KeyState {
    value: Option<i64>,
    may_expire: bool,
}

impl KeyState {
    /// Returns the state after the operation `act` with reply `answer`; `None` if the reply is
    /// impossible.
    fn after(self, act: KeyAction, answer: OperationReply) -> Option<Self> {
        let plain = |value| Some(Self { value, may_expire: false });
        match (act, answer) {
            (KeyAction::Set(value), OperationReply::Ok | OperationReply::Unknown) => {
                plain(Some(value))
            }
            (KeyAction::SetExpiring(value), OperationReply::Ok | OperationReply::Unknown) => {
                Some(Self { value: Some(value), may_expire: true })
            }
            (KeyAction::Delete, OperationReply::Removed(removed)) => {
                let possible = self.value.is_some() == removed || (self.may_expire && !removed);
                possible.then_some(Self::default())
            }
            (KeyAction::Delete, OperationReply::Unknown) => plain(None),
            (KeyAction::Get, OperationReply::Value(None)) => {
                (self.value.is_none() || self.may_expire).then_some(Self::default())
            }
            (KeyAction::Get, OperationReply::Value(value)) => (self.value == value).then_some(self),
            (KeyAction::Increment, OperationReply::Number(number)) => {
                (self.value.unwrap_or(0) + 1 == number).then_some(())?;
                plain(Some(number))
            }
            (KeyAction::Increment, OperationReply::Unknown) => {
                plain(Some(self.value.unwrap_or(0) + 1))
            }
            (KeyAction::Swap { seen, new }, OperationReply::Ok | OperationReply::Unknown) => {
                (self.value == seen).then_some(())?;
                plain(Some(new))
            }
            _ => None,
        }
    }
}

/// Numbers of keys checked and undecided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Number of keys whose history was checked.
    pub checked: usize,
    /// Number of keys whose check exceeded the maximum number of steps.
    pub undecided: usize,
}

/// Checks the history of every key, and reports the first that is not linearizable.
pub fn check(operations: &[Operation]) -> Result<KeyCounts, Violation> {
    let mut by_key: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_key.entry(&operation.key).or_default().push(operation);
    }
    let mut judged = KeyCounts::default();
    for (key, operations) in by_key {
        match has_valid_order(&drop_irrelevant(&operations)) {
            Some(true) => judged.checked += 1,
            Some(false) => return Err(not_linearizable(key, &operations)),
            None => judged.undecided += 1,
        }
    }
    Ok(judged)
}

/// Drops unanswered writes of values that were never read. Their execution does not affect any
/// other operation, but each of them doubles the search.
fn drop_irrelevant<'a>(operations: &[&'a Operation]) -> Vec<&'a Operation> {
    let mut seen = HashSet::new();
    let mut others = false;
    for operation in operations {
        match operation.reply {
            OperationReply::Value(Some(value)) | OperationReply::Number(value) => {
                seen.insert(value);
            }
            _ => {}
        }
        others |= matches!(operation.action, KeyAction::Increment | KeyAction::Delete);
        if let KeyAction::Swap { seen: Some(value), .. } = operation.action {
            seen.insert(value);
        }
    }
    let matters = |operation: &&&Operation| match operation.action {
        KeyAction::Set(value) if operation.reply == OperationReply::Unknown => {
            others || seen.contains(&value)
        }
        _ => true,
    };
    operations.iter().filter(matters).copied().collect()
}

fn not_linearizable(key: &str, operations: &[&Operation]) -> Violation {
    // Reports the shortest prefix of the history that is not linearizable.
    let mut answers: Vec<u64> = operations.iter().map(|o| o.returned_at).collect();
    answers.sort_unstable();
    let mut shown: Vec<Operation> = operations.iter().map(|o| (*o).clone()).collect();
    for moment in answers {
        let prefix: Vec<Operation> = operations
            .iter()
            .filter(|o| o.called_at < moment)
            .map(|o| {
                let mut o = (*o).clone();
                if o.returned_at > moment {
                    (o.returned_at, o.reply) = (u64::MAX, OperationReply::Unknown);
                }
                o
            })
            .filter(|o| o.action != KeyAction::Get || o.reply != OperationReply::Unknown)
            .collect();
        if has_valid_order(&drop_irrelevant(&prefix.iter().collect::<Vec<_>>())) == Some(false) {
            shown = prefix;
            break;
        }
    }
    shown.sort_by_key(|o| o.called_at);
    let skipped = shown.len().saturating_sub(24);
    let mut detail = format!("the history of {key} is not linearizable:");
    for o in &shown[skipped..] {
        let end =
            if o.returned_at == u64::MAX { "…".to_owned() } else { o.returned_at.to_string() };
        detail += &format!(
            "\n    {}..{end} client {}: {:?} -> {:?}",
            o.called_at, o.client, o.action, o.reply
        );
    }
    Violation::new("linearizable", detail)
}

/// Calls and replies in a doubly linked list. Operations are removed once they are ordered.
struct EventList {
    /// Index of the operation of each event, and whether the event is its reply. The last event is
    /// a sentinel.
    events: Vec<(usize, bool)>,
    next: Vec<usize>,
    previous: Vec<usize>,
    reply_event: Vec<Option<usize>>,
}

impl EventList {
    fn new(operations: &[&Operation]) -> Self {
        let mut moments = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            moments.push((operation.called_at, index, false));
            if operation.returned_at != u64::MAX {
                moments.push((operation.returned_at, index, true));
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
            reply_event: answer_of,
        }
    }

    fn unlink_event(&mut self, at: usize) {
        let (before, behind) = (self.previous[at], self.next[at]);
        self.next[before] = behind;
        self.previous[behind] = before;
    }

    fn relink_event(&mut self, at: usize) {
        let (before, behind) = (self.previous[at], self.next[at]);
        self.next[before] = at;
        self.previous[behind] = at;
    }

    fn remove_operation(&mut self, call: usize) {
        self.unlink_event(call);
        if let Some(answer) = self.reply_event[self.events[call].0] {
            self.unlink_event(answer);
        }
    }

    fn restore_operation(&mut self, call: usize) {
        if let Some(answer) = self.reply_event[self.events[call].0] {
            self.relink_event(answer);
        }
        self.relink_event(call);
    }
}

/// Returns whether a valid order exists; `None` if the search exceeds the maximum number of steps.
fn has_valid_order(operations: &[&Operation]) -> Option<bool> {
    let mut events = EventList::new(operations);
    let mut done = vec![0u64; operations.len().div_ceil(64)];
    let mut tried: HashSet<(Vec<u64>, KeyState)> = HashSet::new();
    let mut order: Vec<(usize, KeyState)> = Vec::new();
    let mut state = KeyState::default();
    let mut at = events.next[0];
    for _ in 0..STEPS_MAX {
        if at == 0 {
            // Only calls without replies remain.
            return Some(true);
        }
        let (index, answer) = events.events[at];
        if !answer {
            let operation = operations[index];
            if let Some(after) = state.after(operation.action, operation.reply) {
                done[index / 64] |= 1 << (index % 64);
                if tried.insert((done.clone(), after)) {
                    order.push((at, state));
                    state = after;
                    events.remove_operation(at);
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
        events.restore_operation(call);
        at = events.next[call];
    }
    None
}

/// Checks the history of every key, without reporting the numbers.
pub fn check_verdict(operations: &[Operation]) -> Verdict {
    check(operations).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(called: u64, returned: u64, act: KeyAction, answer: OperationReply) -> Operation {
        Operation {
            key: "k".into(),
            client: 0,
            action: act,
            called_at: called,
            returned_at: returned,
            reply: answer,
        }
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn reads_see_the_latest_write_or_a_concurrent_one() {
        let good = [
            op(1, 2, KeyAction::Set(1), OperationReply::Ok),
            op(3, 8, KeyAction::Set(2), OperationReply::Ok),
            op(4, 5, KeyAction::Get, OperationReply::Value(Some(1))),
            op(6, 7, KeyAction::Get, OperationReply::Value(Some(2))),
        ];
        assert!(check_verdict(&good).is_ok());
        let mut bad = good;
        bad[2].reply = OperationReply::Value(Some(2));
        bad[3].reply = OperationReply::Value(Some(1));
        assert!(check_verdict(&bad).is_err(), "a read may not go back");
    }

    #[test]
    fn stale_read_and_lost_write_are_found() {
        let stale = [
            op(1, 2, KeyAction::Set(1), OperationReply::Ok),
            op(3, 4, KeyAction::Get, OperationReply::Value(None)),
        ];
        assert!(check_verdict(&stale).is_err());
        let lost = [
            op(1, 2, KeyAction::Increment, OperationReply::Number(1)),
            op(3, 4, KeyAction::Increment, OperationReply::Number(1)),
        ];
        assert!(check_verdict(&lost).is_err());
    }

    #[test]
    fn unanswered_operation_happens_late_or_never() {
        let never = [
            op(1, NEVER, KeyAction::Increment, OperationReply::Unknown),
            op(2, 3, KeyAction::Get, OperationReply::Value(None)),
        ];
        assert!(check_verdict(&never).is_ok());
        let late = [
            op(1, NEVER, KeyAction::Set(5), OperationReply::Unknown),
            op(2, 3, KeyAction::Get, OperationReply::Value(None)),
            op(4, 5, KeyAction::Get, OperationReply::Value(Some(5))),
        ];
        assert!(check_verdict(&late).is_ok());
        let gone_again = [
            late[0].clone(),
            late[2].clone(),
            op(6, 7, KeyAction::Get, OperationReply::Value(None)),
        ];
        assert!(check_verdict(&gone_again).is_err());
    }

    #[test]
    fn expiring_key_may_vanish_and_does_not_return() {
        let set = op(1, 2, KeyAction::SetExpiring(1), OperationReply::Ok);
        let gone = op(3, 4, KeyAction::Get, OperationReply::Value(None));
        assert!(check_verdict(&[set.clone(), gone.clone()]).is_ok());
        let back = op(5, 6, KeyAction::Get, OperationReply::Value(Some(1)));
        assert!(check_verdict(&[set.clone(), gone.clone(), back]).is_err());
        let kept = op(3, 4, KeyAction::Set(2), OperationReply::Ok);
        let lost = op(5, 6, KeyAction::Get, OperationReply::Value(None));
        assert!(check_verdict(&[set, kept, lost]).is_err(), "the deadline was taken away");
    }

    #[test]
    fn swap_needs_the_expected_value() {
        let swap = |called, seen, new| {
            op(called, called + 1, KeyAction::Swap { seen, new }, OperationReply::Ok)
        };
        assert!(check_verdict(&[swap(1, None, 5), swap(3, Some(5), 6)]).is_ok());
        assert!(check_verdict(&[swap(1, None, 5), swap(3, None, 6)]).is_err());
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
                    KeyAction::Increment,
                    OperationReply::Number(number),
                ));
            }
        }
        assert_eq!(check(&operations), Ok(KeyCounts { checked: 1, undecided: 0 }));
    }
}
