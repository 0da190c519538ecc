//! Scrubs: nodes verify all stored data while faults occur, on a schedule and when operators
//! request it. In the end, all data must be intact.

use quorate_replica::scrubbing::report::ScrubStatus;

use super::{Event, World, name};
use crate::{
    check::{Verdict, scrubs},
    node::Arrival,
};

/// Rate limit of scrubs in act two, in bytes per second.
const UNTHROTTLED_BYTES_PER_S: u64 = 1 << 30;
/// Virtual time within which all damage must be repaired in act two, in microseconds.
const REPAIR_US: u64 = 60_000_000;

impl World {
    /// Schedules the next scrub requested by an operator, if nodes scrub in this run.
    pub(super) fn plan_scrub(&mut self) {
        if let Some(scrubs) = self.settings.scrub_settings {
            let wait = self.fault_state.scrub_dice.interval(scrubs.request_interval_us);
            self.schedule_after(wait, Event::RequestScrub);
        }
    }

    pub(super) fn request_scrub(&mut self) {
        if !self.fault_state.faults_go_on() {
            return;
        }
        self.plan_scrub();
        let dice = &mut self.fault_state.scrub_dice;
        let node = dice.index(self.nodes.len());
        let pace = dice.pick(&[None, Some(256 << 10), Some(UNTHROTTLED_BYTES_PER_S)]);
        if dice.chance(1, 2) {
            self.rot_store_file(node);
        }
        self.scrub_node(node, pace);
    }

    /// Damages a file of a service. Affects fewer than half of the founding members, so that some
    /// node can still send a snapshot.
    fn rot_store_file(&mut self, node: usize) {
        let rotten = |node: &usize| self.nodes[*node].store_has_unread_damage.get();
        let founders = self.settings.founding_member_count;
        let others = (0..founders).filter(rotten).count();
        if node >= founders || self.settings.is_auxiliary(node) || 2 * (others + 1) >= founders {
            return;
        }
        self.nodes[node].store_has_unread_damage.set(true);
        self.nodes[node].has_rotted = true;
        self.counts.stores_rotted += 1;
        self.trace_line(&name(node), "rot", format_args!("in the store"));
    }

    /// Requests a scrub of a node with a rate limit, or with the node's own limit if `pace` is
    /// `None`.
    pub fn scrub_node(&mut self, node: usize, pace: Option<u64>) {
        self.trace_line(&name(node), "asked", format_args!("to scrub"));
        self.deliver_arrival(node, Arrival::ScrubRequest(pace));
    }

    /// Returns the scrub status of a node; `None` if the node is down.
    pub fn scrub_status(&self, node: usize) -> Option<ScrubStatus> {
        let running = self.nodes[node].running.as_ref();
        running.map(|running| running.replica().scrub_status())
    }

    /// Checks the progress and the findings of a node's scrubs since the previous check.
    pub(super) fn check_scrubs(&mut self, node: usize) -> Verdict {
        if self.settings.scrub_settings.is_none() {
            return Ok(());
        }
        let Some(status) = self.scrub_status(node) else {
            return Ok(());
        };
        let process = &mut self.nodes[node];
        let (rotted, running) = (process.has_rotted, process.running.as_mut());
        let now = (status.now.is_some(), status.found_total);
        let (scrubbed, found) = running
            .map_or(now, |running| std::mem::replace(&mut running.traced_state.scrub_state, now));
        if scrubbed && !now.0 {
            process.completed_scrubs += 1;
            process.last_scrub_status.clone_from(&status);
            self.counts.scrubs_completed += 1;
        }
        if now.1 > found {
            self.counts.scrub_findings += now.1 - found;
            let places: Vec<&str> = status.found.iter().map(|found| &*found.description).collect();
            self.trace_line(&name(node), "scrub", format_args!("found {}", places.join("; ")));
        }
        match rotted {
            true => Ok(()),
            false => scrubs::check_undamaged(node, &status),
        }
    }

    /// Checks in act two that scrubs repair the damage that they find, and find no damage
    /// afterwards.
    pub(super) fn check_scrubs_repair_all(&mut self) -> Verdict {
        if self.settings.scrub_settings.is_none() {
            return Ok(());
        }
        let deadline = self.now.plus_us(REPAIR_US);
        loop {
            self.scrub_all_nodes()?;
            let mut nodes = (0..self.nodes.len()).filter(|node| self.is_group_node(*node));
            let verdict: Verdict = nodes.try_for_each(|node| {
                scrubs::check_repaired(node, &self.nodes[node].last_scrub_status)?;
                // Small files may contain damage that the scrub does not report.
                self.check_small_file_repaired(node)
            });
            if verdict.is_ok() || self.now > deadline {
                return verdict;
            }
            self.run_for(100_000)?;
        }
    }

    fn all_group_nodes(&self, holds: impl Fn(usize) -> bool) -> bool {
        (0..self.nodes.len()).filter(|node| self.is_group_node(*node)).all(holds)
    }

    fn scrub_all_nodes(&mut self) -> Verdict {
        let before: Vec<u64> = self.nodes.iter().map(|node| node.completed_scrubs).collect();
        for node in 0..self.nodes.len() {
            if self.is_group_node(node) {
                self.scrub_node(node, Some(UNTHROTTLED_BYTES_PER_S));
            }
        }
        self.run_until("every node has scrubbed", |world| {
            world.all_group_nodes(|node| world.nodes[node].completed_scrubs > before[node])
        })
    }
}
