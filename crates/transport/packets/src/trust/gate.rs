//! Gate for incoming datagrams: accepts each at most once, and only if a handshake named its
//! sender, boot and channel.

use std::collections::BTreeMap;

use quorate_core::node_id::{Incarnation, Member, NodeId};

use crate::{
    body::{Body, CHANNELS_MAX, ChannelOpening},
    header::{CONTROL_CHANNEL, Header, Kind, TAG_BYTES},
    trust::{
        keys::{KeyId, KeyRing, PEERS_MAX},
        refusal::{Refusal, Refusals},
        seal::{GroupIdentity, TagContext, TagKey},
        window::{NotNew, ReplayWindow},
    },
};

/// Number of recent sequence numbers of a data channel to remember. It exceeds the number of full
/// datagrams in a buffer of 64 MiB.
pub const DATA_WINDOW_NUMBERS: u64 = 1 << 16;
/// Number of recent sequence numbers of the control channel to remember. That channel has no
/// repairs.
const CONTROL_WINDOW_NUMBERS: u64 = 1 << 12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub member: Member,
    /// Boot of the peer, the only one whose datagrams are accepted.
    pub boot: u32,
    /// Channels that this node may listen to. Channels beyond [`CHANNELS_MAX`] are ignored.
    pub channels: Vec<ChannelOpening>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntroductionOutcome {
    /// The peer or its boot is new. All state of an older boot was dropped.
    New,
    /// The peer was already known. New channels were added; numbers and windows continue.
    Known,
    /// Refused, because a newer boot or incarnation of the peer is known.
    Older,
    /// Refused, because there are [`PEERS_MAX`] peers already.
    Full,
}

/// A datagram that passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedDatagram<'a> {
    pub header: Header,
    pub body: Body<'a>,
    /// Set if the datagram answers a challenge and thereby introduces its sender.
    pub introduced: Option<Introduction>,
}

/// Decides which datagrams to accept.
pub struct DatagramGate {
    me: Member,
    group: GroupIdentity,
    group_hint: u32,
    keys: KeyRing,
    /// Members named by a configuration or a handshake. Only they may request an introduction.
    members: BTreeMap<NodeId, Incarnation>,
    peers: BTreeMap<NodeId, Peer>,
    challenge_nonces: BTreeMap<NodeId, u64>,
    refusals: Refusals,
}

struct Peer {
    member: Member,
    boot: u32,
    channels: BTreeMap<u8, ListenedChannel>,
}

struct ListenedChannel {
    to_one: bool,
    window: ReplayWindow,
    tag_keys: Vec<(KeyId, TagKey)>,
}

impl DatagramGate {
    pub fn new(me: Member, group: GroupIdentity, keys: KeyRing) -> Self {
        Self {
            me,
            group_hint: group.header_hint(),
            group,
            keys,
            members: BTreeMap::new(),
            peers: BTreeMap::new(),
            challenge_nonces: BTreeMap::new(),
            refusals: Refusals::default(),
        }
    }

    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub const fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Changes the keys. Windows and numbers continue ([pkt-3]).
    pub fn change_keys<T>(&mut self, change: impl FnOnce(&mut KeyRing) -> T) -> T {
        let done = change(&mut self.keys);
        for peer in self.peers.values_mut() {
            for (&channel, heard) in &mut peer.channels {
                heard.tag_keys = seals_for(
                    &self.keys,
                    &tag_context(self.group, peer.member, peer.boot, channel),
                );
            }
        }
        done
    }

    pub fn boot_of(&self, node: NodeId) -> Option<u32> {
        self.peers.get(&node).map(|peer| peer.boot)
    }

    pub fn peer(&self, node: NodeId) -> Option<Member> {
        self.peers.get(&node).map(|peer| peer.member)
    }

    /// Returns whether a peer may listen to a channel of this node.
    pub fn may_listen(&self, node: NodeId, channel: u8) -> bool {
        let peer = self.peers.get(&node);
        peer.is_some_and(|peer| peer.channels.contains_key(&channel))
    }

    /// Returns a node that may request an introduction, with its incarnation, whether or not it has
    /// been introduced.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        let incarnation = *self.members.get(&node)?;
        Some(Member { node, incarnation })
    }

    /// Sets the nodes that may request an introduction: those of the configuration, and learners.
    pub fn set_allowed_members(&mut self, members: &[Member]) {
        let pairs = members.iter().map(|member| (member.node, member.incarnation));
        self.members = pairs.take(PEERS_MAX).collect();
        let members = &self.members;
        self.challenge_nonces.retain(|node, _| members.contains_key(node));
    }

    /// [pkt-2] Records a peer's introduction. It must be from a handshake between the current boots
    /// of both nodes.
    pub fn introduce(&mut self, introduction: &Introduction) -> IntroductionOutcome {
        let Introduction { member, boot, .. } = *introduction;
        let known = self.peers.get(&member.node);
        let order = |member: Member, boot| (member.incarnation, boot);
        let outcome = match known {
            _ if member.node == self.me.node => return IntroductionOutcome::Older,
            None if self.peers.len() >= PEERS_MAX => return IntroductionOutcome::Full,
            None => IntroductionOutcome::New,
            Some(peer) if order(peer.member, peer.boot) > order(member, boot) => {
                return IntroductionOutcome::Older;
            }
            Some(peer) if (peer.member, peer.boot) == (member, boot) => IntroductionOutcome::Known,
            Some(_) => IntroductionOutcome::New,
        };
        self.challenge_nonces.remove(&member.node);
        if outcome == IntroductionOutcome::New {
            let channels = BTreeMap::new();
            let peer = Peer { member, boot, channels };
            self.peers.insert(member.node, peer);
        }
        let peer = self.peers.get_mut(&member.node).expect("inserted above");
        for opening in introduction.channels.iter().take(CHANNELS_MAX) {
            if peer.channels.len() >= CHANNELS_MAX {
                break;
            }
            let numbers = if opening.channel == CONTROL_CHANNEL {
                CONTROL_WINDOW_NUMBERS
            } else {
                DATA_WINDOW_NUMBERS
            };
            peer.channels.entry(opening.channel).or_insert_with(|| ListenedChannel {
                to_one: opening.is_unicast,
                window: ReplayWindow::new(numbers, opening.from.max(1)),
                tag_keys: seals_for(
                    &self.keys,
                    &tag_context(self.group, member, boot, opening.channel),
                ),
            });
        }
        outcome
    }

    /// Stops accepting datagrams from a node.
    pub fn remove_peer(&mut self, node: NodeId) {
        self.peers.remove(&node);
        self.challenge_nonces.remove(&node);
    }

    /// [pkt-2] Sets the nonce that a peer without a connection must answer. The caller must draw a
    /// new one each time.
    pub fn set_challenge(&mut self, node: NodeId, nonce: u64) {
        if self.members.contains_key(&node) {
            self.challenge_nonces.insert(node, nonce);
        }
    }

    /// Checks a datagram as it arrived.
    pub fn admit_datagram<'a>(
        &mut self,
        datagram: &'a [u8],
    ) -> Result<AdmittedDatagram<'a>, Refusal> {
        let judged = self.check_datagram(datagram);
        judged.inspect_err(|refusal| self.refusals.count_reason(*refusal))
    }

    /// Checks the original datagram in a repair. `wanted` returns whether a number is missing. A
    /// datagram that was received but then dropped for lack of space is accepted again, although
    /// its number has been seen ([pkt-5]).
    pub fn admit_repaired<'a>(
        &mut self,
        original: &'a [u8],
        wanted: impl FnOnce(&Header) -> bool,
    ) -> Result<AdmittedDatagram<'a>, Refusal> {
        let judged = self.check_repaired(original, wanted);
        judged.inspect_err(|refusal| self.refusals.count_reason(*refusal))
    }

    fn check_datagram<'a>(&mut self, datagram: &'a [u8]) -> Result<AdmittedDatagram<'a>, Refusal> {
        let (header, tag, payload) = self.parse_datagram(datagram)?;
        if let Kind::Probe | Kind::Answer = header.kind
            && self.boot_of(header.sender) != Some(header.boot)
        {
            return self.check_stranger(header, tag, payload, datagram);
        }
        let me = self.me;
        let heard = self.listened_channel(&header)?;
        heard.window.check(header.number)?;
        // [pkt-2] Nothing changes until the tag has been verified.
        heard.check_tag(&header, tag, datagram, me)?;
        heard.window.mark_seen(header.number);
        let body = Body::read(header.kind, payload)?;
        Ok(AdmittedDatagram { header, body, introduced: None })
    }

    fn check_repaired<'a>(
        &mut self,
        original: &'a [u8],
        wanted: impl FnOnce(&Header) -> bool,
    ) -> Result<AdmittedDatagram<'a>, Refusal> {
        let (header, tag, payload) = self.parse_datagram(original)?;
        let me = self.me;
        let heard = self.listened_channel(&header)?;
        if heard.window.check(header.number) == Err(NotNew::BeforeHandshake) {
            return Err(Refusal::Before);
        }
        if header.kind != Kind::Fragment || !wanted(&header) {
            return Err(Refusal::Unwanted);
        }
        heard.check_tag(&header, tag, original, me)?;
        heard.window.mark_seen(header.number);
        Ok(AdmittedDatagram { header, body: Body::Fragment(payload), introduced: None })
    }

    /// Parses a datagram and makes the checks common to all datagrams: it must belong to this group
    /// and not be from this node.
    fn parse_datagram<'a>(
        &self,
        datagram: &'a [u8],
    ) -> Result<(Header, [u8; TAG_BYTES], &'a [u8]), Refusal> {
        let (header, tag, payload) = Header::read(datagram)?;
        if header.group != self.group_hint {
            return Err(Refusal::Group);
        }
        if header.sender == self.me.node {
            return Err(Refusal::Own);
        }
        Ok((header, tag, payload))
    }

    /// Returns the channel that a header names, if a handshake named it, too.
    fn listened_channel(&mut self, header: &Header) -> Result<&mut ListenedChannel, Refusal> {
        let peer = self.peers.get_mut(&header.sender).ok_or(Refusal::Stranger)?;
        if header.boot != peer.boot {
            // [pkt-2] Only a handshake can announce a new boot, not a datagram.
            let older = header.boot < peer.boot;
            return Err(if older { Refusal::OldBoot } else { Refusal::Boot });
        }
        let heard = peer.channels.get_mut(&header.channel);
        let heard = heard.ok_or(Refusal::Channel)?;
        if header.channel != CONTROL_CHANNEL && header.is_unicast != heard.to_one {
            return Err(Refusal::Channel);
        }
        Ok(heard)
    }

    /// Checks a probe or an answer from a boot that no handshake has named. A probe is
    /// authenticated by its tag, an answer by the nonce that this node chose. A replayed probe
    /// costs only an answer.
    fn check_stranger<'a>(
        &mut self,
        header: Header,
        tag: [u8; TAG_BYTES],
        payload: &'a [u8],
        datagram: &'a [u8],
    ) -> Result<AdmittedDatagram<'a>, Refusal> {
        let member = self.member(header.sender).ok_or(Refusal::Stranger)?;
        if self.boot_of(header.sender).is_some_and(|boot| header.boot < boot) {
            return Err(Refusal::OldBoot);
        }
        let challenge = self.challenge_nonces.get(&header.sender).copied();
        if header.kind == Kind::Answer && challenge.is_none() {
            return Err(Refusal::Unasked);
        }
        let place = tag_context(self.group, member, header.boot, header.channel);
        let mut accepted = self.keys.accepted_keys();
        let key = accepted.find(|(id, _)| *id == header.key);
        let seal = TagKey::new(key.ok_or(Refusal::Key)?.1, &place);
        if !seal.verifies(datagram, tag, header.is_unicast.then_some(self.me)) {
            return Err(Refusal::Tag);
        }
        let body = Body::read(header.kind, payload)?;
        let introduced = match &body {
            Body::Answer(answer) if Some(answer.nonce) == challenge => {
                self.challenge_nonces.remove(&header.sender);
                Some(Introduction { member, boot: header.boot, channels: answer.channels.clone() })
            }
            Body::Answer(_) => return Err(Refusal::Unasked),
            _ => None,
        };
        Ok(AdmittedDatagram { header, body, introduced })
    }
}

impl ListenedChannel {
    fn check_tag(
        &self,
        header: &Header,
        tag: [u8; TAG_BYTES],
        datagram: &[u8],
        me: Member,
    ) -> Result<(), Refusal> {
        let seal = self.tag_keys.iter().find(|(id, _)| *id == header.key);
        let (_, seal) = seal.ok_or(Refusal::Key)?;
        let holds = seal.verifies(datagram, tag, header.is_unicast.then_some(me));
        holds.then_some(()).ok_or(Refusal::Tag)
    }
}

const fn tag_context(group: GroupIdentity, sender: Member, boot: u32, channel: u8) -> TagContext {
    TagContext { group, sender, boot, channel }
}

fn seals_for(keys: &KeyRing, place: &TagContext) -> Vec<(KeyId, TagKey)> {
    let accepted = keys.accepted_keys();
    accepted.map(|(id, key)| (id, TagKey::new(key, place))).collect()
}
