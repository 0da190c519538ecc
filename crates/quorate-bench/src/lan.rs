//! Emulated segments of a local network: how fast their links are, and bare programs that find out what one sender
//! gets to all receivers.

use std::{
    fmt,
    io::{self, Write as _},
    net::SocketAddr,
    time::{Duration, Instant},
};

use quorate_packets::socket::{Sent, Udp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const MEGABIT: u64 = 1_000_000;
/// What fits into a packet of Ethernet beside the headers of IP and UDP.
const DATAGRAM_BYTES: usize = 1472;
/// Datagrams of one call.
const AT_ONCE: usize = 44;
/// Where the bare programs meet.
const GROUP: ([u8; 4], u16) = ([239, 81, 84, 70], 7461);
/// What a receiver's kernel keeps.
const RECEIVE_BYTES: usize = 16 << 20;
/// From the first datagram on, until queues are as they stay.
pub(crate) const WARMUP: Duration = Duration::from_millis(500);
/// A receiver that hears nothing for so long hears nobody.
const SILENCE: Duration = Duration::from_secs(5);

/// A segment: a switch, and a link of the same speed to each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lan {
    megabits: u64,
}

impl Lan {
    /// `100mbit`, `1gbit`.
    pub fn named(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let number: u64 = number.parse().ok()?;
        let megabits = match unit {
            "mbit" => number,
            "gbit" => number.checked_mul(1000)?,
            _ => return None,
        };
        (1..=100_000)
            .contains(&megabits)
            .then_some(Self { megabits })
    }

    /// As on the command line.
    pub fn name(&self) -> String {
        match (self.megabits / 1000, self.megabits % 1000) {
            (gigabits, 0) => format!("{gigabits}gbit"),
            _ => format!("{}mbit", self.megabits),
        }
    }

    /// Of each link, in both directions.
    pub const fn megabits(&self) -> u64 {
        self.megabits
    }

    /// What `tc` is told of a link: bytes that may leave at once, and those that wait.
    pub(crate) fn bucket(&self) -> String {
        let bits = self.megabits * MEGABIT;
        // A millisecond, and at least a packet that the device cuts.
        let burst = (bits / 8 / 1000).max(16 << 10);
        format!("rate {bits}bit burst {burst} limit {}", 4 << 20)
    }
}

impl fmt::Display for Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabits = self.megabits;
        write!(
            f,
            "emulated segment: {megabits} Mbit/s from each node to the switch, and from the switch to each node"
        )
    }
}

fn group() -> SocketAddr {
    SocketAddr::from(GROUP)
}

/// Sends to all who hear, as much as the link takes.
pub fn send(interface: &str, time: Duration) -> io::Result<()> {
    let socket = Udp::bind("0.0.0.0:0".parse().expect("an address"), 4096);
    let socket = socket.map_err(io::Error::other)?;
    socket.send_groups_at(interface).map_err(io::Error::other)?;
    let bytes = vec![0x51; DATAGRAM_BYTES * AT_ONCE];
    let until = Instant::now() + time;
    while Instant::now() < until {
        if socket.send(group(), &bytes, DATAGRAM_BYTES)? != Sent::All {
            let mut waits = [PollFd::new(&socket, PollFlags::OUT)];
            poll(&mut waits, Some(&millis(100)))?;
        }
    }
    Ok(())
}

/// Says that it hears, and then how many bytes of datagrams came in how many nanoseconds.
pub fn receive(interface: &str, time: Duration) -> io::Result<()> {
    let socket = Udp::join(group(), interface, RECEIVE_BYTES);
    let mut socket = socket.map_err(io::Error::other)?;
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    let mut heard = Instant::now();
    let mut first: Option<Instant> = None;
    let mut begun: Option<Instant> = None;
    let mut bytes = 0_u64;
    loop {
        let now = Instant::now();
        if let Some(begun) = begun.filter(|begun| now - *begun >= time) {
            return writeln!(out, "{bytes} {}", (now - begun).as_nanos());
        }
        if now - heard > SILENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was heard"));
        }
        let mut count = 0;
        while socket.receive(|_, datagram| count += datagram.len() as u64)? > 0 {}
        if count == 0 {
            let mut waits = [PollFd::new(&socket, PollFlags::IN)];
            poll(&mut waits, Some(&millis(20)))?;
            continue;
        }
        heard = now;
        if begun.is_some() {
            bytes += count;
        } else if now - *first.get_or_insert(now) >= WARMUP {
            begun = Some(now);
        }
    }
}

fn millis(count: i64) -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: count * 1_000_000,
    }
}

/// Bytes per second of what a receiver said.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn rate(said: &str) -> Option<f64> {
    let mut words = said.split_whitespace().map(str::parse::<u64>);
    let (bytes, nanos) = (words.next()?.ok()?, words.next()?.ok()?);
    (nanos > 0).then(|| bytes as f64 * 1e9 / nanos as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_have_names() {
        let name = |text| Lan::named(text).map(|lan| (lan.name(), lan.megabits()));
        assert_eq!(name("1gbit"), Some(("1gbit".to_owned(), 1000)));
        assert_eq!(name("100mbit"), Some(("100mbit".to_owned(), 100)));
        assert_eq!(name("2500mbit"), Some(("2500mbit".to_owned(), 2500)));
        for bad in [
            "",
            "1",
            "gbit",
            "0mbit",
            "1kbit",
            "101gbit",
            "-1gbit",
            "99999999999999999999gbit",
        ] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_receiver_says_is_a_rate() {
        assert_eq!(rate("1000 500000000\n"), Some(2000.0));
        assert_eq!(rate("1000 0"), None);
        assert_eq!(rate("nothing"), None);
    }

    /// As `tc` wants it.
    #[test]
    fn a_bucket_holds_a_millisecond() {
        let bucket = |text| Lan::named(text).unwrap().bucket();
        assert_eq!(
            bucket("1gbit"),
            "rate 1000000000bit burst 125000 limit 4194304"
        );
        assert_eq!(
            bucket("100mbit"),
            "rate 100000000bit burst 16384 limit 4194304"
        );
    }
}
