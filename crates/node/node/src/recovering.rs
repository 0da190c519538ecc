//! Recovery of a cluster that permanently lost its majority. It continues with the data of one
//! node, as a different cluster ([era-10]).
//!
//! All work is done on a copy. Votes above the known decided slot count, up to the first gap, and
//! the service applies them. Its state then becomes a new folder, like that of a backup
//! (`restoring`). Only then are the old contents replaced, in steps that the next attempt completes
//! if they are interrupted. The old node is unchanged until the first of these steps.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use quorate_log::disk::{SmallFiles as _, create_private_folder};

use crate::{
    folder::{LOCK_FILE, LockedFolder, RECOVERY_MARK_FILE, io_failure, sync_folder},
    home::Home as _,
    identity::{self, IdentityError},
};

/// Name of the work folder inside the node's folder.
const WORK_FOLDER: &str = "recover";
/// Mark of the first half of the switch, in which the old contents are moved aside.
const MOVING_OUT_MARK: &[u8] = b"out\n";
/// Mark of the second half of the switch, in which the new contents are moved in.
const MOVING_IN_MARK: &[u8] = b"in\n";

/// A locked folder that is being recovered.
#[derive(Debug)]
pub struct RecoveringFolder {
    home: LockedFolder,
}

/// State of the folder when an attempt begins.
#[derive(Debug)]
pub enum FolderState {
    /// The node is unchanged and its recovery can begin.
    Unchanged(RecoveringFolder),
    /// An earlier attempt was interrupted during its switch. The switch is now complete, and the
    /// folder belongs to a node of the new cluster.
    SwitchCompleted,
}

/// Returns a function that adds the operation `what` and its `path` to an I/O error.
fn add_error_context(what: &'static str, path: &Path) -> impl Fn(io::Error) -> IdentityError {
    move |error| io_failure(what, path, &error)
}

impl RecoveringFolder {
    /// Locks the folder. Completes the switch of an earlier attempt, or removes the leftovers of
    /// one that did not reach its switch.
    pub fn begin_attempt(folder: &Path) -> Result<FolderState, IdentityError> {
        let cut_off = folder.join(RECOVERY_MARK_FILE).exists();
        if !cut_off && !LockedFolder::holds_identity(folder)? {
            let folder = folder.to_owned();
            return Err(IdentityError::Missing { folder });
        }
        let home = LockedFolder::open_locked(folder)?;
        let mut recovering = Self { home };
        match recovering.home.read(RECOVERY_MARK_FILE)? {
            Some(_) => {
                recovering.finish_switch()?;
                Ok(FolderState::SwitchCompleted)
            }
            None => {
                recovering.remove_work()?;
                Ok(FolderState::Unchanged(recovering))
            }
        }
    }

    fn folder(&self) -> &Path {
        self.home.path()
    }

    fn work_folder(&self) -> PathBuf {
        self.folder().join(WORK_FOLDER)
    }

    pub fn copy_path(&self) -> PathBuf {
        self.work_folder().join("copy")
    }

    pub fn new_folder(&self) -> PathBuf {
        self.work_folder().join("new")
    }

    /// Returns the path of the folder to which the old node's files are moved.
    fn old_files_folder(&self) -> PathBuf {
        self.work_folder().join("old")
    }

    /// Removes the work folder. The node remains unchanged.
    pub fn remove_work(&self) -> Result<(), IdentityError> {
        let work = self.work_folder();
        match fs::remove_dir_all(&work) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_failure("remove", &work, &error))
            }
            _ => Ok(()),
        }
    }

    /// Copies all files of the node to the work folder, and returns the path of the copy.
    pub fn copy_node_files(&self) -> Result<PathBuf, IdentityError> {
        let (work, copy) = (self.work_folder(), self.copy_path());
        create_private_folder(&work).map_err(add_error_context("create", &work))?;
        create_private_folder(&copy).map_err(add_error_context("create", &copy))?;
        for name in self.entry_names()? {
            copy_tree(&self.folder().join(&name), &copy.join(&name))?;
        }
        Ok(copy)
    }

    fn entry_names(&self) -> Result<Vec<std::ffi::OsString>, IdentityError> {
        let folder = self.folder();
        let entries = fs::read_dir(folder).map_err(add_error_context("read", folder))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(add_error_context("read", folder))?.file_name();
            let other = [LOCK_FILE, "lost+found", WORK_FOLDER, RECOVERY_MARK_FILE];
            let old = name.to_string_lossy().starts_with(OLD_FOLDER_PREFIX);
            let temporary = name == *quorate_log::disk::temporary_name(RECOVERY_MARK_FILE);
            if !old && !temporary && !other.iter().any(|other| name == *other) {
                names.push(name);
            }
        }
        // The identity is moved first: an interrupted folder then has no owner.
        names.sort_by_key(|name| name != identity::IDENTITY_FILE);
        Ok(names)
    }

    /// Permanently replaces the old node with the completed new one. Returns the folder that
    /// contains the old node's files.
    pub fn replace_node(mut self) -> Result<PathBuf, IdentityError> {
        let copy = self.copy_path();
        fs::remove_dir_all(&copy).map_err(add_error_context("remove", &copy))?;
        let old = self.old_files_folder();
        create_private_folder(&old).map_err(add_error_context("create", &old))?;
        sync_folder(&self.work_folder())?;
        sync_folder(self.folder())?;
        self.home.replace(RECOVERY_MARK_FILE, MOVING_OUT_MARK)?;
        self.finish_switch()
    }

    /// Performs the remaining halves of the switch. Returns the folder with the old node's files.
    fn finish_switch(&mut self) -> Result<PathBuf, IdentityError> {
        let folder = self.folder().to_owned();
        let (new, old) = (self.new_folder(), self.old_files_folder());
        if self.home.read(RECOVERY_MARK_FILE)?.as_deref() == Some(MOVING_OUT_MARK) {
            for name in self.entry_names()? {
                rename(&folder.join(&name), &old.join(&name))?;
                if name == *identity::IDENTITY_FILE {
                    sync_folder(&old)?;
                    sync_folder(&folder)?;
                }
            }
            sync_folder(&old)?;
            sync_folder(&folder)?;
            self.home.replace(RECOVERY_MARK_FILE, MOVING_IN_MARK)?;
        }
        if new.exists() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&new).map_err(add_error_context("read", &new))? {
                names.push(entry.map_err(add_error_context("read", &new))?.file_name());
            }
            names.retain(|name| name != LOCK_FILE);
            // The identity is moved last: with it the folder belongs to a node.
            names.sort_by_key(|name| name == identity::IDENTITY_FILE);
            for name in names {
                if name == *identity::IDENTITY_FILE {
                    sync_folder(&folder)?;
                }
                rename(&new.join(&name), &folder.join(&name))?;
            }
            sync_folder(&new)?;
            sync_folder(&folder)?;
            fs::remove_dir_all(&new).map_err(add_error_context("remove", &new))?;
        }
        let kept = match old.exists() {
            true => {
                let kept = unused_old_folder(&folder);
                rename(&old, &kept)?;
                kept
            }
            false => folder.clone(),
        };
        self.remove_work()?;
        let mark = folder.join(RECOVERY_MARK_FILE);
        fs::remove_file(&mark).map_err(add_error_context("remove", &mark))?;
        sync_folder(&folder)?;
        Ok(kept)
    }
}

/// Name prefix of the folders that contain the files of recovered nodes.
const OLD_FOLDER_PREFIX: &str = "before-recover";

fn unused_old_folder(folder: &Path) -> PathBuf {
    let mut numbers = 1_u32..;
    let name = |number| folder.join(format!("{OLD_FOLDER_PREFIX}-{number}"));
    let free = numbers.find(|number| !name(*number).exists());
    name(free.unwrap_or_default())
}

fn rename(from: &Path, to: &Path) -> Result<(), IdentityError> {
    fs::rename(from, to).map_err(add_error_context("rename", from))
}

/// Copies a file or a folder with its contents. Follows links and copies their targets.
fn copy_tree(from: &Path, to: &Path) -> Result<(), IdentityError> {
    let kind = fs::metadata(from).map_err(add_error_context("look at", from))?;
    if !kind.is_dir() {
        fs::copy(from, to).map_err(add_error_context("copy", from))?;
        return Ok(());
    }
    create_private_folder(to).map_err(add_error_context("create", to))?;
    for entry in fs::read_dir(from).map_err(add_error_context("read", from))? {
        let name = entry.map_err(add_error_context("read", from))?.file_name();
        copy_tree(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quorate_core::{node_id::NodeId, record::Class};

    use super::*;
    use crate::identity::{Founding, Identity};

    fn founding(cluster: u128) -> Founding {
        Founding {
            terms: Default::default(),
            cluster,
            node: NodeId(1),
            class: Class::Durable,
            store: "lsm".to_owned(),
            members: BTreeMap::from([(NodeId(1), "here:1".to_owned())]),
            join_nonce: 1,
        }
    }

    /// Creates a node's folder of this cluster, with files.
    fn node(folder: &Path, cluster: u128) {
        let home = LockedFolder::create(folder).unwrap();
        Identity::create(home, founding(cluster)).unwrap();
        for name in ["log", "kv"] {
            fs::create_dir(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("data"), cluster.to_string()).unwrap();
        }
        if cluster == 1 {
            fs::write(folder.join("peers"), b"of the old one alone").unwrap();
        }
    }

    fn anew(folder: &Path) -> RecoveringFolder {
        match RecoveringFolder::begin_attempt(folder).unwrap() {
            FolderState::Unchanged(recovering) => recovering,
            FolderState::SwitchCompleted => panic!("nothing was to be ended"),
        }
    }

    fn is_of(folder: &Path, cluster: u128) {
        assert_eq!(LockedFolder::read_founding(folder).unwrap(), founding(cluster));
        for name in ["log", "kv"] {
            let data = fs::read_to_string(folder.join(name).join("data")).unwrap();
            assert_eq!(data, cluster.to_string(), "{name}");
        }
        let peers = folder.join("peers").exists();
        assert_eq!(peers, cluster == 1, "files of the old node are gone");
    }

    fn is_new(folder: &Path) {
        is_of(folder, 2);
        is_of(&folder.join("before-recover-1"), 1);
        assert!(!folder.join(WORK_FOLDER).exists() && !folder.join(RECOVERY_MARK_FILE).exists());
        LockedFolder::open(folder).unwrap();
    }

    #[test]
    fn new_node_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        node(folder, 1);
        let recovering = anew(folder);
        is_of(&recovering.copy_node_files().unwrap(), 1);
        node(&recovering.new_folder(), 2);
        let old = recovering.replace_node().unwrap();
        assert_eq!(old, folder.join("before-recover-1"));
        is_new(folder);
        // A second attempt.
        let recovering = anew(folder);
        recovering.copy_node_files().unwrap();
        node(&recovering.new_folder(), 3);
        assert_eq!(recovering.replace_node().unwrap(), folder.join("before-recover-2"));
        is_of(folder, 3);
        is_of(&folder.join("before-recover-1"), 1);
    }

    /// An attempt interrupted before the switch leaves the node unchanged.
    #[test]
    fn attempt_interrupted_before_the_switch_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        node(folder, 1);
        let recovering = anew(folder);
        recovering.copy_node_files().unwrap();
        node(&recovering.new_folder(), 2);
        assert!(RecoveringFolder::begin_attempt(folder).is_err(), "it is locked");
        drop(recovering);
        is_of(folder, 1);
        LockedFolder::open(folder).unwrap();
        drop(anew(folder));
        assert!(!folder.join(WORK_FOLDER).exists());
        is_of(folder, 1);
    }

    /// After an interrupted switch, no node can start until the next attempt completes it.
    #[test]
    fn interrupted_switch_is_completed() {
        for phase in [MOVING_OUT_MARK, MOVING_IN_MARK] {
            for moved in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let folder = folder.path();
                node(folder, 1);
                let mut recovering = anew(folder);
                node_in(&recovering);
                recovering.home.replace(RECOVERY_MARK_FILE, phase).unwrap();
                let mut out = recovering.entry_names().unwrap();
                assert_eq!(out[0], *identity::IDENTITY_FILE, "the first to go");
                let mut new: Vec<_> = fs::read_dir(recovering.new_folder())
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name())
                    .filter(|name| name != LOCK_FILE)
                    .collect();
                new.sort_by_key(|name| name == identity::IDENTITY_FILE);
                let steps = if phase == MOVING_OUT_MARK { out.len() } else { new.len() };
                if moved > steps {
                    break;
                }
                out.truncate(if phase == MOVING_OUT_MARK { moved } else { out.len() });
                new.truncate(if phase == MOVING_OUT_MARK { 0 } else { moved });
                for name in out {
                    rename(&folder.join(&name), &recovering.old_files_folder().join(&name))
                        .unwrap();
                }
                for name in new {
                    let from = recovering.new_folder().join(&name);
                    rename(&from, &folder.join(&name)).unwrap();
                }
                drop(recovering);
                let refused = LockedFolder::open(folder).unwrap_err().to_string();
                assert!(refused.contains("quorate recover"), "{refused}");
                assert!(LockedFolder::create(folder).is_err());
                assert!(matches!(
                    RecoveringFolder::begin_attempt(folder),
                    Ok(FolderState::SwitchCompleted)
                ));
                is_new(folder);
            }
        }
    }

    /// Creates the state that [`RecoveringFolder::replace_node`] expects.
    fn node_in(recovering: &RecoveringFolder) {
        fs::create_dir(recovering.work_folder()).unwrap();
        fs::create_dir(recovering.old_files_folder()).unwrap();
        node(&recovering.new_folder(), 2);
    }
}
