//! Decisions in the order of their slots, as frames tell them: what a client may conclude from
//! ([offload-23]).
//!
//! Where the walk is was said by a node, which had applied all before. It goes on by decision
//! frames alone, slot by slot, in the era in which it began, and past no slot that begins or ends a
//! session. So at each of its slots the table of sessions is known as far as the client's own
//! session goes, and so is the configuration whose quorum counted.

use std::collections::BTreeMap;

use quorate_offload::{Descriptor, Header, header::HINT};

/// Slots that are kept ahead of the next one.
pub(super) const AHEAD: u64 = 1 << 12;
/// Kinds of values as frames have them: sessions begin and end with these.
const REGISTRATION: u8 = 5;
const EXPIRY: u8 = 6;

/// A decision received for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) value: Descriptor,
    /// The bytes match the value; only checked where it matters. If not, it is a no-op
    /// ([offload-21]).
    pub(super) is_whole: bool,
    sum: u16,
}

/// Why a decision says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// Its slot was walked past, or was heard before.
    Stale,
    /// Too far ahead.
    Far,
    /// Counted from votes that may be forgotten, or by a quorum of another configuration.
    Foreign,
    /// Another value was heard for this slot ([count-1]).
    Conflict,
}

/// Position of the walk.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    era: u32,
    next: u64,
    heard: BTreeMap<u64, Heard>,
}

impl Walk {
    /// All slots below are applied somewhere, in this era or an earlier one.
    pub(super) const fn new(next: u64, era: u32) -> Self {
        Self { era, next, heard: BTreeMap::new() }
    }

    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// A whole frame of the group says that this is decided.
    pub(super) fn hear(&mut self, said: &Header, is_whole: bool) -> Result<(), Unheard> {
        let slot = said.slot;
        if said.flags & HINT != 0 || said.ballot.ballot().era.0 != self.era {
            return Err(Unheard::Foreign);
        }
        let Some(ahead) = slot.checked_sub(self.next) else {
            return Err(Unheard::Stale);
        };
        if ahead >= AHEAD {
            return Err(Unheard::Far);
        }
        let heard = Heard { value: said.value, is_whole, sum: said.sum };
        match self.heard.get(&slot) {
            Some(known) if *known == heard => Err(Unheard::Stale),
            Some(_) => Err(Unheard::Conflict),
            None => {
                self.heard.insert(slot, heard);
                Ok(())
            }
        }
    }

    /// The next slot, if it was heard and is not one that begins or ends a session.
    pub(super) fn step(&mut self) -> Option<(u64, Heard)> {
        let first = self.heard.first_entry()?;
        if *first.key() != self.next || matches!(first.get().value.kind, REGISTRATION | EXPIRY) {
            return None;
        }
        let heard = first.remove();
        self.next += 1;
        Some((self.next - 1, heard))
    }

    /// Returns whether a slot waits that no frame will release: only a node knows what lies before
    /// it.
    pub(super) fn is_stuck(&self) -> bool {
        !self.heard.is_empty()
    }

    /// A node has applied all below, where the era is this one or an earlier one.
    pub(super) fn jump(&mut self, to: u64, era: u32) {
        if era != self.era {
            self.heard.clear();
        }
        (self.next, self.era) = (to, era);
        self.heard = self.heard.split_off(&to);
    }
}
