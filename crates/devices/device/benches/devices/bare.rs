//! Loops that only receive, step and send: an upper bound for any user-space host.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use quorate_offload::{
    Acceptor, CallNumber, Cell, Cells, Coordinator, Encapsulation, Host, OutputFrames, Port,
    Verdict, acceptor::ArmParameters, coordinator::StartParameters, link::ETHER_TYPE,
    out::FRAMES_MAX,
};
use quorate_packets::ethernet::{Mac, RawSocket, raw::ReceiveFilter};

use crate::{
    Fallible,
    group::{
        ALL_HOSTS, BALLOT, BOOT, CELLS, CLIENT, DECISIONS, HOSTS, INTERFACE, LEADER, PORT, address,
        decisions, ip, make_roomy, routes, setup, socket as socket_of, votes,
    },
    serve::ready,
};

const PATIENCE: Duration = Duration::from_millis(100);
/// Number of slots between two raises of the floor. The same number of slots is retained.
const STEP: u64 = CELLS as u64 / 4;
const SLOT_AT: usize = 6;
const TYPE_AT: usize = 1;
const DECIDED: u8 = 5;

/// Both programs of a host, with their owner.
struct Machine {
    host: Host<'static>,
    leads: bool,
    buffers: [Vec<u8>; 3],
    counter: u64,
    floor: u64,
    heard: u64,
}

impl Machine {
    fn new(host: u8, room: usize) -> Fallible<Self> {
        let cells = || {
            let count = CELLS as usize;
            Cells::new(Vec::leak(vec![Cell::EMPTY; count]), Vec::leak(vec![0; count * room]), room)
        };
        let (setup, to, votes) = (setup(host, room), routes(), votes(host));
        let mut coordinator = Coordinator::new(setup, to, decisions(), cells());
        let mut acceptor = Acceptor::new(setup, votes, cells());
        let failed = |reason| format!("{reason:?}");
        acceptor.set_boot(BOOT).map_err(failed)?;
        coordinator.set_boot(BOOT).map_err(failed)?;
        let arm = ArmParameters { ballot: BALLOT, position: host - 1, floor: 0, votes };
        acceptor.arm(number(1), arm).map_err(failed)?;
        if host == LEADER {
            let start = StartParameters {
                ballot: BALLOT,
                first: 0,
                limit: u64::MAX,
                quorum: HOSTS / 2 + 1,
                members: HOSTS,
                hint: false,
                proposals: to,
                decisions: decisions(),
            };
            coordinator.start(number(1), start).map_err(failed)?;
        }
        Ok(Self {
            host: Host::new(coordinator, acceptor),
            leads: host == LEADER,
            buffers: [(); 3].map(|()| vec![0; FRAMES_MAX * 2000]),
            counter: 1,
            floor: 0,
            heard: 0,
        })
    }

    /// Processes a raw frame. Passes frames for the network to `leaves`.
    fn step(&mut self, frame: &[u8], mut leaves: impl FnMut(&[u8])) -> Fallible<()> {
        let [mut out, mut asked, mut answered] =
            self.buffers.each_mut().map(|bytes| OutputFrames::new(bytes));
        let verdict = self.host.step(Port::Network, frame, &mut out, &mut asked, &mut answered);
        let mut decided = None;
        if verdict == Verdict::PassOn {
            decided = decision(frame);
        }
        for (port, frame) in out.frames() {
            match port {
                Port::Network => leaves(frame),
                Port::Owner => decided = decision(frame).or(decided),
            }
        }
        if let Some(slot) = decided {
            self.heard += 1;
            if slot >= self.floor + 2 * STEP {
                self.raise(slot - STEP)?;
            }
        }
        Ok(())
    }

    fn raise(&mut self, floor: u64) -> Fallible<()> {
        self.counter += 1;
        let (number, failed) = (number(self.counter), |reason| format!("{reason:?}"));
        let raised = self.host.acceptor_mut().raise_floor(number, floor);
        raised.map_err(failed)?;
        if self.leads {
            let coordinator = self.host.coordinator_mut();
            let raised = coordinator.raise_floor(number, floor, u64::MAX);
            raised.map_err(failed)?;
        }
        self.floor = floor;
        Ok(())
    }
}

const fn number(counter: u64) -> CallNumber {
    CallNumber { device_boot: BOOT, owner_boot: 1, counter }
}

fn decision(frame: &[u8]) -> Option<u64> {
    let header = frame.get(Encapsulation::Raw.header_offset()..)?;
    let slot = header.get(SLOT_AT..)?.first_chunk()?;
    (header[TYPE_AT] >> 4 == DECIDED).then(|| u64::from_be_bytes(*slot))
}

/// Runs a host over packet sockets.
pub(crate) fn packet(host: u8, room: usize, over: &AtomicBool) -> Fallible<()> {
    let mut machine = Machine::new(host, room)?;
    let group = Some(Mac(ALL_HOSTS.mac));
    let socket = RawSocket::open(INTERFACE, ReceiveFilter::EtherType(ETHER_TYPE), group)?;
    socket.join_group(Mac(DECISIONS.mac))?;
    socket.set_receive_timeout(Some(PATIENCE))?;
    make_roomy(&socket)?;
    let mut buffer = vec![0; 2000];
    ready()?;
    while !over.load(Ordering::Relaxed) {
        if let Some(frame) = socket.receive(&mut buffer)? {
            machine.step(frame, |frame| {
                // A frame for which there is no space is lost.
                let _ = socket.send(frame);
            })?;
        }
    }
    println!("lost=0 heard={}", machine.heard);
    Ok(())
}

/// Runs a host over UDP multicast. The programs get raw frames, so that they do not compute
/// checksums that the kernel has already verified.
pub(crate) fn udp(host: u8, room: usize, over: &AtomicBool) -> Fallible<()> {
    let mut machine = Machine::new(host, room)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let group = Ipv4Addr::from(ALL_HOSTS.ip);
    let decisions = Ipv4Addr::from(DECISIONS.ip);
    socket.join_multicast_v4(&group, &ip(host))?;
    socket.join_multicast_v4(&decisions, &ip(host))?;
    socket.set_multicast_loop_v4(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    make_roomy(&socket)?;
    let begin = Encapsulation::Raw.header_offset();
    let mut buffer = vec![0; 2000];
    buffer[..6].copy_from_slice(&address(host).mac);
    buffer[6..12].copy_from_slice(&address(CLIENT).mac);
    buffer[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    ready()?;
    while !over.load(Ordering::Relaxed) {
        let (length, from) = match socket.recv_from(&mut buffer[begin..]) {
            Ok(received) => received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        let said = u16::try_from(length)?.to_be_bytes();
        buffer[14..16].copy_from_slice(&said);
        machine.step(&buffer[..begin + length], |frame| {
            let to = match frame[0] & 1 {
                0 if frame.starts_with(&address(LEADER).mac) => socket_of(LEADER).into(),
                0 => from,
                _ if frame.starts_with(&DECISIONS.mac) => (decisions, PORT).into(),
                _ => (group, PORT).into(),
            };
            let _ = socket.send_to(&frame[begin..], to);
        })?;
    }
    println!("lost=0 heard={}", machine.heard);
    Ok(())
}
