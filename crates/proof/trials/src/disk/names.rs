//! Names created, changed or removed in folders that have not been flushed since, and their state
//! after a power cut.
//!
//! A name becomes durable only when its folder is flushed, and the flush makes the whole folder
//! durable. Many file systems promise more; programs may not rely on it.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use quorate_core::dice::Dice;

use super::files::FileTable;

/// Inode number of a folder, and a name in it.
type NameInFolder = (u64, String);

/// A file that lost its name, stored elsewhere until the change is durable.
#[derive(Debug)]
struct RemovedFile {
    number: Option<u64>,
    path: PathBuf,
}

#[derive(Debug)]
enum NameChangeKind {
    Created(NameInFolder),
    Removed(NameInFolder, RemovedFile),
    Renamed { from: NameInFolder, to: NameInFolder, replaced: Option<RemovedFile> },
}

/// A change that a power cut may undo.
#[derive(Debug)]
struct NameChange {
    kind: NameChangeKind,
    /// Paths below the root at the time of the change.
    paths: Vec<String>,
}

impl NameChange {
    /// Returns the folders involved. A flush of either makes the change durable, since no file
    /// system makes half of it durable.
    fn folder_inodes(&self) -> [u64; 2] {
        match &self.kind {
            NameChangeKind::Created((folder, _)) | NameChangeKind::Removed((folder, _), _) => {
                [*folder; 2]
            }
            NameChangeKind::Renamed { from, to, .. } => [from.0, to.0],
        }
    }
}

/// All changes that a power cut could undo, in the order in which they were made.
#[derive(Debug)]
pub(crate) struct NameJournal {
    changes: Vec<NameChange>,
    /// Folder in which removed files are stored.
    removed_folder: PathBuf,
    next: u64,
}

impl NameJournal {
    /// Creates an empty list, with a folder for removed files next to the root.
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        let removed = root.with_extension("removed");
        fs::create_dir(&removed)?;
        Ok(Self { changes: Vec::new(), removed_folder: removed, next: 0 })
    }

    /// Records a new file or folder.
    pub(crate) fn record_created(&mut self, files: &FileTable, folder: u64, name: &str) {
        let path = name_in_folder(files, folder, name).unwrap_or_default();
        self.changes.push(NameChange {
            kind: NameChangeKind::Created((folder, name.to_owned())),
            paths: vec![path],
        });
    }

    /// Removes a file or an empty folder. Returns its inode number.
    pub(crate) fn remove(
        &mut self,
        files: &mut FileTable,
        folder: u64,
        name: &str,
    ) -> io::Result<Option<u64>> {
        let path = name_in_folder(files, folder, name)?;
        let kept = self.store_file(files, &path)?;
        let number = kept.number;
        self.changes.push(NameChange {
            kind: NameChangeKind::Removed((folder, name.to_owned()), kept),
            paths: vec![path],
        });
        Ok(number)
    }

    /// Renames a file or folder. Returns the inode number of the one that it replaced.
    pub(crate) fn rename(
        &mut self,
        files: &mut FileTable,
        from: (u64, &str),
        to: (u64, &str),
    ) -> io::Result<Option<u64>> {
        let (old, new) =
            (name_in_folder(files, from.0, from.1)?, name_in_folder(files, to.0, to.1)?);
        let root = files.root().to_owned();
        fs::symlink_metadata(root.join(&old))?;
        let replaced = match fs::symlink_metadata(root.join(&new)) {
            Ok(_) if old != new => Some(self.store_file(files, &new)?),
            _ => None,
        };
        fs::rename(root.join(&old), root.join(&new))?;
        files.rename_tree(&old, &new);
        let number = replaced.as_ref().and_then(|kept| kept.number);
        self.changes.push(NameChange {
            kind: NameChangeKind::Renamed {
                from: (from.0, from.1.to_owned()),
                to: (to.0, to.1.to_owned()),
                replaced,
            },
            paths: vec![old, new],
        });
        Ok(number)
    }

    /// Stores a file that loses its name.
    fn store_file(&mut self, files: &mut FileTable, name: &str) -> io::Result<RemovedFile> {
        self.next += 1;
        let path = self.removed_folder.join(self.next.to_string());
        fs::rename(files.root().join(name), &path)?;
        let number = files.remove(name);
        Ok(RemovedFile { number, path })
    }

    /// Makes all changes in a folder durable.
    pub(crate) fn flush(&mut self, folder: u64) {
        self.changes.retain(|change| {
            let open = !change.folder_inodes().contains(&folder);
            if !open {
                change.drop_stored();
            }
            open
        });
    }

    /// Returns the number of changes of chosen names that a power cut could undo, in all folders or
    /// in one.
    pub(crate) fn undoable_count(
        &self,
        folder: Option<u64>,
        chosen: impl Fn(&str) -> bool,
    ) -> usize {
        let all = self.changes.iter().filter(|change| {
            let here = folder.is_none_or(|folder| change.folder_inodes().contains(&folder));
            here && change.paths.iter().any(|path| chosen(path))
        });
        all.count()
    }

    /// Cuts the power. Undoes all changes of chosen names, or the last ones of each folder. The
    /// remaining changes become durable. Returns descriptions of the undone changes.
    pub(crate) fn cut_power(
        &mut self,
        files: &mut FileTable,
        dice: &mut Dice,
        chosen: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<String>> {
        let changes = std::mem::take(&mut self.changes);
        let takes = |change: &NameChange| change.paths.iter().any(|path| chosen(path));
        let folders: BTreeSet<u64> =
            changes.iter().map(|change| change.folder_inodes()[1]).collect();
        let all = dice.chance(1, 2);
        let mut lost = vec![false; changes.len()];
        for folder in folders {
            let of_folder = |at: &usize| {
                let change: &NameChange = &changes[*at];
                change.folder_inodes()[1] == folder && takes(change)
            };
            let places: Vec<usize> = (0..changes.len()).filter(of_folder).collect();
            if places.is_empty() {
                continue;
            }
            let first = if all { 0 } else { dice.index(places.len()) };
            places[first..].iter().for_each(|at| lost[*at] = true);
        }
        let mut said = Vec::new();
        for (change, lost) in changes.into_iter().zip(lost).rev() {
            match lost {
                true => said.extend(change.undo(files)?),
                false => change.drop_stored(),
            }
        }
        said.reverse();
        Ok(said)
    }
}

impl NameChange {
    /// Drops the stored file once the change is durable.
    fn drop_stored(&self) {
        let kept = match &self.kind {
            NameChangeKind::Created(_) => None,
            NameChangeKind::Removed(_, kept) => Some(kept),
            NameChangeKind::Renamed { replaced, .. } => replaced.as_ref(),
        };
        if let Some(RemovedFile { path, .. }) = kept {
            // Files that remain are deleted with the disk.
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
        }
    }

    /// Undoes the change; `None` if its folder no longer exists.
    fn undo(self, files: &mut FileTable) -> io::Result<Option<String>> {
        let root = files.root().to_owned();
        let there = |files: &FileTable, (folder, name): &NameInFolder| {
            let path = name_in_folder(files, *folder, name).ok();
            path.filter(|path| root.join(path).symlink_metadata().is_ok())
        };
        match self.kind {
            NameChangeKind::Created(at) => {
                let Some(path) = there(files, &at) else {
                    return Ok(None);
                };
                let full = root.join(&path);
                match full.is_dir() {
                    true => fs::remove_dir_all(full)?,
                    false => fs::remove_file(full)?,
                }
                files.remove(&path);
                Ok(Some(format!("{path} was not made")))
            }
            NameChangeKind::Removed((folder, name), kept) => {
                let Ok(path) = name_in_folder(files, folder, &name) else {
                    return Ok(None);
                };
                kept.restore_as(files, &path)?;
                Ok(Some(format!("{path} was not removed")))
            }
            NameChangeKind::Renamed { from, to, replaced } => {
                let (Some(new), Ok(old)) =
                    (there(files, &to), name_in_folder(files, from.0, &from.1))
                else {
                    return Ok(None);
                };
                fs::rename(root.join(&new), root.join(&old))?;
                files.rename_tree(&new, &old);
                if let Some(kept) = replaced {
                    kept.restore_as(files, &new)?;
                }
                Ok(Some(format!("{new} is {old} again")))
            }
        }
    }
}

impl RemovedFile {
    fn restore_as(self, files: &mut FileTable, name: &str) -> io::Result<()> {
        fs::rename(self.path, files.root().join(name))?;
        if let Some(number) = self.number {
            files.set_name(number, name);
        }
        Ok(())
    }
}

fn name_in_folder(files: &FileTable, folder: u64, name: &str) -> io::Result<String> {
    files.child_name(folder, name.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ROOT_INODE;

    /// A folder, and the changes of its names.
    struct Stage {
        _folder: tempfile::TempDir,
        files: FileTable,
        names: NameJournal,
    }

    impl Stage {
        /// Creates a folder with durable files.
        fn new(durable: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("root");
            fs::create_dir(&root).unwrap();
            let mut stage = Self {
                files: FileTable::new(&root),
                names: NameJournal::new(&root).unwrap(),
                _folder: folder,
            };
            durable.iter().for_each(|name| stage.make(name));
            stage.names.flush(ROOT_INODE);
            stage
        }

        fn make(&mut self, name: &str) {
            fs::write(self.files.root().join(name), name).unwrap();
            self.files.inode_of(name);
            self.names.record_created(&self.files, ROOT_INODE, name);
        }

        fn rename(&mut self, from: &str, to: &str) {
            self.names.rename(&mut self.files, (ROOT_INODE, from), (ROOT_INODE, to)).unwrap();
        }

        /// Cuts the power and lists the remaining files, with the content of each file that another
        /// name wrote.
        fn cut(mut self, seed: u64) -> String {
            let mut dice = Dice::new(seed);
            self.names.cut_power(&mut self.files, &mut dice, |path| path != "other").unwrap();
            let left = fs::read_dir(self.files.root()).unwrap();
            let mut left: Vec<String> = left
                .map(|entry| {
                    let path = entry.unwrap().path();
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    let held = fs::read_to_string(&path).unwrap_or_default();
                    match held == name || held.is_empty() {
                        true => name,
                        false => format!("{name}={held}"),
                    }
                })
                .collect();
            left.sort();
            left.join(" ")
        }
    }

    fn all(stage: impl Fn() -> Stage) -> Vec<String> {
        let mut all: Vec<_> = (1..100).map(|seed| stage().cut(seed)).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn unflushed_rename_leaves_the_old_file_and_maybe_the_new_name() {
        let replaced = || {
            let mut stage = Stage::new(&["file"]);
            stage.make("new");
            stage.rename("new", "file");
            stage
        };
        assert_eq!(all(replaced), ["file", "file new"]);
        let flushed = || {
            let mut stage = replaced();
            stage.names.flush(ROOT_INODE);
            stage
        };
        assert_eq!(all(flushed), ["file=new"]);
    }

    #[test]
    fn unflushed_removal_is_undone_and_other_files_stay() {
        let removed = || {
            let mut stage = Stage::new(&["file"]);
            stage.names.remove(&mut stage.files, ROOT_INODE, "file").unwrap();
            stage.make("other");
            stage
        };
        assert_eq!(all(removed), ["file other"]);
    }

    #[test]
    fn unflushed_folder_is_lost_with_its_flushed_contents() {
        let made = || {
            let mut stage = Stage::new(&["file"]);
            fs::create_dir(stage.files.root().join("folder")).unwrap();
            let folder = stage.files.inode_of("folder");
            stage.names.record_created(&stage.files, ROOT_INODE, "folder");
            fs::write(stage.files.root().join("folder/within"), "x").unwrap();
            stage.names.record_created(&stage.files, folder, "within");
            stage.names.flush(folder);
            stage
        };
        assert_eq!(all(made), ["file"]);
        let renamed = || {
            let mut stage = made();
            stage.names.flush(ROOT_INODE);
            stage.rename("folder", "moved");
            stage
        };
        assert_eq!(all(renamed), ["file folder"]);
    }
}
