//! Profiles of emulated wide-area links, and a bare program that measures the capacity of a link.

use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::relay::link::{LinkParameters, NANOS_PER_SECOND};

use crate::samples::Latencies;

const MS_NANOS: u64 = 1_000_000;
/// Size of an echoed message, in bytes.
const MESSAGE_BYTES: usize = 64;
/// Number of echoed messages. The median of their round trips counts.
const MESSAGE_COUNT: u32 = 11;
/// Time that TCP needs to fill the link: several round trips.
const WARMUP_DURATION: Duration = Duration::from_secs(2);
/// Time for which the near end sends data.
const SENDING_DURATION: Duration = Duration::from_secs(6);
/// First byte of an echo connection, which states its purpose.
const ECHO_PURPOSE: u8 = b'e';
const SINK_PURPOSE: u8 = b's';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProfile {
    pub name: &'static str,
    link_law: LinkParameters,
}

impl LinkProfile {
    /// Network of the JPaxos paper, §5: "connected point-to-point by a 10Mbits link with 50ms
    /// latency". The paper does not state the buffer size of its routers; here it is 250 000 bytes,
    /// which is 200 ms of the link and twice the bytes in flight on it.
    pub const JPAXOS: Self = Self {
        name: "jpaxos",
        link_law: LinkParameters {
            bits_per_second: 10_000_000,
            delay: 50 * MS_NANOS,
            queue_bytes: 250_000,
        },
    };
    /// Network of the JPaxos paper with half the delay.
    pub const HALF_DELAY: Self = Self {
        name: "half",
        link_law: LinkParameters { delay: 25 * MS_NANOS, ..Self::JPAXOS.link_law },
    };

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::JPAXOS, Self::HALF_DELAY].into_iter().find(|profile| profile.name == name)
    }

    /// Returns the delay, speed and buffer of each link.
    pub const fn link_law(&self) -> LinkParameters {
        self.link_law
    }
}

impl fmt::Display for LinkProfile {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let law = self.link_law;
        write!(
            f,
            "emulated WAN {}: between each two nodes {} Mbit/s and {} ms one way, {} bytes wait at most",
            self.name,
            law.bits_per_second as f64 / 1e6,
            law.delay as f64 / 1e6,
            law.queue_bytes
        )
    }
}

/// Properties of a link as measured by a bare program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLink {
    /// Round trip of a 64-byte message over TCP, in microseconds.
    pub round_trip_us: f64,
    /// Throughput of one TCP connection in bytes per second, without headers.
    pub bytes_per_s: f64,
}

impl fmt::Display for MeasuredLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.round_trip_us, self.bytes_per_s)
    }
}

impl MeasuredLink {
    /// Parses the output of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        let mut figure = || {
            let figure = words.next()?.ok()?;
            (figure.is_finite() && figure > 0.0).then_some(figure)
        };
        Some(Self { round_trip_us: figure()?, bytes_per_s: figure()? })
    }
}

/// Runs the far end, which serves two connections and then returns.
pub fn run_far_end(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    for _ in 0..2 {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut purpose = [0];
        socket.read_exact(&mut purpose)?;
        match purpose[0] {
            ECHO_PURPOSE => serve_echo(&mut socket)?,
            _ => serve_sink(&mut socket)?,
        }
    }
    Ok(())
}

fn serve_echo(socket: &mut TcpStream) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    loop {
        match socket.read_exact(&mut message) {
            Ok(()) => socket.write_all(&message)?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Receives data and replies with the rate as a pair of bytes and nanoseconds.
fn serve_sink(socket: &mut TcpStream) -> io::Result<()> {
    let mut input = vec![0; 1 << 16];
    let mut seen = Vec::new();
    let (mut total, started) = (0, Instant::now());
    loop {
        let count = socket.read(&mut input)? as u64;
        if count == 0 {
            break;
        }
        total += count;
        seen.push(ByteCount {
            at: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            total,
        });
    }
    let (bytes, nanos) = steady_rate(&seen);
    socket.write_all(&bytes.to_le_bytes())?;
    socket.write_all(&nanos.to_le_bytes())
}

/// Number of bytes received up to a point in time.
#[derive(Clone, Copy, Debug)]
struct ByteCount {
    at: u64,
    total: u64,
}

/// Returns the bytes and nanoseconds between a time soon after the warm-up and a time near the end.
///
/// After a loss TCP holds data back, and a busy machine reads late: counts lag behind the link and
/// then catch up at once. Both times are therefore chosen within one second as those at which the
/// lag is smallest.
fn steady_rate(seen: &[ByteCount]) -> (u64, u64) {
    let warm = WARMUP_DURATION.as_nanos();
    let late: Vec<ByteCount> =
        seen.iter().copied().filter(|one| u128::from(one.at) >= warm).collect();
    let (Some(first), Some(last)) = (late.first(), late.last()) else {
        return (0, 0);
    };
    let span = i128::from(last.at - first.at).max(1);
    let bytes = i128::from(last.total - first.total);
    // Lead over the mean rate, in bytes × nanoseconds.
    let ahead = |one: &ByteCount| i128::from(one.total) * span - i128::from(one.at) * bytes;
    let among = |from: u64, to: u64| {
        let within = late.iter().filter(move |one| (from..=to).contains(&one.at));
        within.copied().max_by_key(|one| ahead(one))
    };
    let begin = among(first.at, first.at + NANOS_PER_SECOND);
    let end = among(last.at.saturating_sub(NANOS_PER_SECOND), last.at);
    match begin.zip(end) {
        Some((begin, end)) if end.at > begin.at && end.total > begin.total => {
            (end.total - begin.total, end.at - begin.at)
        }
        _ => (0, 0),
    }
}

/// Runs the near end, which measures the link.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn run_near_end(address: SocketAddr) -> io::Result<MeasuredLink> {
    let mut socket = dial_far_end(address, ECHO_PURPOSE)?;
    let mut trips = Latencies::default();
    let mut message = [0; MESSAGE_BYTES];
    for _ in 0..MESSAGE_COUNT {
        let sent = Instant::now();
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        trips.record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    drop(socket);
    let mut socket = dial_far_end(address, SINK_PURPOSE)?;
    let block = vec![0; 1 << 16];
    let started = Instant::now();
    while started.elapsed() < SENDING_DURATION {
        socket.write_all(&block)?;
    }
    socket.shutdown(Shutdown::Write)?;
    let mut figure = || -> io::Result<u64> {
        let mut bytes = [0; 8];
        socket.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (bytes, nanos) = (figure()?, figure()?);
    Ok(MeasuredLink {
        round_trip_us: trips.quantile_us(0.5),
        bytes_per_s: bytes as f64 * 1e9 / nanos.max(1) as f64,
    })
}

/// Connects to the far end, retrying until it listens.
fn dial_far_end(address: SocketAddr, purpose: u8) -> io::Result<TcpStream> {
    let until = Instant::now() + Duration::from_secs(10);
    let mut socket = loop {
        match TcpStream::connect(address) {
            Ok(socket) => break socket,
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    };
    socket.set_nodelay(true)?;
    socket.write_all(&[purpose])?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_names_and_descriptions() {
        assert_eq!(LinkProfile::from_name("jpaxos"), Some(LinkProfile::JPAXOS));
        assert_eq!(LinkProfile::from_name("half"), Some(LinkProfile::HALF_DELAY));
        assert_eq!(LinkProfile::from_name("moon"), None);
        assert_eq!(
            LinkProfile::HALF_DELAY.to_string(),
            "emulated WAN half: between each two nodes 10 Mbit/s and 25 ms one way, 250000 bytes \
             wait at most"
        );
    }

    /// The link carries one byte per microsecond. The receiver stalls not at all, around the end of
    /// the warm-up, or at the end.
    #[test]
    fn a_reader_that_lags_does_not_change_the_rate() {
        let stalls = [0..0, 1_900_000..2_150_000, 5_700_000..6_000_001];
        for stall in stalls {
            let reads = (0..=6000).map(|ms| ms * 1000).filter(|us| !stall.contains(us));
            let seen: Vec<ByteCount> =
                reads.map(|us| ByteCount { at: us * 1000, total: us }).collect();
            let lagging: Vec<ByteCount> = seen
                .iter()
                .map(|one| ByteCount {
                    // Bytes that arrive just before the end of the stall are read shortly after it.
                    total: if (2_150_000..2_200_000).contains(&(one.at / 1000)) {
                        1_900_000
                    } else {
                        one.total
                    },
                    ..*one
                })
                .collect();
            for seen in [seen, lagging] {
                let (bytes, nanos) = steady_rate(&seen);
                let per_second = bytes as f64 * 1e9 / nanos as f64;
                assert!((per_second / 1e6 - 1.0).abs() < 1e-3, "{per_second}");
            }
        }
        assert_eq!(steady_rate(&[]), (0, 0));
    }

    #[test]
    fn measurement_round_trips_as_text() {
        let measured = MeasuredLink { round_trip_us: 100_123.5, bytes_per_s: 1.2e6 };
        assert_eq!(MeasuredLink::parse(&measured.to_string()), Some(measured));
        for bad in ["", "1", "x 2", "1 nan", "0 1", "-1 5"] {
            assert_eq!(MeasuredLink::parse(bad), None, "{bad}");
        }
    }
}
