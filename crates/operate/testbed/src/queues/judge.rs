//! Checker for the history recorded by queue clients.
//!
//! Each element is taken at most once, and only if it was pushed. An acknowledged element is either
//! taken or left over, unless a take without a reply may have removed it. If one push ended before
//! another began, the later element is not taken before the take of the earlier one began.

use std::collections::{BTreeMap, BTreeSet};

/// A push that took effect, or may have taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub queue: usize,
    /// Pushed element, unique among all pushes.
    pub element: String,
    /// Time at which the command was sent, in nanoseconds.
    pub call: u64,
    /// Time of the acknowledgement; `None` if there was no reply.
    pub end: Option<u64>,
}

/// A take that returned an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    pub queue: usize,
    pub element: String,
    /// Time at which the command was sent, in nanoseconds.
    pub call: u64,
    pub end: u64,
}

/// Pushes, takes and final contents, as observed by the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Pushes that were not refused.
    pub pushes: Vec<Push>,
    pub takes: Vec<Take>,
    /// Number of take commands without a reply, for each queue.
    pub unanswered: Vec<u64>,
    /// Final contents of each queue, oldest element first.
    pub left: Vec<Vec<String>>,
}

/// Totals of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of acknowledged pushes.
    pub pushed: usize,
    pub taken: usize,
    pub left: usize,
    /// Number of acknowledged elements that takes without a reply may have removed.
    pub gone: usize,
}

/// A fault to inject into a history, which the checker must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falsification {
    /// An element is taken twice.
    Twice,
    /// More elements are lost than takes without a reply can explain.
    Lost,
    /// The element that was pushed first is taken last.
    Late,
    /// An element is taken that was never pushed.
    Invented,
}

impl Falsification {
    pub const ALL: [Self; 4] = [Self::Twice, Self::Lost, Self::Late, Self::Invented];

    /// Returns a copy of the history with the fault injected, unless the history is too short.
    pub fn told_in(self, history: &History) -> Option<History> {
        let mut told = history.clone();
        let last = told.takes.iter().max_by_key(|take| take.end)?.clone();
        match self {
            Self::Twice => told.takes.push(Take { call: last.end + 1, end: last.end + 2, ..last }),
            Self::Lost => {
                let acknowledged: BTreeSet<String> = told.acknowledged(last.queue);
                let mut more = told.unanswered.get(last.queue)? + 1;
                told.takes.retain(|take| {
                    let lost = more > 0 && acknowledged.contains(&take.element);
                    more -= u64::from(lost);
                    !lost
                });
                if more > 0 {
                    return None;
                }
            }
            Self::Late => {
                let pushes = told.pushes.iter();
                let pushes = pushes.filter(|push| push.queue == last.queue && push.end.is_some());
                let first = pushes.min_by_key(|push| push.end)?.element.clone();
                let mut takes = told.takes.iter_mut();
                let take = takes.find(|take| take.element == first)?;
                (take.call, take.end) = (last.end + 1, last.end + 2);
            }
            Self::Invented => told.takes.push(Take { element: "never-pushed".to_owned(), ..last }),
        }
        Some(told)
    }
}

impl History {
    pub fn new(queues: usize) -> Self {
        Self { unanswered: vec![0; queues], left: vec![Vec::new(); queues], ..Self::default() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.pushes.extend(other.pushes);
        self.takes.extend(other.takes);
        for (all, more) in self.unanswered.iter_mut().zip(other.unanswered) {
            *all += more;
        }
    }

    fn acknowledged(&self, queue: usize) -> BTreeSet<String> {
        let of = self.pushes.iter().filter(|push| push.queue == queue);
        let known = of.filter(|push| push.end.is_some());
        known.map(|push| push.element.clone()).collect()
    }

    /// Checks the history. Returns its totals, or an error that describes the first violation.
    pub fn judge(&self) -> Result<Sum, String> {
        let mut sum = Sum::default();
        for queue in 0..self.unanswered.len() {
            let one = self.judge_one(queue)?;
            sum.pushed += one.pushed;
            sum.taken += one.taken;
            sum.left += one.left;
            sum.gone += one.gone;
        }
        Ok(sum)
    }

    fn judge_one(&self, queue: usize) -> Result<Sum, String> {
        let of_queue = self.pushes.iter().filter(|push| push.queue == queue);
        let pushes: BTreeMap<&str, &Push> =
            of_queue.map(|push| (push.element.as_str(), push)).collect();
        // Treat the elements left over as if they were taken last, one by one.
        let last = self.takes.iter().map(|take| take.end).max().unwrap_or(0);
        let left = self.left.get(queue).into_iter().flatten();
        let left = (last + 1..).zip(left).map(|(at, element)| (element, at, at));
        let takes = self.takes.iter().filter(|take| take.queue == queue);
        let takes = takes.map(|take| (&take.element, take.call, take.end));
        let mut went: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (element, call, end) in takes.chain(left) {
            let Some(push) = pushes.get(element.as_str()) else {
                return Err(format!("{element} came out of queue {queue}, but was never pushed"));
            };
            if end < push.call {
                return Err(format!("{element} was taken before it was pushed"));
            }
            if went.insert(element, (call, end)).is_some() {
                return Err(format!("{element} came out of queue {queue} twice"));
            }
        }
        let known = pushes.values().filter(|push| push.end.is_some());
        let missing: Vec<&str> = known
            .clone()
            .map(|push| push.element.as_str())
            .filter(|element| !went.contains_key(element))
            .collect();
        let may_miss = self.unanswered[queue];
        if missing.len() as u64 > may_miss {
            return Err(format!(
                "{} elements of queue {queue} are lost, and {may_miss} commands had no answer: {missing:?}",
                missing.len()
            ));
        }
        in_order(queue, &pushes, &went)?;
        let left = self.left.get(queue).map_or(0, Vec::len);
        Ok(Sum { pushed: known.count(), taken: went.len() - left, left, gone: missing.len() })
    }
}

/// Checks that elements are taken in the order in which they were pushed. An operation may take
/// effect at any time between its start and its end.
fn in_order(
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
    let mut sure: Vec<_> = both.iter().filter(|(push, ..)| push.end.is_some()).collect();
    sure.sort_by_key(|(push, ..)| push.end);
    let mut begun: Vec<_> = both.iter().collect();
    begun.sort_by_key(|(push, ..)| push.call);
    let mut before = sure.into_iter().peekable();
    let mut latest: Option<&(&Push, u64, u64)> = None;
    for later in begun {
        while let Some(one) = before.next_if(|(push, ..)| push.end < Some(later.0.call)) {
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
        Push { queue: 0, element: element.to_owned(), call, end }
    }

    fn take(element: &str, call: u64, end: u64) -> Take {
        Take { queue: 0, element: element.to_owned(), call, end }
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
            unanswered: vec![0],
            left: vec![vec!["d".to_owned()]],
        }
    }

    #[test]
    fn correct_history_is_accepted() {
        let sum = Sum { pushed: 3, taken: 2, left: 1, gone: 0 };
        assert_eq!(history().judge(), Ok(sum));
        // An unanswered push may have taken effect.
        let mut more = history();
        more.takes.push(take("c", 0, 5));
        assert_eq!(more.judge().unwrap().taken, 3);
        // Concurrent takes may have happened in any order.
        let mut mixed = history();
        mixed.takes = vec![take("b", 0, 60), take("a", 55, 61)];
        assert!(mixed.judge().is_ok());
    }

    #[test]
    fn only_elements_of_unanswered_takes_may_be_missing() {
        let mut history = history();
        history.takes.pop();
        assert!(history.judge().unwrap_err().contains("are lost"));
        history.unanswered = vec![1];
        assert_eq!(history.judge().unwrap().gone, 1);
        history.left = vec![Vec::new()];
        assert!(history.judge().is_err());
    }

    #[test]
    fn elements_taken_out_of_order_are_detected() {
        let mut history = history();
        history.takes = vec![take("b", 0, 54), take("a", 55, 61)];
        assert!(history.judge().unwrap_err().contains("came out first"));
        // Left-over elements must be in order as well.
        history.takes = vec![take("d", 0, 54)];
        history.left = vec![vec!["a".to_owned(), "b".to_owned()]];
        assert!(history.judge().is_err());
        history.takes = vec![take("a", 0, 54)];
        history.left = vec![vec!["d".to_owned(), "b".to_owned()]];
        assert!(history.judge().is_err());
    }

    #[test]
    fn falsified_histories_are_refused() {
        for lie in Falsification::ALL {
            let told = lie.told_in(&history()).unwrap();
            assert!(told.judge().is_err(), "{lie:?}");
        }
        assert_eq!(Falsification::Twice.told_in(&History::new(1)), None);
    }

    #[test]
    fn elements_taken_before_their_push_are_detected() {
        let mut early = history();
        early.takes.push(take("c", 0, 4));
        assert!(early.judge().unwrap_err().contains("before it was pushed"));
        let mut other = history();
        other.takes.push(take("x", 0, 99));
        assert!(other.judge().unwrap_err().contains("was never pushed"));
    }
}
