//! Reads the cells of one program, a limited number at a time, and repeats unanswered requests
//! ([offload-7]).

use alloc::collections::{BTreeMap, BTreeSet};

use crate::{Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{desk::TurnContext, event::Loss, settings::Pace};

/// Maximum number of outstanding reads. Their responses must fit into a device's queue.
const ASKED_MAX: usize = 64;

/// Cells that are still to be read.
#[derive(Debug)]
pub(crate) struct Reader {
    program: Program,
    wanted: BTreeSet<u64>,
    /// Outstanding reads by slot, with the time of the last request and the number of unanswered
    /// ones.
    asked: BTreeMap<u64, (Time, u32)>,
    /// Earliest time at which a request has to be repeated.
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

    /// Completes the read of `slot`. Returns `false` if none is outstanding.
    pub(crate) fn hear(&mut self, slot: u64) -> bool {
        self.asked.remove(&slot).is_some()
    }
}

fn read(program: Program, slot: u64, desk: &mut TurnContext<'_>) {
    let mut header = desk.frames.plain(program, Type::Read);
    header.slot = slot;
    desk.put(program, &header, &[]);
}
