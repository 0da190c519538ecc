//! Refusal counters by reason, for datagrams and for the frames that carry them.

use std::marker::PhantomData;

pub const REASONS_MAX: usize = 16;

pub trait Reason: Copy + 'static {
    /// All reasons in the order of their indices. At most [`REASONS_MAX`].
    const ALL: &'static [Self];

    /// Returns the index of this reason in [`Reason::ALL`].
    fn index(self) -> usize;

    fn name(self) -> &'static str;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCounts<R> {
    counts: [u64; REASONS_MAX],
    reasons: PhantomData<R>,
}

impl<R> Default for ReasonCounts<R> {
    fn default() -> Self {
        Self { counts: [0; REASONS_MAX], reasons: PhantomData }
    }
}

impl<R: Reason> ReasonCounts<R> {
    pub fn count_reason(&mut self, reason: R) {
        self.counts[reason.index()] += 1;
    }

    pub fn count_of(&self, reason: R) -> u64 {
        self.counts[reason.index()]
    }

    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL.iter().copied().zip(self.counts)
    }

    pub fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Returns whether each reason has its own index. For tests.
pub fn has_unique_indexes<R: Reason>() -> bool {
    let places = R::ALL.iter().map(|reason| reason.index());
    R::ALL.len() <= REASONS_MAX && places.eq(0..R::ALL.len())
}
