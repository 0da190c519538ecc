//! Ring of cells in borrowed or owned memory. Slot i is stored in cell i modulo N ([offload-14]).

use alloc::{vec, vec::Vec};
use core::ops::{Deref, DerefMut};

use crate::{Descriptor, PackedBallot};

/// State of one slot in a device, without the value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Ballot of the vote or the proposal. No ballot if the cell has never been used.
    pub ballot: PackedBallot,
    pub slot: u64,
    pub value: Descriptor,
    /// One's-complement sum of the slot's value area.
    pub sum: u16,
    /// Bit set of the positions that voted. Used only by programs that count votes.
    pub voters: u16,
}

impl Cell {
    pub const EMPTY: Self =
        Self { ballot: PackedBallot::NONE, slot: 0, value: Descriptor::NONE, sum: 0, voters: 0 };

    /// Returns whether the cell stores this slot in this ballot.
    pub fn is_holding(&self, ballot: PackedBallot, slot: u64) -> bool {
        self.ballot == ballot && self.slot == slot
    }
}

#[derive(Debug)]
enum CellMemory<'a, T> {
    Borrowed(&'a mut [T]),
    Own(Vec<T>),
}

impl<T> Deref for CellMemory<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(memory) => memory,
            Self::Own(memory) => memory,
        }
    }
}

impl<T> DerefMut for CellMemory<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Borrowed(memory) => memory,
            Self::Own(memory) => memory,
        }
    }
}

/// A ring of N cells, each with a value area. N is a power of two.
#[derive(Debug)]
pub struct Cells<'a> {
    cells: CellMemory<'a, Cell>,
    rooms: CellMemory<'a, u8>,
    room: usize,
}

impl Cells<'static> {
    /// Creates empty cells. All memory is allocated here. Panics if the number of cells is not a
    /// power of two below 2^32.
    pub fn allocate(count: u32, room: usize) -> Self {
        assert!(count.is_power_of_two(), "{count} cells");
        let cells = usize::try_from(count).expect("a count of 32 bits");
        Self {
            cells: CellMemory::Own(vec![Cell::EMPTY; cells]),
            rooms: CellMemory::Own(vec![0; cells * room]),
            room,
        }
    }
}

impl<'a> Cells<'a> {
    /// Creates empty cells in borrowed memory. `rooms` contains one value area for each cell.
    /// Panics if the number of cells is not a power of two below 2^32, or the number of value areas
    /// differs.
    pub fn new(cells: &'a mut [Cell], rooms: &'a mut [u8], room: usize) -> Self {
        assert!(cells.len().is_power_of_two(), "{} cells", cells.len());
        assert!(u32::try_from(cells.len()).is_ok(), "{} cells", cells.len());
        assert_eq!(rooms.len(), cells.len() * room, "bytes of rooms");
        let mut this =
            Self { cells: CellMemory::Borrowed(cells), rooms: CellMemory::Borrowed(rooms), room };
        this.clear();
        this
    }

    /// Empties all cells, as a power cycle does.
    pub(crate) fn clear(&mut self) {
        self.cells.fill(Cell::EMPTY);
        self.rooms.fill(0);
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.cells.len()).expect("checked when made")
    }

    /// Returns whether a slot is among the N slots starting at `floor`.
    pub(crate) fn is_within(&self, floor: u64, slot: u64) -> bool {
        // `floor + N` is avoided because it may overflow ([offload-6]).
        slot >= floor && slot - floor < u64::from(self.count())
    }

    fn index(&self, slot: u64) -> usize {
        let mask = u64::from(self.count() - 1);
        usize::try_from(slot & mask).expect("an index of 32 bits")
    }

    /// Returns the cell for a slot. The cell may contain another slot.
    pub(crate) fn at(&self, slot: u64) -> &Cell {
        &self.cells[self.index(slot)]
    }

    pub(crate) fn at_mut(&mut self, slot: u64) -> &mut Cell {
        let index = self.index(slot);
        &mut self.cells[index]
    }

    /// Returns the value area of the cell for a slot. The cell may contain another slot.
    pub(crate) fn room(&self, slot: u64) -> &[u8] {
        let index = self.index(slot);
        &self.rooms[index * self.room..][..self.room]
    }

    /// Writes a cell together with its value area, so that no reader sees one without the other.
    pub(crate) fn put(&mut self, cell: Cell, room: &[u8]) {
        let index = self.index(cell.slot);
        self.cells[index] = cell;
        self.rooms[index * self.room..][..self.room].copy_from_slice(room);
    }
}
