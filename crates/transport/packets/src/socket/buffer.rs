//! Receive buffers of sockets, and the send rate that they can absorb.

use std::io;

use rustix::{fd::AsFd, net::sockopt};

/// Maximum time for which a receiver on a busy machine is assumed not to read its socket, in
/// microseconds.
const RECEIVER_PAUSE_US_MAX: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBufferSize {
    /// Actual size, in bytes.
    pub bytes: usize,
    /// Requested size, in bytes.
    pub requested_bytes: usize,
}

impl ReceiveBufferSize {
    /// Requests a receive buffer of `wanted` bytes. The size may exceed net.core.rmem_max only if
    /// the process has the required capability.
    pub fn receive(socket: impl AsFd, wanted: usize) -> io::Result<Self> {
        let socket = socket.as_fd();
        if sockopt::set_socket_recv_buffer_size_force(socket, wanted).is_err() {
            sockopt::set_socket_recv_buffer_size(socket, wanted)?;
        }
        // The kernel reports twice the size, to include its own overhead.
        let bytes = sockopt::socket_recv_buffer_size(socket)? / 2;
        Ok(Self { bytes, requested_bytes: wanted })
    }

    /// Returns the rate at which the buffer fills up while the receiver does not read, in bytes per
    /// second ([rate-1]).
    pub const fn fill_rate_bytes_s(self) -> u64 {
        (self.bytes as u64).saturating_mul(1_000_000 / RECEIVER_PAUSE_US_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_kernel_buffer_supports_851_megabits() {
        let rate = |bytes| {
            ReceiveBufferSize { bytes, requested_bytes: 16 << 20 }.fill_rate_bytes_s() * 8
                / 1_000_000
        };
        assert_eq!((rate(212_992), rate(16 << 20)), (851, 67_108));
    }
}
