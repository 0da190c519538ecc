//! Password hashing and checking on separate threads, a few at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use quorate::password::{self, UnusablePassword};
use tokio::sync::Semaphore;
use tonic::Status;

use super::errors;

/// Maximum number of concurrent hashes. Each takes tens of milliseconds of CPU time and 19 MiB.
const CONCURRENT_HASHES_MAX: usize = 2;
/// Maximum number of waiting checks. Further ones are refused, so that a client that guesses
/// passwords delays others by no more than a second or two.
const WAITING_CHECKS_MAX: usize = 64;

/// Runs password hashes, up to [`CONCURRENT_HASHES_MAX`] concurrently.
#[derive(Clone, Debug)]
pub(super) struct Passwords(Arc<HashSlots>);

#[derive(Debug)]
struct HashSlots {
    permits: Arc<Semaphore>,
    waiting_checks: AtomicUsize,
}

/// Place of a check that waits or runs.
struct QueuedCheck(Arc<HashSlots>);

impl Drop for QueuedCheck {
    fn drop(&mut self) {
        self.0.waiting_checks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Passwords {
    pub(super) fn new() -> Self {
        Self(Arc::new(HashSlots {
            permits: Arc::new(Semaphore::new(CONCURRENT_HASHES_MAX)),
            waiting_checks: AtomicUsize::new(0),
        }))
    }

    async fn run_hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let before = self.0.waiting_checks.fetch_add(1, Ordering::Relaxed);
        let waiting = QueuedCheck(Arc::clone(&self.0));
        if before >= CONCURRENT_HASHES_MAX + WAITING_CHECKS_MAX {
            return Err(errors::memory_exceeded());
        }
        let place = Arc::clone(&self.0.permits).acquire_owned().await;
        let place = place.map_err(|_| errors::server_stopped())?;
        let done = tokio::task::spawn_blocking(move || {
            // A check whose client has given up occupies its slot until it ends.
            let _held = (place, waiting);
            work()
        });
        done.await.map_err(|_| errors::server_stopped())
    }

    /// Hashes a password with a new salt.
    pub(super) async fn hash_password(&self, password: String) -> Result<String, Status> {
        let hash = self.run_hash(move || password::hash_password(password.as_bytes())).await?;
        hash.map_err(|unusable| match unusable {
            UnusablePassword::Empty | UnusablePassword::TooLong => {
                Status::invalid_argument(format!("etcdserver: {unusable}"))
            }
            UnusablePassword::SystemShortage => {
                Status::unavailable(format!("etcdserver: {unusable}"))
            }
        })
    }

    /// Returns whether a password matches `hash`. An empty hash never matches, but takes as long to
    /// check, so that timing does not reveal it.
    pub(super) async fn matches_hash(
        &self,
        hash: String,
        password: String,
    ) -> Result<bool, Status> {
        self.run_hash(move || {
            let (hash, is_somebody) = match &*hash {
                "" => (password::UNMATCHABLE_HASH, false),
                hash => (hash, true),
            };
            password::matches_hash(hash, password.as_bytes()) && is_somebody
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
        let hash = passwords.hash_password("sesame".to_owned()).await.unwrap();
        let fits = |hash: &str, password: &str| {
            let passwords = passwords.clone();
            let (hash, password) = (hash.to_owned(), password.to_owned());
            async move { passwords.matches_hash(hash, password).await.unwrap() }
        };
        assert!(fits(&hash, "sesame").await);
        assert!(!fits(&hash, "Sesame").await);
        assert!(!fits("", "").await);
        assert!(!fits("", "sesame").await);
        let long = passwords.hash_password("x".repeat(513)).await.unwrap_err();
        assert_eq!(long.message(), "etcdserver: the password is longer than 512 bytes");
        assert!(passwords.hash_password(String::new()).await.is_err());
    }

    #[tokio::test]
    async fn more_than_may_wait_are_refused() {
        let passwords = Passwords::new();
        let held = passwords.0.permits.acquire_many(2).await.unwrap();
        let all: Vec<_> = (0..80)
            .map(|_| {
                let passwords = passwords.clone();
                tokio::spawn(async move { passwords.run_hash(|| ()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(held);
        let mut refused = 0;
        for one in all {
            refused += usize::from(one.await.unwrap().is_err());
        }
        assert_eq!(refused, 80 - CONCURRENT_HASHES_MAX - WAITING_CHECKS_MAX);
        assert_eq!(passwords.0.waiting_checks.load(Ordering::Relaxed), 0);
    }
}
