//! Upgrades and downgrades by operators, between the newest release and the oldest compatible one,
//! which the current code emulates ([level-3] to [level-8]).

use quorate_core::level::Level;
use quorate_node::host::PeerHost as _;

use super::{Event, World, name};
use crate::{
    check::{Verdict, levels::UsedLevels},
    node::Arrival,
};

impl World {
    /// Starts the nodes on their first releases and schedules the first installation.
    pub(super) fn start_releases(&mut self) {
        let Some(releases) = self.settings.release_changes else {
            return;
        };
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let newest = releases.newest_at_start >> at & 1 == 1;
            node.installed_release = if newest { Level::NEWEST } else { Level::BASE };
        }
        self.plan_install();
    }

    fn plan_install(&mut self) {
        if let Some(releases) = self.settings.release_changes {
            let wait = self.dice.interval(releases.install_interval_us);
            self.schedule_after(wait, Event::InstallRelease);
        }
    }

    /// Installs the newest or, less often, the oldest release on a random node. The laggard gets
    /// only the oldest one.
    pub(super) fn install_random_release(&mut self) {
        let Some(releases) =
            self.settings.release_changes.filter(|_| self.fault_state.faults_go_on())
        else {
            return;
        };
        self.plan_install();
        let node = self.dice.index(self.nodes.len());
        let back = self.dice.chance(1, releases.oldest_one_in);
        let laggard = releases.oldest_only_node == Some(node);
        let release = if back || laggard { Level::BASE } else { Level::NEWEST };
        self.install_release(node, release);
    }

    /// Installs a release on a node, whose process restarts either gracefully or after a kill.
    pub fn install_release(&mut self, node: usize, release: Level) {
        if self.nodes[node].installed_release == release {
            return;
        }
        self.nodes[node].installed_release = release;
        self.counts.releases_installed += 1;
        self.trace_line(&name(node), "install", format_args!("level {release}"));
        let process = &self.nodes[node];
        if process.running.is_none() {
            return;
        }
        let life = process.start_count;
        if self.may_crash(node) && self.dice.chance(1, 2) {
            self.kill_process(node, 100);
            self.schedule_start_within(node, 100_000);
        } else {
            self.deliver_arrival_to(node, life, Arrival::StopRequest);
        }
    }

    /// Handles a data folder for which the installed release is too old, by installing the newest
    /// release.
    pub(super) fn replace_refused_release(&mut self, node: usize) {
        self.counts.releases_too_old += 1;
        self.nodes[node].installed_release = Level::NEWEST;
        self.trace_line(&name(node), "refused", format_args!("its folder needs a newer release"));
        self.schedule_start_within(node, 100_000);
    }

    /// Installs the newest release on all nodes, for act two.
    pub(super) fn install_newest_everywhere(&mut self) {
        if self.settings.release_changes.is_none() {
            return;
        }
        for node in 0..self.nodes.len() {
            self.install_release(node, Level::NEWEST);
        }
    }

    /// [level-7] Disconnects peers whose release does not support this node's current level.
    pub(super) fn disconnect_unsupported_peers(&mut self, node: usize) {
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
        if level > Level::BASE && !self.node_checkers.levels().is_raised() {
            self.counts.level_raises += 1;
            let come = replica.group().nodes().filter(|(_, known)| known.has_joined());
            let indices = come.map(|(id, _)| id.0 as usize - 1);
            let unasked = indices
                .filter_map(|index| self.nodes.get(index))
                .find(|other| other.start_count > 0 && !other.ran_newest_release);
            if let Some(unasked) = unasked {
                return UsedLevels::unsupported_group_level(unasked.index);
            }
        }
        let release = process.running_release;
        // The real oldest release would fail earlier, because it cannot read such a log.
        if release < Level::NEWEST && replica.error().is_some_and(|why| why.contains("is at level"))
        {
            return UsedLevels::unsupported_level(node, release);
        }
        self.node_checkers.levels().check_level(node, release, level, applied_to)
    }
}
