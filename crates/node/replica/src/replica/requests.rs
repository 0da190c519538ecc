//! Requests from front ends to the replica, and the delivery of completions and events to them.

use quorate_access::Users;
use quorate_core::{level::Level, node_id::NodeId, time::Time};
use quorate_log::disk::Disk;

use super::Replica;

use crate::{
    hops::Hop,
    outlasting::ConfirmationMethod,
    ports::{
        frame_clients::FrameClients,
        front::{Failure, Front, NO_USERS, Requests, Sequenced, Tag},
        service::{StateMachine, Weight},
        status::Status,
        stream_front::{StreamEvent, StreamRequests},
    },
    proposing::gather::Waiter,
    reading::evidence::ReadEvidence,
    streaming::FrontEvent,
};

/// Port for a front's requests to the replica, valid for one call of the front.
pub struct Requester<'a, D: Disk, S: StateMachine> {
    pub(super) replica: &'a mut Replica<D, S>,
    pub(super) now: Time,
    pub(super) wall_ms: u64,
    /// Evidence that allows the read of which the front is being notified.
    evidence: ReadEvidence,
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Reports all completed requests to a front. Returns whether there were any.
    pub fn deliver_completions(&mut self, now: Time, wall_ms: u64, front: &mut dyn Front) -> bool {
        if self.deliver_streams(now, wall_ms, front) {
            return true;
        }
        let Some(mut ended) = self.spine.completions.take_ended() else {
            return false;
        };
        let wall_ms = self.spine.check_clocks(now, wall_ms);
        self.reading.begin_turn();
        while let Some((completion, evidence)) =
            ended.next_not_forgotten(&mut self.spine.completions)
        {
            let mut requests = Requester::for_read(self, now, wall_ms, evidence);
            front.handle_completion(completion, &mut requests);
        }
        self.spine.completions.recycle_buffers(ended);
        true
    }

    /// Notifies a front of all stream events. Returns whether there were any.
    fn deliver_streams(&mut self, now: Time, wall_ms: u64, front: &mut dyn Front) -> bool {
        while let Some((tag, result)) = self.spine.completions.take_stream_result() {
            self.streaming.queue_event(match result {
                Ok(()) => FrontEvent::UpToDate(tag),
                Err(failure) => FrontEvent::Failed(tag, failure),
            });
        }
        let mut time = None;
        while let Some(told) = self.streaming.next_front_event() {
            let wall_ms = *time.get_or_insert_with(|| self.spine.check_clocks(now, wall_ms));
            let event = match told {
                FrontEvent::Bytes(tag, ref bytes) => StreamEvent::Bytes(tag, bytes),
                FrontEvent::Executed(tag, done) => StreamEvent::Executed(tag, done),
                FrontEvent::Refused(tag, denied) => StreamEvent::Refused(tag, denied),
                FrontEvent::Failed(tag, failure) => StreamEvent::Failed(tag, failure),
                FrontEvent::UpToDate(tag) => StreamEvent::UpToDate(tag),
                FrontEvent::NoBytes(tag, nowhere) => StreamEvent::NoBytes(tag, nowhere),
                FrontEvent::Durable(piece, position) => StreamEvent::Durable(piece, position),
                FrontEvent::Ended(piece, position) => StreamEvent::Ended(piece, position),
            };
            front.handle_stream_event(event, &mut Requester::new(self, now, wall_ms));
        }
        time.is_some()
    }

    /// Returns the port through which clients submit requests to this node.
    pub fn requests(&mut self, now: Time, wall_ms: u64) -> Requester<'_, D, S> {
        let wall_ms = self.spine.check_clocks(now, wall_ms);
        Requester::new(self, now, wall_ms)
    }
}

impl<'a, D: Disk, S: StateMachine> Requester<'a, D, S> {
    pub(super) fn new(replica: &'a mut Replica<D, S>, now: Time, wall_ms: u64) -> Self {
        Self::for_read(replica, now, wall_ms, ReadEvidence::Confirmed)
    }

    /// Creates the port for a front that is being notified of a read, with the evidence that allows
    /// it.
    pub(super) fn for_read(
        replica: &'a mut Replica<D, S>,
        now: Time,
        wall_ms: u64,
        evidence: ReadEvidence,
    ) -> Self {
        Self { replica, now, wall_ms, evidence }
    }

    fn accept_command(
        &mut self,
        waiter: Waiter,
        at: Option<Sequenced>,
        command: &[u8],
    ) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        let own_full = replica.fitness.full_disks.check_own_disk(self.now, &mut replica.spine);
        let taken = replica.spine.applying.check_accepts_commands();
        taken.map_err(|failure| match own_full {
            true => Failure::DiskFull(replica.spine.identity.member.node),
            false => failure,
        })?;
        if !replica.spine.applying.has_level(command) {
            return Err(Failure::Level);
        }
        if let Some(node) = replica.fitness.full_disks.refusing_member(self.now, &replica.spine)
            && replica.spine.applying.may_add_data(command)
        {
            return Err(Failure::DiskFull(node));
        }
        let weight = replica.spine.applying.command_cost(command);
        if weight == Weight::TooHeavy {
            return Err(Failure::TooBig);
        }
        let heavy = weight == Weight::Heavy;
        let taken = replica.spine.proposing.accept_command(self.now, waiter, at, (command, heavy));
        self.count_accepted(taken)
    }

    fn count_accepted(&mut self, taken: Result<(), Failure>) -> Result<(), Failure> {
        let counters = &mut self.replica.spine.counters;
        match taken {
            Ok(()) => {
                counters.commands_accepted += 1;
                self.replica.spine.completions.count_opened();
                self.replica.spine.stamp(Hop::Command, None);
            }
            Err(_) => counters.commands_busy += 1,
        }
        taken
    }
}

impl<D: Disk, S: StateMachine> Requests for Requester<'_, D, S> {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.accept_command(Waiter::Front(tag), None, command)
    }

    fn write_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Result<(), Failure> {
        self.accept_command(Waiter::Front(tag), Some(at), command)
    }

    fn write_lasting(
        &mut self,
        tag: Tag,
        at: Option<Sequenced>,
        command: &[u8],
    ) -> Result<(), Failure> {
        let waiter = match self.replica.spine.durable_confirmation() {
            ConfirmationMethod::ByDecision => Waiter::Front(tag),
            ConfirmationMethod::ByQuery => Waiter::FrontDurable(tag),
            ConfirmationMethod::Impossible => return Err(Failure::Level),
        };
        self.accept_command(waiter, at, command)
    }

    fn write_early(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        let waiter = match self.replica.spine.early_confirmation() {
            ConfirmationMethod::ByDecision => Waiter::Front(tag),
            ConfirmationMethod::ByQuery => Waiter::FrontEarly(tag),
            ConfirmationMethod::Impossible => return Err(Failure::Level),
        };
        self.accept_command(waiter, None, command)
    }

    fn register(&mut self, tag: Tag) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        self.replica.spine.applying.check_accepts_commands()?;
        let taken = self.replica.spine.proposing.origin_mut().register(self.now, tag);
        self.count_accepted(taken)
    }

    fn read(&mut self, tag: Tag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        replica.spine.applying.check_accepts_reads()?;
        let taken = replica.reading.queue_read(self.now, Waiter::Front(tag));
        match taken {
            Ok(()) => {
                replica.spine.counters.reads_asked += 1;
                replica.spine.completions.count_opened();
            }
            Err(_) => replica.spine.counters.commands_busy += 1,
        }
        taken
    }

    fn read_within(&mut self, tag: Tag, most_ms: u64) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        replica.spine.applying.check_accepts_reads()?;
        let taken = replica.reading.queue_bounded_read(self.now, tag, most_ms);
        match taken {
            Ok(()) => {
                replica.spine.counters.reads_within += 1;
                replica.spine.completions.count_opened();
            }
            Err(_) => replica.spine.counters.commands_busy += 1,
        }
        taken
    }

    fn queue_read(&mut self, tag: Tag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        replica.spine.applying.check_accepts_commands()?;
        let taken = replica.spine.proposing.origin_mut().accept_read(self.now, tag);
        match taken {
            Ok(()) => {
                replica.spine.counters.reads_in_order += 1;
                replica.spine.completions.count_opened();
            }
            Err(_) => replica.spine.counters.commands_busy += 1,
        }
        taken
    }

    fn drop_requests(&mut self, tag: Tag) {
        self.replica.spine.completions.drop_request(tag);
    }

    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        self.replica.spine.applying.query(query, self.wall_ms, reply)
    }

    fn run_query(&mut self, _: Tag, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        let length = reply.len();
        if let ReadEvidence::Ahead(slot) = self.evidence
            && self.replica.spine.applying.applied_to() < slot
            && !self.replica.may_read_ahead(query)
        {
            self.replica.reading.delay_ahead_reads(self.now);
            return Err(Failure::Overtaken);
        }
        // [read-10] Peers wait for heartbeats: the rest is requested again.
        if self.replica.reading.is_turn_used_up() {
            return Err(Failure::Overtaken);
        }
        self.query(query, reply)?;
        self.replica.reading.count_visits(self.replica.spine.applying.service().query_visits());
        // [read-4] The check comes last, because the process may be suspended during the query.
        let replica = &mut *self.replica;
        let (node, applied_to) = (replica.spine.node(), replica.spine.applying.applied_to());
        if self.evidence.still_holds(replica.spine.clocks.steady_clock(), node, applied_to) {
            return Ok(());
        }
        replica.spine.counters.reads_overtaken += 1;
        reply.truncate(length);
        Err(Failure::Overtaken)
    }

    fn status(&self) -> Status {
        self.replica.status(self.now)
    }

    fn leader(&self) -> Option<NodeId> {
        self.replica.spine.node().leader()
    }

    fn level(&self) -> Level {
        self.replica.level()
    }

    fn users(&self) -> Option<&Users> {
        // [aux-1] Refused at once: an auxiliary executes nothing and answers no clients.
        if self.replica.spine.node().is_auxiliary() {
            return Some(&NO_USERS);
        }
        self.replica.users()
    }

    fn users_version(&self) -> u64 {
        let version = self.replica.spine.applying.access().version();
        version << 1 | u64::from(self.replica.spine.node().is_auxiliary())
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    fn knows_clock(&self) -> bool {
        self.replica.spine.clocks.is_group_clock_known()
    }

    fn command_bytes_max(&self) -> usize {
        self.replica.spine.proposing.command_bytes_max()
    }

    fn frame_clients(&mut self) -> Option<&mut dyn FrameClients> {
        Some(self)
    }

    fn streams(&mut self) -> Option<&mut dyn StreamRequests> {
        Some(self)
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Returns the users and their permissions if the table is at least as recent as the one in use
    /// before the restart ([access-4]). An auxiliary has none.
    pub fn users(&self) -> Option<&Users> {
        let users = self.spine.applying.access().users();
        users.filter(|_| {
            self.spine.applying.can_answer_queries() && !self.spine.node().is_auxiliary()
        })
    }

    /// [access-4] Records that this node has never known any users of the group. Called at most
    /// once, before the first turn.
    pub fn set_never_had_users(&mut self) {
        self.spine.applying.mark_access_current();
    }

    /// Fails if this node does not serve clients at present.
    pub(super) fn check_serves_clients(&self) -> Result<(), Failure> {
        self.check_open()?;
        if self.is_removed() {
            return Err(Failure::Removed);
        }
        match self.spine.applying.condition().doubt_reason() {
            Some(_) => Err(Failure::Diverged),
            None => Ok(()),
        }
    }

    /// Fails if this node serves neither operators nor its own internal requests at present. A
    /// doubt about its state alone does not prevent these ([differ-3]).
    pub(super) fn check_open(&self) -> Result<(), Failure> {
        if self.ending.is_requested() {
            return Err(Failure::Stopping);
        }
        if self.spine.storing.failure().is_some() {
            return Err(Failure::Voteless);
        }
        // [aux-1] An auxiliary executes nothing, so it would never learn a reply.
        if self.spine.node().is_auxiliary() {
            return Err(Failure::Unavailable);
        }
        Ok(())
    }
}
