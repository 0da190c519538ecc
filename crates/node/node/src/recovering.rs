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
    folder::{LOCK, LockedFolder, RECOVERING, failed, sync_folder},
    home::Home as _,
    identity::{self, IdentityError},
};

/// Name of the work folder inside the node's folder.
const WORK: &str = "recover";
/// Mark of the first half of the switch, in which the old contents are moved aside.
const OUT: &[u8] = b"out\n";
/// Mark of the second half of the switch, in which the new contents are moved in.
const IN: &[u8] = b"in\n";

/// A locked folder that is being recovered.
#[derive(Debug)]
pub struct Recovering {
    home: LockedFolder,
}

/// State of the folder when an attempt begins.
#[derive(Debug)]
pub enum FolderState {
    /// The node is unchanged and its recovery can begin.
    Anew(Recovering),
    /// An earlier attempt was interrupted during its switch. The switch is now complete, and the
    /// folder belongs to a node of the new cluster.
    Ended,
}

/// Returns a function that adds the operation `what` and its `path` to an I/O error.
fn doing(what: &'static str, path: &Path) -> impl Fn(io::Error) -> IdentityError {
    move |error| failed(what, path, &error)
}

impl Recovering {
    /// Locks the folder. Completes the switch of an earlier attempt, or removes the leftovers of
    /// one that did not reach its switch.
    pub fn begin_attempt(folder: &Path) -> Result<FolderState, IdentityError> {
        let cut_off = folder.join(RECOVERING).exists();
        if !cut_off && !LockedFolder::holds_identity(folder)? {
            let folder = folder.to_owned();
            return Err(IdentityError::Missing { folder });
        }
        let home = LockedFolder::locked(folder)?;
        let mut recovering = Self { home };
        match recovering.home.read(RECOVERING)? {
            Some(_) => {
                recovering.switch()?;
                Ok(FolderState::Ended)
            }
            None => {
                recovering.remove_work()?;
                Ok(FolderState::Anew(recovering))
            }
        }
    }

    fn folder(&self) -> &Path {
        self.home.path()
    }

    fn work_folder(&self) -> PathBuf {
        self.folder().join(WORK)
    }

    pub fn copy(&self) -> PathBuf {
        self.work_folder().join("copy")
    }

    pub fn new_folder(&self) -> PathBuf {
        self.work_folder().join("new")
    }

    /// Returns the path of the folder to which the old node's files are moved.
    fn old(&self) -> PathBuf {
        self.work_folder().join("old")
    }

    /// Removes the work folder. The node remains unchanged.
    pub fn remove_work(&self) -> Result<(), IdentityError> {
        let work = self.work_folder();
        match fs::remove_dir_all(&work) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &work, &error))
            }
            _ => Ok(()),
        }
    }

    /// Copies all files of the node to the work folder, and returns the path of the copy.
    pub fn copy_all(&self) -> Result<PathBuf, IdentityError> {
        let (work, copy) = (self.work_folder(), self.copy());
        create_private_folder(&work).map_err(doing("create", &work))?;
        create_private_folder(&copy).map_err(doing("create", &copy))?;
        for name in self.names()? {
            copy_tree(&self.folder().join(&name), &copy.join(&name))?;
        }
        Ok(copy)
    }

    fn names(&self) -> Result<Vec<std::ffi::OsString>, IdentityError> {
        let folder = self.folder();
        let entries = fs::read_dir(folder).map_err(doing("read", folder))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(doing("read", folder))?.file_name();
            let other = [LOCK, "lost+found", WORK, RECOVERING];
            let old = name.to_string_lossy().starts_with(OLD);
            let temporary = name == *quorate_log::disk::temporary(RECOVERING);
            if !old && !temporary && !other.iter().any(|other| name == *other) {
                names.push(name);
            }
        }
        // The identity is moved first: an interrupted folder then has no owner.
        names.sort_by_key(|name| name != identity::FILE);
        Ok(names)
    }

    /// Permanently replaces the old node with the completed new one. Returns the folder that
    /// contains the old node's files.
    pub fn finish(mut self) -> Result<PathBuf, IdentityError> {
        let copy = self.copy();
        fs::remove_dir_all(&copy).map_err(doing("remove", &copy))?;
        let old = self.old();
        create_private_folder(&old).map_err(doing("create", &old))?;
        sync_folder(&self.work_folder())?;
        sync_folder(self.folder())?;
        self.home.replace(RECOVERING, OUT)?;
        self.switch()
    }

    /// Performs the remaining halves of the switch. Returns the folder with the old node's files.
    fn switch(&mut self) -> Result<PathBuf, IdentityError> {
        let folder = self.folder().to_owned();
        let (new, old) = (self.new_folder(), self.old());
        if self.home.read(RECOVERING)?.as_deref() == Some(OUT) {
            for name in self.names()? {
                rename(&folder.join(&name), &old.join(&name))?;
                if name == *identity::FILE {
                    sync_folder(&old)?;
                    sync_folder(&folder)?;
                }
            }
            sync_folder(&old)?;
            sync_folder(&folder)?;
            self.home.replace(RECOVERING, IN)?;
        }
        if new.exists() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&new).map_err(doing("read", &new))? {
                names.push(entry.map_err(doing("read", &new))?.file_name());
            }
            names.retain(|name| name != LOCK);
            // The identity is moved last: with it the folder belongs to a node.
            names.sort_by_key(|name| name == identity::FILE);
            for name in names {
                if name == *identity::FILE {
                    sync_folder(&folder)?;
                }
                rename(&new.join(&name), &folder.join(&name))?;
            }
            sync_folder(&new)?;
            sync_folder(&folder)?;
            fs::remove_dir_all(&new).map_err(doing("remove", &new))?;
        }
        let kept = match old.exists() {
            true => {
                let kept = free_name(&folder);
                rename(&old, &kept)?;
                kept
            }
            false => folder.clone(),
        };
        self.remove_work()?;
        let mark = folder.join(RECOVERING);
        fs::remove_file(&mark).map_err(doing("remove", &mark))?;
        sync_folder(&folder)?;
        Ok(kept)
    }
}

/// Name prefix of the folders that contain the files of recovered nodes.
const OLD: &str = "before-recover";

fn free_name(folder: &Path) -> PathBuf {
    let mut numbers = 1_u32..;
    let name = |number| folder.join(format!("{OLD}-{number}"));
    let free = numbers.find(|number| !name(*number).exists());
    name(free.unwrap_or_default())
}

fn rename(from: &Path, to: &Path) -> Result<(), IdentityError> {
    fs::rename(from, to).map_err(doing("rename", from))
}

/// Copies a file or a folder with its contents. Follows links and copies their targets.
fn copy_tree(from: &Path, to: &Path) -> Result<(), IdentityError> {
    let kind = fs::metadata(from).map_err(doing("look at", from))?;
    if !kind.is_dir() {
        fs::copy(from, to).map_err(doing("copy", from))?;
        return Ok(());
    }
    create_private_folder(to).map_err(doing("create", to))?;
    for entry in fs::read_dir(from).map_err(doing("read", from))? {
        let name = entry.map_err(doing("read", from))?.file_name();
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

    fn anew(folder: &Path) -> Recovering {
        match Recovering::begin_attempt(folder).unwrap() {
            FolderState::Anew(recovering) => recovering,
            FolderState::Ended => panic!("nothing was to be ended"),
        }
    }

    fn is_of(folder: &Path, cluster: u128) {
        assert_eq!(LockedFolder::peek(folder).unwrap(), founding(cluster));
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
        assert!(!folder.join(WORK).exists() && !folder.join(RECOVERING).exists());
        LockedFolder::open(folder).unwrap();
    }

    #[test]
    fn new_node_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        node(folder, 1);
        let recovering = anew(folder);
        is_of(&recovering.copy_all().unwrap(), 1);
        node(&recovering.new_folder(), 2);
        let old = recovering.finish().unwrap();
        assert_eq!(old, folder.join("before-recover-1"));
        is_new(folder);
        // A second attempt.
        let recovering = anew(folder);
        recovering.copy_all().unwrap();
        node(&recovering.new_folder(), 3);
        assert_eq!(recovering.finish().unwrap(), folder.join("before-recover-2"));
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
        recovering.copy_all().unwrap();
        node(&recovering.new_folder(), 2);
        assert!(Recovering::begin_attempt(folder).is_err(), "it is locked");
        drop(recovering);
        is_of(folder, 1);
        LockedFolder::open(folder).unwrap();
        drop(anew(folder));
        assert!(!folder.join(WORK).exists());
        is_of(folder, 1);
    }

    /// After an interrupted switch, no node can start until the next attempt completes it.
    #[test]
    fn interrupted_switch_is_completed() {
        for phase in [OUT, IN] {
            for moved in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let folder = folder.path();
                node(folder, 1);
                let mut recovering = anew(folder);
                node_in(&recovering);
                recovering.home.replace(RECOVERING, phase).unwrap();
                let mut out = recovering.names().unwrap();
                assert_eq!(out[0], *identity::FILE, "the first to go");
                let mut new: Vec<_> = fs::read_dir(recovering.new_folder())
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name())
                    .filter(|name| name != LOCK)
                    .collect();
                new.sort_by_key(|name| name == identity::FILE);
                let steps = if phase == OUT { out.len() } else { new.len() };
                if moved > steps {
                    break;
                }
                out.truncate(if phase == OUT { moved } else { out.len() });
                new.truncate(if phase == OUT { 0 } else { moved });
                for name in out {
                    rename(&folder.join(&name), &recovering.old().join(&name)).unwrap();
                }
                for name in new {
                    let from = recovering.new_folder().join(&name);
                    rename(&from, &folder.join(&name)).unwrap();
                }
                drop(recovering);
                let refused = LockedFolder::open(folder).unwrap_err().to_string();
                assert!(refused.contains("quorate recover"), "{refused}");
                assert!(LockedFolder::create(folder).is_err());
                assert!(matches!(Recovering::begin_attempt(folder), Ok(FolderState::Ended)));
                is_new(folder);
            }
        }
    }

    /// Creates the state that [`Recovering::finish`] expects.
    fn node_in(recovering: &Recovering) {
        fs::create_dir(recovering.work_folder()).unwrap();
        fs::create_dir(recovering.old()).unwrap();
        node(&recovering.new_folder(), 2);
    }
}
