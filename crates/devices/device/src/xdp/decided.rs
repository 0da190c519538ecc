//! Socket filter for clients. Of the frames to a multicast group, it passes only decisions.

use std::os::fd::AsFd;

use aya::{EbpfLoader, programs::SocketFilter};

use crate::xdp::{XdpError, object};

/// Format in which a socket delivers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFormat {
    /// Raw frames of devices with their encapsulation ([`quorate_offload::Encapsulation::Raw`]), as
    /// from a packet socket.
    Frames,
    /// Headers and values only, as from a UDP socket.
    Datagrams,
}

/// Attaches the filter to a socket. The kernel then drops everything except decisions before
/// queueing it.
pub fn filter_decisions(socket: impl AsFd, gives: SocketFormat) -> Result<(), XdpError> {
    let mut loaded = EbpfLoader::new().load(object::DECIDED_FILTER_OBJECT)?;
    let name = match gives {
        SocketFormat::Frames => "frames",
        SocketFormat::Datagrams => "datagrams",
    };
    let program = loaded.program_mut(name).ok_or(XdpError::MismatchedAnswer)?;
    let program = <&mut SocketFilter>::try_from(program)?;
    program.load()?;
    // The socket holds a reference to the program.
    program.attach(socket.as_fd())?;
    Ok(())
}
