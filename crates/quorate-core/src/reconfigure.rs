//! Eras taking effect: a pure function of the decided prefix ([era-2]).

use crate::{
    ballot::{Ballot, Era},
    configuration::Configuration,
    slot::Slot,
    value::Value,
};

/// The configurations that still judge anything: the one in force, and the one before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eras {
    era: Era,
    current: Configuration,
    previous: Option<Configuration>,
}

impl Eras {
    /// As recovered.
    pub fn new(era: Era, current: Configuration, previous: Option<Configuration>) -> Self {
        Self {
            era,
            current,
            previous,
        }
    }

    /// The slot era of the first undecided slot ([era-3]).
    pub fn era(&self) -> Era {
        self.era
    }

    /// The configuration of that era.
    pub fn current(&self) -> &Configuration {
        &self.current
    }

    /// The configuration of the era before, while it is remembered.
    pub fn previous(&self) -> Option<&Configuration> {
        self.previous.as_ref()
    }

    /// C(era), if it is in force or was until the last change.
    pub fn of(&self, era: Era) -> Option<&Configuration> {
        if era == self.era {
            Some(&self.current)
        } else if era.next() == self.era {
            self.previous.as_ref()
        } else {
            None
        }
    }

    /// [era-5] Whether votes of this ballot count in the first undecided slot. No others, and why
    /// that is enough: [era-7].
    pub fn counts(&self, ballot: Ballot) -> bool {
        ballot.era == self.era || ballot.era.next() == self.era
    }

    /// [era-2] A value is decided in the first undecided slot. Returns whether an era begins
    /// behind it. An invalid change, or one that names another era, is a no-op.
    pub fn decide(&mut self, value: &Value) -> bool {
        let Value::Reconfigure { era, change } = *value else {
            return false;
        };
        if era != self.era {
            return false;
        }
        let Ok(next) = self.current.changed(change) else {
            return false;
        };
        self.previous = Some(core::mem::replace(&mut self.current, next));
        self.era = self.era.next();
        true
    }
}

/// The eras of a whole log, from its decided reconfigurations; used by recovery.
pub fn replay<'a>(
    founding: Configuration,
    decided: impl IntoIterator<Item = &'a (Slot, Value)>,
) -> Eras {
    let mut eras = Eras::new(Era(0), founding, None);
    for (_, value) in decided {
        eras.decide(value);
    }
    eras
}
