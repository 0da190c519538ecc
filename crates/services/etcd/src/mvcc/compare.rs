//! Key comparisons, which select the branch of a transaction.

use std::{cmp::Ordering, ops::ControlFlow};

use super::{
    base::Mvcc,
    budget::Budget,
    layout::{Record, Revision},
    read::KeySelection,
};
use crate::{
    proto::etcdserverpb::{
        Compare,
        compare::{CompareResult, CompareTarget, TargetUnion},
    },
    refusal::Refusal,
};

/// Record used in comparisons with a key that does not exist.
const ABSENT: Record = Record {
    revision: Revision { main: 0, sub: 0 },
    created_revision: 0,
    version: 0,
    lease: 0,
    value: bytes::Bytes::new(),
};

fn record_matches(compare: &Compare, record: &Record) -> bool {
    let union = compare.target_union.as_ref();
    // As in etcd, an operand that is missing or of another kind counts as zero.
    let number = |wanted: Option<i64>, has: i64| has.cmp(&wanted.unwrap_or(0));
    let order = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Version) => {
            let wanted = match union {
                Some(TargetUnion::Version(version)) => Some(*version),
                _ => None,
            };
            number(wanted, record.version)
        }
        Ok(CompareTarget::Create) => {
            let wanted = match union {
                Some(TargetUnion::CreateRevision(revision)) => Some(*revision),
                _ => None,
            };
            number(wanted, record.created_revision)
        }
        Ok(CompareTarget::Mod) => {
            let wanted = match union {
                Some(TargetUnion::ModRevision(revision)) => Some(*revision),
                _ => None,
            };
            number(wanted, record.revision.main)
        }
        Ok(CompareTarget::Lease) => {
            let wanted = match union {
                Some(TargetUnion::Lease(lease)) => Some(*lease),
                _ => None,
            };
            number(wanted, record.lease)
        }
        Ok(CompareTarget::Value) => {
            let wanted: &[u8] = match union {
                Some(TargetUnion::Value(value)) => value,
                _ => &[],
            };
            record.value[..].cmp(wanted)
        }
        Err(_) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => order.is_eq(),
        Ok(CompareResult::NotEqual) => order.is_ne(),
        Ok(CompareResult::Greater) => order.is_gt(),
        Ok(CompareResult::Less) => order.is_lt(),
        // As in etcd.
        Err(_) => true,
    }
}

impl Mvcc {
    /// Returns whether all comparisons hold. A comparison of a range must hold for each of its
    /// keys.
    pub(super) fn all_match(
        &self,
        compares: &[Compare],
        budget: &mut Budget,
    ) -> Result<bool, Refusal> {
        for compare in compares {
            if !self.compare_matches(compare, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn compare_matches(&self, compare: &Compare, budget: &mut Budget) -> Result<bool, Refusal> {
        let (mut any, mut all, mut outcome) = (false, true, Ok(()));
        let keys = KeySelection::from_range(&compare.key, &compare.range_end);
        self.visit_current(keys, &mut |_, record| {
            any = true;
            all = record_matches(compare, &record);
            outcome = budget.charge_visit();
            match outcome {
                Ok(()) if all => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        outcome?;
        if any {
            return Ok(all);
        }
        // `ABSENT` has an empty value, which must not compare equal to one: comparisons with the
        // value of a key that does not exist never hold.
        let of_value = compare.target == i32::from(CompareTarget::Value);
        Ok(!of_value && record_matches(compare, &ABSENT))
    }
}
