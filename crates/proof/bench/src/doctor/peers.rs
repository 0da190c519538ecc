//! Connects to peers to test whether they are reachable. The time to connect is one network round
//! trip.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _},
    thread,
    time::{Duration, Instant},
};

use crate::doctor::{finding::Finding, plane::Plane};

/// Number of connections to each peer. The median of their connection times counts.
const CONNECTIONS_PER_PEER: usize = 7;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
pub const PEERS_MAX: usize = 64;

/// A peer with the result of connecting to it.
#[derive(Clone, Debug, PartialEq)]
pub struct DialledPeer {
    pub address: String,
    /// Address to which the name resolved; `None` if it did not resolve.
    pub resolved_address: Option<IpAddr>,
    pub outcome: DialOutcome,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DialOutcome {
    /// A process listens. Contains the time to connect, in microseconds.
    Listens(f64),
    /// The machine is reachable, but no process listens at the port.
    Refused,
    /// The peer did not reply, or its name has no address. Contains the reason.
    Unreachable(String),
}

/// Connects to all peers in parallel.
pub fn dial_all(addresses: &[String]) -> Vec<DialledPeer> {
    thread::scope(|scope| {
        let asked = addresses.iter().take(PEERS_MAX);
        let threads: Vec<_> =
            asked.map(|address| scope.spawn(move || dial_peer(address))).collect();
        let dialled =
            threads.into_iter().map(|thread| thread.join().expect("dialling does not panic"));
        dialled.collect()
    })
}

fn dial_peer(address: &str) -> DialledPeer {
    let resolved = address.to_socket_addrs().map(|mut all| all.next());
    let (place, outcome) = match resolved {
        Ok(Some(place)) => (Some(place.ip()), time_connection(place)),
        Ok(None) => (None, DialOutcome::Unreachable("the name has no address".to_owned())),
        Err(error) => (None, DialOutcome::Unreachable(error.to_string())),
    };
    DialledPeer { address: address.to_owned(), resolved_address: place, outcome }
}

fn time_connection(place: SocketAddr) -> DialOutcome {
    let mut times = Vec::new();
    for _ in 0..CONNECTIONS_PER_PEER {
        let before = Instant::now();
        match TcpStream::connect_timeout(&place, CONNECT_TIMEOUT) {
            Ok(_) => times.push(before.elapsed().as_secs_f64() * 1e6),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return DialOutcome::Refused;
            }
            Err(error) => return DialOutcome::Unreachable(error.to_string()),
        }
    }
    times.sort_by(f64::total_cmp);
    DialOutcome::Listens(times[CONNECTIONS_PER_PEER / 2])
}

/// Returns a finding for each peer. If no peer is reachable, no plane works, whereas a single
/// unreachable peer is an ordinary failure.
pub fn examine(dialled: &[DialledPeer]) -> Vec<Finding> {
    let away = |peer: &DialledPeer| matches!(peer.outcome, DialOutcome::Unreachable(_));
    let alone = dialled.iter().all(away);
    dialled.iter().map(|peer| peer_finding(peer, alone)).collect()
}

fn peer_finding(peer: &DialledPeer, alone: bool) -> Finding {
    let name = format!("peer {}", peer.address);
    match &peer.outcome {
        DialOutcome::Listens(us) => {
            Finding::ok(&name, format!("connected in {us:.0} µs")).with_planes(&Plane::ALL)
        }
        DialOutcome::Refused => {
            let hint = "start the node there; check that this is its --peer address";
            Finding::warning(&name, "the machine answers, but nothing listens on the port", hint)
                .with_planes(&Plane::ALL)
        }
        DialOutcome::Unreachable(why) => {
            let hint = "check firewalls, and the routes of both machines";
            let found = Finding::failing(&name, "cannot be reached", hint).with_detail(why);
            match alone {
                true => found.blocking(&Plane::ALL),
                false => found.with_planes(&Plane::ALL),
            }
        }
    }
}

/// Returns the round trip to the peer that completes a majority: of n − 1 peers ⌊n/2⌋ must reply.
/// Returns `None` if fewer than ⌊n/2⌋ round trips are known, or if all peers are on this machine.
pub fn round_trip_us(dialled: &[DialledPeer]) -> Option<f64> {
    let near = |peer: &&DialledPeer| peer.resolved_address.is_some_and(|place| place.is_loopback());
    if dialled.iter().all(|peer| near(&peer)) {
        return None;
    }
    let mut known: Vec<f64> = dialled
        .iter()
        .filter_map(|peer| match peer.outcome {
            DialOutcome::Listens(us) => Some(us),
            DialOutcome::Refused | DialOutcome::Unreachable(_) => None,
        })
        .collect();
    known.sort_by(f64::total_cmp);
    known.get(dialled.len().div_ceil(2).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::doctor::finding::FindingState;

    fn peer(place: &str, outcome: DialOutcome) -> DialledPeer {
        DialledPeer {
            address: format!("{place}:7451"),
            resolved_address: place.parse().ok(),
            outcome,
        }
    }

    #[test]
    fn listening_refusing_and_unknown_peers_are_distinguished() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let all = [here, gone.to_string(), "no-such-host.invalid:1".to_owned()];
        let dialled = dial_all(&all);
        let findings = examine(&dialled);
        let states: Vec<_> = findings.iter().map(|finding| finding.state).collect();
        assert_eq!(
            states,
            [FindingState::Ok, FindingState::Warning, FindingState::Failing],
            "{findings:?}"
        );
        assert!(!findings[2].blocks && !findings[2].hint.is_empty());
        assert!(examine(&dialled[2..])[0].blocks, "no other node is there");
    }

    #[test]
    fn round_trip_is_that_of_the_peer_completing_a_majority() {
        let at = |us| peer("10.0.0.1", DialOutcome::Listens(us));
        assert_eq!(round_trip_us(&[at(300.0), at(100.0)]), Some(100.0));
        let four = [at(400.0), at(300.0), at(100.0), at(200.0)];
        assert_eq!(round_trip_us(&four), Some(200.0));
        let refused = peer("10.0.0.2", DialOutcome::Refused);
        assert_eq!(round_trip_us(&[refused.clone(), at(5.0)]), Some(5.0));
        assert_eq!(round_trip_us(&[refused]), None);
        assert_eq!(round_trip_us(&[]), None);
        let near = peer("127.0.0.1", DialOutcome::Listens(9.0));
        assert_eq!(round_trip_us(&[near]), None, "this machine's own is measured better");
    }
}
