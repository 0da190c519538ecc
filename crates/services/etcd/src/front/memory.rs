//! Memory budget of a node for requests, responses and the work for them. A request that would
//! exceed it is refused or waits. Watchers may use only part of it, so that clients that do not
//! read their events cannot starve others.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

#[derive(Debug)]
struct BudgetState {
    used_bytes: AtomicUsize,
    bytes_max: usize,
    /// Enclosing budget, if this one is a part of another.
    parent: Option<MemoryBudget>,
    /// Notified when memory is released in this budget or in one with the same enclosing budget.
    released: Arc<Notify>,
}

/// Memory budget, shared by clones.
#[derive(Clone, Debug)]
pub(super) struct MemoryBudget(Arc<BudgetState>);

impl MemoryBudget {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(BudgetState {
            used_bytes: AtomicUsize::new(0),
            bytes_max: most,
            parent: None,
            released: Arc::default(),
        }))
    }

    /// Returns a budget of `most` bytes within this one. Its shares are charged to both.
    pub(super) fn sub_budget(&self, most: usize) -> Self {
        Self(Arc::new(BudgetState {
            used_bytes: AtomicUsize::new(0),
            bytes_max: most,
            parent: Some(self.clone()),
            released: Arc::clone(&self.0.released),
        }))
    }

    /// Returns a budget of half the size within this one.
    pub(super) fn half_budget(&self) -> Self {
        self.sub_budget(self.0.bytes_max / 2)
    }

    /// Reserves bytes until the share is dropped, if they are free.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<MemoryShare> {
        let mut share = self.empty_share();
        share.try_grow(bytes).then_some(share)
    }

    /// Waits until `bytes` bytes are free and reserves them. A request for more than the whole
    /// budget is reduced to it.
    pub(super) async fn reserve(&self, bytes: usize) -> MemoryShare {
        let bytes = bytes.min(self.largest_possible());
        loop {
            let released = self.0.released.notified();
            if let Some(share) = self.try_reserve(bytes) {
                return share;
            }
            released.await;
        }
    }

    /// Returns an empty share, which can grow.
    pub(super) fn empty_share(&self) -> MemoryShare {
        MemoryShare { memory: self.clone(), bytes: 0 }
    }

    fn largest_possible(&self) -> usize {
        let whole = self.0.parent.as_ref();
        self.0.bytes_max.min(whole.map_or(usize::MAX, Self::largest_possible))
    }

    fn try_add(&self, bytes: usize) -> bool {
        let BudgetState { used_bytes: used, bytes_max: most, parent: whole, .. } = &*self.0;
        let add = |now: usize| now.checked_add(bytes).filter(|after| after <= most);
        let added = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if !added {
            return false;
        }
        let fits = whole.as_ref().is_none_or(|whole| whole.try_add(bytes));
        if !fits {
            used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.0.used_bytes.fetch_sub(bytes, Ordering::Release);
        match &self.0.parent {
            Some(whole) => whole.release(bytes),
            None => self.0.released.notify_waiters(),
        }
    }

    /// Returns the number of bytes in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::Relaxed)
    }
}

/// Bytes of a budget, released on drop.
#[derive(Debug)]
pub(super) struct MemoryShare {
    memory: MemoryBudget,
    bytes: usize,
}

impl MemoryShare {
    /// Grows the share by `bytes`, or returns `false` if they are not free.
    #[must_use]
    pub(super) fn try_grow(&mut self, bytes: usize) -> bool {
        let grown = self.memory.try_add(bytes);
        if grown {
            self.bytes += bytes;
        }
        grown
    }

    /// Resizes the share to `bytes`, or returns `false` if they are not free.
    #[must_use]
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.try_grow(more),
            None => {
                self.memory.release(self.bytes - bytes);
                self.bytes = bytes;
                true
            }
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_beyond_the_bound_is_refused_until_a_release() {
        let memory = MemoryBudget::new(100);
        let first = memory.try_reserve(60).expect("there is room");
        assert!(memory.try_reserve(41).is_none());
        let second = memory.try_reserve(40).expect("there is room");
        assert!(memory.try_reserve(1).is_none());
        drop(first);
        assert!(memory.try_reserve(61).is_none());
        assert!(memory.try_reserve(60).is_some());
        drop(second);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn part_allocates_from_the_whole_and_leaves_the_rest() {
        let memory = MemoryBudget::new(100);
        let part = memory.half_budget();
        let mut share = part.try_reserve(50).expect("there is room");
        assert!(part.try_reserve(1).is_none());
        assert!(memory.try_reserve(51).is_none());
        let rest = memory.try_reserve(50).expect("the other half is free");
        assert!(share.resize(20));
        assert!(!share.resize(71), "more than the part");
        assert_eq!((part.used_bytes(), memory.used_bytes()), (20, 70));
        drop((share, rest));
        let rest = memory.try_reserve(90).expect("there is room");
        assert!(part.try_reserve(20).is_none(), "the whole has no room");
        assert_eq!(part.used_bytes(), 0, "nothing of it stays taken");
        drop(rest);
        assert!(part.try_reserve(50).is_some());
    }

    #[test]
    fn waiter_gets_released_memory() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let part = MemoryBudget::new(100).half_budget();
            let all = part.reserve(1000).await;
            assert_eq!(part.used_bytes(), 50, "all there is");
            let waiting = tokio::spawn({
                let part = part.clone();
                async move { part.reserve(10).await }
            });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            drop(all);
            drop(waiting.await.expect("it got it"));
        });
    }
}
