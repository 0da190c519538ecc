//! Connects the tuner to this replica: translates names and clocks, and decides nothing itself.
//!
//! Batch size and window determine when a command is sent, and together with which others. They
//! never change which commands are decided, or their order.

use std::collections::VecDeque;

use quorate_core::{laying::Route, message::Message, node_id::NodeId, record::Class, time::Time};
use quorate_tuner::{
    CompletedBatch, ReactorTurn, Report, Setting, SettingBounds, SettingChange, Settings, Tuner,
};

use crate::{
    clock::to_moment,
    counters::{BatchCompletion, OriginTotals},
    routing::Routing,
};

/// Maximum number of unreported changes; the oldest ones are dropped.
const CHANGES_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct PendingWrite {
    seq: u64,
    began_at: Time,
    bytes: usize,
}

/// The tuner, and the measurements that it receives.
#[derive(Debug)]
pub(crate) struct Tuning {
    tuner: Tuner,
    possible_bounds: SettingBounds,
    class: Class,
    /// Setting fixed by an operator, and the time until which it is in force.
    fixed_setting: Option<(Setting, Time)>,
    began: Option<Time>,
    last_totals: OriginTotals,
    /// Peers; the tuner knows each by its index here.
    peers: Vec<NodeId>,
    writes: VecDeque<PendingWrite>,
    unreported_changes: VecDeque<SettingChange>,
    /// Automatic choice of the route of votes; `None` if the route is configured.
    routing: Option<Routing>,
}

impl Tuning {
    /// Creates the tuner. `possible` limits its settings and those that an operator fixes.
    pub(crate) fn new(
        settings: Settings,
        possible: SettingBounds,
        class: Class,
        routing: Option<Routing>,
    ) -> Self {
        Self {
            tuner: Tuner::new(settings),
            possible_bounds: possible,
            class,
            fixed_setting: None,
            began: None,
            last_totals: OriginTotals::default(),
            peers: Vec::new(),
            writes: VecDeque::new(),
            unreported_changes: VecDeque::new(),
            routing,
        }
    }

    pub(crate) fn setting(&self) -> Setting {
        let held = self.fixed_setting.map(|(setting, _)| setting);
        held.unwrap_or_else(|| self.tuner.setting())
    }

    /// Fixes a setting until `until`, to measure its effect; `None` lets the tuner decide again.
    pub(crate) fn fix_setting(&mut self, now: Time, setting: Option<Setting>, until: Time) {
        self.fixed_setting = setting.map(|setting| (self.possible_bounds.clamp(setting), until));
        match self.fixed_setting {
            Some(_) => self.tuner.suspend(to_moment(now)),
            None => self.tuner.resume(to_moment(now)),
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed_setting.is_some()
    }

    pub(crate) fn report(&self) -> Report {
        self.tuner.report()
    }

    pub(crate) fn next_change(&mut self) -> Option<SettingChange> {
        self.unreported_changes.pop_front()
    }

    pub(crate) fn set_nodes(&mut self, nodes: usize) {
        self.tuner.set_nodes(nodes);
    }

    pub(crate) fn begin_turn(&mut self, now: Time) {
        self.began.get_or_insert(now);
        if let Some(routing) = &mut self.routing {
            routing.begin_turn(now);
        }
    }

    /// [plane-3] Reviews the choice of the route at the end of a turn. Returns the route if it has
    /// changed.
    pub(crate) fn choose_route(&mut self, leads: bool, voters: usize, now: Time) -> Option<Route> {
        let routing = self.routing.as_mut()?;
        routing.end_turn(now);
        routing.review_choice(leads, voters, now)
    }

    /// Returns why the current route is used, if it is chosen automatically.
    pub(crate) fn describe_route(&self) -> Option<String> {
        self.routing.as_ref().map(Routing::describe_choice)
    }

    pub(crate) fn on_sent(&mut self, now: Time, to: NodeId, message: &Message, bytes: usize) {
        match message {
            Message::Phase2a(proposal) => {
                let (peer, slot) = (self.peer_number(to), proposal.range.from.0);
                self.tuner.on_sent(to_moment(now), peer, slot, bytes);
            }
            Message::Heartbeat(beat) => {
                let peer = self.peer_number(to);
                self.tuner.on_heartbeat_sent(to_moment(now), peer, beat.sent_to.0);
            }
            _ => {}
        }
    }

    pub(crate) fn on_message(&mut self, now: Time, from: NodeId, message: &Message) {
        if let Some(routing) = &mut self.routing {
            routing.on_message(message);
        }
        match message {
            Message::Phase2b(vote) => {
                let to = match self.class {
                    Class::Durable => vote.durable_to,
                    Class::Volatile => vote.volatile_to,
                };
                let peer = self.peer_number(from);
                self.tuner.on_voted(to_moment(now), peer, to.0);
            }
            Message::RingVote(vote) => {
                for entry in &vote.entries {
                    let known = |peer: &NodeId| *peer == entry.member.node;
                    if let Some(peer) = self.peers.iter().position(known) {
                        let to = entry.to(self.class);
                        self.tuner.on_voted(to_moment(now), peer, to.0);
                    }
                }
            }
            Message::HeartbeatReply(reply) => {
                let peer = self.peer_number(from);
                self.tuner.on_heartbeat_reply(to_moment(now), peer, reply.sent_to.0);
            }
            _ => {}
        }
    }

    /// Restarts measurements after a change of the leader or of the connections.
    pub(crate) fn on_peers_changed(&mut self) {
        self.tuner.on_peers_changed();
    }

    /// Records that log write number `seq`, of `bytes` bytes, has started.
    pub(crate) fn on_write(&mut self, now: Time, seq: u64, bytes: usize) {
        if self.writes.back().is_none_or(|last| last.seq < seq) {
            self.writes.push_back(PendingWrite { seq, began_at: now, bytes });
        }
    }

    /// Records that every write up to `seq` is on stable storage. Passes to `each` the duration of
    /// each write in microseconds and its size in bytes.
    pub(crate) fn on_written(&mut self, now: Time, seq: u64, mut each: impl FnMut(u64, usize)) {
        while let Some(write) = self.writes.pop_front_if(|write| write.seq <= seq) {
            self.tuner.on_flush(to_moment(write.began_at), to_moment(now), write.bytes);
            each(now.since_us(write.began_at), write.bytes);
        }
    }

    pub(crate) fn oldest_write(&self) -> Option<Time> {
        self.writes.front().map(|write| write.began_at)
    }

    /// Records that a batch of this node was executed, before its replies are sent.
    pub(crate) fn on_completed(&mut self, now: Time, completed: &BatchCompletion) {
        let done = CompletedBatch {
            first_accepted_at: to_moment(completed.first_accepted_at),
            last_accepted_at: to_moment(completed.last_accepted_at),
            formed_at: to_moment(completed.formed_at),
            commands: completed.command_count,
            bytes: completed.bytes,
        };
        self.tuner.on_done(to_moment(now), &done);
    }

    /// Ends the turn. Returns the setting in force from now on.
    pub(crate) fn end_turn(
        &mut self,
        now: Time,
        wake_by: Option<Time>,
        totals: OriginTotals,
        waiting: usize,
        in_flight: usize,
    ) -> Setting {
        if self.fixed_setting.is_some_and(|(_, until)| until <= now) {
            self.fix_setting(now, None, now);
        }
        let Some(began) = self.began.take() else {
            return self.setting();
        };
        let since = |total: u64, before: u64| total.saturating_sub(before);
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.last_totals, totals);
        let turn = ReactorTurn {
            woke_at: to_moment(began),
            ended: to_moment(now),
            next_wake_by: wake_by.map(to_moment),
            commands: small(since(totals.accepted_commands, before.accepted_commands)),
            batches: small(since(totals.formed_batches, before.formed_batches)),
            batch_bytes: since(totals.bytes, before.bytes) as usize,
            batch_commands: small(since(totals.commands, before.commands)),
            waiting_commands: waiting,
            in_flight,
        };
        if let Some(change) = self.tuner.on_turn(&turn)
            && self.fixed_setting.is_none()
        {
            if self.unreported_changes.len() == CHANGES_MAX {
                self.unreported_changes.pop_front();
            }
            self.unreported_changes.push_back(change);
        }
        self.setting()
    }

    fn peer_number(&mut self, node: NodeId) -> usize {
        let known = self.peers.iter().position(|peer| *peer == node);
        known.unwrap_or_else(|| {
            self.peers.push(node);
            self.peers.len() - 1
        })
    }
}
