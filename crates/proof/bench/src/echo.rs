//! Bare echoes between two nodes of a segment: in user space and in the kernel, by UDP and in raw
//! frames.
//!
//! A server sends back what it gets. A [`client`](run) has a fixed number of messages on their way,
//! and sends the next one when one is back. What is lost on the way is counted, and sent anew when
//! nothing has come for a while.

use std::{
    io::{self, ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use quorate_device::xdp::{ECHO_ETHER_TYPE, ECHO_PORT, Echo, Hook};
use quorate_packets::ethernet::{Mac, Raw, raw::Hears};

use crate::samples::Samples;

/// A message that is not back after so long is lost.
const PATIENCE: Duration = Duration::from_millis(100);
/// The header of Ethernet.
const HEADER_BYTES: usize = 14;
/// Longest message that fits into a packet after the headers of IP and UDP.
pub const BYTES_MAX: usize = 1472;
/// The shortest: when it was sent.
pub const BYTES_MIN: usize = 8;

/// Path of messages, and the echo server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// In raw frames, without IP and UDP.
    pub raw: bool,
    /// The hook of a program in the kernel; `None` for a process.
    pub hook: Option<Hook>,
}

impl Way {
    /// All that are compared.
    pub const ALL: [Self; 6] = [
        Self::of(false, None),
        Self::of(false, Some(Hook::Traffic)),
        Self::of(false, Some(Hook::Native)),
        Self::of(true, None),
        Self::of(true, Some(Hook::Traffic)),
        Self::of(true, Some(Hook::Native)),
    ];

    const fn of(raw: bool, hook: Option<Hook>) -> Self {
        Self { raw, hook }
    }

    /// As rows and the command line of a server have it.
    pub const fn name(self) -> &'static str {
        match (self.raw, self.hook) {
            (false, None) => "udp-process",
            (false, Some(Hook::Traffic)) => "udp-tc",
            (false, Some(_)) => "udp-xdp",
            (true, None) => "ethernet-process",
            (true, Some(Hook::Traffic)) => "ethernet-tc",
            (true, Some(_)) => "ethernet-xdp",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// Serves at an interface until this process ends; says the interface's address when it does.
pub fn serve(interface: &str, way: Way) -> io::Result<()> {
    let hears = match (way.raw, way.hook) {
        (true, None) => Hears::EtherType(ECHO_ETHER_TYPE),
        _ => Hears::Nothing,
    };
    let raw = Raw::open(interface, hears, None).map_err(io::Error::other)?;
    let ready = || {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", raw.local())?;
        out.flush()
    };
    if let Some(hook) = way.hook {
        let _echo = Echo::attach(interface, hook).map_err(io::Error::other)?;
        ready()?;
        // Its one part from here on is to hold the program.
        loop {
            thread::park();
        }
    }
    let mut buffer = [0; HEADER_BYTES + BYTES_MAX];
    if !way.raw {
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
        turn(&mut buffer);
        raw.send(&buffer[..length]).map_err(io::Error::other)?;
    }
}

/// To where it came from.
fn turn(frame: &mut [u8]) {
    let (to, rest) = frame.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
}

/// Parameters of a client.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Path of messages.
    pub way: Way,
    /// Address of the server.
    pub server: (Ipv4Addr, Mac),
    /// Bytes of a message, headers not counted.
    pub bytes: usize,
    /// Messages on their way.
    pub outstanding: u32,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub time: Duration,
}

/// The socket of a client.
enum Socket {
    Udp(UdpSocket),
    Raw(Raw),
}

impl Socket {
    fn open(interface: &str, asking: &Asking) -> io::Result<Self> {
        if asking.way.raw {
            let hears = Hears::EtherType(ECHO_ETHER_TYPE);
            let raw = Raw::open(interface, hears, None).map_err(io::Error::other)?;
            raw.set_patience(Some(PATIENCE)).map_err(io::Error::other)?;
            return Ok(Self::Raw(raw));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((asking.server.0, ECHO_PORT)))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::Udp(socket))
    }

    /// A message begins so, and with it the time.
    fn header(&self, server: Mac) -> Vec<u8> {
        match self {
            Self::Udp(_) => Vec::new(),
            Self::Raw(raw) => {
                let kind = ECHO_ETHER_TYPE.to_be_bytes();
                [&server.0[..], &raw.local().0, &kind].concat()
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(message).map(drop),
            // Without room for it, it is lost.
            Self::Raw(raw) => raw.send(message).map(drop).map_err(io::Error::other),
        }
    }

    /// Returns whether a message arrived in time.
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
            Self::Raw(raw) => {
                let frame = raw.receive(buffer).map_err(io::Error::other)?;
                Ok(frame.is_some())
            }
        }
    }
}

/// Sends and receives at an interface of this thread's network; `begun` is called when it is
/// measured. Messages that were lost are counted as such, and are no fault of a result: UDP and
/// Ethernet promise nothing.
pub fn run(interface: &str, asking: &Asking, begun: impl FnOnce()) -> io::Result<(Samples, u64)> {
    let socket = Socket::open(interface, asking)?;
    let mut message = socket.header(asking.server.1);
    let header = message.len();
    message.resize(header + asking.bytes.clamp(BYTES_MIN, BYTES_MAX), 0);
    let mut buffer = [0; HEADER_BYTES + BYTES_MAX];
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut send = || {
        message[header..header + BYTES_MIN].copy_from_slice(&now().to_le_bytes());
        socket.send(&message)
    };
    let (mut samples, mut lost) = (Samples::default(), 0);
    let from = u64::try_from(asking.warmup.as_nanos()).unwrap_or(u64::MAX);
    samples.measured = u64::try_from(asking.time.as_nanos()).unwrap_or(u64::MAX);
    let until = from.saturating_add(samples.measured);
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
            samples.sent += 1;
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
        for way in Way::ALL {
            assert_eq!(Way::named(way.name()), Some(way));
        }
        assert_eq!(Way::named("pigeon"), None);
    }

    #[test]
    fn a_frame_is_turned_to_where_it_came_from() {
        let mut frame = *b"serverclient\x88\xb5hello";
        turn(&mut frame);
        assert_eq!(&frame, b"clientserver\x88\xb5hello");
    }
}
