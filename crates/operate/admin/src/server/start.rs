//! Progress of a node's start.

use std::time::Instant;

use quorate_core::node_id::NodeId;
use quorate_log::ReadProgress;

use super::failure::Failure;
use crate::view::{ProgressView, STARTING_CODE};

/// Current activity and progress of a starting node.
#[derive(Clone, Debug)]
pub(super) struct StartProgress {
    /// Description of the current activity.
    activity: String,
    /// Progress of reading the log, and the time at which reading began.
    log_reading: Option<(ReadProgress, Instant)>,
}

impl StartProgress {
    pub(super) fn new(doing: &str) -> Self {
        Self { activity: doing.to_owned(), log_reading: None }
    }

    pub(super) fn set_reading(&mut self, reading: ReadProgress) {
        let began = self.log_reading.map_or_else(Instant::now, |(_, began)| began);
        self.log_reading = Some((reading, began));
    }

    fn progress(&self) -> Option<ProgressView> {
        let (reading, began) = self.log_reading?;
        Some(ProgressView::from_log(reading, began.elapsed()))
    }

    /// Returns the error for requests that arrive before the node runs.
    pub(super) fn to_failure(&self, node: Option<NodeId>) -> Failure {
        let progress = self.progress();
        let message = match &progress {
            Some(progress) => progress.to_string(),
            None => self.activity.clone(),
        };
        Failure::unavailable(STARTING_CODE, &message).with_progress(progress).with_node(node)
    }
}
