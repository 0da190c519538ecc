//! The values service of a replica. Its state is in memory and rebuilt from a snapshot and the log
//! after a restart.

use std::sync::Arc;

use quorate::{CommandId, Imaged, LoadError, MetaChange, Slot, StateMachine};

use super::shared::SharedValues;

/// Name of the service, as recorded in the data folder of a node.
pub const SERVICE_NAME: &str = "values";

/// State machine that replicates the values.
#[derive(Debug)]
pub struct ValuesMachine(Arc<SharedValues>);

impl ValuesMachine {
    /// Creates the service with `shared` as its state, which must be empty.
    pub fn new(shared: Arc<SharedValues>) -> Self {
        Self(shared)
    }
}

impl Drop for ValuesMachine {
    /// Called when the node stops, whatever the reason.
    fn drop(&mut self) {
        self.0.mark_ended();
    }
}

impl StateMachine for ValuesMachine {
    fn apply(&mut self, _: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0.values().execute(command).encode(reply);
    }

    fn query(&self, _: &[u8], _: u64, reply: &mut Vec<u8>) {
        self.0.values().retained_range().encode(reply);
    }

    fn commit(&mut self, applied_to: Slot, _: &[MetaChange]) {
        self.0.set_applied(applied_to.0);
    }

    fn begin_image(&mut self) -> bool {
        self.0.values().begin_snapshot()
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        match self.0.values().next_snapshot_part(bytes, each) {
            Some(true) => Imaged::More,
            Some(false) => Imaged::End,
            None => Imaged::Failed,
        }
    }

    fn end_image(&mut self) {
        self.0.values().end_snapshot();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.0.values().begin_load();
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        let loaded = self.0.values().load_item(item);
        loaded.ok_or(LoadError::NotLoading)?.map_err(LoadError::Malformed)
    }

    fn finish_load(&mut self, at: Slot, _: &[MetaChange]) -> Result<(), LoadError> {
        let finished = self.0.values().finish_load();
        finished.ok_or(LoadError::NotLoading)?.map_err(LoadError::Malformed)?;
        self.0.set_applied(at.0);
        Ok(())
    }
}
