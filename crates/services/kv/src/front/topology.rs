//! The group's topology in Redis terms: one master and its replicas.
//!
//! Every node accepts every command. The leader is shown as the master because commands take the
//! shortest path there. For clients that fail over by Sentinel, each node answers as a Sentinel
//! would, with the state of the group that it has received. This state may lag behind a change of
//! leader, as a Sentinel's may. A command sent to the old leader is executed all the same.

use std::fmt::Write as _;

use quorate_core::{effect::Role, node_id::NodeId, record::Class};
use quorate_replica::status::{Peer, Status};

use super::{refusals::printable, subcommands};
use crate::{
    command::Local,
    resp::{reply::Reply, request::Arguments},
};

/// Name of the group in `SENTINEL MASTERS`. redis-py selects its master by this name. It is the
/// name in most clients' examples. Other requests accept any name, as a node has only one group.
pub(super) const MASTER_NAME: &str = "mymaster";
const NO_MASTER: &str =
    "ERR this group has no leader now: an election usually takes less than a second; ask again";

/// Node that clients can connect to.
pub(super) struct ClientNode<'a> {
    pub(super) peer: &'a Peer,
    pub(super) host: &'a str,
    pub(super) port: &'a str,
}

impl ClientNode<'_> {
    pub(super) fn run_id(&self, status: &Status) -> String {
        run_id(status, self.peer.member.node)
    }

    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(super) fn is_reachable(&self, status: &Status) -> bool {
        self.peer.connected || self.peer.member == status.member
    }

    /// Returns the node's position in the log, which stands for Redis' replication offset. Only the
    /// leader has the positions of other nodes.
    pub(super) fn offset(&self, status: &Status) -> u64 {
        status.applied_to.0.saturating_sub(self.peer.lag.unwrap_or(0))
    }
}

/// Returns the identifier of a node in the form of a Redis server's run id: 40 hexadecimal digits.
pub(super) fn run_id(status: &Status, node: NodeId) -> String {
    format!("{:032x}{:08x}", status.cluster, node.0)
}

/// Returns the voters that serve clients, including this node, with their client addresses.
pub(super) fn client_nodes(status: &Status) -> impl Iterator<Item = ClientNode<'_>> {
    let serving = status.peers.iter().filter(|peer| peer.weight > 0 && !peer.auxiliary);
    serving.filter_map(|peer| {
        let (host, port) = peer.addresses.client.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(ClientNode { peer, host, port })
    })
}

pub(super) fn master(status: &Status) -> Option<ClientNode<'_>> {
    client_nodes(status).find(|place| Some(place.peer.member.node) == status.leader)
}

/// Returns the host and port of the master, and whether this node is connected to it. If there is
/// no master, the host is empty.
fn master_link(status: &Status) -> (&str, &str, bool) {
    let master = master(status);
    master.map_or(("", "0", false), |place| (place.host, place.port, place.peer.connected))
}

fn replicas(status: &Status) -> impl Iterator<Item = ClientNode<'_>> {
    client_nodes(status).filter(|place| Some(place.peer.member.node) != status.leader)
}

/// Answers ROLE.
pub(super) fn role(status: &Status, r: &mut Reply<'_>) {
    let own = status.applied_to.0;
    if status.role == Role::Leader {
        let replicas: Vec<_> = replicas(status).collect();
        r.array(3);
        r.bulk(b"master");
        r.integer(i64::try_from(own).unwrap_or(i64::MAX));
        r.array(replicas.len());
        for place in replicas {
            r.array(3);
            r.bulk(place.host.as_bytes());
            r.bulk(place.port.as_bytes());
            r.bulk(place.offset(status).to_string().as_bytes());
        }
        return;
    }
    let (host, port, connected) = master_link(status);
    r.array(5);
    r.bulk(b"slave");
    r.bulk(host.as_bytes());
    r.integer(port.parse().unwrap_or(0));
    r.bulk(if connected { b"connected" } else { b"connect" });
    r.integer(i64::try_from(own).unwrap_or(i64::MAX));
}

/// Writes the replication section of INFO.
pub(super) fn write_replication(text: &mut String, status: &Status) -> std::fmt::Result {
    let own = status.applied_to.0;
    write!(text, "# Replication\r\n")?;
    if status.role == Role::Leader {
        let replicas: Vec<_> = replicas(status).collect();
        let connected = replicas.iter().filter(|place| place.peer.connected);
        write!(text, "role:master\r\nconnected_slaves:{}\r\n", connected.clone().count())?;
        for (number, place) in connected.enumerate() {
            let at = place.offset(status);
            let ClientNode { host, port, .. } = place;
            write!(text, "slave{number}:ip={host},port={port},state=online,offset={at},lag=0\r\n")?;
        }
    } else {
        let (host, port, up) = master_link(status);
        let link = if up { "up" } else { "down" };
        write!(
            text,
            "role:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\nmaster_link_status:{link}\r\n\
             master_sync_in_progress:0\r\nslave_repl_offset:{own}\r\nslave_priority:100\r\n\
             slave_read_only:0\r\nreplica_announced:1\r\nconnected_slaves:0\r\n"
        )?;
    }
    // All nodes have the same history, which is identified by the group.
    let history = run_id(status, NodeId(0));
    write!(text, "master_replid:{history}\r\nmaster_repl_offset:{own}\r\n")?;
    write_node_state(text, status, "quorate_", "\r\n")
}

/// Writes the state of the node as lines of the form `name:value`.
pub(super) fn write_node_state(
    text: &mut String,
    status: &Status,
    prefix: &str,
    end: &str,
) -> std::fmt::Result {
    let leader = status.leader.map_or_else(|| "none".to_owned(), |node| node.to_string());
    let error = status.error.as_deref().unwrap_or("none");
    let lines: [(&str, &dyn std::fmt::Display); 11] = [
        ("cluster", &format_args!("{:032x}", status.cluster)),
        ("node", &status.member),
        ("role", &role_name(status.role)),
        ("leader", &leader),
        ("era", &status.era),
        ("ballot", &status.ballot),
        ("decided", &status.decided_to),
        ("applied", &status.applied_to),
        ("durable", &status.durable_to),
        ("durability", &if status.class == Class::Durable { "durable" } else { "volatile" }),
        ("error", &error),
    ];
    lines.iter().try_for_each(|(name, value)| write!(text, "{prefix}{name}:{value}{end}"))
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Learner => "learner",
        Role::Auxiliary => "auxiliary",
    }
}

/// Answers SENTINEL.
pub(super) fn answer_sentinel(status: &Status, arguments: &Arguments<'_>, r: &mut Reply<'_>) {
    let name: String = arguments.at(2).iter().take(64).map(|&byte| printable(byte)).collect();
    let others = || client_nodes(status).filter(|place| place.peer.member != status.member);
    match &*arguments.at(1).to_ascii_lowercase() {
        b"get-master-addr-by-name" => match master(status) {
            Some(place) => {
                r.array(2);
                r.bulk(place.host.as_bytes());
                r.bulk(place.port.as_bytes());
            }
            None => r.null_array(),
        },
        b"masters" => {
            let master = master(status);
            r.array(usize::from(master.is_some()));
            if let Some(place) = master {
                fields(&master_fields(status, &place, MASTER_NAME), r);
            }
        }
        b"master" => match master(status) {
            Some(place) => fields(&master_fields(status, &place, &name), r),
            None => r.error(NO_MASTER),
        },
        b"replicas" | b"slaves" => {
            let replicas: Vec<_> = replicas(status).collect();
            r.array(replicas.len());
            for place in replicas {
                fields(&replica_fields(status, &place), r);
            }
        }
        b"sentinels" => {
            r.array(others().count());
            for place in others() {
                fields(&sentinel_fields(status, &place), r);
            }
        }
        b"ckquorum" if master(status).is_some() => {
            let usable = others().filter(|place| place.peer.connected).count() + 1;
            r.simple(&format!("OK {usable} usable nodes; the group has a leader"));
        }
        b"ckquorum" => r.error(NO_MASTER),
        b"myid" => r.bulk(run_id(status, status.member.node).as_bytes()),
        _ => subcommands::help(Local::Sentinel, r),
    }
}

type Fields = Vec<(&'static str, String)>;

fn fields(fields: &Fields, r: &mut Reply<'_>) {
    r.map(fields.len());
    for (name, value) in fields {
        r.bulk(name.as_bytes());
        r.bulk(value.as_bytes());
    }
}

/// Returns the fields common to all kinds of nodes. Clients skip nodes flagged as unreachable.
fn common_fields(status: &Status, place: &ClientNode<'_>, name: String, kind: &str) -> Fields {
    let reachable = place.is_reachable(status);
    let flags = if reachable { kind.to_owned() } else { format!("{kind},s_down,disconnected") };
    let silent_ms = if reachable { "0" } else { "30000" };
    vec![
        ("name", name),
        ("ip", place.host.to_owned()),
        ("port", place.port.to_owned()),
        ("runid", place.run_id(status)),
        ("flags", flags),
        ("last-ping-reply", silent_ms.to_owned()),
        ("last-ok-ping-reply", silent_ms.to_owned()),
        ("down-after-milliseconds", "30000".to_owned()),
    ]
}

fn master_fields(status: &Status, place: &ClientNode<'_>, name: &str) -> Fields {
    let nodes = client_nodes(status).count();
    let mut fields = common_fields(status, place, name.to_owned(), "master");
    fields.extend([
        ("role-reported", "master".to_owned()),
        ("config-epoch", status.ballot.round.to_string()),
        ("num-slaves", (nodes - 1).to_string()),
        ("num-other-sentinels", (nodes - 1).to_string()),
        ("quorum", (nodes / 2 + 1).to_string()),
    ]);
    fields
}

fn replica_fields(status: &Status, place: &ClientNode<'_>) -> Fields {
    let (host, port, _) = master_link(status);
    let mut fields = common_fields(status, place, place.name(), "slave");
    fields.extend([
        ("role-reported", "slave".to_owned()),
        ("master-link-status", if host.is_empty() { "err" } else { "ok" }.to_owned()),
        ("master-host", host.to_owned()),
        ("master-port", port.to_owned()),
        ("slave-priority", "100".to_owned()),
        ("slave-repl-offset", place.offset(status).to_string()),
    ]);
    fields
}

fn sentinel_fields(status: &Status, place: &ClientNode<'_>) -> Fields {
    let mut fields = common_fields(status, place, place.run_id(status), "sentinel");
    fields.push(("voted-leader-epoch", status.ballot.round.to_string()));
    fields
}
