//! Health of the service and its consequences. The node votes even if the service fails.

use quorate_core::{slot::Slot, time::Time};

use crate::{observing::events::Event, ports::service::Health};

/// Interval in milliseconds at which a service that accepts no commands is checked again.
const HEALTH_CHECK_INTERVAL_MS: u64 = 5;
/// Reason reported for a service that has just failed.
const FAILED_REASON: &str = "the service failed";

/// Result of the last health check of the service.
#[derive(Debug)]
pub(crate) struct ServiceCondition {
    health: Health,
    /// The service itself reported that it accepts commands.
    service_accepts_commands: bool,
    /// Error of the service while reading its state after a restart; `None` if it was read.
    read_error: Option<String>,
    /// Progress of a snapshot that the service loads or waits for.
    load_progress: Option<String>,
    /// [differ-2] Reason to suspect that the service's state is wrong; `None` without suspicion.
    doubt_reason: Option<String>,
    /// Clients have seen effects of slots below this one, and must not see an older state.
    seen_by_clients_to: Slot,
    /// Last reported kind of trouble (none, strained, stuck, down, or in doubt).
    last_reported_trouble: u8,
}

impl ServiceCondition {
    pub(super) fn new() -> Self {
        Self {
            health: Health::Well,
            service_accepts_commands: true,
            read_error: None,
            load_progress: None,
            doubt_reason: None,
            seen_by_clients_to: Slot::FIRST,
            last_reported_trouble: 0,
        }
    }

    pub(super) fn set(&mut self, health: Health) {
        self.service_accepts_commands = matches!(health, Health::Well | Health::Strained(_));
        self.health = match self.read_error.as_ref().or(self.load_progress.as_ref()) {
            Some(why) => Health::Down(why.clone()),
            None => health,
        };
    }

    pub(crate) fn set_loading(&mut self, why: String) {
        self.health = Health::Down(why.clone());
        self.load_progress = Some(why);
    }

    /// Sets the reason to doubt the state, if there is one. Commands are applied in either case.
    pub(crate) fn set_doubt(&mut self, why: Option<String>) {
        self.doubt_reason = why;
    }

    pub(crate) fn doubt_reason(&self) -> Option<&str> {
        self.doubt_reason.as_deref()
    }

    pub(super) fn set_loaded(&mut self) {
        self.load_progress = None;
    }

    /// Marks the service as failed. Clients may have seen the effects of slots below `heard_to`.
    pub(super) fn mark_failed(&mut self, heard_to: Slot) {
        self.record_seen_by_clients(heard_to);
        self.set(Health::Down(FAILED_REASON.to_owned()));
    }

    /// Records that clients have seen effects of slots below `to`.
    pub(super) fn record_seen_by_clients(&mut self, to: Slot) {
        self.seen_by_clients_to = self.seen_by_clients_to.max(to);
    }

    /// Marks the service as permanently down, because it restarted with unreadable state.
    pub(super) fn set_unreadable(&mut self, why: String) {
        self.read_error = Some(why);
    }

    /// Returns whether the service itself accepts commands, or a snapshot that it loads.
    pub(super) fn service_accepts_commands(&self) -> bool {
        self.service_accepts_commands
    }

    /// Returns whether commands may be applied.
    pub(crate) fn accepts_commands(&self) -> bool {
        matches!(self.health, Health::Well | Health::Strained(_))
    }

    /// Returns whether queries may run: the service works, and clients have seen no later state.
    pub(crate) fn can_answer_queries(&self, applied_to: Slot) -> bool {
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
    pub(crate) fn strain_reason(&self) -> Option<&str> {
        match &self.health {
            Health::Strained(why) => Some(why),
            _ => None,
        }
    }

    /// Returns why the service does not work normally, given that all slots below `applied_to` are
    /// applied.
    pub(crate) fn trouble_reason(&self, applied_to: Slot) -> Option<String> {
        match &self.health {
            Health::Stuck(why) | Health::Down(why) => Some(why.clone()),
            _ if self.doubt_reason.is_some() => self.doubt_reason.clone(),
            Health::Well | Health::Strained(_) | Health::Behind | Health::Back(_) => {
                let (at, to) = (applied_to, self.seen_by_clients_to);
                (at < to).then(|| format!("the service began again: at slot {at} of {to}"))
            }
        }
    }

    pub(crate) fn next_health_event(&mut self, applied_to: Slot) -> Option<Event> {
        let kind = match self.health {
            Health::Stuck(_) => 2,
            Health::Down(_) => 3,
            _ if self.doubt_reason.is_some() => 4,
            Health::Well | Health::Behind | Health::Back(_) => 0,
            Health::Strained(_) => 1,
        };
        if kind == self.last_reported_trouble {
            return None;
        }
        self.last_reported_trouble = kind;
        let strain = || self.strain_reason().map(ToOwned::to_owned);
        let trouble = self.trouble_reason(applied_to).or_else(strain).filter(|_| kind > 0);
        Some(match trouble {
            Some(why) => Event::ServiceTrouble { why },
            None => Event::ServiceRecovered,
        })
    }

    /// Returns when to check the service again.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        (!self.accepts_commands()).then(|| now.plus_ms(HEALTH_CHECK_INTERVAL_MS))
    }
}
