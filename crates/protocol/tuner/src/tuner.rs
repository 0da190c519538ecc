//! The tuner as the replica sees it: it accepts samples and returns changes of the setting.

use crate::{
    controller::{Controller, View},
    epoch::Done,
    estimate::{Estimator, Parameters, Turn},
    report::Report,
    setting::{Change, Setting},
    settings::Settings,
    time::Moment,
};

/// The tuner of one node. It has no clock, and does nothing unless it is called.
#[derive(Clone, Debug)]
pub struct Tuner {
    settings: Settings,
    estimator: Estimator,
    controller: Controller,
    in_flight_commands: u64,
    /// Smoothed number of commands that wait or are in flight.
    outstanding: f64,
    looked_at: Moment,
    stalls: u64,
    /// A setting other than the tuner's choice is in force.
    suspended: bool,
}

/// Interval between decisions, in nanoseconds.
const LOOK_NS: u64 = 500_000;

impl Tuner {
    /// Creates a tuner without any measurements.
    pub fn new(settings: Settings) -> Self {
        let goal = settings.latency_goal_ns;
        Self {
            estimator: Estimator::new(),
            controller: Controller::new(settings.bounds, goal, settings.start),
            in_flight_commands: 0,
            outstanding: 0.0,
            looked_at: Moment(0),
            stalls: 0,
            suspended: false,
            settings,
        }
    }

    pub fn setting(&self) -> Setting {
        if self.settings.fixed {
            return self.settings.bounds.clamp(self.settings.start);
        }
        self.controller.setting()
    }

    /// Records that another setting has been imposed. Estimates continue. Decisions are suspended,
    /// because they no longer affect the measurements.
    pub fn suspend(&mut self, now: Moment) {
        self.suspended = true;
        self.controller.interrupted(now);
    }

    /// Records that the tuner's setting is in force again.
    pub fn resume(&mut self, now: Moment) {
        self.suspended = false;
        self.controller.interrupted(now);
    }

    pub fn set_nodes(&mut self, nodes: usize) {
        self.settings.nodes = nodes;
    }

    /// Records that a proposal with its bytes was handed to the channel of a peer. The caller may
    /// number peers from 0 in any order, as long as a number always means the same peer.
    pub fn on_sent(&mut self, now: Moment, peer: usize, slot: u64, bytes: usize) {
        self.estimator.on_sent(now, peer, slot, bytes);
    }

    /// Records that a peer voted for every slot below `to`.
    pub fn on_voted(&mut self, now: Moment, peer: usize, to: u64) {
        self.estimator.on_voted(now, peer, to);
    }

    /// Records that a heartbeat was sent to a peer. The reply will return `mark`. Marks never
    /// decrease.
    pub fn on_asked(&mut self, now: Moment, peer: usize, mark: u64) {
        self.estimator.on_asked(now, peer, mark);
    }

    pub fn on_answered(&mut self, now: Moment, peer: usize, mark: u64) {
        self.estimator.on_answered(now, peer, mark);
    }

    /// Handles a change of leader or a broken connection by dropping everything in flight.
    pub fn on_peers_changed(&mut self) {
        self.estimator.forget_peers();
    }

    /// Records that a log write that started at `began` is on stable storage.
    pub fn on_flush(&mut self, began: Moment, now: Moment, bytes: usize) {
        self.estimator.on_flush(began, now, bytes);
    }

    /// Records that a batch of this node was applied and its clients got their replies.
    pub fn on_done(&mut self, now: Moment, done: &Done) {
        let commands = u64::from(done.commands);
        self.in_flight_commands = self.in_flight_commands.saturating_sub(commands);
        self.estimator.on_done(done.formed, now, done.commands, done.bytes);
        if !self.suspended {
            self.controller.on_done(now, done);
        }
    }

    /// Records the end of a turn. A returned change is already in force, and the caller logs it.
    pub fn on_turn(&mut self, turn: &Turn) -> Option<Change> {
        let now = turn.ended;
        self.estimator.on_turn(turn);
        self.in_flight_commands += u64::from(turn.batch_commands);
        if turn.in_flight == 0 {
            self.in_flight_commands = 0;
        }
        if !self.suspended {
            self.controller.on_turn(turn.waiting, turn.in_flight);
        }
        if self.estimator.stalls() != self.stalls {
            self.stalls = self.estimator.stalls();
            self.controller.interrupted(now);
        }
        let looked = self.looked_at <= now && now.since(self.looked_at) < LOOK_NS;
        if looked {
            return None;
        }
        self.looked_at = now;
        let outstanding = turn.waiting as f64 + self.in_flight_commands as f64;
        // Rises quickly and falls slowly, because a load shows its demand while it waits.
        let part = if outstanding > self.outstanding { 0.3 } else { 0.01 };
        self.outstanding += part * (outstanding - self.outstanding);
        if self.settings.fixed || self.suspended {
            return None;
        }
        let outstanding = self.outstanding.max(1.0);
        let view = View::new(&self.estimator, self.settings.nodes, outstanding);
        self.controller.decide(now, &view)
    }

    pub fn parameters(&self) -> Parameters {
        self.estimator.parameters()
    }

    /// Returns the number of permanent changes.
    pub fn moves(&self) -> u64 {
        self.controller.moves()
    }

    /// Returns everything that the tuner knows, for display.
    pub fn report(&self) -> Report {
        Report::new(
            &self.settings,
            self.setting(),
            &self.estimator.parameters(),
            self.outstanding.max(1.0),
            &self.controller,
        )
    }
}
