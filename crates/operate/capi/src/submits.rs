//! Submitted values. They are gathered on the caller's thread, and sent and answered in bundles.
//!
//! Submitting a value takes one rarely contended lock and no wake-up. The first value of a bundle
//! wakes the sender, and the outcome of the whole bundle wakes the program once.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use crate::{
    error::{Code, Failed},
    source::{DoneCallback, Outcome},
    values::command::{LENGTH_FIELD_BYTES, Values},
};

/// Maximum number of open requests, including completions that the program has not taken yet.
pub const OPEN_REQUESTS_MAX: usize = 4096;
/// Maximum total size in bytes of the values in open requests. A single larger value is accepted if
/// there is no other.
pub const OPEN_BYTES_MAX: usize = 64 << 20;
/// Maximum size of a bundle in bytes, except that a single value may be larger.
pub const BUNDLE_BYTES_MAX: usize = 128 << 10;

/// Recipient of the outcome of a request.
pub enum OutcomeRecipient {
    /// The program, notified when it handles events.
    OnDispatch(DoneCallback),
    /// A blocked caller, notified at once by the thread that receives the outcome.
    Immediately(DoneCallback),
}

/// Values that are sent together, and the recipients of their outcomes.
pub struct Bundle {
    /// Encoded values, in the format of [`Values`].
    pub values: Vec<u8>,
    /// Recipients of the outcomes, one for each value.
    recipients: Vec<OutcomeRecipient>,
    /// Time at which the first value was added.
    pub first_added_at: Instant,
}

impl Bundle {
    /// Returns the number of values in the bundle.
    pub fn value_count(&self) -> usize {
        self.recipients.len()
    }

    fn value_bytes(&self) -> usize {
        self.values.len() - self.recipients.len() * LENGTH_FIELD_BYTES
    }
}

/// Outcome of a bundle. The first `appended_count` values are in consecutive slots starting at
/// `first_slot`. The others share the outcome `rest_outcome`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleOutcome {
    /// Slot of the first value.
    pub first_slot: u64,
    /// Number of values that were assigned a slot.
    pub appended_count: usize,
    /// Outcome of the remaining values, if any.
    pub rest_outcome: Option<Failed>,
}

impl From<Failed> for BundleOutcome {
    /// Creates the outcome of a bundle in which no value got a slot.
    fn from(failed: Failed) -> Self {
        Self { first_slot: 0, appended_count: 0, rest_outcome: Some(failed) }
    }
}

impl BundleOutcome {
    fn outcome_of(&self, number: usize) -> Outcome {
        if number < self.appended_count {
            return Ok(self.first_slot + number as u64);
        }
        let unknown = || Failed::new(Code::Unknown, "an answer that makes no sense");
        Err(self.rest_outcome.clone().unwrap_or_else(unknown))
    }
}

/// Completions of a bundle, which the program takes one by one.
pub struct BundleCompletions {
    recipients: std::iter::Enumerate<std::vec::IntoIter<OutcomeRecipient>>,
    outcome: BundleOutcome,
}

impl ExactSizeIterator for BundleCompletions {}

impl Iterator for BundleCompletions {
    type Item = (DoneCallback, Outcome);

    fn next(&mut self) -> Option<(DoneCallback, Outcome)> {
        let (number, teller) = self.recipients.next()?;
        match teller {
            OutcomeRecipient::OnDispatch(done) | OutcomeRecipient::Immediately(done) => {
                Some((done, self.outcome.outcome_of(number)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.recipients.size_hint()
    }
}

/// Open requests of a handle.
pub struct SubmitQueue {
    state: Mutex<State>,
    value_bytes_max: AtomicUsize,
}

#[derive(Default)]
struct State {
    open: usize,
    open_bytes: usize,
    /// Bundles that have not been sent yet. New values are added to the last one.
    gathered_bundles: VecDeque<Bundle>,
    completed: VecDeque<BundleCompletions>,
    /// Reason for refusing values; `None` while values are accepted.
    refusal: Option<Failed>,
}

impl State {
    /// Reserves capacity for a request of `bytes` bytes.
    fn open(&mut self, bytes: usize) -> Result<(), Failed> {
        let full = self.open_bytes.saturating_add(bytes) > OPEN_BYTES_MAX && self.open > 0;
        if self.open >= OPEN_REQUESTS_MAX || full {
            let detail = format!("{} requests of {} bytes are open", self.open, self.open_bytes);
            return Err(Failed::new(Code::Busy, detail)
                .with_hint("take completions with quorate_dispatch, and submit again"));
        }
        self.open += 1;
        self.open_bytes += bytes;
        Ok(())
    }

    fn push(&mut self, value: &[u8], teller: OutcomeRecipient) {
        let fits = |bundle: &Bundle| {
            bundle.values.len() + LENGTH_FIELD_BYTES + value.len() <= BUNDLE_BYTES_MAX
        };
        if !self.gathered_bundles.back().is_some_and(fits) {
            self.gathered_bundles.push_back(Bundle {
                values: Vec::with_capacity(LENGTH_FIELD_BYTES + value.len()),
                recipients: Vec::new(),
                first_added_at: Instant::now(),
            });
        }
        let last = self.gathered_bundles.len() - 1;
        let bundle = &mut self.gathered_bundles[last];
        Values::push(value, &mut bundle.values);
        bundle.recipients.push(teller);
    }
}

impl SubmitQueue {
    /// Creates the state without open requests. `closed` is the initial reason for refusing values,
    /// if there is one.
    pub fn new(value_bytes_max: usize, closed: Option<Failed>) -> Self {
        let state = State { refusal: closed, ..State::default() };
        Self { state: Mutex::new(state), value_bytes_max: AtomicUsize::new(value_bytes_max) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum size of a value in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.value_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets the maximum size of a value in bytes.
    pub fn set_value_bytes_max(&self, bytes_max: usize) {
        self.value_bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Adds a value to a bundle. Returns whether the sender must be woken.
    pub fn push(&self, value: &[u8], teller: OutcomeRecipient) -> Result<bool, Failed> {
        let most = self.value_bytes_max();
        if value.len() > most {
            let detail = format!("the value has {} bytes, and may have {most}", value.len());
            return Err(Failed::new(Code::Size, detail)
                .with_hint("raise value-max and held-max on all nodes, or send it in parts"));
        }
        let mut state = self.state();
        if let Some(why) = &state.refusal {
            return Err(why.clone());
        }
        state.open(value.len())?;
        state.push(value, teller);
        Ok(state.gathered_bundles.len() == 1 && state.gathered_bundles[0].value_count() == 1)
    }

    /// Removes the oldest gathered bundle and returns it, with `true` if there are more.
    pub fn take_bundle(&self) -> Option<(Bundle, bool)> {
        let mut state = self.state();
        let bundle = state.gathered_bundles.pop_front()?;
        Some((bundle, !state.gathered_bundles.is_empty()))
    }

    /// Completes a bundle. Notifies blocked callers at once. Returns whether there are completions
    /// for the program.
    pub fn complete_bundle(&self, bundle: Bundle, ends: BundleOutcome) -> bool {
        let bytes = bundle.value_bytes();
        let (mut for_program, mut at_once) = (Vec::with_capacity(bundle.value_count()), Vec::new());
        let waits = |teller: &OutcomeRecipient| matches!(teller, OutcomeRecipient::Immediately(_));
        if bundle.recipients.iter().any(waits) {
            // A blocked caller needs its own outcome, so the outcomes are reported one by one.
            for (number, teller) in bundle.recipients.into_iter().enumerate() {
                let outcome = ends.outcome_of(number);
                match teller {
                    OutcomeRecipient::Immediately(done) => at_once.push((done, outcome)),
                    OutcomeRecipient::OnDispatch(done) => for_program.push((done, outcome)),
                }
            }
            let mut state = self.state();
            state.open_bytes -= bytes;
            state.open -= at_once.len();
            let anything = !for_program.is_empty();
            for (done, outcome) in for_program {
                state.completed.push_back(single_completion(done, outcome));
            }
            drop(state);
            at_once.into_iter().for_each(|(done, outcome)| done(outcome));
            return anything;
        }
        let tellers = bundle.recipients.into_iter().enumerate();
        let mut state = self.state();
        state.open_bytes -= bytes;
        state.completed.push_back(BundleCompletions { recipients: tellers, outcome: ends });
        true
    }

    /// Reserves capacity for a request other than a value.
    pub fn open(&self) -> Result<(), Failed> {
        self.state().open(0)
    }

    /// Releases a request that was not sent, or whose caller was notified directly.
    pub fn release_request(&self) {
        self.state().open -= 1;
    }

    /// Adds the completion of a request other than a value, for the program to take.
    pub fn complete_request(&self, done: DoneCallback, outcome: Outcome) {
        self.state().completed.push_back(single_completion(done, outcome));
    }

    /// Takes the next completions for the program.
    pub fn next_completions(&self) -> Option<BundleCompletions> {
        let mut state = self.state();
        let ended = state.completed.pop_front()?;
        state.open -= ended.recipients.len();
        Some(ended)
    }

    /// Returns whether completions are pending.
    pub fn has_completions(&self) -> bool {
        !self.state().completed.is_empty()
    }

    /// Starts accepting values.
    pub fn start_accepting(&self) {
        self.state().refusal = None;
    }

    /// Stops accepting values, and fails the gathered ones with the error `why`. Returns whether
    /// there are completions for the program.
    pub fn close(&self, why: &Failed) -> bool {
        let gathered = {
            let mut state = self.state();
            state.refusal = Some(why.clone());
            mem::take(&mut state.gathered_bundles)
        };
        self.fail_bundles(gathered, why)
    }

    /// Fails the gathered values with the error `why`, but continues to accept values. Returns
    /// whether there are completions for the program.
    pub fn fail_gathered(&self, why: &Failed) -> bool {
        let gathered = mem::take(&mut self.state().gathered_bundles);
        self.fail_bundles(gathered, why)
    }

    fn fail_bundles(&self, bundles: VecDeque<Bundle>, why: &Failed) -> bool {
        let end = |anything, bundle| self.complete_bundle(bundle, why.clone().into()) || anything;
        bundles.into_iter().fold(false, end)
    }
}

fn single_completion(done: DoneCallback, outcome: Outcome) -> BundleCompletions {
    let ends = match outcome {
        Ok(slot) => BundleOutcome { first_slot: slot, appended_count: 1, rest_outcome: None },
        Err(failed) => failed.into(),
    };
    BundleCompletions {
        recipients: vec![OutcomeRecipient::OnDispatch(done)].into_iter().enumerate(),
        outcome: ends,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn submits() -> SubmitQueue {
        SubmitQueue::new(1 << 20, None)
    }

    fn push(
        submits: &SubmitQueue,
        value: &[u8],
        teller: fn(DoneCallback) -> OutcomeRecipient,
    ) -> (bool, Receiver<Outcome>) {
        let (tell, told) = channel();
        let done = Box::new(move |outcome| drop(tell.send(outcome)));
        (submits.push(value, teller(done)).unwrap(), told)
    }

    fn dispatch(submits: &SubmitQueue) {
        while let Some(ended) = submits.next_completions() {
            ended.for_each(|(done, outcome)| done(outcome));
        }
    }

    #[test]
    fn values_are_gathered_and_only_the_first_wakes_the_sender() {
        let submits = submits();
        let (first, a) = push(&submits, b"a", OutcomeRecipient::OnDispatch);
        let (second, b) = push(&submits, b"", OutcomeRecipient::OnDispatch);
        let (third, c) = push(&submits, b"c", OutcomeRecipient::OnDispatch);
        assert_eq!((first, second, third), (true, false, false));
        let (bundle, more) = submits.take_bundle().unwrap();
        let values = Values::parse(&bundle.values, 10).unwrap();
        let values: Vec<&[u8]> = values.into_iter().collect();
        assert_eq!((values, more), (vec![&b"a"[..], b"", b"c"], false));
        let (first, _) = push(&submits, b"d", OutcomeRecipient::OnDispatch);
        assert!(first, "the next bundle");
        let full = Failed::new(Code::Full, "much");
        let ends =
            BundleOutcome { first_slot: 7, appended_count: 2, rest_outcome: Some(full.clone()) };
        assert!(submits.complete_bundle(bundle, ends));
        assert!(a.try_recv().is_err(), "only the program's thread tells it");
        dispatch(&submits);
        let told = [a, b, c].map(|told| told.try_recv().unwrap());
        assert_eq!(told, [Ok(7), Ok(8), Err(full)]);
    }

    #[test]
    fn blocking_calls_complete_at_once_and_events_when_dispatched() {
        let submits = submits();
        let (_, looks) = push(&submits, b"a", OutcomeRecipient::OnDispatch);
        let (_, waits) = push(&submits, b"b", OutcomeRecipient::Immediately);
        let bundle = submits.take_bundle().unwrap().0;
        let ends = BundleOutcome { first_slot: 3, appended_count: 2, rest_outcome: None };
        assert!(submits.complete_bundle(bundle, ends.clone()));
        assert_eq!(waits.try_recv(), Ok(Ok(4)));
        assert!(looks.try_recv().is_err());
        dispatch(&submits);
        assert_eq!(looks.try_recv(), Ok(Ok(3)));
        let (_, waits) = push(&submits, b"c", OutcomeRecipient::Immediately);
        let bundle = submits.take_bundle().unwrap().0;
        assert!(!submits.complete_bundle(bundle, ends), "nothing for the program");
        assert_eq!(waits.try_recv(), Ok(Ok(3)));
    }

    #[test]
    fn bundles_are_bounded_and_a_large_value_gets_its_own() {
        let submits = submits();
        push(&submits, b"small", OutcomeRecipient::OnDispatch);
        push(&submits, &vec![0; BUNDLE_BYTES_MAX * 2], OutcomeRecipient::OnDispatch);
        for _ in 0..3 {
            push(&submits, &vec![0; BUNDLE_BYTES_MAX / 2], OutcomeRecipient::OnDispatch);
        }
        let mut counts = Vec::new();
        while let Some((bundle, more)) = submits.take_bundle() {
            counts.push((bundle.value_count(), more));
        }
        assert_eq!(
            counts,
            [(1, true), (1, true), (1, true), (1, true), (1, false)],
            "two halves and their lengths are too much"
        );
    }

    #[test]
    fn open_values_are_bounded_until_their_completion_is_taken() {
        let submits = submits();
        let refused = |submits: &SubmitQueue, value: &[u8]| {
            let never = OutcomeRecipient::OnDispatch(Box::new(|_| panic!("it was refused")));
            submits.push(value, never).unwrap_err().code
        };
        for _ in 0..OPEN_REQUESTS_MAX {
            push(&submits, b"", OutcomeRecipient::Immediately);
        }
        assert_eq!(refused(&submits, b""), Code::Busy);
        let bundle = submits.take_bundle().unwrap().0;
        submits.complete_bundle(bundle, Failed::new(Code::Unavailable, "").into());
        for _ in 0..64 {
            push(&submits, &vec![0; 1 << 20], OutcomeRecipient::OnDispatch);
        }
        assert_eq!(refused(&submits, b"x"), Code::Busy, "as many bytes");
        assert_eq!(refused(&submits, &vec![0; (1 << 20) + 1]), Code::Size);
        // Their size is released when they end, and their number when the program takes the
        // completions.
        submits.fail_gathered(&Failed::new(Code::Unavailable, ""));
        for _ in 64..OPEN_REQUESTS_MAX {
            push(&submits, b"x", OutcomeRecipient::OnDispatch);
        }
        assert_eq!(refused(&submits, b""), Code::Busy);
        dispatch(&submits);
        push(&submits, b"", OutcomeRecipient::OnDispatch);
    }

    #[test]
    fn close_fails_gathered_values_and_refuses_new_ones() {
        let submits = submits();
        let (_, told) = push(&submits, b"a", OutcomeRecipient::OnDispatch);
        let stopped = Failed::new(Code::Stopped, "closed");
        assert!(submits.close(&stopped));
        dispatch(&submits);
        assert_eq!(told.try_recv(), Ok(Err(stopped.clone())));
        let never = OutcomeRecipient::OnDispatch(Box::new(|_| panic!("it was refused")));
        assert_eq!(submits.push(b"b", never), Err(stopped));
        submits.start_accepting();
        assert!(push(&submits, b"c", OutcomeRecipient::OnDispatch).0);
    }
}
