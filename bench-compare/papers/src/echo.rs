//! Bare echoes between two nodes of a network segment: in user space and in the kernel, over UDP
//! and in raw frames.
//!
//! A server returns every message that it receives. A [`client`](run) keeps a fixed number of
//! messages in flight and sends the next one for each reply. After a timeout the messages in flight
//! count as lost, and the client sends new ones.

pub(crate) mod measure;

use std::{
    io::{self, ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use quorate_bench::samples::Samples;
use quorate_device::xdp::{ECHO_ETHER_TYPE, ECHO_PORT, EchoProgram, Hook};
use quorate_packets::ethernet::{Mac, RawSocket, raw::ReceiveFilter};

/// Time without a reply after which all messages in flight are counted as lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
const HEADER_BYTES: usize = 14;
/// Maximum message length in bytes, that is, the packet payload after the IP and UDP headers.
pub const MESSAGE_BYTES_MAX: usize = 1472;
/// Minimum message length in bytes. A message contains its send time.
pub const MESSAGE_BYTES_MIN: usize = 8;

/// Transport of the messages, and kind of the echo server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoTransport {
    /// Set if messages are raw frames, without IP and UDP.
    pub is_raw: bool,
    /// Hook of the server's kernel program; `None` for a server in user space.
    pub server_hook: Option<Hook>,
}

impl EchoTransport {
    /// All transports that experiments compare.
    pub const ALL: [Self; 6] = [
        Self::of(false, None),
        Self::of(false, Some(Hook::Traffic)),
        Self::of(false, Some(Hook::Native)),
        Self::of(true, None),
        Self::of(true, Some(Hook::Traffic)),
        Self::of(true, Some(Hook::Native)),
    ];

    const fn of(raw: bool, hook: Option<Hook>) -> Self {
        Self { is_raw: raw, server_hook: hook }
    }

    /// Returns the name used in rows and on the server's command line.
    pub const fn name(self) -> &'static str {
        match (self.is_raw, self.server_hook) {
            (false, None) => "udp-process",
            (false, Some(Hook::Traffic)) => "udp-tc",
            (false, Some(_)) => "udp-xdp",
            (true, None) => "ethernet-process",
            (true, Some(Hook::Traffic)) => "ethernet-tc",
            (true, Some(_)) => "ethernet-xdp",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// Serves echoes at an interface until the process exits. Prints the MAC address of the interface
/// once the server is ready.
pub fn serve_echoes(interface: &str, way: EchoTransport) -> io::Result<()> {
    let hears = match (way.is_raw, way.server_hook) {
        (true, None) => ReceiveFilter::EtherType(ECHO_ETHER_TYPE),
        _ => ReceiveFilter::Nothing,
    };
    let raw = RawSocket::open(interface, hears, None).map_err(io::Error::other)?;
    let ready = || {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", raw.local())?;
        out.flush()
    };
    if let Some(hook) = way.server_hook {
        let _echo = EchoProgram::attach(interface, hook).map_err(io::Error::other)?;
        ready()?;
        // From here on, the process only keeps the kernel program attached.
        loop {
            thread::park();
        }
    }
    let mut buffer = [0; HEADER_BYTES + MESSAGE_BYTES_MAX];
    if !way.is_raw {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT))?;
        ready()?;
        loop {
            let (length, from) = socket.recv_from(&mut buffer)?;
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
    ready()?;
    loop {
        let Some(length) = raw.receive(&mut buffer).map_err(io::Error::other)?.map(<[u8]>::len)
        else {
            continue;
        };
        if length < HEADER_BYTES {
            continue;
        }
        swap_addresses(&mut buffer);
        raw.send(&buffer[..length]).map_err(io::Error::other)?;
    }
}

/// Swaps the source and destination of a frame, to return it to its sender.
fn swap_addresses(frame: &mut [u8]) {
    let (to, rest) = frame.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
}

/// Parameters of an echo client.
#[derive(Clone, Copy, Debug)]
pub struct EchoClientOptions {
    pub way: EchoTransport,
    /// IP and MAC addresses of the server.
    pub server_address: (Ipv4Addr, Mac),
    /// Message length in bytes, without headers.
    pub bytes: usize,
    pub outstanding: u32,
    /// Time before the measurement, in which replies do not count.
    pub warmup: Duration,
    pub duration: Duration,
}

enum EchoSocket {
    Udp(UdpSocket),
    RawSocket(RawSocket),
}

impl EchoSocket {
    fn open(interface: &str, asking: &EchoClientOptions) -> io::Result<Self> {
        if asking.way.is_raw {
            let hears = ReceiveFilter::EtherType(ECHO_ETHER_TYPE);
            let raw = RawSocket::open(interface, hears, None).map_err(io::Error::other)?;
            raw.set_receive_timeout(Some(LOST_AFTER)).map_err(io::Error::other)?;
            return Ok(Self::RawSocket(raw));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((asking.server_address.0, ECHO_PORT)))?;
        socket.set_read_timeout(Some(LOST_AFTER))?;
        Ok(Self::Udp(socket))
    }

    /// Returns the header that precedes the send time in each message.
    fn message_header(&self, server: Mac) -> Vec<u8> {
        match self {
            Self::Udp(_) => Vec::new(),
            Self::RawSocket(raw) => {
                let kind = ECHO_ETHER_TYPE.to_be_bytes();
                [&server.0[..], &raw.local().0, &kind].concat()
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(message).map(drop),
            // A message that does not fit into the socket buffer counts as lost.
            Self::RawSocket(raw) => raw.send(message).map(drop).map_err(io::Error::other),
        }
    }

    /// Waits for a message. Returns false after a timeout.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => match socket.recv(buffer) {
                Ok(_) => Ok(true),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    Ok(false)
                }
                Err(error) => Err(error),
            },
            Self::RawSocket(raw) => {
                let frame = raw.receive(buffer).map_err(io::Error::other)?;
                Ok(frame.is_some())
            }
        }
    }
}

/// Runs a client at an interface in the network namespace of this thread; calls `begun` when the
/// measurement begins. Returns the samples and the number of lost messages. Losses do not
/// invalidate the result, because UDP and Ethernet may lose messages.
pub fn run(
    interface: &str,
    asking: &EchoClientOptions,
    begun: impl FnOnce(),
) -> io::Result<(Samples, u64)> {
    let socket = EchoSocket::open(interface, asking)?;
    let mut message = socket.message_header(asking.server_address.1);
    let header = message.len();
    message.resize(header + asking.bytes.clamp(MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX), 0);
    let mut buffer = [0; HEADER_BYTES + MESSAGE_BYTES_MAX];
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut send = || {
        message[header..header + MESSAGE_BYTES_MIN].copy_from_slice(&now().to_le_bytes());
        socket.send(&message)
    };
    let (mut samples, mut lost) = (Samples::default(), 0);
    let from = u64::try_from(asking.warmup.as_nanos()).unwrap_or(u64::MAX);
    samples.measured_ns = u64::try_from(asking.duration.as_nanos()).unwrap_or(u64::MAX);
    let until = from.saturating_add(samples.measured_ns);
    let mut begun = Some(begun);
    for _ in 0..asking.outstanding {
        send()?;
    }
    loop {
        let came = socket.receive(&mut buffer)?;
        let at = now();
        if at >= from
            && let Some(begun) = begun.take()
        {
            begun();
        }
        if at >= until {
            return Ok((samples, lost));
        }
        if !came {
            lost += u64::from(asking.outstanding);
            for _ in 0..asking.outstanding {
                send()?;
            }
            continue;
        }
        if at >= from
            && let Some(sent) = buffer[header..].first_chunk()
        {
            samples.completed += 1;
            samples.sent_count += 1;
            let sent = u64::from_le_bytes(*sent);
            samples.latencies.record(at.saturating_sub(sent));
        }
        send()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names() {
        for way in EchoTransport::ALL {
            assert_eq!(EchoTransport::from_name(way.name()), Some(way));
        }
        assert_eq!(EchoTransport::from_name("pigeon"), None);
    }

    #[test]
    fn a_frame_is_turned_to_where_it_came_from() {
        let mut frame = *b"serverclient\x88\xb5hello";
        swap_addresses(&mut frame);
        assert_eq!(&frame, b"clientserver\x88\xb5hello");
    }
}
