//! Multicast test on this machine alone: datagrams sent to a multicast group must return to a local
//! listener.
//!
//! [`crate::doctor::reach`] tests whether the group reaches other machines.

use std::{
    net::SocketAddrV4,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use quorate_packets::socket::{
    SocketError,
    reach::{self, ReachListener},
};

use crate::doctor::{finding::Finding, plane::Plane};

const DATAGRAM_COUNT: u32 = 50;
/// Time to wait for the datagrams; long enough even on a busy machine.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);
const LOOPBACK_INTERFACE: &str = "lo";

/// Sends datagrams on the given interface, or on loopback, and counts the datagrams that return.
pub fn examine(group: SocketAddrV4, interface: Option<&str>) -> Finding {
    let interface = interface.unwrap_or(LOOPBACK_INTERFACE);
    multicast_finding(group, interface, &count_returned(group, interface))
}

fn count_returned(group: SocketAddrV4, interface: &str) -> Result<u32, SocketError> {
    let (token, sender) = (crate::doctor::reach::draw_test_token(), 0);
    let mut listener = ReachListener::join(group, interface, token)?;
    reach::send_test_datagrams(group, interface, (token, sender), DATAGRAM_COUNT, thread::sleep)?;
    // All datagrams have been sent, so count the ones that arrived.
    let until = Instant::now() + RECEIVE_TIMEOUT;
    let left = || until.saturating_duration_since(Instant::now());
    let listened = listener.count_until(left, &AtomicBool::new(true));
    listened.map_err(|source| SocketError::Option { option: "poll", source })?;
    let heard = listener.sender_counts();
    Ok(heard.first().map_or(0, |heard| heard.count))
}

fn multicast_finding(
    group: SocketAddrV4,
    interface: &str,
    heard: &Result<u32, SocketError>,
) -> Finding {
    let name = "multicast";
    let alone = match interface {
        LOOPBACK_INTERFACE => "loopback only: use --admin to test other machines",
        _ => "received by this machine itself: use --admin to test other machines",
    };
    let hint = format!("check ip link show {interface}, and that no firewall drops {group}");
    match heard {
        Ok(DATAGRAM_COUNT) => Finding::ok(
            name,
            format!(
                "{DATAGRAM_COUNT} of {DATAGRAM_COUNT} to {group} on {interface}, this machine alone"
            ),
        )
        .with_detail(alone)
        .with_planes(&[Plane::Multicast]),
        Ok(0) => Finding::warning(
            name,
            format!("none of {DATAGRAM_COUNT} to {group} on {interface}"),
            hint,
        )
        .with_detail(alone)
        .blocking(&[Plane::Multicast]),
        Ok(some) => Finding::warning(
            name,
            format!("{some} of {DATAGRAM_COUNT} to {group} on {interface}"),
            hint,
        )
        .with_detail(alone)
        .with_planes(&[Plane::Multicast]),
        Err(why) => Finding::warning(name, format!("{group} cannot be used on {interface}"), hint)
            .with_detail(why.to_string())
            .blocking(&[Plane::Multicast]),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::doctor::finding::FindingState;

    const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 72), 7460);

    #[test]
    fn total_loss_blocks_the_plane_and_some_loss_is_a_warning() {
        let of = |heard| multicast_finding(GROUP, "eth0", &Ok(heard));
        assert_eq!((of(50).state, of(50).blocks), (FindingState::Ok, false));
        assert_eq!((of(49).state, of(49).blocks), (FindingState::Warning, false));
        assert_eq!((of(0).state, of(0).blocks), (FindingState::Warning, true));
        assert!(
            multicast_finding(GROUP, "lo", &Ok(50))
                .detail
                .contains("use --admin to test other machines")
        );
    }

    #[test]
    fn missing_interface_blocks_and_is_named() {
        let found = examine(GROUP, Some("no-such-if"));
        assert!(found.blocks && found.detail.contains("no-such-if"), "{found:?}");
    }
}
