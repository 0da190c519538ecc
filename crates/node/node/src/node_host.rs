//! The host that the reactor drives: a replica with its service, a front end and an identity.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd},
};

use quorate_access::Users;
use quorate_core::{
    level::{Level, Levels},
    node_id::{Incarnation, Member, NodeId},
    quorum::{MemberSet, Phase},
    record::Class,
    time::Time,
    witness::Memory,
};
use quorate_replica::{
    Clock, DeviceSource, HopRing, ProbeOutcome, Replica, StreamHold,
    events::Event,
    front::{Front, Requests},
    group::{
        MemberRole, NODES_MAX,
        asking::{MemberList, PeerTable},
    },
    plane::{ReceivedFrame, Turn},
    pressure::Pressure,
    service::StateMachine,
    status::{Status, TuningReport},
};
use quorate_wire::{Frame, Join, Lane, levels::level_of};

use crate::{
    admission::{admit_join, founding_record},
    home::Home,
    hops,
    host::{
        Backup, ClientHost, Founded, HeldStreamRange, Host, JoinData, JoinRefusal, OperatorHost,
        OperatorOutcome, OperatorRequest, PeerHost, PeerUp, TurnTimes,
    },
    identity::{Identity, IdentityError},
    listener::EventListener,
    metrics::{self, ClientStats},
};

/// Delay in milliseconds before a failed write of the identity is retried.
const WRITE_RETRY_MS: u64 = 1_000;

/// The host of one node: its replica, its front and its identity.
pub struct NodeHost<H: Home, S: StateMachine, F> {
    replica: Replica<H::Disk, S>,
    front: F,
    identity: Identity<H>,
    /// Descriptors that become readable when the front must be polled.
    wake_sources: Vec<Box<dyn AsFd>>,
    /// Incarnation in which each node last connected. A hello proves nothing, so a higher
    /// incarnation counts only until the node itself reconnects.
    incarnations: BTreeMap<NodeId, Incarnation>,
    listener: Box<dyn EventListener>,
    /// Monotonic time of the last turn.
    last_turn_at: Time,
    /// Time of the last turn by the clock that the front sees, the group's, as Unix time in
    /// milliseconds.
    front_time_ms: u64,
    /// The addresses saved by the previous process have been passed to the network.
    has_sent_table: bool,
    /// More than half of the peers claim that this node was removed.
    is_reported_removed: bool,
    /// Time of the next write of the identity. The identity may lag behind the decisions.
    identity_write_at: Option<Time>,
    /// A level that a peer uses and this release does not support.
    unsupported_level: Option<Level>,
    /// State that peers remember and this folder lost; `None` once the folder records it.
    lost_memory: Option<Memory>,
}

impl<H: Home, S: StateMachine, F: Front> NodeHost<H, S, F> {
    pub(crate) fn new(
        mut replica: Replica<H::Disk, S>,
        front: F,
        identity: Identity<H>,
        listener: Box<dyn EventListener>,
    ) -> Self {
        // [access-4] A founding member at its first start has used no older table of users. Other
        // nodes look for the table now, since the first client will need it.
        if identity.is_newly_created() && identity.joining_role().is_none() {
            replica.set_never_had_users();
        }
        let _ = replica.users();
        replica.set_has_identity();
        let own = identity.member();
        let incarnations = BTreeMap::from([(own.node, own.incarnation)]);
        Self {
            replica,
            front,
            identity,
            wake_sources: Vec::new(),
            incarnations,
            listener,
            last_turn_at: Time(0),
            front_time_ms: 0,
            has_sent_table: false,
            is_reported_removed: false,
            identity_write_at: None,
            unsupported_level: None,
            lost_memory: None,
        }
    }

    /// Adds a descriptor that makes the reactor poll the front when it becomes readable.
    #[must_use]
    pub fn with_wake_source(mut self, wake: impl AsFd + 'static) -> Self {
        self.wake_sources.push(Box::new(wake));
        self
    }

    /// Enables stamping of the trace points of commands ([`Host::hops`]).
    #[must_use]
    pub fn with_hops(mut self, hops: HopRing) -> Self {
        self.replica.set_hops(hops);
        self
    }

    pub fn replica(&self) -> &Replica<H::Disk, S> {
        &self.replica
    }

    pub fn identity(&self) -> &Identity<H> {
        &self.identity
    }

    /// [volatile-4] Durably marks a clean stop, after the reactor has ended and everything is
    /// written.
    pub fn finish_clean_stop(mut self) -> Result<(), IdentityError> {
        if let Some(hops) = self.replica.hops() {
            hops::save_stamps(hops, self.identity.home_mut())?;
        }
        if self.replica.stopped_cleanly() { self.identity.mark_clean() } else { Ok(()) }
    }

    /// Adopts the group state that was applied last. Returns whether the address book changed.
    fn adopt_group(&mut self) -> bool {
        let Some(table) = self.replica.take_peer_table() else {
            return false;
        };
        // This covers changes of era, too: this node may have been promoted or removed.
        self.identity_write_at = Some(self.last_turn_at);
        let at = self.replica.applied_to();
        let known = self.identity.address_book();
        // A node that replays its log or catches up passes through old states again.
        if at < known.as_of_slot {
            return false;
        }
        let book = known.updated_from(&table, at);
        if book.has_same_contents(known) || book.check_limits().is_err() {
            return false;
        }
        self.identity.set_address_book(book);
        true
    }

    /// Saves decisions about this node that must outlive the process. After a failure, such as a
    /// full disk, the write is retried later.
    fn save_group_decisions(&mut self, now: Time) -> Result<(), IdentityError> {
        if self.identity_write_at.is_none_or(|at| now < at) {
            return Ok(());
        }
        self.identity_write_at = Some(now.plus_ms(WRITE_RETRY_MS));
        let own = self.identity.member().node;
        let configuration = self.replica.node().configuration();
        let votes = configuration.member_of(own).is_some();
        let has_joined = self.replica.group().entry_of(own).is_some();
        let joins = self.identity.joining_role().filter(|_| has_joined);
        if votes && joins.is_some() || joins == Some(MemberRole::Learner) {
            self.identity.mark_joined()?;
        }
        if (self.replica.is_removed() || self.is_reported_removed) && !self.identity.is_removed() {
            self.identity.mark_removed()?;
        }
        self.identity.save_address_book()?;
        self.identity_write_at = None;
        Ok(())
    }

    /// [lie-5] Reserves another incarnation for the next process, so that the loss is remembered
    /// whichever peers it can reach.
    fn save_lost_memory(&mut self, now: Time) -> Result<(), IdentityError> {
        if let Some(remembered) = self.replica.take_lost_memory() {
            self.lost_memory = Some(remembered.max(self.lost_memory.unwrap_or_default()));
            self.identity_write_at = Some(now);
        }
        match self.lost_memory {
            Some(remembered) if self.identity_write_at.is_none_or(|at| now >= at) => {
                self.identity_write_at = Some(now.plus_ms(WRITE_RETRY_MS));
                self.identity.reserve_next_incarnation(remembered)?;
                self.lost_memory = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// [level-8] Durably marks the folder before it needs this level. Returns whether it is marked.
    fn mark_level(&mut self, level: Level) -> bool {
        if level <= self.identity.level() {
            return true;
        }
        let newest = self.replica.levels().newest;
        if level > newest {
            // The level was raised while this node was down, or ran another release.
            if self.unsupported_level.replace(level) != Some(level) {
                self.listener.on_notice(&format!(
                    "the cluster is at level {level}, and this release supports {newest} at most: install the release \
                     that the other nodes run"
                ));
            }
            return false;
        }
        match self.identity.mark_level(level) {
            Ok(()) => {
                self.replica.on_level_marked(level);
                true
            }
            Err(error) => {
                self.listener.on_notice(&format!("cannot write the identity: {error}"));
                false
            }
        }
    }

    /// Forgets the incarnations of non-members if there are too many, because a peer with the
    /// cluster's id may claim to be any node.
    fn forget_non_members(&mut self) {
        if self.incarnations.len() > NODES_MAX {
            let configuration = self.replica.node().configuration();
            self.incarnations.retain(|node, _| configuration.member_of(*node).is_some());
        }
    }

    /// Returns the reason if no leader can ever be elected: too many members returned without their
    /// votes ([volatile-1]), and the others are too few to readmit them.
    fn why_never_leader(&self, status: &Status) -> Option<String> {
        if status.class != Class::Volatile || status.leader.is_some() {
            return None;
        }
        let configuration = self.replica.node().configuration();
        let remembers = |member: Member| {
            let met = self.incarnations.get(&member.node);
            met.is_none_or(|met| *met <= member.incarnation)
        };
        let members = configuration.members().iter().enumerate();
        let left = members.filter(|(_, voter)| remembers(voter.member));
        let left = left.fold(MemberSet::default(), |set, (at, _)| set.with(at));
        let quorums = [Phase::One, Phase::Two];
        let enough = quorums.iter().all(|phase| configuration.is_quorum(*phase, left));
        (!enough).then(|| {
            "too many members of this volatile cluster stopped uncleanly and have forgotten their \
             votes: no leader can be elected; what was acknowledged may be lost: stop all nodes and \
             start a new cluster in empty folders"
                .to_owned()
        })
    }
}

impl<H: Home, S: StateMachine, F: Front> PeerHost for NodeHost<H, S, F> {
    fn peer_up(&mut self, now: TurnTimes, peer: &PeerUp) {
        let Member { node, incarnation } = peer.member;
        self.incarnations.insert(node, incarnation);
        self.forget_non_members();
        // [level-8] The peer may send a snapshot of a group at this level.
        self.mark_level(peer.levels.lowest);
        let (member, boot, newest) = (peer.member, peer.boot, peer.levels.newest);
        self.replica.peer_up(now.time, member, boot, newest, peer.addresses.clone());
    }

    fn on_removal_claimed(&mut self, now: TurnTimes) {
        self.is_reported_removed = true;
        self.identity_write_at.get_or_insert(now.time);
    }

    fn peer_down(&mut self, now: TurnTimes, node: NodeId) {
        self.replica.peer_down(now.time, node);
    }

    fn handle_frame(&mut self, turn: &mut Turn<'_>, _: Lane, received: ReceivedFrame<'_>) {
        // [level-8] A message whose level cannot be marked is dropped, and the sender repeats it.
        // Answers about logs are not stored, so they need no mark.
        let kept = !matches!(received.frame, Frame::Recalled { .. });
        if kept && !self.mark_level(level_of(&received.frame)) {
            return;
        }
        self.replica.on_frame(turn.time, turn.wall_ms, received, turn.plane);
    }

    fn answer_join(&mut self, join: Join) -> Result<Founded, JoinRefusal> {
        admit_join(&mut self.identity, join)
    }

    fn memory_of(&self, node: NodeId) -> Memory {
        self.replica.memory_of(node)
    }

    fn levels(&self) -> Levels {
        self.replica.levels()
    }

    fn take_peer_table(&mut self) -> Option<PeerTable> {
        let told = std::mem::replace(&mut self.has_sent_table, true);
        let changed = self.adopt_group();
        (changed || !told).then(|| self.identity.address_book().peer_table())
    }
}

impl<H: Home, S: StateMachine, F: Front> ClientHost for NodeHost<H, S, F> {
    type Front = F;

    fn front(&self) -> &F {
        &self.front
    }

    fn front_mut(&mut self) -> &mut F {
        &mut self.front
    }

    fn front_and_requests(&mut self, now: TurnTimes) -> (&mut F, impl Requests) {
        (&mut self.front, self.replica.requests(now.time, now.wall_ms))
    }

    fn pressure(&self) -> Pressure {
        self.replica.pressure()
    }
}

impl<H: Home, S: StateMachine, F: Front> OperatorHost for NodeHost<H, S, F> {
    fn status(&self) -> Status {
        let mut status = self.replica.status(self.last_turn_at);
        if let Some(why) = self.why_never_leader(&status) {
            status.error = Some(why);
        }
        status
    }

    fn join_data(&self) -> JoinData {
        JoinData {
            node: self.identity.founding().node,
            founded: founding_record(self.identity.founding()),
            address_book: self.identity.address_book().clone(),
        }
    }

    fn backup(&mut self) -> Option<Backup> {
        Some(Backup {
            snapshot: self.replica.hold_snapshot()?,
            founded: founding_record(self.identity.founding()),
            next_id: self.replica.group().next_id(),
            folder: self.identity.home().path().to_owned(),
        })
    }

    fn hold_streams(
        &mut self,
        now: TurnTimes,
        earlier: Option<StreamHold>,
    ) -> Result<StreamHold, String> {
        self.replica.hold_streams(now.time, earlier)
    }

    fn tuning_report(&self) -> TuningReport {
        self.replica.tuning_report()
    }

    fn members(&self) -> MemberList {
        self.replica.members(self.last_turn_at)
    }

    fn users(&self) -> Option<Users> {
        self.replica.users().cloned()
    }

    fn metrics(&self, out: &mut String) {
        let clients = ClientStats {
            connections: self.front.connections(),
            held_bytes: self.front.held_bytes(),
            refusal_counts: self.front.refusal_counts(),
        };
        metrics::render(&self.replica, &self.status(), clients, out);
        metrics::append_dropped_lines(self.listener.dropped_line_count(), out);
    }

    fn start_request(&mut self, now: TurnTimes, order: OperatorRequest) {
        match order {
            OperatorRequest::Probe => self.replica.start_probe(now.time),
            OperatorRequest::Transfer(to) => self.replica.transfer(now.time, to),
            OperatorRequest::Snapshot(at) => self.replica.snapshot_now(at),
            OperatorRequest::Scrub(pace) => self.replica.begin_scrub(now.time, now.wall_ms, pace),
            OperatorRequest::FixSetting(setting, until) => {
                self.replica.fix_setting(now.time, setting, until)
            }
            OperatorRequest::Group { request_number: asked, request: ask, dry_run } => {
                self.replica.ask_group(now.time, asked, ask, dry_run)
            }
            OperatorRequest::ReadHeldStream(HeldStreamRange {
                request_number: asked,
                hold_number: hold,
                stream,
                position,
                bytes_max,
            }) => {
                let wanted = (stream, position, bytes_max);
                self.replica.read_held(now.time, (asked, hold), wanted);
            }
        }
    }

    fn next_outcome(&mut self) -> Option<OperatorOutcome> {
        let replica = &mut self.replica;
        let mut probed = replica.take_probe();
        // [access-4] Clients would be refused until the table of users is known.
        if probed == Some(ProbeOutcome::Served) && replica.users().is_none() {
            probed = Some(ProbeOutcome::Unconfirmed);
        }
        let probed = probed.map(OperatorOutcome::Probed);
        let answered = |(asked, answer)| OperatorOutcome::Group(asked, answer);
        probed
            .or_else(|| replica.take_transfer_result().map(OperatorOutcome::Transferred))
            .or_else(|| replica.take_snapshot_answer().map(OperatorOutcome::Snapshot))
            .or_else(|| replica.take_group_answer().map(answered))
            .or_else(|| {
                let (asked, read) = replica.take_held_bytes()?;
                Some(OperatorOutcome::HeldStreamRead(asked, read))
            })
    }
}

impl<H: Home, S: StateMachine, F: Front> Host for NodeHost<H, S, F> {
    fn poll(&mut self, turn: &mut Turn<'_>) {
        let (time, wall_ms) = (turn.time, turn.wall_ms);
        self.last_turn_at = time;
        let (front, mut requests) = self.front_and_requests(TurnTimes { time, wall_ms });
        front.run_turn(&mut requests);
        let front_ms = requests.wall_ms();
        drop(requests);
        self.front_time_ms = front_ms;
        self.replica.poll(time, wall_ms, turn.plane, &mut self.front);
        // Passes the available replies to their connections.
        while self.replica.deliver_completions(time, wall_ms, &mut self.front) {}
    }

    fn submit_records(&mut self, now: TurnTimes) {
        self.replica.submit_records(now.time);
    }

    fn end_turn(&mut self, now: Time) -> Option<Time> {
        let wake_at = self.replica.end_turn(now);
        if let Some(notice) = self.replica.next_notice(now) {
            self.listener.on_notice(&notice);
        }
        while let Some(change) = self.replica.next_change() {
            self.listener.on_tuning_change(&change);
        }
        while let Some(event) = self.replica.next_event() {
            let never = match event {
                Event::NoLeader { .. } => self.why_never_leader(&self.replica.status(now)),
                _ => None,
            };
            self.listener.on_event(now, &event, never.as_deref());
        }
        if let Some(name) = self.replica.take_damaged_file()
            && let Err(error) = self.identity.rewrite_file(name)
        {
            self.listener.on_notice(&format!("cannot write the file {name} anew: {error}"));
        }
        if let Some(level) = self.replica.take_level_to_mark() {
            self.mark_level(level);
        }
        if let Err(error) = self.save_group_decisions(now) {
            self.listener.on_notice(&format!("cannot write the identity: {error}"));
        }
        if let Err(error) = self.save_lost_memory(now) {
            self.listener.on_notice(&format!("cannot write the identity: {error}"));
        }
        self.listener.end_turn(now);
        let eager = self.front.is_eager().then_some(now);
        let wait_ms = |at_ms: u64| at_ms.saturating_sub(self.front_time_ms);
        let front = self.front.wake_ms().map(|at| self.last_turn_at.plus_ms(wait_ms(at)));
        let own = self.identity_write_at.into_iter().chain(eager).chain(front);
        wake_at.into_iter().chain(own).min()
    }

    fn set_clock(&mut self, clock: Clock) {
        self.replica.set_clock(clock);
    }

    fn hops(&mut self) -> Option<&mut HopRing> {
        self.replica.hops()
    }

    fn set_device_source(&mut self, devices: Box<dyn DeviceSource>) {
        self.replica.set_device_source(devices);
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        let front = self.wake_sources.iter().map(|wake| wake.as_fd());
        self.replica.log().wait_fd().into_iter().chain(front).collect()
    }

    fn stop(&mut self, now: TurnTimes) {
        self.replica.stop(now.time);
    }

    fn is_stopped(&self) -> bool {
        self.replica.is_stopped() && self.front.open_requests() == 0
    }
}
