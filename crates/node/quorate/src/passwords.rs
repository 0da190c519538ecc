//! Password checks on a separate thread. Each check takes tens of milliseconds, which would block
//! the reactor.

use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use quorate_access::{Checker, password};
use quorate_net::{RequestReceiver, RequestSender, Wake, request_queue};

/// Maximum number of queued passwords. Any more are refused, so a client that guesses passwords
/// delays others by a few seconds at most.
const QUEUED_PASSWORDS_MAX: usize = 64;

struct CheckJob {
    ticket: u64,
    hash: String,
    password: Vec<u8>,
}

/// The reactor's end of the password checker.
pub struct Passwords {
    jobs: SyncSender<CheckJob>,
    verdicts: RequestReceiver<(u64, bool)>,
    /// Number of passwords sent to the thread whose verdict has not arrived yet. While it is zero,
    /// the queue of verdicts is not read.
    open: usize,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The queued passwords must never be printed.
        f.write_str("Passwords")
    }
}

impl Passwords {
    /// Starts the thread. It ends when the returned value is dropped.
    pub fn start() -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(QUEUED_PASSWORDS_MAX);
        // A blocked reactor blocks only this thread.
        let (told, verdicts) = request_queue(QUEUED_PASSWORDS_MAX)?;
        thread::Builder::new()
            .name("passwords".to_owned())
            .spawn(move || run_checker(&waiting, &told))?;
        Ok(Self { jobs, verdicts, open: 0 })
    }

    /// Returns the descriptor that becomes readable when there may be a verdict.
    pub fn wake(&self) -> &Arc<Wake> {
        self.verdicts.wake()
    }
}

fn run_checker(waiting: &Receiver<CheckJob>, told: &RequestSender<(u64, bool)>) {
    for job in waiting {
        let fits = password::matches_hash(&job.hash, &job.password);
        if !told.send_request((job.ticket, fits)) {
            return;
        }
    }
}

impl Checker for Passwords {
    fn check(&mut self, ticket: u64, hash: &str, password: &[u8]) -> bool {
        let job = CheckJob { ticket, hash: hash.to_owned(), password: password.to_vec() };
        let taken = self.jobs.try_send(job).is_ok();
        self.open += usize::from(taken);
        taken
    }

    fn verdict(&mut self) -> Option<(u64, bool)> {
        if self.open == 0 {
            return None;
        }
        self.verdicts.clear_signal();
        let verdict = self.verdicts.next_request();
        self.open -= usize::from(verdict.is_some());
        verdict
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn verdicts_match_their_tickets_and_a_full_queue_refuses() {
        let mut passwords = Passwords::start().unwrap();
        let hash = password::hash_password(b"sesame").unwrap();
        let mut taken = Vec::new();
        for ticket in 0..200 {
            let given: &[u8] = if ticket % 2 == 0 { b"sesame" } else { b"guess" };
            if passwords.check(ticket, &hash, given) {
                taken.push(ticket);
            }
        }
        assert!(taken.len() < 200, "more than may wait were taken");
        assert!(taken.len() >= QUEUED_PASSWORDS_MAX);
        let mut heard = Vec::new();
        let wake = Arc::clone(passwords.wake());
        while heard.len() < taken.len() {
            let mut fds = [PollFd::new(&wake, PollFlags::IN)];
            poll(&mut fds, None).unwrap();
            while let Some((ticket, fits)) = passwords.verdict() {
                assert_eq!(fits, ticket % 2 == 0, "{ticket}");
                heard.push(ticket);
            }
        }
        assert_eq!(heard, taken);
        assert!(!format!("{passwords:?}").contains("sesame"));
    }
}
