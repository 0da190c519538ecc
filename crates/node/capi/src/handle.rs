//! A handle: what a program submits, what it hears of that, and the values that it is delivered.

use std::{
    collections::VecDeque,
    os::fd::RawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::sync_channel},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use crate::{
    attach::client::Client,
    bell::Bell,
    error::{Code, Failed},
    node::Node,
    options::Options,
    source::{Cursor, Done, Outcome, Read, Source, forgotten},
};

/// Requests that may be open, their completions included that nobody has taken.
pub const OPEN_MAX: usize = 4096;
/// Bytes of values that may be open; one larger value may be open alone.
pub const OPEN_BYTES_MAX: usize = 64 << 20;

/// A completion that waits for its thread.
type Completed = (Done, Outcome);

/// What is open.
#[derive(Default)]
struct Inbox {
    open: usize,
    open_bytes: usize,
    completed: VecDeque<Completed>,
}

/// Completions, from the library's threads to the program's.
struct Completions {
    inbox: Mutex<Inbox>,
    bell: Arc<Bell>,
}

impl Completions {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, bytes: usize) {
        let mut inbox = self.inbox();
        inbox.open -= 1;
        inbox.open_bytes -= bytes;
    }
}

/// Where values are delivered from; `None`: nowhere.
#[derive(Default)]
struct Delivery {
    cursor: Option<Cursor>,
    /// Grows when a program says anew where delivery goes on.
    epoch: u64,
}

/// What happens next.
pub enum Event {
    /// A request ended.
    Completed(Done, Outcome),
    /// A value; it counts as delivered once [`Turn::delivered`] says so.
    Value {
        /// Its slot.
        slot: u64,
        /// Its bytes.
        value: Arc<[u8]>,
        /// For [`Turn::delivered`].
        epoch: u64,
    },
    /// Values cannot be delivered; delivery is off.
    Failed(Failed),
    /// Nothing for now.
    Nothing,
}

/// One node or client, shared by all threads of a program.
pub struct Handle {
    source: Arc<dyn Source>,
    bell: Arc<Bell>,
    completions: Arc<Completions>,
    delivery: Mutex<Delivery>,
    dispatcher: Mutex<Option<ThreadId>>,
}

/// The right to take events: one thread at a time.
pub struct Turn<'a>(&'a Handle);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.dispatcher() = None;
    }
}

impl Handle {
    /// Starts a node in this process.
    pub fn start(options: Options) -> Result<Self, Failed> {
        let bell = new_bell()?;
        let wait = options.start_wait;
        let node = Node::start(options, &bell)?;
        Self::new(Arc::new(node), bell, wait)
    }

    /// Becomes a client of a node elsewhere.
    pub fn attach(options: Options) -> Result<Self, Failed> {
        let bell = new_bell()?;
        let wait = options.start_wait;
        let client = Client::start(options, &bell)?;
        Self::new(Arc::new(client), bell, wait)
    }

    fn new(source: Arc<dyn Source>, bell: Arc<Bell>, wait: Duration) -> Result<Self, Failed> {
        if !wait.is_zero()
            && let Err(failed) = source.ready(wait)
        {
            let _ = source.close();
            return Err(failed);
        }
        let completions = Completions {
            inbox: Mutex::default(),
            bell: Arc::clone(&bell),
        };
        Ok(Self {
            source,
            bell,
            completions: Arc::new(completions),
            delivery: Mutex::default(),
            dispatcher: Mutex::default(),
        })
    }

    /// Readable while something may wait for [`Turn::next_event`].
    pub fn descriptor(&self) -> RawFd {
        self.bell.descriptor()
    }

    /// Takes a place for a request of this size.
    fn open(&self, bytes: usize) -> Result<(), Failed> {
        let mut inbox = self.completions.inbox();
        let full = inbox.open_bytes.saturating_add(bytes) > OPEN_BYTES_MAX && inbox.open > 0;
        if inbox.open >= OPEN_MAX || full {
            let detail = format!(
                "{} requests of {} bytes are open",
                inbox.open, inbox.open_bytes
            );
            return Err(Failed::new(Code::Busy, detail)
                .hint("take completions with quorate_dispatch, and submit again"));
        }
        inbox.open += 1;
        inbox.open_bytes += bytes;
        Ok(())
    }

    /// Asks, with a completion that the program's dispatching thread calls.
    fn ask(
        &self,
        bytes: usize,
        done: Done,
        ask: impl FnOnce(&dyn Source, Done) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        self.open(bytes)?;
        let completions = Arc::clone(&self.completions);
        let queue = Box::new(move |outcome| {
            {
                let mut inbox = completions.inbox();
                inbox.open_bytes -= bytes;
                inbox.completed.push_back((done, outcome));
            }
            completions.bell.ring();
        });
        ask(&*self.source, queue).inspect_err(|_| self.completions.free(bytes))
    }

    /// Asks, and waits for the outcome.
    fn ask_and_wait(
        &self,
        bytes: usize,
        wait: Duration,
        ask: impl FnOnce(&dyn Source, Done) -> Result<(), Failed>,
    ) -> Outcome {
        self.open(bytes)?;
        let (tell, told) = sync_channel(1);
        let completions = Arc::clone(&self.completions);
        let direct = Box::new(move |outcome| {
            completions.free(bytes);
            // Whoever asked may have gone.
            let _ = tell.try_send(outcome);
        });
        ask(&*self.source, direct).inspect_err(|_| self.completions.free(bytes))?;
        told.recv_timeout(wait).unwrap_or_else(|_| {
            let detail = format!("no outcome within {} ms", wait.as_millis());
            Err(Failed::new(Code::Unknown, detail))
        })
    }

    /// Appends a value; `done` is an event.
    pub fn submit(&self, value: &[u8], done: Done) -> Result<(), Failed> {
        self.ask(value.len(), done, |source, done| source.append(value, done))
    }

    /// Appends a value, and waits.
    pub fn submit_and_wait(&self, value: &[u8], wait: Duration) -> Outcome {
        self.ask_and_wait(value.len(), wait, |source, done| source.append(value, done))
    }

    /// Forgets slots; `done` is an event.
    pub fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        self.ask(0, done, |source, done| source.trim(below, done))
    }

    /// Forgets slots, and waits.
    pub fn trim_and_wait(&self, below: u64, wait: Duration) -> Outcome {
        self.ask_and_wait(0, wait, |source, done| source.trim(below, done))
    }

    /// The next slot to be given out in the cluster.
    pub fn sync(&self, wait: Duration) -> Outcome {
        self.ask_and_wait(0, wait, |source, done| source.sync(done))
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Values are delivered from here on.
    pub fn deliver_from(&self, cursor: Cursor) -> Result<(), Failed> {
        {
            let mut delivery = self.delivery();
            delivery.cursor = Some(self.source.seek(cursor)?);
            delivery.epoch += 1;
        }
        self.bell.ring();
        Ok(())
    }

    /// The value in a slot that is held, whatever is delivered.
    pub fn peek(&self, slot: u64) -> Result<Arc<[u8]>, Failed> {
        match self.source.peek(slot)? {
            Read::Value(_, value) => Ok(value),
            Read::Forgotten(first) => Err(forgotten(slot, first)),
            Read::Ended(failed) => Err(failed),
            Read::Ahead => Err(Failed::new(
                Code::Timeout,
                format!("slot {slot} is not here yet"),
            )),
        }
    }

    /// No values are delivered any more.
    pub fn deliver_nothing(&self) {
        let mut delivery = self.delivery();
        delivery.cursor = None;
        delivery.epoch += 1;
    }

    /// Whether values are delivered.
    pub fn delivers(&self) -> bool {
        self.delivery().cursor.is_some()
    }

    fn dispatcher(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.dispatcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to take events; not while another thread does, nor within an event.
    pub fn turn(&self) -> Result<Turn<'_>, Failed> {
        let mut dispatcher = self.dispatcher();
        if let Some(thread) = *dispatcher {
            let own = thread == thread::current().id();
            let who = if own {
                "this thread, in a callback"
            } else {
                "another thread"
            };
            return Err(Failed::new(
                Code::InUse,
                format!("{who} takes events of this handle"),
            ));
        }
        *dispatcher = Some(thread::current().id());
        Ok(Turn(self))
    }

    /// Whether this thread is within a callback of this handle.
    pub fn is_in_turn(&self) -> bool {
        *self.dispatcher() == Some(thread::current().id())
    }

    /// What its source is.
    pub fn status(&self, wait: Duration) -> Result<String, Failed> {
        self.source.status(wait)
    }

    /// Waits until it serves.
    pub fn ready(&self, wait: Duration) -> Result<(), Failed> {
        self.source.ready(wait)
    }

    /// Largest value.
    pub fn value_bytes_max(&self) -> usize {
        self.source.value_bytes_max()
    }

    /// Ends it: completions of what was open wait as events.
    pub fn close(&self) -> Result<(), Failed> {
        self.source.close()
    }

    /// Takes a completion that waits, without a turn: for the end.
    pub fn last_completion(&self) -> Option<Completed> {
        let mut inbox = self.completions.inbox();
        let completed = inbox.completed.pop_front()?;
        inbox.open -= 1;
        Some(completed)
    }
}

impl Turn<'_> {
    /// The next event; completions first, values only if they are wanted.
    pub fn next_event(&self, values: bool) -> Event {
        if let Some((done, outcome)) = self.0.last_completion() {
            return Event::Completed(done, outcome);
        }
        if values {
            self.next_value()
        } else {
            Event::Nothing
        }
    }

    /// The next value, whatever completions wait.
    pub fn next_value(&self) -> Event {
        let mut delivery = self.0.delivery();
        let Some(mut cursor) = delivery.cursor else {
            return Event::Nothing;
        };
        let read = self.0.source.read(&mut cursor);
        delivery.cursor = Some(cursor);
        let failed = match read {
            Read::Ahead => return Event::Nothing,
            Read::Value(slot, value) => {
                // From here on it has a place: if older ones are forgotten now, that is no news.
                delivery.cursor = Some(Cursor::At(slot));
                let epoch = delivery.epoch;
                return Event::Value { slot, value, epoch };
            }
            Read::Forgotten(first) => match cursor {
                Cursor::At(slot) => forgotten(slot, first),
                Cursor::Oldest | Cursor::End => return Event::Nothing,
            },
            Read::Ended(failed) => failed,
        };
        delivery.cursor = None;
        Event::Failed(failed)
    }

    /// A value was delivered: the next one follows, unless the program said meanwhile where to go on.
    pub fn delivered(&self, slot: u64, epoch: u64) {
        let mut delivery = self.0.delivery();
        if delivery.epoch == epoch {
            delivery.cursor = Some(Cursor::At(slot + 1));
            self.0.source.taken(slot);
        }
    }

    /// The descriptor is not readable from here to whatever comes next; gives a count for [`Turn::wait`].
    pub fn hush(&self) -> u64 {
        self.0.bell.hush()
    }

    /// Something is left: the descriptor is readable.
    pub fn leave_readable(&self) {
        self.0.bell.ring();
    }

    /// The same, if completions are.
    pub fn leave_readable_for_completions(&self) {
        if !self.0.completions.inbox().completed.is_empty() {
            self.0.bell.ring();
        }
    }

    /// Waits for something that came since then; `false`: nothing came.
    pub fn wait(&self, seen: u64, until: Option<Instant>) -> bool {
        self.0.bell.wait(seen, until)
    }
}

fn new_bell() -> Result<Arc<Bell>, Failed> {
    let bell = Bell::new();
    bell.map(Arc::new)
        .map_err(|error| Failed::new(Code::Refused, format!("make an eventfd: {error}")))
}
