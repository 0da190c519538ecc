//! Faults to inject while clients work: processes are killed or paused, and links drop all frames.

use std::{
    fmt, io,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use crate::{network::Network, nodes::Nodes};
use quorate_core::dice::Dice;

/// Range of the time from the first fault of a step to the second, in milliseconds.
const SECOND_MS: (u64, u64) = (100, 500);
/// Range of the duration of a fault, in milliseconds. It covers several election timeouts.
const LASTS_MS: (u64, u64) = (500, 1300);

/// A fault of one or more processes: SIGKILL (`Kill…`), SIGSTOP (`Pause…`) or SIGTERM (`Stop…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
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
pub enum Rupture {
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

const DURABLE: [Harm; 9] = [
    Harm::KillLeader,
    Harm::KillFollower,
    Harm::KillTwo,
    Harm::KillAll,
    Harm::PauseLeader,
    Harm::PauseFollower,
    Harm::PauseTwo,
    Harm::StopLeader,
    Harm::StopFollower,
];

/// Process faults for a volatile cluster: no kills, because they lose votes permanently
/// ([volatile-1]).
const VOLATILE: [Harm; 5] =
    [Harm::PauseLeader, Harm::PauseFollower, Harm::PauseTwo, Harm::StopLeader, Harm::StopFollower];

const RUPTURES: [Rupture; 8] = [
    Rupture::IsolateLeader,
    Rupture::IsolateFollower,
    Rupture::MuteLeader,
    Rupture::DeafenLeader,
    Rupture::OneLink,
    Rupture::EveryLink,
    Rupture::DownLeader,
    Rupture::DownFollower,
];

/// Faults of devices attached to an interface.
const RUPTURES_OF_DEVICES: [Rupture; 2] = [Rupture::UnplugLeader, Rupture::UnplugFollower];

/// Faults of external device processes, which lose votes. For durable clusters only.
const RUPTURES_OF_BOXES: [Rupture; 2] = [Rupture::ResetLeader, Rupture::ResetFollower];

/// A step of a plan: one fault, or two faults at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    harm: Option<Harm>,
    rupture: Option<Rupture>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rupture, self.harm) {
            (Some(rupture), Some(harm)) => write!(f, "{rupture:?} + {harm:?}"),
            (Some(rupture), None) => write!(f, "{rupture:?}"),
            (None, Some(harm)) => write!(f, "{harm:?}"),
            (None, None) => write!(f, "nothing"),
        }
    }
}

impl Step {
    /// Returns whether votes that exist only in memory survive the step.
    pub fn spares_memory(self) -> bool {
        self.harm.is_none_or(|harm| VOLATILE.contains(&harm))
    }
}

impl FromStr for Step {
    type Err = io::Error;

    /// Parses the displayed form: the name of a fault, or two names joined by `+`.
    fn from_str(text: &str) -> io::Result<Self> {
        let mut step = Self::default();
        for name in text.split('+').map(str::trim) {
            let harm = DURABLE.into_iter().find(|harm| format!("{harm:?}") == name);
            let ruptures = RUPTURES.into_iter().chain(RUPTURES_OF_DEVICES);
            let mut ruptures = ruptures.chain(RUPTURES_OF_BOXES);
            let rupture = ruptures.find(|one| format!("{one:?}") == name);
            if harm.is_none() && rupture.is_none() {
                return Err(io::Error::other(format!(
                    "{name}: not a fault; there are {DURABLE:?}, {RUPTURES:?}, {RUPTURES_OF_DEVICES:?} and {RUPTURES_OF_BOXES:?}"
                )));
            }
            step.harm = step.harm.or(harm);
            step.rupture = step.rupture.or(rupture);
        }
        Ok(step)
    }
}

/// Endless sequence of steps. Every fault occurs before any is repeated.
pub struct Plan {
    harms: Vec<Harm>,
    ruptures: Vec<Rupture>,
    only: Option<Step>,
    /// Highest id among the voters.
    voters: u32,
    steps: usize,
    dice: Dice,
}

impl Plan {
    /// Creates a plan. Without `links`, there are no faults of links.
    pub fn new(durable: bool, links: bool, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut harms = if durable { DURABLE.to_vec() } else { VOLATILE.to_vec() };
        let mut ruptures = if links { RUPTURES.to_vec() } else { Vec::new() };
        dice.shuffle(&mut harms);
        dice.shuffle(&mut ruptures);
        Self { harms, ruptures, only: None, voters: u32::MAX, steps: 0, dice }
    }

    pub fn with_devices(&mut self, devices: bool) {
        self.with(devices, &RUPTURES_OF_DEVICES);
    }

    pub fn with_boxes(&mut self, boxes: bool) {
        self.with(boxes, &RUPTURES_OF_BOXES);
    }

    fn with(&mut self, wanted: bool, ruptures: &[Rupture]) {
        let has = self.ruptures.iter().any(|one| ruptures.contains(one));
        if !wanted {
            self.ruptures.retain(|one| !ruptures.contains(one));
        } else if !has && !self.ruptures.is_empty() {
            self.ruptures.splice(0..0, ruptures.iter().copied());
        }
    }

    /// Makes nodes above `voters` learners, which one in four steps harms instead of voters.
    pub const fn with_voters(&mut self, voters: u32) {
        self.voters = voters;
    }

    /// Restricts the plan to a single step, if one is given.
    pub const fn only(mut self, step: Option<Step>) -> Self {
        self.only = step;
        self
    }

    /// Draws the next step. In turn, it is a process fault, a link fault, or both at once.
    pub fn draw(&mut self) -> Step {
        if let Some(step) = self.only {
            return step;
        }
        let at = self.steps;
        self.steps += 1;
        let harm = |at: usize| self.harms.get(at % self.harms.len()).copied();
        if self.ruptures.is_empty() {
            return Step { harm: harm(at), rupture: None };
        }
        // Each kind of fault occurs in two of three steps.
        let turn = at / 3 * 2 + usize::from(at % 3 == 2);
        let rupture = self.ruptures[turn % self.ruptures.len()];
        Step {
            harm: (at % 3 != 1).then(|| harm(turn)).flatten(),
            rupture: (!at.is_multiple_of(3)).then_some(rupture),
        }
    }

    /// Executes a step, and waits until all nodes run, are connected and serve again. Returns the
    /// time from the end of the last fault until then.
    pub fn play(
        &mut self,
        step: Step,
        nodes: &mut Nodes,
        network: Option<&Network>,
    ) -> io::Result<Duration> {
        let leader = nodes.leader()?;
        let mut followers = nodes.ids();
        followers.retain(|id| *id != leader);
        self.dice.shuffle(&mut followers);
        let (voters, learner_first) = (self.voters, self.dice.chance(1, 4));
        followers.sort_by_key(|id| (*id <= voters) == learner_first);
        let roles = Roles { leader, followers };
        if let (Some(rupture), Some(network)) = (step.rupture, network) {
            network.take_down(&roles.down(rupture))?;
            network.unplug(&roles.unplugged(rupture))?;
            network.cut(&roles.lost(rupture))?;
            for id in roles.reset(rupture) {
                nodes.node(id)?.kill_children()?;
            }
            if step.harm.is_some() {
                self.wait(SECOND_MS);
            }
        }
        let harmed = step.harm.map(|harm| (harm, roles.harmed(harm)));
        if let Some((harm, ids)) = &harmed {
            begin(*harm, ids, nodes)?;
        }
        self.wait(LASTS_MS);
        // A restarted node must find its address on the interface.
        let unplugs = step.rupture.is_some_and(|one| RUPTURES_OF_DEVICES.contains(&one));
        let heals_first = self.dice.chance(1, 2) || unplugs;
        if heals_first && let Some(network) = network {
            network.heal()?;
            self.wait(SECOND_MS);
        }
        if let Some((harm, ids)) = &harmed {
            end(*harm, ids, nodes)?;
        }
        if !heals_first && let Some(network) = network {
            if harmed.is_some() {
                self.wait(SECOND_MS);
            }
            network.heal()?;
        }
        let healed = Instant::now();
        nodes.wait_until_all_serve()?;
        Ok(healed.elapsed())
    }

    fn wait(&mut self, (low, high): (u64, u64)) {
        thread::sleep(Duration::from_millis(self.dice.between(low, high - 1)));
    }
}

struct Roles {
    leader: u32,
    followers: Vec<u32>,
}

impl Roles {
    fn harmed(&self, harm: Harm) -> Vec<u32> {
        let follower = self.followers[0];
        match harm {
            Harm::KillLeader | Harm::PauseLeader | Harm::StopLeader => vec![self.leader],
            Harm::KillFollower | Harm::PauseFollower | Harm::StopFollower => vec![follower],
            Harm::KillTwo | Harm::PauseTwo => vec![self.leader, follower],
            Harm::KillAll => {
                std::iter::once(self.leader).chain(self.followers.iter().copied()).collect()
            }
        }
    }

    /// Returns the directed pairs of nodes between which frames are dropped.
    fn lost(&self, rupture: Rupture) -> Vec<(u32, u32)> {
        let all = || std::iter::once(self.leader).chain(self.followers.iter().copied());
        let from =
            |one: u32| all().filter(move |other| *other != one).map(move |other| (one, other));
        let to = |one: u32| from(one).map(|(one, other)| (other, one));
        match rupture {
            Rupture::IsolateLeader => from(self.leader).chain(to(self.leader)).collect(),
            Rupture::IsolateFollower => {
                let follower = self.followers[0];
                from(follower).chain(to(follower)).collect()
            }
            Rupture::MuteLeader => from(self.leader).collect(),
            Rupture::DeafenLeader => to(self.leader).collect(),
            Rupture::OneLink => {
                let follower = self.followers[0];
                vec![(self.leader, follower), (follower, self.leader)]
            }
            Rupture::EveryLink => all().flat_map(from).collect(),
            Rupture::DownLeader
            | Rupture::DownFollower
            | Rupture::UnplugLeader
            | Rupture::UnplugFollower
            | Rupture::ResetLeader
            | Rupture::ResetFollower => Vec::new(),
        }
    }

    /// Returns the nodes whose interface is shut down.
    fn down(&self, rupture: Rupture) -> Vec<u32> {
        match rupture {
            Rupture::DownLeader => vec![self.leader],
            Rupture::DownFollower => vec![self.followers[0]],
            _ => Vec::new(),
        }
    }

    /// Returns the nodes whose interface is removed.
    fn unplugged(&self, rupture: Rupture) -> Vec<u32> {
        match rupture {
            Rupture::UnplugLeader => vec![self.leader],
            Rupture::UnplugFollower => vec![self.followers[0]],
            _ => Vec::new(),
        }
    }

    /// Returns the nodes whose external device processes are killed.
    fn reset(&self, rupture: Rupture) -> Vec<u32> {
        match rupture {
            Rupture::ResetLeader => vec![self.leader],
            Rupture::ResetFollower => vec![self.followers[0]],
            _ => Vec::new(),
        }
    }
}

fn begin(harm: Harm, ids: &[u32], nodes: &mut Nodes) -> io::Result<()> {
    match harm {
        Harm::KillLeader | Harm::KillFollower | Harm::KillTwo | Harm::KillAll => nodes.kill(ids),
        Harm::PauseLeader | Harm::PauseFollower | Harm::PauseTwo => {
            ids.iter().try_for_each(|id| nodes.pause(*id))
        }
        Harm::StopLeader | Harm::StopFollower => nodes.terminate(ids),
    }
}

fn end(harm: Harm, ids: &[u32], nodes: &mut Nodes) -> io::Result<()> {
    match harm {
        Harm::PauseLeader | Harm::PauseFollower | Harm::PauseTwo => {
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
        let mut plan = Plan::new(true, true, 1);
        let steps: Vec<Step> = (0..14).map(|_| plan.draw()).collect();
        for harm in DURABLE {
            assert!(steps.iter().any(|step| step.harm == Some(harm)), "{harm:?}");
        }
        for rupture in RUPTURES {
            assert!(steps.iter().any(|step| step.rupture == Some(rupture)), "{rupture:?}");
        }
    }

    #[test]
    fn device_faults_come_first() {
        let mut plan = Plan::new(true, true, 1);
        plan.with_devices(true);
        let steps: Vec<Step> = (0..4).map(|_| plan.draw()).collect();
        for rupture in RUPTURES_OF_DEVICES {
            assert!(steps.iter().any(|step| step.rupture == Some(rupture)));
        }
        let mut plan = Plan::new(true, true, 1);
        plan.with_devices(true);
        plan.with_boxes(true);
        let steps: Vec<Step> = (0..4).map(|_| plan.draw()).collect();
        assert!(
            steps
                .iter()
                .any(|step| { step.rupture.is_some_and(|one| RUPTURES_OF_BOXES.contains(&one)) })
        );
        plan.with_boxes(false);
        assert_eq!(plan.ruptures.len(), RUPTURES.len() + RUPTURES_OF_DEVICES.len());
        let mut plan = Plan::new(true, false, 1);
        plan.with_devices(true);
        assert!((0..50).all(|_| plan.draw().rupture.is_none()));
    }

    #[test]
    fn a_volatile_cluster_is_not_killed() {
        let mut plan = Plan::new(false, false, 1);
        assert!((0..50).all(|_| { plan.draw().harm.is_some_and(|harm| VOLATILE.contains(&harm)) }));
    }

    #[test]
    fn displayed_steps_are_parsed_back() {
        for text in ["KillAll", "OneLink", "UnplugLeader", "EveryLink + PauseTwo"] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        assert!("KillNobody".parse::<Step>().is_err());
    }

    #[test]
    fn ruptures_cut_the_named_links() {
        let roles = Roles { leader: 2, followers: vec![3, 1] };
        assert_eq!(roles.lost(Rupture::MuteLeader), [(2, 3), (2, 1)]);
        assert_eq!(roles.lost(Rupture::DeafenLeader), [(3, 2), (1, 2)]);
        assert_eq!(roles.lost(Rupture::OneLink), [(2, 3), (3, 2)]);
        assert_eq!(roles.lost(Rupture::EveryLink).len(), 6);
        assert_eq!(roles.lost(Rupture::DownLeader), []);
        assert_eq!(roles.down(Rupture::DownLeader), [2]);
        assert_eq!(roles.down(Rupture::DownFollower), [3]);
        assert_eq!(roles.unplugged(Rupture::UnplugLeader), [2]);
        assert!(roles.down(Rupture::UnplugLeader).is_empty());
        assert_eq!(roles.reset(Rupture::ResetFollower), [3]);
        assert!(roles.reset(Rupture::UnplugLeader).is_empty());
    }
}
