//! Trimming: the entries that XTRIM and XADD remove from the start of a stream.

use std::ops::ControlFlow;

use super::{
    id::{self, NewId},
    rows::{Change, View},
};
use crate::{
    command::{NOT_AN_INTEGER, Refusal, Request, SYNTAX},
    commands::{
        budget::{CHANGED_ROW, VISITS_MAX},
        rows::cost,
    },
    encode::{Decoder, Encoder, Malformed},
    resp::integer::parse_integer,
    store::stream::EntryId,
};

/// Maximum number of entries that an approximate trim removes unless LIMIT says otherwise. As in
/// Redis.
const LIMIT: u64 = 10_000;
/// Visits after which a trim ends that may leave entries to the next one. Part of the replicated
/// format.
const PARTIAL_VISITS: u64 = VISITS_MAX / 2;
/// Number of entries whose removal the budget of a batch does not allow.
const REMOVED_MAX: usize = 3 << 20;

/// Entries that remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemainingEntries {
    /// Up to this number of entries, the latest ones.
    Newest(u64),
    /// Entries from this id on.
    From(EntryId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    remaining: RemainingEntries,
    /// Maximum number of entries removed, if the trim is approximate. 0 is no limit.
    approximate_max: Option<u64>,
}

mod kind {
    pub(super) const MAXLEN: u8 = 1;
    pub(super) const MINID: u8 = 2;
    /// Bit of an approximate trim.
    pub(super) const ABOUT: u8 = 4;
}

/// Options of XADD or XTRIM.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) trim: Option<Trim>,
    pub(super) only_existing: bool,
    /// Id of XADD.
    pub(super) id: Option<NewId>,
    /// Index of the first argument after the options and the id.
    pub(super) end: usize,
}

impl Options {
    /// Parses the arguments after the key. `adds` if they are those of XADD. Errors are Redis'.
    pub(super) fn parse(r: &Request<'_>, adds: bool) -> Result<Self, Refusal> {
        let (mut options, mut limit, mut at) = (Self::default(), None, 1);
        while options.id.is_none() && at < r.arguments.len() {
            let has_value = at + 1 < r.arguments.len();
            if adds && r.at(at) == b"*" {
                options.id = Some(NewId::Auto);
            } else if has_value && (r.is(at, "maxlen") || r.is(at, "minid")) {
                if options.trim.is_some() {
                    return Err("ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into());
                }
                let (trim, last) = Trim::parse(r, at)?;
                options.trim = Some(trim);
                at = last;
            } else if has_value && r.is(at, "limit") {
                at += 1;
                let number = parse_integer(r.at(at)).ok_or(NOT_AN_INTEGER)?;
                let number = u64::try_from(number);
                limit = Some(number.map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
            } else if adds && r.is(at, "nomkstream") {
                options.only_existing = true;
            } else if adds {
                options.id = Some(NewId::parse(r.at(at))?);
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        options.end = at;
        options.limit(limit, adds)?;
        Ok(options)
    }

    fn limit(&mut self, limit: Option<u64>, adds: bool) -> Result<(), Refusal> {
        match (&mut self.trim, limit) {
            (None, Some(1..)) => {
                Err("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
                    .into())
            }
            (None, _) if !adds => {
                Err("ERR syntax error, XTRIM must be called with a trimming strategy".into())
            }
            (Some(Trim { approximate_max: None, .. }) | None, Some(_)) => {
                Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into())
            }
            (Some(Trim { approximate_max: Some(most), .. }), Some(limit)) => {
                *most = limit;
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }
}

impl Trim {
    /// Parses `MAXLEN|MINID [=|~] threshold`, of which `at` is the first word. Returns the index of
    /// the threshold.
    fn parse(r: &Request<'_>, at: usize) -> Result<(Self, usize), Refusal> {
        let has_sign = at + 2 < r.arguments.len();
        let (about, last) = match r.at(at + 1) {
            b"~" if has_sign => (Some(LIMIT), at + 2),
            b"=" if has_sign => (None, at + 2),
            _ => (None, at + 1),
        };
        let kept = if r.is(at, "minid") {
            RemainingEntries::From(id::parse(r.at(last), 0)?)
        } else {
            let most = parse_integer(r.at(last)).ok_or(NOT_AN_INTEGER)?;
            let most = u64::try_from(most);
            RemainingEntries::Newest(most.map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
        };
        Ok((Self { remaining: kept, approximate_max: about }, last))
    }

    pub(super) fn encode(self, out: &mut Encoder<'_>) {
        let about = if self.approximate_max.is_some() { kind::ABOUT } else { 0 };
        match self.remaining {
            RemainingEntries::Newest(most) => _ = out.byte(kind::MAXLEN | about).count(most),
            RemainingEntries::From(id) => id::encode(id, out.byte(kind::MINID | about)),
        }
        if let Some(limit) = self.approximate_max {
            out.count(limit);
        }
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let kind = from.byte()?;
        let kept = match kind & !kind::ABOUT {
            kind::MAXLEN => RemainingEntries::Newest(from.count()?),
            kind::MINID => RemainingEntries::From(id::decode(from)?),
            _ => return Err(Malformed),
        };
        let about = match kind & kind::ABOUT {
            0 => None,
            _ => Some(from.count()?),
        };
        Ok(Self { remaining: kept, approximate_max: about })
    }

    /// Finds the entries to remove from a stream to which the entry `added` is about to be added.
    /// Removes all of them, unless the trim is approximate or comes with an addition, which must
    /// not fail because much is to be removed.
    pub(super) fn plan(self, view: Option<&View<'_>>, added: Option<EntryId>) -> Plan {
        let count = view.map_or(0, |view| view.header.count);
        let excess = match self.remaining {
            RemainingEntries::Newest(most) => {
                (count + u64::from(added.is_some())).saturating_sub(most)
            }
            RemainingEntries::From(_) => u64::MAX,
        };
        let is_kept =
            |id: EntryId| matches!(self.remaining, RemainingEntries::From(first) if id >= first);
        let is_partial = self.approximate_max.is_some() || added.is_some();
        let most = excess.min(self.approximate_max.filter(|limit| *limit > 0).unwrap_or(u64::MAX));
        let mut plan = Plan::default();
        let Some(view) = view.filter(|view| most > 0 && count > 0 && !is_kept(view.log.first))
        else {
            plan.added = most > 0 && count == 0 && added.is_some_and(|id| !is_kept(id));
            return plan;
        };
        let mut visits = 0;
        view.entries((EntryId::MIN, EntryId::MAX), false, &mut |id, fields| {
            let removed = plan.removed.len();
            let is_full = is_partial && visits >= PARTIAL_VISITS || removed > REMOVED_MAX;
            if removed as u64 >= most || is_kept(id) || is_full {
                plan.first = Some(id);
                return ControlFlow::Break(());
            }
            visits += 1 + CHANGED_ROW + fields.len() as u64 / 1024;
            plan.removed.push((id, fields.len()));
            ControlFlow::Continue(())
        });
        let all = plan.first.is_none() && (plan.removed.len() as u64) < most;
        plan.added = all && added.is_some_and(|id| !is_kept(id));
        plan
    }

    /// Returns the number of entries to remove if that is certain to be small, without a look at
    /// them.
    pub(super) fn few_removals(self, count: u64, adds: bool) -> Option<u64> {
        const FEW: u64 = 2;
        match self.remaining {
            RemainingEntries::Newest(most) => {
                let excess = (count + u64::from(adds)).saturating_sub(most);
                (excess <= FEW).then_some(excess)
            }
            RemainingEntries::From(_) => None,
        }
    }
}

/// Entries to remove.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Ids of stored entries, with the lengths of their encoded fields.
    removed: Vec<(EntryId, usize)>,
    /// Set if the added entry is removed as well.
    added: bool,
    /// Id of the first entry that remains, if there is one besides the added entry.
    first: Option<EntryId>,
}

impl Plan {
    /// Returns the number of entries.
    pub(super) fn count(&self) -> u64 {
        self.removed.len() as u64 + u64::from(self.added)
    }

    /// Returns the budget's cost of the plan. The nodes keep the names of removed rows until the
    /// batch is committed.
    pub(super) fn cost(&self) -> usize {
        let names = self.count().saturating_mul(EntryId::BYTES as u64 + 1);
        cost(self.count(), names)
    }

    /// Removes the entries. `added` is the id and the length of the added entry, which is stored.
    pub(super) fn carry_out(self, change: &mut Change<'_, '_>, added: Option<(EntryId, usize)>) {
        if self.count() == 0 {
            return;
        }
        for (id, bytes) in &self.removed {
            change.remove(*id, *bytes);
        }
        if let Some((id, bytes)) = added.filter(|_| self.added) {
            change.remove(id, bytes);
        }
        if let Some(first) = self.first.or(added.map(|(id, _)| id)) {
            change.log.first = first;
        }
        change.event("xtrim");
    }
}
