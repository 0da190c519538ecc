//! One turn of a node, which performs the reactor's work after an arrival or a timeout.

use std::mem::take;

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    effect::Role,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::Slot,
    time::Time,
};
use quorate_node::host::{
    ClientHost as _, Host as _, OperatorHost as _, OperatorRequest, PeerHost as _, PeerUp,
    TurnTimes,
};
use quorate_replica::{
    front::{ConnectionId, Endpoints, Front, Requests as _},
    payload::Payload,
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    pressure::heaviest,
    status::Addresses,
};
use quorate_wire::{
    BODY_BYTES_MAX, Decoded, Frame, Lane, body_checksum, decode, header::HEADER_BYTES,
    sender_durable_seq,
};

use super::{Event, World, name};
use crate::{
    air,
    check::{Verdict, bounds},
    dice::mix,
    network::{Carrier, LaneLink, Network},
    node::{Arrival, Node, RunningProcess, ServiceEvent, id, queue_limits},
    side::PacketEndpoint,
    trace::RunTrace,
    workload::Client,
};

/// Limit on the buffered request bytes of a connection, as in the reactor. The check allows twice
/// as many.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Plane used by a replica. It combines the world's network as seen from its node with the packet
/// plane of its process.
struct NodePlane<'a> {
    network: &'a mut Network,
    packets: Option<&'a mut PacketEndpoint>,
    now: Time,
    from: usize,
    peer_connections: &'a std::collections::BTreeMap<usize, u64>,
}

impl NodePlane<'_> {
    fn has_stream_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        let link = self.link_to(to, lane);
        link.is_some_and(|link| self.network.has_queue_space(link, bytes))
    }

    /// Returns the link to a node; `None` if the nodes are not connected.
    fn link_to(&self, to: NodeId, lane: Lane) -> Option<LaneLink> {
        let to = usize::try_from(to.0).ok()?.checked_sub(1)?;
        // The replica may not know the connection yet, or may not have noticed that it broke.
        let known = self.peer_connections.get(&to)?;
        let stands = self.network.connection(self.from, to) == Some(*known);
        let link = LaneLink { from: self.from, to, lane: lane.index() };
        stands.then_some(link)
    }
}

impl Plane for NodePlane<'_> {
    fn has_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        let packets = self.packets.as_ref().filter(|_| lane == Lane::Control);
        self.has_stream_room(to, lane, bytes)
            || packets.is_some_and(|packets| packets.has_frame_space(to, bytes))
    }

    fn send(
        &mut self,
        to: NodeSet,
        lane: Lane,
        header: &[u8],
        body: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        let bytes = header.len() + body.bytes().len();
        let mut sent = match &mut self.packets {
            Some(packets) if lane == Lane::Control => packets.send_frame(to, header, body.bytes()),
            _ => NodeSet::default(),
        };
        // The remaining nodes are those that packets do not reach or whose packet window is full.
        let rest = to.filtered(|node| !sent.contains(node));
        for node in rest.filtered(|node| self.has_stream_room(node, lane, bytes)).iter() {
            if let Some(link) = self.link_to(node, lane) {
                self.network.queue_frame(link, header, body.bytes());
                let _ = sent.insert(node);
            }
        }
        Ok(sent)
    }

    fn note_decided(&mut self, ballot: Ballot, decided_to: Slot) {
        if let Some(packets) = &mut self.packets {
            packets.plane().record_decided(ballot, decided_to, self.now);
        }
    }

    fn set_voters(&mut self, configuration: &Configuration) {
        if let Some(packets) = &mut self.packets {
            packets.plane().set_voters(
                configuration.members().iter().map(|voter| voter.member.node).collect(),
            );
        }
    }
}

/// Parts of the world that a turn uses.
struct TurnContext<'a> {
    clock_readings: TurnTimes,
    index: usize,
    network: &'a mut Network,
    datagram_counts: &'a mut air::DatagramCounts,
    trace: &'a mut RunTrace,
    world_time: Time,
    /// Peers that sent bytes which are not frames. Their connections will be broken.
    broken_peers: Vec<usize>,
}

impl World {
    pub(crate) fn run_turn(&mut self, node: usize, life: u64) -> Verdict {
        let process = &mut self.nodes[node];
        if process.start_count != life
            || process.is_paused
            || process.next_turn_at != Some(self.now)
        {
            return Ok(());
        }
        process.next_turn_at = None;
        let shown = process.clock_readings(self.now);
        process.clock_reading.store(shown.time.0, std::sync::atomic::Ordering::Relaxed);
        let now = process.stalled_turn.take().unwrap_or(shown);
        self.handle_death(node);
        let process = &mut self.nodes[node];
        let Some(running) = &mut process.running else {
            return Ok(());
        };
        let mut turn = TurnContext {
            clock_readings: now,
            index: node,
            network: &mut self.network,
            datagram_counts: &mut self.counts.datagram_counts,
            trace: &mut self.trace,
            world_time: self.now,
            broken_peers: Vec::new(),
        };
        turn.handle_arrivals(running);
        turn.handle_datagrams(running);
        turn.handle_fragments(running);
        turn.handle_requests(running);
        turn.poll(running);
        let broken = turn.broken_peers;
        let held = client_bytes_held(running);
        let queued = running.unaccepted_requests.values().any(|bytes| !bytes.is_empty());
        self.disconnect_removed(node);
        self.disconnect_unsupported_peers(node);
        self.check_reported_levels(node)?;
        self.check_class_events(node)?;
        self.check_level(node)?;
        self.check_scrubs(node)?;
        self.check_streams(node)?;
        self.refill_links(node);
        self.send_frames(node)?;
        self.send_datagrams(node, now.time);
        self.send_device_frames(node);
        self.send_desk_answers(node);
        let process = &mut self.nodes[node];
        let Some(running) = &mut process.running else {
            return Ok(());
        };
        // The leader's messages are sent before its own write starts (design §5).
        running.host.submit_records(now);
        let end = now.time.plus_us(turn_duration_us(now.time, node));
        let wake = running.host.end_turn(end);
        let packets = running.packets.as_ref().and_then(PacketEndpoint::next_poll_at);
        let wake = wake.into_iter().chain(packets).min();
        let wake = wake.map(|at| process.clock.world_time(at));
        let stopped = running.host.is_stopped();
        self.take_outcomes(node)?;
        self.schedule_disk_completions(node);
        // A large reply may double the memory of one client.
        let most = 2 * self.settings.client_memory_bytes + (64 << 10);
        bounds::check_bound("what clients left unread", node, held, most)?;
        self.send_replies(node);
        self.disconnect_heavy_clients(node);
        self.trace_changes(node);
        self.check_status(node, life)?;
        self.check_buffer_bounds(node)?;
        for peer in broken {
            self.trace_line(&name(node), "garbage", format_args!("from {}", peer + 1));
            self.break_connection(node, peer, 100);
        }
        if stopped {
            self.complete_stop(node);
            return Ok(());
        }
        if let Some(at) = wake {
            let soonest = self.now.plus_us(1 + self.dice.below(10));
            self.schedule_turn_by(node, at.max(soonest));
        }
        if queued {
            let soon = self.now.plus_us(500);
            self.schedule_turn_by(node, soon);
        }
        Ok(())
    }

    /// Completes a clean stop. Once all writes are durable, the process marks the stop and exits
    /// ([volatile-4]).
    fn complete_stop(&mut self, node: usize) {
        for peer in self.network.peers(node) {
            self.break_connection(node, peer, 200);
        }
        self.drop_clients(node);
        let dies = self.draw_stop_mark_death(node);
        let process = &mut self.nodes[node];
        // Closing the connections of the process frees descriptors.
        process.disk.set_out_of_descriptors(false);
        if let Some(steps) = dies {
            process.disk.die_after_changes(steps);
        }
        let running = process.running.take();
        let clean = running.is_some_and(|running| {
            running.host.replica().stopped_cleanly() && running.host.finish_clean_stop().is_ok()
        });
        process.kill(&mut self.dice);
        self.end_device_owner(node);
        self.node_checkers.end_process(node);
        self.counts.clean_stops += 1;
        self.trace_line(
            &name(node),
            "stopped",
            format_args!("{}", if clean { "cleanly" } else { "" }),
        );
        self.schedule_start_within(node, 200_000);
    }

    /// Refills the links on which this node's reads freed capacity. Only runs with streams need
    /// this, because a stream piece exceeds the window, so that its sender waits. In other runs,
    /// the next turn of the sender refills its links.
    fn refill_links(&mut self, node: usize) {
        if self.settings.stream_load.is_none() {
            return;
        }
        for peer in self.network.peers(node) {
            for lane in 0..Lane::ALL.len() {
                let link = LaneLink { from: peer, to: node, lane };
                for at in self.network.flush_link(self.now, link) {
                    self.schedule_at(at, Event::FragmentArrives(link));
                }
            }
        }
    }

    /// Checks and sends the frames that the replica wrote for its peers.
    fn send_frames(&mut self, node: usize) -> Verdict {
        let packets =
            self.nodes[node].running.as_mut().and_then(|running| running.packets.as_mut());
        for (to, frame) in packets.map_or_else(Vec::new, PacketEndpoint::take_unchecked) {
            let to: Vec<String> = to.iter().map(|node| node.to_string()).collect();
            self.inspect_frames(node, format_args!("{} by packets", to.join(", ")), &frame)?;
        }
        for peer in self.network.peers(node) {
            for lane in 0..Lane::ALL.len() {
                let link = LaneLink { from: node, to: peer, lane };
                let frames = self.network.take_unchecked(link);
                self.inspect_frames(node, format_args!("{}", peer + 1), &frames)?;
                let now = self.now;
                for at in self.network.send_frames(now, link, &frames) {
                    self.schedule_at(at, Event::FragmentArrives(link));
                }
            }
        }
        Ok(())
    }

    fn inspect_frames(&mut self, by: usize, to: std::fmt::Arguments<'_>, frames: &[u8]) -> Verdict {
        let mut rest = frames;
        while !rest.is_empty() {
            let Ok(Decoded::Frame { from, frame, used_bytes: used }) = decode(rest, BODY_BYTES_MAX)
            else {
                let detail = format!("node {} wrote what is no frame", by + 1);
                return Err(crate::check::Violation::new("frames", detail));
            };
            let life = self.nodes[by].start_count;
            self.node_checkers.check_sent_frame(by, life, from, &frame)?;
            self.counts.relayed_votes = self.node_checkers.relayed_vote_count();
            if self.trace.traces_frames {
                let text = crate::words::describe_frame(&frame);
                self.trace_line(&name(by), "says", format_args!("to {to}: {text}"));
            }
            rest = &rest[used..];
        }
        Ok(())
    }

    fn send_replies(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let mut out = Vec::new();
        while let Some(connection) = running.host.front_mut().next_dirty() {
            let owner =
                |client: &&Client| client.connection.is_some_and(|(id, _)| id == connection);
            let owner = self.clients.iter().find(owner);
            if owner.is_some_and(|client| client.ignores_replies) {
                continue;
            }
            let bytes = running.host.front_mut().take_output(connection);
            let closing = running.host.front().should_close(connection);
            out.extend(owner.map(|client| (client.index, connection, bytes, closing)));
        }
        for (client, connection, bytes, closing) in out {
            let at = self.client_arrival_time(connection);
            self.schedule_at(at, Event::BytesToClient { client, connection, bytes });
            if closing {
                self.schedule_at(at, Event::ClientDown { client, connection });
            }
        }
    }

    /// Disconnects the largest clients while all clients together use too much memory, as the
    /// reactor does.
    fn disconnect_heavy_clients(&mut self, node: usize) {
        let max = self.settings.client_memory_bytes;
        let now = self.nodes[node].clock_readings(self.now);
        loop {
            let Some(running) = &mut self.nodes[node].running else {
                return;
            };
            let clients = running.unaccepted_requests.iter().map(|(connection, bytes)| {
                let held = running.host.front().held_bytes_of(*connection);
                (*connection, bytes.len() + held)
            });
            let Some((connection, bytes)) = heaviest(client_bytes_held(running), max, clients)
            else {
                return;
            };
            running.unaccepted_requests.remove(&connection);
            let (front, mut requests) = running.host.front_and_requests(now);
            front.handle_closed(connection, &mut requests);
            drop(requests);
            self.counts.clients_shed += 1;
            self.trace_line(&name(node), "sheds", format_args!("a client of {bytes} bytes"));
            let owner = |client: &Client| client.connection.is_some_and(|(id, _)| id == connection);
            if let Some(client) = self.clients.iter().position(owner) {
                let wait = self.dice.between(50, 1000);
                self.schedule_after(wait, Event::ClientDown { client, connection });
            }
        }
    }

    /// Traces a node's state changes and adds them to the counts.
    fn trace_changes(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let RunningProcess { host, traced_state: seen, .. } = running;
        let core = host.replica().node();
        let role = match (core.role(), core.leader()) {
            (role @ Role::Leader, _) | (role, None) => format!("{role:?}"),
            (role, Some(leader)) => format!("{role:?} of {leader}"),
        };
        let mut lines = Vec::new();
        if role != seen.role {
            if core.role() == Role::Leader {
                self.counts.elections += 1;
            }
            lines.push(("role", format!("{} in ballot {}", role.to_lowercase(), core.ballot())));
            seen.role = role;
        }
        if core.decided_to() != seen.decided_to {
            seen.decided_to = core.decided_to();
            lines.push(("decided", format!("every slot below {}", seen.decided_to)));
        }
        let now = host.replica().counters();
        let before = std::mem::replace(&mut seen.counters, now);
        if let Some(device) = host.replica().device_status() {
            let told = [
                device.assigned_slots,
                device.counted_decisions,
                device.revocation_count,
                device.oversized_values,
                device.offered_values,
            ];
            let before = std::mem::replace(&mut seen.device_counters, told);
            self.counts.device_slots_assigned += told[0] - before[0];
            self.counts.device_decisions_counted += told[1] - before[1];
            self.counts.assignments_withdrawn += told[2] - before[2];
            self.counts.device_values_too_long += told[3] - before[3];
            self.counts.device_values_offered += told[4] - before[4];
        }
        let own = host.replica().snapshot().map_or(Slot(0), |own| own.slot);
        let start = host.replica().log().start();
        let counts = &mut self.counts;
        counts.lease_reads += now.reads_leased - before.reads_leased;
        counts.expired_lease_reads += now.reads_overtaken - before.reads_overtaken;
        counts.stream_bytes_by_reference += now.stream_bytes_placed - before.stream_bytes_placed;
        for (count, more, what, slot) in [
            (
                &mut counts.snapshots_taken,
                now.snapshots_taken - before.snapshots_taken,
                "takes",
                own,
            ),
            (
                &mut counts.snapshots_installed,
                now.snapshots_installed - before.snapshots_installed,
                "installs",
                own,
            ),
            (
                &mut counts.snapshots_loaded,
                now.snapshots_loaded - before.snapshots_loaded,
                "loads",
                own,
            ),
            (&mut counts.log_trims, now.trims - before.trims, "trims", start),
        ] {
            *count += more;
            if more > 0 {
                lines.push((what, format!("everything below slot {slot}")));
            }
        }
        let error = host.replica().error();
        if error != seen.error {
            if let Some(error) = &error {
                lines.push(("error", error.clone()));
            }
            seen.error = error;
        }
        for (what, detail) in lines {
            self.trace_line(&name(node), what, format_args!("{detail}"));
        }
    }

    // --- Checks after a turn.

    pub(crate) fn check_reported_levels(&mut self, node: usize) -> Verdict {
        let Some(running) = &self.nodes[node].running else {
            return Ok(());
        };
        let durable = self.settings.class == Class::Durable;
        let told = take(&mut *running.service_events.borrow_mut());
        let losses = self.losses_max();
        for told in told {
            match told {
                ServiceEvent::Executed(id, command, reply) => {
                    if self.trace.traces_frames {
                        let (slot, index) = (id.slot, id.index);
                        self.trace_line(
                            &name(node),
                            "applies",
                            format_args!("slot {slot}, command {index}"),
                        );
                    }
                    self.node_checkers.check_executed(node, id, command, reply)?;
                    self.node_checkers.classes().record_executed(command, id, losses)?;
                }
                ServiceEvent::Applied(to, digest) => {
                    self.node_checkers.check_applied(node, to, digest, durable)?;
                    self.node_checkers.classes().check_applied(to, losses)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_status(&mut self, node: usize, life: u64) -> Verdict {
        let Some(running) = &self.nodes[node].running else {
            return Ok(());
        };
        let (era, decided_to) =
            (running.replica().node().era(), running.replica().node().decided_to());
        self.node_checkers.check_status(node, life, era, decided_to)
    }

    fn check_buffer_bounds(&self, node: usize) -> Verdict {
        let Some(running) = &self.nodes[node].running else {
            return Ok(());
        };
        let limits = queue_limits(&self.settings);
        // The limit may be exceeded by one batch of votes, plus one per peer.
        let slack = 256 << 10;
        let log_max = usize::try_from(limits.log_backlog_bytes).unwrap_or(usize::MAX);
        bounds::check_bound(
            "the log's queue",
            node,
            running.replica().log().backlog_bytes(),
            log_max + slack,
        )?;
        if let Some(tuning) = self.settings.batch_tuning {
            let (setting, bounds) = (running.replica().batch_setting(), tuning.bounds);
            bounds::check_bound("a batch", node, setting.batch_bytes, bounds.batch_bytes_max)?;
            bounds::check_bound("the window", node, setting.window, bounds.window_max)?;
        }
        let requests = running.unaccepted_requests.values().map(Vec::len).max().unwrap_or(0);
        bounds::check_bound("a client's input", node, requests, 2 * REQUEST_BYTES_MAX)
    }
}

/// Returns the memory that a node uses for its clients.
fn client_bytes_held(running: &RunningProcess) -> usize {
    let requests: usize = running.unaccepted_requests.values().map(Vec::len).sum();
    requests + running.host.front().held_bytes()
}

/// Returns the duration of a turn as measured by the node's tuner. It is usually short and
/// occasionally very long.
fn turn_duration_us(now: Time, node: usize) -> u64 {
    let drawn = mix(now.0 ^ (node as u64) << 48);
    if drawn.is_multiple_of(64) { drawn % 20_000 } else { drawn % 200 }
}

impl TurnContext<'_> {
    fn node_plane<'b>(
        &'b mut self,
        up: &'b std::collections::BTreeMap<usize, u64>,
        packets: &'b mut Option<PacketEndpoint>,
    ) -> NodePlane<'b> {
        NodePlane {
            network: &mut *self.network,
            packets: packets.as_mut(),
            now: self.clock_readings.time,
            from: self.index,
            peer_connections: up,
        }
    }

    fn handle_arrivals(&mut self, running: &mut RunningProcess) {
        let now = self.clock_readings;
        while let Some(arrival) = running.inbox.pop_front() {
            let RunningProcess {
                host,
                peer_connections: up,
                partial_frames: partial,
                unaccepted_requests: requests,
                packets,
                desk_answers,
                ..
            } = running;
            match arrival {
                Arrival::PeerUp { peer, connection, member, boot, levels } => {
                    up.insert(peer, connection);
                    partial.retain(|(from, _), _| *from != peer);
                    let me = host.identity().member();
                    let said = packets
                        .as_mut()
                        .and_then(|packets| packets.introduce_to(me, member, boot, now.time));
                    if let Some(frame) = said
                        && self.network.connection(self.index, peer) == Some(connection)
                    {
                        let (from, to, lane) = (self.index, peer, Lane::Control.index());
                        let (header, body) = frame.split_at(HEADER_BYTES);
                        self.network.queue_frame(LaneLink { from, to, lane }, header, body);
                    }
                    let addresses = Addresses::default();
                    host.peer_up(now, &PeerUp { member, boot, levels, addresses });
                }
                Arrival::PeerDown { peer, connection } => {
                    if up.get(&peer) == Some(&connection) {
                        up.remove(&peer);
                        if let Some(packets) = packets {
                            packets.remove_peer(id(peer));
                        }
                        host.peer_down(now, id(peer));
                    }
                }
                Arrival::ClientOpened(connection) => {
                    requests.insert(connection, Vec::new());
                    let (front, mut requests) = host.front_and_requests(now);
                    front.handle_opened(connection, Endpoints::default(), &mut requests);
                }
                Arrival::ClientBytes(connection, bytes) => {
                    if let Some(waiting) = requests.get_mut(&connection) {
                        waiting.extend_from_slice(&bytes);
                    }
                }
                Arrival::ClientClosed(connection) => {
                    requests.remove(&connection);
                    let (front, mut requests) = host.front_and_requests(now);
                    front.handle_closed(connection, &mut requests);
                }
                Arrival::StreamRequest(connection, tag, ask) => {
                    let (front, mut requests) = host.front_and_requests(now);
                    front.streams.pass_request(connection, tag, ask, &mut requests);
                }
                Arrival::ClassRequest { number, acknowledge_in_memory: early } => {
                    let (front, mut requests) = host.front_and_requests(now);
                    front.classes.propose_command(number, early, &mut requests);
                }
                Arrival::DeskRequest(client, ask) => {
                    let (_, mut requests) = host.front_and_requests(now);
                    let answer = requests.frame_clients().and_then(|desk| ask.execute_on(desk));
                    desk_answers.extend(answer.map(|answer| (client, answer)));
                }
                Arrival::TransferRequest(to) => {
                    host.start_request(now, OperatorRequest::Transfer(to))
                }
                Arrival::StopRequest => host.stop(now),
                Arrival::ScrubRequest(pace) => {
                    host.start_request(now, OperatorRequest::Scrub(pace))
                }
                Arrival::GroupRequest(asked, ask) => host.start_request(
                    now,
                    OperatorRequest::Group { request_number: asked, request: ask, dry_run: false },
                ),
            }
        }
    }

    /// Decodes the bytes that arrived from peers, and passes the frames to the replica.
    fn handle_fragments(&mut self, running: &mut RunningProcess) {
        for (peer, connection) in running.peer_connections.clone() {
            for lane in 0..Lane::ALL.len() {
                let link = LaneLink { from: peer, to: self.index, lane };
                while self.network.connection(self.index, peer) == Some(connection)
                    && let Some(bytes) = self.network.take_arrived(self.world_time, link)
                {
                    self.handle_peer_bytes(running, peer, lane, &bytes);
                }
            }
        }
    }

    fn handle_peer_bytes(
        &mut self,
        running: &mut RunningProcess,
        peer: usize,
        lane: usize,
        bytes: &[u8],
    ) {
        let mut whole = running.partial_frames.remove(&(peer, lane)).unwrap_or_default();
        whole.extend_from_slice(bytes);
        let mut used_to = 0;
        let streams = self.network.conditions().carrier != Carrier::Datagrams;
        loop {
            match decode(&whole[used_to..], BODY_BYTES_MAX) {
                Ok(Decoded::Frame { from, frame, used_bytes: used }) => {
                    if from.node == id(peer) {
                        let bytes = &whole[used_to..used_to + used];
                        self.handle_frame(running, lane, from, frame, bytes);
                    }
                    used_to += used;
                }
                Ok(Decoded::NeedMore(_)) if streams => break,
                // A datagram contains only complete frames.
                Ok(Decoded::NeedMore(_)) => {
                    used_to = whole.len();
                    break;
                }
                Err(_) => {
                    if streams {
                        self.broken_peers.push(peer);
                    }
                    used_to = whole.len();
                    break;
                }
            }
        }
        whole.drain(..used_to);
        if !whole.is_empty() {
            running.partial_frames.insert((peer, lane), whole);
        }
    }

    /// Decodes the datagrams that arrived, and passes valid frames to the replica. Frames count
    /// only if the peer's connection is established, because the packet plane is bound to it.
    fn handle_datagrams(&mut self, running: &mut RunningProcess) {
        let Some(packets) = &mut running.packets else {
            return;
        };
        for (member, bytes) in packets.read_frames(self.clock_readings.time, self.datagram_counts) {
            if let Ok(Decoded::Frame { from, frame, .. }) = decode(&bytes, BODY_BYTES_MAX) {
                debug_assert_eq!(from, member, "it was looked at");
                self.handle_frame(running, Lane::Control.index(), from, frame, &bytes);
            }
        }
    }

    /// Handles a complete frame from a peer. `bytes` is its encoding.
    fn handle_frame(
        &mut self,
        running: &mut RunningProcess,
        lane: usize,
        from: Member,
        frame: Frame<'_>,
        bytes: &[u8],
    ) {
        let RunningProcess { host, peer_connections: up, packets, .. } = running;
        if self.trace.traces_frames && matches!(frame, Frame::Forward { .. }) {
            let text = crate::words::describe_frame(&frame);
            let (now, who) = (self.world_time, name(self.index));
            let text = format_args!("from {}: {text}", from.node);
            self.trace.add_line(now, &who, "hears", text);
        }
        if let (Frame::Datagrams(said), Some(packets)) = (&frame, &mut *packets) {
            packets.receive_introduction(
                from,
                said,
                self.clock_readings.time,
                self.datagram_counts,
            );
            return;
        }
        // As in the reactor, some frame bodies are passed in a separate buffer.
        let (header, body) = bytes.split_at(HEADER_BYTES);
        let own = (body.len() % 2 == 1).then(|| Payload::new(body.to_vec()));
        let received = ReceivedFrame {
            from,
            frame,
            body_checksum: header.first_chunk().map(body_checksum),
            logged_to: header.first_chunk().map_or(0, sender_durable_seq),
            body: own.as_ref(),
        };
        let now = self.clock_readings;
        let mut plane = self.node_plane(up, packets);
        let turn = &mut now.turn(&mut plane);
        host.handle_frame(turn, Lane::ALL[lane], received);
    }

    /// Passes requests to the front until its capacity is exhausted. Returns whether the front
    /// accepted any.
    fn handle_requests(&mut self, running: &mut RunningProcess) -> bool {
        let RunningProcess { host, unaccepted_requests: requests, .. } = running;
        let waiting: Vec<ConnectionId> = requests.keys().copied().collect();
        let mut took = false;
        for connection in waiting {
            let Some(bytes) = requests.get_mut(&connection) else {
                continue;
            };
            if bytes.is_empty() || !host.front().accepts_input(connection) {
                continue;
            }
            let (front, mut requests) = host.front_and_requests(self.clock_readings);
            let used = front.receive_bytes(connection, bytes, &mut requests);
            bytes.drain(..used);
            took |= used > 0;
        }
        took
    }

    fn poll(&mut self, running: &mut RunningProcess) {
        // A completion may unblock a connection, which may then send further requests.
        for _ in 0..4 {
            let now = self.clock_readings;
            let RunningProcess { host, peer_connections: up, packets, .. } = &mut *running;
            host.poll(&mut now.turn(&mut self.node_plane(up, packets)));
            if !self.handle_requests(running) {
                return;
            }
        }
    }
}

impl Node {
    /// Returns the readings of the node's clocks.
    pub(super) fn clock_readings(&self, world: Time) -> TurnTimes {
        TurnTimes { time: self.monotonic_time(world), wall_ms: self.clock.wall_ms(world) }
    }

    /// Returns whether the node has a process that is not paused.
    pub fn is_up(&self) -> bool {
        self.running.is_some() && !self.is_paused
    }
}
