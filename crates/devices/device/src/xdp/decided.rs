//! Socket filter for clients. Of the frames to a multicast group, it passes only decisions.

use std::os::fd::AsFd;

use aya::{EbpfLoader, programs::SocketFilter};

use crate::xdp::{Failed, object};

/// Format in which a socket delivers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// Raw frames of devices with their encapsulation ([`quorate_offload::Form::Raw`]), as from a
    /// packet socket.
    Frames,
    /// Headers and values only, as from a UDP socket.
    Datagrams,
}

/// Attaches the filter to a socket. The kernel then drops everything except decisions before
/// queueing it.
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
