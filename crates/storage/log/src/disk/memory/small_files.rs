//! Small files on the disk in memory: what is seen now, and what a crash may make of it.

use std::collections::BTreeMap;

use super::Fates;

/// The folder of small files, one step at a time. A renamed file is in doubt until the folder is
/// synced, also after a crash: it can be read, and revert when power fails.
///
/// Temporary files are not kept: they are never read, and the next change begins with a new one.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    files: BTreeMap<String, Vec<u8>>,
    /// Contents that a file may also have after a crash; `None` is no file.
    doubtful: BTreeMap<String, Vec<Option<Vec<u8>>>>,
}

impl Folder {
    pub(super) fn read(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }

    /// A temporary file of these bytes takes the place of the file.
    pub(super) fn rename(&mut self, name: &str, bytes: &[u8]) {
        let old = self.files.insert(name.to_owned(), bytes.to_vec());
        self.doubtful.entry(name.to_owned()).or_default().push(old);
    }

    /// Sets the contents. Contents that a crash may restore stay in doubt.
    pub(super) fn put(&mut self, name: &str, bytes: &[u8]) {
        self.files.insert(name.to_owned(), bytes.to_vec());
    }

    /// All that was renamed is durable.
    pub(super) fn sync(&mut self) {
        self.doubtful.clear();
    }

    /// Deletes a file from outside.
    pub(super) fn remove(&mut self, name: &str) {
        self.files.remove(name);
        self.doubtful.remove(name);
    }

    /// Each file becomes one of those that it may be.
    pub(super) fn crash(&mut self, fates: &mut dyn Fates) {
        for (name, others) in &mut self.doubtful {
            let choice = fates.choose(others.len() + 1);
            if let Some(other) = others.get_mut(choice) {
                let seen = self.files.remove(name);
                if let Some(other) = std::mem::replace(other, seen) {
                    self.files.insert(name.clone(), other);
                }
            }
        }
    }
}
