//! A handle: what a program submits, what it hears of that, and the values that it is delivered.

use std::{
    cell::RefCell,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::sync_channel,
    },
    time::{Duration, Instant},
};

use crate::{
    attach::client::Client,
    bell::{Bell, wait_readable},
    error::{Code, Failed},
    node::Node,
    options::Options,
    source::{Cursor, Done, Outcome, Read, Source, Values, forgotten},
    submits::{Ended, Submits, Teller},
};

/// Longest wait of values submitted within callbacks for more of them.
const GATHER: Duration = Duration::from_micros(100);

/// Position of delivery; `None`: no delivery.
type Delivery = Option<Cursor>;

/// State of the thread that takes events, free of locks.
#[derive(Default)]
struct Hand {
    ended: Option<Ended>,
    values: Values,
    /// Which of the handle's epochs the values are of, and the last of them that was delivered and
    /// is not told.
    epoch: u64,
    delivered: Option<u64>,
}

/// Next event.
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
    submits: Arc<Submits>,
    delivery: Mutex<Delivery>,
    /// Grows, with `delivery` held, when a program says anew where delivery goes on.
    epoch: AtomicU64,
    /// The thread that takes events; 0: none does.
    dispatcher: AtomicUsize,
    hand: Mutex<Hand>,
    /// Values that were submitted within callbacks wait for the end of the turn.
    gathers: AtomicBool,
    /// The source has ended: there is nothing to wait for any more.
    closed: AtomicBool,
}

/// Another number for each thread that lives, and not 0.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    // A thread that ends has no such place any more; it takes no events either.
    HERE.try_with(|here| std::ptr::from_ref(here).addr()).unwrap_or(1)
}

/// The right to take events: one thread at a time.
pub struct Turn<'a> {
    handle: &'a Handle,
    hand: RefCell<(MutexGuard<'a, Hand>, Option<Instant>)>,
}

impl Handle {
    /// Starts a node in this process.
    pub fn start(options: Options) -> Result<Self, Failed> {
        let bell = new_bell()?;
        let wait = options.start_wait;
        let submits =
            Arc::new(Submits::new(options.largest_value(), Some(crate::node::starting())));
        let node = Node::start(options, &bell, &submits)?;
        Self::new(Arc::new(node), bell, submits, wait)
    }

    /// Becomes a client of a node elsewhere.
    pub fn attach(options: Options) -> Result<Self, Failed> {
        let bell = new_bell()?;
        let wait = options.start_wait;
        let submits = Arc::new(Submits::new(options.largest_value(), None));
        let client = Client::start(options, &bell, &submits)?;
        Self::new(Arc::new(client), bell, submits, wait)
    }

    fn new(
        source: Arc<dyn Source>,
        bell: Arc<Bell>,
        submits: Arc<Submits>,
        wait: Duration,
    ) -> Result<Self, Failed> {
        if !wait.is_zero()
            && let Err(failed) = source.ready(wait)
        {
            let _ = source.close();
            return Err(failed);
        }
        Ok(Self {
            source,
            bell,
            submits,
            delivery: Mutex::default(),
            epoch: AtomicU64::new(0),
            dispatcher: AtomicUsize::new(0),
            hand: Mutex::default(),
            gathers: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// Readable while something may wait for [`Turn::next_event`].
    pub fn descriptor(&self) -> RawFd {
        let own = || self.bell.descriptor();
        self.source.descriptor().unwrap_or_else(own).as_raw_fd()
    }

    /// Asks, and waits for the outcome.
    fn ask_and_wait(
        &self,
        wait: Duration,
        ask: impl FnOnce(Done) -> Result<(), Failed>,
    ) -> Outcome {
        let (tell, told) = sync_channel(1);
        // The caller may be gone.
        ask(Box::new(move |outcome| drop(tell.try_send(outcome))))?;
        // What waits for the end of a callback waits for this otherwise.
        self.send_gathered();
        self.source.attend();
        told.recv_timeout(wait).unwrap_or_else(|_| {
            let detail = format!("no outcome within {} ms", wait.as_millis());
            Err(Failed::new(Code::Unknown, detail))
        })
    }

    /// A request that is no value, whose end is an event.
    fn ask(&self, done: Done, ask: impl FnOnce(Done) -> Result<(), Failed>) -> Result<(), Failed> {
        self.submits.open()?;
        let (submits, bell) = (Arc::clone(&self.submits), Arc::clone(&self.bell));
        let queue = Box::new(move |outcome| {
            submits.complete(done, outcome);
            bell.ring();
        });
        ask(queue).inspect_err(|_| self.submits.free())
    }

    /// The same, whose end is waited for.
    fn ask_now(
        &self,
        wait: Duration,
        ask: impl FnOnce(&dyn Source, Done) -> Result<(), Failed>,
    ) -> Outcome {
        self.submits.open()?;
        let submits = Arc::clone(&self.submits);
        self.ask_and_wait(wait, move |done| {
            let own = Arc::clone(&submits);
            let direct = Box::new(move |outcome| {
                own.free();
                done(outcome);
            });
            ask(&*self.source, direct).inspect_err(|_| submits.free())
        })
    }

    /// Appends a value; `done` is an event.
    pub fn submit(&self, value: &[u8], done: Done) -> Result<(), Failed> {
        if self.submits.push(value, Teller::Event(done))? {
            if self.is_in_turn() {
                self.gathers.store(true, Ordering::Relaxed);
            } else {
                self.source.gathered();
            }
        }
        Ok(())
    }

    /// Appends a value, and waits.
    pub fn submit_and_wait(&self, value: &[u8], wait: Duration) -> Outcome {
        self.ask_and_wait(wait, |done| {
            if self.submits.push(value, Teller::Now(done))? {
                self.source.gathered();
            }
            Ok(())
        })
    }

    /// Values that wait for more of them wait no longer.
    fn send_gathered(&self) {
        if self.gathers.swap(false, Ordering::Relaxed) {
            self.source.gathered();
        }
    }

    /// Forgets slots; `done` is an event.
    pub fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        self.ask(done, |done| self.source.trim(below, done))
    }

    /// Forgets slots, and waits.
    pub fn trim_and_wait(&self, below: u64, wait: Duration) -> Outcome {
        self.ask_now(wait, |source, done| source.trim(below, done))
    }

    /// Returns the next slot to be given out in the cluster. It changes nothing, so no end of it is
    /// unknown: there was no answer in time.
    pub fn sync(&self, wait: Duration) -> Outcome {
        let outcome = self.ask_now(wait, |source, done| source.sync(done));
        outcome.map_err(|failed| match failed.code {
            Code::Unknown => {
                Failed { hint: failed.hint, ..Failed::new(Code::Timeout, failed.detail) }
            }
            _ => failed,
        })
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Values are delivered from here on.
    pub fn deliver_from(&self, cursor: Cursor) -> Result<(), Failed> {
        {
            let mut delivery = self.delivery();
            *delivery = Some(self.source.seek(cursor)?);
            self.epoch.fetch_add(1, Ordering::Release);
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
            Read::Ahead => Err(Failed::new(Code::Timeout, format!("slot {slot} is not here yet"))),
        }
    }

    /// No values are delivered any more.
    pub fn deliver_nothing(&self) {
        let mut delivery = self.delivery();
        *delivery = None;
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns whether values are delivered.
    pub fn delivers(&self) -> bool {
        self.delivery().is_some()
    }

    fn hand(&self) -> MutexGuard<'_, Hand> {
        self.hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to take events; not while another thread does, nor within an event.
    pub fn turn(&self) -> Result<Turn<'_>, Failed> {
        let (own, set, get) = (this_thread(), Ordering::Acquire, Ordering::Relaxed);
        if let Err(thread) = self.dispatcher.compare_exchange(0, own, set, get) {
            let who = match thread == own {
                true => "this thread, in a callback",
                false => "another thread",
            };
            return Err(Failed::new(Code::InUse, format!("{who} takes events of this handle")));
        }
        Ok(Turn { handle: self, hand: RefCell::new((self.hand(), None)) })
    }

    /// Returns whether this thread is within a callback of this handle.
    pub fn is_in_turn(&self) -> bool {
        self.dispatcher.load(Ordering::Relaxed) == this_thread()
    }

    /// Returns the status of its source.
    pub fn status(&self, wait: Duration) -> Result<String, Failed> {
        self.source.status(wait)
    }

    /// Waits until it serves.
    pub fn ready(&self, wait: Duration) -> Result<(), Failed> {
        self.source.ready(wait)
    }

    /// Largest value.
    pub fn value_bytes_max(&self) -> usize {
        self.submits.value_bytes_max()
    }

    /// Ends it: completions of what was open wait as events, and a thread that waits for events
    /// stops waiting.
    pub fn close(&self) -> Result<(), Failed> {
        let ended = self.source.close();
        self.closed.store(true, Ordering::Release);
        self.bell.ring();
        ended
    }

    /// Passes on the completions that wait, without a turn: for the end. Those that another thread
    /// is at are its own.
    pub fn last_completions(&self, each: impl FnMut((Done, Outcome))) {
        let hand = self.hand.try_lock().ok();
        let left = hand.and_then(|mut hand| hand.ended.take());
        let rest = std::iter::from_fn(|| self.submits.next_ended());
        left.into_iter().chain(rest).flatten().for_each(each);
    }
}

impl Hand {
    fn next_completion(&mut self, submits: &Submits) -> Option<(Done, Outcome)> {
        loop {
            if let Some(completion) = self.ended.as_mut().and_then(Iterator::next) {
                return Some(completion);
            }
            self.ended = Some(submits.next_ended()?);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.with(|hand, _| {
            self.handle.settle(hand);
            // What is not delivered now may be forgotten before it is: then that is what there is
            // to tell.
            hand.values.clear();
        });
        self.handle.dispatcher.store(0, Ordering::Release);
        self.handle.send_gathered();
    }
}

impl Handle {
    /// Reports the position of delivery; values of an earlier wish are dropped.
    fn settle(&self, hand: &mut Hand) {
        let Some(slot) = hand.delivered.take() else {
            return;
        };
        let mut delivery = self.delivery();
        if self.epoch.load(Ordering::Acquire) == hand.epoch {
            *delivery = Some(Cursor::At(slot + 1));
            self.source.taken(slot);
        }
    }

    /// Takes values from the source; `None`: there are some now.
    fn refill(&self, hand: &mut Hand) -> Option<Event> {
        let mut delivery = self.delivery();
        hand.epoch = self.epoch.load(Ordering::Acquire);
        let mut cursor = (*delivery)?;
        let read = self.source.read(&mut cursor, &mut hand.values);
        *delivery = Some(cursor);
        if let Some((slot, _)) = hand.values.front() {
            // From here on it has a place: if older ones are forgotten now, that is no news.
            *delivery = Some(Cursor::At(*slot));
            return None;
        }
        let failed = match (read, cursor) {
            (Some(Read::Forgotten(first)), Cursor::At(slot)) => forgotten(slot, first),
            (Some(Read::Ended(failed)), _) => failed,
            _ => return None,
        };
        *delivery = None;
        Some(Event::Failed(failed))
    }
}

impl Turn<'_> {
    fn with<T>(&self, with: impl FnOnce(&mut Hand, &mut Option<Instant>) -> T) -> T {
        let (hand, gathers_since) = &mut *self.hand.borrow_mut();
        with(hand, gathers_since)
    }

    /// The next event; completions first, values only if they are wanted.
    pub fn next_event(&self, values: bool) -> Event {
        self.gather();
        let completion = self.with(|hand, _| hand.next_completion(&self.handle.submits));
        if let Some((done, outcome)) = completion {
            return Event::Completed(done, outcome);
        }
        if values { self.next_value() } else { Event::Nothing }
    }

    /// Sends values submitted by callbacks when there is nothing more to gather, or after the
    /// longest wait.
    fn gather(&self) {
        if !self.handle.gathers.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let late = self.with(|_, since| now.duration_since(*since.get_or_insert(now)) >= GATHER);
        if late {
            self.with(|_, since| *since = None);
            self.handle.send_gathered();
        }
    }

    /// The next value, whatever completions wait.
    pub fn next_value(&self) -> Event {
        self.with(|hand, _| {
            if hand.epoch != self.handle.epoch.load(Ordering::Acquire) {
                hand.values.clear();
                hand.delivered = None;
            }
            if hand.values.is_empty() {
                self.handle.settle(hand);
                if let Some(failed) = self.handle.refill(hand) {
                    return failed;
                }
            }
            let epoch = hand.epoch;
            hand.values.front().map_or(Event::Nothing, |(slot, value)| {
                let (slot, value) = (*slot, Arc::clone(value));
                Event::Value { slot, value, epoch }
            })
        })
    }

    /// A value was delivered: the next one follows, unless the program said meanwhile where to go
    /// on.
    pub fn delivered(&self, slot: u64, epoch: u64) {
        self.with(|hand, _| {
            if hand.epoch == epoch && hand.values.front().is_some_and(|(at, _)| *at == slot) {
                hand.values.pop_front();
                hand.delivered = Some(slot);
            }
        });
    }

    /// Hears what there is. The descriptor is not readable from here to whatever comes next.
    pub fn hush(&self) {
        self.handle.source.hear();
        self.handle.bell.hush();
    }

    /// Something is left: the descriptor is readable.
    pub fn leave_readable(&self) {
        self.handle.bell.ring();
    }

    /// The same, if completions are.
    pub fn leave_readable_for_completions(&self) {
        if self.with(|hand, _| hand.ended.as_ref().is_some_and(|ended| ended.len() > 0))
            || self.handle.submits.has_ended()
        {
            self.handle.bell.ring();
        }
    }

    /// Waits for an event since the last [`Turn::hush`]; `false`: none came. Fails once the handle
    /// is closed, and there will be none.
    pub fn wait(&self, until: Option<Instant>) -> Result<bool, Failed> {
        self.with(|hand, _| self.handle.settle(hand));
        self.handle.send_gathered();
        if self.handle.closed.load(Ordering::Acquire) {
            return Err(Failed::new(Code::Stopped, "the handle is closed"));
        }
        let (source, own) = (&self.handle.source, || self.handle.bell.descriptor());
        Ok(wait_readable(&[source.descriptor().unwrap_or_else(own)], until))
    }
}

fn new_bell() -> Result<Arc<Bell>, Failed> {
    let bell = Bell::new();
    bell.map(Arc::new)
        .map_err(|error| Failed::new(Code::Refused, format!("make an eventfd: {error}")))
}
