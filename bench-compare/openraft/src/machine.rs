//! OpenRaft state machine that counts commands.

use std::{
    io::Cursor,
    sync::{Arc, Mutex, PoisonError},
};

use compare_front::AppliedCommands;
use openraft::{
    AnyError, BasicNode, Entry, EntryPayload, LogId, RaftSnapshotBuilder, Snapshot, SnapshotMeta,
    StorageError, StorageIOError, StoredMembership, storage::RaftStateMachine,
};

use crate::Types;

type Meta = SnapshotMeta<u64, BasicNode>;

/// Handle to the state machine, shared with the snapshot builder.
#[derive(Clone)]
pub struct StateMachine {
    applied: AppliedCommands,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    last_applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    snapshot: Option<(Meta, Vec<u8>)>,
}

impl StateMachine {
    /// Returns a state machine that has applied nothing.
    pub fn new(applied: AppliedCommands) -> Self {
        Self { applied, state: Arc::default() }
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>), StorageError<u64>> {
        let state = self.lock_state();
        Ok((state.last_applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<u64>, StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<Types>> + Send,
        I::IntoIter: Send,
    {
        let mut replies = Vec::new();
        let mut state = self.lock_state();
        for entry in entries {
            state.last_applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(commands) => self.applied.apply_commands(commands.iter()),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            replies.push(entry.log_id.index);
        }
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<Cursor<Vec<u8>>>, StorageError<u64>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<u64>> {
        let bytes = snapshot.into_inner();
        let counts = bincode::deserialize(&bytes)
            .map_err(|error| StorageIOError::read_snapshot(None, AnyError::new(&error)))?;
        self.applied.restore(counts);
        let mut state = self.lock_state();
        state.last_applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.snapshot = Some((meta.clone(), bytes));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError<u64>> {
        let state = self.lock_state();
        Ok(state.snapshot.as_ref().map(|(meta, bytes)| Snapshot {
            meta: meta.clone(),
            snapshot: Box::new(Cursor::new(bytes.clone())),
        }))
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<u64>> {
        // Applying takes the same lock first.
        let mut state = self.lock_state();
        let bytes = bincode::serialize(&self.applied.state())
            .map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)))?;
        let index = state.last_applied.map_or(0, |last| last.index);
        let meta = SnapshotMeta {
            last_log_id: state.last_applied,
            last_membership: state.membership.clone(),
            snapshot_id: index.to_string(),
        };
        state.snapshot = Some((meta.clone(), bytes.clone()));
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}
