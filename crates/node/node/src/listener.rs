//! Listeners for events of a node.

use quorate_core::time::Time;
use quorate_replica::{events::Event, tuner::Change};

/// Listens to a node between its turns; nothing that it does affects the node. In production it
/// writes lines for operators.
pub trait Listener {
    /// Reports a fault, repeatedly and in words of its own, until it ends.
    fn notice(&mut self, notice: &str);

    /// Batch and window are other ones now.
    fn change(&mut self, change: &Change);

    /// Something happened. `leads_never`: why no leader can ever be elected, if the event is that
    /// there is none and that is so.
    fn event(&mut self, now: Time, event: &Event, leads_never: Option<&str>);

    /// Returns how many lines were dropped because they could not be written in time.
    fn lines_dropped(&self) -> u64 {
        0
    }

    /// The turn is over.
    fn end_turn(&mut self, now: Time);
}
