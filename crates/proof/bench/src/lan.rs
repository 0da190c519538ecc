//! Bare programs on an emulated segment of a local network, which measure the throughput from
//! senders to receivers.
//!
//! A [`sender`] numbers its datagrams, a [`receiver`] counts those received and those missing
//! between, and [`figures`] are the figures of a row on all of them.

pub mod figures;
pub mod receiver;
pub mod sender;

use std::{net::SocketAddr, time::Duration};

use rustix::event::Timespec;
use serde::Deserialize;

pub use quorate_testbed::segment::Lan;

/// Payload of an Ethernet packet after the headers of IP and UDP.
pub const DATAGRAM_BYTES: usize = 1472;
/// Bytes that a link counts for it: those headers, and that of Ethernet.
pub const FRAME_BYTES: usize = 1514;
/// Group of the bare programs.
const GROUP: ([u8; 4], u16) = ([239, 81, 84, 70], 7461);
/// From the first datagrams on, until queues are as they stay.
pub const WARMUP: Duration = Duration::from_millis(500);
/// Sender and number of a datagram.
const HEAD_BYTES: usize = 12;

/// Path of datagrams to receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Each once, for all receivers of the group.
    Multicast,
    /// Each to one receiver: as many times as there are receivers.
    Unicast,
}

impl Way {
    /// As rows have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Unicast => "unicast",
        }
    }
}

/// Returns the group that all participants join.
pub fn group() -> SocketAddr {
    SocketAddr::from(GROUP)
}

/// Returns the port of a receiver's own datagrams.
pub const fn port() -> u16 {
    GROUP.1
}

/// Returns the head of a datagram.
fn head(sender: u32, number: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&sender.to_le_bytes());
    head[4..].copy_from_slice(&number.to_le_bytes());
    head
}

/// Returns sender and number of a datagram; `None` of a stranger's.
fn read_head(datagram: &[u8]) -> Option<(u32, u64)> {
    let (sender, rest) = datagram.split_first_chunk()?;
    let number = rest.first_chunk()?;
    (datagram.len() == DATAGRAM_BYTES)
        .then(|| (u32::from_le_bytes(*sender), u64::from_le_bytes(*number)))
}

fn timeout(count: i64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: count * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_says_whose_it_is() {
        let mut datagram = vec![0x51; DATAGRAM_BYTES];
        datagram[..HEAD_BYTES].copy_from_slice(&head(3, u64::MAX - 1));
        assert_eq!(read_head(&datagram), Some((3, u64::MAX - 1)));
        assert_eq!(read_head(&datagram[1..]), None);
        assert_eq!(read_head(&[]), None);
    }
}
