//! Shares of the process's file descriptors, so that no component starves another. A log that
//! cannot open its next segment, or a store that cannot open its next table, stops the node.

use quorate_replica::group::NODES_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Descriptors for standard streams, listeners, rings, timers and locks, and for files that are
/// open briefly.
const PROCESS_DESCRIPTORS: usize = 32;
/// Descriptors for log segments: the current one, the next, the one being created, and those being
/// read.
const LOG_DESCRIPTORS: usize = 32;
/// Descriptors for operators' connections.
const ADMIN_DESCRIPTORS: usize = 64;
/// Descriptors for tables that the store reads and writes during a merge.
const MERGE_DESCRIPTORS: usize = 64;
/// Descriptors per peer, for two lanes and for a replacement connection of each.
const PEER_DESCRIPTORS: usize = 4;
/// Minimum number of descriptors for each purpose. A node with fewer is useless.
const DESCRIPTORS_MIN: usize = 16;
const CLIENTS_MAX: usize = 10_000;
const STORE_FILES_MAX: usize = 4096;
const STRANGERS_MAX: usize = 64;

/// Limits on open files and connections, in addition to those that every node needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Maximum number of client connections.
    pub clients_max: usize,
    /// Maximum number of unauthenticated connections to the peer address.
    pub strangers_max: usize,
    /// Maximum number of files that the store keeps open between reads.
    pub store_files_max: usize,
}

impl Default for DescriptorLimits {
    /// Returns the shares of a process that has enough descriptors.
    fn default() -> Self {
        Self { clients_max: CLIENTS_MAX, strangers_max: STRANGERS_MAX, store_files_max: 256 }
    }
}

impl DescriptorLimits {
    /// Divides `limit` descriptors among the purposes of a node in a cluster of `nodes` nodes.
    /// Fails if there are too few.
    pub fn divide(limit: usize, nodes: usize) -> Result<Self, Error> {
        let peers = PEER_DESCRIPTORS * nodes.saturating_sub(1);
        let fixed =
            PROCESS_DESCRIPTORS + LOG_DESCRIPTORS + ADMIN_DESCRIPTORS + MERGE_DESCRIPTORS + peers;
        let needed = fixed + 3 * DESCRIPTORS_MIN;
        let Some(free) = limit.checked_sub(fixed).filter(|_| limit >= needed) else {
            let what =
                format!("the limit on open files is {limit}; this node needs at least {needed}");
            return Err(Error::new("too_few_descriptors", what).hint(
                "raise it: ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of a container",
            ));
        };
        let strangers = (free / 8).clamp(DESCRIPTORS_MIN, STRANGERS_MAX);
        let store_files = (free / 4).clamp(DESCRIPTORS_MIN, STORE_FILES_MAX);
        // Reserved for nodes that join while this one runs.
        let more = PEER_DESCRIPTORS * NODES_MAX.saturating_sub(nodes);
        let more = more.min((free - 3 * DESCRIPTORS_MIN) / 8);
        Ok(Self {
            clients_max: (free - strangers - store_files - more).min(CLIENTS_MAX),
            strangers_max: strangers,
            store_files_max: store_files,
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
            let shares = DescriptorLimits::divide(limit, 3).unwrap();
            let DescriptorLimits {
                clients_max: clients,
                strangers_max: strangers,
                store_files_max: store_files,
            } = shares;
            let fixed = PROCESS_DESCRIPTORS
                + LOG_DESCRIPTORS
                + ADMIN_DESCRIPTORS
                + MERGE_DESCRIPTORS
                + 2 * PEER_DESCRIPTORS;
            assert!(fixed + clients + strangers + store_files <= limit, "{shares:?}");
            assert!(clients.min(strangers).min(store_files) >= DESCRIPTORS_MIN, "{shares:?}");
        }
    }

    /// A cluster grows while its nodes run, so a node with enough descriptors reserves some for the
    /// maximum number of nodes.
    #[test]
    fn descriptors_are_reserved_for_later_nodes() {
        for (limit, nodes) in [(1024, 1), (4096, 3), (20_000, 3)] {
            let fixed = PROCESS_DESCRIPTORS
                + LOG_DESCRIPTORS
                + ADMIN_DESCRIPTORS
                + MERGE_DESCRIPTORS
                + PEER_DESCRIPTORS * (nodes - 1);
            let shares = DescriptorLimits::divide(limit, nodes).unwrap();
            let left =
                limit - fixed - shares.clients_max - shares.strangers_max - shares.store_files_max;
            let wanted = PEER_DESCRIPTORS * (NODES_MAX - nodes);
            assert!(left >= wanted.min(limit / 12), "{limit}: {left}");
        }
    }

    #[test]
    fn too_few_descriptors_are_an_error_before_opening() {
        let error = DescriptorLimits::divide(64, 3).unwrap_err();
        assert_eq!(error.code, "too_few_descriptors");
        assert_eq!(error.message, "the limit on open files is 64; this node needs at least 248");
        assert!(DescriptorLimits::divide(247, 3).is_err());
        assert!(DescriptorLimits::divide(248, 3).is_ok());
        assert!(DescriptorLimits::divide(248, 4).is_err());
    }
}
