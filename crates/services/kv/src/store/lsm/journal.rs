//! Repair of fjall's journal after a power loss: the journal is cut after the last whole batch.
//!
//! In fjall 3.1, a batch is a start with the number of items, the items, and an end with their
//! checksum. At start, fjall drops a last batch that has no end. It reports an error for a batch
//! that has an end but a gap before it, which a power loss can leave in unsynced data. Only the
//! newest journal can have such a gap, since earlier ones were synced before the next one was
//! begun. This parser accepts exactly the batches that fjall accepts.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

/// First byte of each part of a journal.
mod tag {
    pub(super) const START: u8 = 1;
    pub(super) const ITEM: u8 = 2;
    pub(super) const END: u8 = 3;
    pub(super) const CLEAR: u8 = 4;
}

/// Last bytes of every batch.
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];
/// Number of bytes after the tag of a start: number of items, sequence number.
const START_BYTES: usize = 4 + 8;
/// Number of bytes after the tag of an item: type, compression, keyspace, and the lengths of the
/// key, the value and the stored value.
const ITEM_BYTES: usize = 1 + 1 + 8 + 2 + 4 + 4;
/// Offset of the key length in an item.
const KEY_LENGTH: usize = 10;
const VALUE_LENGTH: usize = 16;
const CLEAR_BYTES: usize = 8;
const CHUNK_BYTES: u64 = 64 << 10;

/// Truncates the newest journal in a folder after its last whole batch. Returns a description of
/// the lost data, or `None` if it consisted of preallocated zeros only.
pub(super) fn truncate_newest_journal(folder: &Path) -> io::Result<Option<String>> {
    let Some(path) = newest(folder)? else {
        return Ok(None);
    };
    let (whole, used) = measure(File::open(&path)?)?;
    if used <= whole {
        return Ok(None);
    }
    let file = OpenOptions::new().write(true).open(&path)?;
    file.set_len(whole)?;
    file.sync_all()?;
    let bytes = used - whole;
    Ok(Some(format!("{bytes} bytes behind the last whole batch of its journal were cut off")))
}

fn newest(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        newest = newest.max(number.map(|number| (number, path)));
    }
    Ok(newest.map(|(_, path)| path))
}

/// Returns the offsets of the end of the last whole batch and of the last nonzero byte.
fn measure(file: File) -> io::Result<(u64, u64)> {
    let mut from = Reader { file: BufReader::new(file), at: 0, used: 0 };
    let mut whole = 0;
    while from.batch()? {
        whole = from.at;
    }
    from.read_rest()?;
    Ok((whole, from.used))
}

struct Reader<R> {
    file: R,
    at: u64,
    /// Offset after the last nonzero byte that was read.
    used: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the next batch. Returns `false` if it is not whole.
    fn batch(&mut self) -> io::Result<bool> {
        let Some([tag::START]) = self.bytes()? else {
            return Ok(false);
        };
        let Some(start) = self.bytes::<START_BYTES>()? else {
            return Ok(false);
        };
        let mut items = u32::from_le_bytes([start[0], start[1], start[2], start[3]]);
        let mut checksum = Xxh3::new();
        loop {
            match self.bytes()? {
                Some([tag::ITEM]) if items > 0 => {
                    let Some(head) = self.bytes::<ITEM_BYTES>()? else {
                        return Ok(false);
                    };
                    checksum.update(&[tag::ITEM]);
                    checksum.update(&head);
                    let key = u16::from_le_bytes([head[KEY_LENGTH], head[KEY_LENGTH + 1]]);
                    let [.., a, b, c, d] = head;
                    let value = u32::from_le_bytes([a, b, c, d]);
                    if !self.checksum_bytes(u64::from(key) + u64::from(value), &mut checksum)? {
                        return Ok(false);
                    }
                }
                Some([tag::CLEAR]) if items > 0 => {
                    let Some(keyspace) = self.bytes::<CLEAR_BYTES>()? else {
                        return Ok(false);
                    };
                    checksum.update(&[tag::CLEAR]);
                    checksum.update(&keyspace);
                }
                Some([tag::END]) if items == 0 => {
                    let (said, trailer) = (self.bytes()?, self.bytes()?);
                    let said = said.map(u64::from_le_bytes);
                    return Ok(said == Some(checksum.digest()) && trailer == Some(TRAILER));
                }
                _ => return Ok(false),
            }
            items -= 1;
        }
    }

    fn bytes<const BYTES: usize>(&mut self) -> io::Result<Option<[u8; BYTES]>> {
        let mut bytes = [0; BYTES];
        let read = self.fill_buffer(&mut bytes)?;
        Ok((read == BYTES).then_some(bytes))
    }

    /// Adds the next `count` bytes to the checksum. Returns `false` if there are fewer.
    fn checksum_bytes(&mut self, mut count: u64, checksum: &mut Xxh3) -> io::Result<bool> {
        let mut chunk = vec![0; usize::try_from(count.min(CHUNK_BYTES)).unwrap_or(0)];
        while count > 0 {
            let wanted = usize::try_from(count.min(CHUNK_BYTES)).unwrap_or(chunk.len());
            let read = self.fill_buffer(&mut chunk[..wanted])?;
            checksum.update(&chunk[..read]);
            if read < wanted {
                return Ok(false);
            }
            count -= read as u64;
        }
        Ok(true)
    }

    /// Fills as much of the buffer as possible. Returns the number of bytes read.
    fn fill_buffer(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.file.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(last) = into[..filled].iter().rposition(|byte| *byte != 0) {
            self.used = self.at + last as u64 + 1;
        }
        self.at += filled as u64;
        Ok(filled)
    }

    /// Reads the rest of the file after the last whole batch.
    fn read_rest(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; 1 << 16];
        while self.fill_buffer(&mut chunk)? > 0 {}
        Ok(())
    }
}

const _: () = assert!(VALUE_LENGTH + 4 == ITEM_BYTES);
