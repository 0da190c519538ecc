//! Packet socket that sends a run of datagrams in one system call, and receives without one.

use std::io;

use crate::socket::SendResult;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::ethernet::{
    EthernetError, FrameRefusal, FrameRefusalCounts, Mac, RingSize,
    frame::{self, ETHER_TYPE_MIN, LENGTH_BYTES},
    interface::Interface,
    mapped::ReceiveRing,
    sending::FrameRun,
    shape::RingShape,
    slot::{self, FrameFilter},
    system::{self, SocketBinding},
    xdp::{AllowedModes, ReceiveMode, Xdp, XdpError},
};

/// Maximum number of frames per [`EthernetSocket::receive`], so that other work is not starved.
const FRAMES_PER_RECEIVE_MAX: usize = 256;
/// Number of empty receives between two checks that AF_XDP is still attached.
const ATTACH_CHECK_RECEIVES: u32 = 1024;

/// A non-blocking packet socket on one interface.
pub struct EthernetSocket {
    // Dropped before the socket, although any order would be safe: a mapping keeps its memory.
    ring: ReceiveRing,
    socket: OwnedFd,
    interface: Interface,
    frame_filter: FrameFilter,
    buffered: RingSize,
    refusals: FrameRefusalCounts,
    lost_count: u64,
    /// AF_XDP, which bypasses the network stack, if it is in use.
    xdp: Option<Xdp>,
    /// Number of consecutive receives without a frame.
    empty_receives: u32,
}

impl EthernetSocket {
    /// Opens a socket that receives frames for `interface` and, if `group` is set, for that
    /// multicast group. Several sockets of a machine may share an interface and EtherType; each
    /// receives all frames.
    pub fn bind(
        interface: &str,
        ether_type: u16,
        group: Option<Mac>,
        receive_bytes: usize,
    ) -> Result<Self, EthernetError> {
        if ether_type < ETHER_TYPE_MIN {
            return Err(EthernetError::InvalidEtherType(ether_type));
        }
        if let Some(group) = group.filter(|group| !group.is_multicast()) {
            return Err(EthernetError::NotMulticast(group));
        }
        let socket = open()?;
        let interface = Interface::look_up(interface, socket.as_fd())?;
        let (ring, buffered) = create_ring(socket.as_fd(), interface.mtu, receive_bytes)?;
        // The socket gets its EtherType only now, so that no frames arrive before it has a ring.
        let place = SocketBinding::new(interface.index, ether_type);
        net::bind(&socket, &place).map_err(|error| interface.failed(error, socket.as_fd()))?;
        if let Some(group) = group {
            system::join(socket.as_fd(), interface.index, group).map_err(|source| {
                EthernetError::Join { group, interface: interface.name.clone(), source }
            })?;
        }
        Ok(Self {
            ring,
            socket,
            interface,
            frame_filter: FrameFilter { ether_type, group },
            buffered,
            refusals: FrameRefusalCounts::default(),
            lost_count: 0,
            xdp: None,
            empty_receives: 0,
        })
    }

    /// Makes the socket receive frames through AF_XDP, with space for about `receive_bytes` in each
    /// queue of the interface. Frames of other queues arrive as before. Only one socket per
    /// interface can do so. The program at the interface is removed along with this socket, even if
    /// the process is killed.
    pub fn try_xdp(
        &mut self,
        receive_bytes: usize,
        ways: AllowedModes,
    ) -> Result<ReceiveMode, XdpError> {
        let xdp = Xdp::open(&self.interface, self.frame_filter.ether_type, receive_bytes, ways)?;
        let mode = xdp.mode();
        self.xdp = Some(xdp);
        Ok(mode)
    }

    pub fn mode(&self) -> ReceiveMode {
        self.xdp.as_ref().map(Xdp::mode).unwrap_or_default()
    }

    /// Returns additional sockets that become ready when a frame is waiting.
    /// [`EthernetSocket::receive`] reads all of them.
    pub fn xdp_sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.xdp.iter().flat_map(Xdp::sockets)
    }

    /// Falls back to the packet socket if the AF_XDP program was detached or the interface was
    /// removed.
    fn check_xdp_attached(&mut self) {
        self.xdp.take_if(|xdp| !xdp.is_attached() || xdp.is_broken());
    }

    /// Returns the address that the interface had when the socket was bound.
    pub const fn local(&self) -> Mac {
        self.interface.mac
    }

    /// Returns the MTU that the interface had when the socket was bound.
    pub const fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// Returns the maximum length of a datagram.
    pub fn datagram_bytes_max(&self) -> usize {
        let longest = self.interface.mtu.saturating_sub(LENGTH_BYTES);
        longest.min(usize::from(u16::MAX))
    }

    /// Returns the size of the kernel's receive buffer.
    pub const fn receive_buffer_size(&self) -> RingSize {
        self.buffered
    }

    /// Returns the number of refused frames of the socket's EtherType, by reason.
    pub const fn refusal_counts(&self) -> &FrameRefusalCounts {
        &self.refusals
    }

    /// Returns the number of frames lost because the ring was full.
    pub fn lost_frame_count(&mut self) -> Result<u64, EthernetError> {
        let taken = system::take_lost_count(self.socket.as_fd());
        let option = "PACKET_STATISTICS";
        let more = taken.map_err(|source| EthernetError::SocketOption { option, source })?;
        self.lost_count += u64::from(more);
        let option = "XDP_STATISTICS";
        let by_xdp = self.xdp.as_ref().map_or(Ok(0), Xdp::lost);
        let by_xdp = by_xdp.map_err(|source| EthernetError::SocketOption { option, source })?;
        Ok(self.lost_count + by_xdp)
    }

    /// Sends datagrams that are stored back to back, each in a separate frame, to an interface or a
    /// group. All have the same length, except the last, which may be shorter. The frames are not
    /// looped back.
    pub fn send(
        &mut self,
        to: Mac,
        bytes: &[u8],
        segment_bytes: usize,
    ) -> Result<SendResult, EthernetError> {
        let segment_bytes = segment_bytes.clamp(1, bytes.len().max(1));
        let last_bytes = match bytes.len() % segment_bytes {
            0 => segment_bytes,
            rest => rest,
        };
        let header = |datagram_bytes: usize| {
            let length = u16::try_from(datagram_bytes).ok()?;
            let (from, ether_type) = (self.interface.mac, self.frame_filter.ether_type);
            Some(frame::encode_header(to, from, ether_type, length))
        };
        // [pkt-4] Datagrams are not fragmented. One that does not fit is refused.
        let Some((header, last_header)) = header(segment_bytes).zip(header(last_bytes)) else {
            return Ok(SendResult::TooLong);
        };
        let run = FrameRun { bytes, segment_bytes, header, last_header };
        match self.xdp {
            Some(_) if segment_bytes > self.datagram_bytes_max() => Ok(SendResult::TooLong),
            Some(_) => self.send_by_xdp(&run),
            None => self.send_run(&run),
        }
    }

    /// Sends through AF_XDP, which bypasses the interface's queue, so that traffic shaping does not
    /// apply.
    fn send_by_xdp(&mut self, run: &FrameRun<'_>) -> Result<SendResult, EthernetError> {
        let datagrams = run.datagrams();
        let frames = (0..datagrams).map(|at| run.frame_slices(at));
        let sent = self.xdp.as_mut().map_or(Ok(0), |xdp| xdp.send(frames));
        match sent {
            Ok(sent) if sent == datagrams => Ok(SendResult::All),
            // [rate-2] The device does not keep up.
            Ok(sent) => Ok(SendResult::Dropped(datagrams - sent)),
            Err(Errno::MSGSIZE) => Ok(SendResult::TooLong),
            Err(error) => Err(self.interface.failed(error, self.socket.as_fd())),
        }
    }

    fn send_run(&self, run: &FrameRun<'_>) -> Result<SendResult, EthernetError> {
        let mut sent = 0;
        while sent < run.datagrams() {
            match run.send(self.socket.as_fd(), sent) {
                Ok(more) => sent += more,
                Err(Errno::INTR) => {}
                Err(Errno::MSGSIZE) => return Ok(SendResult::TooLong),
                Err(Errno::AGAIN) => return Ok(SendResult::Blocked(sent)),
                // [rate-2] The interface's queue is full, so the rest of the run would not fit
                // either.
                Err(Errno::NOBUFS) => return Ok(SendResult::Dropped(run.datagrams() - sent)),
                Err(error) => return Err(self.interface.failed(error, self.socket.as_fd())),
            }
        }
        Ok(SendResult::All)
    }

    /// Receives a limited number of frames, and passes each datagram with its claimed source
    /// address to `take`. Returns the number of frames including refused ones, 0 if none are
    /// waiting.
    ///
    /// An interface that is down or removed is reported once, after the frames that arrived
    /// earlier.
    pub fn receive(&mut self, mut take: impl FnMut(Mac, &[u8])) -> Result<usize, EthernetError> {
        let mut frames = self.receive_xdp(&mut take);
        let by_xdp = frames;
        while frames < FRAMES_PER_RECEIVE_MAX {
            let Some(slot) = self.ring.next_frame() else {
                break;
            };
            frames += 1;
            match slot::parse_slot(slot.bytes(), &self.frame_filter) {
                Ok(frame) => take(frame.from, frame.datagram),
                Err(refusal) => self.refusals.count_reason(refusal),
            }
        }
        // Frames on the packet socket either did not pass through the program, or arrived in a
        // queue without a socket. A process that sleeps until it is woken rarely finds no frames
        // twice in succession. A process that spins does so all the time, and must not query the
        // kernel each time.
        self.empty_receives = match frames {
            0 => self.empty_receives.wrapping_add(1),
            _ => 0,
        };
        let looks = frames > by_xdp || self.empty_receives % ATTACH_CHECK_RECEIVES == 2;
        if self.xdp.is_some() && looks {
            self.check_xdp_attached();
        }
        if frames == 0 {
            self.check_interface()?;
        }
        Ok(frames)
    }

    fn receive_xdp(&mut self, mut take: impl FnMut(Mac, &[u8])) -> usize {
        let Self { xdp: Some(xdp), frame_filter: hears, interface, refusals, .. } = self else {
            return 0;
        };
        xdp.receive(FRAMES_PER_RECEIVE_MAX, |bytes| {
            let frame = bytes.ok_or(FrameRefusal::Slot);
            let frame = frame.and_then(|bytes| frame::read(bytes, hears.ether_type));
            // The destination has not been checked yet.
            let is_for_me = |to: Mac| to == interface.mac || hears.group == Some(to);
            match frame {
                Ok(frame) if is_for_me(frame.destination) => take(frame.from, frame.datagram),
                Ok(_) => refusals.count_reason(FrameRefusal::Elsewhere),
                Err(refusal) => refusals.count_reason(refusal),
            }
        })
    }

    /// Reports the state of the interface. A pending error keeps the socket ready until this is
    /// called.
    fn check_interface(&self) -> Result<(), EthernetError> {
        let failed = |error| self.interface.failed(error, self.socket.as_fd());
        sockopt::socket_error(&self.socket).and_then(|error| error).map_err(failed)
    }
}

impl AsFd for EthernetSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open() -> Result<OwnedFd, EthernetError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(open_error)
}

/// Converts an error of opening a packet socket.
pub(crate) fn open_error(error: Errno) -> EthernetError {
    let source = io::Error::from(error);
    match error {
        Errno::PERM | Errno::ACCESS => EthernetError::NoPermission { source },
        _ => EthernetError::SocketOption { option: "AF_PACKET", source },
    }
}

/// Creates a ring of the given size, or the largest one for which there is memory.
fn create_ring(
    socket: BorrowedFd<'_>,
    mtu: usize,
    receive_bytes: usize,
) -> Result<(ReceiveRing, RingSize), EthernetError> {
    let mut shape = RingShape::of(mtu, receive_bytes);
    let ring = loop {
        match ReceiveRing::map(socket, shape) {
            Ok(ring) => break ring,
            Err(source) if source.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) => {
                let bytes = shape.bytes();
                shape =
                    shape.with_half_the_blocks().ok_or(EthernetError::Ring { bytes, source })?;
            }
            Err(source) => {
                let option = "PACKET_RX_RING";
                return Err(EthernetError::SocketOption { option, source });
            }
        }
    };
    let buffered = RingSize {
        bytes: shape.bytes(),
        requested_bytes: receive_bytes,
        frames_max: shape.slots(),
    };
    Ok((ring, buffered))
}
