//! Small files of a data folder: their order in a scrub, possible faults, and writers.

use std::collections::VecDeque;

use quorate_log::{
    Base,
    disk::{Family, sealed},
};
use quorate_stream::store::Store;

/// Number of reads of a damaged file after which only an operator can help.
const ATTEMPTS_MAX: u32 = 30;

/// Part of the node that writes a file and knows its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOwner {
    /// Writer of the base of the log, which includes the start of the log.
    LogBase,
    /// Writer of the position of the catalogue of byte streams.
    StreamCatalogue,
    /// Writer of this node's identity.
    Identity,
    /// Writer of the other nodes' addresses, which are only hints.
    AddressBook,
    /// Writer of the number of a family's newest file, updated whenever the next file is created.
    FileNumbers,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallFile {
    pub(crate) name: &'static str,
    pub(crate) owner: FileOwner,
}

const fn small_file(name: &'static str, keeper: FileOwner) -> SmallFile {
    SmallFile { name, owner: keeper }
}

fn all_small_files() -> impl Iterator<Item = SmallFile> {
    let named = [
        small_file(Base::FILE, FileOwner::LogBase),
        small_file(Store::POINTER_FILE, FileOwner::StreamCatalogue),
        small_file("identity", FileOwner::Identity),
        small_file("peers", FileOwner::AddressBook),
    ];
    let made =
        Family::all().map(|family| small_file(family.newest_record_name(), FileOwner::FileNumbers));
    named.into_iter().chain(made)
}

impl SmallFile {
    /// Returns the fault in the bytes read, if any. A missing file is a fault only if it must
    /// exist.
    pub(crate) fn fault(self, bytes: Option<&[u8]>, must_be_there: bool) -> Option<String> {
        let Some(bytes) = bytes else {
            return must_be_there.then(|| "it is gone".to_owned());
        };
        if self.owner == FileOwner::LogBase {
            return Base::describe_fault(bytes);
        }
        match str::from_utf8(bytes) {
            Err(_) => Some("it is not text".to_owned()),
            Ok(text) => sealed::open(text).err().map(ToOwned::to_owned),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct SmallFileScrub {
    remaining: VecDeque<SmallFile>,
    /// Damaged files that are being rewritten, each with the index of the finding and the number of
    /// reads since the file was found damaged.
    rewritten: VecDeque<(SmallFile, Option<usize>, u32)>,
    file_being_read: Option<FileCheck>,
}

/// A file that is being read, for the first time or again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCheck {
    pub(crate) file: SmallFile,
    /// The file existed when the read began. A file created during the read is not missed.
    pub(crate) must_exist: bool,
    /// Index of the finding and number of reads since, if the file was found damaged before.
    pub(crate) recheck: Option<(Option<usize>, u32)>,
}

impl FileCheck {
    /// Returns whether rewriting the file has failed too often.
    pub(crate) fn has_failed_too_often(&self) -> bool {
        self.recheck.is_some_and(|(_, tries)| tries >= ATTEMPTS_MAX)
    }
}

impl SmallFileScrub {
    pub(crate) fn begin_pass(&mut self) {
        self.remaining = all_small_files().collect();
        self.rewritten.clear();
        self.file_being_read = None;
    }

    /// Returns the next file to read, unless a read is in flight.
    pub(crate) fn next_file(&mut self) -> Option<FileCheck> {
        if self.file_being_read.is_some() {
            return None;
        }
        let first = self.remaining.pop_front().map(|file| FileCheck {
            file,
            must_exist: false,
            recheck: None,
        });
        self.file_being_read = first.or_else(|| {
            let (file, found, tries) = self.rewritten.pop_front()?;
            let again = Some((found, tries));
            Some(FileCheck { file, must_exist: false, recheck: again })
        });
        self.file_being_read
    }

    /// Records whether the file being read must exist.
    pub(crate) fn set_must_exist(&mut self, must_be_there: bool) {
        if let Some(out) = &mut self.file_being_read {
            out.must_exist = must_be_there;
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.file_being_read.is_some() || !self.remaining.is_empty() || !self.rewritten.is_empty()
    }

    pub(crate) fn take_finished(&mut self, name: &str) -> Option<FileCheck> {
        self.file_being_read.take_if(|out| out.file.name == name)
    }

    /// Queues a file that is being rewritten to be read again.
    pub(crate) fn queue_reread(&mut self, looked: FileCheck, found: Option<usize>) {
        let (found, tries) = looked.recheck.unwrap_or((found, 0));
        self.rewritten.push_back((looked.file, found, tries + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_or_a_missing_file_is_a_fault() {
        let book = small_file("peers", FileOwner::AddressBook);
        let mut text = sealed::append_checksum_line("quorate peers 1\nat 7\n").into_bytes();
        assert_eq!(book.fault(Some(&text), false), None);
        for bit in 0..text.len() * 8 {
            text[bit / 8] ^= 1 << (bit % 8);
            assert!(book.fault(Some(&text), false).is_some(), "bit {bit}");
            text[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(book.fault(None, false), None);
        assert!(book.fault(None, true).is_some());
        let base = small_file(Base::FILE, FileOwner::LogBase);
        assert!(base.fault(Some(b"qrtebase"), false).is_some());
    }
}
