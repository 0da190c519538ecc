//! The tuner as the plant's policy: what a replica does with it.

use quorate_tuner::{Change, Done, Moment, Setting, Settings, Tuner, Turn};

use crate::plant::{self, Policy};

pub(crate) struct Tuned {
    pub(crate) tuner: Tuner,
    setting: Setting,
    /// Every change, with its time.
    pub(crate) changes: Vec<(u64, Change)>,
    pub(crate) asked: u64,
    answered: Vec<u64>,
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
        }
    }
}

impl Policy for Tuned {
    fn setting(&self) -> (usize, usize) {
        (self.setting.batch_bytes, self.setting.window)
    }

    fn turn(&mut self, turn: &plant::Turn) {
        let change = self.tuner.on_turn(&Turn {
            began: Moment(turn.began),
            ended: Moment(turn.ended),
            wake_by: Some(Moment(turn.wake_by)),
            commands: turn.taken,
            batches: turn.batches,
            batch_bytes: turn.batch_bytes,
            batch_commands: turn.batch_commands,
            waiting: turn.waiting as usize,
            in_flight: turn.in_flight,
        });
        if let Some(change) = change {
            self.changes.push((turn.ended, change));
        }
        self.setting = self.tuner.setting();
    }

    fn sent(&mut self, now: u64, peer: usize, slot: u64, bytes: usize) {
        self.tuner.on_sent(Moment(now), peer, slot, bytes);
    }

    fn voted(&mut self, now: u64, peer: usize, to: u64) {
        self.tuner.on_voted(Moment(now), peer, to);
    }

    fn asked(&mut self, now: u64, peer: usize) {
        self.asked += u64::from(peer == 0);
        self.tuner.on_asked(Moment(now), peer, self.asked);
    }

    fn answered(&mut self, now: u64, peer: usize) {
        self.answered[peer] += 1;
        self.tuner
            .on_answered(Moment(now), peer, self.answered[peer]);
    }

    fn flushed(&mut self, began: u64, now: u64, bytes: usize) {
        self.tuner.on_flush(Moment(began), Moment(now), bytes);
    }

    fn done(&mut self, now: u64, done: &plant::Done) {
        let done = Done {
            accepted_first: Moment(done.accepted_first),
            accepted_last: Moment(done.accepted_last),
            formed: Moment(done.formed),
            commands: done.commands,
            bytes: done.bytes,
        };
        self.tuner.on_done(Moment(now), &done);
    }
}
