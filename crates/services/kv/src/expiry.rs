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

/// [db-8] Choice of the database to sweep next. It is the leader's alone: any command of it does.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Last sweep of each database: its number among all sweeps, and the earliest deadline then.
    last: [Option<(u64, u64)>; Database::COUNT],
    count: u64,
}

impl Sweeps {
    /// Chooses one of some databases, given with their earliest deadlines: the one with the
    /// earliest of all. A database comes after the others if its earliest deadline is that of its
    /// last sweep, which has not been executed or could not remove it. Such databases take turns.
    fn choose(&mut self, passed: impl Iterator<Item = (u64, Database)>) -> Option<(u64, Database)> {
        let (_, first, database) = passed
            .map(|(first, database)| {
                let last = self.last[database.index()].filter(|(_, deadline)| *deadline == first);
                (last.map(|(number, _)| number), first, database)
            })
            .min()?;
        self.count += 1;
        self.last[database.index()] = Some((self.count, first));
        Some((first, database))
    }
}

/// Returns the command that the leader should propose now, if any key or field has expired.
pub(crate) fn sweep(store: &dyn Store, sweeps: &mut Sweeps) -> Option<Vec<u8>> {
    let used = store.in_use();
    let used = Database::all().filter(|database| used & database.bit() != 0);
    let (first, database) = sweeps.choose(used.filter_map(|database| {
        Some((in_database(store, database, || first_passed(store))?, database))
    }))?;
    let age_ms = store.time().saturating_sub(first);
    let bite = BITES.iter().find(|(until_ms, _)| age_ms <= *until_ms);
    let (_, keys) = bite.expect("the last takes any age");
    let mut command = Vec::new();
    encode_sweep(*keys as u64, &mut Encoder(&mut command));
    Op::address(&mut command, database);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proposes sweeps of databases, given with their earliest deadlines, and returns the order.
    fn order<const N: usize>(sweeps: &mut Sweeps, passed: &[(u64, u64)]) -> [u8; N] {
        [(); N].map(|()| {
            let database = |number| Database::new(number).unwrap();
            let passed = passed.iter().map(|(first, number)| (*first, database(*number)));
            sweeps.choose(passed).unwrap().1.number()
        })
    }

    #[test]
    fn sweep_without_effect_does_not_hold_up_other_databases() {
        let mut sweeps = Sweeps::default();
        assert_eq!(sweeps.choose([].into_iter()), None);
        // Nothing is removed from databases 0 and 2.
        assert_eq!(order(&mut sweeps, &[(10, 0), (12, 2), (11, 15)]), [0, 15, 2, 0, 15, 2]);
        // Another deadline of database 15 comes first, and counts anew.
        assert_eq!(order(&mut sweeps, &[(10, 0), (12, 2), (13, 15)]), [15, 0, 2, 15]);
        // An effective sweep of one database after the other: the earliest deadline first.
        assert_eq!(order(&mut sweeps, &[(20, 0), (19, 2)]), [2, 0]);
        assert_eq!(order(&mut sweeps, &[(30, 0), (21, 2)]), [2, 0]);
    }
}
