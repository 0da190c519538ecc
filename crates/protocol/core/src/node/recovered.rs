//! Initial state of a node, recovered from the log or newly founded.

use alloc::vec::Vec;

use crate::{
    configuration::Configuration,
    lost::LostSlots,
    message::Extent,
    reconfigure::{self, Eras},
    record::HardState,
    slot::{Slot, SlotRange},
    value::Value,
};

/// State recovered from the log. [`Recovered::for_new_node`] creates the state of a node that has
/// never run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// Hard state restated by the last log write. Everything below `hard_state.decided_to` was
    /// decided on this node, and the votes for those slots are dropped.
    pub hard_state: HardState,
    /// First slot of the log. A snapshot covers the slots below.
    pub log_start: Slot,
    /// Every slot below this one is decided, with its value on this node. Equal to
    /// `hard_state.decided_to`, or to the first lost slot ([disk-8]).
    pub decided_to: Slot,
    /// Slots that this node had decided and must learn again.
    pub lost_slots: LostSlots,
    /// The configuration in force at `decided_to`, its era, and the previous configuration.
    pub eras: Eras,
    /// Votes from `hard_state.decided_to` onwards, in slot order. Each slot has the vote of its
    /// highest ballot.
    pub votes: Vec<Extent>,
    /// Reconfigurations in the log from `log_start` to `decided_to`.
    pub reconfigurations: Vec<(Slot, Value)>,
    /// No snapshot covers the slots below `log_start`, because this node forgot them as an
    /// auxiliary. `eras` are the eras that it knew then.
    pub hollow: bool,
}

impl Recovered {
    /// Returns the state that results from a log that starts at `log_start`. `base` are the eras at
    /// that slot: the founding ones, or those of the snapshot that covers the slots below.
    /// `changes` are the reconfigurations that the log holds below `hard.decided_to`, in order.
    /// `lost` are the slots below `hard.decided_to` that the log has lost.
    ///
    /// [snap-3] Arguments about slots below `log_start` are ignored. A node that crashed right
    /// after it installed a snapshot finds an older hard state, and the snapshot takes precedence.
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
            hard_state: hard,
            log_start,
            decided_to,
            eras: reconfigure::replay(base, &before),
            reconfigurations: before,
            lost_slots: LostSlots::new(lost, changes, hard.decided_to),
            votes,
            hollow: false,
        }
    }

    /// Converts this state into that of an auxiliary whose log has no snapshot below its start
    /// ([trim-1]). `known` replaces the eras. The reconfigurations in the log need not follow them
    /// directly.
    pub fn hollow(mut self, known: Eras) -> Self {
        self.hollow = true;
        self.eras = known;
        self
    }

    /// Returns the state of a new node at the beginning of the log, with the founding configuration
    /// ([era-11]).
    pub fn for_new_node(configuration: Configuration) -> Self {
        let hard =
            HardState { decided_to: Slot::FIRST, voted_to: Slot::FIRST, ..HardState::default() };
        Self {
            hard_state: hard,
            log_start: Slot::FIRST,
            decided_to: Slot::FIRST,
            lost_slots: LostSlots::default(),
            eras: Eras::founded(configuration),
            votes: Vec::new(),
            reconfigurations: Vec::new(),
            hollow: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ballot::Era, class::Class, configuration::Change, node_id::Member};

    /// [snap-3] If a node crashes right after it installed a snapshot, the log is older, and the
    /// snapshot takes precedence.
    #[test]
    fn snapshot_takes_precedence_over_an_older_log() {
        let change = |era| Value::Reconfigure { era: Era(era), change: Change::Multiply(2) };
        let founding = Configuration::majority_of([1, 2, 3].map(Member::first), Class::Durable);
        let mut base = Eras::founded(founding.expect("three members"));
        base.apply_decided(Slot(20), &change(0));
        base.apply_decided(Slot(30), &change(1));
        let hard = |to| HardState { decided_to: Slot(to), ..HardState::default() };
        let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
        // The reconfiguration in slot 40 is below the snapshot, and was never decided there.
        let changes = [(Slot(40), change(2)), (Slot(60), change(2))];
        let (start, of) = (Slot(50), |to, lost| {
            let changes = changes.to_vec();
            Recovered::replayed(hard(to), Slot(50), base.clone(), changes, lost, Vec::new())
        });
        let before = of(10, [slots(4, 6)].to_vec());
        assert_eq!((before.hard_state.decided_to, before.decided_to), (start, start));
        assert_eq!(before.eras.era(), Era(2));
        assert!(before.lost_slots.is_empty());
        let behind = of(70, [slots(45, 52)].to_vec());
        assert_eq!((behind.decided_to, behind.eras.era()), (start, Era(2)));
        assert_eq!(behind.lost_slots.slots(), 2);
        let whole = of(70, Vec::new());
        assert_eq!((whole.decided_to, whole.eras.era()), (Slot(70), Era(3)));
        assert_eq!(whole.eras.era_start(), Slot(61));
    }
}
