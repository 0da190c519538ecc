//! Choice of the next event for byte streams.

use quorate_core::value::{StreamName, Value};
use quorate_stream::OpenMode;

use super::{Run, RunOutcome};
use crate::{event::Event, observer::Violation};

/// Maximum number of streams that clients try to open in a run.
const OPENS_MAX: u64 = 8;
/// Number of stream names, and number of clients that write to each.
const STREAM_NAME_COUNT: usize = 2;

type SharedOutcome = std::cell::RefCell<RunOutcome>;

impl Run {
    /// Applies an event that concerns streams.
    pub(super) fn apply_stream_event(&mut self, shared: &SharedOutcome) -> Result<(), Violation> {
        let site = self.dice.below(self.world.sites.len());
        let event = match self.dice.below(24) {
            0 | 1 => return self.open(site, shared),
            2 => return self.close(site, shared),
            3 => self.choose_close_lost(),
            4 => self.choose_command(),
            5..=9 => self.choose_give(site),
            10..=15 => self.choose_stream_delivery(site),
            16..=21 => self.choose_stream_offer(),
            22 => Some(Event::FetchMissing { site }),
            _ => self.plan.setup.delays_apply.then_some(Event::ApplyDecided { site }),
        };
        match event {
            Some(event) => self.apply_event(&event, shared),
            None => Ok(()),
        }
    }

    /// Applies events of streams among nodes that communicate only with each other.
    pub(super) fn run_streams_among(
        &mut self,
        inside: &[bool],
        shared: &SharedOutcome,
    ) -> Result<(), Violation> {
        if self.plan.rates.stream_event == 0 {
            return Ok(());
        }
        for site in (0..inside.len()).filter(|at| inside[*at]) {
            if self.plan.setup.delays_apply && self.dice.chance_percent(70) {
                self.apply_event(&Event::ApplyDecided { site }, shared)?;
            }
            if self.plan.setup.learns_without_bytes && self.dice.chance_percent(30) {
                self.apply_event(&Event::FetchMissing { site }, shared)?;
            }
            if self.dice.chance_percent(50)
                && let Some(event) = self.choose_stream_delivery(site)
            {
                self.apply_event(&event, shared)?;
            }
            if self.dice.chance_percent(30)
                && let Some(event) = self.choose_give(site)
            {
                self.apply_event(&event, shared)?;
            }
        }
        if self.dice.chance_percent(25) && self.open_count == 0 {
            let site = self.dice.below(self.world.sites.len());
            self.open(site, shared)?;
        }
        for _ in 0..self.dice.below(3) {
            if let Some(event) = self.choose_stream_offer() {
                self.apply_event(&event, shared)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, site: usize, shared: &SharedOutcome) -> Result<(), Violation> {
        if self.open_count >= OPENS_MAX || self.world.sites[site].node.is_none() {
            return Ok(());
        }
        self.open_count += 1;
        let few = |run: &mut Self| u8::try_from(run.dice.below(STREAM_NAME_COUNT)).expect("few");
        let (name, writer) = (few(self), few(self));
        let how = self.dice.pick_from(&[
            OpenMode::Create,
            OpenMode::Create,
            OpenMode::Append,
            OpenMode::Takeover,
            OpenMode::Continue,
        ]);
        let open = Event::OpenStream { site, name, mode: how, writer };
        self.apply_event(&open, shared)?;
        self.propose_newest_command(shared)
    }

    fn close(&mut self, site: usize, shared: &SharedOutcome) -> Result<(), Violation> {
        let owned = self.world.owned_streams(site);
        if owned.is_empty() {
            return Ok(());
        }
        let stream = self.dice.pick_from(&owned);
        let finish = self.dice.chance_percent(10);
        self.apply_event(&Event::CloseStream { stream, is_finished: finish }, shared)?;
        self.propose_newest_command(shared)
    }

    /// Proposes the newest command in most cases.
    fn propose_newest_command(&mut self, shared: &SharedOutcome) -> Result<(), Violation> {
        let newest = self.world.clients.commands().max_by_key(|value| match value {
            Value::Batch(name) => name.counter,
            _ => 0,
        });
        let newest = newest.copied();
        match (newest, self.pick_leader()) {
            (Some(value), Some(site)) if self.dice.chance_percent(80) => {
                let slots = 1;
                self.apply_event(&Event::Propose { site, value, slot_count: slots }, shared)
            }
            _ => Ok(()),
        }
    }

    /// Proposes any command, possibly one that was proposed before.
    fn choose_command(&mut self) -> Option<Event> {
        let all: Vec<Value> = self.world.clients.commands().copied().collect();
        let site = self.pick_leader().filter(|_| !all.is_empty())?;
        let (value, slots) = (self.dice.pick_from(&all), 1);
        Some(Event::Propose { site, value, slot_count: slots })
    }

    /// [stream-6] Lets a leader close a stream whose owner it considers lost. In most cases the
    /// leader is right.
    fn choose_close_lost(&mut self) -> Option<Event> {
        let site = self.pick_leader()?;
        let mut lost = self.world.lost_streams(site);
        if self.dice.chance_percent(10) {
            lost = self.world.sites[site].applied_streams.table().open_streams().collect();
        }
        if lost.is_empty() {
            return None;
        }
        let (value, slots) = (Value::CloseStream(self.dice.pick_from(&lost)), 1);
        Some(Event::Propose { site, value, slot_count: slots })
    }

    fn choose_give(&mut self, site: usize) -> Option<Event> {
        let owned = self.world.owned_streams(site);
        if owned.is_empty() {
            return None;
        }
        let stream = self.dice.pick_from(&owned);
        let count = 1 + self.dice.below(4) as u64;
        Some(Event::GiveStreamBytes { site, stream, byte_count: count })
    }

    /// Delivers some bytes of a stream, usually the next ones.
    fn choose_stream_delivery(&mut self, site: usize) -> Option<Event> {
        let given: Vec<(StreamName, u64)> = self.world.clients.given_streams().collect();
        // A node that receives few bytes has to learn many values without their bytes.
        let little = self.plan.setup.learns_without_bytes && site + 1 == self.world.sites.len();
        if given.is_empty() || little && self.dice.chance_percent(80) {
            return None;
        }
        let (stream, end) = self.dice.pick_from(&given);
        let next = self.world.sites[site].applied_streams.table().next_position(stream);
        let first = next.filter(|_| self.dice.chance_percent(80)).unwrap_or(0);
        let below = |run: &mut Self, end: u64| run.dice.next() % (end + 1);
        let from = if self.dice.chance_percent(70) { first } else { below(self, end) };
        let to = from + below(self, end.saturating_sub(from));
        (to > from).then_some(Event::DeliverStreamBytes { site, stream, from, end: to })
    }

    fn choose_stream_offer(&mut self) -> Option<Event> {
        let site = self.pick_leader()?;
        let open: Vec<StreamName> =
            self.world.sites[site].applied_streams.table().open_streams().collect();
        if open.is_empty() {
            return None;
        }
        let stream = self.dice.pick_from(&open);
        let most = 1 + self.dice.below(4) as u64;
        Some(Event::ProposeStreamBytes { site, stream, bytes_max: most })
    }
}
