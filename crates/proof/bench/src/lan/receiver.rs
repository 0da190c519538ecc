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

use super::{DatagramTransport, decode_header, multicast_group, port, socket_timeout};

const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// Maximum time to wait for any datagram, and for the first datagram of every sender.
const SILENCE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    pub interface: String,
    /// Transport, which determines whether the receiver joins the multicast group.
    pub transport: DatagramTransport,
    /// Number of senders. The receiver starts to count only after it has received a datagram from
    /// each.
    pub sender_count: u32,
    /// Time between the first datagram of the last sender and the start of counting.
    pub warmup: Duration,
    /// Time for which datagrams are counted.
    pub duration: Duration,
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
    pub expected_datagrams: u64,
}

/// First and last datagram number received from one sender.
#[derive(Clone, Copy, Debug)]
struct NumberRange {
    first: u64,
    last: u64,
}

#[derive(Debug)]
struct DatagramTally {
    sender_ranges: Vec<Option<NumberRange>>,
    bytes: u64,
    datagrams: u64,
}

/// Runs a receiver. Prints `ready` when it listens, `begun` when it starts to count, and finally
/// the [`Reception`].
pub fn run_receiver(listening: &ReceiverOptions) -> io::Result<()> {
    let mut socket = match listening.transport {
        DatagramTransport::Multicast => {
            Udp::join(multicast_group(), &listening.interface, RECEIVE_BUFFER_BYTES)
        }
        DatagramTransport::Unicast => {
            let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port()));
            Udp::bind(all, RECEIVE_BUFFER_BYTES)
        }
    }
    .map_err(io::Error::other)?;
    print_line("ready")?;
    let mut tally = DatagramTally::new(listening.sender_count);
    let mut heard = Instant::now();
    let mut first: Option<Instant> = None;
    let mut complete: Option<Instant> = None;
    let mut begun: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if let Some(begun) = begun.filter(|begun| now - *begun >= listening.duration) {
            let nanos = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
            return print_line(&tally.reception(nanos)?.to_string());
        }
        // Checked on every pass, not only when a datagram arrives, because a datagram may be one of
        // a burst.
        let is_steady = complete.is_some_and(|complete| now - complete >= listening.warmup);
        if is_steady && begun.is_none() {
            begun = Some(now);
            tally = DatagramTally::new(listening.sender_count);
            print_line("begun")?;
        }
        let lacks = complete.is_none() && first.is_some_and(|first| now - first > SILENCE_MAX);
        if lacks || now - heard > SILENCE_MAX {
            let why = format!("{} senders, and not all were heard", listening.sender_count);
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        if socket.receive(|_, datagram| tally.count_datagram(datagram))? == 0 {
            let mut waits = [PollFd::new(&socket, PollFlags::IN)];
            poll(&mut waits, Some(&socket_timeout(20)))?;
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

impl DatagramTally {
    fn new(senders: u32) -> Self {
        Self { sender_ranges: vec![None; senders as usize], bytes: 0, datagrams: 0 }
    }

    /// Counts a datagram, unless it comes from another program.
    fn count_datagram(&mut self, datagram: &[u8]) {
        let Some((sender, number)) = decode_header(datagram) else {
            return;
        };
        let Some(span) = self.sender_ranges.get_mut(sender as usize) else {
            return;
        };
        let (first, last) = span.map_or((number, number), |span| (span.first, span.last));
        *span = Some(NumberRange { first: first.min(number), last: last.max(number) });
        self.bytes += datagram.len() as u64;
        self.datagrams += 1;
    }

    fn is_complete(&self) -> bool {
        self.sender_ranges.iter().all(Option::is_some)
    }

    fn reception(&self, nanos: u64) -> io::Result<Reception> {
        if !self.is_complete() {
            let why = "a sender was not heard any more";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let spans = self.sender_ranges.iter().flatten();
        Ok(Reception {
            bytes: self.bytes,
            nanos,
            datagrams: self.datagrams,
            expected_datagrams: spans
                .map(|span| (span.last - span.first).saturating_add(1))
                .fold(0, u64::saturating_add),
        })
    }
}

impl fmt::Display for Reception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, nanos, datagrams, expected_datagrams: numbers } = self;
        write!(f, "{bytes} {nanos} {datagrams} {numbers}")
    }
}

impl FromStr for Reception {
    type Err = io::Error;

    fn from_str(text: &str) -> Result<Self, io::Error> {
        let numbers = text.split_whitespace().map(str::parse::<u64>);
        match numbers.collect::<Result<Vec<u64>, _>>().as_deref() {
            Ok(&[bytes, nanos, datagrams, numbers]) if nanos > 0 => {
                Ok(Self { bytes, nanos, datagrams, expected_datagrams: numbers })
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DATAGRAM_BYTES, HEADER_BYTES, encode_header};
    use super::*;

    fn datagram(sender: u32, number: u64) -> Vec<u8> {
        let mut datagram = vec![0x51; DATAGRAM_BYTES];
        datagram[..HEADER_BYTES].copy_from_slice(&encode_header(sender, number));
        datagram
    }

    /// Two of eleven datagrams are missing, one from each sender. Their order does not matter.
    #[test]
    fn missing_datagrams_are_counted_by_numbers() {
        let mut tally = DatagramTally::new(2);
        for number in [10, 12, 11, 14, 15] {
            tally.count_datagram(&datagram(0, number));
        }
        assert!(!tally.is_complete() && tally.reception(1).is_err());
        for number in [0, 1, 2, 4] {
            tally.count_datagram(&datagram(1, number));
        }
        tally.count_datagram(&datagram(2, 7));
        tally.count_datagram(b"of a stranger");
        let heard = tally.reception(1000).unwrap();
        let wanted = Reception {
            bytes: 9 * DATAGRAM_BYTES as u64,
            nanos: 1000,
            datagrams: 9,
            expected_datagrams: 11,
        };
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
        let mut tally = DatagramTally::new(2);
        for sender in 0..2 {
            tally.count_datagram(&datagram(sender, 0));
            tally.count_datagram(&datagram(sender, u64::MAX));
        }
        assert_eq!(tally.reception(1).unwrap().expected_datagrams, u64::MAX);
    }
}
