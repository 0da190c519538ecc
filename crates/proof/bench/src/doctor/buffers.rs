//! Receive buffer of a datagram socket: the size granted to any process, and the size granted to a
//! node with its privileges.

use std::io;

use quorate_packets::socket::ReceiveBufferSize;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::doctor::{finding::Finding, kernel::RECEIVE_BUFFER_BYTES, plane::Plane};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Number of bytes granted by SO_RCVBUF alone.
    pub unprivileged_bytes: usize,
    /// Number of bytes granted to a node, which uses SO_RCVBUFFORCE where permitted.
    pub granted_bytes: usize,
}

/// Requests a receive buffer of [`RECEIVE_BUFFER_BYTES`] bytes, first without privileges and then
/// as a node does.
pub fn measure_buffer() -> io::Result<BufferSizes> {
    let open = || socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let plain = open()?;
    sockopt::set_socket_recv_buffer_size(&plain, RECEIVE_BUFFER_BYTES)?;
    // The kernel reports twice the requested size to account for its overhead.
    let asked = sockopt::socket_recv_buffer_size(&plain)? / 2;
    let got = ReceiveBufferSize::receive(open()?, RECEIVE_BUFFER_BYTES)?.bytes;
    Ok(BufferSizes { unprivileged_bytes: asked, granted_bytes: got })
}

pub fn examine() -> Finding {
    buffer_finding(&measure_buffer())
}

fn buffer_finding(got: &io::Result<BufferSizes>) -> Finding {
    let name = "buffers";
    let planes = &[Plane::Udp, Plane::Multicast, Plane::Chain];
    let hint = format!(
        "sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}, or give the process CAP_NET_ADMIN"
    );
    let found = match got {
        Err(why) => {
            Finding::unknown(name, "no socket takes a size", hint).with_detail(why.to_string())
        }
        Ok(BufferSizes { unprivileged_bytes: asked, granted_bytes: got }) => {
            let what =
                format!("a socket keeps {} KiB of {} KiB", got >> 10, RECEIVE_BUFFER_BYTES >> 10);
            let megabits = ReceiveBufferSize { bytes: *got, requested_bytes: RECEIVE_BUFFER_BYTES }
                .fill_rate_bytes_s()
                / 125_000;
            let detail = format!(
                "SO_RCVBUF alone gives {} KiB; datagrams leave at {megabits} Mbit/s at most",
                asked >> 10
            );
            match *got < RECEIVE_BUFFER_BYTES {
                true => Finding::warning(name, what, hint),
                false => Finding::ok(name, what),
            }
            .with_detail(detail)
        }
    };
    found.with_planes(planes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn short_buffer_is_a_warning_with_a_hint() {
        let of = |asked, got| {
            buffer_finding(&Ok(BufferSizes { unprivileged_bytes: asked, granted_bytes: got }))
        };
        let short = of(212_992, 212_992);
        assert_eq!(short.state, FindingState::Warning);
        assert_eq!(short.what, "a socket keeps 208 KiB of 4096 KiB");
        assert!(short.hint.contains("rmem_max=4194304"), "{short:?}");
        assert!(short.detail.ends_with("at 851 Mbit/s at most"), "{short:?}");
        assert_eq!(of(212_992, RECEIVE_BUFFER_BYTES).state, FindingState::Ok);
        let none = buffer_finding(&Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!((none.state, none.blocks), (FindingState::Unknown, false));
    }

    #[test]
    fn forced_buffer_is_never_smaller() {
        let BufferSizes { unprivileged_bytes: asked, granted_bytes: got } =
            measure_buffer().unwrap();
        assert!(0 < asked && asked <= got, "{asked} {got}");
    }
}
