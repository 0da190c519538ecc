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
pub(crate) const ROOT: u64 = 1;

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
}

/// All known files and their open handles.
pub(crate) struct Files {
    root: PathBuf,
    /// Names below the root by number, and the reverse.
    names: BTreeMap<u64, String>,
    numbers: BTreeMap<String, u64>,
    next: u64,
    open: BTreeMap<u64, Open>,
}

impl Files {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            names: [(ROOT, String::new())].into(),
            numbers: [(String::new(), ROOT)].into(),
            next: ROOT + 1,
            open: BTreeMap::new(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the file's name below the root.
    pub(crate) fn name(&self, number: u64) -> Option<String> {
        self.names.get(&number).cloned()
    }

    pub(crate) fn path(&self, number: u64) -> io::Result<PathBuf> {
        let name = self.names.get(&number);
        let name = name.ok_or(Errno::NOENT)?;
        Ok(self.root.join(name))
    }

    /// Returns the name below the root of an entry of a folder.
    pub(crate) fn child(&self, folder: u64, name: &std::ffi::OsStr) -> io::Result<String> {
        let within = self.name(folder);
        let within = within.ok_or(Errno::NOENT)?;
        let name = name.to_string_lossy();
        Ok(match within.is_empty() {
            true => name.into_owned(),
            false => format!("{within}/{name}"),
        })
    }

    /// Returns the number of the file `name`, and assigns one if it has none.
    pub(crate) fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.restore(number, name);
        number
    }

    /// Removes the file's name, and returns its number.
    pub(crate) fn remove(&mut self, name: &str) -> Option<u64> {
        let number = self.numbers.remove(name)?;
        self.names.remove(&number);
        Some(number)
    }

    /// Sets the file's name.
    pub(crate) fn restore(&mut self, number: u64, name: &str) {
        self.numbers.insert(name.to_owned(), number);
        self.names.insert(number, name.to_owned());
    }

    /// Renames a file, or a folder with all its content, to an unused name.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> = self.numbers.keys().cloned().collect();
        for old in moved {
            let new = match old.strip_prefix(&below) {
                Some(rest) => format!("{to}/{rest}"),
                None if old == from => to.to_owned(),
                None => continue,
            };
            if let Some(number) = self.numbers.remove(&old) {
                self.restore(number, &new);
            }
        }
    }

    /// Records an opened file and returns its handle.
    pub(crate) fn opened(&mut self, number: u64, file: File) -> u64 {
        let handle = self.next;
        self.next += 1;
        let file = Arc::new(file);
        self.open.insert(handle, Open { number, file });
        handle
    }

    /// Returns the open file of a handle.
    pub(crate) fn handle(&self, handle: u64) -> io::Result<Open> {
        let open = self.open.get(&handle).cloned();
        Ok(open.ok_or(Errno::BADF)?)
    }

    /// Records that the file was closed.
    pub(crate) fn closed(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    /// Opens a file by its number, if it still has a name. Also returns the name.
    pub(crate) fn open_number(&self, number: u64) -> Option<(File, String)> {
        let name = self.name(number)?;
        let path = self.root.join(&name);
        let file = File::options().read(true).write(true).open(path).ok()?;
        Some((file, name))
    }

    /// Returns the attributes of a file by its name, or through an open handle.
    pub(crate) fn about(&self, number: u64) -> io::Result<FileAttr> {
        let found = match self.path(number) {
            Ok(path) => path.symlink_metadata()?,
            Err(error) => {
                let open = self.open.values().find(|open| open.number == number);
                open.ok_or(error)?.file.metadata()?
            }
        };
        Ok(attributes(number, &found))
    }
}

fn attributes(number: u64, found: &Metadata) -> FileAttr {
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
