//! Test service with pages that are replaced one at a time, kept only in memory.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use quorate_core::slot::Slot;
use quorate_replica::{
    service::{CommandId, Health, Imaged, LoadError, MetaChange, Metadata, StateMachine},
    testing::Cluster,
};

/// The latest text under each of a few names, and the number of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shelf {
    pub(crate) pages: BTreeMap<u8, Vec<u8>>,
    pub(crate) commands: u64,
    pub(crate) image: Option<VecDeque<Vec<u8>>>,
    /// Health to report, if not always well.
    pub(crate) health: Option<Rc<RefCell<Health>>>,
    /// Storage for the service's position, if it is to survive the process.
    pub(crate) kept: Option<Rc<RefCell<StoredPosition>>>,
}

/// Position of a service, with its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredPosition {
    pub(crate) at: Slot,
    /// Position that survives a loss of power, if it differs.
    pub(crate) synced: Option<Slot>,
    /// Positions at which the service was asked to sync.
    pub(crate) sync_positions: Vec<Slot>,
    pub(crate) meta: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl StateMachine for Shelf {
    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.commands += 1;
        self.pages.insert(command[0], command.to_vec());
        reply.extend_from_slice(&self.commands.to_le_bytes());
    }

    fn query(&self, query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(self.pages.get(&query[0]).map_or(&[], |page| page));
    }

    fn begin_image(&mut self) -> bool {
        let count = self.commands.to_le_bytes().to_vec();
        let pages = self.pages.values().cloned();
        self.image = Some([count].into_iter().chain(pages).collect());
        true
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let Some(image) = &mut self.image else {
            return Imaged::Failed;
        };
        let mut given = 0;
        while let Some(item) = image.pop_front() {
            each(&item);
            given += item.len();
            if given >= bytes {
                return Imaged::More;
            }
        }
        self.image = None;
        Imaged::End
    }

    fn end_image(&mut self) {
        self.image = None;
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        (self.pages, self.commands, self.image) = Default::default();
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        match item.try_into() {
            Ok(count) => self.commands = u64::from_le_bytes(count),
            Err(_) => {
                self.pages.insert(item[0], item.to_vec());
            }
        }
        Ok(())
    }

    fn health(&mut self) -> Health {
        let Some(health) = &self.health else {
            return Health::Well;
        };
        let now = health.borrow().clone();
        if let Health::Back(_) = now {
            *health.borrow_mut() = Health::Well;
            (self.pages, self.commands, self.image) = Default::default();
            if let Some(kept) = &self.kept {
                kept.take();
            }
        }
        now
    }

    fn commit(&mut self, applied_to: Slot, changes: &[MetaChange]) {
        let Some(kept) = &self.kept else {
            return;
        };
        let kept = &mut *kept.borrow_mut();
        kept.at = applied_to;
        for change in changes {
            match &change.value {
                Some(value) => kept.meta.insert(change.key.clone(), value.clone()),
                None => kept.meta.remove(&change.key),
            };
        }
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let kept = self.kept.as_ref().map(|kept| kept.borrow().clone());
        let StoredPosition { at, meta, .. } = kept.unwrap_or_default();
        (at.max(Slot::FIRST), meta.into_iter().collect())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.kept.as_ref()?.borrow().synced
    }

    fn start_sync(&mut self) {
        if let Some(kept) = &self.kept {
            let kept = &mut *kept.borrow_mut();
            kept.synced = Some(kept.at);
            kept.sync_positions.push(kept.at);
        }
    }

    fn finish_load(&mut self, _: Slot, _: &[MetaChange]) -> Result<(), LoadError> {
        Ok(())
    }
}

pub(crate) type Shelves = Cluster<Shelf>;
