//! Paths between the members of a running cluster: the plane and round-trip time, as measured by
//! the members' probes.

use quorate_admin::view::{Answer, ClusterView};
use serde::Serialize;

use crate::doctor::{finding::Finding, plane::Plane};

const NAMED_PATHS_MAX: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberPath {
    pub from: u32,
    pub to: u32,
    pub connected: bool,
    /// `tcp`, `udp`, `chain`, `multicast` or `ethernet`; empty if the members are not connected.
    pub way: String,
    /// Transport of raw frames: `packet`, `xdp, copied` or `xdp, zero copy`; null for other planes.
    pub frames: Option<String>,
    /// Round trip in microseconds; null if it was not probed.
    pub rtt_us: Option<u64>,
    /// Reason why the preferred plane is not in use; empty if the preferred plane is in use or none
    /// is preferred.
    pub why: String,
}

/// Returns every path reported by a member.
pub fn reported_trips(cluster: &ClusterView) -> Vec<MemberPath> {
    let views = cluster.nodes.iter().filter_map(Answer::node_view);
    let trips = views.flat_map(|view| {
        let others = view.members.iter().filter(|to| to.node != view.node);
        others.map(|to| {
            let plane = to.plane.as_ref();
            MemberPath {
                from: view.node,
                to: to.node,
                connected: to.connected,
                way: plane.map_or_else(String::new, |plane| plane.way.clone()),
                frames: plane.and_then(|plane| plane.frames.clone()),
                rtt_us: plane.and_then(|plane| plane.rtt_us),
                why: plane.and_then(|plane| plane.why.clone()).unwrap_or_default(),
            }
        })
    });
    trips.collect()
}

/// Returns the median round trip over all paths on a plane.
pub fn median_rtt_us(trips: &[MemberPath], plane: Plane) -> Option<u64> {
    let of_plane = trips.iter().filter(|trip| trip.way == plane.name());
    let mut all: Vec<u64> = of_plane.filter_map(|trip| trip.rtt_us).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// Returns the most common plane; `None` if no members are connected.
pub fn most_common_plane(trips: &[MemberPath]) -> Option<Plane> {
    let pairs = |plane: &Plane| trips.iter().filter(|trip| trip.way == plane.name()).count();
    let most = Plane::ALL.into_iter().max_by_key(pairs);
    most.filter(|plane| pairs(plane) > 0)
}

/// Evaluates whether members are connected and use the preferred plane.
pub fn trip_finding(trips: &[MemberPath]) -> Finding {
    let named = |trips: &[&MemberPath], what: &dyn Fn(&MemberPath) -> String| {
        let mut named: Vec<String> =
            trips.iter().take(NAMED_PATHS_MAX).map(|trip| what(trip)).collect();
        if trips.len() > NAMED_PATHS_MAX {
            named.push(format!("{} more", trips.len() - NAMED_PATHS_MAX));
        }
        named.join(", ")
    };
    let apart: Vec<&MemberPath> = trips.iter().filter(|trip| !trip.connected).collect();
    let worse: Vec<&MemberPath> = trips.iter().filter(|trip| !trip.why.is_empty()).collect();
    if trips.is_empty() {
        return Finding::unknown("members", "no member reports another", "start more nodes");
    }
    if !apart.is_empty() {
        let pairs = named(&apart, &|trip| format!("{} → {}", trip.from, trip.to));
        return Finding::warning(
            "members",
            format!("not connected: {pairs}"),
            "start those nodes, and check that no firewall drops the port of --peer",
        );
    }
    if !worse.is_empty() {
        let pairs = named(&worse, &|trip| format!("{} → {}: {}", trip.from, trip.to, trip.why));
        return Finding::warning(
            "members",
            format!("slower plane than configured: {pairs}"),
            "docs/operate/planes.md explains when planes fall back",
        );
    }
    let plane = most_common_plane(trips).map_or("tcp", Plane::name);
    Finding::ok("members", format!("all are connected, most by {plane}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn trip(from: u32, to: u32, way: &str, rtt_us: Option<u64>) -> MemberPath {
        MemberPath {
            from,
            to,
            connected: !way.is_empty(),
            way: way.to_owned(),
            frames: None,
            rtt_us,
            why: String::new(),
        }
    }

    #[test]
    fn most_used_plane_and_its_median_round_trip_are_found() {
        let trips = [
            trip(1, 2, "ethernet", Some(30)),
            trip(2, 1, "ethernet", Some(50)),
            trip(1, 3, "ethernet", Some(40)),
            trip(3, 1, "tcp", None),
        ];
        assert_eq!(most_common_plane(&trips), Some(Plane::Ethernet));
        assert_eq!(median_rtt_us(&trips, Plane::Ethernet), Some(40));
        assert_eq!(median_rtt_us(&trips, Plane::Tcp), None);
        assert_eq!((most_common_plane(&[]), median_rtt_us(&[], Plane::Udp)), (None, None));
    }

    #[test]
    fn disconnected_and_fallback_pairs_are_named() {
        assert_eq!(trip_finding(&[]).state, FindingState::Unknown);
        let mut trips = vec![trip(1, 2, "udp", Some(30)), trip(2, 1, "udp", Some(30))];
        assert_eq!(trip_finding(&trips).state, FindingState::Ok);
        trips[1].why = "a reason".to_owned();
        let worse = trip_finding(&trips);
        assert!(worse.state == FindingState::Warning && worse.what.ends_with("2 → 1: a reason"));
        trips[0] = trip(1, 2, "", None);
        let apart = trip_finding(&trips);
        assert!(apart.state == FindingState::Warning && apart.what == "not connected: 1 → 2");
        assert!(!apart.hint.is_empty());
    }
}
