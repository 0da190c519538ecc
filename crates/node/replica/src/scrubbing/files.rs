//! Small files of a data folder: their order in a scrub, possible faults, and writers.

use std::collections::VecDeque;

use quorate_log::{
    Base,
    disk::{Family, sealed},
};
use quorate_stream::store::Store;

/// Number of reads of a damaged file after which only an operator can help.
const TRIES_MAX: u32 = 30;

/// Part of the node that writes a file and knows its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Writer of the base of the log, which includes the start of the log.
    Base,
    /// Writer of the position of the catalogue of byte streams.
    Catalogue,
    /// Writer of this node's identity.
    Identity,
    /// Writer of the other nodes' addresses, which are only hints.
    Book,
    /// Writer of the number of a family's newest file, updated whenever the next file is created.
    Makers,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallFile {
    pub(crate) name: &'static str,
    pub(crate) keeper: Keeper,
}

const fn file(name: &'static str, keeper: Keeper) -> SmallFile {
    SmallFile { name, keeper }
}

fn all() -> impl Iterator<Item = SmallFile> {
    let named = [
        file(Base::FILE, Keeper::Base),
        file(Store::FILE, Keeper::Catalogue),
        file("identity", Keeper::Identity),
        file("peers", Keeper::Book),
    ];
    let made = Family::all().map(|family| file(family.made_file(), Keeper::Makers));
    named.into_iter().chain(made)
}

impl SmallFile {
    /// Returns the fault in the bytes read, if any. A missing file is a fault only if it must
    /// exist.
    pub(crate) fn fault(self, bytes: Option<&[u8]>, must_be_there: bool) -> Option<String> {
        let Some(bytes) = bytes else {
            return must_be_there.then(|| "it is gone".to_owned());
        };
        if self.keeper == Keeper::Base {
            return Base::fault_in(bytes);
        }
        match str::from_utf8(bytes) {
            Err(_) => Some("it is not text".to_owned()),
            Ok(text) => sealed::open(text).err().map(ToOwned::to_owned),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    remaining: VecDeque<SmallFile>,
    /// Damaged files that are being rewritten, each with the index of the finding and the number of
    /// reads since the file was found damaged.
    mended: VecDeque<(SmallFile, Option<usize>, u32)>,
    out: Option<Looked>,
}

/// A file that is being read, for the first time or again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) file: SmallFile,
    /// The file existed when the read began. A file created during the read is not missed.
    pub(crate) must_be_there: bool,
    /// Index of the finding and number of reads since, if the file was found damaged before.
    pub(crate) recheck: Option<(Option<usize>, u32)>,
}

impl Looked {
    /// Returns whether rewriting the file has failed too often.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.recheck.is_some_and(|(_, tries)| tries >= TRIES_MAX)
    }
}

impl Files {
    pub(crate) fn begin_pass(&mut self) {
        self.remaining = all().collect();
        self.mended.clear();
        self.out = None;
    }

    /// Returns the next file to read, unless a read is in flight.
    pub(crate) fn next_file(&mut self) -> Option<Looked> {
        if self.out.is_some() {
            return None;
        }
        let first = self.remaining.pop_front().map(|file| Looked {
            file,
            must_be_there: false,
            recheck: None,
        });
        self.out = first.or_else(|| {
            let (file, found, tries) = self.mended.pop_front()?;
            let again = Some((found, tries));
            Some(Looked { file, must_be_there: false, recheck: again })
        });
        self.out
    }

    /// Records whether the file being read must exist.
    pub(crate) fn began(&mut self, must_be_there: bool) {
        if let Some(out) = &mut self.out {
            out.must_be_there = must_be_there;
        }
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.out.is_some() || !self.remaining.is_empty() || !self.mended.is_empty()
    }

    pub(crate) fn ended(&mut self, name: &str) -> Option<Looked> {
        self.out.take_if(|out| out.file.name == name)
    }

    /// Queues a file that is being rewritten to be read again.
    pub(crate) fn queue_reread(&mut self, looked: Looked, found: Option<usize>) {
        let (found, tries) = looked.recheck.unwrap_or((found, 0));
        self.mended.push_back((looked.file, found, tries + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_or_a_missing_file_is_a_fault() {
        let book = file("peers", Keeper::Book);
        let mut text = sealed::seal("quorate peers 1\nat 7\n").into_bytes();
        assert_eq!(book.fault(Some(&text), false), None);
        for bit in 0..text.len() * 8 {
            text[bit / 8] ^= 1 << (bit % 8);
            assert!(book.fault(Some(&text), false).is_some(), "bit {bit}");
            text[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(book.fault(None, false), None);
        assert!(book.fault(None, true).is_some());
        let base = file(Base::FILE, Keeper::Base);
        assert!(base.fault(Some(b"qrtebase"), false).is_some());
    }
}
