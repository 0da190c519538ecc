//! Outgoing control datagrams: numbered, sealed, and never retransmitted.

use std::mem;

use quorate_core::node_id::{Member, NodeId};

use crate::{
    body::Body,
    endpoint::{Destination, Outgoing},
    envelope,
    header::{CONTROL, HEADER_BYTES, Header, Kind},
    trust::{Group, Keys, Seal, TagContext},
};

const OUTGOING_MAX: usize = 4096;

pub(super) struct Control {
    place: TagContext,
    hint: u32,
    key: u8,
    seal: Seal,
    next_number: u64,
    outgoing: Vec<Outgoing>,
}

impl Control {
    pub(super) fn new(me: Member, boot: u32, group: Group, keys: &Keys) -> Self {
        let place = TagContext { group, sender: me, boot, channel: CONTROL };
        let (key, with) = keys.current();
        Self {
            hint: group.hint(),
            key,
            seal: Seal::new(with, &place),
            place,
            next_number: 1,
            outgoing: Vec::new(),
        }
    }

    pub(super) fn rekey(&mut self, keys: &Keys) {
        let (key, with) = keys.current();
        (self.key, self.seal) = (key, Seal::new(with, &self.place));
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
    pub(super) fn repair(&mut self, to: Member, original: &[u8], datagram_bytes: usize) {
        for (index, count, part) in envelope::parts(original, datagram_bytes - HEADER_BYTES) {
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
            channel: CONTROL,
            to_one: to.is_some(),
            sender: self.place.sender.node,
            boot: self.place.boot,
            group: self.hint,
            number: self.next_number,
            index,
            count,
        };
        self.next_number += 1;
        let mut bytes = header.bytes().to_vec();
        body.write(&mut bytes);
        self.seal.seal(&mut bytes, to);
        self.push(to.map_or(Destination::Group, |to| Destination::Node(to.node)), bytes);
    }

    fn push(&mut self, to: Destination, bytes: Vec<u8>) {
        if self.outgoing.len() < OUTGOING_MAX {
            self.outgoing.push(Outgoing { to, bytes });
        }
    }

    /// Returns a header with the fields that all datagrams of a channel share.
    pub(super) fn template(&self, channel: u8, to: Option<Member>) -> Header {
        Header {
            kind: Kind::Fragment,
            key: self.key,
            channel,
            to_one: to.is_some(),
            sender: self.sender(),
            boot: self.place.boot,
            group: self.hint,
            number: 1,
            index: 0,
            count: 1,
        }
    }

    const fn sender(&self) -> NodeId {
        self.place.sender.node
    }
}
