//! Commands for the server, the connection, and all data.

use std::ops::ControlFlow;

use crate::{
    command::{Doc, Local, Spec},
    commands::family::{Family, Operation},
    commands::state::ReadContext,
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::reply::{Reply, is_whole},
    store::{self, DeadlineKind},
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Literal, literal),
        Operation::read(Op::Digest, digest),
        Operation::read(Op::Keyspace, keyspace),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::local(
        "ping",
        -1,
        Local::Ping,
        Doc::new("connection", "1.0.0", "O(1)", "Returns the server's liveliness response."),
    ),
    Spec::local(
        "echo",
        2,
        Local::Echo,
        Doc::new("connection", "1.0.0", "O(1)", "Returns the given string."),
    ),
    Spec::local(
        "hello",
        -1,
        Local::Hello,
        Doc::new("connection", "6.0.0", "O(1)", "Handshakes with the server."),
    ),
    Spec::local(
        "select",
        2,
        Local::Select,
        Doc::new("connection", "1.0.0", "O(1)", "Changes the selected database.").with_difference(
            "0 to 15; 1 to 15 once all nodes are upgraded, and not with `--cluster-mode`",
        ),
    ),
    Spec::local(
        "quit",
        -1,
        Local::Quit,
        Doc::new("connection", "1.0.0", "O(1)", "Closes the connection."),
    ),
    Spec::local(
        "reset",
        1,
        Local::Reset,
        Doc::new("connection", "6.2.0", "O(1)", "Resets the connection."),
    ),
    Spec::local(
        "auth",
        -2,
        Local::Auth,
        Doc::new("connection", "1.0.0", "O(1)", "Authenticates the connection."),
    ),
    Spec::local(
        "acl",
        -2,
        Local::Acl,
        Doc::new(
            "server",
            "6.0.0",
            "Depends on subcommand.",
            "A container for Access List Control commands.",
        )
        .with_difference("only shows; `quorate user` changes"),
    ),
    Spec::local(
        "client",
        -2,
        Local::Client,
        Doc::new(
            "connection",
            "2.4.0",
            "Depends on subcommand.",
            "A container for client connection commands.",
        )
        .with_difference("`TRACKING`: `NOLOOP` changes nothing"),
    ),
    Spec::local(
        "command",
        -1,
        Local::Command,
        Doc::new(
            "server",
            "2.8.13",
            "O(N), where N is the number of commands",
            "Returns detailed information about all commands.",
        )
        .with_difference("without key specifications and subcommands"),
    ),
    Spec::local(
        "info",
        -1,
        Local::Info,
        Doc::new("server", "1.0.0", "O(1)", "Returns information and statistics about the server.")
            .with_difference("other fields"),
    ),
    Spec::local(
        "config",
        -2,
        Local::Config,
        Doc::new(
            "server",
            "2.0.0",
            "Depends on subcommand.",
            "A container for server configuration commands.",
        )
        .with_difference(
            "shows the few settings that clients ask for, and sets only keyspace events",
        ),
    ),
    Spec::local(
        "readonly",
        1,
        Local::ReadOnly,
        Doc::new(
            "cluster",
            "3.0.0",
            "O(1)",
            "Lets reads on this connection return older data of this node.",
        )
        .with_difference("answers from what this node has, older data included"),
    ),
    Spec::local(
        "readwrite",
        1,
        Local::ReadWrite,
        Doc::new("cluster", "3.0.0", "O(1)", "Makes reads on this connection linearizable again.")
            .with_difference("the opposite of `READONLY`"),
    ),
    Spec::local(
        "wait",
        3,
        Local::Wait,
        Doc::new(
            "generic",
            "3.0.0",
            "O(1)",
            "Returns the number of other nodes in a majority: every write is acknowledged by one.",
        )
        .with_difference("answers at once: what was acknowledged is at a quorum"),
    ),
    Spec::local(
        "slowlog",
        -2,
        Local::Slowlog,
        Doc::new(
            "server",
            "2.2.12",
            "Depends on subcommand.",
            "A container for slow log commands.",
        )
        .with_difference("arguments are kept while the node is slow"),
    ),
    Spec::local(
        "latency",
        -2,
        Local::Latency,
        Doc::new(
            "server",
            "2.8.13",
            "Depends on subcommand.",
            "A container for latency diagnostics commands.",
        )
        .with_difference("without `GRAPH` and `HISTOGRAM`"),
    ),
    Spec::local(
        "monitor",
        1,
        Local::Monitor,
        Doc::new(
            "server",
            "1.0.0",
            "O(1)",
            "Listens for all requests received by the server in real-time.",
        )
        .with_difference("for admins; never shows passwords and settings"),
    ),
    Spec::local(
        "role",
        1,
        Local::Role,
        Doc::new("server", "2.8.12", "O(1)", "Returns the replication role.")
            .with_difference("the leader is the master; every node takes every command"),
    ),
    Spec::local(
        "sentinel",
        -2,
        Local::Sentinel,
        Doc::new(
            "sentinel",
            "2.8.4",
            "Depends on subcommand.",
            "A container for Redis Sentinel commands.",
        )
        .with_difference(
            "each node answers for its own group, under any name; `MASTERS` says `mymaster`",
        ),
    ),
    Spec::local(
        "cluster",
        -2,
        Local::Cluster,
        Doc::new(
            "cluster",
            "3.0.0",
            "Depends on subcommand.",
            "A container for Redis Cluster commands.",
        )
        .with_difference(
            "with `--cluster-mode`; a map of slots without meaning, nothing that changes it",
        ),
    ),
    Spec::local(
        "asking",
        1,
        Local::Asking,
        Doc::new(
            "cluster",
            "3.0.0",
            "O(1)",
            "Signals that a cluster client is following an -ASK redirect.",
        )
        .with_difference("changes nothing: no reply redirects"),
    ),
    Spec::local(
        "time",
        1,
        Local::Time,
        Doc::new("server", "2.6.0", "O(1)", "Returns the server time."),
    ),
    Spec::local(
        "quorate",
        -2,
        Local::Quorate,
        Doc::new(
            "server",
            "7.2.0",
            "Depends on subcommand.",
            "A container for commands of Quorate: sessions, freshness of reads, status.",
        )
        .with_difference("not in Redis"),
    ),
];

/// Encodes a reply that the front provides, which EXEC returns in its place among the others.
pub fn encode_literal(reply: &[u8], out: &mut Encoder<'_>) {
    out.byte(Op::Literal as u8).bytes(reply);
}

pub(super) fn literal(
    from: &mut Decoder<'_>,
    _: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let bytes = from.bytes()?;
    from.end()?;
    if !is_whole(bytes) {
        return Err(Fault::Malformed);
    }
    reply.0.extend_from_slice(bytes);
    Ok(())
}

/// Maximum number of keys with deadlines and of hashes with deadlines of fields that INFO counts,
/// in all databases together.
pub const DEADLINES_MAX: u64 = 10_000;

/// Encodes the query for the keyspace section of INFO, which counts up to `most` deadlines.
pub fn encode_keyspace(most: u64, out: &mut Encoder<'_>) {
    out.byte(Op::Keyspace as u8).count(most);
}

/// Returns the number of deadlines that a reply to this query has counted.
pub fn counted_deadlines(reply: &str) -> u64 {
    let fields = reply.split(',').filter_map(|field| field.split_once('='));
    let counts = fields.filter(|(name, _)| matches!(*name, "expires" | "subexpiry"));
    counts.filter_map(|(_, count)| count.parse::<u64>().ok()).fold(0, u64::saturating_add)
}

pub(super) fn keyspace(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut left = match from.0.is_empty() {
        // As in releases with one database.
        true => DEADLINES_MAX,
        false => from.count()?.min(DEADLINES_MAX),
    };
    from.end()?;
    let above = state.store.time().saturating_add(1);
    let [expires, subexpiry] = [DeadlineKind::Keys, DeadlineKind::Fields].map(|of| {
        let before = left;
        if left > 0 {
            state.store.deadlines(of, above, u64::MAX, &mut |_, _| {
                left -= 1;
                match left {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            });
        }
        before - left
    });
    let keys = state.store.len();
    reply.simple(&format!("keys={keys},expires={expires},avg_ttl=0,subexpiry={subexpiry}"));
    Ok(())
}

/// Encodes the query for the applied position and the digest of the data. The answer has the form
/// `<applied> <digest>`.
pub fn encode_digest(out: &mut Encoder<'_>) {
    out.byte(Op::Digest as u8);
}

pub(super) fn digest(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.end()?;
    reply.simple(&format!(
        "{} {:032x}",
        state.applied_to,
        state.waits.digest(store::digest(state.store))
    ));
    Ok(())
}
