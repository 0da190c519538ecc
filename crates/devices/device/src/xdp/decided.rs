//! Socket filter for clients: of all frames to a multicast group it passes only decisions.

use std::os::fd::AsFd;

use aya::{EbpfLoader, programs::SocketFilter};

use crate::xdp::{Failed, object};

/// Contents delivered by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// Raw frames of devices, including what precedes the header ([`quorate_offload::Form::Raw`]):
    /// a packet socket.
    Frames,
    /// Headers and values: a UDP socket.
    Datagrams,
}

/// Attaches the filter, so that the kernel drops everything except decisions before it is queued.
pub fn hear_only_decisions(socket: impl AsFd, gives: SocketKind) -> Result<(), Failed> {
    let mut loaded = EbpfLoader::new().load(object::DECIDED)?;
    let name = match gives {
        SocketKind::Frames => "frames",
        SocketKind::Datagrams => "datagrams",
    };
    let program = loaded.program_mut(name).ok_or(Failed::Answer)?;
    let program = <&mut SocketFilter>::try_from(program)?;
    program.load()?;
    // The socket holds a reference to the program.
    program.attach(socket.as_fd())?;
    Ok(())
}
