//! Clients that write keys and byte streams while a task acts on the nodes.

use std::{io, sync::Arc};

use quorate_testbed::{
    nodes::{NodeCluster, START_TIMEOUT},
    stream_load::{self, Lane, LoadTotals, StreamLoad},
    wait,
    writers::Writers,
};

/// Acknowledged writes between two steps of a task.
const WRITES_PER_STEP: u64 = 50;
/// Size of a stream writer's writes, in bytes.
const STREAM_WRITE_BYTES: u64 = 8 << 10;

/// Running writers.
pub(crate) struct RunningWriters {
    keys: Writers,
    streams: Option<StreamLoad>,
}

/// Totals of the data compared on all nodes.
pub(crate) struct ComparedTotals {
    pub(crate) keys: usize,
    /// Totals of the streams, if any were written.
    pub(crate) stream_totals: Option<LoadTotals>,
    pub(crate) lanes: Vec<Arc<Lane>>,
}

impl RunningWriters {
    /// Creates writers of keys only.
    pub(crate) const fn with_keys(keys: Writers) -> Self {
        Self { keys, streams: None }
    }

    /// Adds byte streams. With `pinned`, each node in `at` also gets a stream whose writer knows no
    /// other node.
    pub(crate) fn with_streams(self, at: &[String], pinned: bool, seed: u64) -> io::Result<Self> {
        let streams = Some(StreamLoad::start(at, pinned, STREAM_WRITE_BYTES, seed)?);
        Ok(Self { streams, ..self })
    }

    /// Waits until the writers of keys have together written another [`WRITES_PER_STEP`] keys.
    pub(crate) fn wait_for_keys(&self) -> io::Result<()> {
        let from = self.keys.acknowledged_count();
        wait::wait_at_most(START_TIMEOUT, "more acknowledged writes", || {
            (self.keys.acknowledged_count() >= from + WRITES_PER_STEP).then_some(())
        })
    }

    /// Waits until another [`WRITES_PER_STEP`] keys have been written and each stream has grown.
    pub(crate) fn wait_for_progress(&mut self) -> io::Result<()> {
        self.wait_for_keys()?;
        self.streams.as_mut().map_or(Ok(()), StreamLoad::wait_for_progress)
    }

    /// Stops the writers and checks that all nodes have all acknowledged data.
    pub(crate) fn stop_and_compare(self, nodes: &mut NodeCluster) -> io::Result<ComparedTotals> {
        let (mut sum, mut lanes) = (None, Vec::new());
        if let Some(load) = self.streams {
            lanes = load.lanes();
            load.finish()?;
            sum = Some(stream_load::compare_nodes(&lanes, &nodes.stream_addresses())?);
        }
        let keys = self.keys.compare(nodes)?;
        Ok(ComparedTotals { keys, stream_totals: sum, lanes })
    }
}
