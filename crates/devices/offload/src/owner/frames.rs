//! Encodes frames to a device and decodes frames from it. Received bytes are not trusted.

use alloc::{vec, vec::Vec};

use crate::{
    Address, Descriptor, Form, Header, PackedBallot, Port, Setup, Type,
    admit::arrive,
    header::{COORDINATOR, HINT},
    port::{FrameOrigin, Program, Shape},
};
use quorate_core::slot::Slot;

use crate::owner::{
    event::{SlotValue, Start},
    value::meaning,
};

/// Number of a counter that stays zero ([`crate::reason::COUNTERS`]). Queries ask for this counter.
/// No call contains this number in the same field, so responses to queries cannot be mistaken for
/// responses to calls.
pub(crate) const QUIET: u32 = 31;

/// A valid frame received from the port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedFrame<'a> {
    pub(crate) header: Header,
    pub(crate) room: &'a [u8],
    /// Origin according to the device, which also passes on frames of other stations.
    pub(crate) came: FrameOrigin,
}

impl ReceivedFrame<'_> {
    /// Returns the slot with its value and bytes ([offload-21]), and whether the descriptor is
    /// valid.
    pub(crate) fn held(&self) -> (SlotValue, bool) {
        let (value, bytes, known) = meaning(&self.header.value, self.room);
        let held = SlotValue { slot: Slot(self.header.slot), value, bytes: bytes.to_vec() };
        (held, known)
    }
}

/// Encodes and decodes the frames of one device.
#[derive(Debug)]
pub(crate) struct Frames {
    shape: Shape,
    frame: Vec<u8>,
    room: Vec<u8>,
}

impl Frames {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, frame: vec![0; shape.form.room_at() + shape.room], room: vec![0; shape.room] }
    }

    pub(crate) const fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn cells(&self) -> u64 {
        self.shape.cells.into()
    }

    /// Returns a header of type `kind` for a program, with all other fields zero.
    pub(crate) fn plain(&self, program: Program, kind: Type) -> Header {
        Header {
            kind,
            flags: match program {
                Program::Acceptor => 0,
                Program::Coordinator => COORDINATOR,
            },
            ..Header::submit(self.shape.group, Descriptor::NONE, 0)
        }
    }

    pub(crate) fn submit(&self, value: Descriptor) -> Header {
        Header::submit(self.shape.group, value, 0)
    }

    pub(crate) fn start(&self, ballot: PackedBallot, start: &Start) -> Header {
        let mut header = Header {
            slot: start.first.0,
            ballot,
            voted: start.limit.0,
            ..self.plain(Program::Coordinator, Type::Arm)
        };
        (header.value.kind, header.value.origin) = (start.quorum, start.members.into());
        header.flags |= if start.hint { HINT } else { 0 };
        header
    }

    /// Encodes a frame for the device. `bytes` must fit; longer values have been refused earlier.
    pub(crate) fn make(&mut self, header: &Header, bytes: &[u8]) -> &[u8] {
        self.make_between((self.shape.owner, self.shape.own), header, bytes)
    }

    /// Encodes a frame addressed to all devices, as this owner's device would send it.
    pub(crate) fn make_for_all(&mut self, header: &Header, bytes: &[u8]) -> &[u8] {
        self.make_between((self.shape.own, self.shape.all_hosts), header, bytes)
    }

    fn make_between(
        &mut self,
        (from, to): (Address, Address),
        header: &Header,
        bytes: &[u8],
    ) -> &[u8] {
        self.room.fill(0);
        self.room[..bytes.len()].copy_from_slice(bytes);
        self.shape
            .form
            .write(&mut self.frame, &from, &to, header, &self.room)
            .expect("a room of whole words, and a frame for it")
    }

    /// Decodes a frame from this group that is addressed to the owner, or to the device, which
    /// passed it on. Returns `None` if it is invalid. A frame whose source address is not the
    /// device's counts as [`FrameOrigin::Network`]; one with that address may still be forged
    /// ([offload-21]).
    pub(crate) fn hear<'a>(&self, came: FrameOrigin, frame: &'a [u8]) -> Option<ReceivedFrame<'a>> {
        let Shape { own, owner, .. } = self.shape;
        let to = *frame.first_chunk()?;
        let admit = |listens: Address| {
            let setup = Setup {
                group: self.shape.group,
                room: self.shape.room,
                own: listens,
                // The device has already checked the destination.
                heard: to,
                owner,
            };
            arrive(&setup, Port::Owner, frame)
        };
        let said = admit(owner).or_else(|_| admit(own)).ok()?;
        let own = said.source().is_some_and(|from| match said.form {
            Form::Udp => from == own,
            Form::Raw => from.mac == own.mac,
        });
        Some(ReceivedFrame {
            header: said.header,
            room: said.room,
            came: if own { came } else { FrameOrigin::Network },
        })
    }
}

/// Packs a ballot. Returns `None` if it does not fit or is zero.
pub(crate) fn pack(ballot: quorate_core::ballot::Ballot) -> Option<PackedBallot> {
    PackedBallot::of(ballot).filter(|packed| *packed != PackedBallot::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8, port: u16) -> Address {
        Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port }
    }

    fn frames(form: Form) -> Frames {
        Frames::new(Shape {
            group: 9,
            cells: 8,
            room: 32,
            form,
            own: address(1, 1000),
            owner: address(2, 2000),
            all_hosts: address(9, 1000),
        })
    }

    /// The source address distinguishes this owner's device from another member and from a station
    /// outside the group.
    #[test]
    fn source_address_tells_the_own_device_from_the_network() {
        for form in [Form::Udp, Form::Raw] {
            let frames = frames(form);
            let header = frames.submit(Descriptor::NONE);
            let mut buffer = [0; 200];
            let mut hear = |from, to: Address, header: &Header| {
                let frame = form.write(&mut buffer, &from, &to, header, &[7; 32]);
                let frame = &*frame.unwrap();
                let hear = |came| frames.hear(came, frame).map(|heard| heard.came);
                [FrameOrigin::Inside, FrameOrigin::Network].map(hear)
            };
            let (own, owner, other) = (address(1, 1000), address(2, 2000), address(3, 1000));
            let (inside, network) = (Some(FrameOrigin::Inside), Some(FrameOrigin::Network));
            assert_eq!(hear(own, owner, &header), [inside, network]);
            assert_eq!(hear(own, own, &header), [inside, network]);
            assert_eq!(hear(other, own, &header), [network; 2]);
            let mut stranger = header;
            stranger.group = 8;
            assert_eq!(hear(own, owner, &stranger), [None; 2]);
        }
    }

    /// Frames for all devices have the address of this owner's device as their source.
    #[test]
    fn frames_for_all_devices_are_sent_from_the_device_address() {
        for form in [Form::Udp, Form::Raw] {
            let mut frames = frames(form);
            let header = frames.submit(Descriptor::NONE);
            let frame = frames.make_for_all(&header, b"1234").to_vec();
            let setup = Setup {
                group: 9,
                room: 32,
                own: address(5, 1000),
                heard: address(9, 1000).mac,
                owner: address(6, 2000),
            };
            let arrived = arrive(&setup, Port::Network, &frame).unwrap();
            assert_eq!(arrived.header.kind, Type::Submit);
            assert_eq!(&arrived.room[..4], b"1234");
        }
    }

    #[test]
    fn truncated_or_corrupted_frames_are_ignored() {
        for form in [Form::Udp, Form::Raw] {
            let mut frames = frames(form);
            let header = frames.plain(Program::Coordinator, Type::Ask);
            let frame = frames.make(&header, b"1234").to_vec();
            for length in 0..frame.len() {
                assert!(
                    frames.hear(FrameOrigin::Inside, &frame[..length]).is_none(),
                    "{length} bytes"
                );
            }
            let mut changed = frame.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert!(frames.hear(FrameOrigin::Inside, &changed).is_none());
        }
    }
}
