//! What the reactor drives: a replica with its service, a front, and the folder's identity.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd},
};

use crate::identity::{Identity, IdentityError};
use quorate_core::{
    effect::Refusal,
    node_id::{Incarnation, Member, NodeId},
    record::Class,
    time::Time,
};
use quorate_disk::Disk;
use quorate_replica::{
    Probed, Replica,
    events::Event,
    front::{ConnectionId, Endpoints, Front},
    plane::Plane,
    pressure::Pressure,
    service::StateMachine,
    status::{Status, TuningReport},
    tuner::Setting,
};
use quorate_wire::{Frame, Join, Lane, RefusalCode};

use crate::{
    founding::list_hash,
    host::{Founded, Host, Now, PeerUp, Refused},
    listener::Listener,
    metrics,
};

/// A node without its sockets.
pub struct NodeHost<D: Disk, S: StateMachine, F> {
    replica: Replica<D, S>,
    front: F,
    identity: Identity,
    /// Readable when the front has something to poll for.
    wake: Option<Box<dyn AsFd>>,
    /// The incarnation in which each node was met last. A hello proves nothing, so a higher one counts
    /// only until the node itself is back.
    incarnations: BTreeMap<NodeId, Incarnation>,
    listener: Box<dyn Listener>,
    now: Now,
    /// As of the end of the last turn.
    wake_at: Option<Time>,
}

impl<D: Disk, S: StateMachine, F: Front> NodeHost<D, S, F> {
    /// Joins the parts of a node that was opened.
    pub fn new(
        replica: Replica<D, S>,
        front: F,
        identity: Identity,
        listener: Box<dyn Listener>,
    ) -> Self {
        let own = identity.member();
        let incarnations = BTreeMap::from([(own.node, own.incarnation)]);
        Self {
            replica,
            front,
            identity,
            wake: None,
            incarnations,
            listener,
            now: Now::default(),
            wake_at: Some(Time(0)),
        }
    }

    /// The front is polled when this descriptor becomes readable, too.
    #[must_use]
    pub fn woken_by(mut self, wake: impl AsFd + 'static) -> Self {
        self.wake = Some(Box::new(wake));
        self
    }

    /// Who this node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// [volatile-4] After the reactor's end: everything is written; says so durably.
    pub fn finish(mut self) -> Result<(), IdentityError> {
        if self.replica.stopped_cleanly() {
            self.identity.mark_clean()
        } else {
            Ok(())
        }
    }

    /// Replies that are there go to their connections.
    fn deliver(&mut self, now: Now) {
        while self.replica.deliver(now.time, now.wall_ms, &mut self.front) {}
    }

    fn front(&mut self, now: Now) -> (&mut F, impl quorate_replica::front::Requests) {
        (
            &mut self.front,
            self.replica.requests(now.time, now.wall_ms),
        )
    }

    /// Why no leader can ever be elected, if that is so: too many members came back without their
    /// votes ([volatile-1]), and the quorum that remains cannot decide to take them in again.
    fn lost_quorum(&self, status: &Status) -> Option<String> {
        if status.class != Class::Volatile || status.leader.is_some() {
            return None;
        }
        let voters = || status.peers.iter().filter(|peer| peer.weight > 0);
        let remembers = |member: Member| {
            let met = self.incarnations.get(&member.node);
            met.is_none_or(|met| *met <= member.incarnation)
        };
        let total: u64 = voters().map(|peer| u64::from(peer.weight)).sum();
        let left: u64 = voters()
            .filter(|peer| remembers(peer.member))
            .map(|peer| u64::from(peer.weight))
            .sum();
        (left * 2 <= total && total > 0).then(|| {
            "too many members of this volatile cluster stopped uncleanly and have forgotten their \
             votes: no leader can be elected; what was acknowledged may be lost: stop all nodes and \
             start a new cluster in empty folders"
                .to_owned()
        })
    }
}

impl<D: Disk, S: StateMachine, F: Front> Host for NodeHost<D, S, F> {
    fn peer_up(&mut self, now: Now, peer: &PeerUp, _: &mut dyn Plane) {
        let Member { node, incarnation } = peer.member;
        self.incarnations.insert(node, incarnation);
        self.replica
            .peer_up(now.time, peer.member, peer.boot, peer.addresses.clone());
    }

    fn peer_down(&mut self, now: Now, node: NodeId, _: &mut dyn Plane) {
        self.replica.peer_down(now.time, node);
    }

    fn frame(&mut self, now: Now, from: Member, _: Lane, frame: &Frame<'_>, plane: &mut dyn Plane) {
        self.replica
            .on_frame(now.time, now.wall_ms, from, frame.clone(), plane);
    }

    fn admit(&mut self, _: Now, join: Join) -> Result<Founded, Refused> {
        let refused = |code, reason: String| Err(Refused { code, reason });
        let founding = self.identity.founding();
        let members = &founding.members;
        if members.keys().next() != Some(&founding.node) {
            let reason = format!("node {} did not found this cluster", founding.node);
            return refused(RefusalCode::NotFounder, reason);
        }
        if !members.contains_key(&join.node) {
            let reason = format!("node {} is not a member of this cluster", join.node);
            return refused(RefusalCode::UnknownNode, reason);
        }
        if join.node == founding.node {
            let reason = format!("node {} is the founder itself", join.node);
            return refused(RefusalCode::DuplicateNode, reason);
        }
        if join.list_hash != list_hash(members) {
            let reason = "its --cluster differs from the founder's".to_owned();
            return refused(RefusalCode::ListDiffers, reason);
        }
        let founded = Founded {
            cluster: founding.cluster,
            class: founding.class,
            store: founding.store.clone(),
            members: members
                .iter()
                .map(|(node, address)| (*node, address.clone()))
                .collect(),
        };
        match self.identity.admit(join.node, join.nonce) {
            Ok(()) => Ok(founded),
            Err(error @ IdentityError::AlreadyAdmitted { .. }) => {
                refused(RefusalCode::DuplicateNode, error.to_string())
            }
            // Worth another attempt.
            Err(error) => refused(RefusalCode::Other(0), error.to_string()),
        }
    }

    fn poll(&mut self, now: Now, plane: &mut dyn Plane) {
        self.now = now;
        let (front, mut requests) = self.front(now);
        front.poll(&mut requests);
        drop(requests);
        self.replica
            .poll(now.time, now.wall_ms, plane, &mut self.front);
        self.deliver(now);
    }

    fn submit(&mut self, now: Now) {
        self.replica.submit(now.time);
    }

    fn end_turn(&mut self, now: Time) {
        self.wake_at = self.replica.end_turn(now);
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
        self.listener.end_turn(now);
    }

    fn wake_at(&self) -> Option<Time> {
        self.wake_at
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        let front = self.wake.as_ref().map(|wake| wake.as_fd());
        self.replica
            .log()
            .wait_fd()
            .into_iter()
            .chain(front)
            .collect()
    }

    fn client_opened(
        &mut self,
        now: Now,
        client: ConnectionId,
        ends: Endpoints,
        _: &mut dyn Plane,
    ) {
        let (front, mut requests) = self.front(now);
        front.opened(client, ends, &mut requests);
    }

    fn client_received(
        &mut self,
        now: Now,
        client: ConnectionId,
        bytes: &[u8],
        _: &mut dyn Plane,
    ) -> usize {
        let (front, mut requests) = self.front(now);
        front.received(client, bytes, &mut requests)
    }

    fn pressure(&self) -> Pressure {
        self.replica.pressure()
    }

    fn client_ready(&self, client: ConnectionId) -> bool {
        self.front.ready(client)
    }

    fn client_busy(&self, client: ConnectionId) -> bool {
        self.front.is_busy(client)
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        self.front.next_dirty()
    }

    fn client_output(&mut self, client: ConnectionId) -> &mut Vec<u8> {
        self.front.output(client)
    }

    fn client_sent(&mut self, client: ConnectionId) {
        self.front.sent(client);
    }

    fn clients_held_bytes(&self) -> usize {
        self.front.held_bytes()
    }

    fn client_held_bytes(&self, client: ConnectionId) -> usize {
        self.front.held_bytes_of(client)
    }

    fn client_closing(&self, client: ConnectionId) -> bool {
        self.front.closing(client)
    }

    fn client_closed(&mut self, now: Now, client: ConnectionId, _: &mut dyn Plane) {
        let (front, mut requests) = self.front(now);
        front.closed(client, &mut requests);
    }

    fn status(&self) -> Status {
        let mut status = self.replica.status(self.now.time);
        if let Some(why) = self.lost_quorum(&status) {
            status.error = Some(why);
        }
        status
    }

    fn probe(&mut self, now: Now) {
        self.replica.probe(now.time);
    }

    fn probe_ended(&mut self) -> Option<Probed> {
        self.replica.take_probe()
    }

    fn tuning(&self) -> TuningReport {
        self.replica.tuning()
    }

    fn hold(&mut self, now: Now, setting: Option<Setting>, until: Time) {
        self.replica.hold_setting(now.time, setting, until);
    }

    fn metrics(&self, out: &mut String) {
        let clients = (self.front.connections(), self.front.held_bytes());
        metrics::render(&self.replica, &self.status(), clients, out);
    }

    fn transfer(&mut self, now: Now, to: Option<NodeId>, _: &mut dyn Plane) {
        self.replica.transfer(now.time, to);
    }

    fn transfer_ended(&mut self) -> Option<Result<NodeId, Refusal>> {
        self.replica.take_transfer_result()
    }

    fn stop(&mut self, now: Now, _: &mut dyn Plane) {
        self.replica.stop(now.time);
    }

    fn stopped(&self) -> bool {
        self.replica.is_stopped() && self.front.open_requests() == 0
    }
}
