//! Random choices in Redis commands. The command contains the seed, so all nodes choose the same.

use std::{collections::BTreeSet, ops::ControlFlow};

use super::rows::{View, each_placed};
use crate::{op::REPLY_BYTES_MAX, store::Position};

/// Random number generator (splitmix64). Must never change: replayed commands depend on it.
pub(super) struct Draws(u64);

impl Draws {
    pub(super) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Draws a number below `end`, which must not be 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }
}

pub(super) type DrawnRow = (Vec<u8>, Vec<u8>);

/// Maximum size of a collection whose members are all equally likely. In a larger collection, a
/// position is drawn, and then one of the members after it, so members after gaps are favoured.
const EVEN: u64 = 1024;
/// Number of members after a drawn position; one of them is chosen.
const NEIGHBOURS: usize = 64;
/// Maximum size of a collection in which several members are drawn by a walk over all of it.
const LISTED: u64 = 4096;

/// Draws one member. Returns `None` if the collection is empty.
pub(super) fn draw_one(view: &View<'_>, prefix: &[u8], draws: &mut Draws) -> Option<DrawnRow> {
    if view.count() <= EVEN {
        let mut left = draws.below(view.count().max(1));
        let mut found = None;
        each_placed(view, prefix, Position::START, &mut |member, value| {
            if left == 0 {
                found = Some((member.to_vec(), value.to_vec()));
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        });
        return found;
    }
    let start = Position::of(&draws.next().to_le_bytes());
    let (mut left, mut found) = (draws.index(NEIGHBOURS), None);
    for from in [start, Position::START] {
        each_placed(view, prefix, from, &mut |member, value| {
            if found.is_none() && left == 0 {
                found = Some((member.to_vec(), value.to_vec()));
            }
            left = left.saturating_sub(1);
            match found {
                None => ControlFlow::Continue(()),
                Some(_) => ControlFlow::Break(()),
            }
        });
    }
    found
}

/// Draws `most` distinct members, or all if there are fewer.
pub(super) fn several(
    view: &View<'_>,
    prefix: &[u8],
    most: u64,
    draws: &mut Draws,
) -> Vec<DrawnRow> {
    let most = most.min(view.count());
    if is_walk_cheaper(view, most) {
        // Selection sampling: all remaining members have the same probability.
        let (mut wanted, mut left, mut drawn) = (most, view.count(), Vec::new());
        each_placed(view, prefix, Position::START, &mut |member, value| {
            if left == 0 || wanted == 0 {
                return ControlFlow::Break(());
            }
            if draws.below(left) < wanted {
                wanted -= 1;
                drawn.push((member.to_vec(), value.to_vec()));
            }
            left -= 1;
            ControlFlow::Continue(())
        });
        return drawn;
    }
    let (mut seen, mut drawn) = (BTreeSet::new(), Vec::new());
    // Bounded, because nothing guarantees that a draw finds a new member.
    for _ in 0..most.saturating_mul(16) {
        if drawn.len() as u64 >= most {
            break;
        }
        if let Some((member, value)) = draw_one(view, prefix, draws)
            && seen.insert(member.clone())
        {
            drawn.push((member, value));
        }
    }
    drawn
}

/// Draws `times` members with replacement, up to the size limit of a reply.
pub(super) fn repeatedly(
    view: &View<'_>,
    prefix: &[u8],
    times: usize,
    values: bool,
    draws: &mut Draws,
) -> Vec<DrawnRow> {
    let mut bytes = 0;
    let mut is_full = |member: &[u8], value: &[u8]| {
        bytes += member.len() + value.len();
        bytes > REPLY_BYTES_MAX
    };
    if !is_walk_cheaper(view, times as u64) {
        let mut drawn = Vec::new();
        while drawn.len() < times
            && let Some((member, mut value)) = draw_one(view, prefix, draws)
        {
            if !values {
                value = Vec::new();
            }
            let full = is_full(&member, &value);
            drawn.push((member, value));
            if full {
                break;
            }
        }
        return drawn;
    }
    let mut ranks: Vec<u64> = (0..times).map(|_| draws.below(view.count())).collect();
    ranks.sort_unstable();
    let (mut rank, mut at, mut drawn) = (0, 0, Vec::new());
    each_placed(view, prefix, Position::START, &mut |member, value| {
        let value = if values { value } else { b"" };
        while ranks.get(at) == Some(&rank) {
            drawn.push((member.to_vec(), value.to_vec()));
            at += 1;
            if is_full(member, value) {
                return ControlFlow::Break(());
            }
        }
        rank += 1;
        match at < ranks.len() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    for at in (1..drawn.len()).rev() {
        drawn.swap(at, draws.index(at + 1));
    }
    drawn
}

/// Returns whether a walk over all members is cheaper than drawing `draws` members by position.
fn is_walk_cheaper(view: &View<'_>, draws: u64) -> bool {
    view.count() <= LISTED || draws.saturating_mul(NEIGHBOURS as u64) >= view.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_stable() {
        let mut draws = Draws::of(7);
        let drawn: Vec<u64> = (0..6).map(|_| draws.below(1000)).collect();
        let mut again = Draws::of(7);
        assert!(drawn.iter().all(|number| *number == again.below(1000)));
        assert_eq!(Draws::of(0).next(), 0xe220_a839_7b1d_cdaf);
    }
}
