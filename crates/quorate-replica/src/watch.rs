//! Looks at this replica now and then, and tells what an operator should hear of.

use quorate_core::time::Time;
use quorate_disk::{Disk, Family};

use crate::{
    events::{Event, Events},
    pace::Pace,
    pursuit::{Pursuit, Standing},
    replica::Replica,
    service::StateMachine,
    status::{DiskUse, Progress},
};

/// Between two looks.
const LOOK_EVERY_MS: u64 = 50;
/// A write of the log that takes longer is slow, which is told, and no death ([live-3]): most disks
/// need a hundredth of that.
const SLOW_WRITE_MS: u64 = 200;
/// A write that has not ended after this long is told of before it ends, and again after twice as
/// long.
const HANGING_WRITE_MS: u64 = 2_000;
/// Without a leader for so long; then after ten seconds, and then each minute.
const NO_LEADER_MS: u64 = 1_000;
const NO_LEADER_SECOND_MS: u64 = 10_000;
const NO_LEADER_EVERY_MS: u64 = 60_000;
/// The log's growth is that of the last minute.
const GROWTH: (u64, usize) = (1_000, 60);

/// What was seen at the last look, and told.
#[derive(Debug)]
pub(crate) struct Watch {
    next: Time,
    pub(crate) pursuit: Pursuit,
    growth: Pace,
    /// A leader was known then, or the node started.
    led_at: Time,
    /// When its absence is told of next.
    unled_due_ms: u64,
    /// Since when segments cannot be made.
    segments_fail_since: Option<Time>,
    hang_due_ms: u64,
}

impl Watch {
    pub(crate) fn new(now: Time, pursuit: Pursuit) -> Self {
        Self {
            next: now,
            pursuit,
            growth: Pace::new(GROWTH.0, GROWTH.1),
            led_at: now,
            unled_due_ms: NO_LEADER_MS,
            segments_fail_since: None,
            hang_due_ms: HANGING_WRITE_MS,
        }
    }

    /// A write of the log ended.
    pub(crate) fn on_written(&mut self, took_us: u64, bytes: usize, events: &mut Events) {
        self.hang_due_ms = HANGING_WRITE_MS;
        let ms = took_us / 1000;
        if ms >= SLOW_WRITE_MS {
            events.push(Event::SlowWrite { ms, bytes });
        }
    }

    fn look_at_leader(&mut self, now: Time, led: bool) -> Option<u64> {
        if led {
            (self.led_at, self.unled_due_ms) = (now, NO_LEADER_MS);
            return None;
        }
        let for_ms = now.since_us(self.led_at) / 1000;
        if for_ms < self.unled_due_ms {
            return None;
        }
        self.unled_due_ms = match for_ms {
            ..NO_LEADER_SECOND_MS => NO_LEADER_SECOND_MS,
            _ => for_ms + NO_LEADER_EVERY_MS,
        };
        Some(for_ms)
    }

    fn look_at_writes(&mut self, now: Time, oldest: Option<Time>, events: &mut Events) {
        let ms = oldest.map_or(0, |began| now.since_us(began) / 1000);
        if ms >= self.hang_due_ms {
            self.hang_due_ms = ms * 2;
            events.push(Event::WriteHangs { ms });
        }
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// The next event that was not asked for yet, for the operator's log.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.next()
    }

    pub(crate) fn watch(&mut self, now: Time) {
        if now < self.watch.next {
            return;
        }
        self.watch.next = now.plus_ms(LOOK_EVERY_MS);
        let standing = self.standing();
        let stops = self.stop.is_requested();
        let oldest_write = self.tuning.oldest_write();
        let written = self.log.counters().write_bytes;
        let unled_ms = self.watch.look_at_leader(now, standing.led || stops);
        let Self {
            watch, events, log, ..
        } = self;
        watch.growth.note(now, written);
        if !stops {
            watch.pursuit.observe(now, &standing, events);
        }
        watch.look_at_writes(now, oldest_write, events);
        match (log.segment_failure(), watch.segments_fail_since) {
            (Some(failure), None) => {
                watch.segments_fail_since = Some(now);
                events.push(Event::NoSegment {
                    waits: failure.lack.is_some(),
                    why: failure.to_string(),
                });
            }
            (None, Some(since)) => {
                watch.segments_fail_since = None;
                let ms = now.since_us(since) / 1000;
                events.push(Event::SegmentsAgain { ms });
            }
            _ => {}
        }
        if let Some(for_ms) = unled_ms {
            let (connected, members) = self.reachable();
            self.events.push(Event::NoLeader {
                for_ms,
                connected,
                members,
            });
        }
    }

    /// Where this node stands.
    fn standing(&self) -> Standing {
        Standing {
            unread: self.unread_votes.iter().map(|votes| votes.len()).sum(),
            missing: self.node.lost_slots() + self.repair.missing_slots(),
            applied_to: self.applier.applied_to(),
            known_to: self.node.known_to(),
            led: self.node.leader().is_some(),
        }
    }

    /// Members that can be talked to, this node included, and all members.
    fn reachable(&self) -> (usize, usize) {
        let members = self.node.configuration().members();
        let reachable = members.iter().filter(|voter| {
            voter.member == self.member || self.peers.get(&voter.member.node) == Some(&voter.member)
        });
        (reachable.count(), members.len())
    }

    /// What keeps this node from being level with the others, if it is not.
    pub(crate) fn progress(&self, now: Time) -> Option<Progress> {
        self.watch.pursuit.progress(now, &self.standing())
    }

    /// What room the log has, and how fast it needs it.
    pub(crate) fn disk_use(&self, now: Time) -> DiskUse {
        let written = self.log.counters().write_bytes;
        DiskUse {
            free_bytes: self.log.disk().free_bytes(Family::Log),
            log_bytes_per_second: self.watch.growth.per_second(now, written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::slot::Slot;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    fn watch() -> Watch {
        Watch::new(at_ms(0), Pursuit::new(at_ms(0), Slot(1), 0, 0))
    }

    #[test]
    fn that_nobody_leads_is_told_of_less_and_less_often() {
        let mut watch = watch();
        let mut told = Vec::new();
        for ms in (0..200_000).step_by(50) {
            told.extend(watch.look_at_leader(at_ms(ms), ms < 500));
        }
        // The last leader was seen at 450 ms.
        assert_eq!(told, [1_000, 10_000, 70_000, 130_000, 190_000]);
    }

    #[test]
    fn a_write_that_hangs_is_told_of_before_it_ends() {
        let (mut watch, mut events) = (watch(), Events::default());
        for ms in (0..10_000).step_by(50) {
            watch.look_at_writes(at_ms(ms), Some(at_ms(0)), &mut events);
        }
        watch.on_written(10_000_000, 4096, &mut events);
        watch.on_written(199_000, 4096, &mut events);
        let told: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        let expected = [
            Event::WriteHangs { ms: 2000 },
            Event::WriteHangs { ms: 4000 },
            Event::WriteHangs { ms: 8000 },
            Event::SlowWrite {
                ms: 10_000,
                bytes: 4096,
            },
        ];
        assert_eq!(told, expected);
    }
}
