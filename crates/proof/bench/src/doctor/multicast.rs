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
    Failed,
    reach::{self, Listener},
};

use crate::doctor::{finding::Finding, plane::Plane};

const COUNT: u32 = 50;
/// Time to wait for the datagrams; long enough even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOPBACK: &str = "lo";

/// Sends datagrams on the given interface, or on loopback, and counts the datagrams that return.
pub fn examine(group: SocketAddrV4, interface: Option<&str>) -> Finding {
    let interface = interface.unwrap_or(LOOPBACK);
    multicast_finding(group, interface, &count(group, interface))
}

fn count(group: SocketAddrV4, interface: &str) -> Result<u32, Failed> {
    let (token, sender) = (crate::doctor::reach::token(), 0);
    let mut listener = Listener::join(group, interface, token)?;
    reach::send(group, interface, (token, sender), COUNT, thread::sleep)?;
    // All datagrams have been sent, so count the ones that arrived.
    let until = Instant::now() + PATIENCE;
    let left = || until.saturating_duration_since(Instant::now());
    let listened = listener.listen(left, &AtomicBool::new(true));
    listened.map_err(|source| Failed::Option { option: "poll", source })?;
    let heard = listener.sender_counts();
    Ok(heard.first().map_or(0, |heard| heard.count))
}

fn multicast_finding(group: SocketAddrV4, interface: &str, heard: &Result<u32, Failed>) -> Finding {
    let name = "multicast";
    let alone = match interface {
        LOOPBACK => "loopback only: use --admin to test other machines",
        _ => "received by this machine itself: use --admin to test other machines",
    };
    let hint = format!("check ip link show {interface}, and that no firewall drops {group}");
    match heard {
        Ok(COUNT) => Finding::ok(
            name,
            format!("{COUNT} of {COUNT} to {group} on {interface}, this machine alone"),
        )
        .detail(alone)
        .about(&[Plane::Multicast]),
        Ok(0) => Finding::warning(name, format!("none of {COUNT} to {group} on {interface}"), hint)
            .detail(alone)
            .blocks(&[Plane::Multicast]),
        Ok(some) => {
            Finding::warning(name, format!("{some} of {COUNT} to {group} on {interface}"), hint)
                .detail(alone)
                .about(&[Plane::Multicast])
        }
        Err(why) => Finding::warning(name, format!("{group} cannot be used on {interface}"), hint)
            .detail(why.to_string())
            .blocks(&[Plane::Multicast]),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::doctor::finding::State;

    const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 72), 7460);

    #[test]
    fn total_loss_blocks_the_plane_and_some_loss_is_a_warning() {
        let of = |heard| multicast_finding(GROUP, "eth0", &Ok(heard));
        assert_eq!((of(50).state, of(50).blocks), (State::Ok, false));
        assert_eq!((of(49).state, of(49).blocks), (State::Warning, false));
        assert_eq!((of(0).state, of(0).blocks), (State::Warning, true));
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
