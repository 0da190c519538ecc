//! Bare sender: numbered datagrams to a group or to each receiver, at a rate or as fast as the link
//! takes them.

use std::{
    io,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use quorate_packets::socket::{Sent, Udp};
use rustix::event::{PollFd, PollFlags, poll};

use super::{DATAGRAM_BYTES, group, head, timeout};

/// Maximum datagrams per call.
pub const AT_ONCE: u32 = 44;
/// Receive buffer of a socket that only sends.
const RECEIVE_BYTES: usize = 4096;

/// Parameters of a sender.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Network interface.
    pub interface: String,
    /// Index among all senders, from 0.
    pub sender: u32,
    /// Receivers, each of which gets a copy; empty for the multicast group.
    pub to: Vec<SocketAddr>,
    /// Datagrams per second; `None` for as many as the link takes.
    pub per_second: Option<u64>,
    /// Datagrams sent at once in one call; at most [`AT_ONCE`].
    pub burst: u32,
    /// Duration of sending.
    pub time: Duration,
}

/// Next numbers, and the bytes of a call.
struct Run {
    sender: u32,
    next: Vec<u64>,
    bytes: Vec<u8>,
}

/// Sends until the time is over.
pub fn send(sending: &Sending) -> io::Result<()> {
    let socket = Udp::bind("0.0.0.0:0".parse().expect("an address"), RECEIVE_BYTES);
    let socket = socket.map_err(io::Error::other)?;
    let through = socket.send_groups_at(&sending.interface);
    through.map_err(io::Error::other)?;
    let group = [group()];
    let to = match &sending.to[..] {
        [] => &group[..],
        some => some,
    };
    let mut run = Run {
        sender: sending.sender,
        next: vec![0; to.len()],
        bytes: vec![0x51; DATAGRAM_BYTES * AT_ONCE as usize],
    };
    let begun = Instant::now();
    let mut sent = 0;
    let count = sending.burst.clamp(1, AT_ONCE) as usize;
    for place in (0..to.len()).cycle() {
        let mut left = 0;
        while left < count {
            let elapsed = begun.elapsed();
            if elapsed >= sending.time {
                return Ok(());
            }
            let ahead = sending.per_second.map(|rate| moment(sent - left as u64, rate));
            if let Some(ahead) = ahead.and_then(|moment| moment.checked_sub(elapsed))
                && !ahead.is_zero()
            {
                thread::sleep(ahead.min(sending.time - elapsed));
                continue;
            }
            let some = run.send(&socket, place, to[place], count - left)?;
            left += some;
            sent += some as u64;
        }
    }
    Ok(())
}

impl Run {
    /// Sends `count` datagrams and returns how many were sent. Waits if the socket is full.
    fn send(
        &mut self,
        socket: &Udp,
        place: usize,
        to: SocketAddr,
        count: usize,
    ) -> io::Result<usize> {
        let bytes = &mut self.bytes[..count * DATAGRAM_BYTES];
        for (number, datagram) in (self.next[place]..).zip(bytes.chunks_mut(DATAGRAM_BYTES)) {
            let head = head(self.sender, number);
            datagram[..head.len()].copy_from_slice(&head);
        }
        let left = match socket.send(to, bytes, DATAGRAM_BYTES)? {
            // Datagrams dropped by a full device are lost; their numbers will be missing.
            Sent::All | Sent::Dropped(_) => count,
            Sent::Blocked(left) => {
                let mut waits = [PollFd::new(socket, PollFlags::OUT)];
                poll(&mut waits, Some(&timeout(100)))?;
                left
            }
            Sent::TooLong => {
                let why = format!("datagrams of {DATAGRAM_BYTES} bytes are too long here");
                return Err(io::Error::other(why));
            }
        };
        self.next[place] += left as u64;
        Ok(left)
    }
}

/// Returns when a datagram is due, from the start.
fn moment(number: u64, per_second: u64) -> Duration {
    let nanos = u128::from(number) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_a_rate_have_moments() {
        assert_eq!(moment(0, 8000), Duration::ZERO);
        assert_eq!(moment(4, 8000), Duration::from_micros(500));
        assert_eq!(moment(8000 * 3600, 8000), Duration::from_secs(3600));
        assert_eq!(moment(u64::MAX, 1), Duration::from_nanos(u64::MAX));
    }
}
