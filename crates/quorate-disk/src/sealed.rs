//! Small text files that are replaced as a whole, durably, and say whether they are what was written.
//!
//! Lines, the last of them `checksum` with the CRC-32C of all before. A change is written to a
//! temporary file, synced, renamed over the old one, and the folder is synced: a crash leaves the old
//! contents or the new ones.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

/// Far more than any honest file of this kind has.
const BYTES_MAX: u64 = 1 << 20;

/// An operation on a file that failed: what was tried, on which, and how it ended.
#[derive(Debug)]
pub struct Failed {
    /// What was tried.
    pub action: &'static str,
    /// On which file.
    pub file: std::path::PathBuf,
    /// How it ended.
    pub error: io::Error,
}

/// Replaces `name` in `folder`, by way of `temporary`.
pub fn replace(folder: &Path, name: &str, temporary: &str, lines: &str) -> Result<(), Failed> {
    let (file, temporary) = (folder.join(name), folder.join(temporary));
    let fail = |action, file: &Path| {
        let file = file.to_owned();
        move |error| Failed {
            action,
            file,
            error,
        }
    };
    let checksum = crc32c::crc32c(lines.as_bytes());
    let text = format!("{lines}checksum {checksum:08x}\n");
    let mut new = File::create(&temporary).map_err(fail("create", &temporary))?;
    new.write_all(text.as_bytes())
        .map_err(fail("write", &temporary))?;
    new.sync_all().map_err(fail("sync", &temporary))?;
    fs::rename(&temporary, &file).map_err(fail("rename to", &file))?;
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(fail("sync", folder))
}

/// The whole text of a file, unchecked.
pub fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?
        .take(BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The lines that the checksum covers, if it is theirs.
pub fn open(text: &str) -> Result<&str, String> {
    let at = text.rfind("checksum ").ok_or("the checksum is missing")?;
    let (covered, last) = text.split_at(at);
    if last != format!("checksum {:08x}\n", crc32c::crc32c(covered.as_bytes())) {
        return Err("the checksum does not match".into());
    }
    Ok(covered)
}
