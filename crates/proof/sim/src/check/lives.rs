//! The counters of a node's lives: every process start has a number of its own, incarnations never
//! fall, and a node that lost a part of its log is another member ([volatile-1], [value-2],
//! [disk-8]).

use std::collections::BTreeMap;

use quorate_core::node_id::{Incarnation, Member};

use super::{Verdict, Violation};

/// State of each node in its last life that ran.
#[derive(Debug, Default)]
pub struct Lives {
    last: BTreeMap<usize, Life>,
    cluster: Option<u128>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    boot: u32,
    incarnation: Incarnation,
}

impl Lives {
    /// Returns the incarnation in which a node ran last.
    pub fn incarnation(&self, node: usize) -> Incarnation {
        self.last.get(&node).map_or(Incarnation(0), |life| life.incarnation)
    }

    /// Returns the number of a node's last start, and in which incarnation it was.
    pub fn last(&self, node: usize) -> Option<(u32, Incarnation)> {
        self.last.get(&node).map(|life| (life.boot, life.incarnation))
    }

    /// A process runs.
    ///
    /// # Errors
    /// It is a process that ran before, or a member that is gone.
    pub fn started(&mut self, node: usize, boot: u32, incarnation: Incarnation) -> Verdict {
        let life = Life { boot, incarnation };
        let Some(last) = self.last.insert(node, life) else {
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

    /// A process says which cluster it belongs to.
    ///
    /// # Errors
    /// Others belong to another one.
    pub fn belongs(&mut self, node: usize, cluster: u128) -> Verdict {
        let known = *self.cluster.get_or_insert(cluster);
        if known == cluster {
            return Ok(());
        }
        let detail = format!("node {} belongs to a second cluster", node + 1);
        Err(Violation::new("lives", detail))
    }

    /// A process has opened its log: the incarnation that wrote it last, and, if released log
    /// writes are missing, their number. Called before [`Lives::started`].
    ///
    /// # Errors
    /// It was written by a member that this node is not yet, or lost log writes that this member
    /// released.
    pub fn opened(
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
        let same = self.last.get(&node).is_some_and(|last| last.incarnation == member.incarnation);
        if lost > 0 && same {
            return broken(format!(
                "lost {lost} writes of its log, and goes on as incarnation {}",
                member.incarnation.0
            ));
        }
        Ok(())
    }
}
