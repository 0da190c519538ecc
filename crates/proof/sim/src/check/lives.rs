//! Lives of nodes: every process start has a unique number, incarnations never decrease, and a node
//! that lost part of its log continues as a different member ([volatile-1], [value-2], [disk-8]).

use std::collections::BTreeMap;

use quorate_core::node_id::{Incarnation, Member};

use super::{Verdict, Violation};

/// Most recent life of each node.
#[derive(Debug, Default)]
pub struct LatestLives {
    latest: BTreeMap<usize, Life>,
    cluster_id: Option<u128>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    boot: u32,
    incarnation: Incarnation,
}

impl LatestLives {
    /// Returns the incarnation of a node's most recent life.
    pub fn incarnation(&self, node: usize) -> Incarnation {
        self.latest.get(&node).map_or(Incarnation(0), |life| life.incarnation)
    }

    /// Returns the start number and incarnation of a node's most recent life.
    pub fn latest(&self, node: usize) -> Option<(u32, Incarnation)> {
        self.latest.get(&node).map(|life| (life.boot, life.incarnation))
    }

    /// Checks that a starting process has a new start number, and no later incarnation has started.
    pub fn check_start(&mut self, node: usize, boot: u32, incarnation: Incarnation) -> Verdict {
        let life = Life { boot, incarnation };
        let Some(last) = self.latest.insert(node, life) else {
            return Ok(());
        };
        let broken = |detail: String| {
            let detail = format!("node {} {detail}", node + 1);
            Err(Violation::new("lives", detail))
        };
        if boot <= last.boot {
            return broken(format!("starts as boot {boot} again, after {}", last.boot));
        }
        if incarnation < last.incarnation {
            let (now, before) = (incarnation.0, last.incarnation.0);
            return broken(format!("is incarnation {now} again, after {before}"));
        }
        Ok(())
    }

    /// Checks that all processes have the same cluster id.
    pub fn check_cluster(&mut self, node: usize, cluster: u128) -> Verdict {
        let known = *self.cluster_id.get_or_insert(cluster);
        if known == cluster {
            return Ok(());
        }
        let detail = format!("node {} belongs to a second cluster", node + 1);
        Err(Violation::new("lives", detail))
    }

    /// Checks the log that a process opened, before [`LatestLives::check_start`]. `written` is the
    /// last incarnation that wrote it, `lost` the number of released log writes that are missing.
    /// Fails if a later incarnation wrote the log, or if the process continues as the member that
    /// released the missing writes.
    pub fn check_opened_log(
        &self,
        node: usize,
        member: Member,
        written: Option<Incarnation>,
        lost: u64,
    ) -> Verdict {
        let broken = |detail: String| {
            let detail = format!("node {} {detail}", node + 1);
            Err(Violation::new("lives", detail))
        };
        if let Some(written) = written.filter(|written| *written > member.incarnation) {
            let (log, identity) = (written.0, member.incarnation.0);
            return broken(format!(
                "has a log of incarnation {log}, and an identity of {identity}"
            ));
        }
        let same =
            self.latest.get(&node).is_some_and(|last| last.incarnation == member.incarnation);
        if lost > 0 && same {
            return broken(format!(
                "lost {lost} writes of its log, and goes on as incarnation {}",
                member.incarnation.0
            ));
        }
        Ok(())
    }
}
