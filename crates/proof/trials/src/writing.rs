//! Clients that write keys and byte streams while a task acts on the nodes.

use std::{io, sync::Arc};

use quorate_testbed::{
    nodes::{Nodes, PATIENCE},
    stream_load::{self, Lane, Load, Sum},
    wait,
    writers::Writers,
};

/// Acknowledged writes between two steps of a task.
const STEP: u64 = 50;
/// Size of a stream writer's writes, in bytes.
const STREAM_PART: u64 = 8 << 10;

/// Running writers.
pub(crate) struct Writing {
    keys: Writers,
    streams: Option<Load>,
}

/// Totals of the data compared on all nodes.
pub(crate) struct Compared {
    pub(crate) keys: usize,
    /// Totals of the streams, if any were written.
    pub(crate) sum: Option<Sum>,
    pub(crate) lanes: Vec<Arc<Lane>>,
}

impl Writing {
    /// Creates writers of keys only.
    pub(crate) const fn keys(keys: Writers) -> Self {
        Self { keys, streams: None }
    }

    /// Adds byte streams. With `pinned`, each node in `at` also gets a stream whose writer knows no
    /// other node.
    pub(crate) fn and_streams(self, at: &[String], pinned: bool, seed: u64) -> io::Result<Self> {
        let streams = Some(Load::start(at, pinned, STREAM_PART, seed)?);
        Ok(Self { streams, ..self })
    }

    /// Waits until the writers of keys have together written another [`STEP`] keys.
    pub(crate) fn keys_go_on(&self) -> io::Result<()> {
        let from = self.keys.acknowledged();
        wait::at_most(PATIENCE, "more acknowledged writes", || {
            (self.keys.acknowledged() >= from + STEP).then_some(())
        })
    }

    /// Waits until another [`STEP`] keys have been written and each stream has grown.
    pub(crate) fn goes_on(&mut self) -> io::Result<()> {
        self.keys_go_on()?;
        self.streams.as_mut().map_or(Ok(()), Load::wait_going_on)
    }

    /// Stops the writers and checks that all nodes have all acknowledged data.
    pub(crate) fn compare(self, nodes: &mut Nodes) -> io::Result<Compared> {
        let (mut sum, mut lanes) = (None, Vec::new());
        if let Some(load) = self.streams {
            lanes = load.lanes();
            load.finish()?;
            sum = Some(stream_load::compare(&lanes, &nodes.stream_addresses())?);
        }
        let keys = self.keys.compare(nodes)?;
        Ok(Compared { keys, sum, lanes })
    }
}
