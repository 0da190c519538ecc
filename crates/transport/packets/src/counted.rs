//! Counts of refusals by reason: of datagrams, and of the frames that carry them.

use std::marker::PhantomData;

/// Maximum number of reasons of one kind.
pub const REASONS_MAX: usize = 16;

/// A reason for refusing something.
pub trait Reason: Copy + 'static {
    /// All reasons, each at its own index; at most [`REASONS_MAX`].
    const ALL: &'static [Self];

    /// Returns its index in [`Reason::ALL`].
    fn place(self) -> usize;

    /// Returns the name used in metrics.
    fn name(self) -> &'static str;
}

/// Counts of refused items, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted<R> {
    counts: [u64; REASONS_MAX],
    reasons: PhantomData<R>,
}

impl<R> Default for Counted<R> {
    fn default() -> Self {
        Self { counts: [0; REASONS_MAX], reasons: PhantomData }
    }
}

impl<R: Reason> Counted<R> {
    /// Counts a refusal.
    pub fn count(&mut self, reason: R) {
        self.counts[reason.place()] += 1;
    }

    /// Returns the count of this reason.
    pub fn of(&self, reason: R) -> u64 {
        self.counts[reason.place()]
    }

    /// Returns all reasons with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL.iter().copied().zip(self.counts)
    }

    /// Returns the sum over all reasons.
    pub fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Returns whether each reason has its own index; for tests.
pub fn has_own_places<R: Reason>() -> bool {
    let places = R::ALL.iter().map(|reason| reason.place());
    R::ALL.len() <= REASONS_MAX && places.eq(0..R::ALL.len())
}
