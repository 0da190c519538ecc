//! Filter of a client's socket: it passes decisions alone, of all frames to a group of stations.

use std::os::fd::AsFd;

use aya::{EbpfLoader, programs::SocketFilter};

use crate::xdp::{Failed, object};

/// Contents delivered by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Raw frames of devices, with what is before the header ([`quorate_offload::Form::Raw`]): a
    /// packet socket.
    Frames,
    /// Headers and values: a socket of UDP.
    Datagrams,
}

/// Drops everything else from now on, before it waits in the socket.
pub fn hear_only_decisions(socket: impl AsFd, gives: Gives) -> Result<(), Failed> {
    let mut loaded = EbpfLoader::new().load(object::DECIDED)?;
    let name = match gives {
        Gives::Frames => "frames",
        Gives::Datagrams => "datagrams",
    };
    let program = loaded.program_mut(name).ok_or(Failed::Answer)?;
    let program = <&mut SocketFilter>::try_from(program)?;
    program.load()?;
    // The socket holds it.
    program.attach(socket.as_fd())?;
    Ok(())
}
