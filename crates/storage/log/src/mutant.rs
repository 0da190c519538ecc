//! Faults that tests inject to verify that the tests detect them. Production code contains none.

/// A rule that a test can disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "planted by tests only"))]
pub(crate) enum Mutant {
    /// [disk-2] Releases the records of a write while an earlier write is incomplete.
    ReleaseOutOfOrder,
    /// [disk-3] Does not compare the checksum of the preceding log write.
    ChainIgnored,
    /// [disk-4] Continues after a cut in the same segment. Safe while the chain is checked.
    SegmentKeptAfterCut,
    /// Does not sync the data that recovery read before relying on it.
    RecoveryUnsynced,
    /// Does not sync file names and the base before relying on them.
    NamesUnsynced,
    /// [disk-3] Accepts headers from an earlier use of the segment.
    EpochIgnored,
    /// [disk-3] Checks the owner of a header before its epoch.
    OwnerBeforeEpoch,
    /// [trim-3] Releases segments for reuse before the base is durable.
    BaseAfterOverwrite,
    /// [trim-3] Frees the last complete write, whose header restates the hard state.
    HardStateTrimmed,
    /// [snap-3] Counts missing slots from `Slot::FIRST`, not from the start of the log.
    GapsFromFirst,
    /// [disk-8] Ignores the base's record of which log writes are complete.
    BaseSaysNothing,
    /// [scrub-5] Checks data read from a segment that was trimmed during the read.
    ScrubsTrimmed,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::RefCell<Vec<Mutant>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Returns whether a test has disabled this rule.
#[cfg(test)]
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.with_borrow(|planted| planted.contains(&mutant))
}

#[cfg(not(test))]
pub(crate) const fn planted(_mutant: Mutant) -> bool {
    false
}

/// Calls `run` with the rules of `mutants` disabled on the current thread.
#[cfg(test)]
pub(crate) fn with<T>(mutants: &[Mutant], run: impl FnOnce() -> T) -> T {
    PLANTED.set(mutants.to_vec());
    let result = run();
    PLANTED.set(Vec::new());
    result
}
