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
    Clock, DeviceSource, Hops, Probed, Replica, StreamHold,
    events::Event,
    front::{Front, Requests},
    group::{
        As, NODES_MAX,
        asking::{Members, PeerTable},
    },
    plane::{Received, Turn},
    pressure::Pressure,
    service::StateMachine,
    status::{Status, TuningReport},
};
use quorate_wire::{Frame, Join, Lane, levels::level_of};

use crate::{
    admission::{admit, founded},
    home::Home,
    hops,
    host::{
        Backup, Charter, ClientSide, Founded, Host, OperatorSide, Order, Outcome, PeerSide, PeerUp,
        Refused, StreamRange, TurnTimes,
    },
    identity::{Identity, IdentityError},
    listener::Listener,
    metrics::{self, Clients},
};

/// Delay in milliseconds before a failed write of the identity is retried.
const WRITE_RETRY_MS: u64 = 1_000;

/// The host of one node: its replica, its front and its identity.
pub struct NodeHost<H: Home, S: StateMachine, F> {
    replica: Replica<H::Disk, S>,
    front: F,
    identity: Identity<H>,
    /// Descriptors that become readable when the front must be polled.
    wakes: Vec<Box<dyn AsFd>>,
    /// Incarnation in which each node last connected. A hello proves nothing, so a higher
    /// incarnation counts only until the node itself reconnects.
    incarnations: BTreeMap<NodeId, Incarnation>,
    listener: Box<dyn Listener>,
    /// Monotonic time of the last turn.
    time: Time,
    /// Time of the last turn by the clock that the front sees, the group's, as Unix time in
    /// milliseconds.
    front_ms: u64,
    /// The addresses saved by the previous process have been passed to the network.
    has_sent_table: bool,
    /// More than half of the peers claim that this node was removed.
    is_reported_removed: bool,
    /// Time of the next write of the identity. The identity may lag behind the decisions.
    write_at: Option<Time>,
    /// A level that a peer uses and this release does not support.
    too_old: Option<Level>,
    /// State that peers remember and this folder lost; `None` once the folder records it.
    fell_behind: Option<Memory>,
}

impl<H: Home, S: StateMachine, F: Front> NodeHost<H, S, F> {
    pub(crate) fn new(
        mut replica: Replica<H::Disk, S>,
        front: F,
        identity: Identity<H>,
        listener: Box<dyn Listener>,
    ) -> Self {
        // [access-4] A founding member at its first start has used no older table of users. Other
        // nodes look for the table now, since the first client will need it.
        if identity.is_made_here() && identity.joins().is_none() {
            replica.begins_without_users();
        }
        let _ = replica.users();
        replica.has_identity();
        let own = identity.member();
        let incarnations = BTreeMap::from([(own.node, own.incarnation)]);
        Self {
            replica,
            front,
            identity,
            wakes: Vec::new(),
            incarnations,
            listener,
            time: Time(0),
            front_ms: 0,
            has_sent_table: false,
            is_reported_removed: false,
            write_at: None,
            too_old: None,
            fell_behind: None,
        }
    }

    /// Adds a descriptor that makes the reactor poll the front when it becomes readable.
    #[must_use]
    pub fn woken_by(mut self, wake: impl AsFd + 'static) -> Self {
        self.wakes.push(Box::new(wake));
        self
    }

    /// Enables stamping of the trace points of commands ([`Host::hops`]).
    #[must_use]
    pub fn stamping(mut self, hops: Hops) -> Self {
        self.replica.lend_hops(hops);
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
    pub fn finish(mut self) -> Result<(), IdentityError> {
        if let Some(hops) = self.replica.hops() {
            hops::save_stamps(hops, self.identity.home_mut())?;
        }
        if self.replica.stopped_cleanly() { self.identity.mark_clean() } else { Ok(()) }
    }

    /// Adopts the group state that was applied last. Returns whether the address book changed.
    fn follow_group(&mut self) -> bool {
        let Some(table) = self.replica.take_peer_table() else {
            return false;
        };
        // This covers changes of era, too: this node may have been promoted or removed.
        self.write_at = Some(self.time);
        let at = self.replica.applied_to();
        let known = self.identity.book();
        // A node that replays its log or catches up passes through old states again.
        if at < known.at {
            return false;
        }
        let book = known.followed_by(&table, at);
        if book.has_same_contents(known) || book.check().is_err() {
            return false;
        }
        self.identity.set_book(book);
        true
    }

    /// Saves decisions about this node that must outlive the process. After a failure, such as a
    /// full disk, the write is retried later.
    fn note_group(&mut self, now: Time) -> Result<(), IdentityError> {
        if self.write_at.is_none_or(|at| now < at) {
            return Ok(());
        }
        self.write_at = Some(now.plus_ms(WRITE_RETRY_MS));
        let own = self.identity.member().node;
        let configuration = self.replica.node().configuration();
        let votes = configuration.member_of(own).is_some();
        let has_joined = self.replica.group().entry_of(own).is_some();
        let joins = self.identity.joins().filter(|_| has_joined);
        if votes && joins.is_some() || joins == Some(As::Learner) {
            self.identity.mark_joined()?;
        }
        if (self.replica.is_removed() || self.is_reported_removed) && !self.identity.is_removed() {
            self.identity.mark_removed()?;
        }
        self.identity.save_book()?;
        self.write_at = None;
        Ok(())
    }

    /// [lie-5] Reserves another incarnation for the next process, so that the loss is remembered
    /// whichever peers it can reach.
    fn note_fell_behind(&mut self, now: Time) -> Result<(), IdentityError> {
        if let Some(remembered) = self.replica.take_fell_behind() {
            self.fell_behind = Some(remembered.max(self.fell_behind.unwrap_or_default()));
            self.write_at = Some(now);
        }
        match self.fell_behind {
            Some(remembered) if self.write_at.is_none_or(|at| now >= at) => {
                self.write_at = Some(now.plus_ms(WRITE_RETRY_MS));
                self.identity.reserve_for_next(remembered)?;
                self.fell_behind = None;
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
            if self.too_old.replace(level) != Some(level) {
                self.listener.notice(&format!(
                    "the cluster is at level {level}, and this release supports {newest} at most: install the release \
                     that the other nodes run"
                ));
            }
            return false;
        }
        match self.identity.mark_level(level) {
            Ok(()) => {
                self.replica.level_marked(level);
                true
            }
            Err(error) => {
                self.listener.notice(&format!("cannot write the identity: {error}"));
                false
            }
        }
    }

    /// Forgets the incarnations of non-members if there are too many, because a peer with the
    /// cluster's id may claim to be any node.
    fn forget_strangers(&mut self) {
        if self.incarnations.len() > NODES_MAX {
            let configuration = self.replica.node().configuration();
            self.incarnations.retain(|node, _| configuration.member_of(*node).is_some());
        }
    }

    /// Returns the reason if no leader can ever be elected: too many members returned without their
    /// votes ([volatile-1]), and the others are too few to readmit them.
    fn lost_quorum(&self, status: &Status) -> Option<String> {
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

impl<H: Home, S: StateMachine, F: Front> PeerSide for NodeHost<H, S, F> {
    fn peer_up(&mut self, now: TurnTimes, peer: &PeerUp) {
        let Member { node, incarnation } = peer.member;
        self.incarnations.insert(node, incarnation);
        self.forget_strangers();
        // [level-8] The peer may send a snapshot of a group at this level.
        self.mark_level(peer.levels.lowest);
        let (member, boot, newest) = (peer.member, peer.boot, peer.levels.newest);
        self.replica.peer_up(now.time, member, boot, newest, peer.addresses.clone());
    }

    fn told_removed(&mut self, now: TurnTimes) {
        self.is_reported_removed = true;
        self.write_at.get_or_insert(now.time);
    }

    fn peer_down(&mut self, now: TurnTimes, node: NodeId) {
        self.replica.peer_down(now.time, node);
    }

    fn frame(&mut self, turn: &mut Turn<'_>, _: Lane, received: Received<'_>) {
        // [level-8] A message whose level cannot be marked is dropped, and the sender repeats it.
        // Answers about logs are not stored, so they need no mark.
        let kept = !matches!(received.frame, Frame::Recalled { .. });
        if kept && !self.mark_level(level_of(&received.frame)) {
            return;
        }
        self.replica.on_frame(turn.time, turn.wall_ms, received, turn.plane);
    }

    fn admit(&mut self, join: Join) -> Result<Founded, Refused> {
        admit(&mut self.identity, join)
    }

    fn memory_of(&self, node: NodeId) -> Memory {
        self.replica.memory_of(node)
    }

    fn levels(&self) -> Levels {
        self.replica.levels()
    }

    fn take_table(&mut self) -> Option<PeerTable> {
        let told = std::mem::replace(&mut self.has_sent_table, true);
        let changed = self.follow_group();
        (changed || !told).then(|| self.identity.book().table())
    }
}

impl<H: Home, S: StateMachine, F: Front> ClientSide for NodeHost<H, S, F> {
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

impl<H: Home, S: StateMachine, F: Front> OperatorSide for NodeHost<H, S, F> {
    fn status(&self) -> Status {
        let mut status = self.replica.status(self.time);
        if let Some(why) = self.lost_quorum(&status) {
            status.error = Some(why);
        }
        status
    }

    fn charter(&self) -> Charter {
        Charter {
            node: self.identity.founding().node,
            founded: founded(self.identity.founding()),
            book: self.identity.book().clone(),
        }
    }

    fn backup(&mut self) -> Option<Backup> {
        Some(Backup {
            snapshot: self.replica.hold_snapshot()?,
            founded: founded(self.identity.founding()),
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

    fn tuning(&self) -> TuningReport {
        self.replica.tuning()
    }

    fn members(&self) -> Members {
        self.replica.members(self.time)
    }

    fn users(&self) -> Option<Users> {
        self.replica.users().cloned()
    }

    fn metrics(&self, out: &mut String) {
        let clients = Clients {
            connections: self.front.connections(),
            held_bytes: self.front.held_bytes(),
            refused: self.front.refusal_counts(),
        };
        metrics::render(&self.replica, &self.status(), clients, out);
        metrics::lines_dropped(self.listener.lines_dropped(), out);
    }

    fn start_request(&mut self, now: TurnTimes, order: Order) {
        match order {
            Order::Probe => self.replica.probe(now.time),
            Order::Transfer(to) => self.replica.transfer(now.time, to),
            Order::Snapshot(at) => self.replica.snapshot_now(at),
            Order::Scrub(pace) => self.replica.begin_scrub(now.time, now.wall_ms, pace),
            Order::Hold(setting, until) => self.replica.hold_setting(now.time, setting, until),
            Order::Group { request_number: asked, ask, dry_run } => {
                self.replica.ask_group(now.time, asked, ask, dry_run)
            }
            Order::Held(StreamRange {
                request_number: asked,
                hold,
                stream,
                position,
                bytes_max,
            }) => {
                let wanted = (stream, position, bytes_max);
                self.replica.read_held(now.time, (asked, hold), wanted);
            }
        }
    }

    fn next_outcome(&mut self) -> Option<Outcome> {
        let replica = &mut self.replica;
        let mut probed = replica.take_probe();
        // [access-4] Clients would be refused until the table of users is known.
        if probed == Some(Probed::Served) && replica.users().is_none() {
            probed = Some(Probed::Unconfirmed);
        }
        let probed = probed.map(Outcome::Probed);
        let answered = |(asked, answer)| Outcome::Group(asked, answer);
        probed
            .or_else(|| replica.take_transfer_result().map(Outcome::Transferred))
            .or_else(|| replica.take_snapshot_answer().map(Outcome::Snapshot))
            .or_else(|| replica.take_group_answer().map(answered))
            .or_else(|| {
                let (asked, read) = replica.take_held_bytes()?;
                Some(Outcome::Held(asked, read))
            })
    }
}

impl<H: Home, S: StateMachine, F: Front> Host for NodeHost<H, S, F> {
    fn poll(&mut self, turn: &mut Turn<'_>) {
        let (time, wall_ms) = (turn.time, turn.wall_ms);
        self.time = time;
        let (front, mut requests) = self.front_and_requests(TurnTimes { time, wall_ms });
        front.run_turn(&mut requests);
        let front_ms = requests.wall_ms();
        drop(requests);
        self.front_ms = front_ms;
        self.replica.poll(time, wall_ms, turn.plane, &mut self.front);
        // Passes the available replies to their connections.
        while self.replica.deliver(time, wall_ms, &mut self.front) {}
    }

    fn submit(&mut self, now: TurnTimes) {
        self.replica.submit(now.time);
    }

    fn end_turn(&mut self, now: Time) -> Option<Time> {
        let wake_at = self.replica.end_turn(now);
        if let Some(notice) = self.replica.next_notice(now) {
            self.listener.notice(&notice);
        }
        while let Some(change) = self.replica.next_change() {
            self.listener.change(&change);
        }
        while let Some(event) = self.replica.next_event() {
            let never = match event {
                Event::NoLeader { .. } => self.lost_quorum(&self.replica.status(now)),
                _ => None,
            };
            self.listener.event(now, &event, never.as_deref());
        }
        if let Some(name) = self.replica.take_damaged_file()
            && let Err(error) = self.identity.rewrite(name)
        {
            self.listener.notice(&format!("cannot write the file {name} anew: {error}"));
        }
        if let Some(level) = self.replica.take_level_to_mark() {
            self.mark_level(level);
        }
        if let Err(error) = self.note_group(now) {
            self.listener.notice(&format!("cannot write the identity: {error}"));
        }
        if let Err(error) = self.note_fell_behind(now) {
            self.listener.notice(&format!("cannot write the identity: {error}"));
        }
        self.listener.end_turn(now);
        let eager = self.front.is_eager().then_some(now);
        let wait_ms = |at_ms: u64| at_ms.saturating_sub(self.front_ms);
        let front = self.front.wake_ms().map(|at| self.time.plus_ms(wait_ms(at)));
        let own = self.write_at.into_iter().chain(eager).chain(front);
        wake_at.into_iter().chain(own).min()
    }

    fn lend_clock(&mut self, clock: Clock) {
        self.replica.lend_clock(clock);
    }

    fn hops(&mut self) -> Option<&mut Hops> {
        self.replica.hops()
    }

    fn lend_device(&mut self, devices: Box<dyn DeviceSource>) {
        self.replica.lend_device(devices);
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        let front = self.wakes.iter().map(|wake| wake.as_fd());
        self.replica.log().wait_fd().into_iter().chain(front).collect()
    }

    fn stop(&mut self, now: TurnTimes) {
        self.replica.stop(now.time);
    }

    fn stopped(&self) -> bool {
        self.replica.is_stopped() && self.front.open_requests() == 0
    }
}
