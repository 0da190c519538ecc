//! The protocol core of this replica, with the inputs that wait for a call which can also send.

use std::collections::VecDeque;

use quorate_core::{
    effect::{Effects, Role, SlowPaths},
    input::Input,
    node::Node,
    record::HardState,
    time::Time,
};

/// The core as the other parts meet it: they read it, and leave inputs for it. Only the replica
/// steps it.
pub(crate) struct Protocol {
    node: Node,
    /// Empty between two steps; kept for its memory.
    effects: Effects,
    inbox: VecDeque<Input>,
    /// Next tick of the core.
    wake: Time,
    /// Role of this node, as known to the other parts.
    role: Role,
    /// The latest time that was read within a turn: the core's never goes back.
    read_at: Time,
}

impl Protocol {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            node,
            effects: Effects::with_capacity(64),
            inbox: VecDeque::new(),
            wake: Time(0),
            role: Role::Follower,
            read_at: Time(0),
        }
    }

    /// Records that the clock was read anew within this turn.
    pub(crate) fn clock_was_read(&mut self, now: Time) {
        self.read_at = self.read_at.max(now);
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Returns whether this node leads, as far as the other parts know.
    pub(crate) fn leads(&self) -> bool {
        self.role == Role::Leader
    }

    /// Sets this node's role; returns whether it led before.
    pub(crate) fn set_role(&mut self, role: Role) -> bool {
        std::mem::replace(&mut self.role, role) == Role::Leader
    }

    /// Leaves an input for the next call that can also send.
    pub(crate) fn later(&mut self, input: Input) {
        self.inbox.push_back(input);
    }

    /// Takes the oldest of those.
    pub(crate) fn next_input(&mut self) -> Option<Input> {
        self.inbox.pop_front()
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Drops the queued inputs: nothing is sent any more.
    pub(crate) fn clear_inputs(&mut self) {
        self.inbox.clear();
    }

    /// Sets the time of the core's next tick; before it, there is none.
    pub(crate) fn set_wake(&mut self, at: Time) {
        self.wake = at;
    }

    pub(crate) fn wake(&self) -> Time {
        self.wake
    }

    /// Returns whether a tick is due, and marks it as done.
    pub(crate) fn take_tick(&mut self, now: Time) -> bool {
        let due = now >= self.wake;
        if due {
            self.wake = now.plus_ms(u64::MAX);
        }
        due
    }

    /// Passes one event to the core. Returns the hard state before it, and the core's effects; the
    /// latter are returned to [`Protocol::recycle`].
    pub(crate) fn step(&mut self, now: Time, input: Input) -> (HardState, Effects) {
        let before = self.node.hard_state();
        let now = now.max(self.read_at);
        let mut effects = std::mem::take(&mut self.effects);
        self.node.step(now, input, &mut effects);
        (before, effects)
    }

    /// Recycles the effects of a step, which are carried out.
    pub(crate) fn recycle(&mut self, effects: Effects) {
        self.effects = effects;
    }

    /// Returns the core's counters of its slow paths.
    pub(crate) fn slow_paths(&self) -> SlowPaths {
        self.effects.slow
    }
}
