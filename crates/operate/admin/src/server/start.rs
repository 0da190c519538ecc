//! Progress of a node's start.

use std::time::Instant;

use quorate_core::node_id::NodeId;
use quorate_log::ReadProgress;

use super::failure::Failure;
use crate::view::{ProgressView, STARTING};

/// Current activity and progress of a starting node.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// Description of the current activity.
    doing: String,
    /// Progress of reading the log, and the time at which reading began.
    reading: Option<(ReadProgress, Instant)>,
}

impl Start {
    pub(super) fn new(doing: &str) -> Self {
        Self { doing: doing.to_owned(), reading: None }
    }

    pub(super) fn reading(&mut self, reading: ReadProgress) {
        let began = self.reading.map_or_else(Instant::now, |(_, began)| began);
        self.reading = Some((reading, began));
    }

    fn progress(&self) -> Option<ProgressView> {
        let (reading, began) = self.reading?;
        Some(ProgressView::of_log(reading, began.elapsed()))
    }

    /// Returns the error for requests that arrive before the node runs.
    pub(super) fn failure(&self, node: Option<NodeId>) -> Failure {
        let progress = self.progress();
        let message = match &progress {
            Some(progress) => progress.to_string(),
            None => self.doing.clone(),
        };
        Failure::unavailable(STARTING, &message).progress(progress).with_node(node)
    }
}
