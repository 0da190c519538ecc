//! Sends frames to the plane. Frames without space are counted, and the protocol repeats them.

use quorate_core::{
    node_id::{Member, NodeId},
    node_set::NodeSet,
};
use quorate_wire::{Frame, Lane, checksum, encode_logged};

use crate::{
    counters::Counters,
    ports::{
        payload::Payload,
        plane::{FrameBody, Plane},
    },
};

/// Delay in milliseconds before retrying a refused frame: long enough not to spin, and short enough
/// not to be noticed, since space is usually freed within the time of a disk write.
pub(crate) const RETRY_MS: u64 = 2;

pub(crate) struct Outbox<'a> {
    from: Member,
    plane: &'a mut dyn Plane,
    /// End of this node's log as stated in frames ([lie-1]); 0 if frames state none.
    logged_to: u64,
    pub(crate) counters: &'a mut Counters,
}

impl<'a> Outbox<'a> {
    pub(crate) fn new(from: Member, plane: &'a mut dyn Plane, counters: &'a mut Counters) -> Self {
        Self { from, plane, logged_to: 0, counters }
    }

    /// Returns the outbox, whose frames state that this node's log is on stable storage up to write
    /// `logged` ([lie-1]).
    pub(crate) fn with_logged_to(self, logged: u64) -> Self {
        Self { logged_to: logged, ..self }
    }

    /// Passes a frame to the plane. Returns `false` if the plane had no space for it.
    pub(crate) fn send(&mut self, to: NodeId, lane: Lane, frame: &Frame<'_>) -> bool {
        !self.send_all(NodeSet::one(to), lane, frame, None).is_empty()
    }

    /// Passes a frame to the plane for each of the given nodes. Returns the nodes for which the
    /// plane had space. `payload` shares the bytes in the frame, if they can be shared.
    pub(crate) fn send_all(
        &mut self,
        to: NodeSet,
        lane: Lane,
        frame: &Frame<'_>,
        payload: Option<&Payload>,
    ) -> NodeSet {
        let check = |bytes: &[u8]| payload.map_or_else(|| checksum(bytes), Payload::checksum);
        let Ok(encoded) = encode_logged(self.from, frame, self.logged_to, check) else {
            return self.count_dropped(to, NodeSet::default());
        };
        let body = match payload {
            Some(payload) => FrameBody::Shared(payload),
            None => FrameBody::Borrowed(&encoded.body),
        };
        assert_eq!(body.bytes().len(), encoded.body.len(), "the payload of the frame");
        let sent = self.plane.send(to, lane, &encoded.header, body);
        let length = frame_payload(frame).map_or(0, <[u8]>::len);
        if let Ok(sent) = &sent
            && length > 0
        {
            self.counters.payload_bytes_sent.add(*sent, length);
        }
        // A frame that is too long for the plane is lost, like one for which there is no space.
        self.count_dropped(to, sent.unwrap_or_default())
    }

    /// Returns whether a frame of `bytes` bytes could be sent now. A refusal is counted.
    pub(crate) fn has_room(&mut self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        let room = self.can_send(to, lane, bytes);
        self.counters.sends_dropped += u64::from(!room);
        room
    }

    /// Returns whether a frame of `bytes` bytes could be sent now. A refusal is not counted,
    /// because the caller has an alternative.
    pub(crate) fn can_send(&self, to: NodeId, lane: Lane, bytes: usize) -> bool {
        self.plane.has_room(to, lane, bytes)
    }

    fn count_dropped(&mut self, to: NodeSet, sent: NodeSet) -> NodeSet {
        self.counters.sends_dropped += (to.len() - sent.len()) as u64;
        sent
    }
}

/// Returns the bytes of the value that a frame contains, if any.
const fn frame_payload<'a>(frame: &Frame<'a>) -> Option<&'a [u8]> {
    match frame {
        Frame::Protocol { bytes, .. } | Frame::FetchReply { bytes, .. } => *bytes,
        Frame::Forward { bytes, .. } => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::value::{BatchName, Value};

    use super::*;
    use crate::ports::plane::TooLarge;

    /// A plane of packets, which bounds frames; there is never space for node 3.
    struct Packets(Vec<(NodeId, usize)>);

    const PACKET_BYTES: usize = 1400;

    impl Plane for Packets {
        fn has_room(&self, to: NodeId, _: Lane, bytes: usize) -> bool {
            to != NodeId(3) && bytes <= PACKET_BYTES
        }

        fn send(
            &mut self,
            to: NodeSet,
            _: Lane,
            header: &[u8],
            body: FrameBody<'_>,
        ) -> Result<NodeSet, TooLarge> {
            let bytes = header.len() + body.bytes().len();
            if bytes > PACKET_BYTES {
                let bytes_max = PACKET_BYTES;
                return Err(TooLarge { bytes_max });
            }
            let sent = to.filtered(|node| self.has_room(node, Lane::Control, bytes));
            self.0.extend(sent.iter().map(|node| (node, bytes)));
            Ok(sent)
        }
    }

    fn send(plane: &mut Packets, counters: &mut Counters, length: usize) -> NodeSet {
        let payload = Payload::new(vec![7; length]);
        let value = Value::Batch(BatchName {
            length: u32::try_from(length).unwrap(),
            checksum: checksum(&payload),
            ..BatchName::default()
        });
        let bytes = &payload;
        let frame = Frame::Forward { value, bytes };
        let mut to = NodeSet::one(NodeId(2));
        assert!(to.insert(NodeId(3)) && to.insert(NodeId(4)));
        Outbox::new(Member::first(1), plane, counters).send_all(
            to,
            Lane::Control,
            &frame,
            Some(&payload),
        )
    }

    #[test]
    fn receivers_of_a_frame_are_returned_and_drops_counted() {
        let (mut plane, mut counters) = (Packets(Vec::new()), Counters::default());
        let sent = send(&mut plane, &mut counters, 1000);
        assert_eq!(sent.as_slice(), [NodeId(2), NodeId(4)]);
        assert_eq!(plane.0, [(NodeId(2), 1160), (NodeId(4), 1160)]);
        assert_eq!(counters.sends_dropped, 1);
    }

    #[test]
    fn frame_too_long_for_the_plane_is_dropped_for_all() {
        let (mut plane, mut counters) = (Packets(Vec::new()), Counters::default());
        assert!(send(&mut plane, &mut counters, 1400).is_empty());
        assert!(plane.0.is_empty());
        assert_eq!(counters.sends_dropped, 3);
        assert!(!send(&mut plane, &mut counters, 1240).is_empty(), "it just fits");
        let mut out = Outbox::new(Member::first(1), &mut plane, &mut counters);
        assert!(!out.has_room(NodeId(2), Lane::Control, 1401));
        assert!(out.has_room(NodeId(2), Lane::Control, 1400));
        assert_eq!(counters.sends_dropped, 5);
    }
}
