//! The packet plane: introduces and probes nodes, and converts frames to datagrams and back.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
};

use crate::{
    body::ChannelName,
    endpoint::{self, Destination, Endpoint},
    limits::OWN_CHANNELS_MAX,
    send::PushError,
    trust::{Introduction, KeyRing, Refusals, gate::IntroductionOutcome},
};
use quorate_core::{
    ballot::Ballot,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    slot::Slot,
    time::Time,
};
use quorate_wire::header::proposed_end;

use crate::plane::{
    chain::ForwardingChain,
    choosing::CarrierSelection,
    link::{PROBE_INTERVAL_US, PathState, PeerLink},
    order::{PREDECESSORS_BYTES, PrecedingMulticast, WaitingUnicast, split_predecessors},
    port::{Counters, Event, GROUP_CHANNEL, GroupPath, OutgoingRun, SendOutcome, Settings},
    predict::Carrier,
    undecided::UndecidedProposals,
};

/// Maximum number of datagrams to forward in one system call.
const FORWARDED_PER_CALL_MAX: usize = 40;
/// Maximum number of datagrams waiting to be forwarded. Beyond it, the oldest are dropped.
const TO_FORWARD_MAX: usize = 2048;

pub struct PacketEngine {
    me: Member,
    endpoint: Endpoint,
    next_nonce: Box<dyn FnMut() -> u64 + Send>,
    links: BTreeMap<NodeId, PeerLink>,
    group_path: GroupPath,
    /// State for choosing how to send frames for several nodes, or `None` if that is fixed.
    carrier_selection: Option<CarrierSelection>,
    chain: ForwardingChain,
    to_forward: VecDeque<endpoint::Outgoing>,
    /// Set if the chain may have to be set up again.
    chain_changed: bool,
    /// Undecided messages on the multicast channel and on the channels to single nodes, by channel.
    undecided_messages: BTreeMap<u8, UndecidedProposals>,
    announced_decided: (Ballot, Slot),
    /// Header of the last frame sent to the group, until datagrams are sent. A frame for more nodes
    /// than a `NodeSet` holds takes several calls, of which only the first sends it to the group.
    last_group_header: Vec<u8>,
    waiting_unicast: WaitingUnicast,
    /// Ids of the voters, once known.
    voters: Option<Vec<NodeId>>,
    probe_at: Time,
    events: VecDeque<Event>,
    counters: Counters,
}

impl PacketEngine {
    /// Creates a plane without peers.
    pub fn new(settings: Settings, now: Time) -> Self {
        let me = settings.endpoint.own_member;
        let link = (&settings.endpoint.limits, settings.initial_group_path);
        let choosing = settings.is_adaptive.then(|| CarrierSelection::new(link, now));
        let mut endpoint = Endpoint::new(settings.endpoint, now);
        let mut undecided = BTreeMap::new();
        let reach = settings.initial_group_path;
        if reach != GroupPath::Unicast {
            endpoint.open(GROUP_CHANNEL, None, now).expect("the first channel");
            undecided.insert(GROUP_CHANNEL, UndecidedProposals::default());
        }
        Self {
            me,
            endpoint,
            next_nonce: settings.next_nonce,
            links: BTreeMap::new(),
            group_path: reach,
            carrier_selection: choosing,
            chain: ForwardingChain::default(),
            to_forward: VecDeque::new(),
            chain_changed: false,
            undecided_messages: undecided,
            announced_decided: (Ballot::ZERO, Slot::FIRST),
            last_group_header: Vec::new(),
            waiting_unicast: WaitingUnicast::default(),
            voters: None,
            probe_at: now.plus_us(PROBE_INTERVAL_US),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    // Peers.

    /// Registers a peer after it connected. Returns the introduction to send over the connection
    /// ([pkt-2]), or `None` if all channel numbers are in use.
    pub fn register_peer(&mut self, peer: Member, now: Time) -> Option<Introduction> {
        if peer.node == self.me.node {
            return None;
        }
        if self.links.get(&peer.node).is_none_or(|link| link.member != peer) {
            self.remove_peer(peer.node);
            let channel = self.first_free_channel()?;
            self.endpoint.open(channel, Some(peer), now).ok()?;
            self.endpoint.set_loss_receivers(channel, &[peer.node]);
            self.undecided_messages.insert(channel, UndecidedProposals::default());
            self.links.insert(peer.node, PeerLink::new(peer, channel));
        }
        Some(self.endpoint.introduction_for(peer.node))
    }

    /// Handles a peer's introduction, received over a connection. Returns whether it was accepted.
    pub fn introduce(&mut self, introduction: &Introduction, now: Time) -> bool {
        let Some(link) = self.links.get_mut(&introduction.member.node) else {
            return false;
        };
        if link.member != introduction.member {
            return false;
        }
        let taken = matches!(
            self.endpoint.introduce(introduction),
            IntroductionOutcome::New | IntroductionOutcome::Known
        );
        link.introduction_arrived = taken;
        if taken {
            // Probe at once instead of waiting for the next round.
            self.probe_peer(introduction.member.node, now);
            if self.group_path == GroupPath::Multicast {
                let nonce = (self.next_nonce)();
                self.endpoint.send_group_probe(nonce, now);
            }
        }
        taken
    }

    /// Removes a peer whose connection has ended. No more packets are sent to it or accepted from
    /// it.
    pub fn remove_peer(&mut self, node: NodeId) {
        let Some(link) = self.links.remove(&node) else {
            return;
        };
        self.endpoint.close(link.channel);
        self.endpoint.remove_peer(node);
        self.undecided_messages.remove(&link.channel);
        self.waiting_unicast.drop_sender(node);
        self.chain.forget_node(node);
        self.to_forward.retain(|one| one.destination != Destination::Node(node));
        self.chain_changed = true;
        self.events.retain(|event| match event {
            Event::Frame { from, .. } => from.node != node,
            Event::Up { node: other, .. } | Event::Down { node: other, .. } => *other != node,
        });
        self.update_loss_receivers();
    }

    pub fn links(&self) -> impl Iterator<Item = &PeerLink> {
        self.links.values()
    }

    pub fn link(&self, node: NodeId) -> Option<&PeerLink> {
        self.links.get(&node)
    }

    // Frames.

    /// Returns whether a frame of `bytes` bytes could be sent to a peer now.
    pub fn can_send(&self, node: NodeId, bytes: usize) -> bool {
        if self.carrier() == Carrier::TcpConnections {
            return false;
        }
        let link = self.links.get(&node).filter(|link| link.unicast_path.is_up());
        link.is_some_and(|link| {
            let room = self.endpoint.window_bytes_left(link.channel);
            let group_room =
                !link.group_path.is_up() || self.endpoint.window_bytes_left(GROUP_CHANNEL) >= bytes;
            room >= bytes && group_room
        })
    }

    /// Sends a frame to those nodes in `to` that packets reach. Returns the nodes for which it was
    /// accepted; the caller must send it to the others over connections.
    ///
    /// If at least two nodes receive multicast, the frame is sent to them through the multicast
    /// group. Other listeners of the group learn nothing new, because no plane promises secrecy.
    pub fn send(&mut self, to: NodeSet, header: &[u8], body: &[u8]) -> NodeSet {
        if let Some(choosing) = &mut self.carrier_selection {
            choosing.record_frame(to.len(), header.len() + body.len());
        }
        let carrier = self.carrier();
        if carrier == Carrier::TcpConnections {
            return NodeSet::default();
        }
        let once = carrier != Carrier::UnicastDatagrams;
        let by_group = to.filtered(|node| once && self.is_reached_by_group(node));
        let proposed_to = proposed_end(header);
        let mut reached = NodeSet::default();
        // The header contains the checksum of the body, so equal headers mean equal frames.
        if !by_group.is_empty() && !header.is_empty() && self.last_group_header == header {
            reached = by_group;
        } else if by_group.len() >= 2 && self.push(GROUP_CHANNEL, &[header, body], proposed_to) {
            self.last_group_header.clear();
            self.last_group_header.extend_from_slice(header);
            reached = by_group;
        }
        let behind_group = PrecedingMulticast {
            next: self.endpoint.next_number(GROUP_CHANNEL).unwrap_or(0),
            group_sent_to: self.endpoint.sent_to(GROUP_CHANNEL).unwrap_or(0),
        };
        let alone = to.filtered(|node| !reached.contains(node));
        let alone = alone.filtered(|node| {
            let Some(link) = self.links.get(&node).filter(|link| link.unicast_path.is_up()) else {
                return false;
            };
            let behind = match link.group_path.is_up() {
                true => behind_group,
                false => PrecedingMulticast::default(),
            };
            let channel = link.channel;
            self.push(channel, &[&behind.bytes(), header, body], proposed_to)
        });
        for node in alone.iter() {
            let _ = reached.insert(node);
        }
        reached
    }

    /// Records that all slots below `decided_to` are decided and announced by the leader of this
    /// ballot, to this node's knowledge.
    pub fn record_decided(&mut self, ballot: Ballot, decided_to: Slot, now: Time) {
        if (ballot, decided_to) == self.announced_decided {
            return;
        }
        let (before, _) = std::mem::replace(&mut self.announced_decided, (ballot, decided_to));
        for (&channel, undecided) in &mut self.undecided_messages {
            if before != ballot {
                undecided.clear();
            }
            let next = self.endpoint.next_number(channel).unwrap_or(1);
            let free_to = undecided.remove_decided(decided_to, next);
            self.endpoint.release_to(channel, free_to);
        }
        if self.group_path != GroupPath::Unicast {
            self.endpoint.set_announced_decided(GROUP_CHANNEL, ballot, decided_to, now);
        }
    }

    /// Sets the voters. They retain datagrams for other nodes, and requests go to them first
    /// ([pkt-7]). Learners need not retain any ([learn-1]).
    pub fn set_voters(&mut self, voters: Vec<NodeId>) {
        self.endpoint.set_retains_datagrams(voters.contains(&self.me.node));
        self.voters = Some(voters);
        self.chain_changed = true;
        self.update_loss_receivers();
    }

    // Datagrams.

    /// Handles an incoming datagram.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Time) {
        // The endpoint counts refusals by reason.
        let _ = self.endpoint.handle(datagram, now);
        self.handle_events(now);
        self.update_chain(now);
    }

    /// Does the work that is due.
    pub fn poll(&mut self, now: Time) {
        self.endpoint.poll(now);
        if self.probe_at <= now {
            self.probe_at = now.plus_us(PROBE_INTERVAL_US);
            self.probe_all(now);
            // A node that did not forward may have served its penalty.
            self.chain_changed = true;
            self.choose_carrier(now);
        }
        self.handle_events(now);
        self.update_chain(now);
    }

    /// Returns when [`Self::poll`] or [`Self::send_due`] is due next.
    pub fn next_due(&self) -> Option<Time> {
        let data = self.undecided_messages.keys();
        let data = data.filter_map(|channel| self.endpoint.next_data_at(*channel));
        let probe = (!self.links.is_empty()).then_some(self.probe_at);
        data.chain(self.endpoint.next_poll_at()).chain(probe).min()
    }

    /// Passes the datagrams that may be sent now to `give`.
    pub fn send_due(&mut self, now: Time, mut give: impl FnMut(OutgoingRun<'_>) -> SendOutcome) {
        self.last_group_header.clear();
        // [chain-1] Forward before sending own datagrams, because the successors wait.
        if self.forward_datagrams(&mut give).is_break() {
            return;
        }
        let to_all = self.group_destination();
        for outgoing in self.endpoint.take_control() {
            let Some(to) = resolve_destination(outgoing.destination, to_all) else {
                continue;
            };
            let left = give(OutgoingRun {
                destination: to,
                bytes: &outgoing.bytes,
                segment_bytes: outgoing.bytes.len(),
            });
            if let SendOutcome::Blocked(_) = left {
                return;
            }
        }
        // The group's channel comes last. It may fill the socket, and heartbeats would have to
        // wait.
        for &channel in self.undecided_messages.keys().rev() {
            while let Some((to, run)) = self.endpoint.next_data_run(channel, now) {
                let (first, all) = (run.numbers.start, run.bytes.len());
                let Some(to) = resolve_destination(to, to_all) else {
                    continue;
                };
                let left = give(OutgoingRun {
                    destination: to,
                    bytes: run.bytes,
                    segment_bytes: run.segment_bytes,
                });
                match left {
                    SendOutcome::All => {}
                    SendOutcome::Dropped => self.endpoint.record_local_drop(channel),
                    SendOutcome::Blocked(count) => {
                        let bytes = all.saturating_sub(count * run.segment_bytes);
                        let count = u64::try_from(count).unwrap_or(u64::MAX);
                        self.endpoint.requeue_unsent(channel, first + count, bytes);
                        return;
                    }
                }
            }
        }
    }

    /// Returns the path of frames for all nodes.
    pub const fn group_path(&self) -> GroupPath {
        self.group_path
    }

    /// Returns how frames for several nodes are currently carried.
    pub fn carrier(&self) -> Carrier {
        match (&self.carrier_selection, self.group_path) {
            (Some(choosing), _) => choosing.carrier(),
            (None, GroupPath::Unicast) => Carrier::UnicastDatagrams,
            (None, GroupPath::Multicast) => Carrier::MulticastDatagrams,
            (None, GroupPath::Chain) => Carrier::Chain,
        }
    }

    /// Changes the path of frames for all nodes, and probes which nodes the new path reaches.
    fn switch_group_path(&mut self, reach: GroupPath, now: Time) {
        self.group_path = reach;
        for link in self.links.values_mut() {
            link.group_path = PathState::default();
        }
        self.chain = ForwardingChain::default();
        if reach == GroupPath::Chain {
            self.chain_changed = true;
            self.update_chain(now);
        } else {
            self.endpoint.set_chain(&[]);
            let nonce = (self.next_nonce)();
            self.endpoint.send_group_probe(nonce, now);
        }
        self.update_loss_receivers();
    }

    /// Explains, for operators, why frames for several nodes currently use this path, or returns
    /// `None` if the path is fixed ([plane-3]).
    pub fn explain_carrier(&self) -> Option<String> {
        self.carrier_selection.as_ref().map(CarrierSelection::explain_choice)
    }

    fn choose_carrier(&mut self, now: Time) {
        let up = self.links.values().filter(|link| link.unicast_path.is_up());
        let hearing = up.clone().filter(|link| link.group_path.is_up()).count();
        let reached = (up.clone().count(), hearing);
        let rtt_us = up.filter_map(|link| link.unicast_path.rtt_us()).max();
        let channels = self.links.values().map(|link| link.channel);
        let losses = channels.chain([GROUP_CHANNEL]);
        let losses = losses.filter_map(|channel| self.endpoint.loss_ppm(channel));
        let loss = losses.max().unwrap_or(0) as f64 / 1e6;
        let Some(choosing) = &mut self.carrier_selection else {
            return;
        };
        let (changed, reach) = choosing.evaluate(self.group_path, reached, rtt_us, loss, now);
        self.counters.path_changes += u64::from(changed);
        if let Some(reach) = reach {
            self.switch_group_path(reach, now);
        }
    }

    /// Switches to this path at once, regardless of the prediction. For tests that cover all paths.
    pub fn set_carrier(&mut self, carrier: Carrier, now: Time) {
        let reach = match carrier {
            Carrier::MulticastDatagrams => GroupPath::Multicast,
            Carrier::Chain => GroupPath::Chain,
            Carrier::TcpConnections | Carrier::UnicastDatagrams => self.group_path,
        };
        if let Some(choosing) = &mut self.carrier_selection {
            choosing.set_carrier(carrier, now);
            self.counters.path_changes += 1;
        }
        if reach != self.group_path {
            self.switch_group_path(reach, now);
        }
    }

    /// Returns the nodes that the group reaches. For tests and diagnostics.
    pub fn reached_nodes(&self) -> impl Iterator<Item = NodeId> {
        let hearing = self.links.values().filter(|link| link.group_path.is_up());
        hearing.map(|link| link.member.node)
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub const fn repairs(&self) -> &endpoint::Counters {
        self.endpoint.counters()
    }

    /// Returns the rate of the multicast channel in bytes per second, or `None` if there is no such
    /// channel ([rate-2]).
    pub fn group_rate_bytes_s(&self) -> Option<u64> {
        self.endpoint.rate_bytes_s(GROUP_CHANNEL)
    }

    pub const fn refusals(&self) -> &Refusals {
        self.endpoint.refusals()
    }

    pub const fn keys(&self) -> &KeyRing {
        self.endpoint.keys()
    }

    /// Changes the keys ([pkt-3]).
    pub fn rekey<T>(&mut self, change: impl FnOnce(&mut KeyRing) -> T) -> T {
        self.endpoint.rekey(change)
    }

    // Internals.

    /// [chain-1] Forwards other nodes' datagrams, grouped by length. Those for which there is no
    /// space wait.
    fn forward_datagrams(
        &mut self,
        give: &mut impl FnMut(OutgoingRun<'_>) -> SendOutcome,
    ) -> ControlFlow<()> {
        self.to_forward.extend(self.endpoint.take_to_forward());
        // Datagrams that have waited longer would arrive too late to be of use.
        let late = self.to_forward.len().saturating_sub(TO_FORWARD_MAX);
        self.to_forward.drain(..late);
        while let Some(first) = self.to_forward.front() {
            let (to, segment_bytes) = (first.destination, first.bytes.len());
            let alike = |one: &&endpoint::Outgoing| {
                one.destination == to && one.bytes.len() == segment_bytes
            };
            let run = self.to_forward.iter().take(FORWARDED_PER_CALL_MAX).take_while(alike);
            let count = run.clone().count();
            let bytes: Vec<u8> = run.flat_map(|one| &one.bytes).copied().collect();
            let left = give(OutgoingRun { destination: to, bytes: &bytes, segment_bytes });
            let gone = match left {
                SendOutcome::Blocked(gone) => gone.min(count),
                SendOutcome::All | SendOutcome::Dropped => count,
            };
            self.counters.datagrams_forwarded += gone as u64;
            self.to_forward.drain(..gone);
            if let SendOutcome::Blocked(_) = left {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the destination of frames for all nodes, if there is one.
    fn group_destination(&self) -> Option<Destination> {
        match self.group_path {
            GroupPath::Unicast => None,
            GroupPath::Multicast => Some(Destination::Group),
            GroupPath::Chain => self.endpoint.first_chain_node().map(Destination::Node),
        }
    }

    fn first_free_channel(&self) -> Option<u8> {
        let last = u8::try_from(OWN_CHANNELS_MAX).expect("fits a header");
        (GROUP_CHANNEL + 1..=last).find(|channel| !self.undecided_messages.contains_key(channel))
    }

    fn is_reached_by_group(&self, node: NodeId) -> bool {
        let link = self.links.get(&node);
        link.is_some_and(|link| link.unicast_path.is_up() && link.group_path.is_up())
    }

    fn push(&mut self, channel: u8, message: &[&[u8]], proposed_to: Option<Slot>) -> bool {
        match self.endpoint.send_pieces(channel, message) {
            Ok(sent) => {
                let undecided = self.undecided_messages.entry(channel).or_default();
                if let Some(to) = proposed_to {
                    undecided.record_sent(sent.first, to);
                }
                let free_to = undecided.remove_decided(self.announced_decided.1, sent.end);
                self.endpoint.release_to(channel, free_to);
                if channel == GROUP_CHANNEL {
                    self.counters.frames_to_group += 1;
                } else {
                    self.counters.frames_to_one += 1;
                }
                true
            }
            Err(PushError::Full | PushError::TooLong | PushError::Stopped) => {
                self.counters.frames_without_space += 1;
                false
            }
        }
    }

    fn probe_peer(&mut self, node: NodeId, now: Time) {
        let nonce = (self.next_nonce)();
        self.endpoint.send_probe(node, nonce, now);
    }

    fn probe_all(&mut self, now: Time) {
        let introduced = self.links.values().filter(|link| link.introduction_arrived);
        let nodes: Vec<NodeId> = introduced.map(|link| link.member.node).collect();
        for node in &nodes {
            self.probe_peer(*node, now);
        }
        if self.group_path != GroupPath::Unicast && !nodes.is_empty() {
            let nonce = (self.next_nonce)();
            self.endpoint.send_group_probe(nonce, now);
        }
        self.endpoint.announce_chain();
        if self.group_path == GroupPath::Chain {
            let links = &self.links;
            let hears = |node| links.get(&node).is_some_and(|link| link.group_path.is_up());
            self.chain_changed |= self.chain.penalize_break(hears, now);
        }
        let mut lost = false;
        for link in self.links.values_mut() {
            let node = link.member.node;
            for (way, by_group) in [(&mut link.unicast_path, false), (&mut link.group_path, true)] {
                if way.check_lost(now) {
                    lost = true;
                    self.events.push_back(Event::Down { node, is_by_group: by_group });
                }
            }
        }
        if lost {
            self.update_loss_receivers();
            self.chain_changed = true;
        }
    }

    /// [chain-1] Sets up the chain from the currently reachable nodes, if it may have changed.
    fn update_chain(&mut self, now: Time) {
        if !std::mem::take(&mut self.chain_changed) || self.group_path != GroupPath::Chain {
            return;
        }
        let reached = self.links.values().filter(|link| link.unicast_path.is_up());
        let reached = reached.map(|link| link.member.node);
        let voters = self.voters.as_ref();
        let votes = |node| voters.is_none_or(|voters| voters.contains(&node));
        if let Some(nodes) = self.chain.set_order(self.me.node, reached, votes, now) {
            self.endpoint.set_chain(nodes);
            let nonce = (self.next_nonce)();
            self.endpoint.send_group_probe(nonce, now);
        }
    }

    /// Handles the endpoint's events until there are no more.
    fn handle_events(&mut self, now: Time) {
        // A message may name a number that produces further events.
        let mut spoke = BTreeSet::new();
        loop {
            let events = self.endpoint.take_events();
            if events.is_empty() {
                break;
            }
            for event in events {
                self.on_event(event, &mut spoke, now);
            }
        }
        // Waiting messages are released only now that everything that precedes them has been
        // delivered.
        for group in spoke {
            // If this node does not listen to the group, messages need not wait.
            let done_to = self.endpoint.finished_to(group).unwrap_or(u64::MAX);
            for frame in self.waiting_unicast.release_due(group.owner, done_to) {
                self.deliver_frame(group.owner, frame);
            }
        }
    }

    /// Handles an event. `spoke` collects the multicast channels of nodes whose waiting messages
    /// may have become due.
    fn on_event(&mut self, event: endpoint::Event, spoke: &mut BTreeSet<ChannelName>, now: Time) {
        match event {
            endpoint::Event::Message { channel: of, bytes, .. } => {
                let group = ChannelName { channel: GROUP_CHANNEL, ..of };
                spoke.insert(group);
                if of == group {
                    self.deliver_frame(of.owner, bytes);
                } else {
                    self.on_message(group, &bytes, now);
                }
            }
            endpoint::Event::GivenUp { channel: of, numbers } => {
                self.counters.datagrams_given_up += numbers.end - numbers.start;
                spoke.insert(ChannelName { channel: GROUP_CHANNEL, ..of });
            }
            endpoint::Event::Answered { node, rtt_us, is_group_probe: by_group } => {
                self.on_answer(node, rtt_us, by_group, now);
            }
            // [rate-3] Unsent datagrams are dropped. The replica receives the ballot over another
            // path, and the endpoint has already handled tails and reports.
            endpoint::Event::MulticastStopped(_)
            | endpoint::Event::TailReceived { .. }
            | endpoint::Event::Introduced(_)
            | endpoint::Event::Reported { .. } => {}
        }
    }

    /// Handles a message to this node alone. `group` is the sender's multicast channel.
    fn on_message(&mut self, group: ChannelName, message: &[u8], now: Time) {
        let Some((behind, frame)) = split_predecessors(message) else {
            return;
        };
        if behind.next > 0 {
            self.endpoint.on_next_number(group, behind.group_sent_to, now);
        }
        self.waiting_unicast.add(group.owner, behind.next, frame.to_vec());
    }

    fn deliver_frame(&mut self, from: NodeId, bytes: Vec<u8>) {
        if let Some(link) = self.links.get(&from) {
            let from = link.member;
            self.counters.frames_received += 1;
            self.events.push_back(Event::Frame { from, bytes });
        }
    }

    fn on_answer(&mut self, node: NodeId, rtt_us: u64, by_group: bool, now: Time) {
        let Some(link) = self.links.get_mut(&node) else {
            return;
        };
        let way: &mut PathState =
            if by_group { &mut link.group_path } else { &mut link.unicast_path };
        if way.record_answer(now, rtt_us) {
            self.events.push_back(Event::Up { node, is_by_group: by_group, rtt_us });
            if by_group {
                self.update_loss_receivers();
            } else {
                self.chain_changed = true;
            }
        }
        let rtts = self.links.values().filter_map(|link| link.unicast_path.rtt_us());
        if let Some(longest) = rtts.max() {
            self.endpoint.set_rtt(longest);
        }
    }

    /// [rate-2] Sets the receivers whose losses count for the multicast rate, and the acceptors
    /// that retain datagrams ([pkt-7]).
    fn update_loss_receivers(&mut self) {
        let receivers = self.links.values().filter(|link| link.group_path.is_up());
        let receivers: Vec<NodeId> = receivers.map(|link| link.member.node).collect();
        if self.group_path != GroupPath::Unicast {
            self.endpoint.set_loss_receivers(GROUP_CHANNEL, &receivers);
        }
        let votes = |node: &NodeId| {
            let voters = self.voters.as_ref();
            voters.is_none_or(|voters| voters.contains(node))
        };
        let acceptors: Vec<NodeId> = receivers.into_iter().filter(votes).collect();
        self.endpoint.set_acceptors(&acceptors);
    }
}

/// Replaces the group with the destination of frames for all nodes.
fn resolve_destination(to: Destination, all: Option<Destination>) -> Option<Destination> {
    match to {
        Destination::Group => all,
        Destination::Node(_) => Some(to),
    }
}

/// Maximum size of a frame sent by packets, in bytes. Less than that of a message, because the
/// plane adds a prefix.
pub const FRAME_BYTES_MAX: usize = crate::limits::MESSAGE_BYTES_MAX - PREDECESSORS_BYTES;
