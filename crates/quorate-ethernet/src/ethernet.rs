//! A packet socket: a run of datagrams in one call, arrivals without one.

use std::io;

use quorate_packets::socket::Sent;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::{
    Buffered, Failed, Mac, Refusals,
    frame::{self, ETHER_TYPE_MIN, LENGTH_BYTES},
    interface::Interface,
    mapped::Ring,
    sending::Run,
    shape::Shape,
    slot::{self, Hears},
    system::{self, Place},
};

/// Frames of one [`Ethernet::receive`]: others have a turn, too.
const BATCH: usize = 256;

/// A socket on one interface. It never blocks.
pub struct Ethernet {
    // Dropped before the socket, though the order does not matter: a mapping keeps its memory.
    ring: Ring,
    socket: OwnedFd,
    interface: Interface,
    hears: Hears,
    buffered: Buffered,
    refusals: Refusals,
    lost: u64,
}

impl Ethernet {
    /// A socket that hears what is for this interface and, if one is named, for a group. Several sockets of a machine may have one
    /// interface and EtherType: each hears everything.
    pub fn bind(
        interface: &str,
        ether_type: u16,
        group: Option<Mac>,
        receive_bytes: usize,
    ) -> Result<Self, Failed> {
        if ether_type < ETHER_TYPE_MIN {
            return Err(Failed::NoEtherType(ether_type));
        }
        if let Some(group) = group.filter(|group| !group.is_group()) {
            return Err(Failed::NoGroup(group));
        }
        let socket = open()?;
        let interface = Interface::named(interface, socket.as_fd())?;
        let (ring, buffered) = ring(socket.as_fd(), interface.mtu, receive_bytes)?;
        // It has no EtherType until now, so that nothing is heard that came before there was a ring.
        let place = Place::new(interface.index, ether_type);
        net::bind(&socket, &place).map_err(|error| interface.failed(error, socket.as_fd()))?;
        if let Some(group) = group {
            system::join(socket.as_fd(), interface.index, group).map_err(|source| {
                Failed::Join {
                    group,
                    interface: interface.name.clone(),
                    source,
                }
            })?;
        }
        Ok(Self {
            ring,
            socket,
            interface,
            hears: Hears { ether_type, group },
            buffered,
            refusals: Refusals::default(),
            lost: 0,
        })
    }

    /// The address of the interface when this was bound.
    pub const fn local(&self) -> Mac {
        self.interface.mac
    }

    /// The interface's MTU when this was bound.
    pub const fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// Longest datagram that fits.
    pub fn datagram_bytes_max(&self) -> usize {
        let longest = self.interface.mtu.saturating_sub(LENGTH_BYTES);
        longest.min(usize::from(u16::MAX))
    }

    /// What the kernel keeps for it.
    pub const fn buffered(&self) -> Buffered {
        self.buffered
    }

    /// Frames of this EtherType that were not taken.
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// How many frames found no room in the ring until now.
    pub fn lost(&mut self) -> Result<u64, Failed> {
        let taken = system::take_lost(self.socket.as_fd());
        let option = "PACKET_STATISTICS";
        let more = taken.map_err(|source| Failed::Option { option, source })?;
        self.lost += u64::from(more);
        Ok(self.lost)
    }

    /// Sends datagrams that lie one behind the other, all of one length but for the last, which may be
    /// shorter; each in a frame of its own. To a group, as to a single interface. They do not come back.
    pub fn send(&self, to: Mac, bytes: &[u8], segment_bytes: usize) -> Result<Sent, Failed> {
        let segment_bytes = segment_bytes.clamp(1, bytes.len().max(1));
        let last_bytes = match bytes.len() % segment_bytes {
            0 => segment_bytes,
            rest => rest,
        };
        let header = |datagram_bytes: usize| {
            let length = u16::try_from(datagram_bytes).ok()?;
            let (from, ether_type) = (self.interface.mac, self.hears.ether_type);
            Some(frame::header(to, from, ether_type, length))
        };
        // [pkt-4] Nothing is cut: what does not fit is refused.
        let Some((header, last_header)) = header(segment_bytes).zip(header(last_bytes)) else {
            return Ok(Sent::TooLong);
        };
        let run = Run {
            bytes,
            segment_bytes,
            header,
            last_header,
        };
        self.send_run(&run)
    }

    fn send_run(&self, run: &Run<'_>) -> Result<Sent, Failed> {
        let mut sent = 0;
        while sent < run.datagrams() {
            match run.send(self.socket.as_fd(), sent) {
                Ok(more) => sent += more,
                Err(Errno::INTR) => {}
                Err(Errno::MSGSIZE) => return Ok(Sent::TooLong),
                Err(Errno::AGAIN) => return Ok(Sent::Blocked(sent)),
                // [rate-2] The interface's queue is full: the rest of the run would meet the same.
                Err(Errno::NOBUFS) => return Ok(Sent::Dropped(run.datagrams() - sent)),
                Err(error) => return Err(self.interface.failed(error, self.socket.as_fd())),
            }
        }
        Ok(Sent::All)
    }

    /// Takes what arrived, up to a bound: each datagram, with the address that it claims to be from, goes to `take`. How
    /// many frames there were, refused ones too; none: nothing waits.
    ///
    /// That the interface is down or gone is said once, behind what arrived before.
    pub fn receive(&mut self, mut take: impl FnMut(Mac, &[u8])) -> Result<usize, Failed> {
        for frames in 0..BATCH {
            let Some(slot) = self.ring.next() else {
                if frames == 0 {
                    self.check()?;
                }
                return Ok(frames);
            };
            match slot::read(slot.bytes(), &self.hears) {
                Ok(frame) => take(frame.from, frame.datagram),
                Err(refusal) => self.refusals.count(refusal),
            }
        }
        Ok(BATCH)
    }

    /// What became of the interface; until it is asked, the socket is always ready.
    fn check(&self) -> Result<(), Failed> {
        let failed = |error| self.interface.failed(error, self.socket.as_fd());
        sockopt::socket_error(&self.socket)
            .and_then(|error| error)
            .map_err(failed)
    }
}

impl AsFd for Ethernet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open() -> Result<OwnedFd, Failed> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(|error| {
        let source = io::Error::from(error);
        match error {
            Errno::PERM | Errno::ACCESS => Failed::Rights { source },
            _ => Failed::Option {
                option: "AF_PACKET",
                source,
            },
        }
    })
}

/// A ring of this size, or the largest one that there is memory for.
fn ring(
    socket: BorrowedFd<'_>,
    mtu: usize,
    receive_bytes: usize,
) -> Result<(Ring, Buffered), Failed> {
    let mut shape = Shape::of(mtu, receive_bytes);
    let ring = loop {
        match Ring::map(socket, shape) {
            Ok(ring) => break ring,
            Err(source) if source.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) => {
                let bytes = shape.bytes();
                shape = shape.halved().ok_or(Failed::Ring { bytes, source })?;
            }
            Err(source) => {
                let option = "PACKET_RX_RING";
                return Err(Failed::Option { option, source });
            }
        }
    };
    let buffered = Buffered {
        bytes: shape.bytes(),
        wanted: receive_bytes,
        frames: shape.slots(),
    };
    Ok((ring, buffered))
}
