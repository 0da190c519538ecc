//! Encodes frames to a device and decodes frames from it. Received bytes are not trusted.

use alloc::{vec, vec::Vec};

use crate::{
    Address, Descriptor, Encapsulation, Header, PackedBallot, Port, Setup, Type,
    admit::parse_frame,
    header::{COORDINATOR, HINT},
    port::{DeviceShape, FrameOrigin, Program},
};
use quorate_core::slot::Slot;

use crate::owner::{
    event::{SlotValue, Start},
    value::interpret,
};

/// Number of a counter that stays zero ([`crate::reason::COUNTERS`]). Queries ask for this counter.
/// No call contains this number in the same field, so responses to queries cannot be mistaken for
/// responses to calls.
pub(crate) const ZERO_COUNTER: u32 = 31;

/// A valid frame received from the port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedFrame<'a> {
    pub(crate) header: Header,
    pub(crate) room: &'a [u8],
    /// Origin according to the device, which also passes on frames of other stations.
    pub(crate) origin: FrameOrigin,
}

impl ReceivedFrame<'_> {
    /// Returns the slot with its value and bytes ([offload-21]), and whether the descriptor is
    /// valid.
    pub(crate) fn slot_value(&self) -> (SlotValue, bool) {
        let (value, bytes, known) = interpret(&self.header.value, self.room);
        let held = SlotValue { slot: Slot(self.header.slot), value, bytes: bytes.to_vec() };
        (held, known)
    }
}

/// Encodes and decodes the frames of one device.
#[derive(Debug)]
pub(crate) struct FrameCodec {
    shape: DeviceShape,
    frame: Vec<u8>,
    room: Vec<u8>,
}

impl FrameCodec {
    pub(crate) fn new(shape: DeviceShape) -> Self {
        Self {
            shape,
            frame: vec![0; shape.form.room_offset() + shape.room],
            room: vec![0; shape.room],
        }
    }

    pub(crate) const fn shape(&self) -> &DeviceShape {
        &self.shape
    }

    pub(crate) fn cells(&self) -> u64 {
        self.shape.cells.into()
    }

    /// Returns a header of type `kind` for a program, with all other fields zero.
    pub(crate) fn empty_header(&self, program: Program, kind: Type) -> Header {
        Header {
            kind,
            flags: match program {
                Program::Acceptor => 0,
                Program::Coordinator => COORDINATOR,
            },
            ..Header::new_submit(self.shape.group, Descriptor::NONE, 0)
        }
    }

    pub(crate) fn submit_header(&self, value: Descriptor) -> Header {
        Header::new_submit(self.shape.group, value, 0)
    }

    pub(crate) fn start(&self, ballot: PackedBallot, start: &Start) -> Header {
        let mut header = Header {
            slot: start.first.0,
            ballot,
            voted: start.limit.0,
            ..self.empty_header(Program::Coordinator, Type::Arm)
        };
        (header.value.kind, header.value.origin) = (start.quorum, start.members.into());
        header.flags |= if start.hint { HINT } else { 0 };
        header
    }

    /// Encodes a frame for the device. `bytes` must fit; longer values have been refused earlier.
    pub(crate) fn encode(&mut self, header: &Header, bytes: &[u8]) -> &[u8] {
        self.encode_between((self.shape.owner_address, self.shape.device_address), header, bytes)
    }

    /// Encodes a frame addressed to all devices, as this owner's device would send it.
    pub(crate) fn encode_for_all(&mut self, header: &Header, bytes: &[u8]) -> &[u8] {
        self.encode_between((self.shape.device_address, self.shape.all_hosts), header, bytes)
    }

    fn encode_between(
        &mut self,
        (from, to): (Address, Address),
        header: &Header,
        bytes: &[u8],
    ) -> &[u8] {
        self.room.fill(0);
        self.room[..bytes.len()].copy_from_slice(bytes);
        self.shape
            .form
            .write_frame(&mut self.frame, &from, &to, header, &self.room)
            .expect("a room of whole words, and a frame for it")
    }

    /// Decodes a frame from this group that is addressed to the owner, or to the device, which
    /// passed it on. Returns `None` if it is invalid. A frame whose source address is not the
    /// device's counts as [`FrameOrigin::Network`]; one with that address may still be forged
    /// ([offload-21]).
    pub(crate) fn decode<'a>(
        &self,
        came: FrameOrigin,
        frame: &'a [u8],
    ) -> Option<ReceivedFrame<'a>> {
        let DeviceShape { device_address: own, owner_address: owner, .. } = self.shape;
        let to = *frame.first_chunk()?;
        let admit = |listens: Address| {
            let setup = Setup {
                group: self.shape.group,
                room: self.shape.room,
                own_address: listens,
                // The device has already checked the destination.
                heard_group: to,
                owner,
            };
            parse_frame(&setup, Port::Owner, frame)
        };
        let said = admit(owner).or_else(|_| admit(own)).ok()?;
        let own = said.source().is_some_and(|from| match said.form {
            Encapsulation::Udp => from == own,
            Encapsulation::Raw => from.mac == own.mac,
        });
        Some(ReceivedFrame {
            header: said.header,
            room: said.room,
            origin: if own { came } else { FrameOrigin::Network },
        })
    }
}

/// Packs a ballot. Returns `None` if it does not fit or is zero.
pub(crate) fn pack_ballot(ballot: quorate_core::ballot::Ballot) -> Option<PackedBallot> {
    PackedBallot::pack(ballot).filter(|packed| *packed != PackedBallot::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8, port: u16) -> Address {
        Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port }
    }

    fn frames(form: Encapsulation) -> FrameCodec {
        FrameCodec::new(DeviceShape {
            group: 9,
            cells: 8,
            room: 32,
            form,
            device_address: address(1, 1000),
            owner_address: address(2, 2000),
            all_hosts: address(9, 1000),
        })
    }

    /// The source address distinguishes this owner's device from another member and from a station
    /// outside the group.
    #[test]
    fn source_address_tells_the_own_device_from_the_network() {
        for form in [Encapsulation::Udp, Encapsulation::Raw] {
            let frames = frames(form);
            let header = frames.submit_header(Descriptor::NONE);
            let mut buffer = [0; 200];
            let mut hear = |from, to: Address, header: &Header| {
                let frame = form.write_frame(&mut buffer, &from, &to, header, &[7; 32]);
                let frame = &*frame.unwrap();
                let hear = |came| frames.decode(came, frame).map(|heard| heard.origin);
                [FrameOrigin::LocalResponse, FrameOrigin::Network].map(hear)
            };
            let (own, owner, other) = (address(1, 1000), address(2, 2000), address(3, 1000));
            let (inside, network) = (Some(FrameOrigin::LocalResponse), Some(FrameOrigin::Network));
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
        for form in [Encapsulation::Udp, Encapsulation::Raw] {
            let mut frames = frames(form);
            let header = frames.submit_header(Descriptor::NONE);
            let frame = frames.encode_for_all(&header, b"1234").to_vec();
            let setup = Setup {
                group: 9,
                room: 32,
                own_address: address(5, 1000),
                heard_group: address(9, 1000).mac,
                owner: address(6, 2000),
            };
            let arrived = parse_frame(&setup, Port::Network, &frame).unwrap();
            assert_eq!(arrived.header.kind, Type::Submit);
            assert_eq!(&arrived.room[..4], b"1234");
        }
    }

    #[test]
    fn truncated_or_corrupted_frames_are_ignored() {
        for form in [Encapsulation::Udp, Encapsulation::Raw] {
            let mut frames = frames(form);
            let header = frames.empty_header(Program::Coordinator, Type::Ask);
            let frame = frames.encode(&header, b"1234").to_vec();
            for length in 0..frame.len() {
                assert!(
                    frames.decode(FrameOrigin::LocalResponse, &frame[..length]).is_none(),
                    "{length} bytes"
                );
            }
            let mut changed = frame.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert!(frames.decode(FrameOrigin::LocalResponse, &changed).is_none());
        }
    }
}
