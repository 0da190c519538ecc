//! The packet plane at run time: its sockets, and the address of each peer.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    io,
    net::IpAddr,
};

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    slot::Slot,
    time::Time,
};
use quorate_packets::ethernet::ReceiveMode;
use quorate_packets::plane::{
    Carrier, Event, GroupPath, PacketEngine, Settings, introduction, link::PeerLink,
    packets::FRAME_BYTES_MAX, port::SendOutcome,
};
use quorate_packets::{
    counted::{Reason, ReasonCounts},
    endpoint::{self, Destination},
    receive::Delivery,
    socket::SendResult,
    trust::{GroupIdentity, Introduction, KeyRing, keys::KeyId},
};
use quorate_replica::status::{PeerPlane, PlaneKind};
use quorate_wire::Datagrams;

use super::{
    keys::KeyFile,
    sockets::Sockets,
    wire::{ReceiverAddress, Wire},
};
use crate::{
    identity::Identity,
    sources::{DatagramSocket, Sources, Token},
    stats::Stats,
};

/// Datagram endpoint of this node, and the peers that it reaches.
pub(crate) struct PacketPlane {
    plane: PacketEngine,
    sockets: Sockets,
    token: Token,
    /// The kernel's send buffer is full, and the plane waits until the socket is writable.
    blocked: bool,
    /// Datagram address of each reachable peer.
    peer_addresses: BTreeMap<NodeId, ReceiverAddress>,
    sent_bytes: u64,
    now: Time,
}

impl fmt::Debug for PacketPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSide")
            .field("sockets", &self.sockets)
            .field("places", &self.peer_addresses)
            .finish_non_exhaustive()
    }
}

impl PacketPlane {
    pub(crate) fn new(
        sockets: Sockets,
        identity: &Identity,
        seed: u64,
        sources: &mut Sources,
    ) -> io::Result<Self> {
        let token = sockets.wire.register_sockets(sources)?;
        let settings = Settings {
            endpoint: endpoint::Settings {
                own_member: identity.member,
                boot: identity.boot,
                group: GroupIdentity { cluster: identity.cluster, group: 1, generation: 0 },
                keys: sockets.keys.as_ref().map_or_else(KeyRing::none, KeyFile::keys),
                limits: sockets.limits.clone(),
                delivery: Delivery::InOrder,
                retains_datagrams: true,
                seed,
            },
            initial_group_path: match (sockets.uses_chain, sockets.wire.has_group()) {
                (true, _) => GroupPath::Chain,
                (false, true) => GroupPath::Multicast,
                (false, false) => GroupPath::Unicast,
            },
            is_adaptive: sockets.chooses_plane,
            next_nonce: Box::new(nonce),
        };
        Ok(Self {
            plane: PacketEngine::new(settings, Time(0)),
            sockets,
            token,
            blocked: false,
            peer_addresses: BTreeMap::new(),
            sent_bytes: 0,
            now: Time(0),
        })
    }

    /// Registers a connected peer. Returns the introduction of this node's datagrams for the peer.
    pub(crate) fn register_peer(&mut self, peer: Member, now: Time) -> Option<OwnedIntroduction> {
        let introduction = self.plane.register_peer(peer, now)?;
        Some(OwnedIntroduction {
            introduction,
            address: self.sockets.wire.address(),
            key: self.plane.keys().newest_id(),
        })
    }

    /// Handles a peer's introduction of its datagrams, received over a connection from `from`.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the peer's datagrams cannot be used.
    pub(crate) fn introduce(
        &mut self,
        (peer, boot): (Member, u32),
        said: &Datagrams<'_>,
        from: Option<IpAddr>,
        now: Time,
    ) -> Result<(), String> {
        let place = self.sockets.wire.receiver_address(said.address, from).ok_or_else(|| {
            let name = self.sockets.plane_kind().name();
            format!("it takes datagrams at {:?}, which --plane {name} does not reach", said.address)
        })?;
        let newest = self.plane.keys().newest_id();
        if (said.key == 0) != (newest == 0) {
            let side = if newest == 0 { "only the peer has" } else { "the peer has none" };
            return Err(format!("--plane-key is not the same on all nodes: {side}"));
        }
        let introduction =
            introduction::decode_introduction(peer, boot, said).ok_or_else(|| {
                format!("its datagrams are of boot {}, its connection is of {boot}", said.boot)
            })?;
        self.peer_addresses.insert(peer.node, place);
        self.plane.introduce(&introduction, now);
        self.plane.rekey(|keys| keys.record_announced(peer.node, said.key));
        self.switch_keys();
        Ok(())
    }

    /// Forgets a peer whose connection has ended.
    pub(crate) fn forget_peer(&mut self, node: NodeId) {
        self.plane.remove_peer(node);
        self.peer_addresses.remove(&node);
    }

    /// [pkt-3] Switches to sending with the newest key once every peer has announced it.
    fn switch_keys(&mut self) {
        let peers = self.plane.links().filter(|link| link.is_introduced());
        let peers: Vec<NodeId> = peers.map(|link| link.member.node).collect();
        if self.plane.rekey(|keys| keys.switch_to_newest(&peers)) {
            tracing::info!("sending datagrams with the new key: every peer has it");
        }
    }

    /// Handles a change of the key file. Returns whether a new key was accepted, in which case
    /// every peer must be notified.
    pub(crate) fn adopt_key_file(&mut self, file: &KeyFile) -> Result<bool, String> {
        let Some((id, key)) = file.newest().cloned() else {
            return Ok(false);
        };
        let taken = self.plane.rekey(|keys| {
            keys.retain_keys(|held| file.has(held));
            if keys.newest_id() == id {
                return Ok(false);
            }
            keys.add(id, key).map(|()| true)
        });
        // The peers may have announced the key earlier.
        self.switch_keys();
        taken.map_err(|bad| format!("key {id} of {} is not taken: {bad:?}", file.path().display()))
    }

    /// Returns the capacity of the link in bytes per second.
    pub(crate) const fn link_bytes_s(&self) -> u64 {
        self.sockets.limits.link_bytes_s
    }

    pub(crate) fn reaches_any(&self) -> bool {
        self.uses_datagrams() && self.plane.links().any(|link| link.unicast_path.is_up())
    }

    pub(crate) fn reaches(&self, node: NodeId) -> bool {
        let link = self.plane.link(node);
        self.uses_datagrams() && link.is_some_and(|link| link.unicast_path.is_up())
    }

    fn uses_datagrams(&self) -> bool {
        self.plane.carrier() != Carrier::TcpConnections
    }

    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    // Frames.

    pub(crate) fn has_room(&self, node: NodeId, bytes: usize) -> bool {
        bytes <= FRAME_BYTES_MAX && self.plane.can_send(node, bytes)
    }

    pub(crate) fn send_frame(&mut self, to: NodeSet, header: &[u8], body: &[u8]) -> NodeSet {
        self.plane.send(to, header, body)
    }

    pub(crate) fn set_voters(&mut self, configuration: &Configuration) {
        let voters = configuration.members().iter();
        self.plane.set_voters(voters.map(|voter| voter.member.node).collect());
    }

    pub(crate) fn note_decided(&mut self, ballot: Ballot, decided_to: Slot) {
        self.plane.record_decided(ballot, decided_to, self.now);
    }

    // Datagrams.

    /// Processes the datagrams that arrived at a socket.
    pub(crate) fn process_datagrams(
        &mut self,
        hears: DatagramSocket,
        now: Time,
        stats: &mut Stats,
    ) -> io::Result<()> {
        let Self { plane, sockets, .. } = self;
        let Sockets { wire, simulated_loss: losing, fallback_reason: instead, .. } = sockets;
        let before = wire.raw_frame_mode();
        let taken = wire.receive(hears, |datagram| {
            if !losing.drops_next() {
                plane.on_datagram(datagram, now);
            }
        });
        if wire.raw_frame_mode() != before {
            let why = "AF_XDP was taken away: frames come and go by packet sockets";
            tracing::warn!("{why}");
            *instead = Some(why.to_owned());
        }
        let taken = taken?;
        stats.calls_datagram_read += taken.calls;
        stats.datagrams_in += taken.datagrams;
        Ok(())
    }

    /// Runs the plane's due timers.
    pub(crate) fn run_timers(&mut self, now: Time) {
        self.now = now;
        self.plane.poll(now);
    }

    /// Returns the next time at which [`Self::run_timers`] has work.
    pub(crate) fn next_timer_at(&self) -> Option<Time> {
        // A full socket needs no timer: the poller reports when it has space again.
        self.plane.next_due().filter(|_| !self.blocked)
    }

    /// Resumes sending when the kernel's send buffer has free space.
    pub(crate) fn unblock(&mut self, sources: &Sources) -> io::Result<()> {
        self.blocked = false;
        self.sockets.wire.watch_writable(self.token, false, sources)
    }

    /// Sends the datagrams that the rate limit allows.
    pub(crate) fn flush(
        &mut self,
        now: Time,
        sources: &Sources,
        stats: &mut Stats,
    ) -> io::Result<()> {
        if self.blocked {
            return Ok(());
        }
        let Self { plane, sockets, peer_addresses: places, sent_bytes, .. } = self;
        let (mut blocked, mut failed) = (false, None);
        plane.send_due(now, |outgoing| {
            let place = match outgoing.destination {
                Destination::Group => sockets.wire.group(),
                Destination::Node(node) => places.get(&node).copied(),
            };
            let Some(place) = place else {
                return SendOutcome::All;
            };
            stats.calls_datagram_write += 1;
            *sent_bytes += outgoing.bytes.len() as u64;
            stats.datagrams_out += outgoing.bytes.len().div_ceil(outgoing.segment_bytes) as u64;
            match sockets.wire.send(place, outgoing.bytes, outgoing.segment_bytes) {
                Ok(SendResult::All) => SendOutcome::All,
                Ok(SendResult::Dropped(count)) => {
                    stats.datagrams_dropped += count as u64;
                    SendOutcome::Dropped
                }
                Ok(SendResult::Blocked(count)) => {
                    stats.datagrams_blocked += 1;
                    blocked = true;
                    SendOutcome::Blocked(count)
                }
                // A datagram that is too long or has no route is lost; probes detect this.
                Ok(SendResult::TooLong) => SendOutcome::Dropped,
                Err(error) => {
                    failed = Some(error);
                    SendOutcome::Dropped
                }
            }
        });
        if let Some(error) = failed {
            stats.datagrams_failed += 1;
            tracing::debug!(%error, "a datagram was not sent");
        }
        if blocked {
            self.blocked = true;
            self.sockets.wire.watch_writable(self.token, true, sources)?;
        }
        Ok(())
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.plane.next_event()
    }

    /// Returns the transport for frames to a peer, and the reason if no better one is used.
    pub(crate) fn status(&self, node: NodeId) -> Option<PeerPlane> {
        self.plane.link(node).map(|link| self.describe(link))
    }

    /// Returns the reason for the current transport to several peers, if it is chosen at run time.
    pub(crate) fn why_plane(&self) -> Option<String> {
        self.plane.explain_carrier()
    }

    /// Returns whether frames to all peers are currently passed along a chain of nodes.
    fn is_chain(&self) -> bool {
        self.plane.group_path() == GroupPath::Chain
    }

    /// Returns the transport for frames: to several peers if `by_group`, otherwise to one peer.
    pub(crate) fn plane_kind(&self, by_group: bool) -> PlaneKind {
        match (&self.sockets.wire, by_group) {
            (Wire::Ethernet(_), _) => PlaneKind::Ethernet,
            (Wire::Udp { .. }, true) if self.is_chain() => PlaneKind::Chain,
            (Wire::Udp { .. }, true) => PlaneKind::Multicast,
            (Wire::Udp { .. }, false) => PlaneKind::Udp,
        }
    }

    fn describe(&self, link: &PeerLink) -> PeerPlane {
        let rtt_us = link.unicast_path.rtt_us();
        let (way, why) = match (link.unicast_path.is_up(), link.group_path.is_up()) {
            (false, _) if !link.is_introduced() => {
                (PlaneKind::Tcp, Some("the peer takes no datagrams".to_owned()))
            }
            (false, _) => (PlaneKind::Tcp, Some("datagrams do not come back".to_owned())),
            (true, _) if self.plane.carrier() == Carrier::TcpConnections => (PlaneKind::Tcp, None),
            (true, _) if self.plane.carrier() == Carrier::UnicastDatagrams => {
                (PlaneKind::Udp, None)
            }
            (true, by_group) => {
                let silent = match (self.is_chain(), self.sockets.wire.has_group()) {
                    _ if by_group => None,
                    (true, _) => Some("nothing comes to it along the chain".to_owned()),
                    (false, true) => Some("it does not answer by the group".to_owned()),
                    (false, false) => None,
                };
                let why = silent.or_else(|| self.sockets.fallback_reason.clone());
                (self.plane_kind(by_group), why)
            }
        };
        PeerPlane {
            kind: way,
            raw_frame_mode: self.sockets.wire.raw_frame_mode().map(ReceiveMode::name),
            rtt_us,
            fallback_reason: why,
        }
    }

    /// Appends the plane's counters to `out`, including those of refused datagrams by reason.
    pub(crate) fn append_metrics(&self, out: &mut String) {
        let (counters, repairs) = (self.plane.counters(), self.plane.repairs());
        let counts = [
            ("frames_to_group", "Frames sent once to the whole group.", counters.frames_to_group),
            (
                "frames_without_room",
                "Frames refused because a datagram channel was full.",
                counters.frames_without_space,
            ),
            (
                "datagrams_asked",
                "Requests for missing ranges of datagrams, repeated ones included.",
                repairs.ranges_requested,
            ),
            ("datagrams_repaired", "Datagrams resent to one node.", repairs.repaired_to_one),
            ("datagrams_repeated", "Datagrams resent to the group.", repairs.repaired_to_group),
            (
                "datagrams_relayed",
                "Datagrams of other nodes passed on along their chains.",
                repairs.forwarded,
            ),
            (
                "datagrams_given_up",
                "Missing datagrams that never came, despite repeated requests.",
                counters.datagrams_given_up,
            ),
        ];
        for (name, help, count) in counts {
            let name = format!("quorate_net_{name}_total");
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}");
        }
        if self.sockets.chooses_plane {
            let (name, changes) = ("quorate_net_plane_changes_total", counters.path_changes);
            let _ = writeln!(
                out,
                "# HELP {name} How often frames for several nodes switched to another way.\n# TYPE {name} counter\n{name} {changes}"
            );
        }
        if let Some(rate) = self.plane.group_rate_bytes_s() {
            let name = "quorate_net_group_bytes_per_second";
            let _ = writeln!(
                out,
                "# HELP {name} Rate limit for sending to the group.\n# TYPE {name} gauge\n{name} {rate}"
            );
        }
        write_refusal_metrics(
            out,
            ("datagrams", "Datagrams refused, by reason."),
            self.plane.refusals(),
        );
        if let Some(refusals) = self.sockets.wire.refusals() {
            let help = "Raw frames refused, by reason.";
            write_refusal_metrics(out, ("ethernet_frames", help), refusals);
        }
    }
}

fn write_refusal_metrics<R: Reason>(
    out: &mut String,
    (what, help): (&str, &str),
    refusals: &ReasonCounts<R>,
) {
    let name = format!("quorate_net_{what}_refused_total");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
    for (reason, count) in refusals.iter() {
        let _ = writeln!(out, "{name}{{reason=\"{}\"}} {count}", reason.name());
    }
}

/// Introduction of this node's datagrams, in owned form.
#[derive(Clone, Debug)]
pub(crate) struct OwnedIntroduction {
    introduction: Introduction,
    address: String,
    key: KeyId,
}

impl OwnedIntroduction {
    pub(crate) fn frame(&self) -> Datagrams<'_> {
        introduction::encode_introduction(&self.introduction, &self.address, self.key)
    }
}

/// [pkt-2] Returns an unpredictable number; 0 if the system cannot provide one yet.
fn nonce() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        // The system has no random numbers yet, or the call was interrupted. No answer will match
        // 0.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ() {
        assert!(nonce() != nonce());
    }
}
