//! Judges the history of clients of queues.
//!
//! Each element is taken once, and never one that was not pushed; an element whose push was
//! acknowledged is taken or left, unless a take without an answer may have taken it; and of two
//! elements, one of which was pushed before the push of the other began, the later one is not taken
//! before the earlier one was asked for.

use std::collections::{BTreeMap, BTreeSet};

/// An element that was pushed, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// To which queue.
    pub queue: usize,
    /// Unique among all pushes.
    pub element: String,
    /// When it was asked for, in nanoseconds.
    pub call: u64,
    /// When it was acknowledged; `None`: there was no answer.
    pub end: Option<u64>,
}

/// An element that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// From which queue.
    pub queue: usize,
    /// Which one.
    pub element: String,
    /// When it was asked for, in nanoseconds.
    pub call: u64,
    /// When it came.
    pub end: u64,
}

/// All that clients saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Elements that came.
    pub pushes: Vec<Push>,
    /// Elements that went.
    pub takes: Vec<Take>,
    /// Commands to take an element that had no answer, of each queue.
    pub unanswered: Vec<u64>,
    /// Contents of each queue at the end, the oldest first.
    pub left: Vec<Vec<String>>,
}

/// Totals of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Acknowledged pushes.
    pub pushed: usize,
    /// Elements taken.
    pub taken: usize,
    /// Elements left.
    pub left: usize,
    /// Elements that commands without an answer took along.
    pub gone: usize,
}

/// A lie in a history: the judge must refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// An element is taken twice.
    Twice,
    /// Elements vanish, one more than may.
    Lost,
    /// The first element is taken last.
    Late,
    /// An element that was never pushed is taken.
    Invented,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Twice, Self::Lost, Self::Late, Self::Invented];

    /// The history with this lie; `None` if it is too short for it.
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
    /// Creates an empty history of some queues.
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

    /// Says what is wrong, or what there is.
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
        // What is left is taken last, one after the other.
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

/// First in, first out, as far as clients can tell: what lasts may happen at any moment while it
/// lasts.
fn in_order(
    queue: usize,
    pushes: &BTreeMap<&str, &Push>,
    went: &BTreeMap<&str, (u64, u64)>,
) -> Result<(), String> {
    // Those that were there in the order in which that was sure; each may not be asked for after a
    // later one came out.
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

    /// a before b before d; c is unordered.
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
    fn a_history_without_faults_is_taken() {
        let sum = Sum { pushed: 3, taken: 2, left: 1, gone: 0 };
        assert_eq!(history().judge(), Ok(sum));
        // A push without an answer may have been done.
        let mut more = history();
        more.takes.push(take("c", 0, 5));
        assert_eq!(more.judge().unwrap().taken, 3);
        // Answers that come at the same time may have been in any order.
        let mut mixed = history();
        mixed.takes = vec![take("b", 0, 60), take("a", 55, 61)];
        assert!(mixed.judge().is_ok());
    }

    #[test]
    fn what_went_away_with_a_client_may_be_missing_and_nothing_else() {
        let mut history = history();
        history.takes.pop();
        assert!(history.judge().unwrap_err().contains("are lost"));
        history.unanswered = vec![1];
        assert_eq!(history.judge().unwrap().gone, 1);
        history.left = vec![Vec::new()];
        assert!(history.judge().is_err());
    }

    #[test]
    fn the_later_one_does_not_come_out_first() {
        let mut history = history();
        history.takes = vec![take("b", 0, 54), take("a", 55, 61)];
        assert!(history.judge().unwrap_err().contains("came out first"));
        // In the order of what is left.
        history.takes = vec![take("d", 0, 54)];
        history.left = vec![vec!["a".to_owned(), "b".to_owned()]];
        assert!(history.judge().is_err());
        history.takes = vec![take("a", 0, 54)];
        history.left = vec![vec!["d".to_owned(), "b".to_owned()]];
        assert!(history.judge().is_err());
    }

    #[test]
    fn lies_are_refused() {
        for lie in Lie::ALL {
            let told = lie.told_in(&history()).unwrap();
            assert!(told.judge().is_err(), "{lie:?}");
        }
        assert_eq!(Lie::Twice.told_in(&History::new(1)), None);
    }

    #[test]
    fn nothing_comes_out_that_was_not_in() {
        let mut early = history();
        early.takes.push(take("c", 0, 4));
        assert!(early.judge().unwrap_err().contains("before it was pushed"));
        let mut other = history();
        other.takes.push(take("x", 0, 99));
        assert!(other.judge().unwrap_err().contains("was never pushed"));
    }
}
