//! Counters of the network; plain numbers, read through [`crate::Handle::metrics`].

use std::fmt::Write as _;

macro_rules! stats {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// Counters since the reactor started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Stats {
            pub(crate) fn plus(&self, other: &Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ }
            }

            /// Appends the counters in the text format of Prometheus.
            pub fn render(&self, out: &mut String) {
                $(
                    let help = concat!($($help),+);
                    let name = concat!("quorate_net_", stringify!($name), "_total");
                    let _ = writeln!(out, "# HELP {name}{help}\n# TYPE {name} counter");
                    let _ = writeln!(out, "{name} {}", self.$name);
                )+
            }
        }
    };
}

stats! {
    /// Turns of the reactor.
    turns,
    /// Frames received from peers.
    frames_in,
    /// Frames handed to a peer's queue.
    frames_out,
    /// Bytes received from peers.
    peer_bytes_in,
    /// Bytes sent to peers.
    peer_bytes_out,
    /// Frames received in datagrams; included in the frames received.
    frames_in_datagrams,
    /// Frames sent in datagrams, counted for each peer; included in the frames sent.
    frames_out_datagrams,
    /// Datagrams received.
    datagrams_in,
    /// Datagrams sent; a datagram to a group counts once.
    datagrams_out,
    /// Datagrams dropped because the device was full.
    datagrams_dropped,
    /// Number of times that datagrams waited because the socket was full.
    datagrams_blocked,
    /// Failed system calls to send datagrams.
    datagrams_failed,
    /// Frames in datagrams that were malformed, not their sender's, or from a peer that is not
    /// connected.
    datagram_frames_refused,
    /// System calls that received datagrams.
    calls_datagram_read,
    /// System calls that sent datagrams.
    calls_datagram_write,
    /// Messages lost because a peer's queue was full.
    drops_full,
    /// Messages lost because a peer was not connected.
    drops_unconnected,
    /// Connections to peers that became usable.
    peers_connected,
    /// Dials of peers.
    dials,
    /// Handshakes refused, by either side.
    refusals,
    /// Connections, of peers and of clients, that ended because a side did not prove its identity.
    tls_failures,
    /// Connections closed because of malformed frames.
    malformed,
    /// Clients accepted.
    clients_accepted,
    /// Clients disconnected.
    clients_closed,
    /// Clients disconnected because they used most of the memory for clients.
    clients_shed,
    /// Client connections reset on an error that their protocol cannot express.
    clients_reset,
    /// Number of times that the node was too busy to read a client's input.
    client_holds,
    /// Bytes received from clients.
    client_bytes_in,
    /// Bytes sent to clients.
    client_bytes_out,
    /// Number of times that accepting connections was paused.
    accept_pauses,
    /// System calls that waited for events, or polled for them.
    calls_wait,
    /// Waits that began with polling.
    spins,
    /// Waits in which polling found an event.
    spins_ended,
    /// System calls that read from peers.
    calls_peer_read,
    /// System calls that wrote to peers.
    calls_peer_write,
    /// System calls that read from clients.
    calls_client_read,
    /// System calls that wrote to clients.
    calls_client_write,
    /// System calls of I/O threads that waited for events.
    calls_io_thread_wait,
    /// Records that I/O threads handed to the thread that orders.
    io_thread_records,
    /// Number of times that an I/O thread took over a client's connection.
    io_thread_moves,
    /// Number of calls of the host's `submit_records`.
    submits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_render_for_prometheus() {
        let mut text = String::new();
        Stats { frames_in: 7, ..Stats::default() }.render(&mut text);
        assert!(text.contains(
            "# HELP quorate_net_frames_in_total Frames received from peers.\n\
             # TYPE quorate_net_frames_in_total counter\nquorate_net_frames_in_total 7\n"
        ));
    }
}
