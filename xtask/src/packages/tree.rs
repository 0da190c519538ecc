//! Files of an archive: paths, content and permissions.

use std::collections::{BTreeMap, btree_map::Iter};

/// Files and folders by path, without a leading slash. A folder precedes its content.
#[derive(Debug, Default)]
pub(crate) struct FileTree(BTreeMap<String, TreeEntry>);

/// A file or a folder.
#[derive(Debug)]
pub(crate) struct TreeEntry {
    pub(crate) kind: EntryKind,
    pub(crate) mode: u32,
    /// Id of the user and of the group.
    pub(crate) owner: u32,
}

/// Kind of an entry.
#[derive(Debug)]
pub(crate) enum EntryKind {
    Folder,
    File(Vec<u8>),
}

impl FileTree {
    /// Returns all entries in the order of an archive.
    pub(crate) fn entries(&self) -> Iter<'_, String, TreeEntry> {
        self.0.iter()
    }

    pub(crate) fn add_file(&mut self, path: &str, bytes: Vec<u8>) {
        self.add_entry(path, EntryKind::File(bytes), 0o644, 0);
    }

    pub(crate) fn add_program(&mut self, path: &str, bytes: Vec<u8>) {
        self.add_entry(path, EntryKind::File(bytes), 0o755, 0);
    }

    pub(crate) fn add_folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.add_entry(path, EntryKind::Folder, mode, owner);
    }

    /// Adds an entry and its parent folders.
    fn add_entry(&mut self, path: &str, what: EntryKind, mode: u32, owner: u32) {
        for (at, _) in path.match_indices('/') {
            let folder = TreeEntry { kind: EntryKind::Folder, mode: 0o755, owner: 0 };
            self.0.entry(path[..at].to_owned()).or_insert(folder);
        }
        self.0.insert(path.to_owned(), TreeEntry { kind: what, mode, owner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_their_contents() {
        let mut tree = FileTree::default();
        tree.add_folder("data", 0o750, 7);
        tree.add_file("usr/share/a", vec![1, 2]);
        tree.add_program("usr/bin/b", vec![3]);
        let paths: Vec<&str> = tree.entries().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["data", "usr", "usr/bin", "usr/bin/b", "usr/share", "usr/share/a"]);
        let rights = tree.entries().map(|(_, entry)| (entry.mode, entry.owner));
        assert!(rights.eq([
            (0o750, 7),
            (0o755, 0),
            (0o755, 0),
            (0o755, 0),
            (0o755, 0),
            (0o644, 0)
        ]));
    }
}
