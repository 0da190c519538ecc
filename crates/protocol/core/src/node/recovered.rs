//! Initial state of a node: recovered from the log, or empty.

use alloc::vec::Vec;

use crate::{
    configuration::Configuration,
    lost::Lost,
    message::Extent,
    reconfigure::{self, Eras},
    record::HardState,
    slot::{Slot, SlotRange},
    value::Value,
};

/// State recovered from the log. [`Recovered::founded`] is a node that has never run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// As restated by the last log write. Below `hard.decided_to` everything was decided here, and
    /// votes are forgotten.
    pub hard: HardState,
    /// The first slot of the log; a snapshot stands for what is below.
    pub log_start: Slot,
    /// Slots below are decided, and their values are here: `hard.decided_to`, or the first slot
    /// that is lost ([disk-8]).
    pub decided_to: Slot,
    /// Slots that were decided here and must be learned again.
    pub lost: Lost,
    /// The configuration in force at `decided_to`, its era, and the one before it.
    pub eras: Eras,
    /// Votes from `hard.decided_to` on, in slot order; the highest ballot per slot.
    pub votes: Vec<Extent>,
    /// The reconfigurations that it holds from `log_start` to `decided_to`.
    pub changes: Vec<(Slot, Value)>,
    /// Nothing stands for what is below `log_start`: this node forgot it as an auxiliary, and
    /// `eras` are those that it knew then.
    pub hollow: bool,
}

impl Recovered {
    /// Returns the state that a log from `log_start` on leads to. `base` are the eras there: of the
    /// founding, or of the snapshot that stands for what is below. `changes` are the
    /// reconfigurations that the log holds below `hard.decided_to`, in order; `lost` the slots
    /// there that it has lost.
    ///
    /// [snap-3] Anything in the arguments about slots below `log_start` is ignored. A node that
    /// crashed when it had just installed a snapshot finds an older hard state: the snapshot
    /// counts.
    pub fn replayed(
        mut hard: HardState,
        log_start: Slot,
        base: Eras,
        mut changes: Vec<(Slot, Value)>,
        lost: Vec<SlotRange>,
        votes: Vec<Extent>,
    ) -> Self {
        hard.decided_to = hard.decided_to.max(log_start);
        changes.retain(|(slot, _)| *slot >= log_start);
        let log = SlotRange::new(log_start, hard.decided_to);
        let lost: Vec<SlotRange> = lost
            .into_iter()
            .map(|range| range.intersect(log))
            .filter(|range| !range.is_empty())
            .collect();
        let decided_to = lost.first().map_or(hard.decided_to, |range| range.from);
        let before = changes.iter().filter(|(slot, _)| *slot < decided_to);
        let before: Vec<(Slot, Value)> = before.copied().collect();
        Self {
            hard,
            log_start,
            decided_to,
            eras: reconfigure::replay(base, &before),
            changes: before,
            lost: Lost::new(lost, changes, hard.decided_to),
            votes,
            hollow: false,
        }
    }

    /// Returns the same for an auxiliary's log, with nothing in place of what was below its start
    /// ([trim-1]): the changes that it holds are not the next to `known`.
    pub fn hollow(mut self, known: Eras) -> Self {
        self.hollow = true;
        self.eras = known;
        self
    }

    /// Creates a node at the beginning of the log, with the founding configuration ([era-11]).
    pub fn founded(configuration: Configuration) -> Self {
        let hard =
            HardState { decided_to: Slot::FIRST, voted_to: Slot::FIRST, ..HardState::default() };
        Self {
            hard,
            log_start: Slot::FIRST,
            decided_to: Slot::FIRST,
            lost: Lost::default(),
            eras: Eras::founded(configuration),
            votes: Vec::new(),
            changes: Vec::new(),
            hollow: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ballot::Era, class::Class, configuration::Change, node_id::Member};

    /// [snap-3] A node crashed when it had just installed a snapshot: its log is older.
    #[test]
    fn snapshot_counts_whatever_the_log_says_of_before() {
        let change = |era| Value::Reconfigure { era: Era(era), change: Change::Multiply(2) };
        let founding = Configuration::simple([1, 2, 3].map(Member::first), Class::Durable);
        let mut base = Eras::founded(founding.expect("three members"));
        base.decide(Slot(20), &change(0));
        base.decide(Slot(30), &change(1));
        let hard = |to| HardState { decided_to: Slot(to), ..HardState::default() };
        let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
        // The change of era 2 is below the snapshot, undecided, and was never decided there.
        let changes = [(Slot(40), change(2)), (Slot(60), change(2))];
        let (start, of) = (Slot(50), |to, lost| {
            let changes = changes.to_vec();
            Recovered::replayed(hard(to), Slot(50), base.clone(), changes, lost, Vec::new())
        });
        let before = of(10, [slots(4, 6)].to_vec());
        assert_eq!((before.hard.decided_to, before.decided_to), (start, start));
        assert_eq!(before.eras.era(), Era(2));
        assert!(before.lost.is_empty());
        let behind = of(70, [slots(45, 52)].to_vec());
        assert_eq!((behind.decided_to, behind.eras.era()), (start, Era(2)));
        assert_eq!(behind.lost.slots(), 2);
        let whole = of(70, Vec::new());
        assert_eq!((whole.decided_to, whole.eras.era()), (Slot(70), Era(3)));
        assert_eq!(whole.eras.since(), Slot(61));
    }
}
