//! Area that a search covers, and the cells of the map that contain it.

use super::{
    cell::{Area, Cell, Place, STEPS_MAX},
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
        let east = if polar < 90.0 { earth::degrees_east(width, polar) } else { 360.0 };
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
            }
        }
        cells
    }
}
