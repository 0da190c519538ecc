//! Members that a search has found.

use std::ops::ControlFlow;

use super::{
    cell::Place,
    search::{Order, Search},
};
use crate::commands::score::Score;

/// Number of members that may be found beyond those wanted before the others are dropped.
const SLACK: u64 = 1024;
/// Size of a point without its member. Part of the replicated format: never changes.
const POINT_BYTES: usize = 56;

pub(super) struct Point {
    pub(super) member: Vec<u8>,
    pub(super) score: Score,
    pub(super) place: Place,
    /// Distance from the center in meters.
    pub(super) distance: f64,
}

impl Point {
    const fn bytes(&self) -> usize {
        self.member.len() + POINT_BYTES
    }
}

/// Members of bounded size. Of those in an order only the first ones are kept.
pub(super) struct Found {
    points: Vec<Point>,
    order: Order,
    most: u64,
    any: bool,
    bytes: usize,
    bytes_max: usize,
}

impl Found {
    pub(super) fn new(search: &Search<'_>, bytes_max: usize) -> Self {
        Self {
            points: Vec::new(),
            order: search.order,
            most: search.most.unwrap_or(u64::MAX),
            any: search.any,
            bytes: 0,
            bytes_max,
        }
    }

    const fn is_too_large(&self) -> bool {
        self.bytes > self.bytes_max
    }

    const fn count(&self) -> u64 {
        self.points.len() as u64
    }

    /// Adds a member, and returns [`ControlFlow::Break`] if no more are wanted.
    pub(super) fn add(&mut self, point: Point) -> ControlFlow<()> {
        self.bytes += point.bytes();
        self.points.push(point);
        let too_many = self.count() >= self.most.saturating_mul(2).saturating_add(SLACK);
        if too_many || self.bytes > self.bytes_max + self.bytes_max / 8 {
            self.keep();
        }
        let count = self.count();
        // Members beyond those wanted will be dropped.
        match (self.any && count >= self.most) || (self.is_too_large() && count <= self.most) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Puts the members in order and drops all but the first ones.
    fn keep(&mut self) {
        match self.order {
            Order::None => {}
            Order::Nearest => {
                self.points.sort_by(|one, other| one.distance.total_cmp(&other.distance))
            }
            Order::Farthest => {
                self.points.sort_by(|one, other| other.distance.total_cmp(&one.distance))
            }
        }
        self.points.truncate(usize::try_from(self.most).unwrap_or(usize::MAX));
        self.bytes = self.points.iter().map(Point::bytes).sum();
    }

    /// Returns the members in order, or `None` if they are too large.
    pub(super) fn into_points(mut self) -> Option<Vec<Point>> {
        self.keep();
        (!self.is_too_large()).then_some(self.points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(order: Order, most: u64, bytes_max: usize) -> Found {
        Found { points: Vec::new(), order, most, any: false, bytes: 0, bytes_max }
    }

    /// A point of 100 bytes.
    fn point(distance: f64) -> Point {
        let place = Place { longitude: 0.0, latitude: 0.0 };
        Point { member: vec![b'm'; 44], score: Score::ZERO, place, distance }
    }

    /// All nodes must refuse the same searches.
    #[test]
    fn sizes_of_points_are_part_of_the_format() {
        for (count, fits) in [(10, true), (11, false)] {
            let mut found = found(Order::None, u64::MAX, 1000);
            for _ in 0..count {
                let _ = found.add(point(0.0));
            }
            assert_eq!(found.into_points().is_some(), fits, "{count}");
        }
    }

    #[test]
    fn points_that_will_be_dropped_take_little_memory() {
        let mut found = found(Order::Nearest, 8, 800);
        for distance in (0..100).rev() {
            assert!(found.add(point(f64::from(distance))).is_continue());
            assert!(found.bytes <= 900, "{}", found.bytes);
        }
        let points = found.into_points().unwrap();
        assert!(points.iter().map(|point| point.distance).eq((0..8).map(f64::from)));
    }
}
