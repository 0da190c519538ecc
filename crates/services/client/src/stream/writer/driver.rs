//! Threads of a writer. One sends, and reconnects to another node after a failure; the other
//! receives on the current connection.

use std::{
    io::Write as _,
    sync::{Arc, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_tls::stream::Stream;
use quorate_wire::streams::{
    BODY_BYTES_MAX, ClientFrame, ErrorCode, HEAD_BYTES, NodeFrame, OpenMode, data_head,
};

use super::shared::{Shared, State};
use crate::stream::{
    error::{AttemptError, Error},
    link::{Frames, Link},
    nodes::Nodes,
    window::ResendBuffer,
};

/// Sending thread of a writer.
#[derive(Debug)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    nodes: Nodes,
    name: String,
    writer_id: u128,
    open_mode: OpenMode,
    /// Durable position at the last failed attempt.
    durable_at_failure: u64,
}

/// Result of reopening the stream.
enum ReopenResult {
    Open(Link),
    /// The stream is permanently closed at this position with all its bytes, as requested.
    Finished(u64),
}

/// Next step of the sending thread.
enum Step {
    SendData,
    SendClose(bool),
    /// Abandon the connection, for the given reason if it is known.
    Disconnect(Option<String>),
}

impl Driver {
    /// Opens the stream and starts the sending thread. Returns the position of the first byte.
    pub(super) fn start(
        shared: &Arc<Shared>,
        nodes: Nodes,
        name: &str,
        how: OpenMode,
        writer: u128,
    ) -> Result<u64, Error> {
        let mut driver = Self {
            shared: Arc::clone(shared),
            nodes,
            name: name.to_owned(),
            writer_id: writer,
            open_mode: how,
            durable_at_failure: 0,
        };
        let (link, first) = loop {
            match driver.open_first() {
                Ok(opened) => break opened,
                Err(AttemptError::Permanent(error)) => return Err(error),
                Err(AttemptError::Retryable(why)) => thread::sleep(driver.nodes.on_failure(why)?),
            }
        };
        driver.nodes.on_success();
        driver.durable_at_failure = first;
        driver.open_mode = OpenMode::Continue;
        let spawned =
            thread::Builder::new().name("stream-writer".to_owned()).spawn(move || driver.run(link));
        spawned.map_err(|error| Error::LocalResource(format!("cannot start a thread: {error}")))?;
        Ok(first)
    }

    /// Opens the stream for the first time. If the response is lost, a retry reopens the same
    /// piece, because the table of streams records the writer.
    fn open_first(&mut self) -> Result<(Link, u64), AttemptError> {
        let mut link = self.nodes.dial_leader()?;
        let first = self.request_open(&mut link)?;
        let mut state = self.shared.lock();
        let mut window = ResendBuffer::new(self.nodes.options.buffer_bytes_max, 0);
        if self.open_mode != OpenMode::Create {
            window = ResendBuffer::new(self.nodes.options.buffer_bytes_max, first);
        }
        window.on_reopened(first)?;
        state.resend_buffer = window;
        state.address.clone_from(&link.address);
        drop(state);
        Ok((link, first))
    }

    fn request_open(&self, link: &mut Link) -> Result<u64, AttemptError> {
        let open =
            ClientFrame::Open { mode: self.open_mode, writer: self.writer_id, name: &self.name };
        link.send_frames(&[open], self.nodes.options.stall_timeout)?;
        match link.next_frame(self.nodes.options.stall_timeout)? {
            NodeFrame::Opened { position } => Ok(position),
            _ => Err(AttemptError::unexpected_frame()),
        }
    }

    fn run(mut self, link: Link) {
        let mut link = Some(link);
        loop {
            let opened = match link.take() {
                Some(link) => link,
                None => match self.reopen() {
                    Some(link) => link,
                    None => break,
                },
            };
            let Some(why) = self.use_connection(opened) else { break };
            if !self.wait_before_retry(why) {
                break;
            }
        }
        // Callers must be woken up in any case.
        self.shared.state_changed.notify_all();
    }

    /// Returns the next connection, or `None` if the writer has stopped.
    fn reopen(&mut self) -> Option<Link> {
        loop {
            let opened = self.open_again();
            let mut state = self.shared.lock();
            if state.is_writer_dropped {
                return None;
            }
            match opened {
                Ok(ReopenResult::Open(link)) => {
                    state.reconnect_count += 1;
                    state.address.clone_from(&link.address);
                    if state.resend_buffer.durable_position()
                        == state.resend_buffer.written_position()
                    {
                        self.nodes.on_reached();
                    }
                    drop(state);
                    self.shared.state_changed.notify_all();
                    return Some(link);
                }
                Ok(ReopenResult::Finished(end)) => {
                    state.stop_with(Ok(end));
                    return None;
                }
                Err(AttemptError::Permanent(error)) => {
                    state.stop_with(Err(error));
                    return None;
                }
                Err(AttemptError::Retryable(why)) => {
                    drop(state);
                    if !self.wait_before_retry(why) {
                        return None;
                    }
                }
            }
        }
    }

    fn open_again(&mut self) -> Result<ReopenResult, AttemptError> {
        let mut link = self.nodes.dial_leader()?;
        let opened = self.request_open(&mut link);
        match opened {
            Ok(position) => {
                self.shared.lock().resend_buffer.on_reopened(position)?;
                Ok(ReopenResult::Open(link))
            }
            Err(AttemptError::Permanent(error)) => self.on_reopen_refused(link, error),
            Err(later) => Err(later),
        }
    }

    /// Handles a refusal to reopen the stream. If only the response to a close was lost, the stream
    /// is already in the requested state.
    fn on_reopen_refused(
        &self,
        mut link: Link,
        error: Error,
    ) -> Result<ReopenResult, AttemptError> {
        let (closing, written, durable) = {
            let state = self.shared.lock();
            let window = &state.resend_buffer;
            (state.requested_close, window.written_position(), window.durable_position())
        };
        match (error.code(), closing) {
            (Some(ErrorCode::Finished), Some(true)) => {
                link.send_frames(
                    &[ClientFrame::Stat { name: &self.name }],
                    self.nodes.options.stall_timeout,
                )?;
                let NodeFrame::Info(info) = link.next_frame(self.nodes.options.stall_timeout)?
                else {
                    return Err(AttemptError::unexpected_frame());
                };
                // A stream that this writer still owned can only have been closed by this writer.
                let end = info.next_position;
                if !info.finished {
                    return Err(AttemptError::unexpected_frame());
                }
                self.shared.lock().resend_buffer.on_closed(end)?;
                Ok(ReopenResult::Finished(end))
            }
            // The stream was left, and another writer may have opened it since, but it has all
            // bytes of this one.
            (Some(ErrorCode::Fenced | ErrorCode::Finished), Some(false)) if written == durable => {
                Ok(ReopenResult::Finished(written))
            }
            _ => Err(error.into()),
        }
    }

    /// Waits before the next attempt. Returns `false` to give up. A connection that made progress
    /// before it failed counts as a success.
    fn wait_before_retry(&mut self, why: String) -> bool {
        let durable = self.shared.lock().resend_buffer.durable_position();
        if durable > self.durable_at_failure {
            self.durable_at_failure = durable;
            self.nodes.on_success();
        }
        let wait = self.nodes.on_failure(why);
        let mut state = self.shared.lock();
        match wait {
            Ok(wait) => {
                let until = Instant::now() + wait;
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    if state.is_writer_dropped || left.is_zero() {
                        return !state.is_writer_dropped;
                    }
                    state = self.wait_for_work(state, Some(left));
                }
            }
            Err(error) => {
                state.stop_with(Err(error));
                false
            }
        }
    }

    fn wait_for_work<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        at_most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        const SOUND: &str = "no thread panics while it is held";
        state.is_driver_waiting = true;
        let work = &self.shared.work_ready;
        let mut state = match at_most {
            Some(wait) => work.wait_timeout(state, wait).expect(SOUND).0,
            None => work.wait(state).expect(SOUND),
        };
        state.is_driver_waiting = false;
        state
    }

    /// Uses a connection until it fails and returns the reason, or `None` if the writer has
    /// stopped.
    fn use_connection(&mut self, link: Link) -> Option<String> {
        let Link { socket, frames, .. } = link;
        let hearing = match self.spawn_receiver(&socket, frames) {
            Ok(hearing) => hearing,
            Err(error) => {
                let what = format!("cannot start a thread: {error}");
                self.shared.lock().stop_with(Err(Error::LocalResource(what)));
                return None;
            }
        };
        let why = self.send_until_failure(&socket);
        self.shared.lock().shut_down_socket();
        hearing.join().expect("the thread that hears does not panic");
        let mut state = self.shared.lock();
        state.socket = None;
        match state.end_result.is_some() || state.is_writer_dropped {
            true => None,
            false => Some(state.link_failure.take().or(why).unwrap_or_default()),
        }
    }

    fn spawn_receiver(&self, socket: &Stream, frames: Frames) -> std::io::Result<JoinHandle<()>> {
        // No timeout: the sending thread watches for overdue responses.
        socket.socket().set_read_timeout(None)?;
        socket.socket().set_write_timeout(Some(self.nodes.options.stall_timeout))?;
        let (kept, heard) = (socket.clone(), socket.clone());
        let mut state = self.shared.lock();
        state.link_failure = None;
        state.socket = Some(kept);
        state.last_progress_at = Instant::now();
        if state.is_writer_dropped {
            state.shut_down_socket();
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("stream-hears".to_owned())
            .spawn(move || receive_all(&shared, &heard, frames))
    }

    /// Sends bytes until the connection fails. Returns the reason if this thread noticed it.
    fn send_until_failure(&self, mut socket: &Stream) -> Option<String> {
        let mut frame = Vec::with_capacity(HEAD_BYTES + BODY_BYTES_MAX);
        let mut closed = false;
        loop {
            frame.clear();
            match self.next_step(closed, &mut frame) {
                Step::SendData => {}
                Step::SendClose(finish) => {
                    closed = true;
                    ClientFrame::Close { finish }.encode(&mut frame);
                }
                Step::Disconnect(why) => return why,
            }
            if let Err(error) = socket.write_all(&frame) {
                return Some(format!("the node takes nothing: {error}"));
            }
        }
    }

    fn next_step(&self, closed: bool, frame: &mut Vec<u8>) -> Step {
        let mut state = self.shared.lock();
        loop {
            if state.end_result.is_some() || state.is_writer_dropped || state.link_failure.is_some()
            {
                return Step::Disconnect(None);
            }
            let owed = closed || state.resend_buffer.has_unacknowledged();
            if !state.resend_buffer.is_all_sent() {
                frame.extend_from_slice(&[0; HEAD_BYTES]);
                state.resend_buffer.take_unsent(BODY_BYTES_MAX, frame);
                let head = data_head(frame.len() - HEAD_BYTES);
                frame[..HEAD_BYTES].copy_from_slice(&head);
                if !owed {
                    state.last_progress_at = Instant::now();
                }
                return Step::SendData;
            }
            if let Some(finish) = state.requested_close.filter(|_| !closed) {
                if !owed {
                    state.last_progress_at = Instant::now();
                }
                return Step::SendClose(finish);
            }
            let left =
                (self.nodes.options.stall_timeout).saturating_sub(state.last_progress_at.elapsed());
            if owed && left.is_zero() {
                return Step::Disconnect(Some("the node acknowledges nothing".to_owned()));
            }
            state = self.wait_for_work(state, owed.then_some(left));
        }
    }
}

/// Receives acknowledgements until the connection or the stream ends.
fn receive_all(shared: &Shared, socket: &Stream, mut frames: Frames) {
    loop {
        let answer = frames.next(socket);
        let mut state = shared.lock();
        let heard = match answer {
            Ok(answer) => state.on_frame(answer),
            Err(error) => Err(error.into()),
        };
        match heard {
            Ok(()) => {}
            Err(AttemptError::Retryable(why)) => {
                state.link_failure = Some(why);
                state.shut_down_socket();
            }
            Err(AttemptError::Permanent(error)) => state.stop_with(Err(error)),
        }
        let done = state.link_failure.is_some() || state.end_result.is_some();
        if state.waiting_callers > 0 {
            shared.state_changed.notify_all();
        }
        if done {
            shared.work_ready.notify_all();
            return;
        }
    }
}

impl State {
    fn on_frame(&mut self, answer: NodeFrame<'_>) -> Result<(), AttemptError> {
        match answer {
            NodeFrame::Durable { position } => {
                if position > self.resend_buffer.durable_position() {
                    self.last_progress_at = Instant::now();
                }
                self.resend_buffer.on_acknowledged(position)?;
                Ok(())
            }
            NodeFrame::Closed { position } if self.requested_close.is_some() => {
                self.resend_buffer.on_closed(position)?;
                self.stop_with(Ok(position));
                Ok(())
            }
            NodeFrame::Ended { position } => {
                self.resend_buffer.on_acknowledged(position)?;
                Err(AttemptError::Retryable(
                    "another node or writer ended what was written".to_owned(),
                ))
            }
            NodeFrame::Error { code, position, detail, hint } => {
                Err(AttemptError::from_response(code, position, detail, hint))
            }
            _ => Err(AttemptError::unexpected_frame()),
        }
    }
}
