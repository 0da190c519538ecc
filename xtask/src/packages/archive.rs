//! Writes tar and gzip archives that contain no details of the machine or the time of the build.

use std::io::{self, Write as _};

use flate2::{Compression, GzBuilder};

use crate::tree::{EntryKind, FileTree, TreeEntry};

/// Returns the files as a tar archive, all with the same time. Names begin with `prefix`.
pub(crate) fn make_tar(tree: &FileTree, prefix: &str, time: u32) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in tree.entries() {
        let mut header = tar::Header::new_gnu();
        let TreeEntry { kind: what, mode, owner } = entry;
        header.set_mode(*mode);
        header.set_mtime(time.into());
        header.set_uid((*owner).into());
        header.set_gid((*owner).into());
        let name = format!("{prefix}{path}");
        match what {
            EntryKind::Folder => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                archive.append_data(&mut header, format!("{name}/"), io::empty())?;
            }
            EntryKind::File(bytes) => {
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, name, bytes.as_slice())?;
            }
        }
    }
    archive.into_inner()
}

/// Compresses bytes with gzip.
pub(crate) fn compress_gzip(bytes: &[u8], level: Compression) -> io::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), level);
    writer.write_all(bytes)?;
    writer.finish()
}
