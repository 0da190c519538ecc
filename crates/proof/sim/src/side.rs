//! Packet plane and socket of a process: the layer that production has between a replica and the
//! network.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    node_id::{Member, NodeId},
    node_set::NodeSet,
    time::Time,
};
use quorate_packets::plane::{Event, GroupPath, Packets, introduction, port::SendOutcome};
use quorate_packets::{
    endpoint::{self, Destination},
    limits::Limits,
    receive::Delivery,
    trust::{Group, Key, Keys},
};
use quorate_wire::{BODY_BYTES_MAX, Datagrams, Decoded, Frame, decode, encode};

use crate::{
    air::{Counts, DatagramFaults},
    dice::Dice,
};

/// Number of the shared key, in runs that use keys.
const KEY: u8 = 1;
/// MTU of the paths between nodes, in bytes.
const MTU: usize = 1500;
/// Capacity of the retransmission buffer of a channel, in bytes.
const BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of missing ranges per channel. It is so small that it is sometimes exceeded.
const GAPS_MAX: usize = 16;
/// Configured link capacity in bytes per second. It is so low that datagrams queue.
const LINK_BYTES_S: u64 = 25_000_000;

/// Packet plane of a process, with its socket and its connected peers.
pub(crate) struct PacketEndpoint {
    plane: Packets,
    /// Datagrams that the process has not read from the socket yet.
    socket: VecDeque<Vec<u8>>,
    socket_bytes: usize,
    socket_bytes_max: usize,
    /// Member and start number from each connected peer's handshake, by node.
    boots: BTreeMap<NodeId, (Member, u32)>,
    /// Frames sent in this turn with their receivers, not checked yet.
    fresh: Vec<(NodeSet, Vec<u8>)>,
    /// Counters of the plane when they were last added to the run's counts.
    counted: Counts,
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
            true => Keys::one(KEY, Key::new([0x51; 32])).expect("a number that is not zero"),
            false => Keys::none(),
        };
        let limits = Limits {
            buffer_bytes: BUFFER_BYTES,
            one_buffer_bytes: BUFFER_BYTES,
            window_bytes: air.window_bytes,
            gaps_max: GAPS_MAX,
            link_bytes_s: LINK_BYTES_S,
            ..Limits::for_mtu(MTU)
        };
        let endpoint = endpoint::Settings {
            me,
            boot,
            group: Group { cluster, group: 1, generation: 0 },
            keys,
            limits,
            delivery: Delivery::InOrder,
            keeps: true,
            seed,
        };
        let settings = quorate_packets::plane::Settings {
            endpoint,
            reach,
            chooses: air.changes_us.is_some(),
            nonces: Box::new(move || nonces.word()),
        };
        Self {
            plane: Packets::new(settings, now),
            socket: VecDeque::new(),
            socket_bytes: 0,
            socket_bytes_max: air.socket_bytes,
            boots: BTreeMap::new(),
            fresh: Vec::new(),
            counted: Counts::default(),
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
        self.part(peer.node);
        let introduction = self.plane.register_peer(peer, now)?;
        self.boots.insert(peer.node, (peer, boot));
        let key = self.plane.rekey(|keys| keys.newest());
        let said = introduction::encode(&introduction, "", key);
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
        counts: &mut Counts,
    ) {
        let known = self.boots.get(&from.node).filter(|(member, _)| *member == from);
        let introduction = known.and_then(|(_, boot)| introduction::decode(from, *boot, said));
        let taken = introduction.is_some_and(|introduction| {
            self.plane.rekey(|keys| keys.record_announced(from.node, said.key));
            self.plane.introduce(&introduction, now)
        });
        counts.introduced += u64::from(taken);
        counts.not_introduced += u64::from(!taken);
    }

    /// Handles the end of the connection to a peer.
    pub(crate) fn part(&mut self, node: NodeId) {
        self.boots.remove(&node);
        self.plane.part(node);
    }

    // Frames of the replica.

    /// Returns whether the plane accepts a frame of `bytes` bytes for a node.
    pub(crate) fn has_room(&self, node: NodeId, bytes: usize) -> bool {
        self.plane.has_room(node, bytes)
    }

    /// Sends a frame to the nodes in `to` that packets reach, and returns these nodes.
    pub(crate) fn send(&mut self, to: NodeSet, header: &[u8], body: &[u8]) -> NodeSet {
        let sent = self.plane.send(to, header, body);
        if !sent.is_empty() {
            self.fresh.push((sent, [header, body].concat()));
        }
        sent
    }

    /// Takes the frames sent since the last call, each of them once.
    pub(crate) fn take_fresh(&mut self) -> Vec<(NodeSet, Vec<u8>)> {
        std::mem::take(&mut self.fresh)
    }

    pub(crate) fn plane(&mut self) -> &mut Packets {
        &mut self.plane
    }

    // Datagrams.

    /// Puts a datagram into the socket. Returns false if the socket is full.
    pub(crate) fn arrive(&mut self, datagram: Vec<u8>) -> bool {
        let room = self.socket_bytes + datagram.len() <= self.socket_bytes_max;
        if room {
            self.socket_bytes += datagram.len();
            self.socket.push_back(datagram);
        }
        room
    }

    /// Processes timers and all datagrams in the socket. Returns the complete frames, each with the
    /// sender proven by its tag.
    pub(crate) fn read(&mut self, now: Time, counts: &mut Counts) -> Vec<(Member, Vec<u8>)> {
        for datagram in self.socket.drain(..) {
            self.plane.on_datagram(&datagram, now);
        }
        self.socket_bytes = 0;
        self.plane.poll(now);
        let mut frames = Vec::new();
        while let Some(event) = self.plane.next_event() {
            match event {
                Event::Frame { from, bytes } if is_frame_from(&bytes, from) => {
                    frames.push((from, bytes))
                }
                Event::Frame { .. } => counts.frames_wrong += 1,
                Event::Up { by_group, .. } if by_group => counts.group_up += 1,
                Event::Up { .. } => counts.up += 1,
                Event::Down { by_group, .. } if by_group => counts.group_down += 1,
                Event::Down { .. } => counts.down += 1,
            }
        }
        frames
    }

    /// Returns the datagrams to send now, except those that the full socket refuses.
    pub(crate) fn take_datagrams(
        &mut self,
        now: Time,
        mut left: impl FnMut() -> SendOutcome,
        counts: &mut Counts,
    ) -> Vec<(Destination, Vec<u8>)> {
        let mut datagrams = Vec::new();
        self.plane.take(now, |run| {
            let left = left();
            let chunks = run.bytes.chunks(run.segment_bytes);
            if left == SendOutcome::All {
                datagrams.extend(chunks.map(|datagram| (run.to, datagram.to_vec())));
            } else {
                counts.own_drops += chunks.count() as u64;
            }
            left
        });
        self.add_counts(counts);
        datagrams
    }

    /// Returns the time at which the plane must be polled next; `None` if no timer is set.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.plane.next_due()
    }

    /// Adds the increase of the plane's counters since the previous call to the run's counts.
    fn add_counts(&mut self, counts: &mut Counts) {
        let before = self.counted;
        for (reason, count) in self.plane.refusals().iter() {
            self.counted.refused[reason as usize] = count;
            counts.refused[reason as usize] += count - before.refused[reason as usize];
        }
        let (now, then, sum) = (*self.plane.counters(), before.planes, &mut counts.planes);
        sum.frames_to_group += now.frames_to_group - then.frames_to_group;
        sum.frames_to_one += now.frames_to_one - then.frames_to_one;
        sum.frames_refused += now.frames_refused - then.frames_refused;
        sum.frames_received += now.frames_received - then.frames_received;
        sum.given_up += now.given_up - then.given_up;
        sum.relayed += now.relayed - then.relayed;
        sum.changes += now.changes - then.changes;
        self.counted.planes = now;
    }
}

/// Returns whether the bytes are exactly one frame from this member.
fn is_frame_from(bytes: &[u8], by: Member) -> bool {
    let decoded = decode(bytes, BODY_BYTES_MAX);
    matches!(decoded, Ok(Decoded::Frame { from, used, .. }) if from == by && used == bytes.len())
}
