//! Reads the cells of one program, a limited number at a time, and repeats unanswered requests
//! ([offload-7]).

use alloc::collections::{BTreeMap, BTreeSet};

use crate::{Type, port::Program};
use quorate_core::time::Time;

use crate::owner::{desk::TurnContext, event::LossReason, settings::Timeouts};

/// Maximum number of outstanding reads. Their responses must fit into a device's queue.
const OUTSTANDING_READS_MAX: usize = 64;

/// Cells that are still to be read.
#[derive(Debug)]
pub(crate) struct CellReader {
    program: Program,
    slots_to_read: BTreeSet<u64>,
    /// Outstanding reads by slot, with the time of the last request and the number of unanswered
    /// ones.
    outstanding: BTreeMap<u64, (Time, u32)>,
    /// Earliest time at which a request has to be repeated.
    next_repeat_at: Option<Time>,
}

impl CellReader {
    pub(crate) const fn new(program: Program) -> Self {
        Self {
            program,
            slots_to_read: BTreeSet::new(),
            outstanding: BTreeMap::new(),
            next_repeat_at: None,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.program);
    }

    pub(crate) fn read_slot(&mut self, slot: u64) {
        if !self.outstanding.contains_key(&slot) {
            self.slots_to_read.insert(slot);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.slots_to_read.is_empty() && self.outstanding.is_empty()
    }

    pub(crate) fn next_due_at(&self) -> Option<Time> {
        let room = self.outstanding.len() < OUTSTANDING_READS_MAX && !self.slots_to_read.is_empty();
        if room { Some(Time(0)) } else { self.next_repeat_at }
    }

    pub(crate) fn advance(&mut self, desk: &mut TurnContext<'_>) -> Result<(), LossReason> {
        while self.outstanding.len() < OUTSTANDING_READS_MAX
            && let Some(slot) = self.slots_to_read.pop_first()
        {
            self.outstanding.insert(slot, (desk.now, 0));
            send_read(self.program, slot, desk);
            let late = desk.now.plus_us(desk.timeouts().response_us);
            self.next_repeat_at = Some(self.next_repeat_at.map_or(late, |due| due.min(late)));
        }
        if self.next_repeat_at.is_none_or(|due| desk.now < due) {
            return Ok(());
        }
        for (slot, (sent, waits)) in &mut self.outstanding {
            if desk.now < sent.plus_us(desk.timeouts().wait_us(*waits)) {
                continue;
            }
            (*sent, *waits) = (desk.now, *waits + 1);
            if desk.timeouts().is_abandoned(*waits) {
                return Err(LossReason::NoAnswer);
            }
            send_read(self.program, *slot, desk);
        }
        let pace = desk.timeouts();
        let due = self.outstanding.values().map(|(sent, waits)| sent.plus_us(pace.wait_us(*waits)));
        self.next_repeat_at = due.min();
        Ok(())
    }

    pub(crate) fn is_late(&self, pace: &Timeouts) -> bool {
        self.outstanding.values().any(|(_, waits)| pace.is_late(*waits))
    }

    /// Completes the read of `slot`. Returns `false` if none is outstanding.
    pub(crate) fn on_cell_read(&mut self, slot: u64) -> bool {
        self.outstanding.remove(&slot).is_some()
    }
}

fn send_read(program: Program, slot: u64, desk: &mut TurnContext<'_>) {
    let mut header = desk.frames.empty_header(program, Type::Read);
    header.slot = slot;
    desk.put_frame(program, &header, &[]);
}
