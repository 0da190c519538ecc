//! Size of a socket's buffer in the kernel: as requested, or with a line that says what to do.

use std::{fmt, io};

use rustix::{fd::AsFd, net::sockopt};

/// Size granted by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    /// Bytes that it keeps.
    pub bytes: usize,
    /// Bytes that were wanted.
    pub wanted: usize,
}

impl Buffered {
    /// Asks for a receive buffer of this size: beyond the usual bound where that is allowed, else
    /// up to it.
    pub fn receive(socket: impl AsFd, wanted: usize) -> io::Result<Self> {
        let socket = socket.as_fd();
        if sockopt::set_socket_recv_buffer_size_force(socket, wanted).is_err() {
            sockopt::set_socket_recv_buffer_size(socket, wanted)?;
        }
        // The kernel says twice of what it was asked for: it counts its own costs.
        let bytes = sockopt::socket_recv_buffer_size(socket)? / 2;
        Ok(Self { bytes, wanted })
    }

    /// Returns whether it is smaller than requested.
    pub const fn is_short(self) -> bool {
        self.bytes < self.wanted
    }
}

impl fmt::Display for Buffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, wanted } = self;
        write!(f, "receive buffer of {bytes} bytes")?;
        if self.is_short() {
            write!(
                f,
                ", {wanted} were wanted: bursts will be lost; set net.core.rmem_max to {wanted}, or \
                 give the process CAP_NET_ADMIN"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_buffer_says_what_to_do() {
        let say = |bytes, wanted| Buffered { bytes, wanted }.to_string();
        assert_eq!(say(4096, 4096), "receive buffer of 4096 bytes");
        assert_eq!(
            say(4096, 8192),
            "receive buffer of 4096 bytes, 8192 were wanted: bursts will be lost; set \
             net.core.rmem_max to 8192, or give the process CAP_NET_ADMIN"
        );
    }
}
