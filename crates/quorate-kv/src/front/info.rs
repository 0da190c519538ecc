//! INFO: what the node says of itself, in Redis' form.

use std::fmt::Write as _;

use quorate_core::effect::Role;
use quorate_core::record::Class;
use quorate_replica::{front::Requests, status::Status};

use super::{Shared, local::REDIS_VERSION};
use crate::resp::{reply::Reply, request::Arguments};

/// The sections, in the order of printing.
const SECTIONS: [&str; 4] = ["server", "clients", "stats", "replication"];

pub(super) fn info(
    arguments: &Arguments<'_>,
    shared: &Shared,
    requests: &dyn Requests,
    r: &mut Reply<'_>,
) {
    let wanted = |section: &str| {
        let names = || arguments.from(1).iter();
        let all = |name: &[u8]| {
            ["all", "default", "everything"]
                .iter()
                .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
        };
        let quorate =
            section == "replication" && names().any(|name| name.eq_ignore_ascii_case(b"quorate"));
        quorate
            || arguments.len() == 1
            || names().any(|name| all(name) || name.eq_ignore_ascii_case(section.as_bytes()))
    };
    let status = requests.status();
    let mut text = String::new();
    for section in SECTIONS.into_iter().filter(|section| wanted(section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let written = match section {
            "server" => server(&mut text, &status, shared),
            "clients" => clients(&mut text, shared),
            "stats" => stats(&mut text, shared),
            _ => replication(&mut text, &status),
        };
        written.expect("a string takes all text");
    }
    r.verbatim(&text);
}

fn server(text: &mut String, status: &Status, shared: &Shared) -> std::fmt::Result {
    write!(
        text,
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\n"
    )?;
    write!(text, "quorate_version:{}\r\n", shared.settings.version)?;
    write!(text, "quorate_store:{}\r\n", shared.settings.store)?;
    write!(
        text,
        "run_id:{:032x}{:08x}\r\n",
        status.cluster, status.member.node.0
    )?;
    write!(text, "arch_bits:64\r\n")
}

fn clients(text: &mut String, shared: &Shared) -> std::fmt::Result {
    write!(
        text,
        "# Clients\r\nconnected_clients:{}\r\n",
        shared.clients.len()
    )?;
    write!(text, "open_requests:{}\r\n", shared.tags.open())
}

fn stats(text: &mut String, shared: &Shared) -> std::fmt::Result {
    write!(
        text,
        "# Stats\r\ntotal_commands_processed:{}\r\n",
        shared.processed
    )
}

/// `role:master` on every node, since every node takes writes; clients that look for a master
/// would go elsewhere otherwise. The node's own role is `quorate_role`.
fn replication(text: &mut String, status: &Status) -> std::fmt::Result {
    let others = status
        .peers
        .iter()
        .filter(|peer| peer.member != status.member);
    let connected = others.filter(|peer| peer.connected).count();
    write!(
        text,
        "# Replication\r\nrole:master\r\nconnected_slaves:{connected}\r\n"
    )?;
    quorate(text, status, "quorate_", "\r\n")
}

/// The node's state, one `name:value` per line.
pub(super) fn quorate(
    text: &mut String,
    status: &Status,
    prefix: &str,
    end: &str,
) -> std::fmt::Result {
    let leader = status
        .leader
        .map_or_else(|| "none".to_owned(), |node| node.to_string());
    let error = status.error.as_deref().unwrap_or("none");
    let lines: [(&str, &dyn std::fmt::Display); 11] = [
        ("cluster", &format_args!("{:032x}", status.cluster)),
        ("node", &status.member),
        ("role", &role(status.role)),
        ("leader", &leader),
        ("era", &status.era),
        ("ballot", &status.ballot),
        ("decided", &status.decided_to),
        ("applied", &status.applied_to),
        ("durable", &status.durable_to),
        (
            "durability",
            &if status.class == Class::Durable {
                "durable"
            } else {
                "volatile"
            },
        ),
        ("error", &error),
    ];
    lines
        .iter()
        .try_for_each(|(name, value)| write!(text, "{prefix}{name}:{value}{end}"))
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Learner => "learner",
        Role::Auxiliary => "auxiliary",
    }
}
