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
use quorate_packets::ethernet::Mode;
use quorate_packets::plane::{
    Carrier, Event, GroupPath, Packets, Settings, introduction, link::Link,
    packets::FRAME_BYTES_MAX, port::SendOutcome,
};
use quorate_packets::{
    counted::{Reason, ReasonCounts},
    endpoint::{self, Destination},
    receive::Delivery,
    socket::Sent,
    trust::{Group, Introduction, Keys, keys::KeyId},
};
use quorate_replica::status::{PeerPlane, Way};
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
    plane: Packets,
    sockets: Sockets,
    token: Token,
    /// The kernel's send buffer is full, and the plane waits until the socket is writable.
    blocked: bool,
    /// Datagram address of each reachable peer.
    places: BTreeMap<NodeId, ReceiverAddress>,
    sent_bytes: u64,
    now: Time,
}

impl fmt::Debug for PacketPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSide")
            .field("sockets", &self.sockets)
            .field("places", &self.places)
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
                me: identity.member,
                boot: identity.boot,
                group: Group { cluster: identity.cluster, group: 1, generation: 0 },
                keys: sockets.keys.as_ref().map_or_else(Keys::none, KeyFile::keys),
                limits: sockets.limits.clone(),
                delivery: Delivery::InOrder,
                keeps: true,
                seed,
            },
            reach: match (sockets.chain, sockets.wire.has_group()) {
                (true, _) => GroupPath::Chain,
                (false, true) => GroupPath::Group,
                (false, false) => GroupPath::Each,
            },
            chooses: sockets.chooses,
            nonces: Box::new(nonce),
        };
        Ok(Self {
            plane: Packets::new(settings, Time(0)),
            sockets,
            token,
            blocked: false,
            places: BTreeMap::new(),
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
            key: self.plane.keys().newest(),
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
            let name = self.sockets.way().name();
            format!("it takes datagrams at {:?}, which --plane {name} does not reach", said.address)
        })?;
        let newest = self.plane.keys().newest();
        if (said.key == 0) != (newest == 0) {
            let side = if newest == 0 { "only the peer has" } else { "the peer has none" };
            return Err(format!("--plane-key is not the same on all nodes: {side}"));
        }
        let introduction = introduction::decode(peer, boot, said).ok_or_else(|| {
            format!("its datagrams are of boot {}, its connection is of {boot}", said.boot)
        })?;
        self.places.insert(peer.node, place);
        self.plane.introduce(&introduction, now);
        self.plane.rekey(|keys| keys.record_announced(peer.node, said.key));
        self.switch_keys();
        Ok(())
    }

    /// Forgets a peer whose connection has ended.
    pub(crate) fn part(&mut self, node: NodeId) {
        self.plane.part(node);
        self.places.remove(&node);
    }

    /// [pkt-3] Switches to sending with the newest key once every peer has announced it.
    fn switch_keys(&mut self) {
        let peers = self.plane.links().filter(|link| link.is_introduced());
        let peers: Vec<NodeId> = peers.map(|link| link.member.node).collect();
        if self.plane.rekey(|keys| keys.switch(&peers)) {
            tracing::info!("sending datagrams with the new key: every peer has it");
        }
    }

    /// Handles a change of the key file. Returns whether a new key was accepted, in which case
    /// every peer must be notified.
    pub(crate) fn rekey(&mut self, file: &KeyFile) -> Result<bool, String> {
        let Some((id, key)) = file.newest().cloned() else {
            return Ok(false);
        };
        let taken = self.plane.rekey(|keys| {
            keys.retain_keys(|held| file.has(held));
            if keys.newest() == id {
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
        self.carries() && self.plane.links().any(|link| link.unicast.is_up())
    }

    pub(crate) fn reaches(&self, node: NodeId) -> bool {
        let link = self.plane.link(node);
        self.carries() && link.is_some_and(|link| link.unicast.is_up())
    }

    fn carries(&self) -> bool {
        self.plane.carrier() != Carrier::Connections
    }

    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    // Frames.

    pub(crate) fn has_room(&self, node: NodeId, bytes: usize) -> bool {
        bytes <= FRAME_BYTES_MAX && self.plane.has_room(node, bytes)
    }

    pub(crate) fn send_frame(&mut self, to: NodeSet, header: &[u8], body: &[u8]) -> NodeSet {
        self.plane.send(to, header, body)
    }

    pub(crate) fn voters(&mut self, configuration: &Configuration) {
        let voters = configuration.members().iter();
        self.plane.voters(voters.map(|voter| voter.member.node).collect());
    }

    pub(crate) fn note_decided(&mut self, ballot: Ballot, decided_to: Slot) {
        self.plane.decided(ballot, decided_to, self.now);
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
        let Sockets { wire, losing, instead, .. } = sockets;
        let before = wire.frames();
        let taken = wire.receive(hears, |datagram| {
            if !losing.drops_next() {
                plane.on_datagram(datagram, now);
            }
        });
        if wire.frames() != before {
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
    pub(crate) fn on_time(&mut self, now: Time) {
        self.now = now;
        self.plane.poll(now);
    }

    /// Returns the next time at which [`Self::on_time`] has work.
    pub(crate) fn next_time(&self) -> Option<Time> {
        // A full socket needs no timer: the poller reports when it has space again.
        self.plane.next_due().filter(|_| !self.blocked)
    }

    /// Resumes sending when the kernel's send buffer has free space.
    pub(crate) fn unblock(&mut self, sources: &Sources) -> io::Result<()> {
        self.blocked = false;
        self.sockets.wire.wait_for_room(self.token, false, sources)
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
        let Self { plane, sockets, places, sent_bytes, .. } = self;
        let (mut blocked, mut failed) = (false, None);
        plane.take(now, |outgoing| {
            let place = match outgoing.to {
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
                Ok(Sent::All) => SendOutcome::All,
                Ok(Sent::Dropped(count)) => {
                    stats.datagrams_dropped += count as u64;
                    SendOutcome::Dropped
                }
                Ok(Sent::Blocked(count)) => {
                    stats.datagrams_blocked += 1;
                    blocked = true;
                    SendOutcome::Blocked(count)
                }
                // A datagram that is too long or has no route is lost; probes detect this.
                Ok(Sent::TooLong) => SendOutcome::Dropped,
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
            self.sockets.wire.wait_for_room(self.token, true, sources)?;
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
    pub(crate) fn choice(&self) -> Option<String> {
        self.plane.why()
    }

    /// Returns whether frames to all peers are currently passed along a chain of nodes.
    fn is_chain(&self) -> bool {
        self.plane.group_path() == GroupPath::Chain
    }

    /// Returns the transport for frames: to several peers if `by_group`, otherwise to one peer.
    pub(crate) fn way(&self, by_group: bool) -> Way {
        match (&self.sockets.wire, by_group) {
            (Wire::Ethernet(_), _) => Way::Ethernet,
            (Wire::Udp { .. }, true) if self.is_chain() => Way::Chain,
            (Wire::Udp { .. }, true) => Way::Multicast,
            (Wire::Udp { .. }, false) => Way::Udp,
        }
    }

    fn describe(&self, link: &Link) -> PeerPlane {
        let rtt_us = link.unicast.rtt_us();
        let (way, why) = match (link.unicast.is_up(), link.group.is_up()) {
            (false, _) if !link.is_introduced() => {
                (Way::Tcp, Some("the peer takes no datagrams".to_owned()))
            }
            (false, _) => (Way::Tcp, Some("datagrams do not come back".to_owned())),
            (true, _) if self.plane.carrier() == Carrier::Connections => (Way::Tcp, None),
            (true, _) if self.plane.carrier() == Carrier::Each => (Way::Udp, None),
            (true, by_group) => {
                let silent = match (self.is_chain(), self.sockets.wire.has_group()) {
                    _ if by_group => None,
                    (true, _) => Some("nothing comes to it along the chain".to_owned()),
                    (false, true) => Some("it does not answer by the group".to_owned()),
                    (false, false) => None,
                };
                let why = silent.or_else(|| self.sockets.instead.clone());
                (self.way(by_group), why)
            }
        };
        PeerPlane { way, frames: self.sockets.wire.frames().map(Mode::name), rtt_us, why }
    }

    /// Appends the plane's counters to `out`, including those of refused datagrams by reason.
    pub(crate) fn metrics(&self, out: &mut String) {
        let (counters, repairs) = (self.plane.counters(), self.plane.repairs());
        let counts = [
            ("frames_to_group", "Frames sent once to the whole group.", counters.frames_to_group),
            (
                "frames_without_room",
                "Frames refused because a datagram channel was full.",
                counters.frames_refused,
            ),
            (
                "datagrams_asked",
                "Requests for missing ranges of datagrams, repeated ones included.",
                repairs.asked,
            ),
            ("datagrams_repaired", "Datagrams resent to one node.", repairs.repaired),
            ("datagrams_repeated", "Datagrams resent to the group.", repairs.repeated),
            (
                "datagrams_relayed",
                "Datagrams of other nodes passed on along their chains.",
                repairs.relayed,
            ),
            (
                "datagrams_given_up",
                "Missing datagrams that never came, despite repeated requests.",
                counters.given_up,
            ),
        ];
        for (name, help, count) in counts {
            let name = format!("quorate_net_{name}_total");
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}");
        }
        if self.sockets.chooses {
            let (name, changes) = ("quorate_net_plane_changes_total", counters.changes);
            let _ = writeln!(
                out,
                "# HELP {name} How often frames for several nodes switched to another way.\n# TYPE {name} counter\n{name} {changes}"
            );
        }
        if let Some(rate) = self.plane.group_bytes_s() {
            let name = "quorate_net_group_bytes_per_second";
            let _ = writeln!(
                out,
                "# HELP {name} Rate limit for sending to the group.\n# TYPE {name} gauge\n{name} {rate}"
            );
        }
        refused(out, ("datagrams", "Datagrams refused, by reason."), self.plane.refusals());
        if let Some(refusals) = self.sockets.wire.refusals() {
            let help = "Raw frames refused, by reason.";
            refused(out, ("ethernet_frames", help), refusals);
        }
    }
}

fn refused<R: Reason>(out: &mut String, (what, help): (&str, &str), refusals: &ReasonCounts<R>) {
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
        introduction::encode(&self.introduction, &self.address, self.key)
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
