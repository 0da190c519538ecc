//! Shares of the process's file descriptors, so that no component starves another. A log that
//! cannot open its next segment, or a store that cannot open its next table, stops the node.

use quorate_replica::group::NODES_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Descriptors for standard streams, listeners, rings, timers and locks, and for files that are
/// open briefly.
const OWN: usize = 32;
/// Descriptors for log segments: the current one, the next, the one being created, and those being
/// read.
const LOG: usize = 32;
/// Descriptors for operators' connections.
const ADMIN: usize = 64;
/// Descriptors for tables that the store reads and writes during a merge.
const STORE_AT_WORK: usize = 64;
/// Descriptors per peer, for two lanes and for a replacement connection of each.
const PER_PEER: usize = 4;
/// Minimum number of descriptors for each purpose. A node with fewer is useless.
const FEW: usize = 16;
const CLIENTS_MAX: usize = 10_000;
const STORE_FILES_MAX: usize = 4096;
const STRANGERS_MAX: usize = 64;

/// Limits on open files and connections, in addition to those that every node needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Maximum number of client connections.
    pub clients: usize,
    /// Maximum number of unauthenticated connections to the peer address.
    pub strangers: usize,
    /// Maximum number of files that the store keeps open between reads.
    pub store_files: usize,
}

impl Default for Descriptors {
    /// Returns the shares of a process that has enough descriptors.
    fn default() -> Self {
        Self { clients: CLIENTS_MAX, strangers: STRANGERS_MAX, store_files: 256 }
    }
}

impl Descriptors {
    /// Divides `limit` descriptors among the purposes of a node in a cluster of `nodes` nodes.
    /// Fails if there are too few.
    pub fn share(limit: usize, nodes: usize) -> Result<Self, Error> {
        let peers = PER_PEER * nodes.saturating_sub(1);
        let fixed = OWN + LOG + ADMIN + STORE_AT_WORK + peers;
        let needed = fixed + 3 * FEW;
        let Some(free) = limit.checked_sub(fixed).filter(|_| limit >= needed) else {
            let what =
                format!("the limit on open files is {limit}; this node needs at least {needed}");
            return Err(Error::new("too_few_descriptors", what).hint(
                "raise it: ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of a container",
            ));
        };
        let strangers = (free / 8).clamp(FEW, STRANGERS_MAX);
        let store_files = (free / 4).clamp(FEW, STORE_FILES_MAX);
        // Reserved for nodes that join while this one runs.
        let more = PER_PEER * NODES_MAX.saturating_sub(nodes);
        let more = more.min((free - 3 * FEW) / 8);
        Ok(Self {
            clients: (free - strangers - store_files - more).min(CLIENTS_MAX),
            strangers,
            store_files,
        })
    }
}

/// Raises the soft limit on open files to the hard limit, logs the change, and returns the new
/// limit. Raising it is safe, because the default is low only for programs that cannot handle large
/// descriptor numbers.
pub fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => {
            if current != maximum {
                let [from, to] = [current, maximum].map(|limit| limit.unwrap_or(u64::MAX));
                tracing::info!("raised the limit on open files from {from} to {to}");
            }
            maximum
        }
        Err(error) => {
            tracing::debug!(%error, ?current, ?maximum, "the limit on open files stays as it is");
            current
        }
    };
    usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_at_most_the_limit() {
        for limit in [248, 256, 300, 512, 1024, 4096, 20_000, 1 << 20, usize::MAX] {
            let shares = Descriptors::share(limit, 3).unwrap();
            let Descriptors { clients, strangers, store_files } = shares;
            let fixed = OWN + LOG + ADMIN + STORE_AT_WORK + 2 * PER_PEER;
            assert!(fixed + clients + strangers + store_files <= limit, "{shares:?}");
            assert!(clients.min(strangers).min(store_files) >= FEW, "{shares:?}");
        }
    }

    /// A cluster grows while its nodes run, so a node with enough descriptors reserves some for the
    /// maximum number of nodes.
    #[test]
    fn descriptors_are_reserved_for_later_nodes() {
        for (limit, nodes) in [(1024, 1), (4096, 3), (20_000, 3)] {
            let fixed = OWN + LOG + ADMIN + STORE_AT_WORK + PER_PEER * (nodes - 1);
            let shares = Descriptors::share(limit, nodes).unwrap();
            let left = limit - fixed - shares.clients - shares.strangers - shares.store_files;
            let wanted = PER_PEER * (NODES_MAX - nodes);
            assert!(left >= wanted.min(limit / 12), "{limit}: {left}");
        }
    }

    #[test]
    fn too_few_descriptors_are_an_error_before_opening() {
        let error = Descriptors::share(64, 3).unwrap_err();
        assert_eq!(error.code, "too_few_descriptors");
        assert_eq!(error.message, "the limit on open files is 64; this node needs at least 248");
        assert!(Descriptors::share(247, 3).is_err());
        assert!(Descriptors::share(248, 3).is_ok());
        assert!(Descriptors::share(248, 4).is_err());
    }
}
