//! An attached program's unanswered requests, with sequence numbers, retries and timeouts.

use std::{
    collections::BTreeMap,
    sync::mpsc::SyncSender,
    time::{Duration, Instant},
};

use quorate::SessionId;

use super::frames::Ask;
use crate::{
    error::{Code, Failed},
    source::{Done, Outcome},
    submits::{Bundle, Ends, Submits},
    values::command::Values,
};

/// Maximum number of bundles in flight. It is below the limit of a session ([session-2]); while it
/// is reached, the next bundle grows.
const BUNDLES_MAX: usize = 4;
/// Delay before repeating a request that a node refused temporarily.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Kind of a request, with its parameters.
pub(super) enum Wanted {
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
    wanted: Wanted,
    done: Option<Done>,
    until: Instant,
    not_before: Instant,
    /// Session and sequence number under which the request was first sent; `None` before that.
    number: Option<(SessionId, u64)>,
    attempts: u32,
    sent_on: u64,
    sent_at: Instant,
    obstacle: String,
}

/// Outcome of a request, with its recipient.
pub(super) enum End {
    /// Outcomes for the submitters of the values in a bundle.
    Bundle(Bundle, Ends),
    /// Outcome for the caller of a request.
    Ask(Done, Outcome),
    /// Outcome for the caller of a status request.
    Status(SyncSender<Result<String, Failed>>, Result<String, Failed>),
}

impl End {
    /// Reports the outcome. The caller must not hold a lock. Returns whether there are events for
    /// the program.
    pub(super) fn tell(self, submits: &Submits) -> bool {
        match self {
            Self::Bundle(bundle, ends) => return submits.end(bundle, ends),
            Self::Ask(done, outcome) => done(outcome),
            // The caller may have timed out.
            Self::Status(tell, status) => drop(tell.try_send(status)),
        }
        false
    }
}

/// All requests that have not been answered yet.
#[derive(Default)]
pub(super) struct Pending {
    open: BTreeMap<u64, OpenRequest>,
    last: u64,
    /// Number of bundles among the unanswered requests.
    bundles: usize,
    session: Option<SessionId>,
    next_number: u64,
    /// Number of the connection on which a session was requested; 0 for none.
    registering_on: u64,
    /// After a failed registration, the earliest time for the next attempt.
    register_at: Option<Instant>,
}

impl Pending {
    /// Queues a request that is sent from `now` on and expires at `until`. A `now` in the future
    /// delays the request.
    pub(super) fn push(
        &mut self,
        wanted: Wanted,
        done: Option<Done>,
        now: Instant,
        until: Instant,
    ) {
        self.last += 1;
        self.bundles += usize::from(matches!(wanted, Wanted::Append(_)));
        let open = OpenRequest {
            wanted,
            done,
            until,
            not_before: now,
            number: None,
            attempts: 0,
            sent_on: 0,
            sent_at: now,
            obstacle: String::new(),
        };
        self.open.insert(self.last, open);
    }

    pub(super) const fn has_room(&self) -> bool {
        self.bundles < BUNDLES_MAX
    }

    /// Returns the time of the next timeout or retry.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let wake = |open: &OpenRequest| match open.not_before > now {
            true => open.not_before.min(open.until),
            false => open.until,
        };
        let register = self.register_at.filter(|at| *at > now);
        self.open.values().map(wake).chain(register).min()
    }

    /// Returns the time at which another node should be tried: the oldest request on the connection
    /// has then waited for `patience`.
    pub(super) fn impatient(&self, link: u64, patience: Duration) -> Option<Instant> {
        let sent = self.open.values().filter(|open| open.sent_on == link);
        sent.map(|open| open.sent_at + patience).min()
    }

    /// Appends the frames to send now on connection `link`, up to about `bytes` bytes.
    pub(super) fn frames(&mut self, link: u64, now: Instant, bytes: usize, to: &mut Vec<u8>) {
        let wants_number = |open: &OpenRequest| matches!(open.wanted, Wanted::Append(_));
        if self.session.is_none()
            && self.registering_on != link
            && self.register_at.is_none_or(|at| at <= now)
            && self.open.values().any(|open| wants_number(open) && open.number.is_none())
        {
            self.registering_on = link;
            Ask::Register { id: 0 }.encode(to);
        }
        let mut low = self.acknowledged_below();
        for (id, open) in &mut self.open {
            if to.len() >= bytes {
                return;
            }
            if open.sent_on == link || open.not_before > now {
                continue;
            }
            let id = *id;
            match &open.wanted {
                Wanted::Append(bundle) => {
                    let Some(values) = Values::parse(&bundle.values, usize::MAX) else {
                        continue;
                    };
                    if open.number.is_none() {
                        let Some(session) = self.session else {
                            continue;
                        };
                        self.next_number += 1;
                        open.number = Some((session, self.next_number));
                        low.get_or_insert(self.next_number);
                    }
                    let Some((session, sequence)) = open.number else {
                        continue;
                    };
                    let low = low.filter(|_| self.session == Some(session));
                    Ask::Append {
                        id,
                        session,
                        sequence,
                        // A request numbered in a lost session acknowledges nothing.
                        acknowledged_below: low.unwrap_or(1).min(sequence),
                        values,
                    }
                    .encode(to);
                }
                Wanted::Trim(below) => Ask::Trim { id, below: *below }.encode(to),
                Wanted::Sync => Ask::Sync { id }.encode(to),
                Wanted::Status(_) => Ask::Status { id }.encode(to),
            }
            (open.sent_on, open.sent_at) = (link, now);
            open.attempts += 1;
        }
    }

    /// Returns the lowest unanswered sequence number of the session.
    fn acknowledged_below(&self) -> Option<u64> {
        let numbers = self.open.values().filter_map(|open| open.number);
        let own = numbers.filter(|(session, _)| Some(*session) == self.session);
        own.map(|(_, number)| number).min()
    }

    pub(super) fn registered(&mut self, session: SessionId) {
        self.session = Some(session);
        self.register_at = None;
        self.next_number = 0;
    }

    /// Handles a failed registration, which will be repeated later.
    pub(super) fn not_registered(&mut self) {
        self.registering_on = 0;
        self.register_at = Some(Instant::now() + AGAIN_AFTER);
    }

    /// Handles the end of a connection. Unanswered requests are sent again on the next one.
    pub(super) fn unlinked(&mut self, why: &str) {
        for open in self.open.values_mut() {
            why.clone_into(&mut open.obstacle);
        }
    }

    /// Handles the answer that the session does not exist. A request that was sent only once has
    /// not been executed, so it is repeated in a new session. The outcome of a request that was
    /// sent more than once is unknown ([session-4]).
    pub(super) fn no_session(&mut self, id: u64) -> Option<End> {
        let open = self.open.get_mut(&id)?;
        let number = open.number.take();
        if number.map(|(session, _)| session) == self.session {
            self.session = None;
            self.registering_on = 0;
        }
        if open.attempts > 1 {
            let why = Failed::new(Code::Unknown, "the session of this program was forgotten");
            return self.fail(id, why);
        }
        (open.attempts, open.sent_on) = (0, 0);
        None
    }

    /// Handles an answer to a request. Returns the outcome if the request is complete.
    pub(super) fn answered(&mut self, id: u64, code: Code, slot: u64, text: &str) -> Option<End> {
        let open = self.open.get_mut(&id)?;
        let (detail, hint) = text.split_once('\n').unwrap_or((text, ""));
        match code {
            Code::Ok => match self.remove(id)? {
                (Wanted::Status(tell), _) => Some(End::Status(tell, Ok(text.to_owned()))),
                // The answer does not match the request, so the outcome is unknown.
                (Wanted::Append(bundle), _) => {
                    let why = Failed::new(Code::Unknown, "an answer that makes no sense");
                    Some(End::Bundle(bundle, why.into()))
                }
                (Wanted::Trim(_) | Wanted::Sync, done) => Some(End::Ask(done?, Ok(slot))),
            },
            // The request was not executed this time, or its outcome is unknown. It is repeated
            // under the same number.
            Code::Busy | Code::Unavailable | Code::Stopped | Code::Unknown => {
                detail.clone_into(&mut open.obstacle);
                open.sent_on = 0;
                open.not_before = Instant::now() + AGAIN_AFTER;
                None
            }
            _ => self.fail(id, Failed::new(code, detail).hint(hint)),
        }
    }

    /// Handles the answer to a bundle, whose first `count` values are in consecutive slots. Fails
    /// if the answer is invalid.
    pub(super) fn appended(
        &mut self,
        id: u64,
        slot: u64,
        count: u32,
        text: &str,
    ) -> Result<Option<End>, &'static str> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match self.open.get(&id).map(|open| &open.wanted) {
            // The request was already answered on another connection, or has timed out.
            None => return Ok(None),
            Some(Wanted::Append(bundle)) if count <= bundle.count() => {}
            Some(_) => return Err("an answer to another question"),
        }
        if slot.checked_add(count as u64).is_none() {
            return Err("a slot that cannot be");
        }
        let Some((Wanted::Append(bundle), _)) = self.remove(id) else {
            return Ok(None);
        };
        let (detail, hint) = text.split_once('\n').unwrap_or((text, ""));
        let ends =
            Ends { slot, count, otherwise: Some(Failed::new(Code::Full, detail).hint(hint)) };
        Ok(Some(End::Bundle(bundle, ends)))
    }

    fn remove(&mut self, id: u64) -> Option<(Wanted, Option<Done>)> {
        let open = self.open.remove(&id)?;
        self.bundles -= usize::from(matches!(open.wanted, Wanted::Append(_)));
        Some((open.wanted, open.done))
    }

    fn fail(&mut self, id: u64, why: Failed) -> Option<End> {
        Some(match self.remove(id)? {
            (Wanted::Append(bundle), _) => End::Bundle(bundle, why.into()),
            (Wanted::Status(tell), _) => End::Status(tell, Err(why)),
            (Wanted::Trim(_) | Wanted::Sync, done) => End::Ask(done?, Err(why)),
        })
    }

    pub(super) fn expire(&mut self, now: Instant) -> Vec<End> {
        let late = self.open.iter().filter(|(_, open)| open.until <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| self.give_up(id, Code::Timeout)).collect()
    }

    /// Fails all requests because the handle is being closed, and returns their outcomes.
    pub(super) fn abandon(&mut self) -> Vec<End> {
        let all: Vec<u64> = self.open.keys().copied().collect();
        all.into_iter().filter_map(|id| self.give_up(id, Code::Stopped)).collect()
    }

    fn give_up(&mut self, id: u64, why: Code) -> Option<End> {
        let open = self.open.get(&id)?;
        let obstacle = match open.obstacle.as_str() {
            "" => "no answer",
            obstacle => obstacle,
        };
        let appends = matches!(open.wanted, Wanted::Append(_));
        let code = match (open.attempts, why) {
            (0, Code::Timeout) => Code::Unavailable,
            (0, why) => why,
            (_, _) if appends => Code::Unknown,
            (_, why) => why,
        };
        let failed = Failed::new(code, format!("given up; last: {obstacle}"));
        self.fail(id, failed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::submits::Teller;

    const SESSION: SessionId = SessionId { slot: 7, index: 0 };

    struct Program {
        pending: Pending,
        submits: Submits,
        now: Instant,
    }

    /// A receiver of the outcome of one value.
    type Told = Receiver<Outcome>;

    impl Program {
        fn new() -> Self {
            let mut pending = Pending::default();
            pending.registered(SESSION);
            Self { pending, submits: Submits::new(100, None), now: Instant::now() }
        }

        fn bundle<const N: usize>(&mut self, values: [&[u8]; N]) -> [Told; N] {
            let told = values.map(|value| {
                let (tell, told) = channel();
                let done = Box::new(move |outcome| drop(tell.send(outcome)));
                self.submits.push(value, Teller::Now(done)).unwrap();
                told
            });
            let until = self.now + Duration::from_secs(1);
            let bundle = self.submits.take().unwrap().0;
            let now = self.now;
            self.pending.push(Wanted::Append(bundle), None, now, until);
            told
        }

        fn append(&mut self, value: &[u8]) -> Told {
            let [told] = self.bundle([value]);
            told
        }

        fn appended(&mut self, id: u64, slot: u64, count: u32, text: &str) -> bool {
            let end = self.pending.appended(id, slot, count, text);
            self.tell(end.expect("makes sense"))
        }

        fn tell(&self, end: Option<End>) -> bool {
            end.map(|end| end.tell(&self.submits)).is_some()
        }

        fn sent(&mut self, link: u64) -> Vec<(u64, SessionId, u64, u64)> {
            let mut bytes = Vec::new();
            self.pending.frames(link, self.now, usize::MAX, &mut bytes);
            let mut rest = &bytes[..];
            let mut sent = Vec::new();
            while let Some((frame, more)) = super::super::frames::split_frame(rest, 1000).unwrap() {
                match Ask::decode(frame) {
                    Some(Ask::Append { id, session, sequence, acknowledged_below, .. }) => {
                        sent.push((id, session, sequence, acknowledged_below))
                    }
                    Some(Ask::Register { .. }) => {}
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
        program.pending.unlinked("reset");
        assert_eq!(program.sent(2), [(2, SESSION, 2, 2)], "the same number, and 1 is acknowledged");
        assert!(program.pending.answered(2, Code::Busy, 0, "full").is_none());
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
        assert!(program.pending.appended(1, 5, 4, "").is_err(), "more than there are");
        assert!(program.pending.appended(1, u64::MAX, 2, "").is_err());
        assert!(program.appended(1, 5, 2, "much is held\ntrim"));
        let [a, b, c] = told.map(|told| told.recv().unwrap());
        assert_eq!((a, b), (Ok(5), Ok(6)));
        let full = Failed::new(Code::Full, "much is held").hint("trim");
        assert_eq!(c, Err(full));
        let [a, b] = program.bundle([b"a", b"b"]).map(|told| {
            let refused = program.pending.answered(2, Code::Refused, 0, "no");
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
        program.pending.unlinked("reset");
        program.pending.open.get_mut(&1).unwrap().attempts = 0;
        program.sent(2);
        assert!(program.pending.no_session(1).is_none());
        let end = program.pending.no_session(2);
        program.tell(end);
        let why = twice.recv().unwrap().unwrap_err();
        assert_eq!(why.code, Code::Unknown);
        assert_eq!(program.sent(2), [], "there is no session");
        let other = SessionId { slot: 9, index: 1 };
        program.pending.registered(other);
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
        assert!(program.pending.expire(program.now).is_empty());
        let late = program.now + Duration::from_secs(1);
        for end in program.pending.expire(late) {
            end.tell(&program.submits);
        }
        assert_eq!(sent.recv().unwrap().unwrap_err().code, Code::Unknown);
        assert_eq!(waits.recv().unwrap().unwrap_err().code, Code::Unavailable);
        assert_eq!(program.pending.due(late), None);
    }

    #[test]
    fn bundles_in_flight_are_bounded_and_the_next_one_grows() {
        let mut program = Program::new();
        for _ in 0..BUNDLES_MAX {
            assert!(program.pending.has_room());
            program.append(b"");
        }
        assert!(!program.pending.has_room());
        assert_eq!(program.sent(1).len(), BUNDLES_MAX);
        assert!(!program.pending.has_room());
        let end = program.pending.answered(3, Code::Refused, 1, "");
        program.tell(end);
        assert!(program.pending.has_room());
        assert!(program.appended(1, 1, 1, ""));
        for end in program.pending.abandon() {
            end.tell(&program.submits);
        }
        program.append(b"");
        assert_eq!(program.pending.bundles, 1);
    }
}
