//! Bare receiver: counts datagrams for a fixed time, and detects lost ones by gaps in their
//! numbers.

use std::{
    fmt,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    str::FromStr,
    time::{Duration, Instant},
};

use quorate_packets::socket::Udp;
use rustix::event::{PollFd, PollFlags, poll};

use super::{Way, group, port, read_head, timeout};

const RECEIVE_BYTES: usize = 16 << 20;
/// Maximum time to wait for any datagram, and for the first datagram of every sender.
const SILENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Listening {
    pub interface: String,
    /// Transport, which determines whether the receiver joins the multicast group.
    pub way: Way,
    /// Number of senders. The receiver starts to count only after it has received a datagram from
    /// each.
    pub senders: u32,
    /// Time between the first datagram of the last sender and the start of counting.
    pub warmup: Duration,
    /// Time for which datagrams are counted.
    pub time: Duration,
}

/// Counts of a receiver, printed as `BYTES NANOSECONDS DATAGRAMS NUMBERS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Total size of the counted datagrams, without headers.
    pub bytes: u64,
    /// Time for which datagrams were counted, in nanoseconds.
    pub nanos: u64,
    pub datagrams: u64,
    /// Number of datagrams that would have arrived without loss, counted from each sender's first
    /// number to its last.
    pub numbers: u64,
}

/// First and last datagram number received from one sender.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u64,
    last: u64,
}

#[derive(Debug)]
struct Tally {
    spans: Vec<Option<Span>>,
    bytes: u64,
    datagrams: u64,
}

/// Runs a receiver. Prints `ready` when it listens, `begun` when it starts to count, and finally
/// the [`Reception`].
pub fn receive(listening: &Listening) -> io::Result<()> {
    let mut socket = match listening.way {
        Way::Multicast => Udp::join(group(), &listening.interface, RECEIVE_BYTES),
        Way::Unicast => {
            let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port()));
            Udp::bind(all, RECEIVE_BYTES)
        }
    }
    .map_err(io::Error::other)?;
    print_line("ready")?;
    let mut tally = Tally::new(listening.senders);
    let mut heard = Instant::now();
    let mut first: Option<Instant> = None;
    let mut complete: Option<Instant> = None;
    let mut begun: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if let Some(begun) = begun.filter(|begun| now - *begun >= listening.time) {
            let nanos = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
            return print_line(&tally.received_counts(nanos)?.to_string());
        }
        // Checked on every pass, not only when a datagram arrives, because a datagram may be one of
        // a burst.
        let is_steady = complete.is_some_and(|complete| now - complete >= listening.warmup);
        if is_steady && begun.is_none() {
            begun = Some(now);
            tally = Tally::new(listening.senders);
            print_line("begun")?;
        }
        let lacks = complete.is_none() && first.is_some_and(|first| now - first > SILENCE);
        if lacks || now - heard > SILENCE {
            let why = format!("{} senders, and not all were heard", listening.senders);
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        if socket.receive(|_, datagram| tally.count_datagram(datagram))? == 0 {
            let mut waits = [PollFd::new(&socket, PollFlags::IN)];
            poll(&mut waits, Some(&timeout(20)))?;
            continue;
        }
        heard = now;
        first = first.or(Some(now));
        if complete.is_none() && tally.is_complete() {
            complete = Some(now);
        }
    }
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

impl Tally {
    fn new(senders: u32) -> Self {
        Self { spans: vec![None; senders as usize], bytes: 0, datagrams: 0 }
    }

    /// Counts a datagram, unless it comes from another program.
    fn count_datagram(&mut self, datagram: &[u8]) {
        let Some((sender, number)) = read_head(datagram) else {
            return;
        };
        let Some(span) = self.spans.get_mut(sender as usize) else {
            return;
        };
        let (first, last) = span.map_or((number, number), |span| (span.first, span.last));
        *span = Some(Span { first: first.min(number), last: last.max(number) });
        self.bytes += datagram.len() as u64;
        self.datagrams += 1;
    }

    fn is_complete(&self) -> bool {
        self.spans.iter().all(Option::is_some)
    }

    fn received_counts(&self, nanos: u64) -> io::Result<Reception> {
        if !self.is_complete() {
            let why = "a sender was not heard any more";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let spans = self.spans.iter().flatten();
        Ok(Reception {
            bytes: self.bytes,
            nanos,
            datagrams: self.datagrams,
            numbers: spans
                .map(|span| (span.last - span.first).saturating_add(1))
                .fold(0, u64::saturating_add),
        })
    }
}

impl fmt::Display for Reception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, nanos, datagrams, numbers } = self;
        write!(f, "{bytes} {nanos} {datagrams} {numbers}")
    }
}

impl FromStr for Reception {
    type Err = io::Error;

    fn from_str(text: &str) -> Result<Self, io::Error> {
        let numbers = text.split_whitespace().map(str::parse::<u64>);
        match numbers.collect::<Result<Vec<u64>, _>>().as_deref() {
            Ok(&[bytes, nanos, datagrams, numbers]) if nanos > 0 => {
                Ok(Self { bytes, nanos, datagrams, numbers })
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DATAGRAM_BYTES, HEAD_BYTES, head};
    use super::*;

    fn datagram(sender: u32, number: u64) -> Vec<u8> {
        let mut datagram = vec![0x51; DATAGRAM_BYTES];
        datagram[..HEAD_BYTES].copy_from_slice(&head(sender, number));
        datagram
    }

    /// Two of eleven datagrams are missing, one from each sender. Their order does not matter.
    #[test]
    fn missing_datagrams_are_counted_by_numbers() {
        let mut tally = Tally::new(2);
        for number in [10, 12, 11, 14, 15] {
            tally.count_datagram(&datagram(0, number));
        }
        assert!(!tally.is_complete() && tally.received_counts(1).is_err());
        for number in [0, 1, 2, 4] {
            tally.count_datagram(&datagram(1, number));
        }
        tally.count_datagram(&datagram(2, 7));
        tally.count_datagram(b"of a stranger");
        let heard = tally.received_counts(1000).unwrap();
        let wanted =
            Reception { bytes: 9 * DATAGRAM_BYTES as u64, nanos: 1000, datagrams: 9, numbers: 11 };
        assert_eq!(heard, wanted);
        assert_eq!(heard.to_string().parse::<Reception>().unwrap(), wanted);
    }

    #[test]
    fn invalid_count_lines_are_refused() {
        for bad in ["", "1 2 3", "1 0 3 4", "1 2 3 4 5", "1 -2 3 4", "ready"] {
            assert!(bad.parse::<Reception>().is_err(), "{bad}");
        }
    }

    /// Numbers come from a socket and may be arbitrary.
    #[test]
    fn numbers_at_the_ends_do_not_overflow() {
        let mut tally = Tally::new(2);
        for sender in 0..2 {
            tally.count_datagram(&datagram(sender, 0));
            tally.count_datagram(&datagram(sender, u64::MAX));
        }
        assert_eq!(tally.received_counts(1).unwrap().numbers, u64::MAX);
    }
}
