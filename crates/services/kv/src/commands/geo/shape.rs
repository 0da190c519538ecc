//! Area that a search covers, and the cells of the map that contain it.

use super::{
    cell::{Area, Cell, LATITUDE_MAX, Place, STEPS_MAX},
    earth,
};

/// Lengths in meters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// Area around a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Around {
    pub(super) center: Place,
    pub(super) shape: Shape,
}

impl Around {
    /// Returns the distance of a place from the center in meters if the area contains the place.
    pub(super) fn distance(&self, place: Place) -> Option<f64> {
        let center = self.center;
        match self.shape {
            Shape::Circle { radius } => {
                Some(earth::distance(center, place)).filter(|distance| *distance <= radius)
            }
            Shape::Box { width, height } => {
                let north = earth::between_parallels(place.latitude, center.latitude);
                let below = Place { latitude: place.latitude, ..center };
                let inside = north <= height / 2.0 && earth::distance(place, below) <= width / 2.0;
                inside.then(|| earth::distance(center, place))
            }
        }
    }

    fn borders(&self) -> Area {
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Place { longitude, latitude } = self.center;
        let north = earth::degrees_north(height);
        // The parallel nearer to the pole is the shorter one.
        let polar = latitude.abs() + north;
        let east = match self.shape {
            Shape::Circle { .. } => {
                if polar < 90.0 {
                    earth::degrees_east(width, polar)
                } else {
                    360.0
                }
            }
            // No place is beyond the map.
            Shape::Box { .. } => earth::degrees_across(width, polar.min(LATITUDE_MAX)),
        };
        Area {
            west: longitude - east,
            east: longitude + east,
            south: latitude - north,
            north: latitude + north,
        }
    }

    /// Returns the number of halvings of cells such that three by three cover the area, or nearly.
    fn steps(&self) -> u32 {
        /// Half of the length of the equator on web maps.
        const SIDE_M: f64 = 20_037_726.37;
        let mut reach = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                let (half, other) = (width / 2.0, height / 2.0);
                (half * half + other * other).sqrt()
            }
        };
        if reach == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1_u32;
        while reach < SIDE_M && steps < STEPS_MAX + 4 {
            reach *= 2.0;
            steps += 1;
        }
        let latitude = self.center.latitude.abs();
        let polar = u32::from(latitude > 66.0) + u32::from(latitude > 80.0);
        steps.saturating_sub(2 + polar).clamp(1, STEPS_MAX)
    }

    /// Returns the cells to search, each once: the one around the center, then its neighbors.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let (borders, mut steps) = (self.borders(), self.steps());
        let mut middle = Cell::at(self.center, steps);
        let area = |cell: Cell, north, east| cell.neighbor(north, east).area();
        let too_small = area(middle, 1, 0).north < borders.north
            || area(middle, -1, 0).south > borders.south
            || area(middle, 0, 1).east < borders.east
            || area(middle, 0, -1).west > borders.west;
        if steps > 1 && too_small {
            steps -= 1;
            middle = Cell::at(self.center, steps);
        }
        // A flat box near a pole spans many more degrees than a circle of its size.
        while steps > 1 && matches!(self.shape, Shape::Box { .. }) && !borders.is_near(middle) {
            steps -= 1;
            middle = Cell::at(self.center, steps);
        }
        let own = middle.area();
        // Cells on a side that the area does not reach are left out.
        let all = steps < 2;
        let reached = |north: i32, east: i32| {
            all || !((north < 0 && own.south < borders.south)
                || (north > 0 && own.north > borders.north)
                || (east < 0 && own.west < borders.west)
                || (east > 0 && own.east > borders.east))
        };
        const AROUND: [(i32, i32); 9] =
            [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)];
        let mut cells = Vec::with_capacity(AROUND.len());
        for (north, east) in AROUND {
            let cell = middle.neighbor(north, east);
            if reached(north, east) && !cells.contains(&cell) {
                cells.push(cell);
                cells.extend(cell.off_map());
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// Returns a number of [-1, 1), often one of the ends.
    fn unit(dice: &mut Dice) -> f64 {
        match dice.index(8) {
            0 => 1.0,
            1 => -1.0,
            _ => (dice.word() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0,
        }
    }

    fn place(dice: &mut Dice) -> Place {
        Place { longitude: 180.0 * unit(dice), latitude: LATITUDE_MAX * unit(dice) }
    }

    /// At the edges of the map, and in flat boxes near poles, too.
    #[test]
    fn cells_contain_the_places_of_the_area() {
        let dice = &mut Dice::new(2);
        let mut inside = 0;
        for _ in 0..20_000 {
            let center = place(dice);
            let mut length = || 1000.0 * f64::from(1 << dice.index(14)) * (2.0 + unit(dice));
            let (width, height) = (length(), length());
            for shape in [Shape::Circle { radius: width }, Shape::Box { width, height }] {
                let around = Around { center, shape };
                let (borders, cells) = (around.borders(), around.cells());
                for _ in 0..20 {
                    let east = unit(dice) * (borders.east - center.longitude).min(180.0);
                    let north = unit(dice) * (borders.north - center.latitude);
                    let longitude = (center.longitude + east + 540.0).rem_euclid(360.0) - 180.0;
                    let latitude = (center.latitude + north).clamp(-LATITUDE_MAX, LATITUDE_MAX);
                    let longitude = if dice.index(8) == 0 { 180.0 } else { longitude };
                    let score = Place { longitude, latitude }.score();
                    if around.distance(Place::of_score(score as f64)).is_none() {
                        continue;
                    }
                    inside += 1;
                    let has = |cell: &Cell| (cell.scores().0..cell.scores().1).contains(&score);
                    assert!(cells.iter().any(has), "{around:?} {longitude} {latitude}");
                }
            }
        }
        assert!(inside > 100_000, "{inside}");
    }

    /// Cells, in this order, decide which members a search with COUNT and ANY finds, and how many
    /// visits it makes. Others need a feature level.
    #[test]
    fn cells_are_part_of_the_format() {
        let dice = &mut Dice::new(1);
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            let center = place(dice);
            // Up to more than the circumference.
            let mut length = || match dice.index(16) {
                0 => 0.0,
                _ => (dice.word() >> 11) as f64 / (1_u64 << (16 + dice.index(40))) as f64,
            };
            let (width, height) = (length(), length());
            for shape in [Shape::Circle { radius: width }, Shape::Box { width, height }] {
                for cell in (Around { center, shape }).cells() {
                    let (least, end) = cell.scores();
                    bytes.extend_from_slice(&least.to_le_bytes());
                    bytes.extend_from_slice(&end.to_le_bytes());
                }
                bytes.push(0);
            }
        }
        assert_eq!(xxh3_64(&bytes), 14_192_462_572_861_310_694);
    }
}
