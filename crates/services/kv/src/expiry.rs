//! Background expiry: removes expired keys and fields in small steps ([time-2]).
//!
//! Clients cannot observe the removal, so it is not urgent. It is nevertheless a command in the
//! log, so that stored keys, digests and snapshots depend only on the log.

use std::ops::ControlFlow;

use crate::{
    commands::{expiry::encode_sweep, selection::in_database},
    encode::Encoder,
    op::Op,
    store::{Database, DeadlineKind, Store},
};

/// Number of keys and fields that one command removes, by the time in milliseconds since the oldest
/// of them expired. It grows with the backlog, in case keys are set faster than they are removed.
const BITES: [(u64, usize); 3] = [(10_000, 256), (60_000, 1024), (u64::MAX, 4096)];

/// Returns the earliest passed deadline of the selected database.
fn first_passed(store: &dyn Store) -> Option<u64> {
    let mut first: Option<u64> = None;
    for of in [DeadlineKind::Keys, DeadlineKind::Fields] {
        store.deadlines(of, 0, store.time(), &mut |deadline, _| {
            first = Some(first.map_or(deadline, |first| first.min(deadline)));
            ControlFlow::Break(())
        });
    }
    first
}

/// [db-8] Returns the command that the leader should propose now, if any key or field has expired. It
/// sweeps the database with the earliest deadline, so that no database has to wait for another.
pub(crate) fn sweep(store: &dyn Store) -> Option<Vec<u8>> {
    let used = store.in_use();
    let used = Database::all().filter(|database| used & database.bit() != 0);
    let passed = used.filter_map(|database| {
        Some((in_database(store, database, || first_passed(store))?, database))
    });
    let (first, database) = passed.min()?;
    let age_ms = store.time().saturating_sub(first);
    let bite = BITES.iter().find(|(until_ms, _)| age_ms <= *until_ms);
    let (_, keys) = bite.expect("the last takes any age");
    let mut command = Vec::new();
    encode_sweep(*keys as u64, &mut Encoder(&mut command));
    Op::address(&mut command, database);
    Some(command)
}
