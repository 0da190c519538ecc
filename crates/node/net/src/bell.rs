//! Wake-up of a consumer thread by a producer. A system call is made only if the consumer sleeps
//! ([io-11]).

use std::io;

use super::{
    sync::{AtomicBool, Ordering, fence},
    wake::Wake,
};

#[derive(Debug)]
pub(crate) struct Bell {
    is_asleep: AtomicBool,
    wake: Wake,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { is_asleep: AtomicBool::new(false), wake: Wake::new()? })
    }

    /// Returns the descriptor to sleep on, readable once the bell has rung.
    pub(crate) const fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Wakes the consumer if it sleeps. The caller must have published its work before.
    pub(crate) fn wake_consumer(&self) {
        // Either this load sees that the consumer is about to sleep, or the consumer's last check
        // sees the work: both sides have a fence between their store and their load.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            self.wake.signal();
        }
    }

    /// Announces that the consumer will sleep. If `has_work` finds work now, retracts the
    /// announcement and returns `false`.
    pub(crate) fn may_sleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !has_work();
        if !may {
            self.mark_awake();
        }
        may
    }

    /// Records that the consumer is awake, for whatever reason.
    pub(crate) fn mark_awake(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }
}

/// Request of a producer for space in a full ring.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequest(AtomicBool);

impl SpaceRequest {
    /// Requests the consumer to ring once there is space. The producer must check the ring again
    /// before it sleeps.
    pub(crate) fn request_space(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether to ring because `has_room` fulfils a request. The caller must have freed
    /// space before.
    pub(crate) fn should_ring(&self, has_room: impl FnOnce() -> bool) -> bool {
        fence(Ordering::SeqCst);
        // The request is taken before the check of the ring: if the producer fills the space
        // meanwhile and makes another request, that one must not be lost.
        if !self.0.load(Ordering::Relaxed) || !self.0.swap(false, Ordering::SeqCst) {
            return false;
        }
        let is_met = has_room();
        if !is_met {
            self.request_space();
        }
        is_met
    }
}
