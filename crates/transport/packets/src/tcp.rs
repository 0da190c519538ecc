//! Round-trip time of a TCP connection, as measured by the kernel.
#![allow(unsafe_code, reason = "rustix does not have this option")]

use std::{mem::zeroed, ptr};

use libc::{socklen_t, tcp_info};
use rustix::fd::{AsFd, AsRawFd as _};

/// Returns the smoothed round-trip time in microseconds; `None` before the first acknowledgement
/// and on other sockets.
pub fn rtt_us(socket: impl AsFd) -> Option<u64> {
    // SAFETY: the structure consists of numbers, so zeros are valid.
    let mut info: tcp_info = unsafe { zeroed() };
    let mut length = socklen_t::try_from(size_of::<tcp_info>()).ok()?;
    // SAFETY: the kernel writes at most `length` bytes at `info`, and their number at `length`;
    // both outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            ptr::from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    (answer == 0 && info.tcpi_rtt > 0).then(|| info.tcpi_rtt.into())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn only_connections_have_a_round_trip_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // The handshake is the first measurement.
        assert!(rtt_us(&stream).unwrap() < 1_000_000);
        assert_eq!(rtt_us(UdpSocket::bind("127.0.0.1:0").unwrap()), None);
    }
}
