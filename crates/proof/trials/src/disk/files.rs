//! Files and folders by inode number, as the kernel refers to them: their names and open handles.

use std::{
    collections::BTreeMap,
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::io::Errno;

/// Inode number of the mounted folder.
pub(crate) const ROOT_INODE: u64 = 1;

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: u64,
    pub(crate) file: Arc<File>,
}

/// All known files and their open handles.
pub(crate) struct FileTable {
    root: PathBuf,
    /// Names below the root by number, and the reverse.
    names_by_inode: BTreeMap<u64, String>,
    inodes_by_name: BTreeMap<String, u64>,
    next: u64,
    open: BTreeMap<u64, OpenFile>,
}

impl FileTable {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            names_by_inode: [(ROOT_INODE, String::new())].into(),
            inodes_by_name: [(String::new(), ROOT_INODE)].into(),
            next: ROOT_INODE + 1,
            open: BTreeMap::new(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the file's name below the root.
    pub(crate) fn name(&self, number: u64) -> Option<String> {
        self.names_by_inode.get(&number).cloned()
    }

    pub(crate) fn path(&self, number: u64) -> io::Result<PathBuf> {
        let name = self.names_by_inode.get(&number);
        let name = name.ok_or(Errno::NOENT)?;
        Ok(self.root.join(name))
    }

    /// Returns the name below the root of an entry of a folder.
    pub(crate) fn child_name(&self, folder: u64, name: &std::ffi::OsStr) -> io::Result<String> {
        let within = self.name(folder);
        let within = within.ok_or(Errno::NOENT)?;
        let name = name.to_string_lossy();
        Ok(match within.is_empty() {
            true => name.into_owned(),
            false => format!("{within}/{name}"),
        })
    }

    /// Returns the number of the file `name`, and assigns one if it has none.
    pub(crate) fn inode_of(&mut self, name: &str) -> u64 {
        if let Some(number) = self.inodes_by_name.get(name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.set_name(number, name);
        number
    }

    /// Removes the file's name, and returns its number.
    pub(crate) fn remove(&mut self, name: &str) -> Option<u64> {
        let number = self.inodes_by_name.remove(name)?;
        self.names_by_inode.remove(&number);
        Some(number)
    }

    /// Sets the file's name.
    pub(crate) fn set_name(&mut self, number: u64, name: &str) {
        self.inodes_by_name.insert(name.to_owned(), number);
        self.names_by_inode.insert(number, name.to_owned());
    }

    /// Renames a file, or a folder with all its content, to an unused name.
    pub(crate) fn rename_tree(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> = self.inodes_by_name.keys().cloned().collect();
        for old in moved {
            let new = match old.strip_prefix(&below) {
                Some(rest) => format!("{to}/{rest}"),
                None if old == from => to.to_owned(),
                None => continue,
            };
            if let Some(number) = self.inodes_by_name.remove(&old) {
                self.set_name(number, &new);
            }
        }
    }

    /// Records an opened file and returns its handle.
    pub(crate) fn record_open(&mut self, number: u64, file: File) -> u64 {
        let handle = self.next;
        self.next += 1;
        let file = Arc::new(file);
        self.open.insert(handle, OpenFile { inode: number, file });
        handle
    }

    /// Returns the open file of a handle.
    pub(crate) fn open_file(&self, handle: u64) -> io::Result<OpenFile> {
        let open = self.open.get(&handle).cloned();
        Ok(open.ok_or(Errno::BADF)?)
    }

    /// Records that the file was closed.
    pub(crate) fn record_close(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    /// Opens a file by its number, if it still has a name. Also returns the name.
    pub(crate) fn open_by_inode(&self, number: u64) -> Option<(File, String)> {
        let name = self.name(number)?;
        let path = self.root.join(&name);
        let file = File::options().read(true).write(true).open(path).ok()?;
        Some((file, name))
    }

    /// Returns the attributes of a file by its name, or through an open handle.
    pub(crate) fn attributes_of(&self, number: u64) -> io::Result<FileAttr> {
        let found = match self.path(number) {
            Ok(path) => path.symlink_metadata()?,
            Err(error) => {
                let open = self.open.values().find(|open| open.inode == number);
                open.ok_or(error)?.file.metadata()?
            }
        };
        Ok(to_attributes(number, &found))
    }
}

fn to_attributes(number: u64, found: &Metadata) -> FileAttr {
    let kind = match found.is_dir() {
        true => FileType::Directory,
        false => FileType::RegularFile,
    };
    let time = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        UNIX_EPOCH + Duration::from_secs(seconds)
    };
    FileAttr {
        ino: INodeNo(number),
        size: found.len(),
        blocks: found.blocks(),
        atime: time(found.atime()),
        mtime: found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        ctime: time(found.ctime()),
        crtime: UNIX_EPOCH,
        kind,
        perm: (found.mode() & 0o7777) as u16,
        nlink: u32::try_from(found.nlink()).unwrap_or(1),
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
