//! AF_XDP: frames of our EtherType bypass the kernel's network stack and are placed directly in
//! this process's memory.
//!
//! It complements a packet socket, which receives frames of other queues, and all frames once the
//! program at the interface has been removed. Reading order: `program` (run by the kernel for each
//! frame), `queue` (a socket and its rings), `shared` (the memory), `bpf` and `system` (system
//! calls).

mod bpf;
mod program;
mod queue;
mod shared;
mod system;

use std::{fmt, io};

use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    io::Errno,
    net::sockopt,
};

use self::{
    bpf::{AttachPoint, SocketMap},
    queue::Queue,
    system::CopyMode,
};
use crate::ethernet::interface::Interface;

/// Maximum number of sockets, one for each queue of the interface. Frames of further queues arrive
/// through the packet socket.
const QUEUES_MAX: u32 = 8;
/// Path of frames from the interface into this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// Frames arrive through a packet socket.
    #[default]
    PacketSocket,
    /// Frames arrive through AF_XDP. The kernel copies each frame once.
    XdpCopy,
    /// Frames arrive through AF_XDP. The device writes them to where they are read.
    XdpZeroCopy,
}

impl ReceiveMode {
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketSocket => "packet",
            Self::XdpCopy => "xdp, copied",
            Self::XdpZeroCopy => "xdp, zero copy",
        }
    }
}

impl fmt::Display for ReceiveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Modes of AF_XDP to try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedModes {
    #[default]
    ZeroCopy,
    /// Zero copy, or else copies by the kernel.
    WithCopies,
}

#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The process lacks a capability that the socket or the program needs.
    #[error(
        "AF_XDP needs the rights CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF ({what}: {source}): AmbientCapabilities= in the unit"
    )]
    NoPermission { what: &'static str, source: io::Error },
    /// Frames of this MTU do not fit into a page.
    #[error(
        "frames of an MTU of {mtu} do not fit: AF_XDP takes one page each, an MTU of 3826 at most"
    )]
    Mtu { mtu: usize },
    /// Another program is attached to the interface.
    #[error(
        "{interface} is taken by another program of XDP ({source}): `ip link show {interface}` names it"
    )]
    InterfaceTaken { interface: String, source: io::Error },
    /// A queue is in use, or was until a moment ago: a closed socket keeps its queue for a third of
    /// a second.
    #[error("a queue of {interface} belongs to another socket of AF_XDP: {source}")]
    QueueBusy { interface: String, source: io::Error },
    /// The driver does not let the device write to the process's memory.
    #[error(
        "the driver of {interface} copies each frame ({source}), and that was measured to be no faster for short messages; \
         --plane-ethernet xdp takes it anyhow"
    )]
    ZeroCopyUnsupported { interface: String, source: io::Error },
    /// The kernel or the driver lacks support, or there is not enough memory.
    #[error("{interface} has no AF_XDP here: {what}: {source}")]
    Unsupported { interface: String, what: &'static str, source: io::Error },
}

impl XdpError {
    /// Returns whether a retry may succeed.
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::QueueBusy { .. })
    }
}

/// The sockets of an interface's queues, and the program that directs frames to them. Dropping it
/// removes the program, so that frames arrive through the packet socket again.
pub(crate) struct Xdp {
    queues: Vec<Queue>,
    /// Queue to read first in the next turn, so that none starves.
    next_queue: usize,
    mode: ReceiveMode,
    link: OwnedFd,
    /// Program at the interface. The kernel keeps it and its map while the link exists.
    _program: OwnedFd,
    _map: SocketMap,
}

impl Xdp {
    /// Attaches to an interface for frames of `ether_type`, with space for about `receive_bytes`
    /// bytes of waiting frames in each queue.
    pub(crate) fn open(
        interface: &Interface,
        ether_type: u16,
        receive_bytes: usize,
        ways: AllowedModes,
    ) -> Result<Self, XdpError> {
        if !queue::fits_chunk(interface.mtu) {
            return Err(XdpError::Mtu { mtu: interface.mtu });
        }
        let bind = |queue, copies| {
            let (index, mtu) = (interface.index, interface.mtu);
            Queue::bind(index, queue, mtu, receive_bytes, copies).map_err(|source| {
                if is_errno(&source, Errno::BUSY) {
                    let interface = interface.name.clone();
                    return XdpError::QueueBusy { interface, source };
                }
                failed(interface, "a socket", source)
            })
        };
        let (copies, first) = match (bind(0, CopyMode::DeviceAccess), ways) {
            (Ok(first), _) => (CopyMode::DeviceAccess, first),
            (Err(XdpError::Unsupported { .. }), AllowedModes::WithCopies) => {
                (CopyMode::KernelCopies, bind(0, CopyMode::KernelCopies)?)
            }
            (Err(XdpError::Unsupported { source, .. }), AllowedModes::ZeroCopy) => {
                return Err(XdpError::ZeroCopyUnsupported {
                    interface: interface.name.clone(),
                    source,
                });
            }
            (Err(error), _) => return Err(error),
        };
        let mut queues = vec![first];
        for queue in 1..QUEUES_MAX {
            // The interface has no more queues.
            match bind(queue, copies) {
                Ok(next) => queues.push(next),
                Err(_) => break,
            }
        }
        let lacks = |what| move |source| failed(interface, what, source);
        let map = SocketMap::new(QUEUES_MAX).map_err(lacks("a map of sockets"))?;
        for (queue, place) in queues.iter().zip(0..) {
            map.set_socket(place, queue.as_fd()).map_err(lacks("a place for a socket"))?;
        }
        let instructions = program::redirect_program(ether_type, map.descriptor());
        let program = bpf::load_program(&instructions).map_err(lacks("a program"))?;
        let attach = |at| bpf::attach_program(program.as_fd(), interface.index, at);
        let link = match attach(AttachPoint::Driver) {
            Err(error) if copies == CopyMode::KernelCopies && !is_errno(&error, Errno::BUSY) => {
                attach(AttachPoint::Kernel)
            }
            other => other,
        };
        let link = link.map_err(lacks("the place of a program"))?;
        Ok(Self {
            queues,
            next_queue: 0,
            mode: match copies {
                CopyMode::KernelCopies => ReceiveMode::XdpCopy,
                CopyMode::DeviceAccess => ReceiveMode::XdpZeroCopy,
            },
            link,
            _program: program,
            _map: map,
        })
    }

    pub(crate) const fn mode(&self) -> ReceiveMode {
        self.mode
    }

    /// Returns the sockets, which are readable when a frame is waiting.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(Queue::as_fd)
    }

    pub(crate) fn is_attached(&self) -> bool {
        bpf::is_attached(&self.link)
    }

    /// Receives up to `most` frames, serving the queues in turn, and passes each to `take`. A frame
    /// with an invalid description is passed as `None`. Returns the number of frames.
    pub(crate) fn receive(&mut self, most: usize, mut take: impl FnMut(Option<&[u8]>)) -> usize {
        self.queues[0].send_unsent();
        let mut count = 0;
        let queues = self.queues.len();
        for _ in 0..queues {
            let queue = &mut self.queues[self.next_queue];
            count += queue.receive(most - count, &mut take);
            if count >= most {
                break;
            }
            self.next_queue = (self.next_queue + 1) % queues;
        }
        count
    }

    /// Sends frames through the first queue while there is space. Returns how many it accepted.
    pub(crate) fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; 2]>,
    ) -> Result<usize, Errno> {
        self.queues[0].send(frames)
    }

    pub(crate) fn lost(&self) -> io::Result<u64> {
        self.queues.iter().map(Queue::lost).sum()
    }

    /// Returns whether a socket has lost its interface. A pending error keeps the socket ready
    /// until this is called.
    pub(crate) fn is_broken(&self) -> bool {
        let error = |queue: &Queue| sockopt::socket_error(queue);
        let mut errors = self.queues.iter().map(error);
        errors.any(|error| !matches!(error, Ok(Ok(()))))
    }
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn failed(interface: &Interface, what: &'static str, source: io::Error) -> XdpError {
    let name = interface.name.clone();
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => XdpError::NoPermission { what, source },
        Some(Errno::BUSY) => XdpError::InterfaceTaken { interface: name, source },
        _ => XdpError::Unsupported { interface: name, what, source },
    }
}
