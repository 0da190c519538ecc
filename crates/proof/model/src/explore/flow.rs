//! Choice of the next event for byte streams.

use quorate_core::value::{StreamName, Value};
use quorate_stream::OpenMode;

use super::{Outcome, Run};
use crate::{event::Event, observer::Violation};

/// Maximum number of streams that clients try to open in a run.
const OPENS_MAX: u64 = 8;
/// Number of stream names, and number of clients that write to each.
const FEW: usize = 2;

type Shared = std::cell::RefCell<Outcome>;

impl Run {
    /// Applies an event that concerns streams.
    pub(super) fn stream(&mut self, shared: &Shared) -> Result<(), Violation> {
        let site = self.dice.below(self.world.sites.len());
        let event = match self.dice.below(24) {
            0 | 1 => return self.open(site, shared),
            2 => return self.close(site, shared),
            3 => self.close_lost(),
            4 => self.command(),
            5..=9 => self.give(site),
            10..=15 => self.carry(site),
            16..=21 => self.offer(),
            22 => Some(Event::Look { site }),
            _ => self.plan.setup.lag.then_some(Event::Apply { site }),
        };
        match event {
            Some(event) => self.apply(&event, shared),
            None => Ok(()),
        }
    }

    /// Applies events of streams among nodes that communicate only with each other.
    pub(super) fn flow(&mut self, inside: &[bool], shared: &Shared) -> Result<(), Violation> {
        if self.plan.rates.stream == 0 {
            return Ok(());
        }
        for site in (0..inside.len()).filter(|at| inside[*at]) {
            if self.plan.setup.lag && self.dice.percent(70) {
                self.apply(&Event::Apply { site }, shared)?;
            }
            if self.plan.setup.bare && self.dice.percent(30) {
                self.apply(&Event::Look { site }, shared)?;
            }
            if self.dice.percent(50)
                && let Some(event) = self.carry(site)
            {
                self.apply(&event, shared)?;
            }
            if self.dice.percent(30)
                && let Some(event) = self.give(site)
            {
                self.apply(&event, shared)?;
            }
        }
        if self.dice.percent(25) && self.opens == 0 {
            let site = self.dice.below(self.world.sites.len());
            self.open(site, shared)?;
        }
        for _ in 0..self.dice.below(3) {
            if let Some(event) = self.offer() {
                self.apply(&event, shared)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, site: usize, shared: &Shared) -> Result<(), Violation> {
        if self.opens >= OPENS_MAX || self.world.sites[site].node.is_none() {
            return Ok(());
        }
        self.opens += 1;
        let few = |run: &mut Self| u8::try_from(run.dice.below(FEW)).expect("few");
        let (name, writer) = (few(self), few(self));
        let how = self.dice.pick(&[
            OpenMode::Create,
            OpenMode::Create,
            OpenMode::Append,
            OpenMode::Takeover,
            OpenMode::Continue,
        ]);
        let open = Event::Open { site, name, how, writer };
        self.apply(&open, shared)?;
        self.newest(shared)
    }

    fn close(&mut self, site: usize, shared: &Shared) -> Result<(), Violation> {
        let owned = self.world.owned(site);
        if owned.is_empty() {
            return Ok(());
        }
        let stream = self.dice.pick(&owned);
        let finish = self.dice.percent(10);
        self.apply(&Event::Close { stream, finish }, shared)?;
        self.newest(shared)
    }

    /// Proposes the newest command in most cases.
    fn newest(&mut self, shared: &Shared) -> Result<(), Violation> {
        let newest = self.world.clients.commands().max_by_key(|value| match value {
            Value::Batch(name) => name.counter,
            _ => 0,
        });
        let newest = newest.copied();
        match (newest, self.some_leader()) {
            (Some(value), Some(site)) if self.dice.percent(80) => {
                let slots = 1;
                self.apply(&Event::Propose { site, value, slots }, shared)
            }
            _ => Ok(()),
        }
    }

    /// Proposes any command, possibly one that was proposed before.
    fn command(&mut self) -> Option<Event> {
        let all: Vec<Value> = self.world.clients.commands().copied().collect();
        let site = self.some_leader().filter(|_| !all.is_empty())?;
        let (value, slots) = (self.dice.pick(&all), 1);
        Some(Event::Propose { site, value, slots })
    }

    /// [stream-6] Lets a leader close a stream whose owner it considers lost. In most cases the
    /// leader is right.
    fn close_lost(&mut self) -> Option<Event> {
        let site = self.some_leader()?;
        let mut lost = self.world.lost_streams(site);
        if self.dice.percent(10) {
            lost = self.world.sites[site].applied.table().open_streams().collect();
        }
        if lost.is_empty() {
            return None;
        }
        let (value, slots) = (Value::CloseStream(self.dice.pick(&lost)), 1);
        Some(Event::Propose { site, value, slots })
    }

    fn give(&mut self, site: usize) -> Option<Event> {
        let owned = self.world.owned(site);
        if owned.is_empty() {
            return None;
        }
        let stream = self.dice.pick(&owned);
        let count = 1 + self.dice.below(4) as u64;
        Some(Event::Give { site, stream, count })
    }

    /// Delivers some bytes of a stream, usually the next ones.
    fn carry(&mut self, site: usize) -> Option<Event> {
        let given: Vec<(StreamName, u64)> = self.world.clients.streams().collect();
        // A node that receives few bytes has to learn many values without their bytes.
        let little = self.plan.setup.bare && site + 1 == self.world.sites.len();
        if given.is_empty() || little && self.dice.percent(80) {
            return None;
        }
        let (stream, end) = self.dice.pick(&given);
        let next = self.world.sites[site].applied.table().next_position(stream);
        let first = next.filter(|_| self.dice.percent(80)).unwrap_or(0);
        let below = |run: &mut Self, end: u64| run.dice.next() % (end + 1);
        let from = if self.dice.percent(70) { first } else { below(self, end) };
        let to = from + below(self, end.saturating_sub(from));
        (to > from).then_some(Event::Carry { site, stream, from, to })
    }

    fn offer(&mut self) -> Option<Event> {
        let site = self.some_leader()?;
        let open: Vec<StreamName> = self.world.sites[site].applied.table().open_streams().collect();
        if open.is_empty() {
            return None;
        }
        let stream = self.dice.pick(&open);
        let most = 1 + self.dice.below(4) as u64;
        Some(Event::Offer { site, stream, most })
    }
}
