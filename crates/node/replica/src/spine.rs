//! The spine: the parts on the path of a command, which order, store, execute and answer it, and
//! the facts about this node that all other parts need.

use quorate_core::{
    class::Class,
    level::Level,
    node::Node,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};
use quorate_log::disk::Disk;

use crate::{
    applying::Applying,
    clocks::Clocks,
    completions::Completions,
    contents::Contents,
    counters::Counters,
    group::Group,
    hops::{Hop, HopRing},
    observing::{Observing, events::Event},
    outbox::Outbox,
    outlasting::{self, ConfirmationMethod, MEMORY_QUERY_LEVEL},
    peers::Peers,
    ports::{plane::Plane, service::StateMachine},
    proposing::Proposing,
    protocol::Protocol,
    storing::Storing,
};

mod admission;

/// Maximum lag, in values, at which a node counts as caught up.
const CAUGHT_UP_VALUES_MAX: u64 = 4096;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: u128,
    pub(crate) member: Member,
    pub(crate) boot: u32,
}

/// The parts on the path of a command, in order, and the facts that all of them need. Each part
/// keeps its own state private. A wing borrows the spine for one call.
pub(crate) struct Spine<D: Disk, S: StateMachine> {
    pub(crate) identity: Identity,
    pub(crate) protocol: Protocol,
    pub(crate) peers: Peers,
    pub(crate) proposing: Proposing,
    pub(crate) contents: Contents,
    pub(crate) storing: Storing<D>,
    pub(crate) applying: Applying<S>,
    pub(crate) completions: Completions,
    /// Wall clocks, the steady clock and the group's clock.
    pub(crate) clocks: Clocks,
    pub(crate) observing: Observing,
    pub(crate) counters: Counters,
    /// Timestamps of hops, if enabled.
    pub(crate) hops: Option<Box<HopRing>>,
}

impl<D: Disk, S: StateMachine> Spine<D, S> {
    /// Returns the slot below which everything may be executed; the first slot for an auxiliary
    /// that forgot slots.
    pub(crate) fn executable_to(&self) -> Slot {
        let node = self.protocol.node();
        match node.is_hollow() {
            true => self.applying.applied_to(),
            false => node.decided_to(),
        }
    }

    /// Returns the first slot whose bytes may be needed in memory. All earlier slots are decided,
    /// and are either applied or will be read from the log. An auxiliary that has forgotten earlier
    /// slots applies nothing, and neither does a service in trouble. A service that is ahead of its
    /// log, because the log lost its end, has applied slots for which this node must still vote.
    pub(crate) fn needed_from(&self) -> Slot {
        let applies = !self.protocol.node().is_hollow() && !self.applying.condition().is_stuck();
        let decided_to = self.protocol.node().decided_to();
        match applies {
            true => self.applying.applied_to().min(decided_to),
            false => decided_to,
        }
    }

    /// Returns whether other nodes' proposals must wait until this node has written and applied
    /// more.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.storing.is_behind() || self.applying.is_full()
    }

    /// [less-5] Returns how to confirm that a command is in memory at a quorum.
    pub(crate) fn early_confirmation(&self) -> ConfirmationMethod {
        match self.protocol.node().configuration().class() {
            Class::Volatile => ConfirmationMethod::ByDecision,
            Class::Durable if self.level() >= MEMORY_QUERY_LEVEL => ConfirmationMethod::ByQuery,
            Class::Durable => ConfirmationMethod::Impossible,
        }
    }

    /// [last-5] Returns how to confirm that a command is on stable storage at a quorum.
    pub(crate) fn durable_confirmation(&self) -> ConfirmationMethod {
        match self.protocol.node().configuration().class() {
            Class::Durable => ConfirmationMethod::ByDecision,
            Class::Volatile if self.level() >= outlasting::DISK_QUERY_LEVEL => {
                ConfirmationMethod::ByQuery
            }
            Class::Volatile => ConfirmationMethod::Impossible,
        }
    }

    pub(crate) fn stamp(&mut self, hop: Hop, slot: Option<Slot>) {
        if let Some(hops) = &mut self.hops {
            hops.stamp(hop, slot);
        }
    }

    /// Returns the current time. The process may have been suspended since its turn began, so the
    /// input that it now reads may have been sent after the turn's timestamp.
    pub(crate) fn read_clock(&self, now: Time) -> Time {
        self.clocks.steady_clock().map_or(now, |clock| clock.now().max(now))
    }

    /// [time-3] Compares the clocks and reports changes. Returns the group's time, if known.
    pub(crate) fn check_clocks(&mut self, now: Time, wall_ms: u64) -> u64 {
        self.clocks.update_own_reading(now, wall_ms);
        let (leads, node) = (self.protocol.is_leader(), self.protocol.node());
        let (time_ms, configuration) = (self.applying.time().ms(), node.configuration());
        let news =
            self.clocks.check_clocks(now, time_ms, self.identity.member, leads, configuration);
        for off in news {
            self.observing.queue_event(Event::ClockOff(off));
        }
        self.clocks.group_or_wall_ms(self.read_clock(now)).max(time_ms)
    }

    /// Returns a member's lag in slots, if this node leads and is in contact with it.
    pub(crate) fn member_lag(&self, now: Time, member: Member) -> Option<u64> {
        if member == self.identity.member {
            return Some(0);
        }
        let met = self.peers.member(member.node) == Some(member);
        let followers = self.protocol.node().follower_lags(now);
        let mut followers = followers.into_iter();
        let follower = followers.find(|(node, heard, _)| *node == member.node && *heard && met);
        follower.map(|(_, _, lag)| lag)
    }

    /// [join-1] Returns whether a member with a lag of `lag` slots counts as caught up: it is at
    /// most a few values behind, each of which may cover many slots.
    pub(crate) fn is_caught_up(&self, lag: u64) -> bool {
        let leading = self.protocol.node().phase2();
        let tally = leading.map(|leading| (leading.tally.next(), leading.tally.len()));
        let (next, under_way) = tally.unwrap_or_default();
        let at = Slot(next.0.saturating_sub(lag));
        let values = self.applying.history().values_since(at);
        let values = values.map(|values| (values + under_way) as u64);
        let most = CAUGHT_UP_VALUES_MAX.min(self.protocol.window_slots());
        lag <= most || values.is_some_and(|values| values <= most)
    }

    pub(crate) fn is_id_removed(&self, node: NodeId) -> bool {
        let identity = self.applying.membership().eras().identity(node);
        identity.is_some_and(|identity| identity.is_removed)
    }

    pub(crate) fn node(&self) -> &Node {
        self.protocol.node()
    }

    pub(crate) fn outbox<'a>(&'a mut self, plane: &'a mut dyn Plane) -> Outbox<'a> {
        Outbox::new(self.identity.member, plane, &mut self.counters)
    }

    /// Returns the group's table as of the applied slots: ids, addresses and the plan.
    pub(crate) fn group(&self) -> &Group {
        self.applying.membership().table()
    }

    /// Returns the group's level, as of the applied slots.
    pub(crate) fn level(&self) -> Level {
        self.group().level()
    }
}
