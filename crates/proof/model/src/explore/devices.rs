//! Choice of the next event for devices.

use super::{Outcome, Run};
use crate::{event::Event, observer::Violation};

impl Run {
    /// Chooses one event for the device of one node.
    pub(super) fn device(&mut self, site: usize) -> Option<Event> {
        let whole = self.dice.percent(70);
        let frames = self.world.frames.len();
        Some(match self.dice.below(20) {
            0..=4 if frames > 0 => {
                let recent = self.dice.percent(60);
                let frame = if recent {
                    frames - 1 - self.dice.below(frames.min(8))
                } else {
                    self.dice.below(frames)
                };
                Event::Hear { site, frame, whole }
            }
            5..=9 => Event::Obey { site, whole },
            10..=11 => {
                let hole = self.dice.percent(8);
                Event::GiveSlot { site, whole, hole }
            }
            12 => Event::StepEnds { site },
            13..=14 => Event::Told { site },
            15..=17 => Event::Tap {
                site,
                which: self.dice.below(self.world.sites[site].device.tap.len().max(1)),
                lost: self.dice.percent(20),
            },
            18 => {
                let yes = self.dice.percent(80);
                Event::Use { site, yes }
            }
            _ if self.dice.percent(2) => Event::Reset { site },
            _ => return None,
        })
    }

    /// Lets some devices communicate only with each other for a while. All orders are carried out,
    /// and most frames arrive.
    pub(super) fn devices(
        &mut self,
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        let inside: Vec<bool> =
            (0..self.world.sites.len()).map(|_| self.dice.percent(75)).collect();
        let mut next = self.world.frames.len().saturating_sub(self.dice.below(6));
        // Requesting votes, arming and starting take one heartbeat each.
        for _ in 0..self.dice.below(4) {
            if let Some(site) = self.some_leader() {
                let soup = self.world.soup.len();
                let at = self.world.due(site);
                self.apply(&Event::Tick { site, at }, shared)?;
                self.among(&inside, soup, shared)?;
                self.each_device(&inside, &mut next, shared)?;
                self.among(&inside, soup, shared)?;
            }
        }
        for _ in 0..1 + self.dice.below(5) {
            self.each_device(&inside, &mut next, shared)?;
            if self.dice.percent(40)
                && let Some(event) = self.propose()
            {
                self.apply(&event, shared)?;
            }
            if self.dice.percent(30) {
                let soup = self.world.soup.len().saturating_sub(8);
                self.among(&inside, soup, shared)?;
            }
        }
        Ok(())
    }

    fn each_device(
        &mut self,
        inside: &[bool],
        next: &mut usize,
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        for site in (0..inside.len()).filter(|at| inside[*at]) {
            while self.world.sites[site].device.is_busy() && self.dice.percent(90) {
                let whole = self.dice.percent(80);
                self.apply(&Event::Obey { site, whole }, shared)?;
            }
            if self.dice.percent(80) {
                let (whole, hole) = (self.dice.percent(90), self.dice.percent(3));
                self.apply(&Event::GiveSlot { site, whole, hole }, shared)?;
            }
        }
        let end = self.world.frames.len();
        for frame in *next..end {
            for site in (0..inside.len()).filter(|at| inside[*at]) {
                if self.dice.percent(90) {
                    let whole = self.dice.percent(90);
                    self.apply(&Event::Hear { site, frame, whole }, shared)?;
                }
            }
        }
        *next = end;
        for site in (0..inside.len()).filter(|at| inside[*at]) {
            if self.dice.percent(60) {
                self.apply(&Event::Told { site }, shared)?;
            }
            while !self.world.sites[site].device.tap.is_empty() && self.dice.percent(70) {
                let (which, lost) = (0, self.dice.percent(5));
                self.apply(&Event::Tap { site, which, lost }, shared)?;
            }
        }
        Ok(())
    }
}
