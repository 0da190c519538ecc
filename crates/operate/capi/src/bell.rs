//! Wakes threads that wait on a condition variable, and event loops that poll a descriptor.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};

/// A bell that wakes all listeners and counts its rings.
#[derive(Debug)]
pub struct Bell {
    state: Mutex<State>,
    changed: Condvar,
    descriptor: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    ring_count: u64,
    /// Number of blocked threads. If it is zero and the descriptor is already readable, a ring
    /// makes no system call.
    waiting_threads: usize,
    /// Set if the descriptor is readable or about to become so.
    is_readable: bool,
}

impl Bell {
    /// Creates a bell. Fails if no descriptor is free.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            descriptor: eventfd(0, flags)?,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all listeners and makes the descriptor readable.
    pub fn ring(&self) {
        let (waited_for, written) = {
            let mut state = self.state();
            state.ring_count += 1;
            let written = !std::mem::replace(&mut state.is_readable, true);
            (state.waiting_threads > 0, written)
        };
        // Notify after unlocking. Otherwise a woken thread would block on the lock at once.
        if waited_for {
            self.changed.notify_all();
        }
        if written {
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable until the next ring, although a ring in progress may still
    /// make it readable. The caller must check for events afterwards. Must not be called
    /// concurrently.
    pub fn clear_readable(&self) {
        if !self.state().is_readable {
            return;
        }
        // The next call reads a ring that has not been written yet. A ring between the read and the
        // next line writes nothing, but the caller sees its event when it checks.
        if rustix::io::read(&self.descriptor, &mut [0; 8]).is_ok() {
            self.state().is_readable = false;
        }
    }

    /// Returns the number of rings since the bell was created.
    pub fn ring_count(&self) -> u64 {
        self.state().ring_count
    }

    /// Waits until the number of rings differs from `seen`. Returns `false` on timeout.
    pub fn wait_for_ring(&self, seen: u64, until: Option<Instant>) -> bool {
        let mut state = self.state();
        while state.ring_count == seen {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            state.waiting_threads += 1;
            state = match left {
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            state.waiting_threads -= 1;
        }
        true
    }

    /// Returns the descriptor, which is readable after a ring.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits until one of the descriptors is readable. Returns `false` on timeout.
pub fn wait_readable(of: &[BorrowedFd<'_>], until: Option<Instant>) -> bool {
    let mut set: Vec<PollFd<'_>> =
        of.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    wait_ready(&mut set, until)
}

/// Waits until a descriptor in the set is ready. Returns `false` on timeout.
pub fn wait_ready(set: &mut [PollFd<'_>], until: Option<Instant>) -> bool {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(set, left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            // The program has handled a signal.
            Err(Errno::INTR) => {}
            // If waiting fails, the caller checks the descriptors.
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        thread,
        time::Duration,
    };

    use super::*;

    /// The next hush clears a ring that a stalled thread writes late.
    #[test]
    fn late_write_is_cleared_by_the_next_hush() {
        let bell = Bell::new().unwrap();
        let readable = |bell: &Bell| wait_readable(&[bell.descriptor()], Some(Instant::now()));
        bell.state().is_readable = true;
        bell.clear_readable();
        bell.ring();
        bell.clear_readable();
        let _ = rustix::io::write(&bell.descriptor, &1_u64.to_ne_bytes());
        assert!(readable(&bell));
        bell.clear_readable();
        assert!(!readable(&bell));
        bell.ring();
        assert!(readable(&bell));
    }

    /// No ring is lost during concurrent rings and hushes: the check after a hush or the descriptor
    /// shows it.
    #[test]
    fn no_ring_is_lost_during_concurrent_hushes() {
        let bell = Arc::new(Bell::new().unwrap());
        let other = Arc::clone(&bell);
        let done = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&done);
        const RINGS: u64 = 20_000;
        let ringer = thread::spawn(move || {
            for number in 1..=RINGS {
                own.store(number, Ordering::SeqCst);
                other.ring();
                if number % 7 == 0 {
                    thread::yield_now();
                }
            }
        });
        let until = Some(Instant::now() + Duration::from_secs(60));
        while done.load(Ordering::SeqCst) < RINGS {
            assert!(wait_readable(&[bell.descriptor()], until), "a ring was lost");
            bell.clear_readable();
        }
        ringer.join().unwrap();
    }

    #[test]
    fn ring_wakes_the_waiter_and_makes_the_descriptor_readable() {
        let bell = Arc::new(Bell::new().unwrap());
        let readable = |bell: &Bell| wait_readable(&[bell.descriptor()], Some(Instant::now()));
        bell.clear_readable();
        let seen = bell.ring_count();
        assert!(!readable(&bell));
        assert!(!bell.wait_for_ring(seen, Some(Instant::now())), "nothing rang");
        let other = Arc::clone(&bell);
        let ringer = thread::spawn(move || other.ring());
        assert!(bell.wait_for_ring(seen, None));
        ringer.join().unwrap();
        assert!(readable(&bell));
        bell.ring();
        assert_eq!(bell.ring_count(), seen + 2);
        bell.clear_readable();
        bell.clear_readable();
        assert!(!readable(&bell));
        bell.ring();
        assert!(readable(&bell));
    }
}
