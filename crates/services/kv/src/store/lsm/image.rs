//! An image of the store on disk: the tree as it was, by the library's own snapshot, and the layers that
//! were above it then.

use std::{borrow::Cow, cell::OnceCell, collections::VecDeque, sync::Arc};

use fjall::Slice;
use quorate_replica::service::Imaged;

use super::{
    changes::Changes,
    failure::Failure,
    layout::{data_key, entry, kind, parse_data_key, prefix},
    tree::Past,
};
use crate::store::{
    Entry,
    image::{Cursor, records},
    merge::Merge,
};

/// An entry of the tree, or why it cannot be read.
type Read = Result<(Slice, Slice), Failure>;

/// The image. It holds the tree open.
pub(super) struct Image {
    /// The entries of the tree behind those in `ahead`. To find a place in the tree anew reads a good deal of it.
    stored: Box<dyn Iterator<Item = Read> + Send>,
    /// Entries of the tree that were read and not passed yet.
    ahead: VecDeque<(Slice, Slice)>,
    /// Uppermost first. Nothing changes them any more.
    layers: Vec<Arc<Changes>>,
    cursor: Cursor,
    /// What the entries are of, as long as this lives.
    _tree: Past,
}

impl Image {
    /// Of this tree, below these layers.
    pub(super) fn new(tree: Past, layers: Vec<Arc<Changes>>, generation: u64) -> Self {
        let cursor = Cursor::default();
        let first = data_key(generation, cursor.position(), b"");
        let before = prefix(kind::DATA, generation + 1);
        Self {
            stored: Box::new(tree.range(first..before)),
            ahead: VecDeque::new(),
            layers,
            cursor,
            _tree: tree,
        }
    }

    /// Passes the next keys.
    pub(super) fn next(
        &mut self,
        bytes: usize,
        each: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> Result<Imaged, Failure> {
        let from = self.cursor.position();
        let failed = OnceCell::new();
        let mut merge = Merge::new();
        for layer in &self.layers {
            merge.add(records(&layer.data, from));
        }
        let again: Vec<Read> = self.ahead.iter().cloned().map(Ok).collect();
        let (stored, ahead) = (&mut self.stored, &mut self.ahead);
        let fresh = stored.inspect(|read| {
            if let Ok(entry) = read {
                ahead.push_back(entry.clone());
            }
        });
        merge.add(again.into_iter().chain(fresh).map_while(|read| {
            let parsed = read.and_then(|(key, value)| {
                let nonsense = || Failure::damaged("an entry makes no sense");
                let (position, key) = parse_data_key(&key).ok_or_else(nonsense)?;
                let entry = entry(value).ok_or_else(nonsense)?;
                Ok(((position, Cow::Owned(key.to_vec())), Some(entry)))
            });
            parsed.map_err(|failure| failed.set(failure)).ok()
        }));
        let left = self.cursor.go_on(merge, bytes, each);
        let passed = |(key, _): &(Slice, Slice)| {
            parse_data_key(key).is_some_and(|(position, key)| self.cursor.has_passed(position, key))
        };
        while self.ahead.front().is_some_and(passed) {
            self.ahead.pop_front();
        }
        failed.into_inner().map_or(Ok(left), Err)
    }
}
