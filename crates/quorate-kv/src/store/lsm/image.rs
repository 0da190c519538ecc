//! An image of the store on disk: the tree as it was, by the library's own snapshot, and the layers that
//! were above it then.

use std::{borrow::Cow, cell::OnceCell, sync::Arc};

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

/// The image. It holds the tree open.
pub(super) struct Image {
    pub(super) tree: Past,
    /// Uppermost first. Nothing changes them any more.
    pub(super) layers: Vec<Arc<Changes>>,
    pub(super) generation: u64,
    pub(super) cursor: Cursor,
}

impl Image {
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
        let first = data_key(self.generation, from, b"");
        let before = prefix(kind::DATA, self.generation + 1);
        let stored = self.tree.range(first..before);
        merge.add(stored.map_while(|read| {
            let parsed = read.and_then(|(key, value)| {
                let nonsense = || Failure::damaged("an entry makes no sense");
                let (position, key) = parse_data_key(&key).ok_or_else(nonsense)?;
                let entry = entry(value).ok_or_else(nonsense)?;
                Ok(((position, Cow::Owned(key.to_vec())), Some(entry)))
            });
            parsed.map_err(|failure| failed.set(failure)).ok()
        }));
        let left = self.cursor.go_on(merge, bytes, each);
        failed.into_inner().map_or(Ok(left), Err)
    }
}
