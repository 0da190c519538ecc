//! Planner of valid steps from the current configuration to the target ([era-4], [cast-6]).
//!
//! Each step is computed anew from the current configuration, so any leader can continue a plan.
//! Among the possible paths the planner prefers, in this order: those on which every configuration
//! survives the loss of as many live members as the configurations at both ends do; those on which
//! the same holds once the members that are down have recovered; those on which the leader moves to
//! the next era without a pause ([cast-1]); the shortest.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use quorate_core::{
    configuration::{Change, Configuration, InvalidConfiguration, MEMBERS_MAX, Voter},
    leader::split_quorums,
    node_id::Member,
    quorum::{MemberSet, Phase, QuorumRule},
};

use super::Plan;

/// Maximum number of configurations searched. If no path is found within it, the planner first
/// raises all weights and then lowers them.
const CONFIGURATIONS_MAX: usize = 2000;
/// Maximum number of members with which a search is tried; with more, its checks delay the reactor.
const SEARCH_MEMBERS_MAX: usize = 7;
/// Cost, in steps, of each loss that both ends of the path survive and a configuration does not.
const LOSS_COST: u32 = 10_000;
/// Like [`LOSS_COST`], but with members that are down but may recover counted as alive.
const DOWN_LOSS_COST: u32 = 1_000;
/// Cost, in steps, of a configuration in which the leader pauses before it moves to the next era.
const PAUSE_COST: u32 = 100;
/// Maximum target weight. Bounds the number of steps, since weights change by one per era, or all
/// by a factor.
pub const TARGET_WEIGHT_MAX: u32 = 64;
/// Factors by which all weights may be multiplied or divided.
const WEIGHT_FACTORS: [u32; 2] = [2, 3];

/// Target weights; an absent member has weight 0.
pub type Goal = BTreeMap<Member, u32>;

/// Steps of a plan, with the number of configurations that are risky or cause a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSteps {
    /// Changes in order; empty if the goal is reached.
    pub changes: Vec<Change>,
    /// Number of configurations on the path that survive fewer losses than those at both ends.
    pub fragile_count: usize,
    /// Number of configurations in which the leader pauses for a round trip ([cast-5]).
    pub pause_count: usize,
}

/// Reason why no path exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPath {
    /// No member would have a vote.
    Empty,
    /// The path would have more than [`MEMBERS_MAX`] members.
    TooMany,
    /// A target weight exceeds [`TARGET_WEIGHT_MAX`].
    TooHeavy,
    /// No path is valid: on every one tried, quorums would not intersect or weights would be out of
    /// bounds.
    Invalid,
}

/// Facts about the members that the planner considers in addition to their weights.
#[derive(Clone, Copy)]
pub struct MemberFacts<'a> {
    pub leader: Option<Member>,
    /// Returns whether a member is alive.
    pub is_alive: &'a dyn Fn(Member) -> bool,
    /// Returns whether a member is gone permanently because its node forgot its votes
    /// ([volatile-1]).
    pub is_gone: &'a dyn Fn(Member) -> bool,
}

impl MemberFacts<'_> {
    /// Assumes no leader and that all members are alive.
    pub const ALL_ALIVE: Self = Self { leader: None, is_alive: &|_| true, is_gone: &|_| false };
}

impl MemberFacts<'_> {
    /// Returns the number of losses that a configuration survives once members that are down are
    /// back.
    fn survived_later(&self, at: &Configuration) -> Option<usize> {
        losses_survived(at, &|member| (self.is_alive)(member) || !(self.is_gone)(member))
    }
}

/// Weights of all members that have weight at either end of the path, in order of the members.
type Weights = Vec<u32>;
/// Configurations reached by the search: cost, previous configuration, and change from it.
type ReachedConfigurations = BTreeMap<Weights, (u32, Option<(Weights, Change)>)>;

struct Search<'a> {
    from: &'a Configuration,
    members: Vec<Member>,
    goal: Weights,
    facts: MemberFacts<'a>,
    /// Number of losses that every configuration should survive.
    survivable_losses: usize,
    /// Like `survivable_losses`, with members that are down but may recover counted as alive.
    survivable_losses_later: usize,
    weight_max: u32,
}

/// Returns the configuration with the target weights and unchanged rule, class and roles.
pub fn goal_configuration(
    from: &Configuration,
    goal: &Goal,
) -> Result<Configuration, InvalidConfiguration> {
    let voters = goal.iter().filter(|(_, weight)| **weight > 0);
    let voters = voters.map(|(member, weight)| Voter {
        member: *member,
        weight: *weight,
        auxiliary: from.position(*member).is_some_and(|at| from.members()[at].auxiliary),
    });
    Configuration::new(voters.collect(), from.rule(), from.class())
}

pub fn plan(
    from: &Configuration,
    goal: &Goal,
    sight: MemberFacts<'_>,
) -> Result<PlannedSteps, NoPath> {
    let mut members: Vec<Member> = from.members().iter().map(|voter| voter.member).collect();
    members.extend(goal.iter().filter(|(_, w)| **w > 0).map(|(member, _)| *member));
    members.sort_unstable();
    members.dedup();
    if goal.values().all(|weight| *weight == 0) {
        return Err(NoPath::Empty);
    }
    if members.len() > MEMBERS_MAX {
        return Err(NoPath::TooMany);
    }
    if goal.values().any(|weight| *weight > TARGET_WEIGHT_MAX) {
        return Err(NoPath::TooHeavy);
    }
    let weights = |of: &dyn Fn(Member) -> u32| members.iter().map(|m| of(*m)).collect::<Weights>();
    let start = weights(&|member| weight_in(from, member));
    let end = weights(&|member| goal.get(&member).copied().unwrap_or(0));
    let most = start.iter().chain(&end).copied().max().unwrap_or(1);
    let mut search = Search {
        from,
        members: members.clone(),
        goal: end.clone(),
        facts: sight,
        survivable_losses: 0,
        survivable_losses_later: 0,
        weight_max: most.saturating_mul(2).saturating_add(1),
    };
    // The final configuration counts as well, if it is valid.
    let last = search.configuration(&end);
    let least = |survived: &dyn Fn(&Configuration) -> Option<usize>| {
        let least = survived(from).min(last.as_ref().and_then(survived));
        least.unwrap_or(0)
    };
    search.survivable_losses = least(&|at| losses_survived(at, sight.is_alive));
    search.survivable_losses_later = least(&|at| sight.survived_later(at));
    let way = search.cheapest_path(&start).or_else(|| search.raise_then_lower_path(&start));
    let way = way.ok_or(NoPath::Invalid)?;
    Ok(search.count_steps(&start, way))
}

/// Returns a plan's changes except removals: of weights first, then of roles and the rule.
pub fn plan_changes(
    from: &Configuration,
    plan: &Plan,
    sight: MemberFacts<'_>,
) -> Result<Vec<Change>, NoPath> {
    let mut changes = self::plan(from, &plan.goal, sight)?.changes;
    let mut at = from.clone();
    for change in &changes {
        at = at.after_change(*change).map_err(|_| NoPath::Invalid)?;
    }
    for change in plan.remaining_changes(&at) {
        at = at.after_change(change).map_err(|_| NoPath::Invalid)?;
        changes.push(change);
    }
    Ok(changes)
}

fn weight_in(configuration: &Configuration, member: Member) -> u32 {
    let at = configuration.position(member);
    at.map_or(0, |at| configuration.members()[at].weight)
}

/// Returns the number of live members that may be lost in the worst case while a quorum for both
/// phases remains; `None` if there is no quorum even now.
pub fn losses_survived(
    configuration: &Configuration,
    lives: &dyn Fn(Member) -> bool,
) -> Option<usize> {
    let members = configuration.members();
    let mut living: Vec<usize> =
        (0..members.len()).filter(|at| lives(members[*at].member)).collect();
    let is_quorum =
        |set| configuration.is_quorum(Phase::One, set) && configuration.is_quorum(Phase::Two, set);
    let rest = |living: &[usize]| {
        let set = living.iter().copied();
        set.fold(MemberSet::default(), MemberSet::with)
    };
    if !is_quorum(rest(&living)) {
        return None;
    }
    if let QuorumRule::Grid { .. } = configuration.rule() {
        // In a grid it matters which members are lost, not their weights.
        let all = rest(&living);
        let without = |lost: &usize| is_quorum(MemberSet(all.0 & !(1 << lost)));
        return Some(usize::from(living.iter().all(without)));
    }
    // Losing the heaviest members is the worst case.
    living.sort_by_key(|at| members[*at].weight);
    let mut survived = 0;
    while living.pop().is_some() && is_quorum(rest(&living)) {
        survived += 1;
    }
    Some(survived)
}

impl Search<'_> {
    /// Returns the configuration with `weights` and all else unchanged, if valid.
    fn configuration(&self, weights: &Weights) -> Option<Configuration> {
        let goal = self.members.iter().copied().zip(weights.iter().copied());
        goal_configuration(self.from, &goal.collect()).ok()
    }

    /// Returns the weights that are one step away, each with its change.
    fn neighbours(&self, at: &Weights) -> Vec<(Change, Weights)> {
        let mut out = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            let mut more = at.clone();
            more[index] += 1;
            if more[index] <= self.weight_max {
                out.push((Change::Increment(*member), more));
            }
            if at[index] > 0 {
                let mut less = at.clone();
                less[index] -= 1;
                out.push((Change::Decrement(*member), less));
            }
        }
        for factor in WEIGHT_FACTORS {
            let more: Weights = at.iter().map(|weight| weight * factor).collect();
            if more.iter().all(|weight| *weight <= self.weight_max) {
                out.push((Change::Multiply(factor), more));
            }
            if at.iter().all(|weight| weight % factor == 0) {
                let less = at.iter().map(|weight| weight / factor).collect();
                out.push((Change::Divide(factor), less));
            }
        }
        out
    }

    /// Returns the cost of a configuration; `None` if the group could not decide in it.
    fn cost(&self, configuration: &Configuration) -> Option<u32> {
        let missing = u32::try_from(self.missing_losses(configuration)?).unwrap_or(u32::MAX);
        let later = self.facts.survived_later(configuration).unwrap_or(0);
        let bare =
            u32::try_from(self.survivable_losses_later.saturating_sub(later)).unwrap_or(u32::MAX);
        let pauses = u32::from(self.causes_pause(configuration));
        let fragile = missing.saturating_mul(LOSS_COST);
        Some(fragile.saturating_add(bare.saturating_mul(DOWN_LOSS_COST)) + pauses * PAUSE_COST + 1)
    }

    /// Returns the number of further losses that it would have to survive; `None` without quorum.
    fn missing_losses(&self, configuration: &Configuration) -> Option<usize> {
        let survived = losses_survived(configuration, self.facts.is_alive)?;
        Some(self.survivable_losses.saturating_sub(survived))
    }

    fn causes_pause(&self, configuration: &Configuration) -> bool {
        let MemberFacts { leader, is_alive: lives, .. } = self.facts;
        let full = |member| !configuration.is_auxiliary(member);
        leader.is_some_and(|leader| split_quorums(configuration, leader, lives, full).is_none())
    }

    /// Returns the cheapest path, if the search finds one within its limits.
    fn cheapest_path(&self, start: &Weights) -> Option<Vec<Change>> {
        let mut known = ReachedConfigurations::new();
        let mut queue = BinaryHeap::from([Reverse((0, start.clone()))]);
        known.insert(start.clone(), (0, None));
        let mut looked_at = 0;
        if self.members.len() > SEARCH_MEMBERS_MAX {
            return None;
        }
        while let Some(Reverse((cost, at))) = queue.pop() {
            if at == self.goal {
                return Some(path_to(&known, at));
            }
            if known.get(&at).is_some_and(|(best, _)| *best < cost) {
                continue;
            }
            looked_at += 1;
            if looked_at > CONFIGURATIONS_MAX {
                return None;
            }
            let here = self.configuration(&at)?;
            for (change, next) in self.neighbours(&at) {
                let Ok(configuration) = here.after_change(change) else {
                    continue;
                };
                let Some(there) = self.cost(&configuration) else {
                    continue;
                };
                let cost = cost + there;
                if known.get(&next).is_none_or(|(best, _)| cost < *best) {
                    known.insert(next.clone(), (cost, Some((at.clone(), change))));
                    queue.push(Reverse((cost, next)));
                }
            }
        }
        None
    }

    /// Returns a path on which weights are first raised and then lowered. Members that forgot their
    /// votes are lowered before that, since only one member of a node may have weight at a time.
    fn raise_then_lower_path(&self, start: &Weights) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        let returns = |index: usize| {
            let node = self.members[index].node;
            let others = self.members.iter().zip(&self.goal).enumerate();
            let mut others = others.filter(|(other, _)| *other != index);
            self.goal[index] == 0
                && others.any(|(_, (member, weight))| member.node == node && *weight > 0)
        };
        for (index, member) in self.members.iter().enumerate() {
            let surplus = if returns(index) { start[index] as usize } else { 0 };
            changes.extend(std::iter::repeat_n(Change::Decrement(*member), surplus));
        }
        for (index, member) in self.members.iter().enumerate() {
            let missing = self.goal[index].saturating_sub(start[index]) as usize;
            changes.extend(std::iter::repeat_n(Change::Increment(*member), missing));
        }
        for (index, member) in self.members.iter().enumerate() {
            let surplus = match returns(index) {
                true => 0,
                false => start[index].saturating_sub(self.goal[index]) as usize,
            };
            changes.extend(std::iter::repeat_n(Change::Decrement(*member), surplus));
        }
        let mut at = self.from.clone();
        for change in &changes {
            at = at.after_change(*change).ok()?;
        }
        Some(changes)
    }

    fn count_steps(&self, start: &Weights, changes: Vec<Change>) -> PlannedSteps {
        let (mut fragile, mut pauses) = (0, 0);
        let mut at = self.configuration(start);
        for change in &changes {
            at = at.and_then(|at| at.after_change(*change).ok());
            if let Some(at) = &at {
                fragile += usize::from(self.missing_losses(at) != Some(0));
                pauses += usize::from(self.causes_pause(at));
            }
        }
        PlannedSteps { changes, fragile_count: fragile, pause_count: pauses }
    }
}

/// Returns the changes on the path found to these weights.
fn path_to(known: &ReachedConfigurations, mut at: Weights) -> Vec<Change> {
    let mut changes = Vec::new();
    while let Some((_, Some((before, change)))) = known.get(&at) {
        changes.push(*change);
        at = before.clone();
    }
    changes.reverse();
    changes
}

#[cfg(test)]
mod tests {
    use quorate_core::{
        class::Class,
        node_id::{Incarnation, NodeId},
    };

    use super::*;

    fn weighted(weights: &[u32]) -> Configuration {
        let voter = |(node, weight): (u32, &u32)| Voter {
            member: Member::first(node),
            weight: *weight,
            auxiliary: false,
        };
        let voters = (1..).zip(weights).filter(|(_, w)| **w > 0).map(voter);
        Configuration::new(voters.collect(), QuorumRule::Majority, Class::Durable).unwrap()
    }

    fn goal(weights: &[u32]) -> Goal {
        let goal = (1..).zip(weights).filter(|(_, weight)| **weight > 0);
        goal.map(|(node, weight)| (Member::first(node), *weight)).collect()
    }

    fn follow_path(from: &[u32], to: &[u32], leader: Option<u32>) -> PlannedSteps {
        let sight = MemberFacts { leader: leader.map(Member::first), ..MemberFacts::ALL_ALIVE };
        let steps = plan(&weighted(from), &goal(to), sight).unwrap();
        let mut at = weighted(from);
        for change in &steps.changes {
            at = at.after_change(*change).unwrap();
        }
        assert_eq!(at, weighted(to), "{from:?} to {to:?}");
        steps
    }

    /// [cast-6] The protocol's example: no configuration is fragile or causes a pause.
    #[test]
    fn a_member_is_replaced_without_pause_or_risk() {
        let steps = follow_path(&[1, 1, 1], &[1, 1, 0, 1], Some(1));
        assert_eq!((steps.fragile_count, steps.pause_count), (0, 0), "{steps:?}");
        assert!(steps.changes.len() <= 8, "{steps:?}");
        // The plain path is fragile and causes a pause.
        let plain = [Change::Increment(Member::first(4)), Change::Decrement(Member::first(3))];
        assert_ne!(steps.changes, plain);
    }

    #[test]
    fn survivable_losses_are_counted_among_live_members() {
        let all = |_| true;
        for (weights, losses) in [
            (&[1][..], 0),
            (&[1, 1], 0),
            (&[1, 1, 1], 1),
            (&[2, 1, 1], 0),
            (&[2, 2, 2, 1], 1),
            (&[1; 5], 2),
            (&[2, 2, 2, 2, 2], 2),
            (&[1, 1, 2, 1, 1], 1),
            (&[1; 7], 3),
        ] {
            let survived = losses_survived(&weighted(weights), &all);
            assert_eq!(survived, Some(losses), "{weights:?}");
        }
        let without_first = |member: Member| member.node.0 != 1;
        let survived = |weights| losses_survived(&weighted(weights), &without_first);
        assert_eq!(survived(&[1; 5]), Some(1));
        assert_eq!(survived(&[1, 1, 2, 1, 1]), Some(0));
        assert_eq!(survived(&[1, 1]), None, "there is no quorum");
    }

    /// [class-5] A lost member already counts as a loss: no weight is raised if the group could
    /// then not survive another loss that it should survive.
    #[test]
    fn plan_tolerates_as_many_losses_as_its_ends() {
        let steps = follow_path(&[1; 5], &[1, 1, 1, 1, 0, 1], Some(1));
        assert_eq!(steps.fragile_count, 0, "{steps:?}");
        let lives = |member: Member| member.node.0 != 1;
        let sight = MemberFacts {
            leader: Some(Member::first(3)),
            is_alive: &lives,
            ..MemberFacts::ALL_ALIVE
        };
        let steps = plan(&weighted(&[1; 5]), &goal(&[0, 1, 1, 1, 1, 1]), sight).unwrap();
        assert_eq!(steps.fragile_count, 0, "{steps:?}");
    }

    /// [class-5] The member to be replaced is down for a moment. It keeps its weight until the new
    /// member has some: in a group of only two members, neither may forget its votes.
    #[test]
    fn member_that_may_return_keeps_its_weight_until_replaced() {
        let (old, new) = (Member::first(2), Member::first(4));
        let (from, to) = (weighted(&[1, 1, 1]), goal(&[1, 0, 1, 1]));
        let lives = |member: Member| member != old;
        let mut sight = MemberFacts {
            leader: Some(Member::first(3)),
            is_alive: &lives,
            ..MemberFacts::ALL_ALIVE
        };
        let steps = plan(&from, &to, sight).unwrap();
        let wanted = [Change::Increment(new), Change::Decrement(old)];
        assert_eq!(steps.changes, wanted);
        // The old member does not lose its weight if the new one is down, too.
        let lives = |member: Member| member != old && member != new;
        sight.is_alive = &lives;
        let mut at = from.clone();
        for change in plan(&from, &to, sight).unwrap().changes {
            at = at.after_change(change).unwrap();
            assert!(losses_survived(&at, &|_| true) >= Some(1), "{at:?}");
            assert!(losses_survived(&at, &lives).is_some(), "{at:?}");
        }
        // A member that forgot its votes is useless, so its weight goes first. The node's new
        // member need not be alive for that.
        let new = Member { incarnation: Incarnation(1), ..old };
        let mut to = goal(&[1, 0, 1]);
        to.insert(new, 1);
        let (lives, gone) = (|member| member != old, |member| member == old);
        (sight.is_alive, sight.is_gone) = (&lives, &gone);
        let steps = plan(&from, &to, sight).unwrap();
        let wanted = [Change::Decrement(old), Change::Increment(new)];
        assert_eq!(steps.changes, wanted);
    }

    /// A member that is down remains a member: another gains weight before any loses its own.
    #[test]
    fn no_step_leaves_live_members_without_a_quorum() {
        let lives = |member: Member| member.node.0 != 3;
        let sight = MemberFacts {
            leader: Some(Member::first(2)),
            is_alive: &lives,
            ..MemberFacts::ALL_ALIVE
        };
        let from = weighted(&[1, 1, 1]);
        let steps = plan(&from, &goal(&[0, 1, 1, 1]), sight).unwrap();
        let mut at = from;
        for change in &steps.changes {
            at = at.after_change(*change).unwrap();
            assert!(losses_survived(&at, &lives).is_some(), "{steps:?}");
        }
    }

    #[test]
    fn a_cluster_grows_and_shrinks() {
        for (from, to) in [
            (&[1][..], &[1, 1, 1][..]),
            (&[1, 1, 1], &[1, 1, 1, 1, 1]),
            (&[1, 1, 1, 1, 1], &[1, 1, 1]),
            (&[1, 1, 1], &[1]),
            (&[1, 1, 1], &[3, 1, 1]),
            (&[1, 1, 1, 1, 1, 1, 1], &[0, 1, 1, 1, 1, 1, 1, 1]),
        ] {
            follow_path(from, to, Some(2).filter(|_| to.len() > 1));
        }
        assert!(follow_path(&[1, 1, 1], &[1, 1, 1], None).changes.is_empty());
    }

    /// [volatile-2], [aux-1] In a group with an auxiliary, the remaining full replica is raised
    /// first: otherwise it could decide nothing alone.
    #[test]
    fn full_replica_that_lost_votes_rejoins_with_an_auxiliary() {
        let member = |node, incarnation| Member {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
        };
        let voter = |node, auxiliary| Voter { member: member(node, 0), weight: 1, auxiliary };
        let voters = vec![voter(1, false), voter(2, false), voter(3, true)];
        let from = Configuration::new(voters, QuorumRule::Majority, Class::Durable).unwrap();
        let goal = [member(1, 1), member(2, 0), member(3, 0)].map(|member| (member, 1));
        let lives = |other: Member| other != member(1, 0);
        let sight = MemberFacts {
            leader: Some(member(2, 0)),
            is_alive: &lives,
            is_gone: &|other| other == member(1, 0),
        };
        let steps = plan(&from, &Goal::from(goal), sight).unwrap();
        assert!(!steps.changes.is_empty());
    }

    #[test]
    fn impossible_goals_are_refused() {
        let from = weighted(&[1, 1, 1]);
        assert_eq!(plan(&from, &Goal::new(), MemberFacts::ALL_ALIVE), Err(NoPath::Empty));
        let many = goal(&[1; 17]);
        assert_eq!(plan(&from, &many, MemberFacts::ALL_ALIVE), Err(NoPath::TooMany));
        let heavy = goal(&[1, TARGET_WEIGHT_MAX + 1, 1]);
        assert_eq!(plan(&from, &heavy, MemberFacts::ALL_ALIVE), Err(NoPath::TooHeavy));
        follow_path(&[1, 1, 1], &[1, TARGET_WEIGHT_MAX, 1], None);
        let rule = QuorumRule::Flexible { phase1: 2, phase2: 2 };
        let flexible = Configuration::new(from.members().to_vec(), rule, Class::Durable).unwrap();
        let five = goal(&[1, 1, 1, 1, 1]);
        assert_eq!(plan(&flexible, &five, MemberFacts::ALL_ALIVE), Err(NoPath::Invalid));
    }

    /// [volatile-2] One of many members forgot its votes: its old weight goes first.
    #[test]
    fn member_that_lost_its_votes_loses_its_old_weight_first() {
        let from = weighted(&[1; 7]);
        let mut to = goal(&[1, 0, 1, 1, 1, 1, 1]);
        let (old, new) =
            (Member::first(2), Member { incarnation: Incarnation(1), ..Member::first(2) });
        to.insert(new, 1);
        let sight = MemberFacts {
            leader: Some(Member::first(1)),
            is_alive: &|member| member != old,
            is_gone: &|member| member == old,
        };
        let steps = plan(&from, &to, sight).unwrap();
        let wanted = [Change::Decrement(old), Change::Increment(new)];
        assert_eq!(steps.changes, wanted);
    }

    /// The plan for a leader with many members is still found immediately.
    #[test]
    fn large_change_is_planned_without_search() {
        let from = [1; 9];
        let mut to = [1; 12];
        to[0] = 0;
        follow_path(&from, &to, Some(2));
    }
}
