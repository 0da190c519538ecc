//! Reader of bbolt, the file format of etcd's snapshots: two meta pages with the root, and trees of
//! pages below them. It follows the published format and trusts no number in the file.
//!
//! | bytes | page |
//! |---|---|
//! | 8 | its number |
//! | 2 | kind: 1 branch, 2 leaf, 4 meta |
//! | 2 | number of elements |
//! | 4 | number of overflow pages |
//! | 16 each | elements: position and length of key and value; of a branch, also the page below |
//!
//! Numbers are little-endian, as on every machine that etcd supports. No page is read twice and its
//! elements must fit into it, so the total cost is bounded by the length of the file.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::bad::ImportError;

/// A source of a database's bytes.
pub trait DatabaseSource {
    fn bytes(&self) -> u64;

    /// Fills the buffer from offset `at`.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be read.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A file that must not change while it is read.
#[derive(Debug)]
pub struct UnchangingFile {
    file: File,
    bytes: u64,
}

impl UnchangingFile {
    /// Creates a source of all bytes of a file.
    ///
    /// # Errors
    ///
    /// Fails if the length of the file cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

impl DatabaseSource for UnchangingFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }
}

impl DatabaseSource for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(at).ok().and_then(|at| self.get(at..));
        let from = from.and_then(|from| from.get(..buffer.len()));
        let from = from.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }
}

const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
/// Size of a page's header.
const PAGE_HEADER_BYTES: usize = 16;
/// Size of a meta page's contents after the header, including the checksum.
const META_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 8;
const ELEMENT_BYTES: usize = 16;
/// Size of a bucket's header, before the page of an inline bucket.
const BUCKET_HEADER_BYTES: usize = 16;
const PAGE_BYTES_MIN: u64 = 512;
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Maximum size of a page with its overflow pages, in bytes. Requests to etcd are far smaller.
const PAGE_RUN_BYTES_MAX: u64 = 64 << 20;

/// Flags in a page's header.
mod kind {
    pub(super) const BRANCH_FLAG: u16 = 1;
    pub(super) const LEAF_FLAG: u16 = 2;
}

/// Flag of an element whose value is a bucket.
const BUCKET_FLAG: u32 = 1;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Returns the 64-bit FNV-1a hash of `bytes`.
fn fnv1a_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    page_bytes: u64,
    root_page: u64,
    /// Number of pages in use. Higher page numbers are free.
    page_count: u64,
    transaction_id: u64,
}

impl Meta {
    /// Decodes the contents after a meta page's header, if valid.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (covered, said) = bytes.get(..META_BYTES)?.split_last_chunk::<CHECKSUM_BYTES>()?;
        let is_one = u32_at(covered, 0)? == MAGIC && u32_at(covered, 4)? == VERSION;
        if !is_one || fnv1a_hash(covered) != u64::from_le_bytes(*said) {
            return None;
        }
        let page = u64::from(u32_at(covered, 8)?);
        let sized = page.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page);
        sized.then_some(Self {
            page_bytes: page,
            root_page: u64_at(covered, 16)?,
            page_count: u64_at(covered, 40)?,
            transaction_id: u64_at(covered, 48)?,
        })
    }

    /// Returns the newer of the intact meta pages, if there is one.
    fn newest_meta(source: &dyn DatabaseSource) -> Result<Option<Self>, ImportError> {
        let at = |place: u64| {
            let mut bytes = [0; META_BYTES];
            if place.saturating_add((PAGE_HEADER_BYTES + META_BYTES) as u64) > source.bytes() {
                return Ok(None);
            }
            source.read_at(place + PAGE_HEADER_BYTES as u64, &mut bytes)?;
            Ok::<_, ImportError>(Self::decode(&bytes))
        };
        let mut found = at(0)?;
        let mut page = PAGE_BYTES_MIN;
        while page <= PAGE_BYTES_MAX {
            // The offset of the second meta page depends on the page size, which is unknown if the
            // first one is damaged.
            if let Some(second) = at(page)?.filter(|second| second.page_bytes == page) {
                let newer = found.is_none_or(|first| first.transaction_id < second.transaction_id);
                found = if newer { Some(second) } else { found };
            }
            page *= 2;
        }
        Ok(found)
    }
}

/// Trees of pages in a file, read with checks against damage.
pub(super) struct PageTrees<'s> {
    source: &'s dyn DatabaseSource,
    meta: Meta,
    /// Bitmap of the pages that have been read.
    pages_read: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Bucket {
    /// A tree with this root page.
    Tree(u64),
    /// A page stored inline in the parent's value, and its offset in the file.
    Inline(Vec<u8>, u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'e> {
    pub(super) key: &'e [u8],
    pub(super) value: &'e [u8],
    /// Offset of the value in the file.
    pub(super) value_offset: u64,
    pub(super) is_bucket: bool,
}

impl Element<'_> {
    /// Interprets the value of this element as a bucket.
    pub(super) fn bucket(&self) -> Result<Bucket, ImportError> {
        let root = u64_at(self.value, 0).filter(|_| self.value.len() >= BUCKET_HEADER_BYTES);
        match root.ok_or_else(|| ImportError::damaged(self.value_offset, "a bucket is cut off"))? {
            0 => {
                let page = self.value.get(BUCKET_HEADER_BYTES..).unwrap_or_default();
                Ok(Bucket::Inline(page.to_vec(), self.value_offset + BUCKET_HEADER_BYTES as u64))
            }
            root => Ok(Bucket::Tree(root)),
        }
    }
}

/// A callback that receives each element of a bucket.
pub(super) type VisitElement<'e> = dyn FnMut(Element<'_>) -> Result<(), ImportError> + 'e;

impl<'s> PageTrees<'s> {
    /// Opens the trees in the first `bytes` bytes of a source.
    pub(super) fn open(source: &'s dyn DatabaseSource, bytes: u64) -> Result<Self, ImportError> {
        let meta = Meta::newest_meta(source)?.ok_or(ImportError::NotASnapshot)?;
        let there = bytes / meta.page_bytes;
        if meta.page_count > there {
            return Err(ImportError::Truncated {
                bytes,
                wanted: meta.page_count.saturating_mul(meta.page_bytes),
            });
        }
        let words =
            usize::try_from(meta.page_count.div_ceil(64)).map_err(|_| ImportError::TooLarge)?;
        Ok(Self { source, meta, pages_read: vec![0; words] })
    }

    /// Returns the root bucket, which contains all other buckets.
    pub(super) const fn root(&self) -> Bucket {
        Bucket::Tree(self.meta.root_page)
    }

    /// Returns the size of all pages in use, as etcd reports it.
    pub(super) const fn bytes(&self) -> u64 {
        self.meta.page_count * self.meta.page_bytes
    }

    /// Marks a page and its overflow pages as read. Fails if one of them was already read.
    fn mark_read(&mut self, first: u64, pages: u64) -> Result<(), ImportError> {
        for page in first..first + pages {
            let word = usize::try_from(page / 64).ok();
            let word = word.and_then(|word| self.pages_read.get_mut(word));
            let bit = 1 << (page % 64);
            match word {
                Some(word) if *word & bit == 0 => *word |= bit,
                _ => return Err(self.damaged(first, "a page is in use twice")),
            }
        }
        Ok(())
    }

    fn damaged(&self, page: u64, what: &'static str) -> ImportError {
        ImportError::damaged(page.saturating_mul(self.meta.page_bytes), what)
    }

    /// Reads a page with its overflow pages.
    fn read_page(&mut self, id: u64) -> Result<Vec<u8>, ImportError> {
        let Meta { page_bytes: page, page_count: pages, .. } = self.meta;
        // The first two pages are meta pages and not part of any tree.
        if !(2..pages).contains(&id) {
            return Err(self.damaged(id, "a page lies outside of the file"));
        }
        let mut bytes = vec![0; usize::try_from(page).map_err(|_| ImportError::TooLarge)?];
        self.source.read_at(id * page, &mut bytes)?;
        let more = u64::from(u32_at(&bytes, 12).unwrap_or(0));
        if u64_at(&bytes, 0) != Some(id) {
            return Err(self.damaged(id, "a page has another page's number"));
        }
        if more >= pages - id || (more + 1).saturating_mul(page) > PAGE_RUN_BYTES_MAX {
            return Err(self.damaged(id, "a page is longer than any can be"));
        }
        self.mark_read(id, more + 1)?;
        if more > 0 {
            let head = bytes.len();
            let all = (more + 1) * page;
            bytes.resize(usize::try_from(all).map_err(|_| ImportError::TooLarge)?, 0);
            let rest = bytes.get_mut(head..).unwrap_or_default();
            self.source.read_at((id + 1) * page, rest)?;
        }
        Ok(bytes)
    }

    /// Visits all elements of a bucket in order.
    pub(super) fn visit_bucket(
        &mut self,
        bucket: &Bucket,
        each: &mut VisitElement<'_>,
    ) -> Result<(), ImportError> {
        let mut last = None;
        let mut ahead = match bucket {
            Bucket::Inline(page, at) => {
                return match u16_at(page, 8) {
                    Some(kind::LEAF_FLAG) => visit_leaf(page, *at, &mut last, each),
                    _ => Err(ImportError::damaged(*at, "a small bucket is no leaf")),
                };
            }
            Bucket::Tree(root) => vec![*root],
        };
        while let Some(id) = ahead.pop() {
            let page = self.read_page(id)?;
            let at = id * self.meta.page_bytes;
            match u16_at(&page, 8) {
                Some(kind::LEAF_FLAG) => visit_leaf(&page, at, &mut last, each)?,
                Some(kind::BRANCH_FLAG) => {
                    let below = child_pages(&page, at)?;
                    // Reversed, so that the first of these pages is next.
                    ahead.extend(below.into_iter().rev());
                }
                _ => return Err(ImportError::damaged(at, "a page of a tree is of another kind")),
            }
        }
        Ok(())
    }
}

fn element_count(page: &[u8]) -> usize {
    u16_at(page, 10).map_or(0, usize::from)
}

fn child_pages(page: &[u8], at: u64) -> Result<Vec<u64>, ImportError> {
    let below = (0..element_count(page))
        .map(|index| u64_at(page, PAGE_HEADER_BYTES + index * ELEMENT_BYTES + 8));
    let below: Option<Vec<u64>> = below.collect();
    match below {
        Some(below) if !below.is_empty() => Ok(below),
        _ => Err(ImportError::damaged(at, "a branch is cut off")),
    }
}

/// Visits the elements of a leaf page, whose keys must all be greater than those of previous
/// leaves.
fn visit_leaf(
    page: &[u8],
    at: u64,
    last: &mut Option<Vec<u8>>,
    each: &mut VisitElement<'_>,
) -> Result<(), ImportError> {
    let count = element_count(page);
    let cut = || ImportError::damaged(at, "a leaf is cut off");
    let mut room = page.len().checked_sub(PAGE_HEADER_BYTES + count * ELEMENT_BYTES);
    let mut before = last.take();
    for index in 0..count {
        let from = PAGE_HEADER_BYTES + index * ELEMENT_BYTES;
        let numbers = [0, 4, 8, 12].map(|field| u32_at(page, from + field));
        let [Some(flags), Some(place), Some(key), Some(value)] = numbers else {
            return Err(cut());
        };
        let [place, key, value] = [place, key, value].map(|number| number as usize);
        // The total size of overlapping elements could exceed that of the page.
        room = room.and_then(|room| room.checked_sub(key)?.checked_sub(value));
        let bytes = page.get(from.saturating_add(place)..);
        let bytes = bytes.and_then(|bytes| {
            let (key, rest) = bytes.split_at_checked(key)?;
            Some((key, rest.get(..value)?))
        });
        let (Some((name, value)), Some(_)) = (bytes, room) else {
            return Err(cut());
        };
        if before.as_deref().is_some_and(|before| name <= before) {
            return Err(ImportError::damaged(at, "keys are out of order"));
        }
        each(Element {
            key: name,
            value,
            value_offset: at + (from + place + key) as u64,
            is_bucket: flags & BUCKET_FLAG != 0,
        })?;
        let slot = before.get_or_insert_default();
        slot.clear();
        slot.extend_from_slice(name);
    }
    *last = before;
    Ok(())
}
