//! The service: executes commands in the order of the log, answers queries.

use bytes::Bytes;
use quorate::{CommandId, Health, Imaged, LoadError, MetaChange, Metadata, Slot, StateMachine};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    command::{Command, Figures, Query, reply},
    image::{self, Items},
    mvcc::{Budget, Mvcc, SCRUB_MAX},
    proto::etcdserverpb::{CompactionResponse, ResponseHeader},
    refusal::Refusal,
    store::Store,
};

/// The state machine on any store.
pub struct Service {
    mvcc: Mvcc,
    /// Something was executed since the last commit.
    uncommitted: bool,
    /// The image that was begun has not given its head.
    owes_head: bool,
    /// The image that comes in.
    loading: Option<Items>,
}

impl Service {
    /// Serves `store`.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            mvcc: Mvcc::new(store),
            uncommitted: false,
            owes_head: false,
            loading: None,
        }
    }

    /// The data.
    pub const fn mvcc(&self) -> &Mvcc {
        &self.mvcc
    }

    /// A fingerprint of all contents, to compare nodes at equal positions. Reads everything.
    pub fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        self.mvcc.store().scan(&[], &[u8::MAX], &mut |key, value| {
            for part in [key, value] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            std::ops::ControlFlow::Continue(())
        });
        hasher.digest128()
    }

    fn figures(&self) -> Figures {
        Figures {
            revision: self.mvcc.revision(),
            compacted: self.mvcc.compacted(),
            is_scrubbed: !self.mvcc.has_scrap(),
            bytes: self.mvcc.store().bytes(),
        }
    }
}

impl StateMachine for Service {
    fn apply(&mut self, _: CommandId, command: &[u8], out: &mut Vec<u8>) {
        self.uncommitted = true;
        let mvcc = &mut self.mvcc;
        match Command::decode(command) {
            None => reply::<Figures>(Err(Refusal::Malformed), out),
            Some(Command::Put(request)) => reply(mvcc.put(&request, Budget::COMMAND), out),
            Some(Command::Delete(request)) => reply(mvcc.delete(&request, Budget::COMMAND), out),
            Some(Command::Txn(request)) => reply(mvcc.txn(&request, Budget::COMMAND), out),
            Some(Command::Compact(request)) => {
                let done = mvcc.compact(request.revision);
                let answer = done.map(|revision| CompactionResponse {
                    header: Some(ResponseHeader {
                        revision,
                        ..ResponseHeader::default()
                    }),
                });
                reply(answer, out);
            }
            Some(Command::Scrub) => {
                mvcc.scrub(SCRUB_MAX);
                reply(Ok(self.figures()), out);
            }
        }
    }

    fn query(&self, query: &[u8], _: u64, out: &mut Vec<u8>) {
        match Query::decode(query) {
            None => reply::<Figures>(Err(Refusal::Malformed), out),
            Some(Query::Range(request)) => {
                reply(self.mvcc.read_range(&request, Budget::QUERY), out);
            }
            Some(Query::Txn(request)) => reply(self.mvcc.read_txn(&request, Budget::QUERY), out),
            Some(Query::Figures) => reply(Ok(self.figures()), out),
        }
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.mvcc.store_mut().commit(applied_to, meta);
        self.uncommitted = false;
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let recovered = self.mvcc.store_mut().recovered();
        let _ = self.mvcc.read_state();
        self.uncommitted = false;
        self.loading = None;
        recovered
    }

    fn logged(&mut self, to: Slot) {
        self.mvcc.store_mut().logged(to);
    }

    fn health(&mut self) -> Health {
        self.mvcc.store_mut().health()
    }

    fn has_failed(&self) -> bool {
        self.mvcc.store().has_failed()
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        if self.mvcc.has_scrap() {
            each(&Command::Scrub.encode());
        }
    }

    fn begin_image(&mut self) -> bool {
        self.mvcc.store_mut().end_image();
        self.owes_head = false;
        if !self.uncommitted && self.loading.is_none() {
            self.owes_head = self.mvcc.store_mut().begin_image();
        }
        self.owes_head
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let mut item = Vec::new();
        if std::mem::take(&mut self.owes_head) {
            image::encode_head(&mut item);
            each(&item);
        }
        self.mvcc.store_mut().next_image(bytes, &mut |key, value| {
            image::encode_entry(key, value, &mut item);
            each(&item);
        })
    }

    fn end_image(&mut self) {
        self.owes_head = false;
        self.mvcc.store_mut().end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.mvcc.store_mut().end_image();
        self.loading = None;
        self.mvcc.store_mut().begin_load()?;
        self.loading = Some(Items::default());
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        // It is back only if all went well.
        let mut items = self.loading.take().ok_or(LoadError::NotLoading)?;
        if let Some((key, value)) = items.take(item)? {
            let value = Bytes::copy_from_slice(value);
            self.mvcc.store_mut().load(key, value)?;
        }
        self.loading = Some(items);
        Ok(())
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let items = self.loading.take().ok_or(LoadError::NotLoading)?;
        // Before the first slot there is no state, and no image of it.
        if at != Slot::FIRST || !items.is_empty() {
            items.end()?;
        }
        self.mvcc.store_mut().finish_load(at, meta)?;
        self.mvcc.read_state()?;
        self.uncommitted = false;
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.mvcc.store_mut().synced_to()
    }

    fn start_sync(&mut self) {
        self.mvcc.store_mut().start_sync();
    }
}
