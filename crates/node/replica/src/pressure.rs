//! Back-pressure on clients: their input is not read while enough is queued for the next batches.
//!
//! A longer queue does not increase the throughput. Input left in the sockets costs this node
//! nothing, whereas input read beyond a limit has to be parsed before it can be refused.

use std::cmp::Reverse;

use crate::{limits::Limits, ports::outcome::ConnectionId};

/// Number of full batches that may be queued while another is being formed.
const QUEUED_BATCHES_MAX: usize = 4;
/// Minimum of the limit on queued bytes, so that small batches do not shorten the queue too much.
const BOUND_BYTES_MIN: usize = 4 << 20;

/// Fill level of this node's queues of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Input may be read from all clients.
    Low,
    /// Reading may continue from clients that are already being read.
    Medium,
    /// No input should be read from clients, because the queued work will last for a while.
    High,
}

impl Pressure {
    /// Returns the pressure of a queue of `waits` bytes whose limit is `bound` bytes.
    pub(crate) fn from_queued_bytes(waits: usize, bound: usize) -> Self {
        if waits > bound {
            Self::High
        } else if waits > bound / 2 {
            Self::Medium
        } else {
            Self::Low
        }
    }
}

/// Returns the client to disconnect if all clients together use too much memory, and its memory in
/// bytes: the client that uses the most, or the oldest of several. Applies from three quarters of
/// `bytes_max`, to leave space for clients that do read their replies.
pub fn heaviest(
    held_bytes: usize,
    bytes_max: usize,
    clients: impl Iterator<Item = (ConnectionId, usize)>,
) -> Option<(ConnectionId, usize)> {
    if held_bytes <= bytes_max / 4 * 3 {
        return None;
    }
    clients.max_by_key(|(client, bytes)| (*bytes, Reverse(*client)))
}

/// Returns the size of queued commands, in bytes, above which no client is read: at most half of
/// the limit for refusing commands, so that input that was already read still fits.
pub(crate) fn queued_bytes_max(limits: &Limits) -> usize {
    let batches = limits.batch_bytes.saturating_mul(QUEUED_BATCHES_MAX);
    batches.max(BOUND_BYTES_MIN).min(limits.pending_bytes / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_follows_the_batch_size_below_the_refusal_limit() {
        let bound = |batch_bytes, pending_bytes| {
            queued_bytes_max(&Limits { batch_bytes, pending_bytes, ..Limits::default() })
        };
        assert_eq!(bound(1000, 32 << 20), 4 << 20);
        assert_eq!(bound(2 << 20, 32 << 20), 8 << 20);
        assert_eq!(bound(16 << 20, 32 << 20), 16 << 20);
        assert_eq!(bound(usize::MAX, 100), 50);
    }

    #[test]
    fn heaviest_client_is_chosen_when_the_total_is_exceeded() {
        let clients = [(1, 300), (2, 340), (3, 340)].map(|(id, bytes)| (ConnectionId(id), bytes));
        let clients = || clients.into_iter();
        assert_eq!(heaviest(760, 1016, clients()), None);
        assert_eq!(heaviest(760, 1012, clients()), Some((ConnectionId(2), 340)));
        assert_eq!(heaviest(760, 1012, std::iter::empty()), None);
    }

    #[test]
    fn pressure_levels_change_at_half_and_full_bound() {
        let levels = [0, 50, 51, 100, 101].map(|waits| Pressure::from_queued_bytes(waits, 100));
        let expected =
            [Pressure::Low, Pressure::Low, Pressure::Medium, Pressure::Medium, Pressure::High];
        assert_eq!(levels, expected);
    }
}
