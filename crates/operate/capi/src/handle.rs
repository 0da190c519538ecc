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
    source::{Cursor, DoneCallback, Outcome, ReadResult, Source, Values, trimmed_error},
    submits::{BundleCompletions, OutcomeRecipient, SubmitQueue},
};

/// Maximum time for which values submitted within callbacks wait for more to be bundled with.
const GATHER_TIMEOUT: Duration = Duration::from_micros(100);

/// Position of the next value to deliver; `None` while delivery is off.
type DeliveryCursor = Option<Cursor>;

/// State that only the thread that handles events accesses, so that it needs no further lock.
#[derive(Default)]
struct DispatchState {
    completions: Option<BundleCompletions>,
    unread_values: Values,
    /// Epoch of the handle to which the values belong.
    values_epoch: u64,
    last_delivered: Option<u64>,
}

/// Next event for the program.
pub enum Event {
    /// Completion of a request.
    Completed(DoneCallback, Outcome),
    /// A value. It counts as delivered once [`DispatchTurn::mark_delivered`] has been called.
    Value {
        /// Slot of the value.
        slot: u64,
        /// Contents of the value.
        value: Arc<[u8]>,
        /// Epoch to pass to [`DispatchTurn::mark_delivered`].
        delivery_epoch: u64,
    },
    /// Delivery has failed and is now off.
    DeliveryFailed(Failed),
    /// No event is pending.
    Nothing,
}

/// A node or client, shared by all threads of a program.
pub struct Handle {
    source: Arc<dyn Source>,
    bell: Arc<Bell>,
    submits: Arc<SubmitQueue>,
    delivery: Mutex<DeliveryCursor>,
    /// Incremented, while `delivery` is locked, each time the program sets a new delivery position.
    delivery_epoch: AtomicU64,
    /// Thread that handles events; 0 for none.
    dispatcher_thread: AtomicUsize,
    dispatch_state: Mutex<DispatchState>,
    /// Set while values submitted within callbacks are held back until the end of the turn.
    is_gathering: AtomicBool,
    /// Set once the source has ended, so that no more events will arrive.
    is_closed: AtomicBool,
}

/// Returns a number that differs between live threads and is never 0.
fn current_thread_number() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    // In a thread that is ending the thread-local no longer exists, but such a thread does not
    // handle events.
    HERE.try_with(|here| std::ptr::from_ref(here).addr()).unwrap_or(1)
}

/// The right to handle events, which one thread holds at a time.
pub struct DispatchTurn<'a> {
    handle: &'a Handle,
    dispatch_state: RefCell<(MutexGuard<'a, DispatchState>, Option<Instant>)>,
}

impl Handle {
    /// Starts a node in this process.
    pub fn start(options: Options) -> Result<Self, Failed> {
        let bell = new_bell()?;
        let wait = options.start_timeout;
        let submits = Arc::new(SubmitQueue::new(
            options.fitting_value_bytes_max(),
            Some(crate::node::starting_error()),
        ));
        let node = Node::start(options, &bell, &submits)?;
        Self::new(Arc::new(node), bell, submits, wait)
    }

    /// Attaches to a remote node.
    pub fn attach(options: Options) -> Result<Self, Failed> {
        let bell = new_bell()?;
        let wait = options.start_timeout;
        let submits = Arc::new(SubmitQueue::new(options.fitting_value_bytes_max(), None));
        let client = Client::start(options, &bell, &submits)?;
        Self::new(Arc::new(client), bell, submits, wait)
    }

    fn new(
        source: Arc<dyn Source>,
        bell: Arc<Bell>,
        submits: Arc<SubmitQueue>,
        wait: Duration,
    ) -> Result<Self, Failed> {
        if !wait.is_zero()
            && let Err(failed) = source.wait_until_ready(wait)
        {
            let _ = source.close();
            return Err(failed);
        }
        Ok(Self {
            source,
            bell,
            submits,
            delivery: Mutex::default(),
            delivery_epoch: AtomicU64::new(0),
            dispatcher_thread: AtomicUsize::new(0),
            dispatch_state: Mutex::default(),
            is_gathering: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns a descriptor that is readable while [`DispatchTurn::next_event`] may have an event.
    pub fn descriptor(&self) -> RawFd {
        let own = || self.bell.descriptor();
        self.source.input_descriptor().unwrap_or_else(own).as_raw_fd()
    }

    /// Sends a request and waits for the outcome.
    fn request_and_wait(
        &self,
        wait: Duration,
        ask: impl FnOnce(DoneCallback) -> Result<(), Failed>,
    ) -> Outcome {
        let (tell, told) = sync_channel(1);
        // The caller may have timed out.
        ask(Box::new(move |outcome| drop(tell.try_send(outcome))))?;
        // The call may wait for values that would otherwise be sent only at the end of a callback.
        self.send_gathered_values();
        self.source.announce_waiter();
        told.recv_timeout(wait).unwrap_or_else(|_| {
            let detail = format!("no outcome within {} ms", wait.as_millis());
            Err(Failed::new(Code::Unknown, detail))
        })
    }

    /// Sends a request other than a value. The completion becomes an event.
    fn request(
        &self,
        done: DoneCallback,
        ask: impl FnOnce(DoneCallback) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        self.submits.open()?;
        let (submits, bell) = (Arc::clone(&self.submits), Arc::clone(&self.bell));
        let queue = Box::new(move |outcome| {
            submits.complete_request(done, outcome);
            bell.ring();
        });
        ask(queue).inspect_err(|_| self.submits.release_request())
    }

    /// Sends a request other than a value and waits for the outcome.
    fn request_directly(
        &self,
        wait: Duration,
        ask: impl FnOnce(&dyn Source, DoneCallback) -> Result<(), Failed>,
    ) -> Outcome {
        self.submits.open()?;
        let submits = Arc::clone(&self.submits);
        self.request_and_wait(wait, move |done| {
            let own = Arc::clone(&submits);
            let direct = Box::new(move |outcome| {
                own.release_request();
                done(outcome);
            });
            ask(&*self.source, direct).inspect_err(|_| submits.release_request())
        })
    }

    /// Submits a value. The completion becomes an event, which calls `done`.
    pub fn submit(&self, value: &[u8], done: DoneCallback) -> Result<(), Failed> {
        if self.submits.push(value, OutcomeRecipient::OnDispatch(done))? {
            if self.is_in_callback() {
                self.is_gathering.store(true, Ordering::Relaxed);
            } else {
                self.source.on_values_gathered();
            }
        }
        Ok(())
    }

    /// Submits a value and waits for its slot.
    pub fn submit_and_wait(&self, value: &[u8], wait: Duration) -> Outcome {
        self.request_and_wait(wait, |done| {
            if self.submits.push(value, OutcomeRecipient::Immediately(done))? {
                self.source.on_values_gathered();
            }
            Ok(())
        })
    }

    fn send_gathered_values(&self) {
        if self.is_gathering.swap(false, Ordering::Relaxed) {
            self.source.on_values_gathered();
        }
    }

    /// Trims all slots below `below`. The completion becomes an event, which calls `done`.
    pub fn trim(&self, below: u64, done: DoneCallback) -> Result<(), Failed> {
        self.request(done, |done| self.source.trim(below, done))
    }

    /// Trims all slots below `below` and waits for the outcome.
    pub fn trim_and_wait(&self, below: u64, wait: Duration) -> Outcome {
        self.request_directly(wait, |source, done| source.trim(below, done))
    }

    /// Returns the next slot that the cluster will assign. The request changes nothing, so an
    /// unknown outcome is reported as a timeout.
    pub fn sync(&self, wait: Duration) -> Outcome {
        let outcome = self.request_directly(wait, |source, done| source.sync(done));
        outcome.map_err(|failed| match failed.code {
            Code::Unknown => {
                Failed { hint: failed.hint, ..Failed::new(Code::Timeout, failed.detail) }
            }
            _ => failed,
        })
    }

    fn delivery(&self) -> MutexGuard<'_, DeliveryCursor> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts delivery at the given position.
    pub fn deliver_from(&self, cursor: Cursor) -> Result<(), Failed> {
        {
            let mut delivery = self.delivery();
            *delivery = Some(self.source.set_cursor(cursor)?);
            self.delivery_epoch.fetch_add(1, Ordering::Release);
        }
        self.bell.ring();
        Ok(())
    }

    /// Returns the retained value in a slot. Delivery is not affected.
    pub fn read_slot(&self, slot: u64) -> Result<Arc<[u8]>, Failed> {
        match self.source.read_slot(slot)? {
            ReadResult::Value(_, value) => Ok(value),
            ReadResult::Trimmed(first) => Err(trimmed_error(slot, first)),
            ReadResult::SourceEnded(failed) => Err(failed),
            ReadResult::NotYetWritten => {
                Err(Failed::new(Code::Timeout, format!("slot {slot} is not here yet")))
            }
        }
    }

    /// Turns delivery off.
    pub fn stop_delivery(&self) {
        let mut delivery = self.delivery();
        *delivery = None;
        self.delivery_epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns whether delivery is on.
    pub fn is_delivering(&self) -> bool {
        self.delivery().is_some()
    }

    fn lock_dispatch_state(&self) -> MutexGuard<'_, DispatchState> {
        self.dispatch_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins handling events. Fails within a callback, and while another thread handles events.
    pub fn begin_turn(&self) -> Result<DispatchTurn<'_>, Failed> {
        let (own, set, get) = (current_thread_number(), Ordering::Acquire, Ordering::Relaxed);
        if let Err(thread) = self.dispatcher_thread.compare_exchange(0, own, set, get) {
            let who = match thread == own {
                true => "this thread, in a callback",
                false => "another thread",
            };
            return Err(Failed::new(Code::InUse, format!("{who} takes events of this handle")));
        }
        Ok(DispatchTurn {
            handle: self,
            dispatch_state: RefCell::new((self.lock_dispatch_state(), None)),
        })
    }

    /// Returns whether the calling thread is in a callback of this handle.
    pub fn is_in_callback(&self) -> bool {
        self.dispatcher_thread.load(Ordering::Relaxed) == current_thread_number()
    }

    /// Returns the status of the source as JSON.
    pub fn status(&self, wait: Duration) -> Result<String, Failed> {
        self.source.status(wait)
    }

    /// Waits until the source is ready.
    pub fn wait_until_ready(&self, wait: Duration) -> Result<(), Failed> {
        self.source.wait_until_ready(wait)
    }

    /// Returns the maximum size of a value in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.submits.value_bytes_max()
    }

    /// Closes the source. The completions of unanswered requests become events, and a thread that
    /// waits for events returns.
    pub fn close(&self) -> Result<(), Failed> {
        let ended = self.source.close();
        self.is_closed.store(true, Ordering::Release);
        self.bell.ring();
        ended
    }

    /// Passes the pending completions to `each` without a turn, after the source has ended.
    /// Excludes completions that another thread is already handling.
    pub fn drain_completions(&self, each: impl FnMut((DoneCallback, Outcome))) {
        let hand = self.dispatch_state.try_lock().ok();
        let left = hand.and_then(|mut hand| hand.completions.take());
        let rest = std::iter::from_fn(|| self.submits.next_completions());
        left.into_iter().chain(rest).flatten().for_each(each);
    }
}

impl DispatchState {
    fn next_completion(&mut self, submits: &SubmitQueue) -> Option<(DoneCallback, Outcome)> {
        loop {
            if let Some(completion) = self.completions.as_mut().and_then(Iterator::next) {
                return Some(completion);
            }
            self.completions = Some(submits.next_completions()?);
        }
    }
}

impl Drop for DispatchTurn<'_> {
    fn drop(&mut self) {
        self.with_state(|hand, _| {
            self.handle.report_delivered(hand);
            // Undelivered values may be trimmed before the next turn, which then has to report
            // that.
            hand.unread_values.clear();
        });
        self.handle.dispatcher_thread.store(0, Ordering::Release);
        self.handle.send_gathered_values();
    }
}

impl Handle {
    /// Reports the delivered position to the source, unless the program has set another position.
    fn report_delivered(&self, hand: &mut DispatchState) {
        let Some(slot) = hand.last_delivered.take() else {
            return;
        };
        let mut delivery = self.delivery();
        if self.delivery_epoch.load(Ordering::Acquire) == hand.values_epoch {
            *delivery = Some(Cursor::At(slot + 1));
            self.source.mark_taken(slot);
        }
    }

    /// Reads values from the source. Returns an event only if delivery has failed.
    fn refill_values(&self, hand: &mut DispatchState) -> Option<Event> {
        let mut delivery = self.delivery();
        hand.values_epoch = self.delivery_epoch.load(Ordering::Acquire);
        let mut cursor = (*delivery)?;
        let read = self.source.read_values(&mut cursor, &mut hand.unread_values);
        *delivery = Some(cursor);
        if let Some((slot, _)) = hand.unread_values.front() {
            // The delivery position is fixed now, so trimming of earlier values no longer needs to
            // be reported.
            *delivery = Some(Cursor::At(*slot));
            return None;
        }
        let failed = match (read, cursor) {
            (Some(ReadResult::Trimmed(first)), Cursor::At(slot)) => trimmed_error(slot, first),
            (Some(ReadResult::SourceEnded(failed)), _) => failed,
            _ => return None,
        };
        *delivery = None;
        Some(Event::DeliveryFailed(failed))
    }
}

impl DispatchTurn<'_> {
    fn with_state<T>(&self, with: impl FnOnce(&mut DispatchState, &mut Option<Instant>) -> T) -> T {
        let (hand, gathers_since) = &mut *self.dispatch_state.borrow_mut();
        with(hand, gathers_since)
    }

    /// Returns the next event: a completion if there is one, otherwise a value if `values` is set.
    pub fn next_event(&self, values: bool) -> Event {
        self.send_gathered_if_due();
        let completion = self.with_state(|hand, _| hand.next_completion(&self.handle.submits));
        if let Some((done, outcome)) = completion {
            return Event::Completed(done, outcome);
        }
        if values { self.next_value() } else { Event::Nothing }
    }

    /// Sends values submitted within callbacks once they have waited for the maximum time.
    fn send_gathered_if_due(&self) {
        if !self.handle.is_gathering.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let late = self
            .with_state(|_, since| now.duration_since(*since.get_or_insert(now)) >= GATHER_TIMEOUT);
        if late {
            self.with_state(|_, since| *since = None);
            self.handle.send_gathered_values();
        }
    }

    /// Returns the next value even if completions are pending.
    pub fn next_value(&self) -> Event {
        self.with_state(|hand, _| {
            if hand.values_epoch != self.handle.delivery_epoch.load(Ordering::Acquire) {
                hand.unread_values.clear();
                hand.last_delivered = None;
            }
            if hand.unread_values.is_empty() {
                self.handle.report_delivered(hand);
                if let Some(failed) = self.handle.refill_values(hand) {
                    return failed;
                }
            }
            let epoch = hand.values_epoch;
            hand.unread_values.front().map_or(Event::Nothing, |(slot, value)| {
                let (slot, value) = (*slot, Arc::clone(value));
                Event::Value { slot, value, delivery_epoch: epoch }
            })
        })
    }

    /// Records that a value was delivered, so that the next one follows. Does nothing if the
    /// program has set another position in the meantime.
    pub fn mark_delivered(&self, slot: u64, epoch: u64) {
        self.with_state(|hand, _| {
            if hand.values_epoch == epoch
                && hand.unread_values.front().is_some_and(|(at, _)| *at == slot)
            {
                hand.unread_values.pop_front();
                hand.last_delivered = Some(slot);
            }
        });
    }

    /// Processes pending input, and makes the descriptor unreadable until more arrives.
    pub fn clear_readable(&self) {
        self.handle.source.process_input();
        self.handle.bell.clear_readable();
    }

    /// Makes the descriptor readable because events are left.
    pub fn leave_readable(&self) {
        self.handle.bell.ring();
    }

    /// Makes the descriptor readable if completions are left.
    pub fn leave_readable_for_completions(&self) {
        if self.with_state(|hand, _| hand.completions.as_ref().is_some_and(|ended| ended.len() > 0))
            || self.handle.submits.has_completions()
        {
            self.handle.bell.ring();
        }
    }

    /// Waits for an event that occurs after the last [`DispatchTurn::clear_readable`]. Returns
    /// `false` on timeout. Fails if the handle is closed.
    pub fn wait_for_event(&self, until: Option<Instant>) -> Result<bool, Failed> {
        self.with_state(|hand, _| self.handle.report_delivered(hand));
        self.handle.send_gathered_values();
        if self.handle.is_closed.load(Ordering::Acquire) {
            return Err(Failed::new(Code::Stopped, "the handle is closed"));
        }
        let (source, own) = (&self.handle.source, || self.handle.bell.descriptor());
        Ok(wait_readable(&[source.input_descriptor().unwrap_or_else(own)], until))
    }
}

fn new_bell() -> Result<Arc<Bell>, Failed> {
    let bell = Bell::new();
    bell.map(Arc::new)
        .map_err(|error| Failed::new(Code::Refused, format!("make an eventfd: {error}")))
}
