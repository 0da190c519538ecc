//! Faults to inject while clients work: processes are killed or paused, and links drop all frames.

use std::{
    fmt, io,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use crate::{network::Network, nodes::NodeCluster};
use quorate_core::dice::Dice;

/// Range of the time from the first fault of a step to the second, in milliseconds.
const SECOND_FAULT_DELAY_MS: (u64, u64) = (100, 500);
/// Range of the duration of a fault, in milliseconds. It covers several election timeouts.
const FAULT_DURATION_MS: (u64, u64) = (500, 1300);

/// A fault of one or more processes: SIGKILL (`Kill…`), SIGSTOP (`Pause…`) or SIGTERM (`Stop…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    KillLeader,
    KillFollower,
    /// The leader and a follower.
    KillTwo,
    /// All nodes at once.
    KillAll,
    PauseLeader,
    PauseFollower,
    /// The leader and a follower.
    PauseTwo,
    StopLeader,
    StopFollower,
}

/// A fault of the links between nodes. Clients can still reach all nodes unless an interface is
/// down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    IsolateLeader,
    IsolateFollower,
    /// Drop all messages from the leader.
    MuteLeader,
    /// Drop all messages to the leader.
    DeafenLeader,
    /// Cut the link between the leader and one follower. The third node can reach both.
    OneLink,
    EveryLink,
    /// Shut down the leader's interface.
    DownLeader,
    DownFollower,
    /// Remove the leader's interface, with all programs attached to it.
    UnplugLeader,
    UnplugFollower,
    /// Kill the leader's external device processes, which lose their memory.
    ResetLeader,
    ResetFollower,
}

const DURABLE_FAULTS: [ProcessFault; 9] = [
    ProcessFault::KillLeader,
    ProcessFault::KillFollower,
    ProcessFault::KillTwo,
    ProcessFault::KillAll,
    ProcessFault::PauseLeader,
    ProcessFault::PauseFollower,
    ProcessFault::PauseTwo,
    ProcessFault::StopLeader,
    ProcessFault::StopFollower,
];

/// Process faults for a volatile cluster: no kills, because they lose votes permanently
/// ([volatile-1]).
const VOLATILE_FAULTS: [ProcessFault; 5] = [
    ProcessFault::PauseLeader,
    ProcessFault::PauseFollower,
    ProcessFault::PauseTwo,
    ProcessFault::StopLeader,
    ProcessFault::StopFollower,
];

const LINK_FAULTS: [LinkFault; 8] = [
    LinkFault::IsolateLeader,
    LinkFault::IsolateFollower,
    LinkFault::MuteLeader,
    LinkFault::DeafenLeader,
    LinkFault::OneLink,
    LinkFault::EveryLink,
    LinkFault::DownLeader,
    LinkFault::DownFollower,
];

/// Faults of devices attached to an interface.
const INTERFACE_DEVICE_FAULTS: [LinkFault; 2] =
    [LinkFault::UnplugLeader, LinkFault::UnplugFollower];

/// Faults of external device processes, which lose votes. For durable clusters only.
const EXTERNAL_DEVICE_FAULTS: [LinkFault; 2] = [LinkFault::ResetLeader, LinkFault::ResetFollower];

/// A step of a plan: one fault, or two faults at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStep {
    process_fault: Option<ProcessFault>,
    link_fault: Option<LinkFault>,
}

impl fmt::Display for FaultStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.link_fault, self.process_fault) {
            (Some(rupture), Some(harm)) => write!(f, "{rupture:?} + {harm:?}"),
            (Some(rupture), None) => write!(f, "{rupture:?}"),
            (None, Some(harm)) => write!(f, "{harm:?}"),
            (None, None) => write!(f, "nothing"),
        }
    }
}

impl FaultStep {
    /// Returns whether votes that exist only in memory survive the step.
    pub fn keeps_memory(self) -> bool {
        self.process_fault.is_none_or(|harm| VOLATILE_FAULTS.contains(&harm))
    }
}

impl FromStr for FaultStep {
    type Err = io::Error;

    /// Parses the displayed form: the name of a fault, or two names joined by `+`.
    fn from_str(text: &str) -> io::Result<Self> {
        let mut step = Self::default();
        for name in text.split('+').map(str::trim) {
            let harm = DURABLE_FAULTS.into_iter().find(|harm| format!("{harm:?}") == name);
            let ruptures = LINK_FAULTS.into_iter().chain(INTERFACE_DEVICE_FAULTS);
            let mut ruptures = ruptures.chain(EXTERNAL_DEVICE_FAULTS);
            let rupture = ruptures.find(|one| format!("{one:?}") == name);
            if harm.is_none() && rupture.is_none() {
                return Err(io::Error::other(format!(
                    "{name}: not a fault; there are {DURABLE_FAULTS:?}, {LINK_FAULTS:?}, {INTERFACE_DEVICE_FAULTS:?} and {EXTERNAL_DEVICE_FAULTS:?}"
                )));
            }
            step.process_fault = step.process_fault.or(harm);
            step.link_fault = step.link_fault.or(rupture);
        }
        Ok(step)
    }
}

/// Endless sequence of steps. Every fault occurs before any is repeated.
pub struct FaultPlan {
    process_faults: Vec<ProcessFault>,
    link_faults: Vec<LinkFault>,
    only_step: Option<FaultStep>,
    /// Highest id among the voters.
    voter_id_max: u32,
    step_count: usize,
    random: Dice,
}

impl FaultPlan {
    /// Creates a plan. Without `links`, there are no faults of links.
    pub fn new(durable: bool, links: bool, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut harms = if durable { DURABLE_FAULTS.to_vec() } else { VOLATILE_FAULTS.to_vec() };
        let mut ruptures = if links { LINK_FAULTS.to_vec() } else { Vec::new() };
        dice.shuffle(&mut harms);
        dice.shuffle(&mut ruptures);
        Self {
            process_faults: harms,
            link_faults: ruptures,
            only_step: None,
            voter_id_max: u32::MAX,
            step_count: 0,
            random: dice,
        }
    }

    pub fn add_interface_faults(&mut self, devices: bool) {
        self.add_link_faults(devices, &INTERFACE_DEVICE_FAULTS);
    }

    pub fn add_device_faults(&mut self, boxes: bool) {
        self.add_link_faults(boxes, &EXTERNAL_DEVICE_FAULTS);
    }

    fn add_link_faults(&mut self, wanted: bool, ruptures: &[LinkFault]) {
        let has = self.link_faults.iter().any(|one| ruptures.contains(one));
        if !wanted {
            self.link_faults.retain(|one| !ruptures.contains(one));
        } else if !has && !self.link_faults.is_empty() {
            self.link_faults.splice(0..0, ruptures.iter().copied());
        }
    }

    /// Makes nodes above `voters` learners, which one in four steps harms instead of voters.
    pub const fn with_voters(&mut self, voters: u32) {
        self.voter_id_max = voters;
    }

    /// Restricts the plan to a single step, if one is given.
    pub const fn only_step(mut self, step: Option<FaultStep>) -> Self {
        self.only_step = step;
        self
    }

    /// Draws the next step. In turn, it is a process fault, a link fault, or both at once.
    pub fn draw_step(&mut self) -> FaultStep {
        if let Some(step) = self.only_step {
            return step;
        }
        let at = self.step_count;
        self.step_count += 1;
        let harm = |at: usize| self.process_faults.get(at % self.process_faults.len()).copied();
        if self.link_faults.is_empty() {
            return FaultStep { process_fault: harm(at), link_fault: None };
        }
        // Each kind of fault occurs in two of three steps.
        let turn = at / 3 * 2 + usize::from(at % 3 == 2);
        let rupture = self.link_faults[turn % self.link_faults.len()];
        FaultStep {
            process_fault: (at % 3 != 1).then(|| harm(turn)).flatten(),
            link_fault: (!at.is_multiple_of(3)).then_some(rupture),
        }
    }

    /// Executes a step, and waits until all nodes run, are connected and serve again. Returns the
    /// time from the end of the last fault until then.
    pub fn run_step(
        &mut self,
        step: FaultStep,
        nodes: &mut NodeCluster,
        network: Option<&Network>,
    ) -> io::Result<Duration> {
        let leader = nodes.leader()?;
        let mut followers = nodes.ids();
        followers.retain(|id| *id != leader);
        self.random.shuffle(&mut followers);
        let (voters, learner_first) = (self.voter_id_max, self.random.chance(1, 4));
        followers.sort_by_key(|id| (*id <= voters) == learner_first);
        let roles = Roles { leader, followers };
        if let (Some(rupture), Some(network)) = (step.link_fault, network) {
            network.shut_interfaces(&roles.shut_nodes(rupture))?;
            network.remove_interfaces(&roles.removed_nodes(rupture))?;
            network.cut_links(&roles.cut_pairs(rupture))?;
            for id in roles.device_killed_nodes(rupture) {
                nodes.node(id)?.kill_children()?;
            }
            if step.process_fault.is_some() {
                self.wait_random(SECOND_FAULT_DELAY_MS);
            }
        }
        let harmed = step.process_fault.map(|harm| (harm, roles.faulty_nodes(harm)));
        if let Some((harm, ids)) = &harmed {
            begin_fault(*harm, ids, nodes)?;
        }
        self.wait_random(FAULT_DURATION_MS);
        // A restarted node must find its address on the interface.
        let unplugs = step.link_fault.is_some_and(|one| INTERFACE_DEVICE_FAULTS.contains(&one));
        let heals_first = self.random.chance(1, 2) || unplugs;
        if heals_first && let Some(network) = network {
            network.heal_links()?;
            self.wait_random(SECOND_FAULT_DELAY_MS);
        }
        if let Some((harm, ids)) = &harmed {
            end_fault(*harm, ids, nodes)?;
        }
        if !heals_first && let Some(network) = network {
            if harmed.is_some() {
                self.wait_random(SECOND_FAULT_DELAY_MS);
            }
            network.heal_links()?;
        }
        let healed = Instant::now();
        nodes.wait_until_all_serve()?;
        Ok(healed.elapsed())
    }

    fn wait_random(&mut self, (low, high): (u64, u64)) {
        thread::sleep(Duration::from_millis(self.random.between(low, high - 1)));
    }
}

struct Roles {
    leader: u32,
    followers: Vec<u32>,
}

impl Roles {
    fn faulty_nodes(&self, harm: ProcessFault) -> Vec<u32> {
        let follower = self.followers[0];
        match harm {
            ProcessFault::KillLeader | ProcessFault::PauseLeader | ProcessFault::StopLeader => {
                vec![self.leader]
            }
            ProcessFault::KillFollower
            | ProcessFault::PauseFollower
            | ProcessFault::StopFollower => vec![follower],
            ProcessFault::KillTwo | ProcessFault::PauseTwo => vec![self.leader, follower],
            ProcessFault::KillAll => {
                std::iter::once(self.leader).chain(self.followers.iter().copied()).collect()
            }
        }
    }

    /// Returns the directed pairs of nodes between which frames are dropped.
    fn cut_pairs(&self, rupture: LinkFault) -> Vec<(u32, u32)> {
        let all = || std::iter::once(self.leader).chain(self.followers.iter().copied());
        let from =
            |one: u32| all().filter(move |other| *other != one).map(move |other| (one, other));
        let to = |one: u32| from(one).map(|(one, other)| (other, one));
        match rupture {
            LinkFault::IsolateLeader => from(self.leader).chain(to(self.leader)).collect(),
            LinkFault::IsolateFollower => {
                let follower = self.followers[0];
                from(follower).chain(to(follower)).collect()
            }
            LinkFault::MuteLeader => from(self.leader).collect(),
            LinkFault::DeafenLeader => to(self.leader).collect(),
            LinkFault::OneLink => {
                let follower = self.followers[0];
                vec![(self.leader, follower), (follower, self.leader)]
            }
            LinkFault::EveryLink => all().flat_map(from).collect(),
            LinkFault::DownLeader
            | LinkFault::DownFollower
            | LinkFault::UnplugLeader
            | LinkFault::UnplugFollower
            | LinkFault::ResetLeader
            | LinkFault::ResetFollower => Vec::new(),
        }
    }

    /// Returns the nodes whose interface is shut down.
    fn shut_nodes(&self, rupture: LinkFault) -> Vec<u32> {
        match rupture {
            LinkFault::DownLeader => vec![self.leader],
            LinkFault::DownFollower => vec![self.followers[0]],
            _ => Vec::new(),
        }
    }

    /// Returns the nodes whose interface is removed.
    fn removed_nodes(&self, rupture: LinkFault) -> Vec<u32> {
        match rupture {
            LinkFault::UnplugLeader => vec![self.leader],
            LinkFault::UnplugFollower => vec![self.followers[0]],
            _ => Vec::new(),
        }
    }

    /// Returns the nodes whose external device processes are killed.
    fn device_killed_nodes(&self, rupture: LinkFault) -> Vec<u32> {
        match rupture {
            LinkFault::ResetLeader => vec![self.leader],
            LinkFault::ResetFollower => vec![self.followers[0]],
            _ => Vec::new(),
        }
    }
}

fn begin_fault(harm: ProcessFault, ids: &[u32], nodes: &mut NodeCluster) -> io::Result<()> {
    match harm {
        ProcessFault::KillLeader
        | ProcessFault::KillFollower
        | ProcessFault::KillTwo
        | ProcessFault::KillAll => nodes.kill(ids),
        ProcessFault::PauseLeader | ProcessFault::PauseFollower | ProcessFault::PauseTwo => {
            ids.iter().try_for_each(|id| nodes.pause(*id))
        }
        ProcessFault::StopLeader | ProcessFault::StopFollower => nodes.terminate(ids),
    }
}

fn end_fault(harm: ProcessFault, ids: &[u32], nodes: &mut NodeCluster) -> io::Result<()> {
    match harm {
        ProcessFault::PauseLeader | ProcessFault::PauseFollower | ProcessFault::PauseTwo => {
            ids.iter().try_for_each(|id| nodes.resume(*id))
        }
        _ => nodes.restart(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_occurs_in_the_first_steps() {
        let mut plan = FaultPlan::new(true, true, 1);
        let steps: Vec<FaultStep> = (0..14).map(|_| plan.draw_step()).collect();
        for harm in DURABLE_FAULTS {
            assert!(steps.iter().any(|step| step.process_fault == Some(harm)), "{harm:?}");
        }
        for rupture in LINK_FAULTS {
            assert!(steps.iter().any(|step| step.link_fault == Some(rupture)), "{rupture:?}");
        }
    }

    #[test]
    fn device_faults_come_first() {
        let mut plan = FaultPlan::new(true, true, 1);
        plan.add_interface_faults(true);
        let steps: Vec<FaultStep> = (0..4).map(|_| plan.draw_step()).collect();
        for rupture in INTERFACE_DEVICE_FAULTS {
            assert!(steps.iter().any(|step| step.link_fault == Some(rupture)));
        }
        let mut plan = FaultPlan::new(true, true, 1);
        plan.add_interface_faults(true);
        plan.add_device_faults(true);
        let steps: Vec<FaultStep> = (0..4).map(|_| plan.draw_step()).collect();
        assert!(steps.iter().any(|step| {
            step.link_fault.is_some_and(|one| EXTERNAL_DEVICE_FAULTS.contains(&one))
        }));
        plan.add_device_faults(false);
        assert_eq!(plan.link_faults.len(), LINK_FAULTS.len() + INTERFACE_DEVICE_FAULTS.len());
        let mut plan = FaultPlan::new(true, false, 1);
        plan.add_interface_faults(true);
        assert!((0..50).all(|_| plan.draw_step().link_fault.is_none()));
    }

    #[test]
    fn a_volatile_cluster_is_not_killed() {
        let mut plan = FaultPlan::new(false, false, 1);
        assert!((0..50).all(|_| {
            plan.draw_step().process_fault.is_some_and(|harm| VOLATILE_FAULTS.contains(&harm))
        }));
    }

    #[test]
    fn displayed_steps_are_parsed_back() {
        for text in ["KillAll", "OneLink", "UnplugLeader", "EveryLink + PauseTwo"] {
            assert_eq!(text.parse::<FaultStep>().unwrap().to_string(), text);
        }
        assert!("KillNobody".parse::<FaultStep>().is_err());
    }

    #[test]
    fn ruptures_cut_the_named_links() {
        let roles = Roles { leader: 2, followers: vec![3, 1] };
        assert_eq!(roles.cut_pairs(LinkFault::MuteLeader), [(2, 3), (2, 1)]);
        assert_eq!(roles.cut_pairs(LinkFault::DeafenLeader), [(3, 2), (1, 2)]);
        assert_eq!(roles.cut_pairs(LinkFault::OneLink), [(2, 3), (3, 2)]);
        assert_eq!(roles.cut_pairs(LinkFault::EveryLink).len(), 6);
        assert_eq!(roles.cut_pairs(LinkFault::DownLeader), []);
        assert_eq!(roles.shut_nodes(LinkFault::DownLeader), [2]);
        assert_eq!(roles.shut_nodes(LinkFault::DownFollower), [3]);
        assert_eq!(roles.removed_nodes(LinkFault::UnplugLeader), [2]);
        assert!(roles.shut_nodes(LinkFault::UnplugLeader).is_empty());
        assert_eq!(roles.device_killed_nodes(LinkFault::ResetFollower), [3]);
        assert!(roles.device_killed_nodes(LinkFault::UnplugLeader).is_empty());
    }
}
