//! Bare sender: sends numbered datagrams to a multicast group or to each receiver, at a fixed rate
//! or as fast as the link accepts them.

use std::{
    io,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use quorate_packets::socket::{SendResult, Udp};
use rustix::event::{PollFd, PollFlags, poll};

use super::{DATAGRAM_BYTES, encode_header, multicast_group, socket_timeout};

/// Maximum number of datagrams per system call.
pub const DATAGRAMS_PER_CALL_MAX: u32 = 44;
/// Size of the receive buffer of a socket that only sends, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub struct SenderOptions {
    pub interface: String,
    /// Index of this sender among all senders, from 0.
    pub sender_index: u32,
    /// Receivers, each of which gets a copy of every datagram; empty for the multicast group.
    pub receivers: Vec<SocketAddr>,
    /// Number of datagrams per second; `None` for unlimited.
    pub datagrams_per_second: Option<u64>,
    /// Number of datagrams sent in one system call; at most [`DATAGRAMS_PER_CALL_MAX`].
    pub burst_datagrams: u32,
    pub duration: Duration,
}

/// State of a sender, with the next datagram numbers and the buffer for a system call.
struct SenderState {
    sender: u32,
    next: Vec<u64>,
    bytes: Vec<u8>,
}

pub fn run_sender(sending: &SenderOptions) -> io::Result<()> {
    let socket = Udp::bind("0.0.0.0:0".parse().expect("an address"), RECEIVE_BUFFER_BYTES);
    let socket = socket.map_err(io::Error::other)?;
    let through = socket.set_group_interface(&sending.interface);
    through.map_err(io::Error::other)?;
    let group = [multicast_group()];
    let to = match &sending.receivers[..] {
        [] => &group[..],
        some => some,
    };
    let mut run = SenderState {
        sender: sending.sender_index,
        next: vec![0; to.len()],
        bytes: vec![0x51; DATAGRAM_BYTES * DATAGRAMS_PER_CALL_MAX as usize],
    };
    let begun = Instant::now();
    let mut sent = 0;
    let count = sending.burst_datagrams.clamp(1, DATAGRAMS_PER_CALL_MAX) as usize;
    for place in (0..to.len()).cycle() {
        let mut left = 0;
        while left < count {
            let elapsed = begun.elapsed();
            if elapsed >= sending.duration {
                return Ok(());
            }
            let ahead =
                sending.datagrams_per_second.map(|rate| send_time(sent - left as u64, rate));
            if let Some(ahead) = ahead.and_then(|moment| moment.checked_sub(elapsed))
                && !ahead.is_zero()
            {
                thread::sleep(ahead.min(sending.duration - elapsed));
                continue;
            }
            let some = run.send_datagrams(&socket, place, to[place], count - left)?;
            left += some;
            sent += some as u64;
        }
    }
    Ok(())
}

impl SenderState {
    /// Sends up to `count` datagrams and returns the number sent. Waits if the socket is full.
    fn send_datagrams(
        &mut self,
        socket: &Udp,
        place: usize,
        to: SocketAddr,
        count: usize,
    ) -> io::Result<usize> {
        let bytes = &mut self.bytes[..count * DATAGRAM_BYTES];
        for (number, datagram) in (self.next[place]..).zip(bytes.chunks_mut(DATAGRAM_BYTES)) {
            let head = encode_header(self.sender, number);
            datagram[..head.len()].copy_from_slice(&head);
        }
        let left = match socket.send(to, bytes, DATAGRAM_BYTES)? {
            // Datagrams dropped by a full device are lost, and receivers will miss their numbers.
            SendResult::All | SendResult::Dropped(_) => count,
            SendResult::Blocked(left) => {
                let mut waits = [PollFd::new(socket, PollFlags::OUT)];
                poll(&mut waits, Some(&socket_timeout(100)))?;
                left
            }
            SendResult::TooLong => {
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
