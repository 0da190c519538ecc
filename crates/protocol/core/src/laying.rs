//! Laying: a leader's view of the ring along which votes reach it, and of when it is laid anew.
//! Liveness only.
//!
//! A ring is as fast as its slowest member, so a leader that makes no progress for
//! [`Laying::patience_us`] asks all members for votes directly, sees which of them answer, and lays
//! a ring without those that do not ([ring-7]). They return once they have kept up for a while,
//! which lasts longer each time.

use alloc::vec::Vec;

use crate::{
    node_id::Member,
    slot::{Slot, SlotRange},
    time::Time,
};

/// A leader waits for a decision no less and no longer than this before it takes its ring for
/// broken.
const PATIENCE_US: (u64, u64) = (2_000, 40_000);
/// A decision is late after this multiple of its usual time and of that time's variation.
const PATIENCE: u64 = 4;
/// A ring that held for so long was a good one.
const GOOD_US: u64 = 1_000_000;
/// Time of direct votes after a ring broke: by then it shows which members are slow.
const LOOK_US: u64 = 10_000;
/// Time that a slow member stays out the first time, and at most; doubled each time.
const BENCH_US: (u64, u64) = (1_000_000, 60_000_000);

/// Route of votes to the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Route {
    /// From every member straight to the leader.
    #[default]
    Star,
    /// Along a ring that the leader chooses.
    Ring,
    /// Along these, and then to the leader. Whether they are enough, or are there, is not asked: a
    /// ring that gets nowhere is given up for one of the leader's own choice.
    Through(Vec<Member>),
}

impl Route {
    /// Returns the route of this name, of those that need no more than a name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "star" => Some(Self::Star),
            "ring" => Some(Self::Ring),
            _ => None,
        }
    }
}

/// Out of the ring for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bench {
    member: Member,
    until: Time,
    /// Length of this exclusion.
    us: u64,
}

/// The leader's side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Laying {
    wish: Route,
    number: u32,
    members: Vec<Member>,
    /// Slots below were decided at this time; the time also advances while nothing is open.
    progress: (Slot, Time),
    /// A proposal in flight: all slots below, since when.
    probe: Option<(Slot, Time)>,
    /// Usual time of a recent decision; 0 until the first.
    usual_us: u64,
    /// Variation of the usual time.
    varies_us: u64,
    /// Since when the ring is laid, or votes come straight.
    since: Time,
    /// Members of a ring that broke at this slot, until the slow ones are known.
    broken: Option<(Slot, Vec<Member>)>,
    /// No ring is laid before.
    again_at: Time,
    /// Length of the last postponement.
    put_off_us: u64,
    benched: Vec<Bench>,
    /// Slots below were decided at the last two heartbeats, the older one first.
    beats: [Slot; 2],
    /// When the next one counts.
    beat_at: Time,
}

impl Laying {
    /// Creates the state with the route wished from the start.
    pub fn new(wish: Route) -> Self {
        Self { wish, ..Self::default() }
    }

    /// Sets the wished route from now on.
    pub fn wish(&mut self, wish: Route, now: Time) {
        self.wish = wish;
        self.again_at = now;
    }

    /// Returns the wished route.
    pub fn wished(&self) -> &Route {
        &self.wish
    }

    /// Begins a ballot: no ring is laid in it.
    pub fn begin(&mut self, now: Time, decided_to: Slot) {
        self.number = 0;
        self.members.clear();
        self.progress = (decided_to, now);
        self.probe = None;
        self.broken = None;
        self.again_at = now;
        self.beats = [Slot(0); 2];
    }

    /// Returns the ring and its number; empty: votes come directly. Number 0: no ring was announced
    /// in this ballot.
    pub fn laid(&self) -> (u32, &[Member]) {
        (self.number, &self.members)
    }

    /// Returns whether votes travel along a ring.
    pub fn is_ring(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns whether there is nothing to do: no ring is laid or wished.
    pub fn is_idle(&self) -> bool {
        self.members.is_empty() && self.wish == Route::Star
    }

    /// Lays this ring; the caller announces it.
    pub fn lay(&mut self, now: Time, decided_to: Slot, members: Vec<Member>) {
        self.number += 1;
        self.members = members;
        self.since = now;
        self.progress = (decided_to, now);
    }

    /// Notes that these slots are proposed now. If everything before them is decided, the wait for
    /// a decision begins.
    pub fn proposed(&mut self, now: Time, range: SlotRange, decided_to: Slot) {
        if range.from <= decided_to {
            self.progress = (decided_to, now);
        }
        if self.wish != Route::Star && self.probe.is_none() {
            self.probe = Some((range.to, now));
        }
    }

    /// Notes the end of the decided slots, and whether any proposal is open.
    pub fn note(&mut self, now: Time, decided_to: Slot, open: bool) {
        if !open || decided_to > self.progress.0 {
            self.progress = (decided_to, now);
        }
        if let Some((to, since)) = self.probe
            && decided_to >= to
        {
            let took_us = now.since_us(since);
            if self.usual_us == 0 {
                self.usual_us = took_us;
            }
            let off_us = took_us.abs_diff(self.usual_us);
            self.varies_us = (7 * self.varies_us + off_us) / 8;
            self.usual_us = (7 * self.usual_us + took_us) / 8;
            self.probe = None;
        }
    }

    /// Returns how long a leader with a ring waits for a decision.
    pub fn patience_us(&self) -> u64 {
        let (least, most) = PATIENCE_US;
        (PATIENCE * (self.usual_us + self.varies_us)).clamp(least, most)
    }

    /// Returns when a ring is to be checked, if any proposal is `open`: it breaks then.
    pub fn wake_at(&self, open: bool) -> Option<Time> {
        let breaks = (self.is_ring() && open).then(|| self.progress.1.plus_us(self.patience_us()));
        let waits = self.broken.is_some() && self.wish != Route::Star;
        let again = waits.then_some(self.again_at);
        breaks.into_iter().chain(again).min()
    }

    /// Returns whether the ring makes no progress.
    pub fn is_stuck(&self, now: Time, open: bool) -> bool {
        let waited = now.since_us(self.progress.1) >= self.patience_us();
        self.is_ring() && open && waited
    }

    /// Notes that a member of the ring is lost: no ring is laid before `again_at`.
    pub fn loses(&mut self, again_at: Time) {
        self.again_at = again_at;
        self.give_up();
    }

    /// Replaces a ring laid by name by the leader's own choice from now on.
    fn give_up(&mut self) {
        if matches!(self.wish, Route::Through(_)) {
            self.wish = Route::Ring;
        }
    }

    /// Notes that the ring broke: all members are asked directly, and judged soon. A ring laid by
    /// name is given up.
    pub fn breaks(&mut self, now: Time) {
        let members = core::mem::take(&mut self.members);
        if now.since_us(self.since) >= GOOD_US {
            self.put_off_us = 0;
        }
        self.broken = Some((self.progress.0, members));
        self.again_at = now.plus_us(LOOK_US.max(2 * self.usual_us));
        self.give_up();
    }

    /// Returns the members of the ring that broke.
    pub fn suspects(&self) -> &[Member] {
        self.broken.as_ref().map_or(&[], |(_, members)| members)
    }

    /// Judges the members of the broken ring; a ring may be laid again. Those that have voted for
    /// the slot it was stuck at are fine; the others are out for a while, if that slot was decided
    /// without them. If none was slow, the next ring is put off longer each time.
    pub fn judge(&mut self, now: Time, decided_to: Slot, voted_to: &[(Member, Slot)]) {
        let Some((slot, _)) = self.broken else {
            return;
        };
        if decided_to <= slot {
            // Not the ring's fault: nothing is decided without it either.
            self.again_at = now.plus_us(LOOK_US);
            return;
        }
        self.broken = None;
        let mut slow = voted_to.iter().filter(|(_, to)| *to <= slot).peekable();
        if slow.peek().is_none() {
            self.put_off_us = (2 * self.put_off_us).clamp(LOOK_US, BENCH_US.1);
            self.again_at = now.plus_us(self.put_off_us);
            return;
        }
        self.put_off_us = 0;
        for (member, _) in slow {
            self.bench(now, *member);
        }
    }

    fn bench(&mut self, now: Time, member: Member) {
        let (first, most) = BENCH_US;
        self.benched.retain(|one| one.member.node != member.node || one.member == member);
        let known = self.benched.iter_mut().find(|one| one.member == member);
        match known {
            Some(one) => {
                one.us = (2 * one.us).min(most);
                one.until = now.plus_us(one.us);
            }
            None => self.benched.push(Bench { member, until: now.plus_us(first), us: first }),
        }
    }

    /// Returns whether a member was slow, and its time is not over.
    pub fn is_benched(&self, now: Time, member: Member) -> bool {
        let out = |one: &Bench| one.member == member && now < one.until;
        self.benched.iter().any(out)
    }

    /// Returns whether a ring may be laid now.
    pub fn may_lay(&self, now: Time) -> bool {
        now >= self.again_at
    }

    /// Puts off the next check until then: there is no ring to lay.
    pub fn put_off(&mut self, until: Time) {
        self.again_at = until;
    }

    /// Notes a heartbeat; more of them than one every `every_ms` are not counted.
    pub fn beat(&mut self, now: Time, every_ms: u64, decided_to: Slot) {
        if now >= self.beat_at {
            self.beat_at = now.plus_ms(every_ms);
            self.beats = [self.beats[1], decided_to];
        }
    }

    /// Returns the slot that members must hold to be level: one that answers a heartbeat and holds
    /// less, at the class of the group, lags, since this was decided more than a heartbeat ago.
    pub fn level_at(&self) -> Slot {
        self.beats[0]
    }
}
