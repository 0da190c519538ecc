//! The tuner as the plant's policy, used as a replica uses it.

use quorate_tuner::{CompletedBatch, Moment, ReactorTurn, Setting, SettingChange, Settings, Tuner};

use crate::plant::plant::{self, Policy};

pub(crate) struct Tuned {
    pub(crate) tuner: Tuner,
    setting: Setting,
    /// Changes of the setting, with their times.
    pub(crate) changes: Vec<(u64, SettingChange)>,
    pub(crate) asked: u64,
    answered: Vec<u64>,
    /// Offset of the node's clock from the plant's clock, in nanoseconds.
    ahead_ns: i64,
    /// Duration of an interruption in the next turn, in nanoseconds.
    interruption_ns: i64,
}

impl Tuned {
    pub(crate) fn new(settings: Settings) -> Self {
        let tuner = Tuner::new(settings);
        Self {
            setting: tuner.setting(),
            tuner,
            changes: Vec::new(),
            asked: 0,
            answered: vec![0; 8],
            // Start high enough that the clock can be set back.
            ahead_ns: 10_000_000_000_000,
            interruption_ns: 0,
        }
    }

    /// Sets the node's clock forward or back.
    pub(crate) fn step_clock(&mut self, ns: i64) {
        self.ahead_ns += ns;
    }

    /// Pauses the process in the middle of its next turn.
    pub(crate) fn interrupt(&mut self, ns: i64) {
        self.interruption_ns = ns;
    }

    fn moment(&self, at: u64) -> Moment {
        Moment(at.strict_add_signed(self.ahead_ns))
    }
}

impl Policy for Tuned {
    fn setting(&self) -> (usize, usize) {
        (self.setting.batch_bytes, self.setting.window)
    }

    fn turn(&mut self, turn: &plant::Turn) {
        let began = self.moment(turn.began);
        self.ahead_ns += std::mem::take(&mut self.interruption_ns);
        let change = self.tuner.on_turn(&ReactorTurn {
            woke_at: began,
            ended: self.moment(turn.ended),
            next_wake_by: Some(self.moment(turn.wake_by)),
            commands: turn.taken,
            batches: turn.batches,
            batch_bytes: turn.batch_bytes,
            batch_commands: turn.batch_commands,
            waiting_commands: turn.waiting as usize,
            in_flight: turn.in_flight,
        });
        if let Some(change) = change {
            self.changes.push((turn.ended, change));
        }
        self.setting = self.tuner.setting();
    }

    fn sent(&mut self, now: u64, peer: usize, slot: u64, bytes: usize) {
        self.tuner.on_sent(self.moment(now), peer, slot, bytes);
    }

    fn voted(&mut self, now: u64, peer: usize, to: u64) {
        self.tuner.on_voted(self.moment(now), peer, to);
    }

    fn asked(&mut self, now: u64, peer: usize) {
        self.asked += u64::from(peer == 0);
        self.tuner.on_heartbeat_sent(self.moment(now), peer, self.asked);
    }

    fn answered(&mut self, now: u64, peer: usize) {
        self.answered[peer] += 1;
        self.tuner.on_heartbeat_reply(self.moment(now), peer, self.answered[peer]);
    }

    fn flushed(&mut self, began: u64, now: u64, bytes: usize) {
        self.tuner.on_flush(self.moment(began), self.moment(now), bytes);
    }

    fn done(&mut self, now: u64, done: &plant::Done) {
        let done = CompletedBatch {
            first_accepted_at: self.moment(done.accepted_first),
            last_accepted_at: self.moment(done.accepted_last),
            formed_at: self.moment(done.formed),
            commands: done.commands,
            bytes: done.bytes,
        };
        self.tuner.on_done(self.moment(now), &done);
    }
}
