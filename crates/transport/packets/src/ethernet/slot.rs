//! A slot of the receive ring: the kernel's description of a frame, followed by the frame.
//!
//! The layout is that of TPACKET_V2 in the kernel's `linux/if_packet.h`, in the machine's byte
//! order. The contents are not trusted: if an offset or a length points outside of the slot, the
//! frame is refused.

use crate::ethernet::{
    Mac,
    frame::{self, Frame},
    refusal::FrameRefusal,
};

/// Maximum number of bytes before a frame in its slot: the kernel's header, the address, and space
/// for alignment and for the Ethernet header.
pub const SLOT_HEADER_BYTES: usize = 96;

// Offsets of `struct tpacket2_hdr`.
const STATUS_OFFSET: usize = 0;
const WIRE_BYTES_OFFSET: usize = 4;
const HELD_BYTES_OFFSET: usize = 8;
const FRAME_START_OFFSET: usize = 12;
const VLAN_TAG_OFFSET: usize = 24;
/// Offset of `sll_pkttype` in the `struct sockaddr_ll` that follows.
const PACKET_TYPE_OFFSET: usize = 32 + 10;

/// Status bit: the frame had a VLAN tag, which the header now contains (`TP_STATUS_VLAN_VALID`).
const HAS_VLAN_STATUS: u32 = 1 << 4;
/// Bits of a tag that contain the VLAN id. If they are zero, the tag is only a priority.
const VLAN_ID: u16 = 0x0fff;
/// `PACKET_HOST`: the frame is addressed to this interface.
const PACKET_HOST: u8 = 0;
/// `PACKET_MULTICAST`: the frame is addressed to a multicast group.
const PACKET_MULTICAST: u8 = 2;

/// A filter for the frames to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFilter {
    pub ether_type: u16,
    /// Multicast group to accept, in addition to frames addressed to this interface.
    pub group: Option<Mac>,
}

/// Parses the frame in a slot. Fails with the reason if it is not to be accepted.
pub fn parse_slot<'a>(slot: &'a [u8], hears: &FrameFilter) -> Result<Frame<'a>, FrameRefusal> {
    let word = |at| u32_at(slot, at).ok_or(FrameRefusal::Slot);
    let half = |at| u16_at(slot, at).ok_or(FrameRefusal::Slot);
    let held = word(HELD_BYTES_OFFSET)?;
    if word(WIRE_BYTES_OFFSET)? != held {
        return Err(FrameRefusal::Cut);
    }
    // The device or the kernel has removed a tag from the frame. If the tag was only a priority,
    // the frame is accepted.
    if word(STATUS_OFFSET)? & HAS_VLAN_STATUS != 0 && half(VLAN_TAG_OFFSET)? & VLAN_ID != 0 {
        return Err(FrameRefusal::Vlan);
    }
    let held = usize::try_from(held).map_err(|_| FrameRefusal::Slot)?;
    let from = usize::from(half(FRAME_START_OFFSET)?);
    let bytes = from.checked_add(held).and_then(|to| slot.get(from..to));
    let frame = frame::read(bytes.ok_or(FrameRefusal::Slot)?, hears.ether_type)?;
    match *slot.get(PACKET_TYPE_OFFSET).ok_or(FrameRefusal::Slot)? {
        PACKET_HOST => Ok(frame),
        // The interface may receive groups that this socket has not joined.
        PACKET_MULTICAST if hears.group == Some(frame.destination) => Ok(frame),
        _ => Err(FrameRefusal::Elsewhere),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use libc::{sockaddr_ll, tpacket2_hdr};

    use super::*;
    use crate::ethernet::frame::{ETHER_TYPE, encode_header};

    const GROUP: Mac = Mac([3, 0, 0, 0, 0, 9]);
    const HEARS: FrameFilter = FrameFilter { ether_type: ETHER_TYPE, group: Some(GROUP) };
    const FROM: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const FRAME: usize = 66;

    /// Returns a slot with a datagram of 4 bytes in a frame of 60, as the kernel fills it.
    fn slot(to: Mac, audience: u8) -> Vec<u8> {
        let mut slot = vec![0; 1584];
        let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
        put(STATUS_OFFSET, &1_u32.to_ne_bytes());
        put(WIRE_BYTES_OFFSET, &60_u32.to_ne_bytes());
        put(HELD_BYTES_OFFSET, &60_u32.to_ne_bytes());
        put(FRAME_START_OFFSET, &(FRAME as u16).to_ne_bytes());
        put(PACKET_TYPE_OFFSET, &[audience]);
        put(FRAME, &encode_header(to, FROM, ETHER_TYPE, 4));
        put(FRAME + 16, b"data");
        slot
    }

    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut slot = slot(Mac([2; 6]), PACKET_HOST);
        slot[at..at + bytes.len()].copy_from_slice(bytes);
        slot
    }

    fn check(slot: &[u8], expected: Result<&[u8], FrameRefusal>) {
        let datagram = parse_slot(slot, &HEARS).map(|frame| frame.datagram);
        assert_eq!(datagram, expected);
    }

    #[test]
    fn offsets_match_the_system_headers() {
        assert_eq!(STATUS_OFFSET, offset_of!(tpacket2_hdr, tp_status));
        assert_eq!(WIRE_BYTES_OFFSET, offset_of!(tpacket2_hdr, tp_len));
        assert_eq!(HELD_BYTES_OFFSET, offset_of!(tpacket2_hdr, tp_snaplen));
        assert_eq!(FRAME_START_OFFSET, offset_of!(tpacket2_hdr, tp_mac));
        assert_eq!(VLAN_TAG_OFFSET, offset_of!(tpacket2_hdr, tp_vlan_tci));
        let address = libc::TPACKET2_HDRLEN - size_of::<sockaddr_ll>();
        assert_eq!(PACKET_TYPE_OFFSET, address + offset_of!(sockaddr_ll, sll_pkttype));
        assert_eq!(HAS_VLAN_STATUS, libc::TP_STATUS_VLAN_VALID);
        assert_eq!([PACKET_HOST, PACKET_MULTICAST], [libc::PACKET_HOST, libc::PACKET_MULTICAST]);
        const { assert!(libc::TPACKET2_HDRLEN + 16 + 16 <= SLOT_HEADER_BYTES) };
    }

    #[test]
    fn frames_for_this_node_or_its_group_are_accepted() {
        let mine = slot(Mac([2; 6]), PACKET_HOST);
        let frame = parse_slot(&mine, &HEARS).unwrap();
        assert_eq!((frame.from, frame.datagram), (FROM, &b"data"[..]));
        check(&slot(GROUP, PACKET_MULTICAST), Ok(b"data"));
    }

    #[test]
    fn frames_for_others_are_refused() {
        let other = Mac([3, 0, 0, 0, 0, 8]);
        check(&slot(other, PACKET_MULTICAST), Err(FrameRefusal::Elsewhere));
        check(&slot(Mac::BROADCAST, libc::PACKET_BROADCAST), Err(FrameRefusal::Elsewhere));
        // The interface receives everything (OTHERHOST), or what this machine sends (OUTGOING).
        check(&slot(Mac([2; 6]), libc::PACKET_OTHERHOST), Err(FrameRefusal::Elsewhere));
        check(&slot(GROUP, libc::PACKET_OUTGOING), Err(FrameRefusal::Elsewhere));
        let alone = FrameFilter { group: None, ..HEARS };
        let refused = parse_slot(&slot(GROUP, PACKET_MULTICAST), &alone).map(|_| ());
        assert_eq!(refused, Err(FrameRefusal::Elsewhere));
    }

    #[test]
    fn vlan_tag_is_refused_unless_it_is_only_a_priority() {
        let tagged = |tag: u16| {
            let mut slot = with(VLAN_TAG_OFFSET, &tag.to_ne_bytes());
            slot[..4].copy_from_slice(&(1 | HAS_VLAN_STATUS).to_ne_bytes());
            slot
        };
        check(&tagged(5), Err(FrameRefusal::Vlan));
        check(&tagged(0xe005), Err(FrameRefusal::Vlan));
        check(&tagged(0xe000), Ok(b"data"));
        // Without the status bit the tag has no meaning.
        check(&with(VLAN_TAG_OFFSET, &5_u16.to_ne_bytes()), Ok(b"data"));
    }

    #[test]
    fn a_frame_outside_of_its_slot_is_refused() {
        let lengths = |length: u32| {
            let mut slot = with(WIRE_BYTES_OFFSET, &length.to_ne_bytes());
            slot[HELD_BYTES_OFFSET..HELD_BYTES_OFFSET + 4].copy_from_slice(&length.to_ne_bytes());
            slot
        };
        check(&lengths(1584), Err(FrameRefusal::Slot));
        check(&lengths(u32::MAX), Err(FrameRefusal::Slot));
        check(&lengths(15), Err(FrameRefusal::Short));
        check(&with(FRAME_START_OFFSET, &1525_u16.to_ne_bytes()), Err(FrameRefusal::Slot));
        check(&with(FRAME_START_OFFSET, &u16::MAX.to_ne_bytes()), Err(FrameRefusal::Slot));
        check(&with(WIRE_BYTES_OFFSET, &61_u32.to_ne_bytes()), Err(FrameRefusal::Cut));
        for cut in 0..FRAME + 60 {
            check(&slot(GROUP, PACKET_MULTICAST)[..cut], Err(FrameRefusal::Slot));
        }
    }
}
