//! How the service is, and what follows for the node: it goes on voting whatever happens to its store.

use quorate_core::{effect::Role, input::Input, time::Time};
use quorate_disk::Disk;

use crate::{
    applying::applier::Applier,
    front::Failure,
    observing::events::Event,
    replica::Replica,
    service::{Health, StateMachine},
};

/// A service that takes no commands is asked again after this.
const TEND_MS: u64 = 5;
/// A leader whose service is down hands over; if that failed, or nobody better leads, not at once again.
const HAND_OVER_MS: u64 = 10_000;

/// What the last look at the service said.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    /// Which kind of trouble was told: none, strained, stuck, down.
    told: u8,
    hand_over_at: Time,
}

impl<S: StateMachine> Applier<S> {
    /// Whether commands may be applied.
    pub(crate) fn takes(&self) -> bool {
        matches!(self.health, Health::Well | Health::Strained(_))
    }

    /// Whether queries may be asked: of a state that is not older than what this process has told.
    pub(crate) fn answers(&self) -> bool {
        !self.is_down() && self.applied_to() >= self.heard_to
    }

    /// Whether the service can neither answer nor take commands.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.health, Health::Down(_))
    }

    /// Whether it takes no commands, for long perhaps.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self.health, Health::Stuck(_) | Health::Down(_))
    }

    /// What will stop it, and has not yet.
    pub(crate) fn strain(&self) -> Option<&str> {
        match &self.health {
            Health::Strained(why) => Some(why),
            _ => None,
        }
    }

    /// Why it does not serve as it should.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.health {
            Health::Stuck(why) | Health::Down(why) => Some(why.clone()),
            Health::Well | Health::Strained(_) | Health::Behind | Health::Back(_) => {
                let (at, to) = (self.applied_to(), self.heard_to);
                (at < to).then(|| format!("the service began again: at slot {at} of {to}"))
            }
        }
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Looks after the service.
    pub(crate) fn tend(&mut self, now: Time) {
        if let Some(note) = self.applier.tend() {
            self.events.push(Event::ServiceBack { why: note });
        }
        self.tell_news();
        if !self.applier.is_stuck() {
            return;
        }
        // What is decided is in the log, and is read from there when it can be applied: what is held
        // for that must not keep this node from voting.
        self.payloads.unpin_below(self.node.decided_to());
        let leads = self.role == Role::Leader && !self.peers.is_empty();
        if leads && self.applier.is_down() && now >= self.tended.hand_over_at {
            // A leader makes time pass for the service, which this one cannot.
            self.tended.hand_over_at = now.plus_ms(HAND_OVER_MS);
            self.inbox.push_back(Input::Transfer { to: None });
        }
    }

    fn tell_news(&mut self) {
        let kind = match self.applier.health {
            Health::Well | Health::Behind | Health::Back(_) => 0,
            Health::Strained(_) => 1,
            Health::Stuck(_) => 2,
            Health::Down(_) => 3,
        };
        if kind == self.tended.told {
            return;
        }
        self.tended.told = kind;
        let strain = || self.applier.strain().map(ToOwned::to_owned);
        let trouble = self.applier.trouble().or_else(strain).filter(|_| kind > 0);
        self.events.push(match trouble {
            Some(why) => Event::ServiceTrouble { why },
            None => Event::ServiceWell,
        });
    }

    /// When the service is to be asked again.
    pub(crate) fn tend_at(&self, now: Time) -> Option<Time> {
        (!self.applier.takes()).then(|| now.plus_ms(TEND_MS))
    }

    /// Whether clients' commands can be executed here.
    pub(crate) fn takes_commands(&self) -> Result<(), Failure> {
        if self.applier.is_stuck() {
            Err(Failure::Unavailable)
        } else {
            Ok(())
        }
    }

    /// Whether clients' questions can be answered here.
    pub(crate) fn takes_reads(&self) -> Result<(), Failure> {
        if self.applier.is_down() {
            Err(Failure::Unavailable)
        } else {
            Ok(())
        }
    }
}
