//! Mailbox of the reactor for other threads: a bounded queue of questions, unanswered
//! notifications, the stop request, and a descriptor that wakes the reactor.

use std::{collections::VecDeque, fmt, io, time::Duration};

use super::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    wake::Wake,
};

/// Reason why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The reactor has stopped.
    Stopped,
    /// Too many questions are already queued.
    Busy,
    /// The reactor did not answer in time.
    TimedOut,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the node has stopped",
            Self::Busy => "the node is busy; try again",
            Self::TimedOut => "the node did not answer in time",
        })
    }
}

impl std::error::Error for Unanswered {}

/// State shared by the reactor and its callers. Each question carries the channel for its answer.
#[derive(Debug)]
pub(crate) struct Mailbox<Q, N> {
    wake: Wake,
    questions_max: usize,
    state: Mutex<State<Q, N>>,
}

#[derive(Debug)]
struct State<Q, N> {
    questions: VecDeque<Q>,
    notifications: Vec<N>,
    stop: bool,
    ended: bool,
}

/// All messages taken from the mailbox at once.
pub(crate) struct Mail<Q, N> {
    pub(crate) questions: VecDeque<Q>,
    pub(crate) notifications: Vec<N>,
    pub(crate) stop: bool,
}

impl<Q, N> Mailbox<Q, N> {
    pub(crate) fn new(questions_max: usize) -> io::Result<Arc<Self>> {
        let state = State {
            questions: VecDeque::new(),
            notifications: Vec::new(),
            stop: false,
            ended: false,
        };
        Ok(Arc::new(Self { wake: Wake::new()?, questions_max, state: Mutex::new(state) }))
    }

    /// Returns the descriptor that becomes readable when there may be mail.
    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Locks the state. A panic elsewhere leaves it consistent, because each change is one
    /// assignment.
    fn lock_state(&self) -> MutexGuard<'_, State<Q, N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all mail. Clears the signal first, so that mail arriving meanwhile signals again.
    pub(crate) fn take_mail(&self) -> Mail<Q, N> {
        self.wake.drain();
        let mut state = self.lock_state();
        Mail {
            questions: std::mem::take(&mut state.questions),
            notifications: std::mem::take(&mut state.notifications),
            stop: state.stop,
        }
    }

    pub(crate) fn send_question<T>(
        &self,
        patience: Duration,
        question: impl FnOnce(SyncSender<T>) -> Q,
    ) -> Result<T, Unanswered> {
        // The channel has capacity for the answer, so that the reactor never blocks on a caller.
        let (reply, answer) = sync_channel(1);
        let mut state = self.lock_state();
        if state.ended {
            return Err(Unanswered::Stopped);
        }
        if state.questions.len() >= self.questions_max {
            return Err(Unanswered::Busy);
        }
        state.questions.push_back(question(reply));
        drop(state);
        self.wake.signal();
        answer.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => Unanswered::TimedOut,
            RecvTimeoutError::Disconnected => Unanswered::Stopped,
        })
    }

    /// Sends a notification to the reactor. Callers must bound the number of notifications.
    pub(crate) fn send_notification(&self, news: N) {
        let mut state = self.lock_state();
        if !state.ended {
            state.notifications.push(news);
        }
        drop(state);
        self.wake.signal();
    }

    pub(crate) fn stop(&self) {
        self.lock_state().stop = true;
        self.wake.signal();
    }

    /// Closes the mailbox without answers. Waiting callers return, as their channels are dropped.
    pub(crate) fn close_mailbox(&self) {
        let mut state = self.lock_state();
        state.ended = true;
        state.questions.clear();
        state.notifications.clear();
    }
}
