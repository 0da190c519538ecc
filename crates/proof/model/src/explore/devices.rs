//! Choice of the next event for devices.

use super::{Run, RunOutcome};
use crate::{event::Event, observer::Violation};

impl Run {
    /// Chooses one event for the device of one node.
    pub(super) fn choose_device_event(&mut self, site: usize) -> Option<Event> {
        let whole = self.dice.chance_percent(70);
        let frames = self.world.frames.len();
        Some(match self.dice.below(20) {
            0..=4 if frames > 0 => {
                let recent = self.dice.chance_percent(60);
                let frame = if recent {
                    frames - 1 - self.dice.below(frames.min(8))
                } else {
                    self.dice.below(frames)
                };
                Event::DeliverFrame { site, frame_index: frame, at_once: whole }
            }
            5..=9 => Event::CarryOutOrder { site, at_once: whole },
            10..=11 => {
                let hole = self.dice.chance_percent(8);
                Event::AssignSlot { site, at_once: whole, leaves_hole: hole }
            }
            12 => Event::EndDeviceSteps { site },
            13..=14 => Event::DeliverDeviceReport { site },
            15..=17 => Event::DeliverVoteReport {
                site,
                report_index: self
                    .dice
                    .below(self.world.sites[site].device.unreported_votes.len().max(1)),
                is_lost: self.dice.chance_percent(20),
            },
            18 => {
                let yes = self.dice.chance_percent(80);
                Event::UseDevice { site, is_used: yes }
            }
            _ if self.dice.chance_percent(2) => Event::ResetDevice { site },
            _ => return None,
        })
    }

    /// Lets some devices communicate only with each other for a while. All orders are carried out,
    /// and most frames arrive.
    pub(super) fn isolate_some_devices(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let inside: Vec<bool> =
            (0..self.world.sites.len()).map(|_| self.dice.chance_percent(75)).collect();
        let mut next = self.world.frames.len().saturating_sub(self.dice.below(6));
        // Requesting votes, arming and starting take one heartbeat each.
        for _ in 0..self.dice.below(4) {
            if let Some(site) = self.pick_leader() {
                let soup = self.world.soup.len();
                let at = self.world.next_wake_time(site);
                self.apply_event(&Event::Tick { site, at }, shared)?;
                self.deliver_among(&inside, soup, shared)?;
                self.run_devices_among(&inside, &mut next, shared)?;
                self.deliver_among(&inside, soup, shared)?;
            }
        }
        for _ in 0..1 + self.dice.below(5) {
            self.run_devices_among(&inside, &mut next, shared)?;
            if self.dice.chance_percent(40)
                && let Some(event) = self.choose_propose()
            {
                self.apply_event(&event, shared)?;
            }
            if self.dice.chance_percent(30) {
                let soup = self.world.soup.len().saturating_sub(8);
                self.deliver_among(&inside, soup, shared)?;
            }
        }
        Ok(())
    }

    fn run_devices_among(
        &mut self,
        inside: &[bool],
        next: &mut usize,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        for site in (0..inside.len()).filter(|at| inside[*at]) {
            while self.world.sites[site].device.is_busy() && self.dice.chance_percent(90) {
                let whole = self.dice.chance_percent(80);
                self.apply_event(&Event::CarryOutOrder { site, at_once: whole }, shared)?;
            }
            if self.dice.chance_percent(80) {
                let (whole, hole) = (self.dice.chance_percent(90), self.dice.chance_percent(3));
                self.apply_event(
                    &Event::AssignSlot { site, at_once: whole, leaves_hole: hole },
                    shared,
                )?;
            }
        }
        let end = self.world.frames.len();
        for frame in *next..end {
            for site in (0..inside.len()).filter(|at| inside[*at]) {
                if self.dice.chance_percent(90) {
                    let whole = self.dice.chance_percent(90);
                    self.apply_event(
                        &Event::DeliverFrame { site, frame_index: frame, at_once: whole },
                        shared,
                    )?;
                }
            }
        }
        *next = end;
        for site in (0..inside.len()).filter(|at| inside[*at]) {
            if self.dice.chance_percent(60) {
                self.apply_event(&Event::DeliverDeviceReport { site }, shared)?;
            }
            while !self.world.sites[site].device.unreported_votes.is_empty()
                && self.dice.chance_percent(70)
            {
                let (which, lost) = (0, self.dice.chance_percent(5));
                self.apply_event(
                    &Event::DeliverVoteReport { site, report_index: which, is_lost: lost },
                    shared,
                )?;
            }
        }
        Ok(())
    }
}
