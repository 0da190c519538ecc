//! A closed-loop client outside of the group. It keeps a fixed number of values outstanding, and
//! times each from its submit to its decision.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use quorate_device::xdp::{SocketFormat, filter_decisions};
use quorate_offload::{
    Descriptor, Encapsulation, Header, Type, checksum::crc32c, link::ETHER_TYPE,
};
use quorate_packets::ethernet::{Mac, RawSocket, raw::ReceiveFilter};

use crate::{
    Fallible,
    group::{
        BALLOT, CELLS, CLIENT, DECISIONS, INTERFACE, Kind, LEADER, PORT, address, ip, make_roomy,
        socket,
    },
    switches::Switches,
};

/// Time without a decision after which outstanding values are given up.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time before measurements begin.
const WARM_UP: Duration = Duration::from_millis(200);
/// The host that votes when no host leads.
pub(crate) const VOTER: u8 = 2;
/// Offset of a value's number in a header.
const COUNTER_AT: usize = 46;
const SLOT_AT: usize = 6;

enum Way {
    Packet(RawSocket),
    Udp(UdpSocket, SocketAddr),
}

impl Way {
    fn open(kind: Kind) -> Fallible<Self> {
        if !kind.is_udp() {
            let group = Some(Mac(DECISIONS.mac));
            let raw = RawSocket::open(INTERFACE, ReceiveFilter::EtherType(ETHER_TYPE), group)?;
            raw.set_receive_timeout(Some(PATIENCE))?;
            make_roomy(&raw)?;
            filter_decisions(&raw, SocketFormat::Frames)?;
            return Ok(Self::Packet(raw));
        }
        let at = if kind == Kind::Udp { ip(CLIENT) } else { Ipv4Addr::UNSPECIFIED };
        let udp = UdpSocket::bind((at, PORT))?;
        if kind == Kind::BareUdp {
            udp.join_multicast_v4(&Ipv4Addr::from(DECISIONS.ip), &ip(CLIENT))?;
        }
        udp.set_read_timeout(Some(PATIENCE))?;
        make_roomy(&udp)?;
        filter_decisions(&udp, SocketFormat::Datagrams)?;
        Ok(Self::Udp(udp, SocketAddr::V4(socket(LEADER))))
    }

    fn send(&self, frame: &[u8]) -> Fallible<()> {
        match self {
            Self::Packet(raw) => _ = raw.send(frame)?,
            Self::Udp(udp, to) => {
                udp.send_to(&frame[Encapsulation::Raw.header_offset()..], to)?;
            }
        }
        Ok(())
    }

    /// Returns the number of the next decided value, or `None` on timeout.
    fn receive(&self, buffer: &mut [u8]) -> Fallible<Option<u64>> {
        let header = match self {
            Self::Packet(raw) => {
                let frame = raw.receive(buffer)?;
                frame.and_then(|frame| frame.get(Encapsulation::Raw.header_offset()..))
            }
            Self::Udp(udp, _) => match udp.recv(buffer) {
                Ok(length) => Some(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
                Err(error) => return Err(error.into()),
            },
        };
        let counter = header.and_then(|header| header.get(COUNTER_AT..)?.first_chunk());
        Ok(counter.map(|counter| u64::from_be_bytes(*counter)))
    }
}

/// Runs a client, and prints the number of decisions and their latencies.
pub(crate) fn client(
    kind: &str,
    room: &str,
    outstanding: &str,
    milliseconds: &str,
) -> Fallible<()> {
    let (kind, room) = (Kind::of(kind)?, room.parse()?);
    let outstanding: usize = outstanding.parse()?;
    let time = Duration::from_millis(milliseconds.parse()?);
    let way = Way::open(kind)?;
    let mut frame = submit(room)?;
    let mut buffer = vec![0; 2000];
    let mut sent: Vec<Option<Instant>> = vec![None; CELLS as usize];
    // Each process starts its numbers at a different value.
    let first = u64::from(std::process::id()) << 32;
    let (mut next, mut waits, mut given_up) = (first, 0, 0_u64);
    let mut took: Vec<u32> = Vec::new();
    let begun = Instant::now();
    let mut measured = None;
    let (mut switches, mut all) = (Switches::default(), 0_u64);
    let own = [std::process::id()];
    loop {
        while waits < outstanding {
            let at = Encapsulation::Raw.header_offset() + COUNTER_AT;
            frame[at..at + 8].copy_from_slice(&next.to_be_bytes());
            sent[place(next)] = Some(Instant::now());
            next += 1;
            waits += 1;
            way.send(&frame)?;
        }
        let heard = way.receive(&mut buffer)?;
        let now = Instant::now();
        match heard {
            Some(counter) => {
                if let Some(since) = sent[place(counter)].take() {
                    waits -= 1;
                    all += 1;
                    let nanos = now.duration_since(since).as_nanos();
                    took.push(u32::try_from(nanos).unwrap_or(u32::MAX));
                }
            }
            None => {
                sent.fill(None);
                given_up += waits as u64;
                waits = 0;
            }
        }
        match measured {
            None if now.duration_since(begun) >= WARM_UP => {
                measured = Some(now);
                (given_up, switches) = (0, Switches::of(&own));
                took.clear();
            }
            Some(since) if now.duration_since(since) >= time => break,
            _ => {}
        }
    }
    let switches = Switches::of(&own).since(switches);
    let seconds = measured.map_or(0.0, |since| since.elapsed().as_secs_f64());
    took.sort_unstable();
    let part = |of: usize| took.get(took.len() * of / 1000).copied().unwrap_or(0);
    println!(
        "decided={} ns={} p50={} p99={} given_up={given_up} all={all} wanted={} forced={}",
        took.len(),
        (seconds * 1e9) as u64,
        part(500),
        part(990),
        switches.wanted,
        switches.forced
    );
    Ok(())
}

fn place(counter: u64) -> usize {
    usize::try_from(counter % u64::from(CELLS)).unwrap_or(0)
}

fn value(room: usize) -> Fallible<(Vec<u8>, Descriptor)> {
    let bytes: Vec<u8> = (0..room).map(|at| (at * 7) as u8).collect();
    let value = Descriptor {
        kind: 2,
        origin: 9,
        origin_boot: 1,
        counter: 0,
        length: u16::try_from(room)?,
        crc: crc32c(&bytes),
    };
    Ok((bytes, value))
}

fn submit(room: usize) -> Fallible<Vec<u8>> {
    let (bytes, value) = value(room)?;
    raw(&Header::new_submit(5, value, 0), &bytes, LEADER)
}

fn raw(header: &Header, room: &[u8], host: u8) -> Fallible<Vec<u8>> {
    let mut frame = vec![0; Encapsulation::Raw.room_offset() + room.len()];
    let (from, to) = (address(CLIENT), address(host));
    let written = Encapsulation::Raw.write_frame(&mut frame, &from, &to, header, room);
    written.ok_or("no room of whole words")?;
    Ok(frame)
}

/// Requests votes from a single acceptor, for half as many slots as it has cells. This measures the
/// kernel's time per vote.
pub(crate) fn votes(room: &str) -> Fallible<()> {
    let (bytes, value) = value(room.parse()?)?;
    let header = Header { kind: Type::Phase2a, ballot: BALLOT, ..Header::new_submit(5, value, 0) };
    let way = Way::open(Kind::BarePacket)?;
    let mut frame = raw(&header, &bytes, VOTER)?;
    let at = Encapsulation::Raw.header_offset() + SLOT_AT;
    for slot in 0..u64::from(CELLS) / 2 {
        frame[at..at + 8].copy_from_slice(&slot.to_be_bytes());
        way.send(&frame)?;
    }
    println!("sent={}", CELLS / 2);
    Ok(())
}
