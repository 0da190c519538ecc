//! Checker for the history recorded by queue clients.
//!
//! Each element is taken at most once, and only if it was pushed. An acknowledged element is either
//! taken or left over, unless a take without a reply may have removed it. If one push ended before
//! another began, the later element is not taken before the take of the earlier one began.

use std::collections::{BTreeMap, BTreeSet};

/// A push that took effect, or may have taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub queue_index: usize,
    /// Pushed element, unique among all pushes.
    pub element: String,
    /// Time at which the command was sent, in nanoseconds.
    pub called_at: u64,
    /// Time of the acknowledgement; `None` if there was no reply.
    pub acknowledged_at: Option<u64>,
}

/// A take that returned an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    pub queue_index: usize,
    pub element: String,
    /// Time at which the command was sent, in nanoseconds.
    pub called_at: u64,
    pub returned_at: u64,
}

/// Pushes, takes and final contents, as observed by the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Pushes that were not refused.
    pub pushes: Vec<Push>,
    pub takes: Vec<Take>,
    /// Number of take commands without a reply, for each queue.
    pub unanswered_takes: Vec<u64>,
    /// Final contents of each queue, oldest element first.
    pub remaining: Vec<Vec<String>>,
}

/// Totals of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryTotals {
    /// Number of acknowledged pushes.
    pub pushed_count: usize,
    pub taken_count: usize,
    pub remaining_count: usize,
    /// Number of acknowledged elements that takes without a reply may have removed.
    pub possibly_taken_count: usize,
}

/// A fault to inject into a history, which the checker must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falsification {
    /// An element is taken twice.
    TakenTwice,
    /// More elements are lost than takes without a reply can explain.
    Lost,
    /// The element that was pushed first is taken last.
    TakenLate,
    /// An element is taken that was never pushed.
    NeverPushed,
}

impl Falsification {
    pub const ALL: [Self; 4] = [Self::TakenTwice, Self::Lost, Self::TakenLate, Self::NeverPushed];

    /// Returns a copy of the history with the fault injected, unless the history is too short.
    pub fn inject_into(self, history: &History) -> Option<History> {
        let mut told = history.clone();
        let last = told.takes.iter().max_by_key(|take| take.returned_at)?.clone();
        match self {
            Self::TakenTwice => told.takes.push(Take {
                called_at: last.returned_at + 1,
                returned_at: last.returned_at + 2,
                ..last
            }),
            Self::Lost => {
                let acknowledged: BTreeSet<String> = told.acknowledged_elements(last.queue_index);
                let mut more = told.unanswered_takes.get(last.queue_index)? + 1;
                told.takes.retain(|take| {
                    let lost = more > 0 && acknowledged.contains(&take.element);
                    more -= u64::from(lost);
                    !lost
                });
                if more > 0 {
                    return None;
                }
            }
            Self::TakenLate => {
                let pushes = told.pushes.iter();
                let pushes = pushes.filter(|push| {
                    push.queue_index == last.queue_index && push.acknowledged_at.is_some()
                });
                let first = pushes.min_by_key(|push| push.acknowledged_at)?.element.clone();
                let mut takes = told.takes.iter_mut();
                let take = takes.find(|take| take.element == first)?;
                (take.called_at, take.returned_at) = (last.returned_at + 1, last.returned_at + 2);
            }
            Self::NeverPushed => {
                told.takes.push(Take { element: "never-pushed".to_owned(), ..last })
            }
        }
        Some(told)
    }
}

impl History {
    pub fn new(queues: usize) -> Self {
        Self {
            unanswered_takes: vec![0; queues],
            remaining: vec![Vec::new(); queues],
            ..Self::default()
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.pushes.extend(other.pushes);
        self.takes.extend(other.takes);
        for (all, more) in self.unanswered_takes.iter_mut().zip(other.unanswered_takes) {
            *all += more;
        }
    }

    fn acknowledged_elements(&self, queue: usize) -> BTreeSet<String> {
        let of = self.pushes.iter().filter(|push| push.queue_index == queue);
        let known = of.filter(|push| push.acknowledged_at.is_some());
        known.map(|push| push.element.clone()).collect()
    }

    /// Checks the history. Returns its totals, or an error that describes the first violation.
    pub fn check(&self) -> Result<HistoryTotals, String> {
        let mut sum = HistoryTotals::default();
        for queue in 0..self.unanswered_takes.len() {
            let one = self.check_queue(queue)?;
            sum.pushed_count += one.pushed_count;
            sum.taken_count += one.taken_count;
            sum.remaining_count += one.remaining_count;
            sum.possibly_taken_count += one.possibly_taken_count;
        }
        Ok(sum)
    }

    fn check_queue(&self, queue: usize) -> Result<HistoryTotals, String> {
        let of_queue = self.pushes.iter().filter(|push| push.queue_index == queue);
        let pushes: BTreeMap<&str, &Push> =
            of_queue.map(|push| (push.element.as_str(), push)).collect();
        // Treat the elements left over as if they were taken last, one by one.
        let last = self.takes.iter().map(|take| take.returned_at).max().unwrap_or(0);
        let left = self.remaining.get(queue).into_iter().flatten();
        let left = (last + 1..).zip(left).map(|(at, element)| (element, at, at));
        let takes = self.takes.iter().filter(|take| take.queue_index == queue);
        let takes = takes.map(|take| (&take.element, take.called_at, take.returned_at));
        let mut went: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (element, call, end) in takes.chain(left) {
            let Some(push) = pushes.get(element.as_str()) else {
                return Err(format!("{element} came out of queue {queue}, but was never pushed"));
            };
            if end < push.called_at {
                return Err(format!("{element} was taken before it was pushed"));
            }
            if went.insert(element, (call, end)).is_some() {
                return Err(format!("{element} came out of queue {queue} twice"));
            }
        }
        let known = pushes.values().filter(|push| push.acknowledged_at.is_some());
        let missing: Vec<&str> = known
            .clone()
            .map(|push| push.element.as_str())
            .filter(|element| !went.contains_key(element))
            .collect();
        let may_miss = self.unanswered_takes[queue];
        if missing.len() as u64 > may_miss {
            return Err(format!(
                "{} elements of queue {queue} are lost, and {may_miss} commands had no answer: {missing:?}",
                missing.len()
            ));
        }
        check_order(queue, &pushes, &went)?;
        let left = self.remaining.get(queue).map_or(0, Vec::len);
        Ok(HistoryTotals {
            pushed_count: known.count(),
            taken_count: went.len() - left,
            remaining_count: left,
            possibly_taken_count: missing.len(),
        })
    }
}

/// Checks that elements are taken in the order in which they were pushed. An operation may take
/// effect at any time between its start and its end.
fn check_order(
    queue: usize,
    pushes: &BTreeMap<&str, &Push>,
    went: &BTreeMap<&str, (u64, u64)>,
) -> Result<(), String> {
    // Compare each push with the take that began last, among the pushes that ended before this one.
    let both = pushes.values().filter_map(|push| {
        let (call, end) = went.get(push.element.as_str())?;
        Some((*push, *call, *end))
    });
    let both: Vec<(&Push, u64, u64)> = both.collect();
    let mut sure: Vec<_> =
        both.iter().filter(|(push, ..)| push.acknowledged_at.is_some()).collect();
    sure.sort_by_key(|(push, ..)| push.acknowledged_at);
    let mut begun: Vec<_> = both.iter().collect();
    begun.sort_by_key(|(push, ..)| push.called_at);
    let mut before = sure.into_iter().peekable();
    let mut latest: Option<&(&Push, u64, u64)> = None;
    for later in begun {
        while let Some(one) =
            before.next_if(|(push, ..)| push.acknowledged_at < Some(later.0.called_at))
        {
            if latest.is_none_or(|latest| latest.1 < one.1) {
                latest = Some(one);
            }
        }
        if let Some(earlier) = latest
            && later.2 < earlier.1
        {
            return Err(format!(
                "{} was pushed to queue {queue} before {}, which came out first",
                earlier.0.element, later.0.element
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(element: &str, call: u64, end: Option<u64>) -> Push {
        Push { queue_index: 0, element: element.to_owned(), called_at: call, acknowledged_at: end }
    }

    fn take(element: &str, call: u64, end: u64) -> Take {
        Take { queue_index: 0, element: element.to_owned(), called_at: call, returned_at: end }
    }

    /// Elements a, b and d are ordered; c is concurrent.
    fn history() -> History {
        History {
            pushes: vec![
                push("a", 0, Some(10)),
                push("b", 20, Some(30)),
                push("c", 5, None),
                push("d", 40, Some(50)),
            ],
            takes: vec![take("a", 0, 60), take("b", 0, 61)],
            unanswered_takes: vec![0],
            remaining: vec![vec!["d".to_owned()]],
        }
    }

    #[test]
    fn correct_history_is_accepted() {
        let sum = HistoryTotals {
            pushed_count: 3,
            taken_count: 2,
            remaining_count: 1,
            possibly_taken_count: 0,
        };
        assert_eq!(history().check(), Ok(sum));
        // An unanswered push may have taken effect.
        let mut more = history();
        more.takes.push(take("c", 0, 5));
        assert_eq!(more.check().unwrap().taken_count, 3);
        // Concurrent takes may have happened in any order.
        let mut mixed = history();
        mixed.takes = vec![take("b", 0, 60), take("a", 55, 61)];
        assert!(mixed.check().is_ok());
    }

    #[test]
    fn only_elements_of_unanswered_takes_may_be_missing() {
        let mut history = history();
        history.takes.pop();
        assert!(history.check().unwrap_err().contains("are lost"));
        history.unanswered_takes = vec![1];
        assert_eq!(history.check().unwrap().possibly_taken_count, 1);
        history.remaining = vec![Vec::new()];
        assert!(history.check().is_err());
    }

    #[test]
    fn elements_taken_out_of_order_are_detected() {
        let mut history = history();
        history.takes = vec![take("b", 0, 54), take("a", 55, 61)];
        assert!(history.check().unwrap_err().contains("came out first"));
        // Left-over elements must be in order as well.
        history.takes = vec![take("d", 0, 54)];
        history.remaining = vec![vec!["a".to_owned(), "b".to_owned()]];
        assert!(history.check().is_err());
        history.takes = vec![take("a", 0, 54)];
        history.remaining = vec![vec!["d".to_owned(), "b".to_owned()]];
        assert!(history.check().is_err());
    }

    #[test]
    fn falsified_histories_are_refused() {
        for lie in Falsification::ALL {
            let told = lie.inject_into(&history()).unwrap();
            assert!(told.check().is_err(), "{lie:?}");
        }
        assert_eq!(Falsification::TakenTwice.inject_into(&History::new(1)), None);
    }

    #[test]
    fn elements_taken_before_their_push_are_detected() {
        let mut early = history();
        early.takes.push(take("c", 0, 4));
        assert!(early.check().unwrap_err().contains("before it was pushed"));
        let mut other = history();
        other.takes.push(take("x", 0, 99));
        assert!(other.check().unwrap_err().contains("was never pushed"));
    }
}
