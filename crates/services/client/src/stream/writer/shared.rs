//! State shared by a writer's caller, its sending thread and its receiving thread.

use std::{
    sync::{Condvar, Mutex, MutexGuard},
    time::Instant,
};

use quorate_tls::stream::Stream;

use crate::stream::{Options, error::Error, window::Window};

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the sending thread.
    pub(super) work: Condvar,
    /// Wakes callers after a change of the state.
    pub(super) news: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) window: Window,
    /// Set once the caller has finished writing; `true` to close the stream permanently.
    pub(super) closing: Option<bool>,
    /// Position at which the stream was closed, or the error that stopped the writer.
    pub(super) over: Option<Result<u64, Error>>,
    /// Current connection, for any thread to shut down.
    pub(super) socket: Option<Stream>,
    /// Reason why the current connection is unusable.
    pub(super) broken: Option<String>,
    /// Time of the last progress by the node while it owes a response.
    pub(super) moved: Instant,
    pub(super) reconnects: u64,
    pub(super) address: String,
    /// Set while the sending thread waits for `work`.
    pub(super) driver_waits: bool,
    pub(super) callers_wait: usize,
    /// Set once the caller has dropped the writer, which abandons unsent bytes.
    pub(super) dropped: bool,
}

impl Shared {
    pub(super) fn new(options: &Options) -> Self {
        let state = State {
            window: Window::new(options.buffer, 0),
            closing: None,
            over: None,
            socket: None,
            broken: None,
            moved: Instant::now(),
            reconnects: 0,
            address: String::new(),
            driver_waits: false,
            callers_wait: 0,
            dropped: false,
        };
        Self { state: Mutex::new(state), work: Condvar::new(), news: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it is held")
    }

    pub(super) fn wait_for_news<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        state.callers_wait += 1;
        let mut state = self.news.wait(state).expect("no thread panics while it is held");
        state.callers_wait -= 1;
        state
    }

    /// Waits until a condition holds or the writer has stopped.
    pub(super) fn wait_until(
        &self,
        condition: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.lock();
        loop {
            if let Some(Err(error)) = &state.over {
                return Err(error.clone());
            }
            if condition(&state) {
                return Ok(state);
            }
            state = self.wait_for_news(state);
        }
    }
}

impl State {
    pub(super) fn hang_up(&self) {
        if let Some(socket) = &self.socket {
            // The socket may be disconnected already.
            let _ = socket.shutdown();
        }
    }

    pub(super) fn end(&mut self, over: Result<u64, Error>) {
        if self.over.is_none() {
            self.over = Some(over);
        }
        self.hang_up();
    }
}
