//! An attached program's unanswered requests, with sequence numbers, retries and timeouts.

use std::{
    collections::BTreeMap,
    sync::mpsc::SyncSender,
    time::{Duration, Instant},
};

use quorate::SessionId;

use super::frames::Request;
use crate::{
    error::{Code, Failed},
    source::{DoneCallback, Outcome},
    submits::{Bundle, BundleOutcome, SubmitQueue},
    values::command::Values,
};

/// Maximum number of bundles in flight. It is below the limit of a session ([session-2]); while it
/// is reached, the next bundle grows.
const BUNDLES_MAX: usize = 4;
/// Delay before repeating a request that a node refused temporarily.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Kind of a request, with its parameters.
pub(super) enum RequestKind {
    /// Appends values exactly once.
    Append(Bundle),
    /// Trims all slots below the given one.
    Trim(u64),
    /// Returns the end of the log.
    Sync,
    /// Returns the status of the node.
    Status(SyncSender<Result<String, Failed>>),
}

/// A request that has not been answered yet.
struct OpenRequest {
    kind: RequestKind,
    on_done: Option<DoneCallback>,
    deadline: Instant,
    not_before: Instant,
    /// Session and sequence number under which the request was first sent; `None` before that.
    sent_number: Option<(SessionId, u64)>,
    attempts: u32,
    sent_on_link: u64,
    sent_at: Instant,
    last_failure: String,
}

/// Outcome of a request, with its recipient.
pub(super) enum RequestEnd {
    /// Outcomes for the submitters of the values in a bundle.
    Bundle(Bundle, BundleOutcome),
    /// Outcome for the caller of a request.
    Request(DoneCallback, Outcome),
    /// Outcome for the caller of a status request.
    Status(SyncSender<Result<String, Failed>>, Result<String, Failed>),
}

impl RequestEnd {
    /// Reports the outcome. The caller must not hold a lock. Returns whether there are events for
    /// the program.
    pub(super) fn report(self, submits: &SubmitQueue) -> bool {
        match self {
            Self::Bundle(bundle, ends) => return submits.complete_bundle(bundle, ends),
            Self::Request(done, outcome) => done(outcome),
            // The caller may have timed out.
            Self::Status(tell, status) => drop(tell.try_send(status)),
        }
        false
    }
}

/// All requests that have not been answered yet.
#[derive(Default)]
pub(super) struct PendingRequests {
    open: BTreeMap<u64, OpenRequest>,
    last_id: u64,
    /// Number of bundles among the unanswered requests.
    bundle_count: usize,
    session: Option<SessionId>,
    next_number: u64,
    /// Number of the connection on which a session was requested; 0 for none.
    registering_on_link: u64,
    /// After a failed registration, the earliest time for the next attempt.
    register_not_before: Option<Instant>,
}

impl PendingRequests {
    /// Queues a request that is sent from `now` on and expires at `until`. A `now` in the future
    /// delays the request.
    pub(super) fn push(
        &mut self,
        wanted: RequestKind,
        done: Option<DoneCallback>,
        now: Instant,
        until: Instant,
    ) {
        self.last_id += 1;
        self.bundle_count += usize::from(matches!(wanted, RequestKind::Append(_)));
        let open = OpenRequest {
            kind: wanted,
            on_done: done,
            deadline: until,
            not_before: now,
            sent_number: None,
            attempts: 0,
            sent_on_link: 0,
            sent_at: now,
            last_failure: String::new(),
        };
        self.open.insert(self.last_id, open);
    }

    pub(super) const fn has_bundle_room(&self) -> bool {
        self.bundle_count < BUNDLES_MAX
    }

    /// Returns the time of the next timeout or retry.
    pub(super) fn next_due_at(&self, now: Instant) -> Option<Instant> {
        let wake = |open: &OpenRequest| match open.not_before > now {
            true => open.not_before.min(open.deadline),
            false => open.deadline,
        };
        let register = self.register_not_before.filter(|at| *at > now);
        self.open.values().map(wake).chain(register).min()
    }

    /// Returns the time at which another node should be tried: the oldest request on the connection
    /// has then waited for `patience`.
    pub(super) fn switch_node_at(&self, link: u64, patience: Duration) -> Option<Instant> {
        let sent = self.open.values().filter(|open| open.sent_on_link == link);
        sent.map(|open| open.sent_at + patience).min()
    }

    /// Appends the frames to send now on connection `link`, up to about `bytes` bytes.
    pub(super) fn add_frames(&mut self, link: u64, now: Instant, bytes: usize, to: &mut Vec<u8>) {
        let wants_number = |open: &OpenRequest| matches!(open.kind, RequestKind::Append(_));
        if self.session.is_none()
            && self.registering_on_link != link
            && self.register_not_before.is_none_or(|at| at <= now)
            && self.open.values().any(|open| wants_number(open) && open.sent_number.is_none())
        {
            self.registering_on_link = link;
            Request::Register { id: 0 }.encode(to);
        }
        let mut low = self.acknowledged_below();
        for (id, open) in &mut self.open {
            if to.len() >= bytes {
                return;
            }
            if open.sent_on_link == link || open.not_before > now {
                continue;
            }
            let id = *id;
            match &open.kind {
                RequestKind::Append(bundle) => {
                    let Some(values) = Values::parse(&bundle.values, usize::MAX) else {
                        continue;
                    };
                    if open.sent_number.is_none() {
                        let Some(session) = self.session else {
                            continue;
                        };
                        self.next_number += 1;
                        open.sent_number = Some((session, self.next_number));
                        low.get_or_insert(self.next_number);
                    }
                    let Some((session, sequence)) = open.sent_number else {
                        continue;
                    };
                    let low = low.filter(|_| self.session == Some(session));
                    Request::Append {
                        id,
                        session,
                        sequence,
                        // A request numbered in a lost session acknowledges nothing.
                        acknowledged_below: low.unwrap_or(1).min(sequence),
                        values,
                    }
                    .encode(to);
                }
                RequestKind::Trim(below) => Request::Trim { id, below: *below }.encode(to),
                RequestKind::Sync => Request::Sync { id }.encode(to),
                RequestKind::Status(_) => Request::Status { id }.encode(to),
            }
            (open.sent_on_link, open.sent_at) = (link, now);
            open.attempts += 1;
        }
    }

    /// Returns the lowest unanswered sequence number of the session.
    fn acknowledged_below(&self) -> Option<u64> {
        let numbers = self.open.values().filter_map(|open| open.sent_number);
        let own = numbers.filter(|(session, _)| Some(*session) == self.session);
        own.map(|(_, number)| number).min()
    }

    pub(super) fn on_registered(&mut self, session: SessionId) {
        self.session = Some(session);
        self.register_not_before = None;
        self.next_number = 0;
    }

    /// Handles a failed registration, which will be repeated later.
    pub(super) fn on_registration_failed(&mut self) {
        self.registering_on_link = 0;
        self.register_not_before = Some(Instant::now() + RETRY_DELAY);
    }

    /// Handles the end of a connection. Unanswered requests are sent again on the next one.
    pub(super) fn on_link_lost(&mut self, why: &str) {
        for open in self.open.values_mut() {
            why.clone_into(&mut open.last_failure);
        }
    }

    /// Handles the answer that the session does not exist. A request that was sent only once has
    /// not been executed, so it is repeated in a new session. The outcome of a request that was
    /// sent more than once is unknown ([session-4]).
    pub(super) fn on_no_session(&mut self, id: u64) -> Option<RequestEnd> {
        let open = self.open.get_mut(&id)?;
        let number = open.sent_number.take();
        if number.map(|(session, _)| session) == self.session {
            self.session = None;
            self.registering_on_link = 0;
        }
        if open.attempts > 1 {
            let why = Failed::new(Code::Unknown, "the session of this program was forgotten");
            return self.fail_request(id, why);
        }
        (open.attempts, open.sent_on_link) = (0, 0);
        None
    }

    /// Handles an answer to a request. Returns the outcome if the request is complete.
    pub(super) fn on_answer(
        &mut self,
        id: u64,
        code: Code,
        slot: u64,
        text: &str,
    ) -> Option<RequestEnd> {
        let open = self.open.get_mut(&id)?;
        let (detail, hint) = text.split_once('\n').unwrap_or((text, ""));
        match code {
            Code::Ok => match self.remove(id)? {
                (RequestKind::Status(tell), _) => {
                    Some(RequestEnd::Status(tell, Ok(text.to_owned())))
                }
                // The answer does not match the request, so the outcome is unknown.
                (RequestKind::Append(bundle), _) => {
                    let why = Failed::new(Code::Unknown, "an answer that makes no sense");
                    Some(RequestEnd::Bundle(bundle, why.into()))
                }
                (RequestKind::Trim(_) | RequestKind::Sync, done) => {
                    Some(RequestEnd::Request(done?, Ok(slot)))
                }
            },
            // The request was not executed this time, or its outcome is unknown. It is repeated
            // under the same number.
            Code::Busy | Code::Unavailable | Code::Stopped | Code::Unknown => {
                detail.clone_into(&mut open.last_failure);
                open.sent_on_link = 0;
                open.not_before = Instant::now() + RETRY_DELAY;
                None
            }
            _ => self.fail_request(id, Failed::new(code, detail).with_hint(hint)),
        }
    }

    /// Handles the answer to a bundle, whose first `count` values are in consecutive slots. Fails
    /// if the answer is invalid.
    pub(super) fn on_appended(
        &mut self,
        id: u64,
        slot: u64,
        count: u32,
        text: &str,
    ) -> Result<Option<RequestEnd>, &'static str> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match self.open.get(&id).map(|open| &open.kind) {
            // The request was already answered on another connection, or has timed out.
            None => return Ok(None),
            Some(RequestKind::Append(bundle)) if count <= bundle.value_count() => {}
            Some(_) => return Err("an answer to another question"),
        }
        if slot.checked_add(count as u64).is_none() {
            return Err("a slot that cannot be");
        }
        let Some((RequestKind::Append(bundle), _)) = self.remove(id) else {
            return Ok(None);
        };
        let (detail, hint) = text.split_once('\n').unwrap_or((text, ""));
        let ends = BundleOutcome {
            first_slot: slot,
            appended_count: count,
            rest_outcome: Some(Failed::new(Code::Full, detail).with_hint(hint)),
        };
        Ok(Some(RequestEnd::Bundle(bundle, ends)))
    }

    fn remove(&mut self, id: u64) -> Option<(RequestKind, Option<DoneCallback>)> {
        let open = self.open.remove(&id)?;
        self.bundle_count -= usize::from(matches!(open.kind, RequestKind::Append(_)));
        Some((open.kind, open.on_done))
    }

    fn fail_request(&mut self, id: u64, why: Failed) -> Option<RequestEnd> {
        Some(match self.remove(id)? {
            (RequestKind::Append(bundle), _) => RequestEnd::Bundle(bundle, why.into()),
            (RequestKind::Status(tell), _) => RequestEnd::Status(tell, Err(why)),
            (RequestKind::Trim(_) | RequestKind::Sync, done) => {
                RequestEnd::Request(done?, Err(why))
            }
        })
    }

    pub(super) fn expire_requests(&mut self, now: Instant) -> Vec<RequestEnd> {
        let late = self.open.iter().filter(|(_, open)| open.deadline <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| self.give_up_on(id, Code::Timeout)).collect()
    }

    /// Fails all requests because the handle is being closed, and returns their outcomes.
    pub(super) fn abandon_all(&mut self) -> Vec<RequestEnd> {
        let all: Vec<u64> = self.open.keys().copied().collect();
        all.into_iter().filter_map(|id| self.give_up_on(id, Code::Stopped)).collect()
    }

    fn give_up_on(&mut self, id: u64, why: Code) -> Option<RequestEnd> {
        let open = self.open.get(&id)?;
        let obstacle = match open.last_failure.as_str() {
            "" => "no answer",
            obstacle => obstacle,
        };
        let appends = matches!(open.kind, RequestKind::Append(_));
        let code = match (open.attempts, why) {
            (0, Code::Timeout) => Code::Unavailable,
            (0, why) => why,
            (_, _) if appends => Code::Unknown,
            (_, why) => why,
        };
        let failed = Failed::new(code, format!("given up; last: {obstacle}"));
        self.fail_request(id, failed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::submits::OutcomeRecipient;

    const SESSION: SessionId = SessionId { slot: 7, index: 0 };

    struct Program {
        pending: PendingRequests,
        submits: SubmitQueue,
        now: Instant,
    }

    /// A receiver of the outcome of one value.
    type Told = Receiver<Outcome>;

    impl Program {
        fn new() -> Self {
            let mut pending = PendingRequests::default();
            pending.on_registered(SESSION);
            Self { pending, submits: SubmitQueue::new(100, None), now: Instant::now() }
        }

        fn bundle<const N: usize>(&mut self, values: [&[u8]; N]) -> [Told; N] {
            let told = values.map(|value| {
                let (tell, told) = channel();
                let done = Box::new(move |outcome| drop(tell.send(outcome)));
                self.submits.push(value, OutcomeRecipient::Immediately(done)).unwrap();
                told
            });
            let until = self.now + Duration::from_secs(1);
            let bundle = self.submits.take_bundle().unwrap().0;
            let now = self.now;
            self.pending.push(RequestKind::Append(bundle), None, now, until);
            told
        }

        fn append(&mut self, value: &[u8]) -> Told {
            let [told] = self.bundle([value]);
            told
        }

        fn appended(&mut self, id: u64, slot: u64, count: u32, text: &str) -> bool {
            let end = self.pending.on_appended(id, slot, count, text);
            self.tell(end.expect("makes sense"))
        }

        fn tell(&self, end: Option<RequestEnd>) -> bool {
            end.map(|end| end.report(&self.submits)).is_some()
        }

        fn sent(&mut self, link: u64) -> Vec<(u64, SessionId, u64, u64)> {
            let mut bytes = Vec::new();
            self.pending.add_frames(link, self.now, usize::MAX, &mut bytes);
            let mut rest = &bytes[..];
            let mut sent = Vec::new();
            while let Some((frame, more)) = super::super::frames::split_frame(rest, 1000).unwrap() {
                match Request::decode(frame) {
                    Some(Request::Append { id, session, sequence, acknowledged_below, .. }) => {
                        sent.push((id, session, sequence, acknowledged_below))
                    }
                    Some(Request::Register { .. }) => {}
                    other => panic!("{other:?}"),
                }
                rest = more;
            }
            assert!(rest.is_empty());
            sent
        }
    }

    #[test]
    fn a_bundle_keeps_its_number_on_every_connection() {
        let mut program = Program::new();
        let (first, second) = (program.append(b"a"), program.append(b"b"));
        assert_eq!(program.sent(1), [(1, SESSION, 1, 1), (2, SESSION, 2, 1)]);
        assert_eq!(program.sent(1), []);
        assert!(program.appended(1, 10, 1, ""));
        assert_eq!(first.recv(), Ok(Ok(10)));
        program.pending.on_link_lost("reset");
        assert_eq!(program.sent(2), [(2, SESSION, 2, 2)], "the same number, and 1 is acknowledged");
        assert!(program.pending.on_answer(2, Code::Busy, 0, "full").is_none());
        assert_eq!(program.sent(2), [], "not at once");
        program.now += Duration::from_millis(500);
        assert_eq!(program.sent(2), [(2, SESSION, 2, 2)], "asked again");
        assert!(program.appended(2, 11, 1, ""));
        assert_eq!(second.recv(), Ok(Ok(11)));
        assert!(!program.appended(2, 11, 1, ""), "told twice");
    }

    #[test]
    fn each_value_of_a_bundle_gets_its_own_result() {
        let mut program = Program::new();
        let told = program.bundle([b"a", b"b", b"c"]);
        program.sent(1);
        assert!(program.pending.on_appended(1, 5, 4, "").is_err(), "more than there are");
        assert!(program.pending.on_appended(1, u64::MAX, 2, "").is_err());
        assert!(program.appended(1, 5, 2, "much is held\ntrim"));
        let [a, b, c] = told.map(|told| told.recv().unwrap());
        assert_eq!((a, b), (Ok(5), Ok(6)));
        let full = Failed::new(Code::Full, "much is held").with_hint("trim");
        assert_eq!(c, Err(full));
        let [a, b] = program.bundle([b"a", b"b"]).map(|told| {
            let refused = program.pending.on_answer(2, Code::Refused, 0, "no");
            program.tell(refused);
            told.recv().unwrap().unwrap_err().code
        });
        assert_eq!((a, b), (Code::Refused, Code::Refused));
    }

    #[test]
    fn bundle_that_may_have_run_in_a_lost_session_is_not_repeated() {
        let mut program = Program::new();
        let (once, twice) = (program.append(b"a"), program.append(b"b"));
        program.sent(1);
        program.pending.on_link_lost("reset");
        program.pending.open.get_mut(&1).unwrap().attempts = 0;
        program.sent(2);
        assert!(program.pending.on_no_session(1).is_none());
        let end = program.pending.on_no_session(2);
        program.tell(end);
        let why = twice.recv().unwrap().unwrap_err();
        assert_eq!(why.code, Code::Unknown);
        assert_eq!(program.sent(2), [], "there is no session");
        let other = SessionId { slot: 9, index: 1 };
        program.pending.on_registered(other);
        assert_eq!(program.sent(2), [(1, other, 1, 1)]);
        assert!(program.appended(1, 8, 0, "much\ntrim"));
        let why = once.recv().unwrap().unwrap_err();
        assert_eq!((why.code, &*why.detail, &*why.hint), (Code::Full, "much", "trim"));
    }

    #[test]
    fn expired_bundle_is_unknown_only_if_it_was_sent() {
        let mut program = Program::new();
        let sent = program.append(b"a");
        program.sent(1);
        let waits = program.append(b"b");
        assert!(program.pending.expire_requests(program.now).is_empty());
        let late = program.now + Duration::from_secs(1);
        for end in program.pending.expire_requests(late) {
            end.report(&program.submits);
        }
        assert_eq!(sent.recv().unwrap().unwrap_err().code, Code::Unknown);
        assert_eq!(waits.recv().unwrap().unwrap_err().code, Code::Unavailable);
        assert_eq!(program.pending.next_due_at(late), None);
    }

    #[test]
    fn bundles_in_flight_are_bounded_and_the_next_one_grows() {
        let mut program = Program::new();
        for _ in 0..BUNDLES_MAX {
            assert!(program.pending.has_bundle_room());
            program.append(b"");
        }
        assert!(!program.pending.has_bundle_room());
        assert_eq!(program.sent(1).len(), BUNDLES_MAX);
        assert!(!program.pending.has_bundle_room());
        let end = program.pending.on_answer(3, Code::Refused, 1, "");
        program.tell(end);
        assert!(program.pending.has_bundle_room());
        assert!(program.appended(1, 1, 1, ""));
        for end in program.pending.abandon_all() {
            end.report(&program.submits);
        }
        program.append(b"");
        assert_eq!(program.pending.bundle_count, 1);
    }
}
