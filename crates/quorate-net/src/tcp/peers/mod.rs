//! All peers with their connections: dials, greets, queues, and tells the host who is there.

mod newcomers;

use std::{collections::VecDeque, net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_replica::{plane::Plane, status::Addresses};
use quorate_wire::{
    BODY_BYTES_MAX, Decoded, Founding, Frame, HANDSHAKE_BODY_BYTES_MAX, Hello, Lane, Malformed,
    NO_CLUSTER, PROTOCOL_VERSION, RefusalCode, decode, encode,
};
use rustc_hash::FxHashMap;

use super::{
    buffers::{Inbox, Moved, Outbox},
    foreign::Foreign,
    handshake::{Expectation, judge},
    resolve::{Resolved, resolve},
    socket,
};
use crate::{
    complaints::Complaints,
    handle::Shared,
    host::{Now, PeerSide, PeerUp, Refused},
    limiter::Limiter,
    limits::Limits,
    poller::{Interest, Poller, Ready},
    reactor::{Identity, PeerAddress},
    stats::Stats,
};

/// That a peer came, or went, is told of a few times in so long.
const TELL_EVERY_MS: u64 = 10_000;
const TELL_BURST: u32 = 6;
/// What to make of two clusters at one list of addresses.
const OTHER_CLUSTER: &str = "one of the two was founded with an empty folder, or the address is another \
     cluster's; they never exchange data. Bring back the folder, or correct the list";
const NO_CLUSTER_YET: &str = "starts with an empty folder, and would have founded a second cluster; it was \
     told that this one exists";
/// Read at once from somebody who has not said who it is.
const STRANGER_READ_BYTES: usize = 4 << 10;

/// The table of peers, and the plane that the replica speaks through.
#[derive(Debug)]
pub(crate) struct Peers {
    identity: Identity,
    limits: Limits,
    poller: Arc<Poller>,
    shared: Arc<Shared>,
    known: Vec<NodeId>,
    peers: Vec<Peer>,
    links: FxHashMap<u64, Link>,
    next_token: u64,
    /// Links with something new to send.
    dirty: Vec<u64>,
    /// Links whose stage has a deadline, oldest first.
    transient: VecDeque<u64>,
    random: u64,
    complaints: Complaints,
    news: Limiter<NodeId, News>,
    foreign: Foreign,
    pub(crate) stats: Stats,
}

/// Another node.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    address: String,
    resolved: Vec<SocketAddr>,
    resolving: bool,
    lanes: [LaneState; 2],
    up: bool,
}

/// One lane towards it.
#[derive(Debug, Default)]
struct LaneState {
    /// The connection in use.
    open: Option<u64>,
    /// A dial under way.
    attempt: Option<u64>,
    retry_at: Time,
    retry_ms: u64,
}

/// One connection.
#[derive(Debug)]
struct Link {
    socket: OwnedFd,
    inbox: Inbox,
    outbox: Outbox,
    stage: Stage,
    interest: Interest,
    dirty: bool,
    /// When the last frame came by it, once it is in use.
    heard: Option<Time>,
    /// Who it is, while it waits.
    greeter: Option<Box<Greeter>>,
    /// Why it ends, once it does, if that is not this node's own wish.
    lost: Option<String>,
}

/// What an operator hears of a peer.
#[derive(Debug)]
enum News {
    /// It can be talked to.
    Came { member: Member, boot: u32 },
    /// It cannot be talked to any more.
    Went { node: NodeId, why: String },
}

/// Who greeted, and what for.
#[derive(Clone, Debug)]
struct Greeter {
    member: Member,
    boot: u32,
    lane: Lane,
    client: String,
    admin: String,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Dialled; not yet connected.
    Dialling {
        node: NodeId,
        lane: Lane,
        deadline: Time,
    },
    /// Connected; our hello is out.
    Greeting {
        node: NodeId,
        lane: Lane,
        deadline: Time,
    },
    /// Accepted; nothing said yet.
    Stranger { deadline: Time },
    /// Greeted, in the name of a peer whose connection lives.
    Newcomer { deadline: Time },
    /// Its last frame is on the way; what still comes is discarded.
    Leaving { deadline: Time },
    /// In use.
    Open {
        member: Member,
        boot: u32,
        lane: Lane,
    },
}

impl Stage {
    const fn deadline(self) -> Option<Time> {
        match self {
            Self::Dialling { deadline, .. }
            | Self::Greeting { deadline, .. }
            | Self::Stranger { deadline }
            | Self::Newcomer { deadline }
            | Self::Leaving { deadline } => Some(deadline),
            Self::Open { .. } => None,
        }
    }
}

/// What a frame does to the connection that it came by.
enum Verdict {
    GoOn,
    Close,
}

impl Peers {
    pub(crate) fn new(
        identity: Identity,
        addresses: &[PeerAddress],
        limits: Limits,
        poller: Arc<Poller>,
        shared: Arc<Shared>,
        seed: u64,
        first_token: u64,
    ) -> Self {
        let me = identity.member.node;
        let known = addresses.iter().map(|peer| peer.node).collect();
        let others = addresses.iter().filter(|peer| peer.node != me);
        let peers = others.map(|peer| Peer {
            node: peer.node,
            address: peer.address.clone(),
            resolved: Vec::new(),
            resolving: false,
            lanes: Default::default(),
            up: false,
        });
        Self {
            peers: peers.collect(),
            known,
            identity,
            limits,
            poller,
            shared,
            links: FxHashMap::default(),
            next_token: first_token,
            dirty: Vec::new(),
            transient: VecDeque::new(),
            random: seed,
            complaints: Complaints::default(),
            news: Limiter::new(TELL_EVERY_MS),
            foreign: Foreign::default(),
            stats: Stats::default(),
        }
    }

    /// Takes what waits at the listener.
    pub(crate) fn accept(
        &mut self,
        listener: impl std::os::fd::AsFd,
        now: Now,
        host: &mut dyn PeerSide,
    ) -> std::io::Result<()> {
        while let Some(socket) = socket::accept(&listener)? {
            let deadline = now.time.plus_ms(self.limits.handshake_ms);
            self.adopt(socket, Stage::Stranger { deadline }, Interest::READ);
            self.evict_strangers(now, host);
        }
        Ok(())
    }

    /// Something happened to one of the connections.
    pub(crate) fn on_ready(&mut self, ready: Ready, now: Now, host: &mut dyn PeerSide) {
        let Some(link) = self.links.get(&ready.token) else {
            return;
        };
        if let Stage::Dialling {
            node,
            lane,
            deadline,
        } = link.stage
        {
            if ready.write || ready.broken {
                self.on_dialled(ready.token, node, lane, deadline, now, host);
            }
            return;
        }
        if ready.write {
            self.write(ready.token, now, host);
        }
        if ready.read || ready.broken {
            self.read(ready.token, now, host);
        }
    }

    /// Sends what waits: one write per connection.
    pub(crate) fn flush(&mut self, now: Now, host: &mut dyn PeerSide) {
        while !self.dirty.is_empty() {
            for token in std::mem::take(&mut self.dirty) {
                let Some(link) = self.links.get_mut(&token) else {
                    continue;
                };
                link.dirty = false;
                // While the socket is full its readiness is awaited instead.
                if !link.interest.write {
                    self.write(token, now, host);
                }
            }
        }
    }

    /// Whether something was said since the last flush.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whatever is due: given up waits, dials.
    pub(crate) fn on_time(&mut self, now: Now, host: &mut dyn PeerSide) {
        while let Some((news, left_out)) = self.news.next_due(now.time) {
            self.write_news(&news, left_out);
        }
        self.give_up(now, host);
        for index in 0..self.peers.len() {
            for lane in Lane::ALL {
                if self.peers[index].wants_dial(lane, self.identity.member.node, now.time) {
                    self.dial(index, lane, now);
                }
            }
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub(crate) fn next_time(&self) -> Option<Time> {
        let deadlines = self
            .transient
            .iter()
            .filter_map(|token| self.links.get(token));
        let deadlines = deadlines.filter_map(|link| link.stage.deadline());
        let me = self.identity.member.node;
        let dials = self
            .peers
            .iter()
            .filter(|peer| peer.node < me && !peer.resolving);
        let dials = dials.flat_map(|peer| &peer.lanes);
        let dials = dials.filter(|lane| lane.open.is_none() && lane.attempt.is_none());
        deadlines.chain(dials.map(|lane| lane.retry_at)).min()
    }

    /// A name was looked up.
    pub(crate) fn on_resolved(&mut self, resolved: Resolved, now: Now) {
        let Some(index) = self
            .peers
            .iter()
            .position(|peer| peer.node == resolved.node)
        else {
            return;
        };
        self.peers[index].resolving = false;
        match resolved.addresses {
            Ok(addresses) if !addresses.is_empty() => self.peers[index].resolved = addresses,
            Ok(_) => self.dial_failed(index, &Lane::ALL, "the name has no address", now),
            Err(error) => self.dial_failed(index, &Lane::ALL, &error, now),
        }
    }

    fn adopt(&mut self, socket: OwnedFd, stage: Stage, interest: Interest) -> Option<u64> {
        let token = self.next_token;
        let tuned = socket::tune_peer(&socket, self.limits.peer_silence_ms)
            .and_then(|()| self.poller.add(&socket, token, interest));
        if let Err(error) = tuned {
            // A connection that died at once, or no memory: either way it is dropped here.
            tracing::debug!(%error, "a peer connection could not be set up");
            return None;
        }
        self.next_token += 1;
        let (inbox, outbox) = (Inbox::default(), Outbox::default());
        let link = Link {
            socket,
            inbox,
            outbox,
            stage,
            interest,
            dirty: false,
            lost: None,
            heard: None,
            greeter: None,
        };
        self.links.insert(token, link);
        self.transient.push_back(token);
        Some(token)
    }

    /// Strangers cannot lock peers out: the oldest makes room.
    fn evict_strangers(&mut self, now: Now, host: &mut dyn PeerSide) {
        let links = &self.links;
        let is_stranger = |token: &&u64| {
            let stage = links.get(token).map(|link| link.stage);
            matches!(
                stage,
                Some(Stage::Stranger { .. } | Stage::Newcomer { .. } | Stage::Leaving { .. })
            )
        };
        if self.transient.iter().filter(is_stranger).count() > self.limits.strangers_max
            && let Some(oldest) = self.transient.iter().find(is_stranger).copied()
        {
            self.close(oldest, now, host);
        }
    }

    fn give_up(&mut self, now: Now, host: &mut dyn PeerSide) {
        if self.transient.is_empty() {
            return;
        }
        let links = &self.links;
        self.transient.retain(|token| {
            links
                .get(token)
                .is_some_and(|link| link.stage.deadline().is_some())
        });
        self.settle_newcomers(now, host);
        let late = self.transient.iter();
        let late = late.filter(|token| self.is_late(**token, now));
        for token in late.copied().collect::<Vec<_>>() {
            match self.links.get(&token).map(|link| link.stage) {
                Some(Stage::Dialling { node, .. }) => self.complain(node, "no answer to a dial"),
                Some(Stage::Greeting { node, .. }) => self.complain(node, "no answer to a hello"),
                _ => {}
            }
            self.close(token, now, host);
        }
    }

    /// Whether its stage has taken too long.
    fn is_late(&self, token: u64, now: Now) -> bool {
        let deadline = self
            .links
            .get(&token)
            .and_then(|link| link.stage.deadline());
        deadline.is_some_and(|deadline| deadline <= now.time)
    }

    // Dialling.

    fn dial(&mut self, index: usize, lane: Lane, now: Now) {
        let peer = &mut self.peers[index];
        let address = match peer.address.parse() {
            Ok(literal) => literal,
            Err(_) => match peer.resolved.pop() {
                Some(address) => address,
                None => {
                    peer.resolving = true;
                    resolve(peer.node, peer.address.clone(), self.shared.clone());
                    return;
                }
            },
        };
        self.stats.dials += 1;
        let node = peer.node;
        let deadline = now.time.plus_ms(self.limits.handshake_ms);
        match socket::dial(address) {
            Ok(socket) => {
                let stage = Stage::Dialling {
                    node,
                    lane,
                    deadline,
                };
                match self.adopt(socket, stage, Interest::WRITE) {
                    Some(token) => {
                        self.peers[index].lanes[lane.index()].attempt = Some(token);
                    }
                    None => self.dial_failed(index, &[lane], "cannot set up a socket", now),
                }
            }
            Err(error) => self.dial_failed(index, &[lane], &error.to_string(), now),
        }
    }

    fn dial_failed(&mut self, index: usize, lanes: &[Lane], why: &str, now: Now) {
        for lane in lanes {
            self.back_off(index, *lane, now);
        }
        let Peer { node, address, .. } = &self.peers[index];
        if self.complaints.is_new(&about(*node), why) {
            tracing::info!(peer = node.0, %address, "cannot reach a peer: {why}");
        }
    }

    fn on_dialled(
        &mut self,
        token: u64,
        node: NodeId,
        lane: Lane,
        deadline: Time,
        now: Now,
        host: &mut dyn PeerSide,
    ) {
        let Some(link) = self.links.get_mut(&token) else {
            return;
        };
        if let Err(error) = socket::dialled(&link.socket) {
            self.close(token, now, host);
            if let Some(index) = self.index(node) {
                let Peer { address, .. } = &self.peers[index];
                if self.complaints.is_new(&about(node), &error.to_string()) {
                    tracing::info!(peer = node.0, %address, "cannot reach a peer: {error}");
                }
            }
            return;
        }
        link.stage = Stage::Greeting {
            node,
            lane,
            deadline,
        };
        link.interest = Interest::READ;
        if let Err(error) = self.poller.change(&link.socket, token, Interest::READ) {
            tracing::warn!(%error, "cannot watch a connection");
            return self.close(token, now, host);
        }
        let identity = self.identity.clone();
        self.say(token, &Frame::Hello(greeting(&identity, node, lane)));
    }

    /// The next attempt on this lane waits: longer each time, and not in step with other nodes.
    fn back_off(&mut self, index: usize, lane: Lane, now: Now) {
        let random = self.next_random();
        let Limits {
            dial_retry_min_ms: min,
            dial_retry_max_ms: max,
            ..
        } = self.limits;
        let state = &mut self.peers[index].lanes[lane.index()];
        let wait_ms = state.retry_ms.clamp(min, max);
        let jitter_us = random % (wait_ms * 1000).max(1);
        state.retry_at = now.time.plus_us(wait_ms * 500 + jitter_us);
        state.retry_ms = wait_ms.saturating_mul(2);
    }

    /// splitmix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    // Bytes.

    fn read(&mut self, token: u64, now: Now, host: &mut dyn PeerSide) {
        let Some(link) = self.links.get_mut(&token) else {
            return;
        };
        let limit = match link.stage {
            Stage::Open { .. } => self.limits.read_turn_bytes,
            _ => STRANGER_READ_BYTES,
        };
        self.stats.calls_peer_read += 1;
        match link.inbox.read(&link.socket, limit) {
            Moved::Some(count) => {
                self.stats.peer_bytes_in += count as u64;
                self.on_bytes(token, now, host);
            }
            Moved::Blocked => {}
            Moved::Ended(why) => {
                link.lost = Some(lost(why));
                self.close(token, now, host);
            }
        }
    }

    /// Uses up the whole frames that have come.
    fn on_bytes(&mut self, token: u64, now: Now, host: &mut dyn PeerSide) {
        let Some(link) = self.links.get_mut(&token) else {
            return;
        };
        // Taken out, so that the host may speak through `self` while it reads the frame in place.
        let mut inbox = std::mem::take(&mut link.inbox);
        let mut heard = link.heard;
        while let Some(stage) = self.links.get(&token).map(|link| link.stage) {
            let bound = match stage {
                Stage::Open { .. } => BODY_BYTES_MAX,
                Stage::Leaving { .. } => {
                    inbox.consume(inbox.unused().len());
                    break;
                }
                _ => HANDSHAKE_BODY_BYTES_MAX,
            };
            match decode(inbox.unused(), bound) {
                Ok(Decoded::NeedMore(more)) => {
                    inbox.want(more);
                    break;
                }
                Ok(Decoded::Frame { from, frame, used }) => {
                    match self.on_frame(token, stage, from, frame, now, host) {
                        Verdict::GoOn => {
                            inbox.consume(used);
                            if matches!(stage, Stage::Open { .. } | Stage::Newcomer { .. }) {
                                heard = Some(now.time);
                            }
                        }
                        Verdict::Close => return self.close(token, now, host),
                    }
                }
                Err(malformed) if self.begins_long_frame(token, malformed, now, host) => {}
                Err(malformed) => return self.on_malformed(token, stage, malformed, now, host),
            }
        }
        if let Some(link) = self.links.get_mut(&token) {
            link.inbox = inbox;
            if matches!(link.stage, Stage::Open { .. }) {
                link.heard = heard;
            }
        }
    }

    fn on_malformed(
        &mut self,
        token: u64,
        stage: Stage,
        malformed: Malformed,
        now: Now,
        host: &mut dyn PeerSide,
    ) {
        self.stats.malformed += 1;
        match stage {
            Stage::Open { member, .. } => self.complain(member.node, &malformed.to_string()),
            Stage::Greeting { node, .. } => self.complain(node, &malformed.to_string()),
            _ => {
                let remote = self
                    .links
                    .get(&token)
                    .map(|link| socket::remote_host(&link.socket));
                let remote = remote.unwrap_or_default();
                if self.complaints.is_new(&remote, &malformed.to_string()) {
                    tracing::warn!(%remote, "closed a peer connection: {malformed}");
                }
                // Whoever speaks another version of our format is told so; others would not
                // understand.
                if matches!(malformed, Malformed::Format(_)) {
                    let me = self.identity.member.node;
                    let reason = format!("node {me}: {malformed}");
                    return self.refuse(token, RefusalCode::Version, &reason, now);
                }
            }
        }
        self.close(token, now, host);
    }

    fn write(&mut self, token: u64, now: Now, host: &mut dyn PeerSide) {
        let Some(link) = self.links.get_mut(&token) else {
            return;
        };
        if !link.outbox.is_empty() {
            self.stats.calls_peer_write += 1;
            match link.outbox.write(&link.socket) {
                Moved::Some(count) => self.stats.peer_bytes_out += count as u64,
                Moved::Blocked => {}
                Moved::Ended(why) => {
                    link.lost = Some(lost(why));
                    return self.close(token, now, host);
                }
            }
        }
        let interest = Interest {
            read: true,
            write: !link.outbox.is_empty(),
        };
        if interest != link.interest {
            link.interest = interest;
            if let Err(error) = self.poller.change(&link.socket, token, interest) {
                tracing::warn!(%error, "cannot watch a connection");
                return self.close(token, now, host);
            }
        }
        if link.outbox.is_empty() && matches!(link.stage, Stage::Leaving { .. }) {
            let _ = rustix::net::shutdown(&link.socket, rustix::net::Shutdown::Write);
        }
    }

    // Frames.

    fn on_frame(
        &mut self,
        token: u64,
        stage: Stage,
        from: Member,
        frame: Frame<'_>,
        now: Now,
        host: &mut dyn PeerSide,
    ) -> Verdict {
        match (stage, frame) {
            (Stage::Open { member, lane, .. }, frame) => {
                self.on_peer_frame(member, lane, from, frame, now, host)
            }
            (Stage::Greeting { node, lane, .. }, Frame::Welcome(hello)) => {
                self.on_welcome(token, node, lane, &hello, now, host)
            }
            (Stage::Greeting { node, .. }, Frame::Refused(code, reason)) => {
                self.stats.refusals += 1;
                self.on_refused(node, code, reason, now);
                Verdict::Close
            }
            (Stage::Stranger { .. }, Frame::Hello(hello)) => {
                self.on_hello(token, &hello, now, host);
                Verdict::GoOn
            }
            (Stage::Stranger { .. }, Frame::Join(join)) => {
                match host.admit(join) {
                    Ok(founded) => {
                        tracing::info!(node = join.node.0, "told a new node what was founded");
                        let members = founded.members.iter();
                        let members = members.map(|(node, address)| (*node, address.as_str()));
                        let founding = Founding {
                            cluster: founded.cluster,
                            class: founded.class,
                            store: &founded.store,
                            members: members.collect(),
                        };
                        self.farewell(token, &Frame::Founding(founding), now);
                    }
                    Err(refused) => {
                        self.stats.refusals += 1;
                        self.complain(join.node, &format!("may not join: {}", refused.reason));
                        self.refuse(token, refused.code, &refused.reason, now);
                    }
                }
                Verdict::GoOn
            }
            (Stage::Newcomer { .. }, frame) => {
                self.on_newcomer_frame(token, from, frame, now, host)
            }
            (Stage::Greeting { node, .. }, _) => {
                self.complain(node, "did not answer a hello with a welcome");
                Verdict::Close
            }
            _ => Verdict::Close,
        }
    }

    fn on_peer_frame(
        &mut self,
        member: Member,
        lane: Lane,
        from: Member,
        frame: Frame<'_>,
        now: Now,
        host: &mut dyn PeerSide,
    ) -> Verdict {
        if from != member {
            self.complain(
                member.node,
                &format!("sent a frame in the name of node {from}"),
            );
            return Verdict::Close;
        }
        match frame {
            Frame::Refused(code, reason) => {
                self.stats.refusals += 1;
                self.complain(
                    member.node,
                    &format!("refused by the peer ({code:?}): {reason}"),
                );
                Verdict::Close
            }
            Frame::Hello(_) | Frame::Welcome(_) | Frame::Join(_) | Frame::Founding(_) => {
                self.complain(member.node, "sent a greeting in the middle of a connection");
                Verdict::Close
            }
            Frame::Protocol { .. }
            | Frame::Forward { .. }
            | Frame::NotTaken { .. }
            | Frame::FetchRequest { .. }
            | Frame::FetchReply { .. }
            | Frame::Applied { .. } => {
                self.stats.frames_in += 1;
                host.frame(&mut now.turn(self), from, lane, frame);
                Verdict::GoOn
            }
        }
    }

    fn on_welcome(
        &mut self,
        token: u64,
        node: NodeId,
        lane: Lane,
        hello: &Hello<'_>,
        now: Now,
        host: &mut dyn PeerSide,
    ) -> Verdict {
        match self.judge(hello, Some(node), now) {
            Ok(()) if hello.lane == lane => {
                self.open(token, Greeter::of(hello), now, host);
                Verdict::GoOn
            }
            Ok(()) => {
                self.complain(node, "answered for another lane");
                Verdict::Close
            }
            Err(Refused { code, reason }) => {
                self.stats.refusals += 1;
                match code {
                    RefusalCode::ForeignCluster => self.on_foreign(node, now),
                    _ => self.complain(node, &reason),
                }
                Verdict::Close
            }
        }
    }

    /// A dial ended with a no.
    fn on_refused(&mut self, node: NodeId, code: RefusalCode, reason: &str, now: Now) {
        match code {
            RefusalCode::ForeignCluster => self.on_foreign(node, now),
            // It will say something else soon.
            RefusalCode::Starting => {
                if self.complaints.is_new(&about(node), reason) {
                    tracing::info!(peer = node.0, "not yet connected: {reason}");
                }
            }
            _ => self.complain(node, &format!("refused by the peer ({code:?}): {reason}")),
        }
    }

    /// A node of our list says that it belongs to another cluster, or to none.
    fn on_foreign(&mut self, node: NodeId, now: Now) {
        let Some(index) = self.index(node) else {
            return self.complain(node, "a node of another cluster wanted to connect");
        };
        if self.peers[index].up {
            // The peer itself is here.
            return self.complain(node, "somebody of another cluster greeted in its name");
        }
        let address = &self.peers[index].address;
        if self.foreign.seen(node, now.time) {
            tracing::error!(peer = node.0, %address, "the peer belongs to another cluster: {OTHER_CLUSTER}");
        }
    }

    /// What an operator should look at.
    pub(crate) fn notices(&self, now: Time) -> Vec<String> {
        let notice = |node: NodeId| {
            let address = self
                .index(node)
                .map(|index| self.peers[index].address.as_str());
            let address = address.unwrap_or_default();
            format!("node {node} at {address} belongs to another cluster: {OTHER_CLUSTER}")
        };
        self.foreign.nodes(now).map(notice).collect()
    }

    fn on_hello(&mut self, token: u64, hello: &Hello<'_>, now: Now, host: &mut dyn PeerSide) {
        match self.judge(hello, None, now) {
            Ok(()) => {
                let identity = self.identity.clone();
                let welcome = greeting(&identity, hello.from.node, hello.lane);
                self.say(token, &Frame::Welcome(welcome));
                let greeter = Greeter::of(hello);
                if self.must_wait(&greeter, now) {
                    self.wait(token, greeter, now);
                } else {
                    self.open(token, greeter, now, host);
                }
            }
            Err(Refused { code, reason }) => {
                self.stats.refusals += 1;
                let node = hello.from.node;
                match code {
                    RefusalCode::ForeignCluster if hello.cluster == NO_CLUSTER => {
                        self.complain(node, NO_CLUSTER_YET);
                    }
                    RefusalCode::ForeignCluster => self.on_foreign(node, now),
                    _ => self.complain(node, &format!("refused a peer ({code:?}): {reason}")),
                }
                self.refuse(token, code, &reason, now);
            }
        }
    }

    fn judge(&self, hello: &Hello<'_>, dialled: Option<NodeId>, now: Now) -> Result<(), Refused> {
        let expectation = Expectation {
            identity: &self.identity,
            known: &self.known,
            dialled,
            connected_boot: self.living_boot(hello.from.node, now),
        };
        judge(&expectation, hello)
    }

    /// The connection is used from now on. A second one for the lane replaces the first; a newer
    /// process replaces all of an older one.
    fn open(&mut self, token: u64, greeter: Greeter, now: Now, host: &mut dyn PeerSide) {
        let Greeter {
            member,
            boot,
            lane,
            client,
            admin,
        } = greeter;
        let node = member.node;
        let Some(index) = self.index(node) else {
            return;
        };
        for old in self.replaced_by(node, lane, boot).collect::<Vec<_>>() {
            if let Some(link) = self.links.get_mut(&old) {
                link.lost = Some("a newer connection takes its place".to_owned());
            }
            self.close(old, now, host);
        }
        let Some(link) = self.links.get_mut(&token) else {
            return;
        };
        link.stage = Stage::Open { member, boot, lane };
        let state = &mut self.peers[index].lanes[lane.index()];
        state.open = Some(token);
        state.retry_ms = 0;
        if state.attempt == Some(token) {
            state.attempt = None;
        }
        self.complaints.settle(&about(node));
        self.foreign.settle(node);
        self.stats.peers_connected += 1;
        tracing::debug!(peer = node.0, ?lane, boot, "connection opened");
        if lane == Lane::Control {
            self.tell(now, node, News::Came { member, boot });
            self.peers[index].up = true;
            let addresses = Addresses {
                peer: self.peers[index].address.clone(),
                client,
                admin,
            };
            let peer = PeerUp {
                member,
                boot,
                addresses,
            };
            host.peer_up(now, &peer);
        }
    }

    /// Ends a connection and whatever it stood for.
    fn close(&mut self, token: u64, now: Now, host: &mut dyn PeerSide) {
        let Some(link) = self.links.remove(&token) else {
            return;
        };
        let (node, lane) = match link.stage {
            Stage::Dialling { node, lane, .. } | Stage::Greeting { node, lane, .. } => (node, lane),
            Stage::Open { member, lane, .. } => (member.node, lane),
            Stage::Stranger { .. } | Stage::Newcomer { .. } | Stage::Leaving { .. } => return,
        };
        let Some(index) = self.index(node) else {
            return;
        };
        let state = &mut self.peers[index].lanes[lane.index()];
        if state.attempt == Some(token) {
            state.attempt = None;
            self.back_off(index, lane, now);
        } else if state.open == Some(token) {
            state.open = None;
            self.back_off(index, lane, now);
            let why = link.lost.as_deref().unwrap_or("this node closed it");
            tracing::debug!(peer = node.0, ?lane, "connection lost: {why}");
            if lane == Lane::Control && std::mem::take(&mut self.peers[index].up) {
                let why = why.to_owned();
                self.tell(now, node, News::Went { node, why });
                host.peer_down(now, node);
            }
        }
    }

    // Speaking, outside of the protocol.

    fn say(&mut self, token: u64, frame: &Frame<'_>) {
        let Some(link) = self.links.get_mut(&token) else {
            return;
        };
        if let Err(error) = encode(self.identity.member, frame, link.outbox.tail()) {
            // The texts of this node are too long for a frame: its own configuration.
            tracing::error!(%error, "cannot say a greeting");
            return;
        }
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(token);
        }
    }

    fn refuse(&mut self, token: u64, code: RefusalCode, reason: &str, now: Now) {
        self.farewell(token, &Frame::Refused(code, reason), now);
    }

    /// One last frame. The connection stays until the other side has read it and closed, or the
    /// deadline: closing at once could destroy the frame on its way.
    fn farewell(&mut self, token: u64, frame: &Frame<'_>, now: Now) {
        self.say(token, frame);
        let deadline = now.time.plus_ms(self.limits.farewell_ms);
        if let Some(link) = self.links.get_mut(&token) {
            link.stage = Stage::Leaving { deadline };
        }
    }

    fn tell(&mut self, now: Now, node: NodeId, news: News) {
        if let Some((news, left_out)) = self.news.offer(now.time, node, TELL_BURST, news) {
            self.write_news(&news, left_out);
        }
    }

    fn write_news(&self, news: &News, left_out: u64) {
        let node = self.identity.member.node.0;
        let left_out = (left_out > 0).then_some(left_out);
        match news {
            News::Came { member, boot } => {
                tracing::info!(node, peer = %member, boot, left_out, "a peer came");
            }
            News::Went { node: peer, why } => {
                tracing::warn!(node, peer = peer.0, left_out, "a peer went: {why}");
            }
        }
    }

    fn complain(&mut self, node: NodeId, what: &str) {
        if self.complaints.is_new(&about(node), what) {
            tracing::warn!(peer = node.0, "{what}");
        }
    }

    fn index(&self, node: NodeId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.node == node)
    }
}

impl Peer {
    /// The node with the higher id dials.
    fn wants_dial(&self, lane: Lane, me: NodeId, now: Time) -> bool {
        let state = &self.lanes[lane.index()];
        self.node < me
            && !self.resolving
            && state.open.is_none()
            && state.attempt.is_none()
            && state.retry_at <= now
    }
}

impl Plane for Peers {
    fn outgoing(&mut self, to: NodeId, lane: Lane, bytes: usize) -> Option<&mut Vec<u8>> {
        let open = self
            .index(to)
            .and_then(|index| self.peers[index].lanes[lane.index()].open);
        let Some(link) = open.and_then(|token| self.links.get_mut(&token)) else {
            self.stats.drops_unconnected += 1;
            return None;
        };
        let bound = match lane {
            Lane::Control => self.limits.peer_control_bytes_max,
            Lane::Bulk => self.limits.peer_bulk_bytes_max,
        };
        let waiting = link.outbox.len();
        if waiting > 0 && waiting.saturating_add(bytes) > bound {
            self.stats.drops_full += 1;
            return None;
        }
        self.stats.frames_out += 1;
        if !link.dirty {
            link.dirty = true;
            self.dirty.extend(open);
        }
        Some(link.outbox.tail())
    }
}

/// Why the other side, or the way to it, ended a connection.
fn lost(why: Option<rustix::io::Errno>) -> String {
    why.map_or_else(
        || "it closed the connection".to_owned(),
        |errno| errno.to_string(),
    )
}

impl Greeter {
    fn of(hello: &Hello<'_>) -> Self {
        Self {
            member: hello.from,
            boot: hello.boot,
            lane: hello.lane,
            client: hello.client.to_owned(),
            admin: hello.admin.to_owned(),
        }
    }
}

fn about(node: NodeId) -> String {
    format!("node {node}")
}

fn greeting(identity: &Identity, to: NodeId, lane: Lane) -> Hello<'_> {
    Hello {
        version: PROTOCOL_VERSION,
        cluster: identity.cluster,
        from: identity.member,
        boot: identity.boot,
        to,
        lane,
        client: &identity.addresses.client,
        admin: &identity.addresses.admin,
    }
}
