//! All peers and their connections: dials, queues frames, and reports connects and disconnects.

mod following;
mod greeting;
mod journal;
mod link;
mod newcomers;
mod packets;
mod sharing;
mod stage;
mod table;

use std::{net::SocketAddrV4, sync::Arc};

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    level::Levels,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    slot::Slot,
    time::Time,
};
use quorate_log::disk::BlockPool;
use quorate_replica::{
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    status::Addresses,
};
use quorate_tls::NodeTrust;
use quorate_wire::{
    BODY_BYTES_MAX, Frame, HANDSHAKE_BODY_BYTES_MAX, Lane, Malformed, RefusalCode, encode_parts,
};

use self::{
    journal::{ConnectionChange, PeerLog},
    link::{Link, Links},
    stage::{Greeter, Stage, Verdict},
    table::{FormerRole, LaneStep, Table},
};
use super::{
    inbox,
    resolve::resolve,
    share::BandwidthShare,
    socket::{self, Socket, TransferOutcome},
};
use crate::{
    cx::PeerCx,
    gates::AcceptOutcome,
    handle::{ReactorMailbox, Resolved},
    host::{PeerUp, TurnTimes},
    identity::{Identity, PeerAddress},
    limits::Limits,
    plane::packets::PacketPlane,
    sources::{Interest, LinkId, Ready, Sources},
    stats::Stats,
};

/// Maximum number of bytes in one read from a connection that is not admitted yet.
const STRANGER_READ_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(crate) struct Peers {
    identity: Identity,
    levels: Levels,
    limits: Limits,
    mailbox: Arc<ReactorMailbox>,
    table: Table,
    links: Links,
    journal: PeerLog,
    packets: Option<PacketPlane>,
    /// Share of the link's bandwidth that connections may use.
    bandwidth_share: Option<BandwidthShare>,
    /// Certificates for authentication between this node and its peers.
    trust: Option<NodeTrust>,
    /// Pool of buffers for long frames.
    long_body_pool: BlockPool,
    pub(crate) stats: Stats,
}

impl Peers {
    pub(crate) fn new(
        identity: Identity,
        addresses: &[PeerAddress],
        limits: Limits,
        shared: Arc<ReactorMailbox>,
        packets: Option<PacketPlane>,
        trust: Option<NodeTrust>,
        seed: u64,
    ) -> Self {
        let me = identity.member.node;
        Self {
            table: Table::new(me, addresses, &limits, seed),
            links: Links::new(),
            journal: PeerLog::new(me),
            bandwidth_share: packets
                .as_ref()
                .map(|packets| BandwidthShare::for_link(packets.link_bytes_s(), Time(0))),
            packets,
            trust,
            identity,
            levels: Levels::SUPPORTED,
            limits,
            mailbox: shared,
            long_body_pool: inbox::new_block_pool(),
            stats: Stats::default(),
        }
    }

    pub(crate) fn accept(
        &mut self,
        listener: impl std::os::fd::AsFd,
        cx: &mut PeerCx<'_>,
    ) -> std::io::Result<AcceptOutcome> {
        while let Some(socket) = socket::accept(&listener)? {
            let deadline = cx.now.time.plus_ms(self.limits.handshake_timeout_ms);
            let stage = Stage::Stranger { deadline };
            let socket =
                socket.with_session(self.trust.as_ref().map(NodeTrust::incoming_peer_session));
            self.adopt(socket, stage, Interest::READ, cx.sources);
            // Strangers must not lock peers out, so a new connection evicts the oldest stranger.
            if let Some(oldest) = self.links.surplus_stranger(self.limits.strangers_max) {
                self.close_link(oldest, cx);
            }
        }
        Ok(AcceptOutcome::AcceptedAll)
    }

    /// Reads from or writes to a peer connection whose socket is ready for it.
    pub(crate) fn on_ready(&mut self, id: LinkId, ready: Ready, cx: &mut PeerCx<'_>) {
        let Some(stage) = self.links.stage(id) else {
            return;
        };
        if let Stage::Dialling { node, lane, deadline } = stage {
            if ready.is_writable || ready.is_broken {
                self.on_dialled(id, node, lane, deadline, cx);
            }
            return;
        }
        if ready.is_writable {
            self.write(id, cx);
        }
        if ready.is_readable || ready.is_broken {
            self.read(id, cx);
            if self.links.get(id).is_some_and(Link::has_new_output) {
                self.write(id, cx);
            }
        }
    }

    /// Writes all queued output, with one system call per connection.
    pub(crate) fn flush(&mut self, cx: &mut PeerCx<'_>) {
        self.flush_datagrams(cx);
        while self.links.has_unsent_output() {
            for id in self.links.take_dirty() {
                self.write(id, cx);
            }
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.links.has_unsent_output()
    }

    pub(crate) fn run_timers(&mut self, cx: &mut PeerCx<'_>) {
        self.journal.log_due_lines(cx.now.time);
        self.run_datagram_timers(cx);
        self.flush_paused(cx);
        self.stop_if_refused_by_all(cx);
        self.disconnect_removed(cx);
        if self.table.next_dial_at().is_some_and(|at| at <= cx.now.time) {
            for node in self.table.peer_nodes() {
                for lane in Lane::ALL {
                    self.connect(node, lane, cx);
                }
            }
        }
    }

    /// Returns the next time at which [`Self::run_timers`] has work.
    pub(crate) fn next_timer_at(&self) -> Option<Time> {
        let times = [
            self.links.next_deadline(),
            self.table.next_dial_at(),
            self.table.next_removal_at(),
            self.packets.as_ref().and_then(PacketPlane::next_timer_at),
            self.next_write_at(),
        ];
        times.into_iter().flatten().min()
    }

    /// Handles the result of a name look-up.
    pub(crate) fn on_resolved(&mut self, resolved: Resolved, now: TurnTimes) {
        let Resolved { node, name, addresses } = resolved;
        let (addresses, why) = match addresses {
            Ok(addresses) => (addresses, "the name has no address".to_owned()),
            Err(error) => (Vec::new(), error),
        };
        let failed = addresses.is_empty();
        if self.table.record_resolved(node, &name, addresses) && failed {
            self.record_dial_failure(node, &Lane::ALL, &why, now);
        }
    }

    /// Iterates over the addresses of connected peers that are configured as literal IPv4
    /// addresses.
    pub(crate) fn literal_addresses(&self) -> impl Iterator<Item = SocketAddrV4> + '_ {
        self.table.connected_addresses().filter_map(|text| text.parse().ok())
    }

    pub(crate) fn notices(&self, now: Time) -> Vec<String> {
        self.journal.notices(now, |node| self.table.address(node))
    }

    fn adopt(
        &mut self,
        socket: Socket,
        stage: Stage,
        interest: Interest,
        sources: &mut Sources,
    ) -> Option<LinkId> {
        let tuned = socket.tune_for_peer(self.limits.peer_silence_ms);
        match tuned.and_then(|()| self.links.adopt(socket, stage, interest, sources)) {
            Ok(id) => Some(id),
            Err(error) => {
                // The connection broke at once, or memory ran out.
                tracing::debug!(%error, "a peer connection could not be set up");
                None
            }
        }
    }

    fn stop_if_refused_by_all(&mut self, cx: &mut PeerCx<'_>) {
        if !self.links.forget_without_deadline() {
            return;
        }
        self.settle_newcomers(cx);
        for id in self.links.overdue_links(cx.now.time) {
            match self.links.stage(id) {
                // Dialling is that node's task.
                Some(Stage::Dialling { node, .. } | Stage::Greeting { node, .. })
                    if node > self.identity.member.node => {}
                Some(Stage::Dialling { node, .. }) => {
                    self.journal.log_problem(node, "no answer to a dial");
                }
                Some(Stage::Greeting { node, .. }) => {
                    self.journal.log_problem(node, "no answer to a hello");
                }
                _ => {}
            }
            self.close_link(id, cx);
        }
    }

    // Dialling.

    fn connect(&mut self, node: NodeId, lane: Lane, cx: &mut PeerCx<'_>) {
        let address = match self.table.next_step(node, lane, cx.now.time) {
            None => return,
            Some(LaneStep::LookUp(name)) => return resolve(node, name, self.mailbox.clone()),
            Some(LaneStep::Dial(address)) => address,
        };
        self.stats.dials += 1;
        let deadline = cx.now.time.plus_ms(self.limits.handshake_timeout_ms);
        let stage = Stage::Dialling { node, lane, deadline };
        match Socket::start_connecting(address) {
            Ok(socket) => {
                match self.adopt(
                    self.secure_socket(socket, node),
                    stage,
                    Interest::WRITE,
                    cx.sources,
                ) {
                    Some(id) => self.table.record_dial(node, lane, id),
                    None => {
                        self.record_dial_failure(node, &[lane], "cannot set up a socket", cx.now)
                    }
                }
            }
            Err(error) => self.record_dial_failure(node, &[lane], &error.to_string(), cx.now),
        }
    }

    fn secure_socket(&self, socket: Socket, node: NodeId) -> Socket {
        let trust = self.trust.as_ref();
        socket.with_session(trust.map(|trust| trust.outgoing_peer_session(Some(node.0))))
    }

    fn record_dial_failure(&mut self, node: NodeId, lanes: &[Lane], why: &str, now: TurnTimes) {
        for lane in lanes {
            self.table.back_off(node, *lane, now.time);
        }
        self.log_unreachable(node, why);
    }

    /// Logs that a node is unreachable, unless that node is the one that dials.
    fn log_unreachable(&mut self, node: NodeId, why: &str) {
        if node < self.identity.member.node {
            let address = self.table.address(node).unwrap_or_default();
            self.journal.log_unreachable(node, address, why);
        }
    }

    // Bytes.

    fn read(&mut self, id: LinkId, cx: &mut PeerCx<'_>) {
        let limit = match self.links.stage(id) {
            Some(Stage::Open { .. }) => self.limits.read_bytes_per_turn,
            _ => STRANGER_READ_BYTES,
        };
        let mut left = limit;
        while let Some(link) = self.links.get_mut(id) {
            self.stats.calls_peer_read += 1;
            match link.read(left) {
                TransferOutcome::Transferred(count) => {
                    self.stats.peer_bytes_in += count as u64;
                    left = left.saturating_sub(count);
                    self.on_bytes(id, cx);
                }
                TransferOutcome::Blocked => return,
                TransferOutcome::Ended(_) => {
                    self.record_tls_failure(id);
                    return self.close_link(id, cx);
                }
            }
            let reads_on = self.links.get(id).is_some_and(Link::should_read_again);
            if left == 0 && self.links.get(id).is_some_and(Link::has_buffered_input) {
                left = STRANGER_READ_BYTES;
            }
            if left == 0 || !reads_on {
                return;
            }
        }
    }

    /// Counts and logs a connection that ends because its TLS session failed.
    fn record_tls_failure(&mut self, id: LinkId) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        let Some(why) = link.socket().failure().map(|why| format!("TLS: {why}")) else {
            return;
        };
        self.stats.tls_failures += 1;
        match link.stage() {
            Stage::Dialling { node, .. } | Stage::Greeting { node, .. } => {
                self.journal.log_problem(node, &why);
            }
            Stage::Open { member, .. } => self.journal.log_problem(member.node, &why),
            _ => {
                let remote = link.socket().remote_host();
                self.journal.log_stranger_problem(&remote, &why);
            }
        }
    }

    /// Handles the complete frames in the connection's input buffer.
    fn on_bytes(&mut self, id: LinkId, cx: &mut PeerCx<'_>) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        // Taken out, so that the host may send through `self` while it reads the frame in place.
        let mut inbox = link.take_inbox();
        let mut heard = None;
        while let Some(stage) = self.links.stage(id) {
            let bound = match stage {
                Stage::Open { .. } => BODY_BYTES_MAX,
                Stage::Leaving { .. } => {
                    inbox.discard_all();
                    break;
                }
                _ => HANDSHAKE_BODY_BYTES_MAX,
            };
            match inbox.next_frame(bound, &self.long_body_pool) {
                Ok(None) => break,
                Ok(Some(received)) => match self.on_frame(id, stage, received, cx) {
                    Verdict::GoOn => {
                        inbox.consume_frame();
                        if matches!(stage, Stage::Open { .. } | Stage::Newcomer { .. }) {
                            heard = Some(cx.now.time);
                        }
                    }
                    Verdict::Close => return self.close_link(id, cx),
                },
                Err(malformed) if self.begins_long_frame(id, malformed, cx) => {}
                Err(malformed) => return self.on_malformed(id, stage, malformed, cx),
            }
        }
        if let Some(link) = self.links.get_mut(id) {
            link.return_inbox(inbox, heard);
        }
    }

    fn on_malformed(
        &mut self,
        id: LinkId,
        stage: Stage,
        malformed: Malformed,
        cx: &mut PeerCx<'_>,
    ) {
        self.stats.malformed += 1;
        match stage {
            Stage::Open { member, .. } => {
                self.journal.log_problem(member.node, &malformed.to_string());
            }
            Stage::Greeting { node, .. } => self.journal.log_problem(node, &malformed.to_string()),
            _ => {
                let remote = self.links.get(id).map(|link| link.socket().remote_host());
                self.journal
                    .log_stranger_problem(&remote.unwrap_or_default(), &malformed.to_string());
                // Only a sender of another version of this format understands a refusal.
                if matches!(malformed, Malformed::Format(_)) {
                    let me = self.identity.member.node;
                    let reason = format!("node {me}: {malformed}");
                    return self.refuse_link(id, RefusalCode::Version, &reason, cx.now);
                }
            }
        }
        self.close_link(id, cx);
    }

    fn write(&mut self, id: LinkId, cx: &mut PeerCx<'_>) {
        let limit = self.write_limit(id, cx.now.time);
        let Some(link) = self.links.get_mut(id).filter(|_| limit > 0) else {
            return self.wait_for_share(id, cx);
        };
        let moved = link.write(limit);
        self.stats.calls_peer_write += u64::from(moved.is_some());
        match moved {
            Some(TransferOutcome::Transferred(count)) => {
                self.stats.peer_bytes_out += count as u64;
                if count >= limit {
                    self.wait_for_share(id, cx);
                }
                self.record_written_bytes(count, cx.now.time);
            }
            Some(TransferOutcome::Ended(_)) => return self.close_link(id, cx),
            Some(TransferOutcome::Blocked) | None => {}
        }
        self.register_interest(id, cx);
    }

    /// Registers the socket for the events that the connection currently needs. If that fails,
    /// closes the connection and returns `false`.
    fn register_interest(&mut self, id: LinkId, cx: &mut PeerCx<'_>) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        let watched = link.register_interest(cx.sources);
        if let Err(error) = &watched {
            tracing::warn!(%error, "cannot register a peer connection with the poller");
            self.close_link(id, cx);
        }
        watched.is_ok()
    }

    // Frames.

    fn on_frame(
        &mut self,
        id: LinkId,
        stage: Stage,
        received: ReceivedFrame<'_>,
        cx: &mut PeerCx<'_>,
    ) -> Verdict {
        match stage {
            Stage::Open { member, lane, .. } => self.on_peer_frame(id, member, lane, received, cx),
            Stage::Greeting { node, lane, .. } => {
                self.on_answer(id, node, lane, received.frame, cx)
            }
            Stage::Stranger { .. } => self.on_stranger_frame(id, received.frame, cx),
            Stage::Newcomer { .. } => self.on_newcomer_frame(id, received, cx),
            Stage::Dialling { .. } | Stage::Leaving { .. } => Verdict::Close,
        }
    }

    fn on_peer_frame(
        &mut self,
        id: LinkId,
        member: Member,
        lane: Lane,
        received: ReceivedFrame<'_>,
        cx: &mut PeerCx<'_>,
    ) -> Verdict {
        let complaint = if received.from != member {
            format!("sent a frame in the name of node {}", received.from)
        } else {
            match received.frame {
                ref frame if is_replica_frame(frame) => {
                    self.stats.frames_in += 1;
                    cx.host.handle_frame(&mut cx.now.turn(self), lane, received);
                    return Verdict::GoOn;
                }
                Frame::Datagrams(said) => {
                    if lane == Lane::Control {
                        self.on_datagrams_introduced(id, member, &said, cx.now);
                    }
                    return Verdict::GoOn;
                }
                Frame::Refused(RefusalCode::NodeRemoved, _) => {
                    self.stats.refusals += 1;
                    self.on_removed(member.node, cx);
                    return Verdict::Close;
                }
                Frame::Refused(code, reason) => {
                    self.stats.refusals += 1;
                    format!("refused by the peer ({code:?}): {reason}")
                }
                _ => "sent a greeting in the middle of a connection".to_owned(),
            }
        };
        self.journal.log_problem(member.node, &complaint);
        Verdict::Close
    }

    /// Queues a frame that is not part of the consensus protocol.
    fn queue_frame(&mut self, id: LinkId, frame: &Frame<'_>) {
        match encode_parts(self.identity.member, frame) {
            Ok(encoded) => {
                let body = FrameBody::Borrowed(&encoded.body);
                self.links.queue_frame(id, &encoded.header, body);
            }
            // The configured addresses of this node are too long for a frame.
            Err(error) => tracing::error!(%error, "cannot send a greeting"),
        }
    }

    // Opening and closing.

    /// Puts a connection into use, in place of an older one of the same lane and of all those of an
    /// older process of the peer. Returns `false` if the peer no longer has a table entry.
    fn open_link(&mut self, id: LinkId, greeter: Greeter, cx: &mut PeerCx<'_>) -> bool {
        let Greeter { member, boot, levels, lane, client, admin, stream } = greeter;
        let node = member.node;
        // [level-7] The level may have been raised while the connection waited.
        if levels.newest < self.levels.lowest || !self.make_room(node, cx) {
            return false;
        }
        for old in self.links_to_replace(node, lane, boot).collect::<Vec<_>>() {
            if let Some(link) = self.links.get_mut(old) {
                link.set_end_reason("a newer connection takes its place".to_owned());
            }
            self.close_link(old, cx);
        }
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        link.set_stage(Stage::Open { member, boot, levels, lane });
        // The connections closed above may have been the only reason for the entry.
        self.table.add_guest(node);
        let address = self.table.address(node).unwrap_or_default().to_owned();
        self.table.record_opened(node, lane, id);
        self.journal.forget_problems(node);
        self.stats.peers_connected += 1;
        tracing::debug!(peer = node.0, ?lane, boot, "connection opened");
        if lane == Lane::Control {
            self.journal.log_change(cx.now.time, ConnectionChange::Connected { member, boot });
            self.table.set_connected(node, true);
            let addresses = Addresses { peer: address, client, admin, stream };
            let peer = PeerUp { member, boot, levels, addresses };
            cx.host.peer_up(cx.now, &peer);
            self.introduce_datagrams(id, member, cx.now);
        }
        true
    }

    fn close_link(&mut self, id: LinkId, cx: &mut PeerCx<'_>) {
        let Some(link) = self.links.remove(id, cx.sources) else {
            return;
        };
        let Some((node, lane)) = link.stage().lane() else {
            return;
        };
        let why = link.end_reason().unwrap_or("this node closed it").to_owned();
        // This releases the memory of its queues before the host is notified.
        drop(link);
        if self.table.record_closed(node, lane, id, cx.now.time) == Some(FormerRole::Open) {
            tracing::debug!(peer = node.0, ?lane, "connection lost: {why}");
            if lane == Lane::Control && self.table.set_connected(node, false) {
                self.journal.log_change(cx.now.time, ConnectionChange::Disconnected { node, why });
                self.stop_datagrams(node);
                cx.host.peer_down(cx.now, node);
            }
        }
        self.table.forget_guest(node);
    }
}

/// Returns whether a frame is a message between replicas, for the host.
const fn is_replica_frame(frame: &Frame<'_>) -> bool {
    match frame {
        Frame::Protocol { .. }
        | Frame::Forward { .. }
        | Frame::NotTaken { .. }
        | Frame::FetchRequest { .. }
        | Frame::FetchReply { .. }
        | Frame::Applied { .. }
        | Frame::SnapshotAsk { .. }
        | Frame::SnapshotOffer { .. }
        | Frame::SnapshotPiece { .. }
        | Frame::StreamBytes { .. }
        | Frame::Needless { .. }
        | Frame::Recalled(_) => true,
        Frame::Hello(_)
        | Frame::Welcome(_)
        | Frame::Refused(..)
        | Frame::Join(_)
        | Frame::Founding(_)
        | Frame::Recall { .. }
        | Frame::Datagrams(_) => false,
    }
}

/// Reason why a frame cannot be queued.
enum FrameNotQueued {
    NotConnected,
    Full,
}

impl Peers {
    /// Returns the connection to a peer if a frame of `bytes` bytes fits its queue.
    fn link_with_room(
        &self,
        to: NodeId,
        lane: Lane,
        bytes: usize,
    ) -> Result<LinkId, FrameNotQueued> {
        let open = self.table.open_link(to, lane);
        let link = open.and_then(|id| Some((id, self.links.get(id)?)));
        let (id, link) = link.ok_or(FrameNotQueued::NotConnected)?;
        let bound = match lane {
            Lane::Control => self.limits.peer_control_bytes_max,
            Lane::Bulk => self.limits.peer_bulk_bytes_max,
        };
        let bound = bound.min(self.queue_bytes_max(to, lane));
        let waiting = link.unsent_bytes();
        if waiting > 0 && waiting.saturating_add(bytes) > bound {
            return Err(FrameNotQueued::Full);
        }
        Ok(id)
    }
}

impl Plane for Peers {
    fn has_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        let packets = self.packets.as_ref();
        packets.is_some_and(|packets| lane == Lane::Control && packets.has_room(to, bytes))
            || self.link_with_room(to, lane, bytes).is_ok()
    }

    fn send(
        &mut self,
        to: NodeSet,
        lane: Lane,
        header: &[u8],
        body: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        let bytes = header.len() + body.bytes().len();
        let by_datagrams = match &mut self.packets {
            Some(packets) if lane == Lane::Control => packets.send_frame(to, header, body.bytes()),
            _ => NodeSet::default(),
        };
        self.stats.frames_out += by_datagrams.len() as u64;
        self.stats.frames_out_datagrams += by_datagrams.len() as u64;
        Ok(to.filtered(|node| {
            if by_datagrams.contains(node) {
                return true;
            }
            match self.link_with_room(node, lane, bytes) {
                Ok(id) => {
                    self.links.queue_frame(id, header, body);
                    self.stats.frames_out += 1;
                    true
                }
                Err(FrameNotQueued::NotConnected) => {
                    self.stats.drops_unconnected += 1;
                    false
                }
                Err(FrameNotQueued::Full) => {
                    self.stats.drops_full += 1;
                    false
                }
            }
        }))
    }

    fn note_decided(&mut self, ballot: Ballot, decided_to: Slot) {
        if let Some(packets) = &mut self.packets {
            packets.note_decided(ballot, decided_to);
        }
    }

    fn set_voters(&mut self, configuration: &Configuration) {
        if let Some(packets) = &mut self.packets {
            packets.set_voters(configuration);
        }
    }
}
