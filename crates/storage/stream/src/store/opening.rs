//! Opens a store: reads the valid catalogue and lists the files.

use std::collections::BTreeMap;

use quorate_core::slot::Slot;
use quorate_log::disk::{BLOCK, Buffer, Disk, Family, FileId};

use super::{
    Layout, Reads, Space, Store, StoreError, StoreLimits, Streams, UnitBuffers, Writes,
    catalogue::{self, BYTES_MAX},
    checkpoint::CatalogueFile,
    pointer::{FILE, Pointer},
};

/// Size of each read of a catalogue, in bytes.
const PIECE_BYTES: usize = 1 << 20;

impl Store {
    /// Opens the store on a disk in the state of its last checkpoint, or an empty store. `layout`
    /// is used only for a new store. If the contents differ from what was written,
    /// [`Store::open_emptied`] starts without them.
    pub fn open<D: Disk>(
        disk: &mut D,
        limits: StoreLimits,
        layout: Layout,
    ) -> Result<Self, StoreError> {
        // The small file's contents might not survive the next crash, but everything from now on
        // relies on them.
        disk.sync_file_names()?;
        let pointer = match disk.read_small_file(FILE)? {
            Some(bytes) => Some(Pointer::decode(&bytes).map_err(StoreError::PointerDamaged)?),
            None => None,
        };
        Self::open_from(disk, limits, layout, pointer)
    }

    /// Opens an empty store and discards what is on the disk, for a store whose catalogue is
    /// damaged. The caller must fetch all bytes from elsewhere.
    pub fn open_emptied<D: Disk>(
        disk: &mut D,
        limits: StoreLimits,
        layout: Layout,
    ) -> Result<Self, StoreError> {
        Self::open_from(disk, limits, layout, None)
    }

    fn open_from<D: Disk>(
        disk: &mut D,
        limits: StoreLimits,
        layout: Layout,
        pointer: Option<Pointer>,
    ) -> Result<Self, StoreError> {
        let layout = layout.validated().ok_or(StoreError::Layout)?;
        let listed = disk.files(Family::Stream)?;
        let made = disk.newest_created(Family::Stream)?;
        let mut files: BTreeMap<u64, u64> =
            listed.iter().map(|info| (info.file.number, info.bytes)).collect();
        let last = files.keys().last().copied();
        let next_number = last.max(made.map(|made| made.number)).unwrap_or(0) + 1;
        let current = match pointer {
            Some(Pointer { file: number, .. }) => {
                let bytes = files.remove(&number);
                let bytes = bytes.ok_or(StoreError::Missing { file: number })?;
                Some(CatalogueFile { file_number: number, bytes })
            }
            None => None,
        };
        let bytes = match (pointer, current) {
            (Some(pointer), Some(current)) => read_catalogue(disk, pointer, current)?,
            _ => Vec::new(),
        };
        let damaged = |reason| StoreError::Catalogue {
            file: current.map_or(0, |current| current.file_number),
            reason,
        };
        let known = match pointer {
            Some(_) => Some(catalogue::open(&bytes).map_err(damaged)?),
            None => None,
        };
        let at = known.as_ref().map_or(Slot::FIRST, |known| known.slot);
        if pointer.is_some_and(|pointer| pointer.at != at) {
            return Err(damaged("it is of another slot"));
        }
        let layout = known.as_ref().map_or(layout, |known| known.layout);
        let mut space = Space::new(layout, next_number);
        let of_chunks = files.extract_if(.., |_, bytes| *bytes == layout.file_bytes());
        of_chunks.for_each(|(number, _)| space.add_file(number));
        let mut spares = UnitBuffers::new(layout.unit_bytes);
        let mut cuts = Vec::new();
        let streams = match known {
            Some(known) => known
                .decode_streams(&mut space, &mut spares, |name, position, cut| {
                    cuts.push((name, position, cut));
                })
                .map_err(damaged)?,
            None => Streams::new(),
        };
        // The largest other file is reused for the next catalogue. A crash left the others.
        let spare = files.iter().max_by_key(|(_, bytes)| **bytes);
        let spare = spare.map(|(&number, &bytes)| CatalogueFile { file_number: number, bytes });
        for number in files.into_keys() {
            if spare.is_none_or(|spare| spare.file_number != number) {
                disk.start_retire(FileId::new(Family::Stream, number));
            }
        }
        let mut writes = Writes::default();
        let mut store = Self {
            limits,
            layout,
            streams,
            file_space: space,
            unit_buffers: spares,
            reads: Reads::new(layout.chunk_bytes),
            checkpoint: None,
            current_catalogue: current,
            previous_catalogue: spare,
            checkpointed_to: at,
            chunks_to_free: Vec::new(),
            failure: None,
            writes: Writes::default(),
        };
        for (name, stream) in &store.streams {
            writes.update_gathered(*name, 0, stream.gathered_bytes());
        }
        for (name, position, cut) in cuts {
            writes.queue_cut(name, position, &cut);
            let stream = store.streams.get_mut(&name);
            stream.expect("it has cuts").queue_blocks(position, cut);
        }
        store.writes = writes;
        Ok(store)
    }
}

/// Reads the catalogue. The file's size bounds its length.
fn read_catalogue<D: Disk>(
    disk: &mut D,
    pointer: Pointer,
    file: CatalogueFile,
) -> Result<Vec<u8>, StoreError> {
    let damaged = |reason| StoreError::Catalogue { file: file.file_number, reason };
    if pointer.bytes > file.bytes.min(BYTES_MAX) {
        return Err(damaged("it is longer than its file"));
    }
    let length = usize::try_from(pointer.bytes).map_err(|_| damaged("it is too long"))?;
    let mut bytes = Vec::new();
    let mut buffer = Buffer::new(PIECE_BYTES);
    while bytes.len() < length {
        let left = length - bytes.len();
        let blocks = left.next_multiple_of(BLOCK).min(PIECE_BYTES);
        let place = FileId::new(Family::Stream, file.file_number).position_at(bytes.len() as u64);
        disk.read_now(place, &mut buffer, blocks)?;
        bytes.extend_from_slice(&buffer[..left.min(blocks)]);
    }
    if crc32c::crc32c(&bytes) != pointer.checksum {
        return Err(damaged("its checksum does not match"));
    }
    Ok(bytes)
}
