//! Scrubs: nodes verify all stored data while faults occur, on a schedule and when operators
//! request it. In the end, all data must be intact.

use quorate_replica::scrubbing::report::ScrubStatus;

use super::{Event, World, name};
use crate::{
    check::{Verdict, scrubs},
    node::Arrival,
};

/// Rate limit of scrubs in act two, in bytes per second.
const FAST: u64 = 1 << 30;
/// Virtual time within which all damage must be repaired in act two, in microseconds.
const MENDED_US: u64 = 60_000_000;

impl World {
    /// Schedules the next scrub requested by an operator, if nodes scrub in this run.
    pub(super) fn plan_scrub(&mut self) {
        if let Some(scrubs) = self.settings.scrubs {
            let wait = self.chaos.scrub_dice.interval(scrubs.asked_us);
            self.schedule_after(wait, Event::Scrub);
        }
    }

    pub(super) fn request_scrub(&mut self) {
        if !self.chaos.goes_on() {
            return;
        }
        self.plan_scrub();
        let dice = &mut self.chaos.scrub_dice;
        let node = dice.index(self.nodes.len());
        let pace = dice.pick(&[None, Some(256 << 10), Some(FAST)]);
        if dice.chance(1, 2) {
            self.rot_store(node);
        }
        self.scrub(node, pace);
    }

    /// Damages a file of a service. Affects fewer than half of the founding members, so that some
    /// node can still send a snapshot.
    fn rot_store(&mut self, node: usize) {
        let rotten = |node: &usize| self.nodes[*node].store_rotten.get();
        let founders = self.settings.nodes;
        let others = (0..founders).filter(rotten).count();
        if node >= founders || self.settings.is_auxiliary(node) || 2 * (others + 1) >= founders {
            return;
        }
        self.nodes[node].store_rotten.set(true);
        self.nodes[node].has_rotted = true;
        self.counts.stores_rotted += 1;
        self.line(&name(node), "rot", format_args!("in the store"));
    }

    /// Requests a scrub of a node with a rate limit, or with the node's own limit if `pace` is
    /// `None`.
    pub fn scrub(&mut self, node: usize, pace: Option<u64>) {
        self.line(&name(node), "asked", format_args!("to scrub"));
        self.deliver_arrival(node, Arrival::Scrub(pace));
    }

    /// Returns the scrub status of a node; `None` if the node is down.
    pub fn scrub_status(&self, node: usize) -> Option<ScrubStatus> {
        let running = self.nodes[node].running.as_ref();
        running.map(|running| running.replica().scrub_status())
    }

    /// Checks the progress and the findings of a node's scrubs since the previous check.
    pub(super) fn check_scrubs(&mut self, node: usize) -> Verdict {
        if self.settings.scrubs.is_none() {
            return Ok(());
        }
        let Some(status) = self.scrub_status(node) else {
            return Ok(());
        };
        let process = &mut self.nodes[node];
        let (rotted, running) = (process.has_rotted, process.running.as_mut());
        let now = (status.now.is_some(), status.found_total);
        let (scrubbed, found) =
            running.map_or(now, |running| std::mem::replace(&mut running.traced_state.scrubs, now));
        if scrubbed && !now.0 {
            process.scrubs += 1;
            process.scrubbed.clone_from(&status);
            self.counts.scrubs += 1;
        }
        if now.1 > found {
            self.counts.scrubs_found += now.1 - found;
            let places: Vec<&str> = status.found.iter().map(|found| &*found.what).collect();
            self.line(&name(node), "scrub", format_args!("found {}", places.join("; ")));
        }
        match rotted {
            true => Ok(()),
            false => scrubs::sound(node, &status),
        }
    }

    /// Checks in act two that scrubs repair the damage that they find, and find no damage
    /// afterwards.
    pub(super) fn scrubs_mend_all(&mut self) -> Verdict {
        if self.settings.scrubs.is_none() {
            return Ok(());
        }
        let deadline = self.now.plus_us(MENDED_US);
        loop {
            self.all_scrub()?;
            let mut nodes = (0..self.nodes.len()).filter(|node| self.belongs(*node));
            let verdict: Verdict = nodes.try_for_each(|node| {
                scrubs::mended(node, &self.nodes[node].scrubbed)?;
                // Small files may contain damage that the scrub does not report.
                self.small_file_is_mended(node)
            });
            if verdict.is_ok() || self.now > deadline {
                return verdict;
            }
            self.run_for(100_000)?;
        }
    }

    fn all_belonging(&self, holds: impl Fn(usize) -> bool) -> bool {
        (0..self.nodes.len()).filter(|node| self.belongs(*node)).all(holds)
    }

    fn all_scrub(&mut self) -> Verdict {
        let before: Vec<u64> = self.nodes.iter().map(|node| node.scrubs).collect();
        for node in 0..self.nodes.len() {
            if self.belongs(node) {
                self.scrub(node, Some(FAST));
            }
        }
        self.run_until("every node has scrubbed", |world| {
            world.all_belonging(|node| world.nodes[node].scrubs > before[node])
        })
    }
}
