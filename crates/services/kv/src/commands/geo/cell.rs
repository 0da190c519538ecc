//! Cells of the map: the earth between the parallels of web maps, halved up to 26 times in both
//! directions. A score of 52 bits is the cell of a place; the cells in a larger one are a range of
//! scores.

/// Place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

const LONGITUDE_MAX: f64 = 180.0;
pub(super) const LATITUDE_MAX: f64 = 85.051_128_78;
/// Number of halvings of the smallest cells.
pub(super) const STEPS_MAX: u32 = 26;

impl Place {
    /// Returns whether the map has the place.
    pub(super) fn is_on_map(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// Returns the score of the place.
    pub(super) fn score(self) -> u64 {
        Cell::of(self, STEPS_MAX).bits()
    }

    /// Returns the center of the cell with a score. Any number is a score.
    pub(super) fn of_score(score: f64) -> Self {
        let (south, west) = parted(score as u64);
        let area = Cell { south, west, steps: STEPS_MAX }.area();
        let center = |low: f64, high: f64, most: f64| ((low + high) / 2.0).clamp(-most, most);
        Self {
            longitude: center(area.west, area.east, LONGITUDE_MAX),
            latitude: center(area.south, area.north, LATITUDE_MAX),
        }
    }

    /// Returns the text of the place in the widespread alphabet of 32 letters. Its last letter has
    /// no bits left and is 0.
    pub(super) fn text(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        // Unlike scores, texts divide the whole earth.
        let south = part(self.latitude, 90.0, STEPS_MAX);
        let west = part(self.longitude, LONGITUDE_MAX, STEPS_MAX);
        let bits = Cell { south, west, steps: STEPS_MAX }.bits();
        let mut text = [LETTERS[0]; 11];
        for (at, letter) in text[..10].iter_mut().enumerate() {
            *letter = LETTERS[usize::from((bits >> (47 - 5 * at)).to_le_bytes()[0] & 31)];
        }
        text
    }
}

/// Borders in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) west: f64,
    pub(super) east: f64,
    pub(super) south: f64,
    pub(super) north: f64,
}

impl Area {
    /// Returns whether a cell and its neighbors contain all longitudes of the area.
    pub(super) fn is_near(self, cell: Cell) -> bool {
        let middle = cell.area();
        let width = middle.east - middle.west;
        middle.west - width <= self.west && middle.east + width >= self.east
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// Number of cells to the south.
    south: u32,
    /// Number of cells to the west.
    west: u32,
    pub(super) steps: u32,
}

/// Returns the number of cells between the lower end of an axis and a place on it.
fn part(at: f64, most: f64, steps: u32) -> u32 {
    let cells = f64::from(1_u32 << steps);
    // At the upper end it is one more than there are, as in Redis.
    ((at + most) / (most + most) * cells) as u32
}

impl Cell {
    /// Returns the cell that scores put a place in. At the upper end of an axis it is off the map.
    fn of(place: Place, steps: u32) -> Self {
        let south = part(place.latitude, LATITUDE_MAX, steps);
        Self { south, west: part(place.longitude, LONGITUDE_MAX, steps), steps }
    }

    /// Returns the cell of the map that contains a place or borders on it.
    pub(super) fn at(place: Place, steps: u32) -> Self {
        let (cell, last) = (Self::of(place, steps), Self::last(steps));
        Self { south: cell.south.min(last), west: cell.west.min(last), steps }
    }

    /// Returns the index of the last column and row.
    const fn last(steps: u32) -> u32 {
        (1 << steps) - 1
    }

    /// Returns the cells off the map, next to this one, with the places on the map's upper ends.
    pub(super) fn off_map(self) -> impl Iterator<Item = Self> {
        let last = Self::last(self.steps);
        let (south, west) = (self.south + 1, self.west + 1);
        let (north, east) = (self.south == last, self.west == last);
        let cells = [
            (north, Self { south, ..self }),
            (east, Self { west, ..self }),
            (north && east, Self { south, west, ..self }),
        ];
        cells.into_iter().filter_map(|(exists, cell)| exists.then_some(cell))
    }

    /// Returns the cell `north` and `east` of this one. The map has no edges.
    pub(super) fn neighbor(self, north: i32, east: i32) -> Self {
        let mask = Self::last(self.steps);
        let shifted = |at: u32, by: i32| match by {
            0 => at,
            by => at.wrapping_add_signed(by) & mask,
        };
        Self { south: shifted(self.south, north), west: shifted(self.west, east), ..self }
    }

    pub(super) fn area(self) -> Area {
        let cells = f64::from(1_u32 << self.steps);
        let border = |at: f64, most: f64| -most + at / cells * (most + most);
        let (west, south) = (f64::from(self.west), f64::from(self.south));
        Area {
            west: border(west, LONGITUDE_MAX),
            east: border(west + 1.0, LONGITUDE_MAX),
            south: border(south, LATITUDE_MAX),
            north: border(south + 1.0, LATITUDE_MAX),
        }
    }

    const fn bits(self) -> u64 {
        spread(self.south) | spread(self.west) << 1
    }

    /// Returns the lowest score in the cell, and the lowest one after it.
    pub(super) const fn scores(self) -> (u64, u64) {
        let (bits, shift) = (self.bits(), 2 * (STEPS_MAX - self.steps));
        (bits << shift, (bits + 1) << shift)
    }
}

/// Moves each bit to the place of its double.
const fn spread(bits: u32) -> u64 {
    let mut bits = bits as u64;
    bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
    bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & 0x5555_5555_5555_5555
}

/// Returns the even and the odd bits.
fn parted(bits: u64) -> (u32, u32) {
    let gathered = |mut bits: u64| {
        bits &= 0x5555_5555_5555_5555;
        bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
        bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
        bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
        bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
        u32::try_from((bits | bits >> 16) & 0xffff_ffff).unwrap_or(0)
    };
    (gathered(bits), gathered(bits >> 1))
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;

    use super::*;

    #[test]
    fn bits_are_parted_as_they_were_joined() {
        let dice = &mut Dice::new(1);
        for _ in 0..1000 {
            let bits = dice.word();
            let (even, odd) = parted(bits);
            assert_eq!(spread(even) | spread(odd) << 1, bits);
        }
    }

    #[test]
    fn any_number_is_the_score_of_a_place_on_the_map() {
        for score in [0.0, -1.0, 1e300, f64::INFINITY, f64::NEG_INFINITY, 4_503_599_627_370_496.0] {
            assert!(Place::of_score(score).is_on_map(), "{score}");
        }
    }
}
