//! Automatic compaction: the leader removes the history that the operator does not keep.
//!
//! Every node records which revision was current when, so that a new leader goes on at once. After
//! a restart, a node starts to record anew.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tonic::Status;

use super::{
    asking::{Freshness, ReplicaAccess},
    gate::Requester,
    retention::Retention,
};
use crate::{
    command::Command,
    proto::etcdserverpb::{CompactionRequest, CompactionResponse},
};

/// Shortest and longest time between compactions.
const COMPACTION_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(600));
/// Time between compactions that keep a number of revisions.
const REVISION_COMPACTION_INTERVAL: Duration = Duration::from_secs(60);
/// Number of compactions in the time that is kept.
const COMPACTIONS_PER_RETENTION: u32 = 10;

/// Times at which revisions were current, oldest first, as far as they are needed.
#[derive(Debug, Default)]
struct RevisionTimes(VecDeque<(Instant, i64)>);

impl RevisionTimes {
    fn record_revision(&mut self, now: Instant, revision: i64) {
        self.0.push_back((now, revision));
    }

    /// Returns the newest recorded revision that is at least `age` old, and drops older ones.
    fn newest_older_than(&mut self, now: Instant, age: Duration) -> Option<i64> {
        let is_old = |(at, _): &(Instant, i64)| now.saturating_duration_since(*at) >= age;
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.front().filter(|first| is_old(first)).map(|(_, revision)| *revision)
    }
}

impl Retention {
    fn compaction_interval(self) -> Duration {
        match self {
            Self::Time(time) => (time / COMPACTIONS_PER_RETENTION)
                .clamp(COMPACTION_INTERVALS.0, COMPACTION_INTERVALS.1),
            Self::All | Self::Revisions(_) => REVISION_COMPACTION_INTERVAL,
        }
    }

    /// Returns the revision to compact at: the oldest one that stays readable.
    fn oldest_kept(self, now: Instant, current: i64, revisions: &mut RevisionTimes) -> Option<i64> {
        match self {
            Self::All => None,
            Self::Time(time) => {
                revisions.record_revision(now, current);
                revisions.newest_older_than(now, time)
            }
            Self::Revisions(count) => Some(current - (count - 1)),
        }
    }
}

/// Compacts while this node leads.
pub(super) async fn run(asking: Arc<ReplicaAccess>, retention: Retention) {
    if retention == Retention::All {
        return;
    }
    let mut revisions = RevisionTimes::default();
    loop {
        sleep(retention.compaction_interval()).await;
        if let Err(error) = compact_once(&asking, retention, &mut revisions).await {
            // The next step compacts what this one did not.
            tracing::debug!(%error, "history was not compacted");
        }
    }
}

async fn compact_once(
    asking: &ReplicaAccess,
    retention: Retention,
    revisions: &mut RevisionTimes,
) -> Result<(), Status> {
    let figures = asking.figures(Freshness::Local).await?;
    let revision = retention.oldest_kept(Instant::now(), figures.revision, revisions);
    let Some(revision) = revision.filter(|revision| *revision > figures.compacted_revision) else {
        return Ok(());
    };
    if asking.status().await?.leader != Some(asking.node_id()) {
        return Ok(());
    }
    let command = Command::Compact(CompactionRequest { revision, physical: false });
    let _: (CompactionResponse, _) = asking.execute(&Requester::Member, &command).await?;
    tracing::info!(revision, "history compacted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A revision stays readable for as long as wanted after the next one.
    #[test]
    fn revisions_are_kept_for_the_time() {
        let keep = Retention::Time(10 * SECOND);
        let (begun, mut revisions) = (Instant::now(), RevisionTimes::default());
        let mut oldest = |second: u32, current| {
            keep.oldest_kept(begun + second * SECOND, current, &mut revisions)
        };
        assert_eq!(oldest(0, 5), None);
        assert_eq!(oldest(4, 6), None);
        assert_eq!(oldest(9, 20), None);
        assert_eq!(oldest(10, 20), Some(5));
        assert_eq!(oldest(13, 20), Some(5));
        assert_eq!(oldest(14, 21), Some(6));
        assert_eq!(oldest(60, 21), Some(21));
        assert_eq!(revisions.0.len(), 2);
    }

    #[test]
    fn a_number_of_revisions_is_kept() {
        let (now, mut revisions) = (Instant::now(), RevisionTimes::default());
        let keep = Retention::Revisions(3);
        assert_eq!(keep.oldest_kept(now, 9, &mut revisions), Some(7));
        assert_eq!(Retention::Revisions(1).oldest_kept(now, 9, &mut revisions), Some(9));
    }

    #[test]
    fn compactions_are_a_tenth_of_the_time_apart() {
        assert_eq!(Retention::Time(SECOND).compaction_interval(), SECOND / 10);
        assert_eq!(Retention::Time(3600 * SECOND).compaction_interval(), 360 * SECOND);
        assert_eq!(Retention::Time(86400 * SECOND).compaction_interval(), 600 * SECOND);
    }
}
