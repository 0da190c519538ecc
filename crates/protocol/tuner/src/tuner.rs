//! The tuner as the replica sees it: samples in, changes of the setting out.

use crate::{
    controller::{Controller, View},
    epoch::Done,
    estimate::{Estimator, Parameters, Turn},
    report::Report,
    setting::{Change, Setting},
    settings::Settings,
    time::Moment,
};

/// One node's tuner. It has no clock; nothing is done unless it is called.
#[derive(Clone, Debug)]
pub struct Tuner {
    settings: Settings,
    estimator: Estimator,
    controller: Controller,
    in_flight_commands: u64,
    /// Commands that wait or are in flight, smoothed.
    outstanding: f64,
    looked_at: Moment,
    stalls: u64,
    /// Another setting than ours is in force.
    suspended: bool,
}

/// Interval between decisions, in nanoseconds.
const LOOK_NS: u64 = 500_000;

impl Tuner {
    /// A tuner that knows nothing yet.
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

    /// Returns the setting in force.
    pub fn setting(&self) -> Setting {
        if self.settings.fixed {
            return self.settings.bounds.clamp(self.settings.start);
        }
        self.controller.setting()
    }

    /// Notes that another setting was imposed: estimates continue, decisions do not, since
    /// measurements no longer result from them.
    pub fn suspend(&mut self, now: Moment) {
        self.suspended = true;
        self.controller.interrupted(now);
    }

    /// Our setting is in force again.
    pub fn resume(&mut self, now: Moment) {
        self.suspended = false;
        self.controller.interrupted(now);
    }

    /// The number of voters changed.
    pub fn set_nodes(&mut self, nodes: usize) {
        self.settings.nodes = nodes;
    }

    /// A proposal with its bytes was handed to the channel of a peer. Peers are numbered from 0 as
    /// the caller likes, as long as a number means the same peer.
    pub fn on_sent(&mut self, now: Moment, peer: usize, slot: u64, bytes: usize) {
        self.estimator.on_sent(now, peer, slot, bytes);
    }

    /// A peer voted for every slot below `to`.
    pub fn on_voted(&mut self, now: Moment, peer: usize, to: u64) {
        self.estimator.on_voted(now, peer, to);
    }

    /// A heartbeat went to a peer. Its answer will bring `mark` back; marks never fall.
    pub fn on_asked(&mut self, now: Moment, peer: usize, mark: u64) {
        self.estimator.on_asked(now, peer, mark);
    }

    /// Records the answer to a heartbeat.
    pub fn on_answered(&mut self, now: Moment, peer: usize, mark: u64) {
        self.estimator.on_answered(now, peer, mark);
    }

    /// Another leader, or connections that broke: what was in flight is not waited for.
    pub fn on_peers_changed(&mut self) {
        self.estimator.forget_peers();
    }

    /// A write of the log that began then is on stable storage.
    pub fn on_flush(&mut self, began: Moment, now: Moment, bytes: usize) {
        self.estimator.on_flush(began, now, bytes);
    }

    /// An own batch was executed and answered.
    pub fn on_done(&mut self, now: Moment, done: &Done) {
        let commands = u64::from(done.commands);
        self.in_flight_commands = self.in_flight_commands.saturating_sub(commands);
        self.estimator.on_done(done.formed, now, done.commands, done.bytes);
        if !self.suspended {
            self.controller.on_done(now, done);
        }
    }

    /// A turn is over. The change is in force when this returns; the caller logs it.
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
        // Up quickly, down slowly: what a load asks for shows when it waits.
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

    /// Everything, for people.
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
