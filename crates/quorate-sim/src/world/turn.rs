//! One turn of a node: what the reactor does when something arrived or time passed.

use std::mem::take;

use quorate_core::{effect::Role, node_id::NodeId, node_set::NodeSet, time::Time};
use quorate_replica::{
    front::{ConnectionId, Endpoints, Front},
    payload::Payload,
    plane::{Body, Plane, Received, TooLarge},
    pressure::heaviest,
    status::Addresses,
};
use quorate_wire::{BODY_BYTES_MAX, Decoded, Lane, body_check, decode, header::HEADER_BYTES};

use super::{Event, World, name};
use crate::{
    check::{Verdict, bounds},
    dice::mix,
    network::{Carrier, Link, Network},
    node::{Arrival, Node, Running, limits},
    trace::Trace,
    workload::Client,
};

/// Most bytes of requests that wait for a front with room, per connection; as the reactor's.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The plane that a replica sees: the world's network, from where it stands.
struct Outgoing<'a> {
    network: &'a mut Network,
    from: usize,
    up: &'a std::collections::BTreeMap<usize, u64>,
}

impl Outgoing<'_> {
    /// The way to a node, if there is one.
    fn link(&self, to: NodeId, lane: Lane) -> Option<Link> {
        let to = usize::try_from(to.0).ok()?.checked_sub(1)?;
        // A connection that this side has not heard of yet, or still believes in.
        let known = self.up.get(&to)?;
        let stands = self.network.connection(self.from, to) == Some(*known);
        let link = Link {
            from: self.from,
            to,
            lane: lane.index(),
        };
        stands.then_some(link)
    }
}

impl Plane for Outgoing<'_> {
    fn has_room(&self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        let link = self.link(to, lane);
        link.is_some_and(|link| self.network.has_room(link, bytes))
    }

    fn send(
        &mut self,
        to: NodeSet,
        lane: Lane,
        header: &[u8],
        body: Body<'_>,
    ) -> Result<NodeSet, TooLarge> {
        let bytes = header.len() + body.bytes().len();
        let sent = to.filtered(|node| self.has_room(node, lane, bytes));
        for node in sent.iter() {
            if let Some(link) = self.link(node, lane) {
                self.network.write(link, header, body.bytes());
            }
        }
        Ok(sent)
    }
}

/// What a turn needs of the world.
struct Turn<'a> {
    now: Time,
    wall_ms: u64,
    index: usize,
    network: &'a mut Network,
    trace: &'a mut Trace,
    world_now: Time,
    /// Peers whose bytes are no frames: their connections break.
    broken: Vec<usize>,
}

impl World {
    pub(crate) fn turn(&mut self, node: usize, life: u64) -> Verdict {
        let process = &mut self.nodes[node];
        if process.life != life || process.paused || process.turn_at != Some(self.now) {
            return Ok(());
        }
        process.turn_at = None;
        let (now, wall_ms) = (process.time(self.now), process.clock.wall_ms(self.now));
        let Some(running) = &mut process.running else {
            return Ok(());
        };
        let mut turn = Turn {
            now,
            wall_ms,
            index: node,
            network: &mut self.network,
            trace: &mut self.trace,
            world_now: self.now,
            broken: Vec::new(),
        };
        turn.take_arrivals(running);
        turn.take_pieces(running);
        turn.take_requests(running);
        turn.poll(running);
        let broken = turn.broken;
        let held = held_bytes(running);
        let queued = running.requests.values().any(|bytes| !bytes.is_empty());
        self.check_told(node)?;
        self.send_frames(node)?;
        let process = &mut self.nodes[node];
        let Some(running) = &mut process.running else {
            return Ok(());
        };
        // What a leader says is on its way before its own write begins (design §5).
        running.replica.submit(now);
        let end = now.plus_us(turn_us(now, node));
        let wake = running.replica.end_turn(end);
        let wake = wake.map(|at| process.clock.world(at));
        let stopped = running
            .replica
            .is_stopped()
            .then(|| running.replica.stopped_cleanly());
        self.plan_disk(node);
        // A large reply may double what one client holds.
        let most = 2 * self.settings.client_memory + (64 << 10);
        bounds::within("what clients left unread", node, held, most)?;
        self.send_replies(node);
        self.shed(node);
        self.notice(node);
        self.check_status(node, life)?;
        self.check_bounds(node)?;
        for peer in broken {
            self.line(&name(node), "garbage", format_args!("from {}", peer + 1));
            self.break_connection(node, peer, 100);
        }
        if let Some(clean) = stopped {
            self.stopped(node, clean);
            return Ok(());
        }
        if let Some(at) = wake {
            let soonest = self.now.plus_us(1 + self.dice.below(10));
            self.turn_by(node, at.max(soonest));
        }
        if queued {
            let soon = self.now.plus_us(500);
            self.turn_by(node, soon);
        }
        Ok(())
    }

    /// A clean stop has ended: the process marks it, if all is written, and exits ([volatile-4]).
    fn stopped(&mut self, node: usize, clean: bool) {
        for peer in self.network.peers(node) {
            self.break_connection(node, peer, 200);
        }
        self.drop_clients(node);
        let process = &mut self.nodes[node];
        process.identity.clean = clean;
        process.kill(&mut self.dice);
        self.released[node] = crate::disk::Released::new(self.released[node].next());
        self.counts.stops += 1;
        self.line(
            &name(node),
            "stopped",
            format_args!("{}", if clean { "cleanly" } else { "" }),
        );
        let wait = self.dice.between(1_000, 200_000);
        self.after(wait, Event::Start(node));
    }

    /// Looks at what the replica wrote to its peers, and sends it.
    fn send_frames(&mut self, node: usize) -> Verdict {
        for peer in self.network.peers(node) {
            for lane in 0..Lane::ALL.len() {
                let link = Link {
                    from: node,
                    to: peer,
                    lane,
                };
                let frames = self.network.take_fresh(link);
                self.look_at(link, &frames)?;
                let now = self.now;
                for at in self.network.send(now, link, &frames) {
                    self.at(at, Event::Piece(link));
                }
            }
        }
        Ok(())
    }

    fn look_at(&mut self, link: Link, frames: &[u8]) -> Verdict {
        let mut rest = frames;
        while !rest.is_empty() {
            let Ok(Decoded::Frame { from, frame, used }) = decode(rest, BODY_BYTES_MAX) else {
                let detail = format!("node {} wrote what is no frame", link.from + 1);
                return Err(crate::check::Violation::new("frames", detail));
            };
            self.check_sent(link.from, from, &frame)?;
            if self.trace.frames {
                let text = crate::words::frame(&frame);
                self.line(
                    &name(link.from),
                    "says",
                    format_args!("to {}: {text}", link.to + 1),
                );
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
        while let Some(connection) = running.front.next_dirty() {
            let owner =
                |client: &&Client| client.connection.is_some_and(|(id, _)| id == connection);
            let owner = self.clients.iter().find(owner);
            if owner.is_some_and(|client| client.deaf) {
                continue;
            }
            let bytes = take(running.front.output(connection));
            running.front.sent(connection);
            let closing = running.front.closing(connection);
            out.extend(owner.map(|client| (client.index, connection, bytes, closing)));
        }
        for (client, connection, bytes, closing) in out {
            let at = self.client_delay(connection);
            self.at(
                at,
                Event::ToClient {
                    client,
                    connection,
                    bytes,
                },
            );
            if closing {
                self.at(at, Event::ClientDown { client, connection });
            }
        }
    }

    /// Clients that hold too much are closed, as the reactor does it.
    fn shed(&mut self, node: usize) {
        let max = self.settings.client_memory;
        let (now, wall_ms) = {
            let process = &self.nodes[node];
            (process.time(self.now), process.clock.wall_ms(self.now))
        };
        loop {
            let Some(running) = &mut self.nodes[node].running else {
                return;
            };
            let clients = running.requests.iter().map(|(connection, bytes)| {
                let held = running.front.held_bytes_of(*connection);
                (*connection, bytes.len() + held)
            });
            let Some((connection, bytes)) = heaviest(held_bytes(running), max, clients) else {
                return;
            };
            running.requests.remove(&connection);
            let Running { front, replica, .. } = running;
            front.closed(connection, &mut replica.requests(now, wall_ms));
            self.counts.shed += 1;
            self.line(
                &name(node),
                "sheds",
                format_args!("a client of {bytes} bytes"),
            );
            let owner = |client: &Client| client.connection.is_some_and(|(id, _)| id == connection);
            if let Some(client) = self.clients.iter().position(owner) {
                let wait = self.dice.between(50, 1000);
                self.after(wait, Event::ClientDown { client, connection });
            }
        }
    }

    /// Tells the trace what changed about a node.
    fn notice(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let core = running.replica.node();
        let role = match (core.role(), core.leader()) {
            (role @ Role::Leader, _) | (role, None) => format!("{role:?}"),
            (role, Some(leader)) => format!("{role:?} of {leader}"),
        };
        let mut lines = Vec::new();
        let seen = &mut running.seen;
        if role != seen.role {
            if core.role() == Role::Leader {
                self.counts.elections += 1;
            }
            lines.push((
                "role",
                format!("{} in ballot {}", role.to_lowercase(), core.ballot()),
            ));
            seen.role = role;
        }
        if core.decided_to() != seen.decided_to {
            seen.decided_to = core.decided_to();
            lines.push(("decided", format!("every slot below {}", seen.decided_to)));
        }
        let error = running.replica.error();
        if error != seen.error {
            if let Some(error) = &error {
                lines.push(("error", error.clone()));
            }
            seen.error = error;
        }
        for (what, detail) in lines {
            self.line(&name(node), what, format_args!("{detail}"));
        }
    }

    fn check_bounds(&self, node: usize) -> Verdict {
        let Some(running) = &self.nodes[node].running else {
            return Ok(());
        };
        let limits = limits(&self.settings);
        // One batch of votes may come on top of what was below the limit, and one per peer.
        let slack = 256 << 10;
        let log_max = usize::try_from(limits.log_backlog_bytes).unwrap_or(usize::MAX);
        bounds::within(
            "the log's queue",
            node,
            running.replica.log().backlog_bytes(),
            log_max + slack,
        )?;
        if let Some(tuning) = self.settings.tuning {
            let (setting, bounds) = (running.replica.batching(), tuning.bounds);
            bounds::within("a batch", node, setting.batch_bytes, bounds.batch_bytes_max)?;
            bounds::within("the window", node, setting.window, bounds.window_max)?;
        }
        let requests = running.requests.values().map(Vec::len).max().unwrap_or(0);
        bounds::within("a client's input", node, requests, 2 * REQUEST_BYTES_MAX)
    }
}

/// Memory that a node holds for its clients.
fn held_bytes(running: &Running) -> usize {
    let requests: usize = running.requests.values().map(Vec::len).sum();
    requests + running.front.held_bytes()
}

/// What a turn costs, as the node's tuner sees it: mostly little, at times very much.
fn turn_us(now: Time, node: usize) -> u64 {
    let drawn = mix(now.0 ^ (node as u64) << 48);
    if drawn.is_multiple_of(64) {
        drawn % 20_000
    } else {
        drawn % 200
    }
}

impl Turn<'_> {
    fn plane<'b>(&'b mut self, up: &'b std::collections::BTreeMap<usize, u64>) -> Outgoing<'b> {
        Outgoing {
            network: &mut *self.network,
            from: self.index,
            up,
        }
    }

    fn take_arrivals(&mut self, running: &mut Running) {
        while let Some(arrival) = running.inbox.pop_front() {
            let Running {
                replica,
                front,
                up,
                partial,
                requests,
                ..
            } = running;
            match arrival {
                Arrival::PeerUp {
                    peer,
                    connection,
                    member,
                    boot,
                } => {
                    up.insert(peer, connection);
                    partial.retain(|(from, _), _| *from != peer);
                    replica.peer_up(self.now, member, boot, Addresses::default());
                }
                Arrival::PeerDown { peer, connection } => {
                    if up.get(&peer) == Some(&connection) {
                        up.remove(&peer);
                        replica.peer_down(self.now, node_id(peer));
                    }
                }
                Arrival::Opened(connection) => {
                    requests.insert(connection, Vec::new());
                    let requests = &mut replica.requests(self.now, self.wall_ms);
                    front.opened(connection, Endpoints::default(), requests);
                }
                Arrival::Bytes(connection, bytes) => {
                    if let Some(waiting) = requests.get_mut(&connection) {
                        waiting.extend_from_slice(&bytes);
                    }
                }
                Arrival::Closed(connection) => {
                    requests.remove(&connection);
                    front.closed(connection, &mut replica.requests(self.now, self.wall_ms));
                }
                Arrival::Transfer(to) => replica.transfer(self.now, to),
                Arrival::Stop => replica.stop(self.now),
            }
        }
    }

    /// Bytes of peers become frames, frames go to the replica.
    fn take_pieces(&mut self, running: &mut Running) {
        for (peer, connection) in running.up.clone() {
            for lane in 0..Lane::ALL.len() {
                let link = Link {
                    from: peer,
                    to: self.index,
                    lane,
                };
                while self.network.connection(self.index, peer) == Some(connection)
                    && let Some(bytes) = self.network.arrived(self.world_now, link)
                {
                    self.take_bytes(running, peer, lane, &bytes);
                }
            }
        }
    }

    fn take_bytes(&mut self, running: &mut Running, peer: usize, lane: usize, bytes: &[u8]) {
        let mut whole = running.partial.remove(&(peer, lane)).unwrap_or_default();
        whole.extend_from_slice(bytes);
        let mut used_to = 0;
        let streams = self.network.weather().carrier == Carrier::Streams;
        loop {
            match decode(&whole[used_to..], BODY_BYTES_MAX) {
                Ok(Decoded::Frame { from, frame, used }) => {
                    let Running { replica, up, .. } = &mut *running;
                    if self.trace.frames && matches!(frame, quorate_wire::Frame::Forward { .. }) {
                        let text = crate::words::frame(&frame);
                        let (now, who) = (self.world_now, name(self.index));
                        self.trace.line(
                            now,
                            &who,
                            "hears",
                            format_args!("from {}: {text}", peer + 1),
                        );
                    }
                    if from.node == node_id(peer) {
                        let mut plane = Outgoing {
                            network: &mut *self.network,
                            from: self.index,
                            up,
                        };
                        // As from the reactor: some bodies come in a buffer of their own.
                        let (header, body) = whole[used_to..used_to + used].split_at(HEADER_BYTES);
                        let own = (body.len() % 2 == 1).then(|| Payload::new(body.to_vec()));
                        let received = Received {
                            from,
                            frame,
                            body_check: header.first_chunk().map(body_check),
                            body: own.as_ref(),
                        };
                        replica.on_frame(self.now, self.wall_ms, received, &mut plane);
                    }
                    used_to += used;
                }
                Ok(Decoded::NeedMore(_)) if streams => break,
                // A datagram is a whole frame, or nothing.
                Ok(Decoded::NeedMore(_)) => {
                    used_to = whole.len();
                    break;
                }
                Err(_) => {
                    if streams {
                        self.broken.push(peer);
                    }
                    used_to = whole.len();
                    break;
                }
            }
        }
        whole.drain(..used_to);
        if !whole.is_empty() {
            running.partial.insert((peer, lane), whole);
        }
    }

    /// Requests go to the front as far as it has room for them.
    fn take_requests(&mut self, running: &mut Running) {
        let Running {
            replica,
            front,
            requests,
            ..
        } = running;
        let waiting: Vec<ConnectionId> = requests.keys().copied().collect();
        for connection in waiting {
            let Some(bytes) = requests.get_mut(&connection) else {
                continue;
            };
            if bytes.is_empty() || !front.ready(connection) {
                continue;
            }
            let used = front.received(
                connection,
                bytes,
                &mut replica.requests(self.now, self.wall_ms),
            );
            bytes.drain(..used);
        }
    }

    fn poll(&mut self, running: &mut Running) {
        // A completion may let a connection go on, which asks for something new.
        for _ in 0..4 {
            let Running {
                replica, front, up, ..
            } = &mut *running;
            let (now, wall_ms) = (self.now, self.wall_ms);
            replica.poll(now, wall_ms, &mut self.plane(up), front);
            if !replica.deliver(now, wall_ms, front) {
                return;
            }
            self.take_requests(running);
        }
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(u32::try_from(index + 1).expect("a handful of nodes"))
}

impl Node {
    /// Whether a process runs and is not paused.
    pub fn is_up(&self) -> bool {
        self.running.is_some() && !self.paused
    }
}
