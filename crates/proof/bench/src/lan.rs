//! Bare programs on an emulated local segment. They measure the throughput from senders to
//! receivers.
//!
//! A [`sender`] numbers its datagrams, a [`receiver`] counts the received and missing ones, and
//! [`figures`] summarizes the counts for a row.

pub mod figures;
pub mod receiver;
pub mod sender;

use std::{net::SocketAddr, time::Duration};

use rustix::event::Timespec;
use serde::Deserialize;

pub use quorate_testbed::segment::Lan;

/// Maximum UDP payload of an Ethernet packet, in bytes.
pub const DATAGRAM_BYTES: usize = 1472;
/// Length of a full datagram on the link, including IP, UDP and Ethernet headers, in bytes.
pub const FRAME_BYTES: usize = 1514;
const MULTICAST_GROUP: ([u8; 4], u16) = ([239, 81, 84, 70], 7461);
/// Time after the first datagram until the queues are in a steady state.
pub const WARMUP_DURATION: Duration = Duration::from_millis(500);
/// Length of the head of a datagram: sender index and datagram number.
const HEADER_BYTES: usize = 12;

/// Transport of datagrams from senders to receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DatagramTransport {
    /// The sender sends each datagram once, to the group that all receivers have joined.
    Multicast,
    /// The sender sends a copy of each datagram to every receiver.
    Unicast,
}

impl DatagramTransport {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Unicast => "unicast",
        }
    }
}

/// Returns the multicast group that all receivers join.
pub fn multicast_group() -> SocketAddr {
    SocketAddr::from(MULTICAST_GROUP)
}

/// Returns the port at which receivers expect unicast datagrams.
pub const fn port() -> u16 {
    MULTICAST_GROUP.1
}

fn encode_header(sender: u32, number: u64) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&sender.to_le_bytes());
    head[4..].copy_from_slice(&number.to_le_bytes());
    head
}

/// Decodes the sender index and number of a datagram; `None` if its length shows that another
/// program sent it.
fn decode_header(datagram: &[u8]) -> Option<(u32, u64)> {
    let (sender, rest) = datagram.split_first_chunk()?;
    let number = rest.first_chunk()?;
    (datagram.len() == DATAGRAM_BYTES)
        .then(|| (u32::from_le_bytes(*sender), u64::from_le_bytes(*number)))
}

fn socket_timeout(count: i64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: count * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_head_has_sender_and_number() {
        let mut datagram = vec![0x51; DATAGRAM_BYTES];
        datagram[..HEADER_BYTES].copy_from_slice(&encode_header(3, u64::MAX - 1));
        assert_eq!(decode_header(&datagram), Some((3, u64::MAX - 1)));
        assert_eq!(decode_header(&datagram[1..]), None);
        assert_eq!(decode_header(&[]), None);
    }
}
