//! Reads cells of one program, a few at a time, repeated while there is no answer ([offload-7]).

use alloc::collections::{BTreeMap, BTreeSet};

use crate::{Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{desk::TurnContext, event::Loss, settings::Pace};

/// Maximum number of cells requested at once: easily held by a device's queue.
const ASKED_MAX: usize = 64;

/// Cells to read.
#[derive(Debug)]
pub(crate) struct Reader {
    program: Program,
    wanted: BTreeSet<u64>,
    /// Cells whose answers are awaited: time of the last request, and number of waits without an
    /// answer.
    asked: BTreeMap<u64, (Time, u32)>,
    /// Earliest time at which a request can be late.
    due: Option<Time>,
}

impl Reader {
    pub(crate) const fn new(program: Program) -> Self {
        Self { program, wanted: BTreeSet::new(), asked: BTreeMap::new(), due: None }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.program);
    }

    pub(crate) fn want(&mut self, slot: u64) {
        if !self.asked.contains_key(&slot) {
            self.wanted.insert(slot);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.asked.is_empty()
    }

    pub(crate) fn due(&self) -> Option<Time> {
        let room = self.asked.len() < ASKED_MAX && !self.wanted.is_empty();
        if room { Some(Time(0)) } else { self.due }
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), Loss> {
        while self.asked.len() < ASKED_MAX
            && let Some(slot) = self.wanted.pop_first()
        {
            self.asked.insert(slot, (desk.now, 0));
            read(self.program, slot, desk);
            let late = desk.now.plus_us(desk.pace().answer_us);
            self.due = Some(self.due.map_or(late, |due| due.min(late)));
        }
        if self.due.is_none_or(|due| desk.now < due) {
            return Ok(());
        }
        for (slot, (sent, waits)) in &mut self.asked {
            if desk.now < sent.plus_us(desk.pace().wait_us(*waits)) {
                continue;
            }
            (*sent, *waits) = (desk.now, *waits + 1);
            if desk.pace().is_lost(*waits) {
                return Err(Loss::NoAnswer);
            }
            read(self.program, *slot, desk);
        }
        let pace = desk.pace();
        let due = self.asked.values().map(|(sent, waits)| sent.plus_us(pace.wait_us(*waits)));
        self.due = due.min();
        Ok(())
    }

    pub(crate) fn is_late(&self, pace: &Pace) -> bool {
        self.asked.values().any(|(_, waits)| pace.is_late(*waits))
    }

    /// Returns whether the cell of this slot was requested, and ends the request.
    pub(crate) fn hear(&mut self, slot: u64) -> bool {
        self.asked.remove(&slot).is_some()
    }
}

fn read(program: Program, slot: u64, desk: &mut TurnContext<'_>) {
    let mut header = desk.frames.plain(program, Type::Read);
    header.slot = slot;
    desk.put(program, &header, &[]);
}
