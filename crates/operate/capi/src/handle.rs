//! A program's handle: submits values, reports completions, and delivers values.

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

/// Maximum time for which values submitted within callbacks wait for more to be bundled with.
const GATHER: Duration = Duration::from_micros(100);

/// Position of the next value to deliver; `None` while delivery is off.
type Delivery = Option<Cursor>;

/// State that only the thread that handles events accesses, so that it needs no further lock.
#[derive(Default)]
struct DispatchState {
    ended: Option<Ended>,
    values: Values,
    /// Epoch of the handle to which the values belong.
    epoch: u64,
    delivered: Option<u64>,
}

/// Next event for the program.
pub enum Event {
    /// Completion of a request.
    Completed(Done, Outcome),
    /// A value. It counts as delivered once [`Turn::delivered`] has been called.
    Value {
        /// Slot of the value.
        slot: u64,
        /// Contents of the value.
        value: Arc<[u8]>,
        /// Epoch to pass to [`Turn::delivered`].
        epoch: u64,
    },
    /// Delivery has failed and is now off.
    Failed(Failed),
    /// No event is pending.
    Nothing,
}

/// A node or client, shared by all threads of a program.
pub struct Handle {
    source: Arc<dyn Source>,
    bell: Arc<Bell>,
    submits: Arc<Submits>,
    delivery: Mutex<Delivery>,
    /// Incremented, while `delivery` is locked, each time the program sets a new delivery position.
    epoch: AtomicU64,
    /// Thread that handles events; 0 for none.
    dispatcher: AtomicUsize,
    hand: Mutex<DispatchState>,
    /// Set while values submitted within callbacks are held back until the end of the turn.
    gathers: AtomicBool,
    /// Set once the source has ended, so that no more events will arrive.
    closed: AtomicBool,
}

/// Returns a number that differs between live threads and is never 0.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    // In a thread that is ending the thread-local no longer exists, but such a thread does not
    // handle events.
    HERE.try_with(|here| std::ptr::from_ref(here).addr()).unwrap_or(1)
}

/// The right to handle events, which one thread holds at a time.
pub struct Turn<'a> {
    handle: &'a Handle,
    hand: RefCell<(MutexGuard<'a, DispatchState>, Option<Instant>)>,
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

    /// Attaches to a remote node.
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

    /// Returns a descriptor that is readable while [`Turn::next_event`] may have an event.
    pub fn descriptor(&self) -> RawFd {
        let own = || self.bell.descriptor();
        self.source.descriptor().unwrap_or_else(own).as_raw_fd()
    }

    /// Sends a request and waits for the outcome.
    fn ask_and_wait(
        &self,
        wait: Duration,
        ask: impl FnOnce(Done) -> Result<(), Failed>,
    ) -> Outcome {
        let (tell, told) = sync_channel(1);
        // The caller may have timed out.
        ask(Box::new(move |outcome| drop(tell.try_send(outcome))))?;
        // The call may wait for values that would otherwise be sent only at the end of a callback.
        self.send_gathered();
        self.source.attend();
        told.recv_timeout(wait).unwrap_or_else(|_| {
            let detail = format!("no outcome within {} ms", wait.as_millis());
            Err(Failed::new(Code::Unknown, detail))
        })
    }

    /// Sends a request other than a value. The completion becomes an event.
    fn ask(&self, done: Done, ask: impl FnOnce(Done) -> Result<(), Failed>) -> Result<(), Failed> {
        self.submits.open()?;
        let (submits, bell) = (Arc::clone(&self.submits), Arc::clone(&self.bell));
        let queue = Box::new(move |outcome| {
            submits.complete(done, outcome);
            bell.ring();
        });
        ask(queue).inspect_err(|_| self.submits.free())
    }

    /// Sends a request other than a value and waits for the outcome.
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

    /// Submits a value. The completion becomes an event, which calls `done`.
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

    /// Submits a value and waits for its slot.
    pub fn submit_and_wait(&self, value: &[u8], wait: Duration) -> Outcome {
        self.ask_and_wait(wait, |done| {
            if self.submits.push(value, Teller::Now(done))? {
                self.source.gathered();
            }
            Ok(())
        })
    }

    fn send_gathered(&self) {
        if self.gathers.swap(false, Ordering::Relaxed) {
            self.source.gathered();
        }
    }

    /// Trims all slots below `below`. The completion becomes an event, which calls `done`.
    pub fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        self.ask(done, |done| self.source.trim(below, done))
    }

    /// Trims all slots below `below` and waits for the outcome.
    pub fn trim_and_wait(&self, below: u64, wait: Duration) -> Outcome {
        self.ask_now(wait, |source, done| source.trim(below, done))
    }

    /// Returns the next slot that the cluster will assign. The request changes nothing, so an
    /// unknown outcome is reported as a timeout.
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

    /// Starts delivery at the given position.
    pub fn deliver_from(&self, cursor: Cursor) -> Result<(), Failed> {
        {
            let mut delivery = self.delivery();
            *delivery = Some(self.source.seek(cursor)?);
            self.epoch.fetch_add(1, Ordering::Release);
        }
        self.bell.ring();
        Ok(())
    }

    /// Returns the retained value in a slot. Delivery is not affected.
    pub fn peek(&self, slot: u64) -> Result<Arc<[u8]>, Failed> {
        match self.source.peek(slot)? {
            Read::Value(_, value) => Ok(value),
            Read::Forgotten(first) => Err(forgotten(slot, first)),
            Read::Ended(failed) => Err(failed),
            Read::Ahead => Err(Failed::new(Code::Timeout, format!("slot {slot} is not here yet"))),
        }
    }

    /// Turns delivery off.
    pub fn deliver_nothing(&self) {
        let mut delivery = self.delivery();
        *delivery = None;
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns whether delivery is on.
    pub fn delivers(&self) -> bool {
        self.delivery().is_some()
    }

    fn hand(&self) -> MutexGuard<'_, DispatchState> {
        self.hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins handling events. Fails within a callback, and while another thread handles events.
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

    /// Returns whether the calling thread is in a callback of this handle.
    pub fn is_in_turn(&self) -> bool {
        self.dispatcher.load(Ordering::Relaxed) == this_thread()
    }

    /// Returns the status of the source as JSON.
    pub fn status(&self, wait: Duration) -> Result<String, Failed> {
        self.source.status(wait)
    }

    /// Waits until the source is ready.
    pub fn ready(&self, wait: Duration) -> Result<(), Failed> {
        self.source.ready(wait)
    }

    /// Returns the maximum size of a value in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.submits.value_bytes_max()
    }

    /// Closes the source. The completions of unanswered requests become events, and a thread that
    /// waits for events returns.
    pub fn close(&self) -> Result<(), Failed> {
        let ended = self.source.close();
        self.closed.store(true, Ordering::Release);
        self.bell.ring();
        ended
    }

    /// Passes the pending completions to `each` without a turn, after the source has ended.
    /// Excludes completions that another thread is already handling.
    pub fn last_completions(&self, each: impl FnMut((Done, Outcome))) {
        let hand = self.hand.try_lock().ok();
        let left = hand.and_then(|mut hand| hand.ended.take());
        let rest = std::iter::from_fn(|| self.submits.next_ended());
        left.into_iter().chain(rest).flatten().for_each(each);
    }
}

impl DispatchState {
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
            // Undelivered values may be trimmed before the next turn, which then has to report
            // that.
            hand.values.clear();
        });
        self.handle.dispatcher.store(0, Ordering::Release);
        self.handle.send_gathered();
    }
}

impl Handle {
    /// Reports the delivered position to the source, unless the program has set another position.
    fn settle(&self, hand: &mut DispatchState) {
        let Some(slot) = hand.delivered.take() else {
            return;
        };
        let mut delivery = self.delivery();
        if self.epoch.load(Ordering::Acquire) == hand.epoch {
            *delivery = Some(Cursor::At(slot + 1));
            self.source.taken(slot);
        }
    }

    /// Reads values from the source. Returns an event only if delivery has failed.
    fn refill(&self, hand: &mut DispatchState) -> Option<Event> {
        let mut delivery = self.delivery();
        hand.epoch = self.epoch.load(Ordering::Acquire);
        let mut cursor = (*delivery)?;
        let read = self.source.read(&mut cursor, &mut hand.values);
        *delivery = Some(cursor);
        if let Some((slot, _)) = hand.values.front() {
            // The delivery position is fixed now, so trimming of earlier values no longer needs to
            // be reported.
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
    fn with<T>(&self, with: impl FnOnce(&mut DispatchState, &mut Option<Instant>) -> T) -> T {
        let (hand, gathers_since) = &mut *self.hand.borrow_mut();
        with(hand, gathers_since)
    }

    /// Returns the next event: a completion if there is one, otherwise a value if `values` is set.
    pub fn next_event(&self, values: bool) -> Event {
        self.gather();
        let completion = self.with(|hand, _| hand.next_completion(&self.handle.submits));
        if let Some((done, outcome)) = completion {
            return Event::Completed(done, outcome);
        }
        if values { self.next_value() } else { Event::Nothing }
    }

    /// Sends values submitted within callbacks once they have waited for the maximum time.
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

    /// Returns the next value even if completions are pending.
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

    /// Records that a value was delivered, so that the next one follows. Does nothing if the
    /// program has set another position in the meantime.
    pub fn delivered(&self, slot: u64, epoch: u64) {
        self.with(|hand, _| {
            if hand.epoch == epoch && hand.values.front().is_some_and(|(at, _)| *at == slot) {
                hand.values.pop_front();
                hand.delivered = Some(slot);
            }
        });
    }

    /// Processes pending input, and makes the descriptor unreadable until more arrives.
    pub fn hush(&self) {
        self.handle.source.hear();
        self.handle.bell.hush();
    }

    /// Makes the descriptor readable because events are left.
    pub fn leave_readable(&self) {
        self.handle.bell.ring();
    }

    /// Makes the descriptor readable if completions are left.
    pub fn leave_readable_for_completions(&self) {
        if self.with(|hand, _| hand.ended.as_ref().is_some_and(|ended| ended.len() > 0))
            || self.handle.submits.has_ended()
        {
            self.handle.bell.ring();
        }
    }

    /// Waits for an event that occurs after the last [`Turn::hush`]. Returns `false` on timeout.
    /// Fails if the handle is closed.
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
