//! Replacements for operating-system primitives in the race models.

/// Stand-in for an eventfd, which signals a waiting reactor.
pub(crate) mod wake {
    use std::io;

    use shuttle::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(crate) struct Wake {
        signalled: Mutex<bool>,
        changed: Condvar,
    }

    impl Wake {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn signal(&self) {
            *self.signalled.lock().unwrap() = true;
            self.changed.notify_all();
        }

        pub(crate) fn drain(&self) {
            *self.signalled.lock().unwrap() = false;
        }

        /// Blocks until the stand-in is signalled, as epoll does on an eventfd.
        pub(crate) fn wait(&self) {
            let mut signalled = self.signalled.lock().unwrap();
            while !*signalled {
                signalled = self.changed.wait(signalled).unwrap();
            }
        }
    }
}
