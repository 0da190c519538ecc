//! Receive buffer of a datagram socket: the size granted to any process, and the size granted to a
//! node with its privileges.

use std::io;

use quorate_packets::socket::Buffered;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::doctor::{finding::Finding, kernel::BUFFER_BYTES, plane::Plane};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Number of bytes granted by SO_RCVBUF alone.
    pub asked: usize,
    /// Number of bytes granted to a node, which uses SO_RCVBUFFORCE where permitted.
    pub got: usize,
}

/// Requests a receive buffer of [`BUFFER_BYTES`] bytes, first without privileges and then as a node
/// does.
pub fn measure_buffer() -> io::Result<BufferSizes> {
    let open = || socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let plain = open()?;
    sockopt::set_socket_recv_buffer_size(&plain, BUFFER_BYTES)?;
    // The kernel reports twice the requested size to account for its overhead.
    let asked = sockopt::socket_recv_buffer_size(&plain)? / 2;
    let got = Buffered::receive(open()?, BUFFER_BYTES)?.bytes;
    Ok(BufferSizes { asked, got })
}

pub fn examine() -> Finding {
    buffer_finding(&measure_buffer())
}

fn buffer_finding(got: &io::Result<BufferSizes>) -> Finding {
    let name = "buffers";
    let planes = &[Plane::Udp, Plane::Multicast, Plane::Chain];
    let hint =
        format!("sysctl -w net.core.rmem_max={BUFFER_BYTES}, or give the process CAP_NET_ADMIN");
    let found = match got {
        Err(why) => Finding::unknown(name, "no socket takes a size", hint).detail(why.to_string()),
        Ok(BufferSizes { asked, got }) => {
            let what = format!("a socket keeps {} KiB of {} KiB", got >> 10, BUFFER_BYTES >> 10);
            let megabits =
                Buffered { bytes: *got, requested: BUFFER_BYTES }.fills_bytes_s() / 125_000;
            let detail = format!(
                "SO_RCVBUF alone gives {} KiB; datagrams leave at {megabits} Mbit/s at most",
                asked >> 10
            );
            match *got < BUFFER_BYTES {
                true => Finding::warning(name, what, hint),
                false => Finding::ok(name, what),
            }
            .detail(detail)
        }
    };
    found.about(planes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn short_buffer_is_a_warning_with_a_hint() {
        let of = |asked, got| buffer_finding(&Ok(BufferSizes { asked, got }));
        let short = of(212_992, 212_992);
        assert_eq!(short.state, State::Warning);
        assert_eq!(short.what, "a socket keeps 208 KiB of 4096 KiB");
        assert!(short.hint.contains("rmem_max=4194304"), "{short:?}");
        assert!(short.detail.ends_with("at 851 Mbit/s at most"), "{short:?}");
        assert_eq!(of(212_992, BUFFER_BYTES).state, State::Ok);
        let none = buffer_finding(&Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!((none.state, none.blocks), (State::Unknown, false));
    }

    #[test]
    fn forced_buffer_is_never_smaller() {
        let BufferSizes { asked, got } = measure_buffer().unwrap();
        assert!(0 < asked && asked <= got, "{asked} {got}");
    }
}
