//! Commands, one file per family: encoding of requests, and their execution on every node.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use self::{
    family::{Family, Run},
    state::{ReadContext, WriteContext},
};
use crate::{
    command::Spec,
    encode::{Decoder, Fault},
    op::{Deadline, Op, Split},
    resp::reply::Reply,
    store::Database,
};

pub mod bits;
mod budget;
mod chance;
pub mod channels;
pub mod conditions;
pub mod counters;
pub mod databases;
mod elements;
mod ends;
pub mod events;
pub mod exec;
pub mod expiry;
pub mod family;
pub mod geo;
pub mod hash;
pub mod hll;
pub mod inspect;
pub mod keys;
pub mod lcs;
pub mod list;
mod lock;
pub mod locks;
pub mod operations;
mod rows;
mod score;
pub mod scripts;
pub mod selection;
pub mod server;
pub mod set;
pub mod sort;
pub mod state;
pub mod stream;
pub mod strings;
pub mod transactions;
mod view;
pub mod visits;
pub mod waiting;
pub mod zset;

pub use budget::{Budget, COPIED_BYTES_MAX};

/// All command families. A new family needs an entry here and operation numbers in [`Op`].
pub const FAMILIES: [&Family; 26] = [
    &strings::FAMILY,
    &conditions::FAMILY,
    &locks::FAMILY,
    &channels::FAMILY,
    &scripts::FAMILY,
    &counters::FAMILY,
    &bits::FAMILY,
    &hll::FAMILY,
    &lcs::FAMILY,
    &expiry::FAMILY,
    &keys::FAMILY,
    &databases::FAMILY,
    &elements::FAMILY,
    &hash::FAMILY,
    &hash::expiry::FAMILY,
    &list::FAMILY,
    &set::FAMILY,
    &zset::FAMILY,
    &geo::FAMILY,
    &stream::FAMILY,
    &stream::groups::FAMILY,
    &waiting::FAMILY,
    &sort::FAMILY,
    &inspect::FAMILY,
    &server::FAMILY,
    &transactions::FAMILY,
];

/// Returns all commands in the order of their numbers.
pub(crate) fn specs() -> impl Iterator<Item = &'static Spec> {
    FAMILIES.iter().flat_map(|family| family.commands)
}

/// Length of the longest name of a command.
const NAME_BYTES_MAX: usize = "georadiusbymember_ro".len();

/// Looks up a command and its number by name, ignoring case.
pub(crate) fn lookup(name: &[u8]) -> Option<(u16, &'static Spec)> {
    static TABLE: LazyLock<FxHashMap<&[u8], (u16, &Spec)>> = LazyLock::new(|| {
        (0..).zip(specs()).map(|(number, spec)| (spec.name.as_bytes(), (number, spec))).collect()
    });
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    TABLE.get(&*lower).copied()
}

/// Functions by operation number. EXEC and scripts, which contain other operations, are in [`exec`]
/// and [`scripts::run`].
static RUNS: [Option<Run>; 256] = {
    let mut runs = [None; 256];
    let mut family = 0;
    while family < FAMILIES.len() {
        let operations = FAMILIES[family].operations;
        let mut at = 0;
        while at < operations.len() {
            let number = operations[at].op as usize;
            assert!(runs[number].is_none(), "one operation in two families");
            runs[number] = Some(operations[at].run);
            at += 1;
        }
        family += 1;
    }
    runs
};

/// Returns the first key of a command and its database, if they are cheap to find. Only a hint: the
/// command is not validated.
pub fn first_key(command: &[u8]) -> Option<(Database, &[u8])> {
    let Split { op, mut from, bounded, database } = Op::split(command)?;
    if bounded {
        return None;
    }
    match op {
        Op::Set => {
            from.byte().ok()?;
            Deadline::decode(&mut from).ok()?;
        }
        Op::IncrBy => {
            from.signed().ok()?;
        }
        // Writes on collections begin with their key, except those on several keys.
        Op::GetDel | Op::DelIf | Op::SetBit | Op::BitField => {}
        op if (Op::HSet as u8..=Op::ZStore as u8).contains(&(op as u8))
            && !matches!(op, Op::LMpop | Op::ZMpop) => {}
        Op::XAdd | Op::XDel | Op::XTrim | Op::XAck => {}
        Op::XGroup | Op::XClaim | Op::XAutoClaim => {}
        Op::PfAdd | Op::HGetDel => {}
        Op::Expire => {
            from.byte().ok()?;
        }
        Op::Append | Op::Del => {
            from.count().ok()?;
        }
        _ => return None,
    }
    Some((database, from.bytes().ok()?))
}

/// [read-9] Returns whether a command may change the answer to a query. A command that names all
/// its keys does not, if the query's only key is not among its arguments, or in another database.
pub fn may_change(command: &[u8], query: &[u8]) -> bool {
    let names_its_keys = |split: &Split<'_>| !split.bounded && split.op.names_its_keys();
    let Some(changes) = Op::split(command).filter(names_its_keys) else {
        return true;
    };
    let Some(mut reads) = Op::split(query).filter(|query| query.op.reads_first_key()) else {
        return true;
    };
    let from = &mut reads.from;
    let rest = from.0;
    if from.bytes().is_err() {
        return true;
    }
    if changes.database != reads.database {
        return false;
    }
    // With its length, as in the command.
    let key = &rest[..rest.len() - from.0.len()];
    command.windows(key.len()).any(|part| part == key)
}

pub fn execute(
    op: Op,
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    match RUNS[op as usize] {
        Some(Run::Read(read)) => read(from, &state.reading(), reply),
        Some(Run::Write(write)) => write(from, state, reply),
        None => Err(Fault::Malformed),
    }
}

/// Executes a read-only operation outside the log.
pub fn read(
    op: Op,
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    match RUNS[op as usize] {
        Some(Run::Read(read)) => read(from, state, reply),
        Some(Run::Write(_)) | None => Err(Fault::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [read-9] A command that names all its keys changes no others. Any other command may change
    /// every key.
    #[test]
    fn command_on_another_key_changes_no_reply() {
        let get = [Op::Get as u8, 1, b'k'];
        let set = |key| [Op::Set as u8, 0, 0, 1, key, 1, b'v'];
        assert!(may_change(&set(b'k'), &get));
        assert!(!may_change(&set(b'j'), &get));
        let addressed = |command: &[u8]| [&[Op::In as u8, 3], command].concat();
        assert!(!may_change(&set(b'k'), &addressed(&get)), "another database");
        assert!(!may_change(&addressed(&set(b'k')), &get), "another database");
        assert!(may_change(&addressed(&set(b'k')), &addressed(&get)));
        assert!(may_change(&addressed(&[Op::MoveDb as u8, 0, 1, b'k']), &get), "names a database");
        assert!(may_change(&[Op::Flush as u8], &get), "a command that names no keys");
        assert!(may_change(&set(b'j'), &[Op::Dbsize as u8]), "a query of all keys");
    }

    #[test]
    fn only_wrapping_operations_have_no_handler() {
        for op in Op::ALL {
            let wraps = matches!(
                op,
                Op::Exec | Op::ExecIn | Op::Bounded | Op::In | Op::Script | Op::ScriptRo
            );
            assert_eq!(RUNS[op as usize].is_some(), !wraps, "{op:?}");
        }
    }
}
