//! Leases: keys attached to a lease are deleted when it is no longer kept alive.
//!
//! A lease whose deadline has passed by the group's time counts as nonexistent ([time-2]). Its keys
//! remain until a command removes them, because a deletion needs a revision. The leader proposes
//! such commands as soon as they are due.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    base::{LeaseDeadlineBounds, Mvcc},
    budget::Budget,
    layout::{
        Lease, attached_end, attachment_place, deadline_place, deadlines_end, deadlines_place,
        lease_place, leases_end, parse_attached, parse_deadline, parse_lease,
    },
    write::Transaction,
};
use crate::refusal::Refusal;

/// Maximum time to live, in seconds.
pub const TTL_S_MAX: i64 = 9_000_000_000;
/// Minimum time to live, in seconds. Shorter requests are raised to it.
pub const TTL_S_MIN: i64 = 1;
pub const LEASES_MAX: u64 = 1_000_000;
/// Maximum number of keys attached to a lease. One command deletes them all.
pub const LEASE_KEYS_MAX: u64 = 100_000;
/// Maximum number of expired leases that a command ends.
const EXPIRED_LEASES_MAX: usize = 100;
/// Number of deleted keys after which a command that expires leases stops.
const EXPIRED_KEYS_MAX: u64 = 10_000;
/// Maximum number of leases visited per page.
const PAGE_LEASES_MAX: usize = 5_000;
/// Number of a lease's keys held in memory at a time while they are deleted.
const KEYS_PER_STEP: usize = 1000;

/// Returns the end of the leases with deadline `at`.
fn deadline_end(at: u64) -> Vec<u8> {
    at.checked_add(1).map_or_else(|| deadlines_end().to_vec(), deadlines_place)
}

impl Mvcc {
    pub fn set_time(&mut self, group_ms: u64) {
        if group_ms < self.group_time_ms {
            // A load may have put the service back to an earlier state.
            self.deadline_bounds = LeaseDeadlineBounds::default();
        }
        self.group_time_ms = group_ms;
    }

    /// Returns a stored lease, even if expired.
    fn stored_lease(&self, id: i64) -> Option<Lease> {
        Lease::decode(&self.store.get(&lease_place(id))?)
    }

    /// Returns a lease, unless it has expired.
    pub fn live_lease(&self, id: i64) -> Option<Lease> {
        let found = self.stored_lease(id);
        found.filter(|lease| lease.deadline_ms > self.group_time_ms)
    }

    /// Returns a page of the leases that have not expired, and the start of the next page. Ids are
    /// ordered as unsigned numbers.
    pub fn leases_page(&self, from: i64) -> (Vec<i64>, Option<i64>) {
        let (mut found, mut looked, mut next) = (Vec::new(), 0, None);
        self.store.scan(&lease_place(from), &leases_end(), &mut |place, bytes| {
            let id = parse_lease(place);
            if looked == PAGE_LEASES_MAX {
                next = id;
                return ControlFlow::Break(());
            }
            looked += 1;
            let lease = Lease::decode(bytes).filter(|lease| lease.deadline_ms > self.group_time_ms);
            found.extend(lease.and(id));
            ControlFlow::Continue(())
        });
        (found, next)
    }

    /// Returns the keys of a lease, in order. Fails if they exceed the budget.
    pub fn lease_keys(&self, id: i64, mut budget: Budget) -> Result<Vec<Bytes>, Refusal> {
        let (mut keys, mut outcome) = (Vec::new(), Ok(()));
        self.visit_lease_keys(id, &[], &mut |key| {
            outcome = budget.charge_visit().and_then(|()| budget.charge_answer(key.len(), 0));
            keys.push(Bytes::copy_from_slice(key));
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        outcome.map(|()| keys)
    }

    /// Visits the keys of a lease from `from` on.
    fn visit_lease_keys(
        &self,
        id: i64,
        from: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) {
        let (from, to) = (attachment_place(id, from), attached_end(id));
        self.store.scan(&from, &to, &mut |place, _| {
            parse_attached(place).map_or(ControlFlow::Continue(()), &mut *visit)
        });
    }

    /// Returns whether a lease has a key from `from` (inclusive) to `to` (exclusive, if given).
    pub(crate) fn lease_has_key(&self, id: i64, from: &[u8], to: Option<&[u8]>) -> bool {
        let end = to.map_or_else(|| attached_end(id), |to| attachment_place(id, to));
        self.store.first(&attachment_place(id, from), &end).is_some()
    }

    /// Checks that a lease may have one more key. An `id` of 0 means no lease.
    pub(super) fn has_room_for_key(&self, id: i64) -> Result<(), Refusal> {
        match self.stored_lease(id) {
            Some(lease) if lease.key_count >= LEASE_KEYS_MAX => Err(Refusal::LeaseKeysFull),
            _ => Ok(()),
        }
    }

    /// Returns the deadline of a lease that is granted or extended now. The group's time is used
    /// instead of `now_ms` if the node's clock lags behind it.
    fn lease_deadline(&self, granted: i64, now_ms: u64) -> u64 {
        let ms = u64::try_from(granted).unwrap_or(0).saturating_mul(1000);
        now_ms.max(self.group_time_ms).saturating_add(ms)
    }

    /// Grants a lease and returns its time to live, which may differ from `ttl`. `now_ms` is the
    /// clock of the node that accepted the request ([time-2]).
    pub fn grant_lease(&mut self, id: i64, ttl: i64, now_ms: u64) -> Result<i64, Refusal> {
        if id == 0 {
            return Err(Refusal::LeaseNotFound);
        }
        if ttl > TTL_S_MAX {
            return Err(Refusal::LeaseTooLong);
        }
        if self.live_lease(id).is_some() {
            return Err(Refusal::LeaseExists);
        }
        if self.stored_lease(id).is_none() && self.state.lease_count >= LEASES_MAX {
            return Err(Refusal::TooManyLeases);
        }
        // Removes an expired lease of this id, with its keys.
        self.end_lease(id);
        let granted = ttl.max(TTL_S_MIN);
        let new = Lease {
            granted_ttl_s: granted,
            deadline_ms: self.lease_deadline(granted, now_ms),
            key_count: 0,
        };
        self.store.put(&lease_place(id), new.encode());
        self.put_deadline(new.deadline_ms, id);
        self.update_lease_count(|leases| leases.saturating_add(1));
        Ok(granted)
    }

    fn put_deadline(&mut self, at: u64, id: i64) {
        self.store.put(&deadline_place(at, id), Bytes::new());
        self.deadline_bounds.next.set(self.deadline_bounds.next.get().min(at));
    }

    fn update_lease_count(&mut self, count: impl FnOnce(u64) -> u64) {
        let mut state = self.state;
        state.lease_count = count(state.lease_count);
        self.set_state(state);
    }

    /// Extends a lease and returns its time to live. A lagging clock never moves the deadline
    /// backwards.
    pub fn keep_alive(&mut self, id: i64, now_ms: u64) -> Result<i64, Refusal> {
        let mut found = self.live_lease(id).ok_or(Refusal::LeaseNotFound)?;
        let new = self.lease_deadline(found.granted_ttl_s, now_ms);
        if new > found.deadline_ms {
            self.store.remove(&deadline_place(found.deadline_ms, id));
            found.deadline_ms = new;
            self.store.put(&lease_place(id), found.encode());
            self.put_deadline(new, id);
        }
        Ok(found.granted_ttl_s)
    }

    /// Ends a lease and deletes its keys in one revision. Returns the current revision.
    pub fn revoke_lease(&mut self, id: i64) -> Result<i64, Refusal> {
        self.live_lease(id).ok_or(Refusal::LeaseNotFound)?;
        self.end_lease(id);
        Ok(self.state.revision)
    }

    fn end_lease(&mut self, id: i64) {
        let Some(old) = self.stored_lease(id) else {
            return;
        };
        self.store.remove(&lease_place(id));
        self.store.remove(&deadline_place(old.deadline_ms, id));
        self.update_lease_count(|leases| leases.saturating_sub(1));
        let mut writing = Transaction::single_request(self);
        let mut from = Vec::new();
        loop {
            // Copies a limited number of keys at a time, to bound memory.
            let mut keys: Vec<Vec<u8>> = Vec::new();
            writing.mvcc.visit_lease_keys(id, &from, &mut |key| {
                keys.push(key.to_vec());
                match keys.len() < KEYS_PER_STEP {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            for key in &keys {
                writing.delete_key(key);
            }
            match keys.pop() {
                Some(last) if keys.len() + 1 == KEYS_PER_STEP => from = [&last[..], &[0]].concat(),
                _ => break,
            }
        }
        writing.finish();
    }

    /// Returns the earliest deadline after the group's time and up to `until_ms`.
    pub fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        let from = self.group_time_ms.checked_add(1)?.max(self.deadline_bounds.next.get());
        if from > until_ms {
            return None;
        }
        let first = self.store.first(&deadlines_place(from), &deadline_end(until_ms));
        let at = first.and_then(|(place, _)| parse_deadline(&place));
        let at = at.map(|(at, _)| at);
        self.deadline_bounds.next.set(at.unwrap_or(until_ms.saturating_add(1)));
        at
    }

    /// Visits the expired leases, earliest deadline first.
    fn visit_expired(&self, visit: &mut dyn FnMut(i64) -> ControlFlow<()>) {
        let (at, id) = self.deadline_bounds.earliest.get();
        if at > self.group_time_ms {
            return;
        }
        let mut first = None;
        let from = deadline_place(at, id.cast_signed());
        self.store.scan(&from, &deadline_end(self.group_time_ms), &mut |place, _| {
            let Some((at, id)) = parse_deadline(place) else {
                return ControlFlow::Continue(());
            };
            first.get_or_insert((at, id.cast_unsigned()));
            visit(id)
        });
        let first = first.unwrap_or((self.group_time_ms.saturating_add(1), 0));
        self.deadline_bounds.earliest.set(first);
    }

    /// Returns whether expired leases remain to be ended.
    pub fn has_expired_leases(&self) -> bool {
        let mut found = false;
        self.visit_expired(&mut |_| {
            found = true;
            ControlFlow::Break(())
        });
        found
    }

    /// Ends a bounded number of expired leases, earliest deadline first.
    pub fn expire_leases(&mut self) {
        let mut ended = Vec::new();
        self.visit_expired(&mut |id| {
            ended.push(id);
            match ended.len() < EXPIRED_LEASES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        let mut keys = 0;
        for id in ended {
            keys += self.stored_lease(id).map_or(0, |lease| lease.key_count);
            self.end_lease(id);
            if keys >= EXPIRED_KEYS_MAX {
                return;
            }
        }
    }
}
