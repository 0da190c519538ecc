//! What an attached program has asked for and has no answer to: numbers in a session, repetitions, time limits.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use quorate::SessionId;

use super::frames::Ask;
use crate::{
    error::{Code, Failed},
    source::{Done, Outcome},
};

/// Numbers of a session that may be open at a time ([session-2]).
const NUMBERS_MAX: usize = 64;
/// What was refused for a moment is asked again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What is wanted.
pub(super) enum Wanted {
    /// A value is appended, once.
    Append(Arc<[u8]>),
    /// Slots are forgotten.
    Trim(u64),
    /// Where the log ends.
    Sync,
    /// What the node is.
    Status(SyncSender<Result<String, Failed>>),
}

/// A request without an answer.
struct Open {
    wanted: Wanted,
    done: Option<Done>,
    until: Instant,
    not_before: Instant,
    /// Its place in a session, once it was sent.
    number: Option<(SessionId, u64)>,
    /// How often it was sent, and on which connection last.
    attempts: u32,
    sent_on: u64,
    sent_at: Instant,
    obstacle: String,
}

/// Who is told of an end, and what. Called without a lock.
pub(super) type End = Box<dyn FnOnce() + Send>;

/// All of them.
#[derive(Default)]
pub(super) struct Pending {
    open: BTreeMap<u64, Open>,
    last: u64,
    session: Option<SessionId>,
    next_number: u64,
    /// On which connection a session was asked for.
    registering_on: u64,
    /// It was refused: not again before.
    register_at: Option<Instant>,
}

impl Pending {
    /// Something is wanted until then.
    pub(super) fn push(&mut self, wanted: Wanted, done: Option<Done>, until: Instant) {
        self.last += 1;
        let open = Open {
            wanted,
            done,
            until,
            not_before: Instant::now(),
            number: None,
            attempts: 0,
            sent_on: 0,
            sent_at: Instant::now(),
            obstacle: String::new(),
        };
        self.open.insert(self.last, open);
    }

    /// When something is to be done without being asked.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let wake = |open: &Open| match open.not_before > now {
            true => open.not_before.min(open.until),
            false => open.until,
        };
        let register = self.register_at.filter(|at| *at > now);
        self.open.values().map(wake).chain(register).min()
    }

    /// When the first of what was sent on this connection has waited so long; then another node may be better.
    pub(super) fn impatient(&self, link: u64, patience: Duration) -> Option<Instant> {
        let sent = self.open.values().filter(|open| open.sent_on == link);
        sent.map(|open| open.sent_at + patience).min()
    }

    /// Appends the frames that are to be sent on this connection now, about `bytes` of them.
    pub(super) fn frames(&mut self, link: u64, now: Instant, bytes: usize, to: &mut Vec<u8>) {
        let wants_number = |open: &Open| matches!(open.wanted, Wanted::Append(_));
        if self.session.is_none()
            && self.registering_on != link
            && self.register_at.is_none_or(|at| at <= now)
            && self
                .open
                .values()
                .any(|open| wants_number(open) && open.number.is_none())
        {
            self.registering_on = link;
            Ask::Register { id: 0 }.encode(to);
        }
        let mut numbers = self
            .open
            .values()
            .filter(|open| open.number.is_some())
            .count();
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
                Wanted::Append(value) => {
                    if open.number.is_none() {
                        let Some(session) = self.session.filter(|_| numbers < NUMBERS_MAX) else {
                            continue;
                        };
                        self.next_number += 1;
                        numbers += 1;
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
                        // Of a session that is gone nothing is acknowledged any more.
                        acknowledged_below: low.unwrap_or(1).min(sequence),
                        value,
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

    /// The lowest number of the session that is open.
    fn acknowledged_below(&self) -> Option<u64> {
        let numbers = self.open.values().filter_map(|open| open.number);
        let own = numbers.filter(|(session, _)| Some(*session) == self.session);
        own.map(|(_, number)| number).min()
    }

    /// A session came.
    pub(super) fn registered(&mut self, session: SessionId) {
        self.session = Some(session);
        self.register_at = None;
        self.next_number = 0;
    }

    /// No session came: it is asked for again.
    pub(super) fn not_registered(&mut self) {
        self.registering_on = 0;
        self.register_at = Some(Instant::now() + AGAIN_AFTER);
    }

    /// A connection ended: what has no answer is sent again on the next.
    pub(super) fn unlinked(&mut self, why: &str) {
        for open in self.open.values_mut() {
            why.clone_into(&mut open.obstacle);
        }
    }

    /// The session is unknown. What was sent once was not executed, and is asked for in another; of what was
    /// sent before nobody knows ([session-4]).
    pub(super) fn no_session(&mut self, id: u64) -> Option<End> {
        let open = self.open.get_mut(&id)?;
        let number = open.number.take();
        if number.map(|(session, _)| session) == self.session {
            self.session = None;
            self.registering_on = 0;
        }
        if open.attempts > 1 {
            let why = Failed::new(Code::Unknown, "the session of this program was forgotten");
            return self.end(id, Err(why));
        }
        (open.attempts, open.sent_on) = (0, 0);
        None
    }

    /// An answer.
    pub(super) fn answered(&mut self, id: u64, code: Code, slot: u64, text: &str) -> Option<End> {
        let open = self.open.get_mut(&id)?;
        let (detail, hint) = text.split_once('\n').unwrap_or((text, ""));
        match code {
            Code::Ok if matches!(open.wanted, Wanted::Status(_)) => {
                let open = self.open.remove(&id)?;
                let text = text.to_owned();
                match open.wanted {
                    Wanted::Status(tell) => Some(Box::new(move || drop(tell.try_send(Ok(text))))),
                    _ => None,
                }
            }
            Code::Ok => self.end(id, Ok(slot)),
            // Not now, or not known: under its number it is asked again.
            Code::Busy | Code::Unavailable | Code::Stopped | Code::Unknown => {
                detail.clone_into(&mut open.obstacle);
                open.sent_on = 0;
                open.not_before = Instant::now() + AGAIN_AFTER;
                None
            }
            _ => self.end(id, Err(Failed::new(code, detail).hint(hint))),
        }
    }

    fn end(&mut self, id: u64, outcome: Outcome) -> Option<End> {
        let open = self.open.remove(&id)?;
        match (open.wanted, open.done) {
            (Wanted::Status(tell), _) => {
                let failed = outcome.map(|_| String::new());
                Some(Box::new(move || drop(tell.try_send(failed))))
            }
            (_, Some(done)) => Some(Box::new(move || done(outcome))),
            (_, None) => None,
        }
    }

    /// Ends what is too late.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<End> {
        let late = self.open.iter().filter(|(_, open)| open.until <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        late.into_iter()
            .filter_map(|id| self.give_up(id, Code::Timeout))
            .collect()
    }

    /// Ends everything: the program goes.
    pub(super) fn abandon(&mut self) -> Vec<End> {
        let all: Vec<u64> = self.open.keys().copied().collect();
        all.into_iter()
            .filter_map(|id| self.give_up(id, Code::Stopped))
            .collect()
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
        self.end(id, Err(failed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const SESSION: SessionId = SessionId { slot: 7, index: 0 };

    struct Program {
        pending: Pending,
        now: Instant,
    }

    impl Program {
        fn new() -> Self {
            let mut pending = Pending::default();
            pending.registered(SESSION);
            Self {
                pending,
                now: Instant::now(),
            }
        }

        fn append(&mut self, value: &[u8]) -> Receiver<Outcome> {
            let (tell, told) = channel();
            let done = Box::new(move |outcome| tell.send(outcome).unwrap());
            let until = self.now + Duration::from_secs(1);
            self.pending
                .push(Wanted::Append(value.into()), Some(done), until);
            told
        }

        fn sent(&mut self, link: u64) -> Vec<(u64, SessionId, u64, u64)> {
            let mut bytes = Vec::new();
            let later = self.now + Duration::from_millis(500);
            self.pending.frames(link, later, usize::MAX, &mut bytes);
            let mut rest = &bytes[..];
            let mut sent = Vec::new();
            while !rest.is_empty() {
                let mut frame = Vec::new();
                super::super::frames::read_frame(&mut rest, 1000, &mut frame).unwrap();
                match Ask::decode(&frame) {
                    Some(Ask::Append {
                        id,
                        session,
                        sequence,
                        acknowledged_below,
                        ..
                    }) => sent.push((id, session, sequence, acknowledged_below)),
                    Some(Ask::Register { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
            sent
        }
    }

    fn run(end: Option<End>) {
        end.expect("somebody is told")();
    }

    #[test]
    fn a_value_keeps_its_number_on_every_connection() {
        let mut program = Program::new();
        let (first, second) = (program.append(b"a"), program.append(b"b"));
        assert_eq!(program.sent(1), [(1, SESSION, 1, 1), (2, SESSION, 2, 1)]);
        assert_eq!(program.sent(1), []);
        run(program.pending.answered(1, Code::Ok, 10, ""));
        assert_eq!(first.recv(), Ok(Ok(10)));
        program.pending.unlinked("reset");
        assert_eq!(
            program.sent(2),
            [(2, SESSION, 2, 2)],
            "the same number, and 1 is acknowledged"
        );
        assert!(program.pending.answered(2, Code::Busy, 0, "full").is_none());
        assert_eq!(program.sent(2), [(2, SESSION, 2, 2)], "asked again");
        run(program.pending.answered(2, Code::Ok, 11, ""));
        assert_eq!(second.recv(), Ok(Ok(11)));
        assert!(
            program.pending.answered(2, Code::Ok, 11, "").is_none(),
            "told twice"
        );
    }

    #[test]
    fn what_may_have_run_in_a_lost_session_is_not_asked_for_in_another() {
        let mut program = Program::new();
        let (once, twice) = (program.append(b"a"), program.append(b"b"));
        program.sent(1);
        program.pending.unlinked("reset");
        program.pending.open.get_mut(&1).unwrap().attempts = 0;
        program.sent(2);
        assert!(program.pending.no_session(1).is_none());
        run(program.pending.no_session(2));
        let why = twice.recv().unwrap().unwrap_err();
        assert_eq!(why.code, Code::Unknown);
        assert_eq!(program.sent(2), [], "there is no session");
        let other = SessionId { slot: 9, index: 1 };
        program.pending.registered(other);
        assert_eq!(program.sent(2), [(1, other, 1, 1)]);
        run(program.pending.answered(1, Code::Full, 0, "much\ntrim"));
        let why = once.recv().unwrap().unwrap_err();
        assert_eq!(
            (why.code, &*why.detail, &*why.hint),
            (Code::Full, "much", "trim")
        );
    }

    #[test]
    fn what_is_given_up_is_unknown_only_if_it_was_sent() {
        let mut program = Program::new();
        let sent = program.append(b"a");
        program.sent(1);
        let waits = program.append(b"b");
        assert!(program.pending.expire(program.now).is_empty());
        let late = program.now + Duration::from_secs(1);
        program
            .pending
            .expire(late)
            .into_iter()
            .for_each(|end| end());
        assert_eq!(sent.recv().unwrap().unwrap_err().code, Code::Unknown);
        assert_eq!(waits.recv().unwrap().unwrap_err().code, Code::Unavailable);
        assert_eq!(program.pending.due(late), None);
    }

    #[test]
    fn no_more_numbers_are_open_than_a_session_has() {
        let mut program = Program::new();
        let told: Vec<_> = (0..NUMBERS_MAX + 1).map(|_| program.append(b"")).collect();
        assert_eq!(program.sent(1).len(), NUMBERS_MAX);
        run(program.pending.answered(3, Code::Ok, 1, ""));
        let next = NUMBERS_MAX as u64 + 1;
        assert_eq!(program.sent(1), [(next, SESSION, next, 1)]);
        assert_eq!(told[2].recv(), Ok(Ok(1)));
    }
}
