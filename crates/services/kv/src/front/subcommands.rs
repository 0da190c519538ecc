//! Subcommand tables, and errors for unknown subcommands.

use super::refusals::printable;
use crate::{
    command::{Local, Refusal},
    resp::{reply::Reply, request::Arguments},
};

/// Returns the name of a command and its subcommands. Each has the number of arguments including
/// both words, as in the command table.
const fn subcommands_of(local: Local) -> Option<(&'static str, &'static [(&'static str, i8)])> {
    Some(match local {
        Local::Acl => (
            "acl",
            &[
                ("cat", -2),
                ("deluser", -3),
                ("getuser", 3),
                ("help", 2),
                ("list", 2),
                ("load", 2),
                ("save", 2),
                ("setuser", -3),
                ("users", 2),
                ("whoami", 2),
            ],
        ),
        Local::Client => (
            "client",
            &[
                ("caching", 3),
                ("getname", 2),
                ("getredir", 2),
                ("help", 2),
                ("id", 2),
                ("info", 2),
                ("kill", -3),
                ("list", -2),
                ("no-evict", 3),
                ("no-touch", 3),
                ("pause", -3),
                ("reply", 3),
                ("setinfo", 4),
                ("setname", 3),
                ("tracking", -3),
                ("trackinginfo", 2),
                ("unblock", -3),
                ("unpause", 2),
            ],
        ),
        Local::Cluster => (
            "cluster",
            &[
                ("countkeysinslot", 3),
                ("getkeysinslot", 4),
                ("help", 2),
                ("info", 2),
                ("keyslot", 3),
                ("links", 2),
                ("myid", 2),
                ("nodes", 2),
                ("replicas", 3),
                ("shards", 2),
                ("slaves", 3),
                ("slots", 2),
            ],
        ),
        Local::Command => (
            "command",
            &[("count", 2), ("docs", -2), ("getkeys", -3), ("help", 2), ("info", -2), ("list", -2)],
        ),
        Local::Config => ("config", &[("get", -3), ("help", 2), ("resetstat", 2), ("set", -4)]),
        Local::Function => ("function", &[("flush", -2), ("help", 2), ("list", -2)]),
        Local::Latency => (
            "latency",
            &[
                ("doctor", 2),
                ("graph", 3),
                ("help", 2),
                ("histogram", -2),
                ("history", 3),
                ("latest", 2),
                ("reset", -2),
            ],
        ),
        Local::Memory => ("memory", &[("help", 2), ("usage", -3)]),
        Local::Object => (
            "object",
            &[("encoding", 3), ("freq", 3), ("help", 2), ("idletime", 3), ("refcount", 3)],
        ),
        Local::Pubsub => (
            "pubsub",
            &[
                ("channels", -2),
                ("help", 2),
                ("numpat", 2),
                ("numsub", -2),
                ("shardchannels", -2),
                ("shardnumsub", -2),
            ],
        ),
        Local::Sentinel => (
            "sentinel",
            &[
                ("ckquorum", 3),
                ("get-master-addr-by-name", 3),
                ("help", 2),
                ("master", 3),
                ("masters", 2),
                ("myid", 2),
                ("replicas", 3),
                ("sentinels", 3),
                ("slaves", 3),
            ],
        ),
        Local::Slowlog => ("slowlog", &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)]),
        Local::Script => {
            ("script", &[("exists", -3), ("flush", -2), ("help", 2), ("kill", 2), ("load", 3)])
        }
        _ => return None,
    })
}

/// Checks that the second word is a subcommand. Otherwise returns Redis' error, which also aborts a
/// transaction.
pub(super) fn check_subcommand(local: Local, arguments: &Arguments<'_>) -> Result<(), String> {
    let (Some((name, words)), Some(word)) = (subcommands_of(local), arguments.iter().nth(1)) else {
        return Ok(());
    };
    let known = words.iter().find(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()));
    let Some((known, arity)) = known else {
        let word: String = word.iter().take(64).map(|&byte| printable(byte)).collect();
        let name = name.to_ascii_uppercase();
        return Err(format!("ERR unknown subcommand '{word}'. Try {name} HELP."));
    };
    let least = usize::from(arity.unsigned_abs());
    let fits = if *arity < 0 { arguments.len() >= least } else { arguments.len() == least };
    if fits {
        Ok(())
    } else {
        let command = format!("{name}|{known}");
        Err(Refusal::Arity.text(&command).into_owned())
    }
}

pub(super) fn help(local: Local, r: &mut Reply<'_>) {
    let Some((name, words)) = subcommands_of(local) else {
        return;
    };
    r.array(words.len() + 1);
    let name = name.to_ascii_uppercase();
    r.simple(&format!(
        "{name} <subcommand> [<arg> ...]; docs/commands.md says more. Subcommands are:"
    ));
    for (word, _) in words {
        r.simple(&word.to_ascii_uppercase());
    }
}
