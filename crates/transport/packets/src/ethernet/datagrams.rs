//! A packet socket: a run of datagrams in one call, arrivals without one.

use std::io;

use crate::socket::Sent;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::ethernet::{
    Buffered, Failed, Mac, Refusal, Refusals,
    frame::{self, ETHER_TYPE_MIN, LENGTH_BYTES},
    interface::Interface,
    mapped::Ring,
    sending::Run,
    shape::Shape,
    slot::{self, Hears},
    system::{self, Place},
    xdp::{Mode, NoXdp, Ways, Xdp},
};

/// Frames of one [`Ethernet::receive`]: others have a turn, too.
const BATCH: usize = 256;
/// Looks that found nothing, from one question whether AF_XDP is still there to the next.
const QUIET: u32 = 1024;

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
    /// The way past the network stack, if there is one.
    xdp: Option<Xdp>,
    /// Consecutive looks that found nothing.
    quiet: u32,
}

impl Ethernet {
    /// A socket that hears what is for this interface and, if one is named, for a group. Several
    /// sockets of a machine may have one interface and EtherType: each hears everything.
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
        // It has no EtherType until now, so that nothing is heard that came before there was a
        // ring.
        let place = Place::new(interface.index, ether_type);
        net::bind(&socket, &place).map_err(|error| interface.failed(error, socket.as_fd()))?;
        if let Some(group) = group {
            system::join(socket.as_fd(), interface.index, group).map_err(|source| {
                Failed::Join { group, interface: interface.name.clone(), source }
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
            xdp: None,
            quiet: 0,
        })
    }

    /// Takes frames by AF_XDP from now on, with room for about so many bytes in each queue of the
    /// interface; what comes by no queue of these is heard as before. One socket of an interface
    /// can. The program at the interface is gone with this socket, however its process ends.
    pub fn use_xdp(&mut self, receive_bytes: usize, ways: Ways) -> Result<Mode, NoXdp> {
        let xdp = Xdp::open(&self.interface, self.hears.ether_type, receive_bytes, ways)?;
        let mode = xdp.mode();
        self.xdp = Some(xdp);
        Ok(mode)
    }

    /// Returns the way frames arrive now.
    pub fn mode(&self) -> Mode {
        self.xdp.as_ref().map(Xdp::mode).unwrap_or_default()
    }

    /// Returns the further sockets that become ready when a frame waits; [`Ethernet::receive`]
    /// reads all of them.
    pub fn more_sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.xdp.iter().flat_map(Xdp::sockets)
    }

    /// The program may have been taken away, or the interface: then frames come as before.
    fn look_at_xdp(&mut self) {
        self.xdp.take_if(|xdp| !xdp.is_attached() || xdp.is_broken());
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

    /// Returns the size of the kernel's buffer.
    pub const fn buffered(&self) -> Buffered {
        self.buffered
    }

    /// Frames of this EtherType that were not taken.
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns the number of frames that found no space in the ring so far.
    pub fn lost(&mut self) -> Result<u64, Failed> {
        let taken = system::take_lost(self.socket.as_fd());
        let option = "PACKET_STATISTICS";
        let more = taken.map_err(|source| Failed::Option { option, source })?;
        self.lost += u64::from(more);
        let option = "XDP_STATISTICS";
        let by_xdp = self.xdp.as_ref().map_or(Ok(0), Xdp::lost);
        let by_xdp = by_xdp.map_err(|source| Failed::Option { option, source })?;
        Ok(self.lost + by_xdp)
    }

    /// Sends datagrams that lie one behind the other, all of one length but for the last, which may
    /// be shorter; each in a frame of its own. To a group, as to a single interface. They do not
    /// come back.
    pub fn send(&mut self, to: Mac, bytes: &[u8], segment_bytes: usize) -> Result<Sent, Failed> {
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
        let run = Run { bytes, segment_bytes, header, last_header };
        match self.xdp {
            Some(_) if segment_bytes > self.datagram_bytes_max() => Ok(Sent::TooLong),
            Some(_) => self.send_by_xdp(&run),
            None => self.send_run(&run),
        }
    }

    /// Past the interface's queue, which AF_XDP does not know: what shapes there does not hold.
    fn send_by_xdp(&mut self, run: &Run<'_>) -> Result<Sent, Failed> {
        let datagrams = run.datagrams();
        let frames = (0..datagrams).map(|at| run.frame(at));
        let sent = self.xdp.as_mut().map_or(Ok(0), |xdp| xdp.send(frames));
        match sent {
            Ok(sent) if sent == datagrams => Ok(Sent::All),
            // [rate-2] The device does not keep up.
            Ok(sent) => Ok(Sent::Dropped(datagrams - sent)),
            Err(Errno::MSGSIZE) => Ok(Sent::TooLong),
            Err(error) => Err(self.interface.failed(error, self.socket.as_fd())),
        }
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

    /// Takes what arrived, up to a bound: each datagram, with the address that it claims to be
    /// from, goes to `take`. How many frames there were, refused ones too; none: nothing waits.
    ///
    /// That the interface is down or gone is said once, behind what arrived before.
    pub fn receive(&mut self, mut take: impl FnMut(Mac, &[u8])) -> Result<usize, Failed> {
        let mut frames = self.receive_xdp(&mut take);
        let by_xdp = frames;
        while frames < BATCH {
            let Some(slot) = self.ring.next() else {
                break;
            };
            frames += 1;
            match slot::read(slot.bytes(), &self.hears) {
                Ok(frame) => take(frame.from, frame.datagram),
                Err(refusal) => self.refusals.count(refusal),
            }
        }
        // Frames on the packet socket did not pass the program, or passed it by a queue without a
        // socket. A process that sleeps until woken finds nothing here twice in a row; one that
        // never sleeps does so all the time, and need not ask the kernel each time.
        self.quiet = match frames {
            0 => self.quiet.wrapping_add(1),
            _ => 0,
        };
        let looks = frames > by_xdp || self.quiet % QUIET == 2;
        if self.xdp.is_some() && looks {
            self.look_at_xdp();
        }
        if frames == 0 {
            self.check()?;
        }
        Ok(frames)
    }

    fn receive_xdp(&mut self, mut take: impl FnMut(Mac, &[u8])) -> usize {
        let Self { xdp: Some(xdp), hears, interface, refusals, .. } = self else {
            return 0;
        };
        xdp.receive(BATCH, |bytes| {
            let frame = bytes.ok_or(Refusal::Slot);
            let frame = frame.and_then(|bytes| frame::read(bytes, hears.ether_type));
            // The destination has not been checked yet.
            let is_for_me = |to: Mac| to == interface.mac || hears.group == Some(to);
            match frame {
                Ok(frame) if is_for_me(frame.to) => take(frame.from, frame.datagram),
                Ok(_) => refusals.count(Refusal::Elsewhere),
                Err(refusal) => refusals.count(refusal),
            }
        })
    }

    /// Checks the state of the interface; until this is called, the socket is always ready.
    fn check(&self) -> Result<(), Failed> {
        let failed = |error| self.interface.failed(error, self.socket.as_fd());
        sockopt::socket_error(&self.socket).and_then(|error| error).map_err(failed)
    }
}

impl AsFd for Ethernet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open() -> Result<OwnedFd, Failed> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(refused)
}

/// Why there is no packet socket.
pub(crate) fn refused(error: Errno) -> Failed {
    let source = io::Error::from(error);
    match error {
        Errno::PERM | Errno::ACCESS => Failed::Rights { source },
        _ => Failed::Option { option: "AF_PACKET", source },
    }
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
    let buffered = Buffered { bytes: shape.bytes(), wanted: receive_bytes, frames: shape.slots() };
    Ok((ring, buffered))
}
