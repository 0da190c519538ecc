//! What a node begins with: what the log gave back, or nothing.

use alloc::vec::Vec;

use crate::{
    ballot::Era,
    configuration::Configuration,
    lost::Lost,
    message::Extent,
    reconfigure,
    record::HardState,
    slot::{Slot, SlotRange},
    value::Value,
};

/// What the log gave back. [`Recovered::founded`] is a node that has never run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// As restated by the last log write. Below `hard.decided_to` everything was decided here, and
    /// votes are forgotten.
    pub hard: HardState,
    /// Slots below are decided, and their values are here: `hard.decided_to`, or the first slot
    /// that is lost ([disk-8]).
    pub decided_to: Slot,
    /// What was decided here and must be learned again.
    pub lost: Lost,
    /// The configuration in force at `decided_to`.
    pub configuration: Configuration,
    /// The era of that configuration.
    pub era: Era,
    /// The configuration before it, for ballots of the era before.
    pub previous: Option<Configuration>,
    /// Votes from `hard.decided_to` on, in slot order; the highest ballot per slot.
    pub votes: Vec<Extent>,
}

impl Recovered {
    /// What a log from the founding on leads to: `changes` are the reconfigurations that it holds
    /// below `hard.decided_to`, in order; `lost` the slots there that it has lost.
    pub fn replayed(
        hard: HardState,
        founding: Configuration,
        changes: Vec<(Slot, Value)>,
        lost: Vec<SlotRange>,
        votes: Vec<Extent>,
    ) -> Self {
        let decided_to = lost.first().map_or(hard.decided_to, |range| range.from);
        let before = changes.iter().filter(|(slot, _)| *slot < decided_to);
        let eras = reconfigure::replay(founding, before);
        Self {
            hard,
            decided_to,
            lost: Lost::new(lost, changes, hard.decided_to),
            configuration: eras.current().clone(),
            era: eras.era(),
            previous: eras.previous().cloned(),
            votes,
        }
    }

    /// A node at the beginning of the log, with the founding configuration ([era-11]).
    pub fn founded(configuration: Configuration) -> Self {
        let hard = HardState {
            decided_to: Slot::FIRST,
            voted_to: Slot::FIRST,
            ..HardState::default()
        };
        Self {
            hard,
            decided_to: Slot::FIRST,
            lost: Lost::default(),
            configuration,
            era: Era(0),
            previous: None,
            votes: Vec::new(),
        }
    }
}
