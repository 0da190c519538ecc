//! Socket filter for clients. Of all frames to a multicast group, it passes only decisions.

use std::os::fd::AsFd;

use aya::{EbpfLoader, programs::SocketFilter};

use crate::xdp::{Failed, object};

/// Format in which a socket delivers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// Raw frames of devices, including what precedes the header ([`quorate_offload::Form::Raw`]),
    /// as a packet socket does.
    Frames,
    /// Headers and values, as a UDP socket does.
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
