//! The tuner as the replica sees it: it accepts samples and returns changes of the setting.

use crate::{
    controller::{Controller, ControllerView},
    epoch::CompletedBatch,
    estimate::{Estimator, Parameters, ReactorTurn},
    report::Report,
    setting::{Setting, SettingChange},
    settings::Settings,
    time::Moment,
};

/// The tuner of one node. It has no clock, and does nothing unless it is called.
#[derive(Clone, Debug)]
pub struct Tuner {
    settings: Settings,
    estimator: Estimator,
    controller: Controller,
    commands_in_flight: u64,
    /// Smoothed number of commands that wait or are in flight.
    outstanding: f64,
    last_decision_at: Moment,
    interruptions: u64,
    /// A setting other than the tuner's choice is in force.
    is_suspended: bool,
}

/// Interval between decisions, in nanoseconds.
const DECISION_INTERVAL_NS: u64 = 500_000;

impl Tuner {
    /// Creates a tuner without any measurements.
    pub fn new(settings: Settings) -> Self {
        let goal = settings.latency_goal_ns;
        Self {
            estimator: Estimator::new(),
            controller: Controller::new(settings.bounds, goal, settings.start),
            commands_in_flight: 0,
            outstanding: 0.0,
            last_decision_at: Moment(0),
            interruptions: 0,
            is_suspended: false,
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
        self.is_suspended = true;
        self.controller.restart_epoch(now);
    }

    /// Records that the tuner's setting is in force again.
    pub fn resume(&mut self, now: Moment) {
        self.is_suspended = false;
        self.controller.restart_epoch(now);
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
    pub fn on_heartbeat_sent(&mut self, now: Moment, peer: usize, mark: u64) {
        self.estimator.on_heartbeat_sent(now, peer, mark);
    }

    pub fn on_heartbeat_reply(&mut self, now: Moment, peer: usize, mark: u64) {
        self.estimator.on_heartbeat_reply(now, peer, mark);
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
    pub fn on_done(&mut self, now: Moment, done: &CompletedBatch) {
        let commands = u64::from(done.commands);
        self.commands_in_flight = self.commands_in_flight.saturating_sub(commands);
        self.estimator.on_batch_done(done.formed_at, now, done.commands, done.bytes);
        if !self.is_suspended {
            self.controller.on_done(now, done);
        }
    }

    /// Records the end of a turn. A returned change is already in force, and the caller logs it.
    pub fn on_turn(&mut self, turn: &ReactorTurn) -> Option<SettingChange> {
        let now = turn.ended;
        self.estimator.on_turn(turn);
        self.commands_in_flight += u64::from(turn.batch_commands);
        if turn.in_flight == 0 {
            self.commands_in_flight = 0;
        }
        if !self.is_suspended {
            self.controller.on_turn(turn.waiting_commands, turn.in_flight);
        }
        if self.estimator.interruptions() != self.interruptions {
            self.interruptions = self.estimator.interruptions();
            self.controller.restart_epoch(now);
        }
        let looked =
            self.last_decision_at <= now && now.since(self.last_decision_at) < DECISION_INTERVAL_NS;
        if looked {
            return None;
        }
        self.last_decision_at = now;
        let outstanding = turn.waiting_commands as f64 + self.commands_in_flight as f64;
        // Rises quickly and falls slowly, because a load shows its demand while it waits.
        let part = if outstanding > self.outstanding { 0.3 } else { 0.01 };
        self.outstanding += part * (outstanding - self.outstanding);
        if self.settings.fixed || self.is_suspended {
            return None;
        }
        let outstanding = self.outstanding.max(1.0);
        let view = ControllerView::new(&self.estimator, self.settings.nodes, outstanding);
        self.controller.decide_change(now, &view)
    }

    pub fn parameters(&self) -> Parameters {
        self.estimator.parameters()
    }

    /// Returns the number of permanent changes.
    pub fn permanent_changes(&self) -> u64 {
        self.controller.base_changes()
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
