//! Packet plane and socket of a process: the layer that production has between a replica and the
//! network.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    node_id::{Member, NodeId},
    node_set::NodeSet,
    time::Time,
};
use quorate_packets::plane::{Event, GroupPath, PacketEngine, introduction, port::SendOutcome};
use quorate_packets::{
    endpoint::{self, Destination},
    limits::Limits,
    receive::Delivery,
    trust::{GroupIdentity, Key, KeyRing},
};
use quorate_wire::{BODY_BYTES_MAX, Datagrams, Decoded, Frame, decode, encode};

use crate::{
    air::{DatagramCounts, DatagramFaults},
    dice::Dice,
};

/// Number of the shared key, in runs that use keys.
const SHARED_KEY: u8 = 1;
/// MTU of the paths between nodes, in bytes.
const PATH_MTU: usize = 1500;
/// Capacity of the retransmission buffer of a channel, in bytes.
const RETRANSMIT_BYTES: usize = 1 << 20;
/// Maximum number of missing ranges per channel. It is so small that it is sometimes exceeded.
const GAPS_MAX: usize = 16;
/// Configured link capacity in bytes per second. It is so low that datagrams queue.
const LINK_BYTES_PER_S: u64 = 25_000_000;

/// Packet plane of a process, with its socket and its connected peers.
pub(crate) struct PacketEndpoint {
    plane: PacketEngine,
    /// Datagrams that the process has not read from the socket yet.
    socket_queue: VecDeque<Vec<u8>>,
    socket_queue_bytes: usize,
    socket_queue_bytes_max: usize,
    /// Member and start number from each connected peer's handshake, by node.
    peer_boots: BTreeMap<NodeId, (Member, u32)>,
    /// Frames sent in this turn with their receivers, not checked yet.
    unchecked_frames: Vec<(NodeSet, Vec<u8>)>,
    /// Counters of the plane when they were last added to the run's counts.
    last_counts: DatagramCounts,
}

impl PacketEndpoint {
    pub(crate) fn new(
        me: Member,
        boot: u32,
        cluster: u128,
        reach: GroupPath,
        air: &DatagramFaults,
        now: Time,
    ) -> Self {
        let seed = u64::from(me.node.0) << 32 | u64::from(boot);
        let mut nonces = Dice::new(seed ^ 0x4e6f_6e63_6573);
        let keys = match air.keyed {
            true => {
                KeyRing::one(SHARED_KEY, Key::new([0x51; 32])).expect("a number that is not zero")
            }
            false => KeyRing::none(),
        };
        let limits = Limits {
            buffer_bytes: RETRANSMIT_BYTES,
            unicast_buffer_bytes: RETRANSMIT_BYTES,
            window_bytes: air.window_bytes,
            gaps_max: GAPS_MAX,
            link_bytes_s: LINK_BYTES_PER_S,
            ..Limits::for_mtu(PATH_MTU)
        };
        let endpoint = endpoint::Settings {
            own_member: me,
            boot,
            group: GroupIdentity { cluster, group: 1, generation: 0 },
            keys,
            limits,
            delivery: Delivery::InOrder,
            retains_datagrams: true,
            seed,
        };
        let settings = quorate_packets::plane::Settings {
            endpoint,
            initial_group_path: reach,
            is_adaptive: air.transport_change_interval_us.is_some(),
            next_nonce: Box::new(move || nonces.word()),
        };
        Self {
            plane: PacketEngine::new(settings, now),
            socket_queue: VecDeque::new(),
            socket_queue_bytes: 0,
            socket_queue_bytes_max: air.socket_bytes,
            peer_boots: BTreeMap::new(),
            unchecked_frames: Vec::new(),
            last_counts: DatagramCounts::default(),
        }
    }

    // Connections.

    /// Returns the frame that introduces this process to a newly connected peer.
    pub(crate) fn introduce_to(
        &mut self,
        me: Member,
        peer: Member,
        boot: u32,
        now: Time,
    ) -> Option<Vec<u8>> {
        // An earlier connection to this peer has ended.
        self.remove_peer(peer.node);
        let introduction = self.plane.register_peer(peer, now)?;
        self.peer_boots.insert(peer.node, (peer, boot));
        let key = self.plane.rekey(|keys| keys.newest_id());
        let said = introduction::encode_introduction(&introduction, "", key);
        let mut bytes = Vec::new();
        encode(me, &Frame::Datagrams(said), &mut bytes).expect("a handful of channels");
        Some(bytes)
    }

    /// Handles an introduction that a peer sent over its connection.
    pub(crate) fn receive_introduction(
        &mut self,
        from: Member,
        said: &Datagrams<'_>,
        now: Time,
        counts: &mut DatagramCounts,
    ) {
        let known = self.peer_boots.get(&from.node).filter(|(member, _)| *member == from);
        let introduction =
            known.and_then(|(_, boot)| introduction::decode_introduction(from, *boot, said));
        let taken = introduction.is_some_and(|introduction| {
            self.plane.rekey(|keys| keys.record_announced(from.node, said.key));
            self.plane.introduce(&introduction, now)
        });
        counts.introduced += u64::from(taken);
        counts.stale_introductions += u64::from(!taken);
    }

    /// Handles the end of the connection to a peer.
    pub(crate) fn remove_peer(&mut self, node: NodeId) {
        self.peer_boots.remove(&node);
        self.plane.remove_peer(node);
    }

    // Frames of the replica.

    /// Returns whether the plane accepts a frame of `bytes` bytes for a node.
    pub(crate) fn has_frame_space(&self, node: NodeId, bytes: usize) -> bool {
        self.plane.can_send(node, bytes)
    }

    /// Sends a frame to the nodes in `to` that packets reach, and returns these nodes.
    pub(crate) fn send_frame(&mut self, to: NodeSet, header: &[u8], body: &[u8]) -> NodeSet {
        let sent = self.plane.send(to, header, body);
        if !sent.is_empty() {
            self.unchecked_frames.push((sent, [header, body].concat()));
        }
        sent
    }

    /// Takes the frames sent since the last call, each of them once.
    pub(crate) fn take_unchecked(&mut self) -> Vec<(NodeSet, Vec<u8>)> {
        std::mem::take(&mut self.unchecked_frames)
    }

    pub(crate) fn plane(&mut self) -> &mut PacketEngine {
        &mut self.plane
    }

    // Datagrams.

    /// Puts a datagram into the socket. Returns false if the socket is full.
    pub(crate) fn receive_datagram(&mut self, datagram: Vec<u8>) -> bool {
        let room = self.socket_queue_bytes + datagram.len() <= self.socket_queue_bytes_max;
        if room {
            self.socket_queue_bytes += datagram.len();
            self.socket_queue.push_back(datagram);
        }
        room
    }

    /// Processes timers and all datagrams in the socket. Returns the complete frames, each with the
    /// sender proven by its tag.
    pub(crate) fn read_frames(
        &mut self,
        now: Time,
        counts: &mut DatagramCounts,
    ) -> Vec<(Member, Vec<u8>)> {
        for datagram in self.socket_queue.drain(..) {
            self.plane.on_datagram(&datagram, now);
        }
        self.socket_queue_bytes = 0;
        self.plane.poll(now);
        let mut frames = Vec::new();
        while let Some(event) = self.plane.next_event() {
            match event {
                Event::Frame { from, bytes } if is_one_frame_from(&bytes, from) => {
                    frames.push((from, bytes))
                }
                Event::Frame { .. } => counts.invalid_frames += 1,
                Event::Up { is_by_group: by_group, .. } if by_group => counts.multicast_up += 1,
                Event::Up { .. } => counts.peer_up += 1,
                Event::Down { is_by_group: by_group, .. } if by_group => counts.multicast_down += 1,
                Event::Down { .. } => counts.peer_down += 1,
            }
        }
        frames
    }

    /// Returns the datagrams to send now, except those that the full socket refuses.
    pub(crate) fn take_datagrams(
        &mut self,
        now: Time,
        mut left: impl FnMut() -> SendOutcome,
        counts: &mut DatagramCounts,
    ) -> Vec<(Destination, Vec<u8>)> {
        let mut datagrams = Vec::new();
        self.plane.send_due(now, |run| {
            let left = left();
            let chunks = run.bytes.chunks(run.segment_bytes);
            if left == SendOutcome::All {
                datagrams.extend(chunks.map(|datagram| (run.destination, datagram.to_vec())));
            } else {
                counts.send_refused += chunks.count() as u64;
            }
            left
        });
        self.add_counts(counts);
        datagrams
    }

    /// Returns the time at which the plane must be polled next; `None` if no timer is set.
    pub(crate) fn next_poll_at(&self) -> Option<Time> {
        self.plane.next_due()
    }

    /// Adds the increase of the plane's counters since the previous call to the run's counts.
    fn add_counts(&mut self, counts: &mut DatagramCounts) {
        let before = self.last_counts;
        for (reason, count) in self.plane.refusals().iter() {
            self.last_counts.refused_by_planes[reason as usize] = count;
            counts.refused_by_planes[reason as usize] +=
                count - before.refused_by_planes[reason as usize];
        }
        let (now, then, sum) =
            (*self.plane.counters(), before.plane_counters, &mut counts.plane_counters);
        sum.frames_to_group += now.frames_to_group - then.frames_to_group;
        sum.frames_to_one += now.frames_to_one - then.frames_to_one;
        sum.frames_without_space += now.frames_without_space - then.frames_without_space;
        sum.frames_received += now.frames_received - then.frames_received;
        sum.datagrams_given_up += now.datagrams_given_up - then.datagrams_given_up;
        sum.datagrams_forwarded += now.datagrams_forwarded - then.datagrams_forwarded;
        sum.path_changes += now.path_changes - then.path_changes;
        self.last_counts.plane_counters = now;
    }
}

/// Returns whether the bytes are exactly one frame from this member.
fn is_one_frame_from(bytes: &[u8], by: Member) -> bool {
    let decoded = decode(bytes, BODY_BYTES_MAX);
    matches!(decoded, Ok(Decoded::Frame { from, used_bytes, .. }) if from == by && used_bytes == bytes.len())
}
