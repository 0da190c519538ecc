//! Which deletions of expired keys the leader has proposed and not yet seen applied.
//!
//! A key exists until the log deletes it. The leader looks at its clock and proposes; applying a
//! proposal deletes the key only if its deadline is still the proposed one. So a proposal may be
//! lost, repeated, or made by a node that leads no longer: nodes never disagree, and the next
//! leader proposes again.

use std::{collections::BTreeMap, ops::ControlFlow};

use crate::{
    commands::expiry::{decode_expired, encode_expired},
    encode::{Decoder, Encoder},
    op::Op,
    store::Store,
};

/// Most proposals open at a time.
const OPEN_MAX: usize = 4096;
/// A proposal not applied after this long was lost.
const RETRY_MS: u64 = 1000;

/// Proposals by ⟨deadline, key⟩, with the time when they were made.
#[derive(Debug, Default)]
pub struct Proposals {
    open: BTreeMap<(u64, Box<[u8]>), u64>,
}

impl Proposals {
    /// Passes at most `limit` deletions that are due and not in flight to `each`.
    pub fn due(
        &mut self,
        store: &dyn Store,
        wall_ms: u64,
        limit: usize,
        each: &mut dyn FnMut(&[u8]),
    ) {
        self.open
            .retain(|_, at| (*at..at.saturating_add(RETRY_MS)).contains(&wall_ms));
        let limit = limit.min(OPEN_MAX.saturating_sub(self.open.len()));
        if limit == 0 {
            return;
        }
        let mut fresh: Vec<(u64, Box<[u8]>)> = Vec::new();
        store.overdue(wall_ms, &mut |deadline, key| {
            let proposal = (deadline, Box::from(key));
            if !self.open.contains_key(&proposal) {
                fresh.push(proposal);
            }
            if fresh.len() < limit {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let mut command = Vec::new();
        for (deadline, key) in fresh {
            command.clear();
            encode_expired(&key, deadline, &mut Encoder(&mut command));
            each(&command);
            self.open.insert((deadline, key), wall_ms);
        }
    }

    /// A command was applied: if it was a proposed deletion, that is no longer open.
    pub fn applied(&mut self, command: &[u8]) {
        if self.open.is_empty() || command.first() != Some(&(Op::Expired as u8)) {
            return;
        }
        if let Ok((deadline, key)) = decode_expired(&mut Decoder(&command[1..])) {
            self.open.remove(&(deadline, Box::from(key.bytes())));
        }
    }
}
