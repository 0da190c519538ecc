//! Small files of the disk in memory: their visible contents, and those that a crash may restore.

use std::collections::BTreeMap;

use super::CrashFates;

/// The folder of small files, changed one step at a time. Until the folder is synced, a renamed
/// file is in doubt, also after a crash: it can be read, and may revert at a power failure.
///
/// Temporary files are not modelled: they are never read, and the next change begins with a new
/// one.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    files: BTreeMap<String, Vec<u8>>,
    /// Other contents that a file may have after a crash. `None` means that the file does not
    /// exist.
    possible_contents: BTreeMap<String, Vec<Option<Vec<u8>>>>,
}

impl Folder {
    pub(super) fn read(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }

    /// Replaces a file by renaming a temporary file that contains `bytes`.
    pub(super) fn rename(&mut self, name: &str, bytes: &[u8]) {
        let old = self.files.insert(name.to_owned(), bytes.to_vec());
        self.possible_contents.entry(name.to_owned()).or_default().push(old);
    }

    /// Sets the contents of a file. Contents that a crash may restore remain in doubt.
    pub(super) fn put(&mut self, name: &str, bytes: &[u8]) {
        self.files.insert(name.to_owned(), bytes.to_vec());
    }

    pub(super) fn sync(&mut self) {
        self.possible_contents.clear();
    }

    /// Deletes a file without the log's knowledge.
    pub(super) fn remove(&mut self, name: &str) {
        self.files.remove(name);
        self.possible_contents.remove(name);
    }

    /// Settles each file on one of its possible contents.
    pub(super) fn crash(&mut self, fates: &mut dyn CrashFates) {
        for (name, others) in &mut self.possible_contents {
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
