//! Listeners for events of a node.

use quorate_core::time::Time;
use quorate_replica::{events::Event, tuner::Change};

/// Receives a node's events between its turns, and never affects the node. In production it writes
/// log lines for operators.
pub trait Listener {
    /// Reports a fault, repeatedly, until it ends.
    fn notice(&mut self, notice: &str);

    /// Reports a change of batch or window.
    fn change(&mut self, change: &Change);

    /// Reports an event. `leads_never`: for an event without a leader, the reason why none can ever
    /// be elected, if that is so.
    fn event(&mut self, now: Time, event: &Event, leads_never: Option<&str>);

    /// Returns the number of lines dropped because they could not be written in time.
    fn lines_dropped(&self) -> u64 {
        0
    }

    /// Called at the end of each turn.
    fn end_turn(&mut self, now: Time);
}
