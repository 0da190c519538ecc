//! State shared by a writer's caller, its sending thread and its receiving thread.

use std::{
    sync::{Condvar, Mutex, MutexGuard},
    time::Instant,
};

use quorate_tls::stream::Stream;

use crate::stream::{Options, error::Error, window::ResendBuffer};

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the sending thread.
    pub(super) work_ready: Condvar,
    /// Wakes callers after a change of the state.
    pub(super) state_changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) resend_buffer: ResendBuffer,
    /// Set once the caller has finished writing; `true` to close the stream permanently.
    pub(super) requested_close: Option<bool>,
    /// Position at which the stream was closed, or the error that stopped the writer.
    pub(super) end_result: Option<Result<u64, Error>>,
    /// Current connection, for any thread to shut down.
    pub(super) socket: Option<Stream>,
    /// Reason why the current connection is unusable.
    pub(super) link_failure: Option<String>,
    /// Time of the last progress by the node while it owes a response.
    pub(super) last_progress_at: Instant,
    pub(super) reconnect_count: u64,
    pub(super) address: String,
    /// Set while the sending thread waits for `work_ready`.
    pub(super) is_driver_waiting: bool,
    pub(super) waiting_callers: usize,
    /// Set once the caller has dropped the writer, which abandons unsent bytes.
    pub(super) is_writer_dropped: bool,
}

impl Shared {
    pub(super) fn new(options: &Options) -> Self {
        let state = State {
            resend_buffer: ResendBuffer::new(options.buffer_bytes_max, 0),
            requested_close: None,
            end_result: None,
            socket: None,
            link_failure: None,
            last_progress_at: Instant::now(),
            reconnect_count: 0,
            address: String::new(),
            is_driver_waiting: false,
            waiting_callers: 0,
            is_writer_dropped: false,
        };
        Self { state: Mutex::new(state), work_ready: Condvar::new(), state_changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it is held")
    }

    pub(super) fn wait_for_change<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        state.waiting_callers += 1;
        let mut state = self.state_changed.wait(state).expect("no thread panics while it is held");
        state.waiting_callers -= 1;
        state
    }

    /// Waits until a condition holds or the writer has stopped.
    pub(super) fn wait_until(
        &self,
        condition: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.lock();
        loop {
            if let Some(Err(error)) = &state.end_result {
                return Err(error.clone());
            }
            if condition(&state) {
                return Ok(state);
            }
            state = self.wait_for_change(state);
        }
    }
}

impl State {
    pub(super) fn shut_down_socket(&self) {
        if let Some(socket) = &self.socket {
            // The socket may be disconnected already.
            let _ = socket.shutdown();
        }
    }

    pub(super) fn stop_with(&mut self, over: Result<u64, Error>) {
        if self.end_result.is_none() {
            self.end_result = Some(over);
        }
        self.shut_down_socket();
    }
}
