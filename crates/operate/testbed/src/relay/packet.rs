//! Parses the destination of an IP packet.

use std::net::Ipv4Addr;

const HEADER_BYTES: usize = 20;
/// Byte range of the destination address within the header.
const DESTINATION_RANGE: std::ops::Range<usize> = 16..20;

/// Returns the destination address; `None` if the packet is not IPv4.
pub fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let version = packet.first()? >> 4;
    if version != 4 || packet.len() < HEADER_BYTES {
        return None;
    }
    let bytes: [u8; 4] = packet.get(DESTINATION_RANGE)?.try_into().ok()?;
    Some(Ipv4Addr::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv4_packets_have_a_destination() {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 0, 0, 3]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(10, 0, 0, 3)));
        assert_eq!(destination(&packet[..19]), None);
        assert_eq!(destination(&[]), None);
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None, "IPv6");
    }
}
