//! Health of the service and its consequences. The node votes even if the service fails.

use quorate_core::{slot::Slot, time::Time};

use crate::{observing::events::Event, ports::service::Health};

/// Interval in milliseconds at which a service that accepts no commands is checked again.
const TEND_MS: u64 = 5;
/// Reason reported for a service that has just failed.
const FAILED: &str = "the service failed";

/// Result of the last health check of the service.
#[derive(Debug)]
pub(crate) struct Condition {
    health: Health,
    /// The service itself reported that it accepts commands.
    said_takes: bool,
    /// Error of the service while reading its state after a restart; `None` if it was read.
    unreadable: Option<String>,
    /// Progress of a snapshot that the service loads or waits for.
    loading: Option<String>,
    /// [differ-2] Reason to suspect that the service's state is wrong; `None` without suspicion.
    doubt: Option<String>,
    /// Clients have seen effects of slots below this one, and must not see an older state.
    seen_by_clients_to: Slot,
    /// Last reported kind of trouble (none, strained, stuck, down, or in doubt).
    last_reported: u8,
}

impl Condition {
    pub(super) fn new() -> Self {
        Self {
            health: Health::Well,
            said_takes: true,
            unreadable: None,
            loading: None,
            doubt: None,
            seen_by_clients_to: Slot::FIRST,
            last_reported: 0,
        }
    }

    pub(super) fn set(&mut self, health: Health) {
        self.said_takes = matches!(health, Health::Well | Health::Strained(_));
        self.health = match self.unreadable.as_ref().or(self.loading.as_ref()) {
            Some(why) => Health::Down(why.clone()),
            None => health,
        };
    }

    pub(crate) fn set_loading(&mut self, why: String) {
        self.health = Health::Down(why.clone());
        self.loading = Some(why);
    }

    /// Sets the reason to doubt the state, if there is one. Commands are applied in either case.
    pub(crate) fn set_doubt(&mut self, why: Option<String>) {
        self.doubt = why;
    }

    pub(crate) fn doubt_reason(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    pub(super) fn set_loaded(&mut self) {
        self.loading = None;
    }

    /// Marks the service as failed. Clients may have seen the effects of slots below `heard_to`.
    pub(super) fn fail(&mut self, heard_to: Slot) {
        self.record_seen_by_clients(heard_to);
        self.set(Health::Down(FAILED.to_owned()));
    }

    /// Records that clients have seen effects of slots below `to`.
    pub(super) fn record_seen_by_clients(&mut self, to: Slot) {
        self.seen_by_clients_to = self.seen_by_clients_to.max(to);
    }

    /// Marks the service as permanently down, because it restarted with unreadable state.
    pub(super) fn set_unreadable(&mut self, why: String) {
        self.unreadable = Some(why);
    }

    /// Returns whether the service itself accepts commands, or a snapshot that it loads.
    pub(super) fn said_takes(&self) -> bool {
        self.said_takes
    }

    /// Returns whether commands may be applied.
    pub(crate) fn takes(&self) -> bool {
        matches!(self.health, Health::Well | Health::Strained(_))
    }

    /// Returns whether queries may run: the service works, and clients have seen no later state.
    pub(crate) fn answers(&self, applied_to: Slot) -> bool {
        !self.is_down() && applied_to >= self.seen_by_clients_to
    }

    /// Returns whether the service can neither answer queries nor accept commands.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.health, Health::Down(_))
    }

    /// Returns whether the service accepts no commands, possibly for a long time.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self.health, Health::Stuck(_) | Health::Down(_))
    }

    /// Returns why the service is about to stop accepting commands, if it still accepts them.
    pub(crate) fn strain(&self) -> Option<&str> {
        match &self.health {
            Health::Strained(why) => Some(why),
            _ => None,
        }
    }

    /// Returns why the service does not work normally, given that all slots below `applied_to` are
    /// applied.
    pub(crate) fn trouble(&self, applied_to: Slot) -> Option<String> {
        match &self.health {
            Health::Stuck(why) | Health::Down(why) => Some(why.clone()),
            _ if self.doubt.is_some() => self.doubt.clone(),
            Health::Well | Health::Strained(_) | Health::Behind | Health::Back(_) => {
                let (at, to) = (applied_to, self.seen_by_clients_to);
                (at < to).then(|| format!("the service began again: at slot {at} of {to}"))
            }
        }
    }

    pub(crate) fn news(&mut self, applied_to: Slot) -> Option<Event> {
        let kind = match self.health {
            Health::Stuck(_) => 2,
            Health::Down(_) => 3,
            _ if self.doubt.is_some() => 4,
            Health::Well | Health::Behind | Health::Back(_) => 0,
            Health::Strained(_) => 1,
        };
        if kind == self.last_reported {
            return None;
        }
        self.last_reported = kind;
        let strain = || self.strain().map(ToOwned::to_owned);
        let trouble = self.trouble(applied_to).or_else(strain).filter(|_| kind > 0);
        Some(match trouble {
            Some(why) => Event::ServiceTrouble { why },
            None => Event::ServiceWell,
        })
    }

    /// Returns when to check the service again.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        (!self.takes()).then(|| now.plus_ms(TEND_MS))
    }
}
