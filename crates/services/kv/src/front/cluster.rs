//! CLUSTER: replies for clients in cluster mode ([`ClusterMode`]).
//!
//! Slots have no meaning: every node accepts every command for every key. The slot map only spreads
//! the clients' connections over the nodes, so an outdated map is harmless, and no reply redirects
//! a client. Each node derives the map from its status of the group.

use std::fmt::Write as _;

use quorate_replica::status::Status;

use super::{
    refusals::printable,
    settings::ClusterMode,
    subcommands,
    topology::{ClientNode, client_nodes, run_id},
};
use crate::{
    command::{Local, NOT_AN_INTEGER},
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
};

/// Number of slots of a Redis cluster.
const CLUSTER_SLOTS: u16 = 16_384;
const CLUSTER_DISABLED: &str =
    "ERR This instance has cluster support disabled: start the nodes with --cluster-mode emulated";
/// Offset from the client port to the port of Redis' cluster bus. Nothing listens there.
const BUS_PORT_OFFSET: u32 = 10_000;

/// First and last slot of a node.
type Range = (u16, u16);

/// Returns the nodes that serve clients, each with its slots. Unreachable nodes have no slots.
fn slot_shares(status: &Status, mode: ClusterMode) -> Vec<(ClientNode<'_>, Option<Range>)> {
    let leads = |place: &ClientNode<'_>| Some(place.peer.member.node) == status.leader;
    let places: Vec<ClientNode<'_>> = client_nodes(status).collect();
    let at_leader = mode == ClusterMode::Leader && places.iter().any(leads);
    let takes = |place: &ClientNode<'_>| match at_leader {
        true => leads(place),
        false => place.is_reachable(status),
    };
    let takers = places.iter().filter(|place| takes(place)).count().max(1);
    let takers = u16::try_from(takers).unwrap_or(u16::MAX);
    let bound =
        |taker: u16| (u32::from(CLUSTER_SLOTS) * u32::from(taker) / u32::from(takers)) as u16;
    let mut ranges = (0..takers).map(|taker| (bound(taker), bound(taker + 1) - 1)).peekable();
    let slots: Vec<Option<Range>> =
        places.iter().map(|place| ranges.next_if(|_| takes(place))).collect();
    places.into_iter().zip(slots).collect()
}

/// Answers CLUSTER.
pub(super) fn answer_cluster(
    status: &Status,
    mode: ClusterMode,
    arguments: &Arguments<'_>,
    r: &mut Reply<'_>,
) {
    if mode == ClusterMode::Off {
        return r.error(CLUSTER_DISABLED);
    }
    let shares = slot_shares(status, mode);
    match &*arguments.at(1).to_ascii_lowercase() {
        b"slots" => write_slots(status, &shares, r),
        b"shards" => write_shards(status, &shares, r),
        b"nodes" => r.verbatim(&nodes(status, &shares)),
        b"info" => r.verbatim(&info(status, &shares)),
        b"myid" => r.bulk(run_id(status, status.member.node).as_bytes()),
        b"keyslot" => r.integer(i64::from(slot_of(arguments.at(2)))),
        // To clients, each node is the master of its slots and has no replicas.
        b"replicas" | b"slaves" => match shares
            .iter()
            .any(|(place, _)| place.run_id(status).as_bytes().eq_ignore_ascii_case(arguments.at(2)))
        {
            true => r.array(0),
            false => {
                let id = arguments.at(2).iter().take(64).map(|&byte| printable(byte));
                r.error(&format!("ERR Unknown node {}", id.collect::<String>()));
            }
        },
        b"links" => r.array(0),
        b"countkeysinslot" | b"getkeysinslot" => match parse_integer(arguments.at(2)) {
            Some(slot) if (0..i64::from(CLUSTER_SLOTS)).contains(&slot) => r.error(
                "ERR keys are not kept by slot: every node has all of them; use SCAN and DBSIZE",
            ),
            Some(_) => r.error("ERR Invalid slot"),
            None => r.error(NOT_AN_INTEGER),
        },
        _ => subcommands::help(Local::Cluster, r),
    }
}

fn write_slots(status: &Status, shares: &[(ClientNode<'_>, Option<Range>)], r: &mut Reply<'_>) {
    let served = || shares.iter().filter_map(|(place, slots)| Some((place, (*slots)?)));
    r.array(served().count());
    for (place, (first, last)) in served() {
        r.array(3);
        r.integer(i64::from(first));
        r.integer(i64::from(last));
        r.array(4);
        r.bulk(place.host.as_bytes());
        r.integer(place.port.parse().unwrap_or(0));
        r.bulk(place.run_id(status).as_bytes());
        r.array(0);
    }
}

fn write_shards(status: &Status, shares: &[(ClientNode<'_>, Option<Range>)], r: &mut Reply<'_>) {
    r.array(shares.len());
    for (place, slots) in shares {
        r.map(2);
        r.bulk(b"slots");
        r.array(if slots.is_some() { 2 } else { 0 });
        for bound in slots.iter().flat_map(|(first, last)| [first, last]) {
            r.integer(i64::from(*bound));
        }
        r.bulk(b"nodes");
        r.array(1);
        r.map(7);
        r.bulk(b"id");
        r.bulk(place.run_id(status).as_bytes());
        r.bulk(b"port");
        r.integer(place.port.parse().unwrap_or(0));
        let health: &[u8] = if place.is_reachable(status) { b"online" } else { b"fail" };
        let texts: [(&[u8], &[u8]); 4] = [
            (b"ip", place.host.as_bytes()),
            (b"endpoint", place.host.as_bytes()),
            (b"role", b"master"),
            (b"health", health),
        ];
        for (name, value) in texts {
            r.bulk(name);
            r.bulk(value);
        }
        r.bulk(b"replication-offset");
        r.integer(i64::try_from(place.offset(status)).unwrap_or(i64::MAX));
    }
}

fn nodes(status: &Status, shares: &[(ClientNode<'_>, Option<Range>)]) -> String {
    let mut text = String::new();
    for (place, slots) in shares {
        let myself = if place.peer.member == status.member { "myself," } else { "" };
        let reachable = place.is_reachable(status);
        let failed = if reachable { "" } else { ",fail" };
        let link = if reachable { "connected" } else { "disconnected" };
        let bus = place.port.parse::<u32>().unwrap_or(0) + BUS_PORT_OFFSET;
        let (id, name, epoch) = (place.run_id(status), place.name(), status.era.0);
        let line = write!(text, "{id} {name}@{bus} {myself}master{failed} - 0 0 {epoch} {link}");
        let range = slots.map_or(Ok(()), |(first, last)| write!(text, " {first}-{last}"));
        line.and(range).expect("a string takes all text");
        text.push('\n');
    }
    text
}

fn info(status: &Status, shares: &[(ClientNode<'_>, Option<Range>)]) -> String {
    let state = if status.leader.is_some() { "ok" } else { "fail" };
    let size = shares.iter().filter(|(_, slots)| slots.is_some()).count();
    let (known, epoch) = (shares.len(), status.era.0);
    format!(
        "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{CLUSTER_SLOTS}\r\n\
         cluster_slots_ok:{CLUSTER_SLOTS}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n\
         cluster_known_nodes:{known}\r\ncluster_size:{size}\r\ncluster_current_epoch:{epoch}\r\n\
         cluster_my_epoch:{epoch}\r\n"
    )
}

/// Returns the slot of a key: CRC-16/XMODEM of its hash tag, or of the whole key if it has none, as
/// in the specification of Redis Cluster.
fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        let length = inside.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &inside[..length])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % CLUSTER_SLOTS
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    /// The first value is the check value in the specification; the others come from a real Redis.
    #[test]
    fn keys_have_the_slots_of_redis() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        let slots =
            [(&b"foo"[..], 12182), (b"bar", 5061), (b"", 0), (b"{user1000}.following", 3443)];
        for (key, slot) in slots {
            assert_eq!(slot_of(key), slot, "{key:?}");
        }
        assert_eq!(slot_of(b"a{user1000}b"), slot_of(b"user1000"));
        // An empty tag does not count.
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}"), slot_of(b"{bar"));
    }
}
