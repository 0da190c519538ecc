//! Limits on the elements that a command may examine or change. They are checked before execution
//! ([visit-1] to [visit-3]).
//!
//! A visit is a unit of work: about the time to examine one element of a collection in memory, a
//! tenth of a microsecond. It measures all work of a command except processing its own bytes.

use quorate_replica::service::Weight;

pub use super::budget::VISITS_MAX;
use super::{
    budget::{CHANGED_ROW, VISITS_PER_FOUND},
    databases::SWAPPED_NAME,
    execute, geo, hll, list,
    operations::each_operation,
    selection::in_database,
    state::{ReadContext, WriteContext},
    stream,
    waiting::Attempt,
    zset,
};
use crate::{
    encode::{Decoder, Fault},
    key::Key,
    op::{Op, Split},
    resp::reply::Reply,
    store::{Database, Store, collection::Header},
    waits::FrontId,
};

/// Number of visits from which on a command has a batch to itself.
const HEAVY: u64 = VISITS_MAX / 16;
/// Maximum number of elements examined per draw, unless the draw walks over the whole collection.
const VISITS_PER_DRAW: u64 = 64;

/// [visit-2] Executes a read within `allowed` visits and returns the number used. If it needs more,
/// fails without a reply.
pub(crate) fn execute_within(
    allowed: u64,
    store: &dyn Store,
    read: impl FnOnce() -> Result<(), Fault>,
) -> Result<u64, Fault> {
    store.meter().allow(Some(allowed));
    let done = read();
    let (over, used) = (store.meter().is_limit_exceeded(), store.meter().used(allowed));
    store.meter().allow(None);
    match over {
        true => Err(Fault::Visits),
        false => done.map(|()| used),
    }
}

/// Returns the number of visits of a walk, or `allowed + 1` if it exceeds `allowed`.
fn walked(
    allowed: u64,
    store: &dyn Store,
    walk: impl FnOnce() -> Result<(), Fault>,
) -> Result<u64, Fault> {
    match execute_within(allowed, store, walk) {
        Err(Fault::Visits) => Ok(allowed.saturating_add(1)),
        walked => walked,
    }
}

/// [visit-3] Returns the weight of a command, for admission.
pub const fn weight_of_visits(visits: u64) -> Weight {
    match visits {
        0..HEAVY => Weight::Light,
        HEAVY..=VISITS_MAX => Weight::Heavy,
        _ => Weight::TooHeavy,
    }
}

/// [visit-1] Returns an upper bound for the visits of a replicated command, not counting those for
/// its arguments. Above `allowed`, the bound is inexact.
pub fn visits(command: &[u8], state: &ReadContext<'_>, allowed: u64) -> u64 {
    let mut sum = 0_u64;
    each_operation(command, |op, from, database| {
        let left = allowed.saturating_sub(sum);
        let more = in_database(state.store, database, || operation_visits(op, from, state, left));
        sum = sum.saturating_add(more.unwrap_or(0));
    });
    sum
}

/// Returns whether a read may visit more elements than its arguments name.
const fn may_visit_many(op: Op) -> bool {
    matches!(
        op,
        Op::Keys
            | Op::Scan
            | Op::RandomKey
            | Op::HAll
            | Op::HRandField
            | Op::Count
            | Op::ScanRows
            | Op::LRange
            | Op::LPos
            | Op::SMembers
            | Op::SRandMember
            | Op::SCombine
            | Op::SInterCard
            | Op::ZRank
            | Op::ZCount
            | Op::ZRange
            | Op::ZRandMember
            | Op::ZCombine
            | Op::ZInterCard
            | Op::Sort
            | Op::XPending
            | Op::XRange
            | Op::XRead
            | Op::XInfo
            | Op::PfCount
            | Op::GeoMembers
            | Op::GeoSearch
            | Op::Lcs
            | Op::ScanNames
    )
}

/// Returns whether a command may take a long time.
pub fn may_be_long(command: &[u8]) -> bool {
    Op::split(command).is_some_and(|Split { op, from, .. }| match op {
        Op::Exec | Op::ExecIn => true,
        Op::XAdd => stream::run::trims(from),
        op => changes_many(op) || may_visit_many(op),
    })
}

/// Returns whether a write may visit more elements than its arguments name.
const fn changes_many(op: Op) -> bool {
    matches!(
        op,
        Op::SStore
            | Op::ZStore
            | Op::ZRangeStore
            | Op::ZRemRange
            | Op::SPop
            | Op::ZPop
            | Op::ZMpop
            | Op::LPop
            | Op::LMpop
            | Op::LRem
            | Op::LInsert
            | Op::LTrim
            | Op::Copy
            | Op::MoveDb
            | Op::CopyTo
            | Op::SwapDb
            | Op::SortStore
            | Op::BitOp
            | Op::Attempt
            | Op::Await
            | Op::Claim
            | Op::XGroup
            | Op::XReadGroup
            | Op::XClaim
            | Op::XAutoClaim
            | Op::XAdd
            | Op::XTrim
            | Op::PfAdd
            | Op::PfMerge
            | Op::GeoStore
    )
}

fn size(store: &dyn Store, key: Key<'_>) -> u64 {
    let entry = store.get(key).filter(|entry| entry.kind.has_rows());
    let header = entry.and_then(|entry| Header::from_bytes(&entry.value));
    header.map_or(0, |header| header.count)
}

/// Returns the visits of a union if `union`, otherwise of an intersection or difference, in which
/// members of one set are looked up in the others. `rows` rows are written per resulting member.
fn combination(union: bool, first: bool, sizes: &[u64], rows: u64) -> u64 {
    let each = 1 + CHANGED_ROW * (1 + rows);
    let named = sizes.len() as u64 * VISITS_PER_FOUND;
    let looked_at = if union {
        sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size)).saturating_mul(each)
    } else {
        let from = if first { sizes.first() } else { sizes.iter().min() };
        from.map_or(0, |from| from.saturating_mul(each + named))
    };
    looked_at.saturating_add(named)
}

fn operation_visits(
    op: Op,
    mut from: Decoder<'_>,
    state: &ReadContext<'_>,
    allowed: u64,
) -> Result<u64, Fault> {
    let store = state.store;
    if may_visit_many(op) {
        let reply = &mut Vec::new();
        let read = || super::read(op, &mut from, state, &mut Reply(reply));
        return walked(allowed, store, read);
    }
    if !changes_many(op) {
        return Ok(0);
    }
    let taken = |count: u64, size: u64| count.min(size).saturating_mul(1 + 2 * CHANGED_ROW);
    let attempt = |from: &mut Decoder<'_>| {
        let attempt = Attempt::decode(from)?;
        let largest = attempt.keys.map(|key| size(store, key)).max();
        Ok::<_, Fault>(taken(attempt.elements_wanted(), largest.unwrap_or(0)))
    };
    Ok(match op {
        Op::SStore => {
            let (_, how, keys) = (from.key()?, from.byte()?, from.keys()?);
            let sizes: Vec<u64> = keys.map(|key| size(store, key)).collect();
            combination(how == 1, how == 2, &sizes, 1)
        }
        Op::ZStore => {
            let (_, how) = (from.key()?, from.byte()?);
            let (_, _, keys) = (from.byte()?, from.byte()?, from.list()?);
            let keys = keys.step_by(2).filter_map(|key| Key::new(key).ok());
            let sizes: Vec<u64> = keys.map(|key| size(store, key)).collect();
            combination(how == 0, how == 2, &sizes, 2)
        }
        Op::ZRangeStore | Op::ZRemRange => {
            let mut found = 0_u64;
            let walked = walked(allowed, store, || {
                found = zset::run::found(op, &mut from, store)?;
                Ok(())
            });
            walked?.saturating_add(found.saturating_mul(2 * CHANGED_ROW))
        }
        Op::LRem | Op::LInsert => {
            let mut moved = 0_u64;
            let walked = walked(allowed, store, || {
                moved = list::run::moved_elements(op, &mut from, store)?;
                Ok(())
            });
            walked?.saturating_add(moved.saturating_mul(1 + 2 * CHANGED_ROW))
        }
        Op::XAdd if !stream::run::trims(from) => 0,
        Op::XAdd | Op::XTrim => {
            let mut removed = 0_u64;
            let walked = walked(allowed, store, || {
                removed = stream::run::trim_visits(op, &mut from, store)?;
                Ok(())
            });
            walked?.saturating_add(removed)
        }
        Op::LTrim => {
            let key = from.key()?;
            let (start, stop, all) = (from.signed()?, from.signed()?, size(store, key));
            let kept = super::elements::index_range(start, stop, all);
            let kept = kept.map_or(0, |(first, behind)| behind - first);
            if kept == 0 { 0 } else { taken(kept.min(all - kept), all) }
        }
        Op::SPop => {
            let (key, _, many) = (from.key()?, from.word()?, from.byte()?);
            match many {
                0 => 0,
                _ => {
                    let (count, size) = (from.count()?, size(store, key));
                    taken(count, size)
                        .saturating_add(count.saturating_mul(VISITS_PER_DRAW).min(size))
                }
            }
        }
        Op::LPop | Op::ZPop => {
            let (key, _, many) = (from.key()?, from.byte()?, from.byte()?);
            match many {
                0 => 0,
                _ => taken(from.count()?, size(store, key)),
            }
        }
        Op::LMpop | Op::ZMpop => {
            let (_, count, keys) = (from.byte()?, from.count()?, from.keys()?);
            let largest = keys.map(|key| size(store, key)).max();
            taken(count, largest.unwrap_or(0))
        }
        Op::Attempt | Op::Await => {
            if op == Op::Attempt {
                from.word()?;
            } else {
                FrontId::decode(&mut from)?;
                from.count()?;
            }
            attempt(&mut from)?
        }
        // A claim of a queued client must not be refused.
        Op::Claim => match state.waits.find(FrontId::decode(&mut from)?, from.count()?) {
            Some(queued) => {
                in_database(store, queued.database, || attempt(&mut Decoder(queued.attempt)))?
                    .min(VISITS_MAX)
            }
            None => 0,
        },
        Op::SwapDb => {
            let mut names = 0_u64;
            for _ in 0..2 {
                let database = Database::new(from.byte()?.into()).ok_or(Fault::Malformed)?;
                names += state.waits.names_in(database);
            }
            names.saturating_mul(SWAPPED_NAME)
        }
        Op::Copy | Op::MoveDb | Op::CopyTo => {
            // Replaces, or the database of the target.
            from.byte()?;
            if op == Op::CopyTo {
                from.byte()?;
            }
            let source = from.key()?;
            let entry = store.get(source).filter(|entry| entry.kind.has_rows());
            let header = entry.map(|entry| (Header::from_bytes(&entry.value), entry.kind));
            let rows = match header {
                Some((Some(header), kind)) => header.rows(kind),
                _ => 0,
            };
            rows.saturating_mul(1 + CHANGED_ROW)
        }
        Op::SortStore => {
            let (_, source) = (from.key()?, from.key()?);
            size(store, source).saturating_mul(1 + VISITS_PER_FOUND)
        }
        Op::PfAdd => hll::add_visits(&mut from, store)?,
        Op::PfMerge => (from.keys()?.len() as u64).saturating_mul(hll::MERGE_VISITS),
        Op::GeoStore => {
            let mut found = 0_u64;
            let walked = walked(allowed, store, || {
                found = geo::find::to_store(&mut from, store)?;
                Ok(())
            });
            walked?.saturating_add(found.saturating_mul(2 * CHANGED_ROW))
        }
        Op::XGroup | Op::XReadGroup | Op::XClaim | Op::XAutoClaim => {
            let mut visits = 0_u64;
            let walked = walked(allowed, store, || {
                visits = stream::groups::visits(op, &mut from, store)?;
                Ok(())
            });
            walked?.saturating_add(visits)
        }
        // The copying budget of the batch limits these commands.
        _ => 0,
    })
}

/// [visit-2] Executes a bounded replicated command. If it would exceed its own limit or that of the
/// batch, fails without effect.
pub(crate) fn execute_bounded(
    op: Op,
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let allowed = state.budget.visits_left().min(VISITS_MAX);
    if op.is_read() {
        let reading = state.reading();
        let done =
            execute_within(allowed, reading.store, || super::read(op, from, &reading, reply));
        if matches!(done, Err(Fault::Visits)) {
            state.budget.charge_visits(allowed)?;
        }
        return state.budget.charge_visits(done?);
    }
    let visits = operation_visits(op, *from, &state.reading(), allowed)?;
    if visits > allowed {
        // Up to `allowed` visits were made to find that out. An admitted command is refused here
        // only if its data has grown since, so the batch loses little.
        state.budget.charge_visits(allowed)?;
        return Err(Fault::Visits);
    }
    state.budget.charge_visits(visits)?;
    execute(op, from, state, reply)
}
