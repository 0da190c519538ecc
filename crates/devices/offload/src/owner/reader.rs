//! Reads cells of one program, a few at a time, again if there is no answer ([offload-7]).

use alloc::collections::{BTreeMap, BTreeSet};

use crate::{Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{desk::Desk, event::Loss, settings::Pace};

/// Cells that are asked for at once: what a queue of a device holds easily.
const ASKED_MAX: usize = 64;

/// Which cells are wanted.
#[derive(Debug)]
pub(crate) struct Reader {
    program: Program,
    wanted: BTreeSet<u64>,
    /// Cells whose answers are awaited: when they were asked for last, and waits in vain.
    asked: BTreeMap<u64, (Time, u32)>,
    /// Not before the next question is late.
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

    pub(crate) fn advance(&mut self, desk: &mut Desk<'_>) -> Result<(), Loss> {
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

    /// Returns whether the cell of this slot was asked for, and ends the question.
    pub(crate) fn hear(&mut self, slot: u64) -> bool {
        self.asked.remove(&slot).is_some()
    }
}

fn read(program: Program, slot: u64, desk: &mut Desk<'_>) {
    let mut header = desk.frames.plain(program, Type::Read);
    header.slot = slot;
    desk.put(program, &header, &[]);
}
