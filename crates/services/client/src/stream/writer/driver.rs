//! Threads of a writer. One sends, and reconnects to another node after a failure; the other
//! receives on the current connection.

use std::{
    io::Write as _,
    sync::{Arc, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_tls::stream::Stream;
use quorate_wire::streams::{Answer, Ask, BODY_BYTES_MAX, Code, HEAD_BYTES, How, data_head};

use super::shared::{Shared, State};
use crate::stream::{
    error::{Error, Trouble},
    link::{Frames, Link},
    nodes::Nodes,
    window::Window,
};

/// Sending thread of a writer.
#[derive(Debug)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    nodes: Nodes,
    name: String,
    writer: u128,
    how: How,
    /// Durable position at the last failed attempt.
    durable: u64,
}

/// Result of reopening the stream.
enum Reopened {
    Open(Link),
    /// The stream is permanently closed at this position with all its bytes, as requested.
    Finished(u64),
}

/// Next step of the sending thread.
enum Step {
    Data,
    Close(bool),
    /// Abandon the connection, for the given reason if it is known.
    Stop(Option<String>),
}

impl Driver {
    /// Opens the stream and starts the sending thread. Returns the position of the first byte.
    pub(super) fn start(
        shared: &Arc<Shared>,
        nodes: Nodes,
        name: &str,
        how: How,
        writer: u128,
    ) -> Result<u64, Error> {
        let mut driver = Self {
            shared: Arc::clone(shared),
            nodes,
            name: name.to_owned(),
            writer,
            how,
            durable: 0,
        };
        let (link, first) = loop {
            match driver.open_first() {
                Ok(opened) => break opened,
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Later(why)) => thread::sleep(driver.nodes.failed(why)?),
            }
        };
        driver.nodes.served();
        driver.durable = first;
        driver.how = How::Continue;
        let spawned =
            thread::Builder::new().name("stream-writer".to_owned()).spawn(move || driver.run(link));
        spawned.map_err(|error| Error::Machine(format!("cannot start a thread: {error}")))?;
        Ok(first)
    }

    /// Opens the stream for the first time. If the response is lost, a retry reopens the same
    /// piece, because the table of streams records the writer.
    fn open_first(&mut self) -> Result<(Link, u64), Trouble> {
        let mut link = self.nodes.dial_leader()?;
        let first = self.ask_to_open(&mut link)?;
        let mut state = self.shared.lock();
        let mut window = Window::new(self.nodes.options.buffer, 0);
        if self.how != How::Create {
            window = Window::new(self.nodes.options.buffer, first);
        }
        window.opened(first)?;
        state.window = window;
        state.address.clone_from(&link.address);
        drop(state);
        Ok((link, first))
    }

    fn ask_to_open(&self, link: &mut Link) -> Result<u64, Trouble> {
        let open = Ask::Open { how: self.how, writer: self.writer, name: &self.name };
        link.send_frames(&[open], self.nodes.options.stall)?;
        match link.next_frame(self.nodes.options.stall)? {
            Answer::Opened { position } => Ok(position),
            _ => Err(Trouble::unexpected()),
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
            let Some(why) = self.serve(opened) else { break };
            if !self.pause(why) {
                break;
            }
        }
        // Callers must be woken up in any case.
        self.shared.news.notify_all();
    }

    /// Returns the next connection, or `None` if the writer has stopped.
    fn reopen(&mut self) -> Option<Link> {
        loop {
            let opened = self.open_again();
            let mut state = self.shared.lock();
            if state.dropped {
                return None;
            }
            match opened {
                Ok(Reopened::Open(link)) => {
                    state.reconnects += 1;
                    state.address.clone_from(&link.address);
                    if state.window.durable() == state.window.written() {
                        self.nodes.reached();
                    }
                    drop(state);
                    self.shared.news.notify_all();
                    return Some(link);
                }
                Ok(Reopened::Finished(end)) => {
                    state.end(Ok(end));
                    return None;
                }
                Err(Trouble::Final(error)) => {
                    state.end(Err(error));
                    return None;
                }
                Err(Trouble::Later(why)) => {
                    drop(state);
                    if !self.pause(why) {
                        return None;
                    }
                }
            }
        }
    }

    fn open_again(&mut self) -> Result<Reopened, Trouble> {
        let mut link = self.nodes.dial_leader()?;
        let opened = self.ask_to_open(&mut link);
        match opened {
            Ok(position) => {
                self.shared.lock().window.opened(position)?;
                Ok(Reopened::Open(link))
            }
            Err(Trouble::Final(error)) => self.explain(link, error),
            Err(later) => Err(later),
        }
    }

    /// Handles a refusal to reopen the stream. If only the response to a close was lost, the stream
    /// is already in the requested state.
    fn explain(&self, mut link: Link, error: Error) -> Result<Reopened, Trouble> {
        let (closing, written, durable) = {
            let state = self.shared.lock();
            let window = &state.window;
            (state.closing, window.written(), window.durable())
        };
        match (error.code(), closing) {
            (Some(Code::Finished), Some(true)) => {
                link.send_frames(&[Ask::Stat { name: &self.name }], self.nodes.options.stall)?;
                let Answer::Info(info) = link.next_frame(self.nodes.options.stall)? else {
                    return Err(Trouble::unexpected());
                };
                // A stream that this writer still owned can only have been closed by this writer.
                let end = info.end;
                if !info.finished {
                    return Err(Trouble::unexpected());
                }
                self.shared.lock().window.closed(end)?;
                Ok(Reopened::Finished(end))
            }
            // The stream was left, and another writer may have opened it since, but it has all
            // bytes of this one.
            (Some(Code::Fenced | Code::Finished), Some(false)) if written == durable => {
                Ok(Reopened::Finished(written))
            }
            _ => Err(error.into()),
        }
    }

    /// Waits before the next attempt. Returns `false` to give up. A connection that made progress
    /// before it failed counts as a success.
    fn pause(&mut self, why: String) -> bool {
        let durable = self.shared.lock().window.durable();
        if durable > self.durable {
            self.durable = durable;
            self.nodes.served();
        }
        let wait = self.nodes.failed(why);
        let mut state = self.shared.lock();
        match wait {
            Ok(wait) => {
                let until = Instant::now() + wait;
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    if state.dropped || left.is_zero() {
                        return !state.dropped;
                    }
                    state = self.wait_for_work(state, Some(left));
                }
            }
            Err(error) => {
                state.end(Err(error));
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
        state.driver_waits = true;
        let work = &self.shared.work;
        let mut state = match at_most {
            Some(wait) => work.wait_timeout(state, wait).expect(SOUND).0,
            None => work.wait(state).expect(SOUND),
        };
        state.driver_waits = false;
        state
    }

    /// Uses a connection until it fails and returns the reason, or `None` if the writer has
    /// stopped.
    fn serve(&mut self, link: Link) -> Option<String> {
        let Link { socket, frames, .. } = link;
        let hearing = match self.hear_on(&socket, frames) {
            Ok(hearing) => hearing,
            Err(error) => {
                let what = format!("cannot start a thread: {error}");
                self.shared.lock().end(Err(Error::Machine(what)));
                return None;
            }
        };
        let why = self.send_on(&socket);
        self.shared.lock().hang_up();
        hearing.join().expect("the thread that hears does not panic");
        let mut state = self.shared.lock();
        state.socket = None;
        match state.over.is_some() || state.dropped {
            true => None,
            false => Some(state.broken.take().or(why).unwrap_or_default()),
        }
    }

    fn hear_on(&self, socket: &Stream, frames: Frames) -> std::io::Result<JoinHandle<()>> {
        // No timeout: the sending thread watches for overdue responses.
        socket.socket().set_read_timeout(None)?;
        socket.socket().set_write_timeout(Some(self.nodes.options.stall))?;
        let (kept, heard) = (socket.clone(), socket.clone());
        let mut state = self.shared.lock();
        state.broken = None;
        state.socket = Some(kept);
        state.moved = Instant::now();
        if state.dropped {
            state.hang_up();
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("stream-hears".to_owned())
            .spawn(move || receive_all(&shared, &heard, frames))
    }

    /// Sends bytes until the connection fails. Returns the reason if this thread noticed it.
    fn send_on(&self, mut socket: &Stream) -> Option<String> {
        let mut frame = Vec::with_capacity(HEAD_BYTES + BODY_BYTES_MAX);
        let mut closed = false;
        loop {
            frame.clear();
            match self.next_step(closed, &mut frame) {
                Step::Data => {}
                Step::Close(finish) => {
                    closed = true;
                    Ask::Close { finish }.encode(&mut frame);
                }
                Step::Stop(why) => return why,
            }
            if let Err(error) = socket.write_all(&frame) {
                return Some(format!("the node takes nothing: {error}"));
            }
        }
    }

    fn next_step(&self, closed: bool, frame: &mut Vec<u8>) -> Step {
        let mut state = self.shared.lock();
        loop {
            if state.over.is_some() || state.dropped || state.broken.is_some() {
                return Step::Stop(None);
            }
            let owed = closed || state.window.is_unanswered();
            if !state.window.is_sent() {
                frame.extend_from_slice(&[0; HEAD_BYTES]);
                state.window.take(BODY_BYTES_MAX, frame);
                let head = data_head(frame.len() - HEAD_BYTES);
                frame[..HEAD_BYTES].copy_from_slice(&head);
                if !owed {
                    state.moved = Instant::now();
                }
                return Step::Data;
            }
            if let Some(finish) = state.closing.filter(|_| !closed) {
                if !owed {
                    state.moved = Instant::now();
                }
                return Step::Close(finish);
            }
            let left = (self.nodes.options.stall).saturating_sub(state.moved.elapsed());
            if owed && left.is_zero() {
                return Step::Stop(Some("the node acknowledges nothing".to_owned()));
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
            Ok(answer) => state.on_answer(answer),
            Err(error) => Err(error.into()),
        };
        match heard {
            Ok(()) => {}
            Err(Trouble::Later(why)) => {
                state.broken = Some(why);
                state.hang_up();
            }
            Err(Trouble::Final(error)) => state.end(Err(error)),
        }
        let done = state.broken.is_some() || state.over.is_some();
        if state.callers_wait > 0 {
            shared.news.notify_all();
        }
        if done {
            shared.work.notify_all();
            return;
        }
    }
}

impl State {
    fn on_answer(&mut self, answer: Answer<'_>) -> Result<(), Trouble> {
        match answer {
            Answer::Durable { position } => {
                if position > self.window.durable() {
                    self.moved = Instant::now();
                }
                self.window.acknowledged(position)?;
                Ok(())
            }
            Answer::Closed { position } if self.closing.is_some() => {
                self.window.closed(position)?;
                self.end(Ok(position));
                Ok(())
            }
            Answer::Ended { position } => {
                self.window.acknowledged(position)?;
                Err(Trouble::Later("another node or writer ended what was written".to_owned()))
            }
            Answer::Error { code, position, detail, hint } => {
                Err(Trouble::of(code, position, detail, hint))
            }
            _ => Err(Trouble::unexpected()),
        }
    }
}
