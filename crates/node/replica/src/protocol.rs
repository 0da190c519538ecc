//! The replica's protocol core, with a queue of inputs for the next call that can also send frames.

use std::collections::VecDeque;

use quorate_core::{
    ballot::Era,
    configuration::Configuration,
    effect::{Effects, Role, SlowPaths},
    input::Input,
    node::Node,
    record::HardState,
    time::Time,
};

/// The core as seen by other parts, which read its state and queue inputs for the replica's steps.
pub(crate) struct Protocol {
    node: Node,
    /// Buffer for the effects of a step, empty between steps.
    effects: Effects,
    inbox: VecDeque<Input>,
    /// Time of the core's next tick.
    next_tick_at: Time,
    /// Role of this node as last reported to the other parts.
    role: Role,
    /// Latest time that was read within a turn, since the core's time must never go back.
    latest_reading: Time,
    /// Number of slots accepted above `decided_to`. Messages about later slots are refused
    /// ([p2-3]).
    window_slots: u64,
    /// Era of the configuration that was last passed to the plane.
    voters_era: Option<Era>,
}

impl Protocol {
    pub(crate) fn new(node: Node, window_slots: u64) -> Self {
        Self {
            node,
            window_slots,
            voters_era: None,
            effects: Effects::with_capacity(64),
            inbox: VecDeque::new(),
            next_tick_at: Time(0),
            role: Role::Follower,
            latest_reading: Time(0),
        }
    }

    /// Records that the clock was read again within this turn.
    pub(crate) fn record_clock_reading(&mut self, now: Time) {
        self.latest_reading = self.latest_reading.max(now);
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn window_slots(&self) -> u64 {
        self.window_slots
    }

    /// Returns the configuration if its era began since the last call.
    pub(crate) fn take_new_voters(&mut self) -> Option<&Configuration> {
        let era = self.node.era();
        let is_new = self.voters_era.replace(era) != Some(era);
        is_new.then(|| self.node.configuration())
    }

    /// Returns whether this node leads, as last reported to the other parts.
    pub(crate) fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }

    /// Sets this node's role. Returns whether it led before.
    pub(crate) fn set_role(&mut self, role: Role) -> bool {
        std::mem::replace(&mut self.role, role) == Role::Leader
    }

    /// Queues an input for the next call that can also send frames.
    pub(crate) fn queue_input(&mut self, input: Input) {
        self.inbox.push_back(input);
    }

    pub(crate) fn next_input(&mut self) -> Option<Input> {
        self.inbox.pop_front()
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Drops the queued inputs, since no more messages are sent.
    pub(crate) fn clear_inputs(&mut self) {
        self.inbox.clear();
    }

    pub(crate) fn set_next_tick(&mut self, at: Time) {
        self.next_tick_at = at;
    }

    pub(crate) fn next_tick_at(&self) -> Time {
        self.next_tick_at
    }

    /// Returns whether a tick is due. If so, marks the tick as done.
    pub(crate) fn take_tick(&mut self, now: Time) -> bool {
        let due = now >= self.next_tick_at;
        if due {
            self.next_tick_at = now.plus_ms(u64::MAX);
        }
        due
    }

    /// Passes one input to the core. Returns the hard state before the input and the core's
    /// effects, which the caller returns with [`Protocol::recycle_effects`].
    pub(crate) fn step(&mut self, now: Time, input: Input) -> (HardState, Effects) {
        let before = self.node.hard_state();
        let now = now.max(self.latest_reading);
        let mut effects = std::mem::take(&mut self.effects);
        self.node.step(now, input, &mut effects);
        (before, effects)
    }

    /// Accepts the effects of a step once they have been carried out, to reuse their memory.
    pub(crate) fn recycle_effects(&mut self, effects: Effects) {
        self.effects = effects;
    }

    pub(crate) fn slow_paths(&self) -> SlowPaths {
        self.effects.slow
    }
}
