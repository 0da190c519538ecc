//! Faults that tests plant to see themselves fail; production code has none of them.

/// A rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "planted by tests only"))]
pub(crate) enum Mutant {
    /// [disk-2] Releases what a write holds although one before it is not complete.
    ReleaseOutOfOrder,
    /// [disk-3] Does not compare the checksum of the predecessor.
    ChainIgnored,
    /// [disk-4] Writes on behind a cut, in the same segment. Safe while the chain is checked.
    SegmentKeptAfterCut,
    /// Does not sync what recovery read before building on it.
    RecoveryUnsynced,
    /// The same of the names of files, and of the base.
    NamesUnsynced,
    /// [disk-3] Takes headers of a segment's earlier life for its own.
    EpochIgnored,
    /// [disk-3] Looks whose a header is before it looks at its epoch.
    OwnerBeforeEpoch,
    /// [trim-3] Hands segments out for reuse before the base is durable.
    BaseAfterOverwrite,
    /// [trim-3] Lets go of the last complete write, whose header restates the hard state.
    HardStateTrimmed,
    /// [snap-3] Counts what is missing from the first slot on, not from the start of the log.
    GapsFromFirst,
    /// [disk-8] Forgets what the base says was complete.
    BaseSaysNothing,
    /// [scrub-5] Judges what was read of a segment that was trimmed meanwhile.
    ScrubsTrimmed,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::RefCell<Vec<Mutant>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Returns whether this rule is left out.
#[cfg(test)]
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.with_borrow(|planted| planted.contains(&mutant))
}

/// Returns whether this rule is left out: never.
#[cfg(not(test))]
pub(crate) const fn planted(_mutant: Mutant) -> bool {
    false
}

/// Leaves these rules out while `run` runs on this thread.
#[cfg(test)]
pub(crate) fn with<T>(mutants: &[Mutant], run: impl FnOnce() -> T) -> T {
    PLANTED.set(mutants.to_vec());
    let result = run();
    PLANTED.set(Vec::new());
    result
}
