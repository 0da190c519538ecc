//! Invariants of every group at every moment, as one pure function per property, for tests.
//!
//! The core does not call them. The model checker, the simulator and the transcripts do, each with
//! its own external observations. No invariant trusts the counting of [`crate::learner`].

use alloc::{format, string::String};

use crate::{
    ballot::{Ballot, Era},
    configuration::Configuration,
    group_time::GroupTime,
    message::{Phase1b, Phase2b},
    node_id::Member,
    quorum::{MemberSet, Phase, QuorumRule},
    slot::{Slot, SlotRange},
    value::Value,
};

/// Result of a check. The error describes the violation.
pub type Verdict = Result<(), String>;

fn require(condition: bool, seen: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(seen()) }
}

/// [class-1], [class-4], [era-5] Returns whether these votes make a value chosen in a slot of era
/// `slot_era`, whose configuration is `configuration`. The votes must all be in `ballot` and at the
/// group's class.
///
/// The arithmetic is independent of the learner's.
pub fn is_chosen(
    configuration: &Configuration,
    slot_era: Era,
    ballot: Ballot,
    voters: &[Member],
) -> bool {
    if ballot.era.0 > slot_era.0 || ballot.era.0 + 1 < slot_era.0 {
        return false;
    }
    has_quorum(configuration, Phase::Two, voters)
}

/// [era-5] Returns whether these members could promise a ballot whose era has this configuration.
pub fn could_promise(configuration: &Configuration, members: &[Member]) -> bool {
    has_quorum(configuration, Phase::One, members)
}

fn has_quorum(configuration: &Configuration, phase: Phase, members: &[Member]) -> bool {
    let (mut total, mut inside) = (0u64, 0u64);
    for voter in configuration.members() {
        total += u64::from(voter.weight);
        if members.contains(&voter.member) {
            inside += u64::from(voter.weight);
        }
    }
    match (configuration.rule(), phase) {
        (QuorumRule::Majority, _) => 2 * inside > total,
        (QuorumRule::Flexible { phase1, .. }, Phase::One) => inside >= u64::from(phase1),
        (QuorumRule::Flexible { phase2, .. }, Phase::Two) => inside >= u64::from(phase2),
        // The only rule that does not depend on weight.
        (QuorumRule::Grid { .. }, _) => {
            let at = |member: &Member| configuration.position(*member);
            let set = members.iter().filter_map(at);
            configuration.is_quorum(phase, set.fold(MemberSet::default(), MemberSet::with))
        }
    }
}

/// Checks agreement: a slot has at most one chosen value.
pub fn agreement(slot: Slot, known: &Value, value: &Value) -> Verdict {
    require(known == value, || format!("slot {slot}: both {known} and {value}"))
}

/// [class-1] Checks that a value was chosen before a node treats it as decided.
pub fn decided_is_chosen(slot: Slot, chosen: Option<&Value>, decided: &Value) -> Verdict {
    match chosen {
        Some(chosen) => require(chosen == decided, || {
            format!("slot {slot}: decided {decided}, chosen {chosen}")
        }),
        None => Err(format!("slot {slot}: decided {decided}, nothing was chosen")),
    }
}

/// [decide-1] Checks that slots are decided in order, without gaps, and each once.
pub fn decided_in_order(decided_to: Slot, range: SlotRange) -> Verdict {
    require(range.from == decided_to && !range.is_empty(), || {
        format!("decided {range} after everything below {decided_to}")
    })
}

/// [ballot-4] Checks that a promise never decreases, even across restarts.
pub fn promise_is_kept(before: Ballot, after: Ballot) -> Verdict {
    require(after >= before, || format!("promised {after} after {before}"))
}

/// [p2-1] Checks that a vote is not below the promise.
pub fn vote_respects_promise(promised: Ballot, ballot: Ballot) -> Verdict {
    require(ballot >= promised, || format!("voted in {ballot} after promising {promised}"))
}

/// [ballot-2] Checks that a ballot proposes only one value per slot.
pub fn one_value_per_ballot(ballot: Ballot, slot: Slot, known: &Value, value: &Value) -> Verdict {
    require(known == value, || format!("ballot {ballot}, slot {slot}: {known} and {value}"))
}

/// [ballot-2] Checks that only one process of one node uses a ballot. `known` is the process that
/// used it before.
pub fn ballot_is_not_reused(ballot: Ballot, known: u64, process: u64) -> Verdict {
    require(known == process, || {
        format!("ballot {ballot}: used by process {known} and by {process}")
    })
}

/// [p2-6] Checks that a vote is sent only once its records have the class that the vote claims.
/// `in_memory` and `on_disk` return whether this node has cast a vote for a slot in the ballot.
pub fn vote_is_true(
    vote: &Phase2b,
    in_memory: impl Fn(Slot) -> bool,
    on_disk: impl Fn(Slot) -> bool,
) -> Verdict {
    let slots = |to: Slot| (vote.from.0..to.0).map(Slot);
    if let Some(slot) = slots(vote.volatile_to).find(|slot| !in_memory(*slot)) {
        return Err(format!(
            "ballot {}: claims a vote in slot {slot} that was not cast",
            vote.ballot
        ));
    }
    let hollow = slots(vote.durable_to).find(|slot| !on_disk(*slot));
    require(hollow.is_none(), || {
        format!(
            "ballot {}: claims that its vote in slot {} is durable",
            vote.ballot,
            hollow.unwrap_or_default()
        )
    })
}

/// [p1-3] Checks that a promise reports every vote that was cast before it in a lower ballot, for
/// slots from the start of the promise onwards. `cast` is the highest ballot in which this acceptor
/// voted for `slot`.
pub fn promise_is_complete(promise: &Phase1b, slot: Slot, cast: Ballot, value: &Value) -> Verdict {
    if slot < promise.from.max(promise.floor) || cast >= promise.ballot {
        return Ok(());
    }
    let told = promise.extents.iter().find(|extent| extent.range.contains(slot));
    let enough = told.is_some_and(|extent| {
        extent.ballot > cast || (extent.ballot == cast && extent.value == *value)
    });
    require(enough, || {
        format!("promise {}: slot {slot} was voted for in {cast}, and is left out", promise.ballot)
    })
}

/// [time-1] Checks that after a command *now is T* the time is neither below T nor below its
/// previous value.
pub fn time_goes_on(before: GroupTime, said_ms: u64, after: GroupTime) -> Verdict {
    require(after.ms() >= before.ms() && after.ms() >= said_ms, || {
        let (before, after) = (before.ms(), after.ms());
        format!("time {after} after time {before} and \"now is {said_ms}\"")
    })
}

/// [era-3] Checks that eras begin in order.
pub fn eras_in_order(before: Era, after: Era) -> Verdict {
    require(after >= before, || format!("era {after} after era {before}"))
}

/// [ballot-3] Checks that a node starts a ballot only in an era that has begun on this node. `own`
/// is the node's era.
pub fn ballot_era_is_decided(own: Era, ballot: Ballot) -> Verdict {
    require(ballot.era <= own, || format!("ballot {ballot} of a node in era {own}"))
}

/// [era-6] Checks that a ballot proposes only in slots after the one that began its era. `begun` is
/// the first slot of that era; `None` if it has not begun.
pub fn proposal_is_behind_its_era(ballot: Ballot, slot: Slot, begun: Option<Slot>) -> Verdict {
    require(begun.is_some_and(|begun| slot >= begun), || {
        format!("ballot {ballot} proposes in slot {slot}, before its era")
    })
}

/// [era-12], [trim-1] Checks that every phase-1 quorum includes a member that holds the chosen
/// value. `without` lists the members that lack it.
pub fn quorum_has_holder(configuration: &Configuration, slot: Slot, without: &[Member]) -> Verdict {
    require(!could_promise(configuration, without), || {
        format!("slot {slot}: a quorum of {configuration} does not hold what was chosen there")
    })
}

/// [read-1] Checks that the index of a read covers every slot that any node knew to be decided when
/// the read arrived.
pub fn read_is_fresh(known_to: Slot, index: Slot) -> Verdict {
    require(index >= known_to, || {
        format!("read index {index}; everything below {known_to} was known to be decided")
    })
}

/// [value-3], [catch-1] Checks that a node votes for a value, or decides it, only if it has the
/// value's bytes.
pub fn bytes_are_held(slot: Slot, value: &Value, held: bool) -> Verdict {
    require(held || !value.has_bytes(), || {
        format!("slot {slot}: the bytes of {value} are not here")
    })
}
