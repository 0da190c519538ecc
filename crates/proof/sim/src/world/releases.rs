//! Upgrades and downgrades by operators, between the newest release and the oldest compatible one,
//! which the current code emulates ([level-3] to [level-8]).

use quorate_core::level::Level;
use quorate_node::host::PeerSide as _;

use super::{Event, World, name};
use crate::{
    check::{Verdict, levels::Levels},
    node::Arrival,
};

impl World {
    /// Starts the nodes on their first releases and schedules the first installation.
    pub(super) fn plan_releases(&mut self) {
        let Some(releases) = self.settings.releases else {
            return;
        };
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let newest = releases.founders_newest >> at & 1 == 1;
            node.release = if newest { Level::NEWEST } else { Level::BASE };
        }
        self.plan_release();
    }

    fn plan_release(&mut self) {
        if let Some(releases) = self.settings.releases {
            let wait = self.dice.interval(releases.mean_us);
            self.schedule_after(wait, Event::Release);
        }
    }

    /// Installs the newest or, less often, the oldest release on a random node. The laggard gets
    /// only the oldest one.
    pub(super) fn change_release(&mut self) {
        let Some(releases) = self.settings.releases.filter(|_| self.chaos.goes_on()) else {
            return;
        };
        self.plan_release();
        let node = self.dice.index(self.nodes.len());
        let back = self.dice.chance(1, releases.back_of);
        let laggard = releases.laggard == Some(node);
        let release = if back || laggard { Level::BASE } else { Level::NEWEST };
        self.install(node, release);
    }

    /// Installs a release on a node, whose process restarts either gracefully or after a kill.
    pub fn install(&mut self, node: usize, release: Level) {
        if self.nodes[node].release == release {
            return;
        }
        self.nodes[node].release = release;
        self.counts.installed += 1;
        self.line(&name(node), "install", format_args!("level {release}"));
        let process = &self.nodes[node];
        if process.running.is_none() {
            return;
        }
        let life = process.life;
        if self.may_crash(node) && self.dice.chance(1, 2) {
            self.kill_process(node, 100);
            self.starts_within(node, 100_000);
        } else {
            self.arrive(node, life, Arrival::Stop);
        }
    }

    /// Handles a data folder for which the installed release is too old, by installing the newest
    /// release.
    pub(super) fn refused_release(&mut self, node: usize) {
        self.counts.too_old += 1;
        self.nodes[node].release = Level::NEWEST;
        self.line(&name(node), "refused", format_args!("its folder needs a newer release"));
        self.starts_within(node, 100_000);
    }

    /// Installs the newest release on all nodes, for act two.
    pub(super) fn heal_releases(&mut self) {
        if self.settings.releases.is_none() {
            return;
        }
        for node in 0..self.nodes.len() {
            self.install(node, Level::NEWEST);
        }
    }

    /// [level-7] Disconnects peers whose release does not support this node's current level.
    pub(super) fn follow_level(&mut self, node: usize) {
        let Some(running) = &self.nodes[node].running else {
            return;
        };
        let lowest = running.host.levels().lowest;
        for peer in self.network.peers(node) {
            let process = &self.nodes[peer].running;
            let newest = process.as_ref().map(|running| running.host.levels().newest);
            if newest.is_some_and(|newest| newest < lowest) {
                self.break_connection(node, peer, 100);
            }
        }
    }

    /// Checks the level of a node against the releases of the node and of all other members, and
    /// against the confirmations of all nodes.
    pub(super) fn check_level(&mut self, node: usize) -> Verdict {
        let process = &self.nodes[node];
        let Some(running) = &process.running else {
            return Ok(());
        };
        let replica = running.replica();
        let (level, applied_to) = (replica.level(), replica.applied_to());
        if level > Level::BASE && !self.watch.levels().is_raised() {
            self.counts.raised += 1;
            let come = replica.group().nodes().filter(|(_, known)| known.has_joined());
            let indices = come.map(|(id, _)| id.0 as usize - 1);
            let unasked = indices
                .filter_map(|index| self.nodes.get(index))
                .find(|other| other.life > 0 && !other.ran_newest);
            if let Some(unasked) = unasked {
                return Levels::never_asked(unasked.index);
            }
        }
        let release = process.release_running;
        // The real oldest release would fail earlier, because it cannot read such a log.
        if release < Level::NEWEST && replica.error().is_some_and(|why| why.contains("is at level"))
        {
            return Levels::cannot_read(node, release);
        }
        self.watch.levels().check_level(node, release, level, applied_to)
    }
}
