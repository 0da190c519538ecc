//! Bare sender: sends numbered datagrams to a multicast group or to each receiver, at a fixed rate
//! or as fast as the link accepts them.

use std::{
    io,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use quorate_packets::socket::{Sent, Udp};
use rustix::event::{PollFd, PollFlags, poll};

use super::{DATAGRAM_BYTES, group, head, timeout};

/// Maximum number of datagrams per system call.
pub const AT_ONCE: u32 = 44;
/// Size of the receive buffer of a socket that only sends, in bytes.
const RECEIVE_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub struct SenderOptions {
    pub interface: String,
    /// Index of this sender among all senders, from 0.
    pub sender: u32,
    /// Receivers, each of which gets a copy of every datagram; empty for the multicast group.
    pub to: Vec<SocketAddr>,
    /// Number of datagrams per second; `None` for unlimited.
    pub per_second: Option<u64>,
    /// Number of datagrams sent in one system call; at most [`AT_ONCE`].
    pub burst: u32,
    pub time: Duration,
}

/// State of a sender, with the next datagram numbers and the buffer for a system call.
struct Run {
    sender: u32,
    next: Vec<u64>,
    bytes: Vec<u8>,
}

pub fn send(sending: &SenderOptions) -> io::Result<()> {
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
            let ahead = sending.per_second.map(|rate| send_time(sent - left as u64, rate));
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
    /// Sends up to `count` datagrams and returns the number sent. Waits if the socket is full.
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
            // Datagrams dropped by a full device are lost, and receivers will miss their numbers.
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

/// Returns the time at which a datagram is due, relative to the start.
fn send_time(number: u64, per_second: u64) -> Duration {
    let nanos = u128::from(number) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_times_follow_from_the_rate() {
        assert_eq!(send_time(0, 8000), Duration::ZERO);
        assert_eq!(send_time(4, 8000), Duration::from_micros(500));
        assert_eq!(send_time(8000 * 3600, 8000), Duration::from_secs(3600));
        assert_eq!(send_time(u64::MAX, 1), Duration::from_nanos(u64::MAX));
    }
}
