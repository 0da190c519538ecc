//! Members that a search has found.

use std::ops::ControlFlow;

use super::{
    cell::Place,
    search::{Order, Search},
};
use crate::commands::score::Score;

/// Number of members that may be found beyond those wanted before the others are dropped.
const SLACK: usize = 1024;

pub(super) struct Point {
    pub(super) member: Vec<u8>,
    pub(super) score: Score,
    pub(super) place: Place,
    /// Distance from the center in meters.
    pub(super) distance: f64,
}

/// Members of bounded size. Of those in an order only the first ones are kept.
pub(super) struct Found {
    points: Vec<Point>,
    order: Order,
    most: usize,
    any: bool,
    bytes: usize,
    bytes_max: usize,
}

impl Found {
    pub(super) fn new(search: &Search<'_>, bytes_max: usize) -> Self {
        let most = search.most.and_then(|most| usize::try_from(most).ok());
        Self {
            points: Vec::new(),
            order: search.order,
            most: most.unwrap_or(usize::MAX),
            any: search.any,
            bytes: 0,
            bytes_max,
        }
    }

    const fn is_too_large(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Adds a member, and returns [`ControlFlow::Break`] if no more are wanted.
    pub(super) fn add(&mut self, point: Point) -> ControlFlow<()> {
        self.bytes += point.member.len() + size_of::<Point>();
        self.points.push(point);
        let too_many = self.points.len() >= self.most.saturating_mul(2).saturating_add(SLACK);
        if too_many || self.bytes > self.bytes_max.saturating_mul(2) {
            self.keep();
        }
        let count = self.points.len();
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
        self.points.truncate(self.most);
        let each = |point: &Point| point.member.len() + size_of::<Point>();
        self.bytes = self.points.iter().map(each).sum();
    }

    /// Returns the members in order, or `None` if they are too large.
    pub(super) fn into_points(mut self) -> Option<Vec<Point>> {
        self.keep();
        (!self.is_too_large()).then_some(self.points)
    }
}
