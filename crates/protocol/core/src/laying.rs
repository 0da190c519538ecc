//! Ring setup by the leader: the ring along which votes reach it, and the conditions for rebuilding
//! it. Liveness only.
//!
//! A ring is as fast as its slowest member. A leader that makes no progress for
//! [`RingControl::broken_after_us`] requests votes from all members directly, sees which members
//! reply, and sets up a ring without those that do not ([ring-7]). Excluded members are readmitted
//! after a while, which doubles on each exclusion.

use alloc::vec::Vec;

use crate::{
    node_id::Member,
    slot::{Slot, SlotRange},
    time::Time,
};

/// Minimum and maximum time that a leader waits for a decision before it considers its ring broken,
/// in microseconds.
const BROKEN_AFTER_US: (u64, u64) = (2_000, 40_000);
/// A decision is late once it has taken this multiple of the sum of its usual time and the
/// deviation from it.
const LATE_MULTIPLE: u64 = 4;
/// A ring that lasted at least this long, in microseconds, is considered good.
const GOOD_RING_US: u64 = 1_000_000;
/// Duration of direct voting after a ring breaks, in microseconds. It is long enough to show which
/// members are slow.
const DIRECT_VOTING_US: u64 = 10_000;
/// Initial and maximum time for which a slow member is excluded from the ring, in microseconds. The
/// time doubles on each exclusion.
const EXCLUSION_US: (u64, u64) = (1_000_000, 60_000_000);

/// Route of votes to the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Route {
    /// From every member directly to the leader.
    #[default]
    Star,
    /// Along a ring that the leader chooses.
    Ring,
    /// Along these members, and then to the leader. The leader does not check that they are
    /// connected or form a quorum. If the ring makes no progress, the leader chooses another one
    /// itself.
    Through(Vec<Member>),
}

impl Route {
    /// Returns the route with this name; `None` if there is none, or if it needs a list of members.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "star" => Some(Self::Star),
            "ring" => Some(Self::Ring),
            _ => None,
        }
    }
}

/// Temporary exclusion of a slow member from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Exclusion {
    member: Member,
    until: Time,
    /// Length of this exclusion, in microseconds.
    duration_us: u64,
}

/// The leader's view of the ring: the ring in use, its progress, and the excluded members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RingControl {
    requested_route: Route,
    number: u32,
    members: Vec<Member>,
    /// End of the decided prefix, and the time of the last progress. The time also advances while
    /// no proposal is outstanding.
    progress: (Slot, Time),
    /// End of a proposal in flight, and the time it was sent.
    timed_proposal: Option<(Slot, Time)>,
    /// Moving average of the time to a decision, in microseconds; 0 before the first decision.
    mean_decision_us: u64,
    /// Average deviation from `mean_decision_us`, in microseconds.
    decision_deviation_us: u64,
    /// Time at which the ring was set up or given up.
    changed_at: Time,
    /// Slot at which a ring broke, and the members of that ring, until the slow ones are known.
    broken_ring: Option<(Slot, Vec<Member>)>,
    /// No ring is set up before this time.
    next_ring_at: Time,
    /// Length of the last postponement, in microseconds.
    postponed_us: u64,
    exclusions: Vec<Exclusion>,
    /// End of the decided slots at the last two heartbeats, older first.
    decided_at_heartbeats: [Slot; 2],
    /// Heartbeats before this time do not count.
    count_heartbeats_from: Time,
}

impl RingControl {
    /// Creates the state with the route requested at start.
    pub fn new(wish: Route) -> Self {
        Self { requested_route: wish, ..Self::default() }
    }

    /// Returns whether no ring was ever requested or set up.
    pub fn is_unused(&self) -> bool {
        let Self {
            progress,
            next_ring_at: again_at,
            decided_at_heartbeats: beats,
            count_heartbeats_from: beat_at,
            ..
        } = *self;
        *self
            == Self {
                progress,
                next_ring_at: again_at,
                decided_at_heartbeats: beats,
                count_heartbeats_from: beat_at,
                ..Self::default()
            }
    }

    /// Sets the requested route.
    pub fn set_route(&mut self, wish: Route, now: Time) {
        self.requested_route = wish;
        self.next_ring_at = now;
    }

    /// Returns the requested route.
    pub fn requested_route(&self) -> &Route {
        &self.requested_route
    }

    /// Starts a ballot, without a ring.
    pub fn begin_ballot(&mut self, now: Time, decided_to: Slot) {
        self.number = 0;
        self.members.clear();
        self.progress = (decided_to, now);
        self.timed_proposal = None;
        self.broken_ring = None;
        self.next_ring_at = now;
        self.decided_at_heartbeats = [Slot(0); 2];
    }

    /// Returns the number and the members of the current ring. The list is empty if votes are sent
    /// directly. Number 0 means that no ring has been announced in this ballot.
    pub fn current_ring(&self) -> (u32, &[Member]) {
        (self.number, &self.members)
    }

    /// Returns whether votes travel along a ring.
    pub fn is_ring(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns whether no ring is in use or requested, so that there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.members.is_empty() && self.requested_route == Route::Star
    }

    /// Sets up a ring of these members. The caller announces it.
    pub fn set_ring(&mut self, now: Time, decided_to: Slot, members: Vec<Member>) {
        self.number += 1;
        self.members = members;
        self.changed_at = now;
        self.progress = (decided_to, now);
    }

    /// Records that the slots in `range` are being proposed. If every earlier slot is decided, the
    /// wait for a decision begins.
    pub fn record_proposal(&mut self, now: Time, range: SlotRange, decided_to: Slot) {
        if range.from <= decided_to {
            self.progress = (decided_to, now);
        }
        if self.requested_route != Route::Star && self.timed_proposal.is_none() {
            self.timed_proposal = Some((range.to, now));
        }
    }

    /// Records the end of the decided slots, and whether any proposal is outstanding (`open`).
    pub fn record_progress(&mut self, now: Time, decided_to: Slot, open: bool) {
        if !open || decided_to > self.progress.0 {
            self.progress = (decided_to, now);
        }
        if let Some((to, since)) = self.timed_proposal
            && decided_to >= to
        {
            let took_us = now.since_us(since);
            if self.mean_decision_us == 0 {
                self.mean_decision_us = took_us;
            }
            let off_us = took_us.abs_diff(self.mean_decision_us);
            self.decision_deviation_us = (7 * self.decision_deviation_us + off_us) / 8;
            self.mean_decision_us = (7 * self.mean_decision_us + took_us) / 8;
            self.timed_proposal = None;
        }
    }

    /// Returns how long a leader with a ring waits for a decision, in microseconds.
    pub fn broken_after_us(&self) -> u64 {
        let (least, most) = BROKEN_AFTER_US;
        (LATE_MULTIPLE * (self.mean_decision_us + self.decision_deviation_us)).clamp(least, most)
    }

    /// Returns the time of the next check: the time at which a ring with an outstanding proposal
    /// (`open`) counts as broken, or at which a new ring may be set up.
    pub fn wake_at(&self, open: bool) -> Option<Time> {
        let breaks =
            (self.is_ring() && open).then(|| self.progress.1.plus_us(self.broken_after_us()));
        let waits = self.broken_ring.is_some() && self.requested_route != Route::Star;
        let again = waits.then_some(self.next_ring_at);
        breaks.into_iter().chain(again).min()
    }

    /// Returns whether the ring has stalled with a proposal outstanding (`open`).
    pub fn is_stuck(&self, now: Time, open: bool) -> bool {
        let waited = now.since_us(self.progress.1) >= self.broken_after_us();
        self.is_ring() && open && waited
    }

    /// Records that a member of the ring was lost, so that no ring is set up before `again_at`.
    pub fn record_lost_member(&mut self, again_at: Time) {
        self.next_ring_at = again_at;
        self.abandon_request();
    }

    /// Abandons a requested list of members. From now on, the leader chooses the members.
    fn abandon_request(&mut self) {
        if matches!(self.requested_route, Route::Through(_)) {
            self.requested_route = Route::Ring;
        }
    }

    /// Records that the ring broke. All members vote directly for a while, so that the slow ones
    /// can be identified. A requested list of members is abandoned.
    pub fn record_break(&mut self, now: Time) {
        let members = core::mem::take(&mut self.members);
        if now.since_us(self.changed_at) >= GOOD_RING_US {
            self.postponed_us = 0;
        }
        self.broken_ring = Some((self.progress.0, members));
        self.next_ring_at = now.plus_us(DIRECT_VOTING_US.max(2 * self.mean_decision_us));
        self.abandon_request();
    }

    /// Returns the members of the ring that broke.
    pub fn suspected_members(&self) -> &[Member] {
        self.broken_ring.as_ref().map_or(&[], |(_, members)| members)
    }

    /// Examines the members of the broken ring. A ring may be set up again afterwards. Members that
    /// voted for the slot at which the ring broke are cleared. If the slot was decided without the
    /// other members, those are excluded for a while. If no member was slow, the next ring is
    /// postponed, for longer each time.
    pub fn examine_members(&mut self, now: Time, decided_to: Slot, voted_to: &[(Member, Slot)]) {
        let Some((slot, _)) = self.broken_ring else {
            return;
        };
        if decided_to <= slot {
            // The ring is not to blame, because nothing is decided without it either.
            self.next_ring_at = now.plus_us(DIRECT_VOTING_US);
            return;
        }
        self.broken_ring = None;
        let mut slow = voted_to.iter().filter(|(_, to)| *to <= slot).peekable();
        if slow.peek().is_none() {
            self.postponed_us = (2 * self.postponed_us).clamp(DIRECT_VOTING_US, EXCLUSION_US.1);
            self.next_ring_at = now.plus_us(self.postponed_us);
            return;
        }
        self.postponed_us = 0;
        for (member, _) in slow {
            self.exclude(now, *member);
        }
    }

    fn exclude(&mut self, now: Time, member: Member) {
        let (first, most) = EXCLUSION_US;
        self.exclusions.retain(|one| one.member.node != member.node || one.member == member);
        let known = self.exclusions.iter_mut().find(|one| one.member == member);
        match known {
            Some(one) => {
                one.duration_us = (2 * one.duration_us).min(most);
                one.until = now.plus_us(one.duration_us);
            }
            None => self.exclusions.push(Exclusion {
                member,
                until: now.plus_us(first),
                duration_us: first,
            }),
        }
    }

    /// Returns whether a member is still excluded for being slow.
    pub fn is_excluded(&self, now: Time, member: Member) -> bool {
        let out = |one: &Exclusion| one.member == member && now < one.until;
        self.exclusions.iter().any(out)
    }

    /// Returns whether a ring may be set up now.
    pub fn may_lay(&self, now: Time) -> bool {
        now >= self.next_ring_at
    }

    /// Postpones the next check, because no ring can be set up now.
    pub fn postpone_check(&mut self, until: Time) {
        self.next_ring_at = until;
    }

    /// Records a heartbeat. At most one heartbeat per `every_ms` counts.
    pub fn record_heartbeat(&mut self, now: Time, every_ms: u64, decided_to: Slot) {
        if now >= self.count_heartbeats_from {
            self.count_heartbeats_from = now.plus_ms(every_ms);
            self.decided_at_heartbeats = [self.decided_at_heartbeats[1], decided_to];
        }
    }

    /// Returns the end of the slots that caught-up members must hold. These slots were decided more
    /// than a heartbeat ago, so a member that replies to a heartbeat and holds fewer, at the
    /// group's class, lags.
    pub fn caught_up_to(&self) -> Slot {
        self.decided_at_heartbeats[0]
    }
}
