//! Leases: keys that go together when nobody keeps them alive.
//!
//! A lease that ended by the group's time does not exist ([time-2]); its keys do until a command removes them, since that
//! takes a revision. Such commands are proposed by the leader as soon as there is something to remove.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    Mvcc,
    layout::{
        Lease, attached, attached_end, deadline, deadlines, deadlines_end, lease, leases,
        parse_attached, parse_deadline, parse_lease,
    },
    write::Writing,
};
use crate::refusal::Refusal;

/// Longest time that a lease is granted for, in seconds.
pub const TTL_MAX: i64 = 9_000_000_000;
/// Shortest one; less is taken for this.
pub const TTL_MIN: i64 = 1;
/// Leases that one command ends because of their time.
const ENDED_MAX: usize = 100;

impl Mvcc {
    /// The group's time from here on, Unix time in milliseconds.
    pub const fn set_time(&mut self, group_ms: u64) {
        self.time = group_ms;
    }

    /// A lease as it is stored, whether or not it ended.
    fn stored_lease(&self, id: i64) -> Option<Lease> {
        Lease::decode(&self.store.get(&lease(id))?)
    }

    /// A lease that exists.
    pub fn lease(&self, id: i64) -> Option<Lease> {
        let found = self.stored_lease(id);
        found.filter(|lease| lease.deadline > self.time)
    }

    /// All leases that exist, in the order of their ids.
    pub fn leases(&self) -> Vec<i64> {
        let (mut found, (from, to)) = (Vec::new(), leases());
        self.store.scan(&from, &to, &mut |place, bytes| {
            let lease = Lease::decode(bytes).filter(|lease| lease.deadline > self.time);
            found.extend(lease.and_then(|_| parse_lease(place)));
            ControlFlow::Continue(())
        });
        found
    }

    /// The keys of a lease, in order.
    pub fn keys_of(&self, id: i64) -> Vec<Bytes> {
        let mut keys = Vec::new();
        let (from, to) = (attached(id, &[]), attached_end(id));
        self.store.scan(&from, &to, &mut |place, _| {
            keys.extend(parse_attached(place).map(Bytes::copy_from_slice));
            ControlFlow::Continue(())
        });
        keys
    }

    /// Grants a lease, or lets it begin anew. `now_ms` is the clock of whoever took the request.
    fn set_lease(&mut self, id: i64, granted: i64, now_ms: u64) {
        if let Some(old) = self.stored_lease(id) {
            self.store.remove(&deadline(old.deadline, id));
        }
        let ms = u64::try_from(granted).unwrap_or(0).saturating_mul(1000);
        let new = Lease {
            granted,
            // Not earlier than its time, whosever clock is slow.
            deadline: now_ms.max(self.time).saturating_add(ms),
        };
        self.store.put(&lease(id), new.encode());
        self.store.put(&deadline(new.deadline, id), Bytes::new());
    }

    /// Grants a lease for so many seconds; says for how many it is.
    pub fn grant(&mut self, id: i64, ttl: i64, now_ms: u64) -> Result<i64, Refusal> {
        if id == 0 {
            return Err(Refusal::LeaseNotFound);
        }
        if ttl > TTL_MAX {
            return Err(Refusal::LeaseTooLong);
        }
        if self.lease(id).is_some() {
            return Err(Refusal::LeaseExists);
        }
        // One that ended a moment ago takes its keys along.
        self.end_lease(id);
        let ttl = ttl.max(TTL_MIN);
        self.set_lease(id, ttl, now_ms);
        Ok(ttl)
    }

    /// Lets a lease begin anew; says for how many seconds it is granted.
    pub fn keep_alive(&mut self, id: i64, now_ms: u64) -> Result<i64, Refusal> {
        let lease = self.lease(id).ok_or(Refusal::LeaseNotFound)?;
        self.set_lease(id, lease.granted, now_ms);
        Ok(lease.granted)
    }

    /// Ends a lease; its keys go in one revision. The revision now.
    pub fn revoke(&mut self, id: i64) -> Result<i64, Refusal> {
        self.lease(id).ok_or(Refusal::LeaseNotFound)?;
        self.end_lease(id);
        Ok(self.state.revision)
    }

    fn end_lease(&mut self, id: i64) {
        let Some(old) = self.stored_lease(id) else {
            return;
        };
        let keys = self.keys_of(id);
        let mut writing = Writing::new(self);
        for key in &keys {
            writing.delete_key(key);
        }
        writing.finish();
        self.store.remove(&lease(id));
        self.store.remove(&deadline(old.deadline, id));
    }

    /// The earliest deadline above the group's time and up to this one.
    pub fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        let from = deadlines(self.time.checked_add(1)?);
        let (place, _) = self.store.first(&from, &deadlines_end())?;
        let (at, _) = parse_deadline(&place)?;
        (at <= until_ms).then_some(at)
    }

    /// Whether leases ended whose keys are still there.
    pub fn has_ended_leases(&self) -> bool {
        let first = self.store.first(&deadlines(0), &deadlines_end());
        let at = first.and_then(|(place, _)| parse_deadline(&place));
        at.is_some_and(|(at, _)| at <= self.time)
    }

    /// Ends some of the leases whose time is over, those first that ended first.
    pub fn expire(&mut self) {
        let mut ended = Vec::new();
        let to = match self.time.checked_add(1) {
            Some(after) => deadlines(after),
            None => deadlines_end().to_vec(),
        };
        self.store.scan(&deadlines(0), &to, &mut |place, _| {
            ended.extend(parse_deadline(place).map(|(_, id)| id));
            match ended.len() < ENDED_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        for id in ended {
            self.end_lease(id);
        }
    }
}
