//! Outgoing control datagrams: numbered, sealed, and never retransmitted.

use std::mem;

use quorate_core::node_id::{Member, NodeId};

use crate::{
    body::Body,
    endpoint::{Destination, Outgoing},
    envelope,
    header::{CONTROL_CHANNEL, HEADER_BYTES, Header, Kind},
    trust::{GroupIdentity, KeyRing, TagContext, TagKey},
};

const OUTGOING_MAX: usize = 4096;

pub(super) struct ControlChannel {
    tag_context: TagContext,
    group_hint: u32,
    key: u8,
    tag_key: TagKey,
    next_number: u64,
    outgoing: Vec<Outgoing>,
}

impl ControlChannel {
    pub(super) fn new(me: Member, boot: u32, group: GroupIdentity, keys: &KeyRing) -> Self {
        let place = TagContext { group, sender: me, boot, channel: CONTROL_CHANNEL };
        let (key, with) = keys.current();
        Self {
            group_hint: group.header_hint(),
            key,
            tag_key: TagKey::new(with, &place),
            tag_context: place,
            next_number: 1,
            outgoing: Vec::new(),
        }
    }

    pub(super) fn rekey(&mut self, keys: &KeyRing) {
        let (key, with) = keys.current();
        (self.key, self.tag_key) = (key, TagKey::new(with, &self.tag_context));
    }

    pub(super) const fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(super) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        mem::take(&mut self.outgoing)
    }

    /// Queues a datagram for a member, or for the multicast group if `to` is `None`.
    pub(super) fn queue_datagram(&mut self, to: Option<Member>, body: &Body<'_>) {
        self.queue_part(to, body, (0, 1));
    }

    /// [pkt-5] Queues the original datagram, unchanged, in an envelope.
    pub(super) fn queue_repair(&mut self, to: Member, original: &[u8], datagram_bytes: usize) {
        for (index, count, part) in
            envelope::split_original(original, datagram_bytes - HEADER_BYTES)
        {
            self.queue_part(Some(to), &Body::Repair(part), (index, count));
        }
    }

    /// Queues a datagram of one of this node's channels for retransmission to the group ([pkt-7]).
    pub(super) fn queue_retransmission(&mut self, datagram: &[u8]) {
        let bytes = datagram.to_vec();
        self.push(Destination::Group, bytes);
    }

    fn queue_part(&mut self, to: Option<Member>, body: &Body<'_>, (index, count): (u16, u16)) {
        let header = Header {
            kind: body.kind(),
            key: self.key,
            channel: CONTROL_CHANNEL,
            is_unicast: to.is_some(),
            sender: self.tag_context.sender.node,
            boot: self.tag_context.boot,
            group: self.group_hint,
            number: self.next_number,
            index,
            part_count: count,
        };
        self.next_number += 1;
        let mut bytes = header.bytes().to_vec();
        body.write(&mut bytes);
        self.tag_key.write_tag(&mut bytes, to);
        self.push(to.map_or(Destination::Group, |to| Destination::Node(to.node)), bytes);
    }

    fn push(&mut self, to: Destination, bytes: Vec<u8>) {
        if self.outgoing.len() < OUTGOING_MAX {
            self.outgoing.push(Outgoing { destination: to, bytes });
        }
    }

    /// Returns a header with the fields that all datagrams of a channel share.
    pub(super) fn header_template(&self, channel: u8, to: Option<Member>) -> Header {
        Header {
            kind: Kind::Fragment,
            key: self.key,
            channel,
            is_unicast: to.is_some(),
            sender: self.own_node(),
            boot: self.tag_context.boot,
            group: self.group_hint,
            number: 1,
            index: 0,
            part_count: 1,
        }
    }

    const fn own_node(&self) -> NodeId {
        self.tag_context.sender.node
    }
}
