//! Wakes whoever waits: threads on a condition, and loops on a descriptor.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rustix::event::{EventfdFlags, eventfd};

/// Rings for everybody who listens; counts how often it rang.
#[derive(Debug)]
pub struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
    descriptor: OwnedFd,
    /// The descriptor is readable already, and need not be written to again.
    readable: AtomicBool,
}

impl Bell {
    /// A bell that did not ring. Fails without a descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            rung: Mutex::new(0),
            changed: Condvar::new(),
            descriptor: eventfd(0, flags)?,
            readable: AtomicBool::new(false),
        })
    }

    /// There is something.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
        if !self.readable.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// The descriptor is not readable from here to the next ring. What rang before is to be looked at behind this
    /// call; gives how often it rang.
    pub fn hush(&self) -> u64 {
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        // A ring between the two lines writes nothing, and is seen by who looks now.
        self.readable.store(false, Ordering::Release);
        self.rung()
    }

    /// How often it rang.
    pub fn rung(&self) -> u64 {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has rung more than `seen` times; `false`: not until then.
    pub fn wait(&self, seen: u64, until: Option<Instant>) -> bool {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while *rung == seen {
            let Some(until) = until else {
                rung = self
                    .changed
                    .wait(rung)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(rung, left);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Readable from a ring on.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn who_waits_is_woken_and_the_descriptor_follows() {
        let bell = Arc::new(Bell::new().unwrap());
        let readable = |bell: &Bell| {
            let mut set = [rustix::event::PollFd::new(
                &bell.descriptor,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut set, Some(&rustix::event::Timespec::default())).unwrap() == 1
        };
        let seen = bell.hush();
        assert!(!readable(&bell));
        assert!(!bell.wait(seen, Some(Instant::now())), "nothing rang");
        let other = Arc::clone(&bell);
        let ringer = thread::spawn(move || other.ring());
        assert!(bell.wait(seen, None));
        ringer.join().unwrap();
        assert!(readable(&bell));
        bell.ring();
        assert_eq!(bell.hush(), seen + 2);
        assert!(!readable(&bell));
        bell.ring();
        assert!(readable(&bell));
    }
}
