//! `StreamWriter`: writes to a bounded buffer, which a thread sends to the cluster.

mod driver;
mod shared;

use std::{
    fs::File,
    io::{self, Read as _, Write},
    sync::Arc,
};

use quorate_wire::streams::{self, NAME_BYTES_MAX};

use self::{
    driver::Driver,
    shared::{Shared, State},
};
use super::{Options, error::Error, nodes::Nodes};

/// Condition for opening a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create a new stream, whose name must not be in use.
    Create,
    /// Append to a stream that has no writer.
    Append,
    /// Append to a stream, and fence off its current writer if there is one.
    Takeover,
}

/// A writer of a stream. Each byte is written exactly once and in order, despite failures of
/// connections and nodes.
///
/// [`Write::write`] returns once the bytes are in the buffer, and blocks while it is full.
/// [`Write::flush`] returns once everything written is durable. An error is final: every later call
/// returns it again, and [`StreamWriter::durable_position`] remains valid. Dropping a writer
/// abandons its buffered bytes: those past the durable position may or may not be in the stream,
/// which stays open.
#[derive(Debug)]
pub struct StreamWriter {
    shared: Arc<Shared>,
    first_position: u64,
}

/// Snapshot of a writer's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Position after the last written byte.
    pub written_position: u64,
    /// Position below which all bytes are durable.
    pub durable_position: u64,
    /// Number of times that the writer reconnected.
    pub reconnect_count: u64,
    /// Address of the current node, or of the previous one while disconnected.
    pub address: String,
}

/// A handle to a writer's progress, usable from any thread.
#[derive(Clone, Debug)]
pub struct ProgressHandle(Arc<Shared>);

impl ProgressHandle {
    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        let state = self.0.lock();
        Progress {
            written_position: state.resend_buffer.written_position(),
            durable_position: state.resend_buffer.durable_position(),
            reconnect_count: state.reconnect_count,
            address: state.address.clone(),
        }
    }
}

impl StreamWriter {
    /// Opens a stream through one of `addresses` (each `HOST:PORT`). If there are several, prefers
    /// the leader.
    ///
    /// # Panics
    ///
    /// Panics if `addresses` is empty or `options.buffer` is zero.
    pub fn open<A: Into<String> + Clone>(
        addresses: &[A],
        name: &str,
        how: OpenMode,
        options: Options,
    ) -> Result<Self, Error> {
        assert!(options.buffer_bytes_max > 0, "a writer needs a buffer");
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::bad_name(name));
        }
        let shared = Arc::new(Shared::new(&options));
        let nodes = Nodes::new(addresses, options);
        let first = Driver::start(&shared, nodes, name, how.to_wire(), random_writer_id()?)?;
        Ok(Self { shared, first_position: first })
    }

    /// Returns the position of this writer's first byte.
    pub const fn first_position(&self) -> u64 {
        self.first_position
    }

    /// Returns the position after the last written byte.
    pub fn position(&self) -> u64 {
        self.shared.lock().resend_buffer.written_position()
    }

    /// Returns the position below which all bytes are durable.
    pub fn durable_position(&self) -> u64 {
        self.shared.lock().resend_buffer.durable_position()
    }

    /// Returns a handle to the writer's progress, usable from any thread.
    pub fn progress_handle(&self) -> ProgressHandle {
        ProgressHandle(Arc::clone(&self.shared))
    }

    /// Waits for free space in the buffer and returns its size, for callers that read no more than
    /// fits.
    pub fn wait_for_room(&self) -> Result<usize, Error> {
        let state = self.shared.wait_until(|state| state.resend_buffer.free_bytes() > 0)?;
        Ok(state.resend_buffer.free_bytes())
    }

    /// Waits until everything is durable and closes the stream permanently. Returns its end.
    pub fn finish(self) -> Result<u64, Error> {
        self.close(true)
    }

    /// Waits until everything is durable and leaves the stream open for other writers. Returns the
    /// position of the next byte.
    pub fn detach(self) -> Result<u64, Error> {
        self.close(false)
    }

    fn close(self, finish: bool) -> Result<u64, Error> {
        let mut state = self.shared.lock();
        state.requested_close = Some(finish);
        self.shared.work_ready.notify_all();
        loop {
            match &state.end_result {
                Some(over) => return over.clone(),
                None => state = self.shared.wait_for_change(state),
            }
        }
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut state = self.shared.wait_until(|state| state.resend_buffer.free_bytes() > 0)?;
        let count = state.resend_buffer.write(bytes);
        if state.is_driver_waiting {
            self.shared.work_ready.notify_all();
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        let is_durable = |state: &State| {
            state.resend_buffer.durable_position() == state.resend_buffer.written_position()
        };
        self.shared.wait_until(is_durable).map(drop)?;
        Ok(())
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_writer_dropped = true;
        state.shut_down_socket();
        self.shared.work_ready.notify_all();
    }
}

impl OpenMode {
    const fn to_wire(self) -> streams::OpenMode {
        match self {
            Self::Create => streams::OpenMode::Create,
            Self::Append => streams::OpenMode::Append,
            Self::Takeover => streams::OpenMode::Takeover,
        }
    }
}

/// Returns a random id, unique to this writer.
fn random_writer_id() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    drawn.map_err(|error| Error::LocalResource(format!("cannot read /dev/urandom: {error}")))?;
    Ok(u128::from_ne_bytes(bytes))
}
