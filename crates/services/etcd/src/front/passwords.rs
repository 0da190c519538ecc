//! Password hashing and checking on separate threads, a few at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use quorate::password::{self, Unusable};
use tokio::sync::Semaphore;
use tonic::Status;

use super::errors;

/// Maximum number of concurrent hashes. Each takes tens of milliseconds of CPU time and 19 MiB.
const AT_ONCE: usize = 2;
/// Maximum number of waiting checks. Further ones are refused, so that a client that guesses
/// passwords delays others by no more than a second or two.
const WAITING_MAX: usize = 64;

/// Runs password hashes, up to [`AT_ONCE`] concurrently.
#[derive(Clone, Debug)]
pub(super) struct Passwords(Arc<HashSlots>);

#[derive(Debug)]
struct HashSlots {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Place of a check that waits or runs.
struct QueuedCheck(Arc<HashSlots>);

impl Drop for QueuedCheck {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Passwords {
    pub(super) fn new() -> Self {
        Self(Arc::new(HashSlots {
            free: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: AtomicUsize::new(0),
        }))
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let before = self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = QueuedCheck(Arc::clone(&self.0));
        if before >= AT_ONCE + WAITING_MAX {
            return Err(errors::memory_exceeded());
        }
        let place = Arc::clone(&self.0.free).acquire_owned().await;
        let place = place.map_err(|_| errors::stopped())?;
        let done = tokio::task::spawn_blocking(move || {
            // A check whose client has given up occupies its slot until it ends.
            let _held = (place, waiting);
            work()
        });
        done.await.map_err(|_| errors::stopped())
    }

    /// Hashes a password with a new salt.
    pub(super) async fn hash(&self, password: String) -> Result<String, Status> {
        let hash = self.work(move || password::hash(password.as_bytes())).await?;
        hash.map_err(|unusable| match unusable {
            Unusable::Empty | Unusable::TooLong => {
                Status::invalid_argument(format!("etcdserver: {unusable}"))
            }
            Unusable::System => Status::unavailable(format!("etcdserver: {unusable}")),
        })
    }

    /// Returns whether a password matches `hash`. An empty hash never matches, but takes as long to
    /// check, so that timing does not reveal it.
    pub(super) async fn fits(&self, hash: String, password: String) -> Result<bool, Status> {
        self.work(move || {
            let (hash, is_somebody) = match &*hash {
                "" => (password::UNMATCHABLE_HASH, false),
                hash => (hash, true),
            };
            password::fits(hash, password.as_bytes()) && is_somebody
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_fits_and_nothing_fits_nobody() {
        let passwords = Passwords::new();
        let hash = passwords.hash("sesame".to_owned()).await.unwrap();
        let fits = |hash: &str, password: &str| {
            let passwords = passwords.clone();
            let (hash, password) = (hash.to_owned(), password.to_owned());
            async move { passwords.fits(hash, password).await.unwrap() }
        };
        assert!(fits(&hash, "sesame").await);
        assert!(!fits(&hash, "Sesame").await);
        assert!(!fits("", "").await);
        assert!(!fits("", "sesame").await);
        let long = passwords.hash("x".repeat(513)).await.unwrap_err();
        assert_eq!(long.message(), "etcdserver: the password is longer than 512 bytes");
        assert!(passwords.hash(String::new()).await.is_err());
    }

    #[tokio::test]
    async fn more_than_may_wait_are_refused() {
        let passwords = Passwords::new();
        let held = passwords.0.free.acquire_many(2).await.unwrap();
        let all: Vec<_> = (0..80)
            .map(|_| {
                let passwords = passwords.clone();
                tokio::spawn(async move { passwords.work(|| ()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(held);
        let mut refused = 0;
        for one in all {
            refused += usize::from(one.await.unwrap().is_err());
        }
        assert_eq!(refused, 80 - AT_ONCE - WAITING_MAX);
        assert_eq!(passwords.0.waiting.load(Ordering::Relaxed), 0);
    }
}
