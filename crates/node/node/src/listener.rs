//! Listener: receives a node's events, which production writes to the log.

use quorate_core::time::Time;
use quorate_replica::{events::Event, tuner::SettingChange};

/// Receives a node's events between turns, without affecting the node. In production it logs them.
pub trait EventListener {
    /// Reports a fault. Called repeatedly while the fault lasts.
    fn on_notice(&mut self, notice: &str);

    /// Reports a change of batch or window.
    fn on_tuning_change(&mut self, change: &SettingChange);

    /// Reports an event. If the event reports a missing leader and none can ever be elected,
    /// `leads_never` is the reason.
    fn on_event(&mut self, now: Time, event: &Event, leads_never: Option<&str>);

    /// Returns the number of lines dropped because they could not be written in time.
    fn dropped_line_count(&self) -> u64 {
        0
    }

    /// Ends a turn. Called at the end of each turn, so that delayed lines can be written.
    fn end_turn(&mut self, now: Time);
}
