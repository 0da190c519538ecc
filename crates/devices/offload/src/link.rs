//! Encapsulation of a header: in Ethernet, IPv4 and UDP, or in Ethernet alone with a four-byte shim
//! of length and checksum.
//!
//! In both forms, the header begins at the same offset within a 64-bit word: at byte 42 after UDP,
//! and at byte 18 in a raw frame.

use crate::{
    Header, Reason,
    checksum::{ones_complement_sum, udp_checksum},
    header::HEADER_BYTES,
};

/// EtherType of raw frames: *local experimental 2* of IEEE 802. The packet plane uses experimental
/// 1.
pub const ETHER_TYPE: u16 = 0x88b6;
const ETHER_TYPE_IP: u16 = 0x0800;
/// EtherTypes of VLAN tags, single and stacked.
const ETHER_TYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
/// First byte of the only accepted IP header: version 4, five words, no options.
const IP_VERSION_AND_LENGTH: u8 = 0x45;
const IP_OFFSET: usize = 14;
const UDP_OFFSET: usize = 34;
const SHIM_OFFSET: usize = 14;
/// Bits that mark a fragment: "more fragments" or an offset. The "don't fragment" bit is allowed.
const FRAGMENT_BITS: u16 = 0xbfff;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// MAC address of a station, or of a group of stations.
    pub mac: [u8; 6],
    /// Unused in raw frames.
    pub ip: [u8; 4],
    /// UDP port. Unused in raw frames.
    pub port: u16,
}

impl Address {
    /// Returns whether this is the address of a single station, so that a response may be sent to
    /// it ([offload-16]).
    const fn is_unicast(&self, form: Encapsulation) -> bool {
        let mac = self.mac[0] & 1 == 0;
        match form {
            Encapsulation::Udp => mac && self.ip[0] != 0 && self.ip[0] < 224,
            Encapsulation::Raw => mac,
        }
    }
}

/// Returns the two multicast addresses of a group in raw frames: that of all devices, and that of
/// all devices and the clients that count votes themselves ([offload-15]).
pub const fn multicast_addresses(group: u32) -> [Address; 2] {
    let [a, b, c, d] = group.to_be_bytes();
    const fn station(mac: [u8; 6]) -> Address {
        Address { mac, ip: [0; 4], port: 0 }
    }
    let of = [0x03, b'Q', a, b, c, d & !1];
    let decisions = [0x03, b'Q', a, b, c, d | 1];
    [station(of), station(decisions)]
}

/// Encapsulation of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    Udp,
    /// Ethernet, then two bytes each for the length and the checksum.
    Raw,
}

impl Encapsulation {
    pub const fn header_offset(self) -> usize {
        match self {
            Self::Udp => 42,
            Self::Raw => 18,
        }
    }

    pub const fn room_offset(self) -> usize {
        self.header_offset() + HEADER_BYTES
    }

    /// Determines the form of a frame from its headers, without checking the value area. Refuses a
    /// frame with an incomplete header with [`Reason::Length`].
    pub fn parse(frame: &[u8], port: u16) -> Result<Self, Reason> {
        let form = match word_at(frame, 12)? {
            ETHER_TYPE_IP => {
                Self::check_udp(frame, port)?;
                Self::Udp
            }
            ETHER_TYPE => Self::Raw,
            tag if ETHER_TYPES_VLAN.contains(&tag) => return Err(Reason::Vlan),
            _ => return Err(Reason::Foreign),
        };
        if frame.len() < form.room_offset() {
            return Err(Reason::Length);
        }
        Ok(form)
    }

    /// Checks the headers from the outermost one inwards, because only the first fragment contains
    /// the ports.
    fn check_udp(frame: &[u8], port: u16) -> Result<(), Reason> {
        let ip: &[u8] = frame.get(IP_OFFSET..UDP_OFFSET).ok_or(Reason::Length)?;
        match ip[0] {
            IP_VERSION_AND_LENGTH => {}
            0x46..=0x4f => return Err(Reason::Options),
            _ => return Err(Reason::Foreign),
        }
        if ip[9] != PROTOCOL_UDP {
            return Err(Reason::Foreign);
        }
        if word_at(ip, 6)? & FRAGMENT_BITS != 0 {
            return Err(Reason::Fragment);
        }
        if frame.len() < Self::Udp.header_offset() {
            return Err(Reason::Length);
        }
        if word_at(frame, UDP_OFFSET + 2)? != port {
            return Err(Reason::Foreign);
        }
        Ok(())
    }

    /// Returns whether all length fields match the frame, so that nothing follows the value area.
    pub(crate) fn has_room(self, frame: &[u8], room: usize) -> bool {
        let payload = HEADER_BYTES + room;
        let says = |at, length| word_at(frame, at).is_ok_and(|said| usize::from(said) == length);
        frame.len() == self.room_offset() + room
            && match self {
                Self::Udp => says(IP_OFFSET + 2, 28 + payload) && says(UDP_OFFSET + 4, 8 + payload),
                Self::Raw => says(14, payload),
            }
    }

    /// Verifies the IP and UDP checksums, or the shim's checksum over everything that follows it.
    /// The UDP and shim checksums are mandatory.
    pub fn verify_checksums(self, frame: &[u8]) -> Result<(), Reason> {
        match self {
            Self::Udp => {
                let header = ones_complement_sum(0, &frame[IP_OFFSET..UDP_OFFSET]) == 0xffff;
                let length = (frame.len() - UDP_OFFSET).to_be_bytes();
                let pseudo = ones_complement_sum(
                    ones_complement_sum(0, &frame[IP_OFFSET + 12..UDP_OFFSET]),
                    &length,
                );
                let pseudo = ones_complement_sum(pseudo, &[0, PROTOCOL_UDP]);
                let whole = ones_complement_sum(pseudo, &frame[UDP_OFFSET..]) == 0xffff;
                let there = frame[UDP_OFFSET + 6..UDP_OFFSET + 8] != [0, 0];
                (header && whole && there).then_some(()).ok_or(Reason::Checksum)
            }
            Self::Raw => {
                let whole = ones_complement_sum(0, &frame[SHIM_OFFSET..]) == 0xffff;
                let there = frame[SHIM_OFFSET + 2..SHIM_OFFSET + 4] != [0, 0];
                (whole && there).then_some(()).ok_or(Reason::Checksum)
            }
        }
    }

    pub(crate) fn destination_mac(frame: &[u8]) -> [u8; 6] {
        core::array::from_fn(|at| frame[at])
    }

    /// Returns the source address, or `None` if it is not that of a single station.
    pub(crate) fn from(self, frame: &[u8]) -> Option<Address> {
        let mut from =
            Address { mac: core::array::from_fn(|at| frame[6 + at]), ..Address::default() };
        if self == Self::Udp {
            from.ip = core::array::from_fn(|at| frame[IP_OFFSET + 12 + at]);
            from.port = u16::from_be_bytes([frame[UDP_OFFSET], frame[UDP_OFFSET + 1]]);
        }
        from.is_unicast(self).then_some(from)
    }

    /// Rewrites addresses, header and checksums of a frame in place. The frame must already contain
    /// the value area, whose sum in `header` is not recomputed.
    pub(crate) fn rewrite_frame(
        self,
        frame: &mut [u8],
        from: &Address,
        to: &Address,
        header: &Header,
    ) {
        frame[..6].copy_from_slice(&to.mac);
        frame[6..12].copy_from_slice(&from.mac);
        let (at, bytes) = (self.header_offset(), header.bytes());
        frame[at..at + HEADER_BYTES].copy_from_slice(&bytes);
        if self == Self::Raw {
            // [offload-16] Computed like the UDP checksum, but without addresses, because raw
            // frames have only MAC addresses.
            let shim = ones_complement_sum(header.sum, &frame[SHIM_OFFSET..SHIM_OFFSET + 2]);
            let whole = udp_checksum(ones_complement_sum(shim, &bytes));
            frame[SHIM_OFFSET + 2..SHIM_OFFSET + 4].copy_from_slice(&whole.to_be_bytes());
            return;
        }
        frame[26..30].copy_from_slice(&from.ip);
        frame[30..34].copy_from_slice(&to.ip);
        frame[24..26].fill(0);
        let ip = !ones_complement_sum(0, &frame[IP_OFFSET..UDP_OFFSET]);
        frame[24..26].copy_from_slice(&ip.to_be_bytes());

        frame[34..36].copy_from_slice(&from.port.to_be_bytes());
        frame[36..38].copy_from_slice(&to.port.to_be_bytes());
        let pseudo = ones_complement_sum(header.sum, &frame[26..34]);
        let pseudo =
            ones_complement_sum(ones_complement_sum(pseudo, &frame[38..40]), &[0, PROTOCOL_UDP]);
        let ports = ones_complement_sum(pseudo, &frame[34..40]);
        let whole = udp_checksum(ones_complement_sum(ports, &bytes));
        frame[40..42].copy_from_slice(&whole.to_be_bytes());
    }

    /// Writes a complete frame as clients and owners send it. Returns `None` if the value area is
    /// too long, if its size is not a multiple of 8, or if the buffer is too short.
    pub fn write_frame<'a>(
        self,
        buffer: &'a mut [u8],
        from: &Address,
        to: &Address,
        header: &Header,
        room: &[u8],
    ) -> Option<&'a mut [u8]> {
        if room.len() > crate::header::ROOM_BYTES_MAX || !room.len().is_multiple_of(8) {
            return None;
        }
        let frame = buffer.get_mut(..self.room_offset() + room.len())?;
        let payload = u16::try_from(HEADER_BYTES + room.len()).ok()?;
        match self {
            Self::Udp => {
                frame[12..14].copy_from_slice(&ETHER_TYPE_IP.to_be_bytes());
                frame[14..24].copy_from_slice(&[
                    IP_VERSION_AND_LENGTH,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0x40,
                    0,
                    64,
                    17,
                ]);
                frame[16..18].copy_from_slice(&(28 + payload).to_be_bytes());
                frame[38..40].copy_from_slice(&(8 + payload).to_be_bytes());
            }
            Self::Raw => {
                frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
                frame[SHIM_OFFSET..SHIM_OFFSET + 2].copy_from_slice(&payload.to_be_bytes());
            }
        }
        frame[self.room_offset()..].copy_from_slice(room);
        let header = Header { sum: ones_complement_sum(0, room), ..*header };
        self.rewrite_frame(frame, from, to, &header);
        Some(frame)
    }
}

fn word_at(bytes: &[u8], at: usize) -> Result<u16, Reason> {
    match bytes.get(at..at + 2) {
        Some([high, low]) => Ok(u16::from_be_bytes([*high, *low])),
        _ => Err(Reason::Length),
    }
}
