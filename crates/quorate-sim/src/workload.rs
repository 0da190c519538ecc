//! What clients do: each kind tries to catch the cluster at another lie.

use std::collections::VecDeque;

use quorate_core::time::Time;
use quorate_replica::front::ConnectionId;

use crate::{
    check::{Verdict, Violation, exactly_once::ExactlyOnce},
    dice::Dice,
    history::{Act, Answer, History},
    node::COMMAND_BYTES_MAX,
    resp::{Reply, request},
};

/// After so many operations a family of shared keys moves on to fresh names, so that histories
/// stay short enough to be judged.
const OPERATIONS_PER_KEY: u64 = 60;

/// A client that does not wait for replies stops asking at so many.
const PIPELINE_MAX: usize = 12;

/// What all clients write down.
#[derive(Debug, Default)]
pub struct Books {
    /// Operations on single keys.
    pub history: History,
    /// Increments.
    pub exactly_once: ExactlyOnce,
    /// Requests answered with what they asked for,
    pub answered: u64,
    /// refused for certain,
    pub refused: u64,
    /// or not known to be executed.
    pub unknown: u64,
    last_value: i64,
    touched: [u64; 4],
}

impl Books {
    fn value(&mut self) -> i64 {
        self.last_value += 1;
        1_000_000 + self.last_value
    }

    fn key(&mut self, family: usize, dice: &mut Dice) -> String {
        self.touched[family] += 1;
        let letter = ["r", "c", "e", "w"][family];
        let epoch = self.touched[family] / OPERATIONS_PER_KEY;
        format!("{letter}{}.{epoch}", dice.below(2))
    }
}

/// What a client tries to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SET, GET and DEL on keys that others write too.
    Register,
    /// INCR on counters that others count with too.
    Counter,
    /// INCR numbered in a session, repeated on any node until it is answered.
    Session,
    /// WATCH, GET, MULTI, SET, EXEC.
    Swap,
    /// SET and GET of a key of its own and of keys that others write too, without waiting for
    /// replies: each read of its own key sees the write before it and none behind it.
    Own,
    /// SET with and without deadlines.
    Expiring,
    /// Two keys that always change together.
    Pair,
    /// Reads what is left in the end.
    Auditor,
    /// Writes once, on one node, in the end: whichever node is asked must take it.
    Visitor,
    /// Does what a scenario tells it.
    Script,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Register,
        Self::Counter,
        Self::Session,
        Self::Swap,
        Self::Own,
        Self::Expiring,
        Self::Pair,
    ];

    /// Clients take turns; who is first depends on the seed.
    pub fn of(index: usize, seed: u64) -> Self {
        let count = Self::ALL.len();
        let first = usize::try_from(seed % count as u64).unwrap_or_default();
        Self::ALL[(index + first) % count]
    }
}

/// What the next reply of a connection belongs to.
#[derive(Clone, Debug)]
enum Waiting {
    /// An operation on one key.
    Key { key: String, act: Act, called: u64 },
    /// A word that says nothing.
    Word,
    /// EXEC of a swap.
    Exec {
        key: String,
        seen: Option<i64>,
        new: i64,
        called: u64,
    },
    /// GET within a swap.
    Look { key: String, called: u64 },
    /// SET of the client's own key.
    OwnSet(i64),
    /// GET of the client's own key.
    OwnGet,
    /// Both keys of the pair were set.
    PairSet,
    /// Both keys of the pair, in one reply.
    PairGet,
    /// The id of a new session.
    Session,
    /// A numbered INCR.
    Sequence(i64),
    /// A command that is too big.
    TooBig,
    /// What a key has in the end.
    Audit(String),
    /// Whatever a scenario asked for.
    Script,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Position in the world's list.
    pub index: usize,
    /// What it does.
    pub kind: Kind,
    /// Its connection, to which node.
    pub connection: Option<(ConnectionId, usize)>,
    /// When its patience ends.
    pub patience_at: Option<Time>,
    /// It asks for more then, whether or not it was answered.
    pub asks_at: Option<Time>,
    /// It asks for nothing new.
    pub done: bool,
    dice: Dice,
    input: Vec<u8>,
    waiting: VecDeque<Waiting>,
    /// A swap under way: what GET saw.
    seen: Option<(String, Option<i64>)>,
    own_generation: u64,
    own_value: Option<i64>,
    /// Its connections are READONLY: it looks at its own key alone.
    stale: bool,
    session: Option<String>,
    attached: bool,
    sequence: i64,
    audits: VecDeque<String>,
    /// The only node that it talks to.
    home: Option<usize>,
    /// A visitor whose write was taken.
    welcomed: bool,
    /// What a scenario's requests were answered with; `None` if the connection broke.
    pub replies: VecDeque<Option<Reply>>,
    /// It does not read what it is sent.
    pub deaf: bool,
}

impl Client {
    /// A client that has done nothing yet.
    pub fn new(index: usize, kind: Kind, mut dice: Dice) -> Self {
        let stale = kind == Kind::Own && dice.chance(1, 4);
        Self {
            index,
            kind,
            connection: None,
            patience_at: None,
            asks_at: None,
            done: false,
            dice,
            stale,
            input: Vec::new(),
            waiting: VecDeque::new(),
            seen: None,
            own_generation: 0,
            own_value: None,
            session: None,
            attached: false,
            sequence: 1,
            audits: VecDeque::new(),
            home: None,
            welcomed: false,
            replies: VecDeque::new(),
            deaf: false,
        }
    }

    /// Reads these keys, then it is done.
    pub fn audit(index: usize, dice: Dice, keys: Vec<String>) -> Self {
        Self {
            audits: keys.into(),
            ..Self::new(index, Kind::Auditor, dice)
        }
    }

    /// Writes once on this node, then it is done.
    pub fn visit(index: usize, dice: Dice, node: usize) -> Self {
        Self {
            home: Some(node),
            ..Self::new(index, Kind::Visitor, dice)
        }
    }

    /// Whether it asks for more before it is answered, now.
    pub fn may_pipeline(&self) -> bool {
        self.kind == Kind::Own && !self.done && self.waiting.len() < PIPELINE_MAX
    }

    /// Whether it waits for a reply.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it has something left that must be answered.
    pub fn is_busy(&self) -> bool {
        let visiting = self.kind == Kind::Visitor && !self.welcomed;
        self.is_waiting() || !self.audits.is_empty() || visiting
    }

    /// The next requests, as bytes. Called when connected, and not waiting unless it pipelines.
    pub fn ask(&mut self, books: &mut Books) -> Vec<u8> {
        let mut out = Vec::new();
        if !matches!(self.kind, Kind::Auditor | Kind::Visitor | Kind::Script)
            && self.dice.chance(1, 200)
        {
            let big = vec![b'x'; COMMAND_BYTES_MAX * 2];
            request(&[b"SET", b"big", &big], &mut out);
            self.waiting.push_back(Waiting::TooBig);
            return out;
        }
        match self.kind {
            Kind::Register => self.ask_register(books, &mut out),
            Kind::Counter => self.ask_counter(books, &mut out),
            Kind::Session => self.ask_session(&mut out),
            Kind::Swap => self.ask_swap(books, &mut out),
            Kind::Own => self.ask_own(books, &mut out),
            Kind::Expiring => self.ask_expiring(books, &mut out),
            Kind::Pair => self.ask_pair(books, &mut out),
            Kind::Auditor => self.ask_audit(&mut out),
            Kind::Visitor => self.ask_visit(books, &mut out),
            Kind::Script => {}
        }
        out
    }

    fn on_key(&mut self, books: &mut Books, key: String, act: Act) {
        let called = books.history.moment();
        self.waiting.push_back(Waiting::Key { key, act, called });
    }

    fn ask_register(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        for _ in 0..self.dice.between(1, 3) {
            let key = books.key(0, &mut self.dice);
            let act = match self.dice.below(8) {
                0..3 => Act::Set(books.value()),
                3 => Act::Delete,
                _ => Act::Get,
            };
            match act {
                Act::Set(value) => {
                    request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out)
                }
                Act::Delete => request(&[b"DEL", key.as_bytes()], out),
                _ => request(&[b"GET", key.as_bytes()], out),
            }
            self.on_key(books, key, act);
        }
    }

    fn ask_counter(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        let key = books.key(1, &mut self.dice);
        let act = if self.dice.chance(3, 4) {
            Act::Increment
        } else {
            Act::Get
        };
        let word: &[u8] = if act == Act::Increment {
            b"INCR"
        } else {
            b"GET"
        };
        request(&[word, key.as_bytes()], out);
        self.on_key(books, key, act);
    }

    fn session_key(&self) -> String {
        format!("s{}", self.index)
    }

    fn ask_session(&mut self, out: &mut Vec<u8>) {
        let Some(session) = self.session.clone() else {
            request(&[b"QUORATE", b"SESSION"], out);
            self.waiting.push_back(Waiting::Session);
            return;
        };
        if !self.attached {
            request(&[b"QUORATE", b"SESSION", session.as_bytes()], out);
            self.waiting.push_back(Waiting::Word);
            self.attached = true;
        }
        if self.dice.chance(1, 4) && self.sequence > 1 {
            request(
                &[b"QUORATE", b"ACK", self.sequence.to_string().as_bytes()],
                out,
            );
            self.waiting.push_back(Waiting::Word);
        }
        let (key, number) = (self.session_key(), self.sequence.to_string());
        for _ in 0..self.dice.pick(&[1, 1, 1, 2]) {
            request(
                &[
                    b"QUORATE",
                    b"SEQ",
                    number.as_bytes(),
                    b"INCR",
                    key.as_bytes(),
                ],
                out,
            );
            self.waiting.push_back(Waiting::Sequence(self.sequence));
        }
    }

    fn ask_swap(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        if let Some((key, seen)) = self.seen.take() {
            let new = books.value();
            request(&[b"MULTI"], out);
            request(&[b"SET", key.as_bytes(), new.to_string().as_bytes()], out);
            request(&[b"EXEC"], out);
            self.waiting.extend([Waiting::Word, Waiting::Word]);
            let called = books.history.moment();
            self.waiting.push_back(Waiting::Exec {
                key,
                seen,
                new,
                called,
            });
            return;
        }
        let key = books.key(3, &mut self.dice);
        request(&[b"UNWATCH"], out);
        request(&[b"WATCH", key.as_bytes()], out);
        request(&[b"GET", key.as_bytes()], out);
        self.waiting.extend([Waiting::Word, Waiting::Word]);
        let called = books.history.moment();
        self.waiting.push_back(Waiting::Look { key, called });
    }

    fn own_key(&self) -> String {
        format!("y{}.{}", self.index, self.own_generation)
    }

    fn ask_own(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        if self.stale && !self.attached {
            request(&[b"READONLY"], out);
            self.waiting.push_back(Waiting::Word);
            self.attached = true;
        }
        let key = self.own_key();
        for _ in 0..self.dice.between(1, 4) {
            let value = books.value();
            let bytes = value.to_string();
            match self.dice.below(if self.stale { 6 } else { 9 }) {
                0..3 => {
                    request(&[b"SET", key.as_bytes(), bytes.as_bytes()], out);
                    self.waiting.push_back(Waiting::OwnSet(value));
                }
                3..6 => {
                    request(&[b"GET", key.as_bytes()], out);
                    self.waiting.push_back(Waiting::OwnGet);
                }
                6 => {
                    let shared = books.key(0, &mut self.dice);
                    request(&[b"SET", shared.as_bytes(), bytes.as_bytes()], out);
                    self.on_key(books, shared, Act::Set(value));
                }
                _ => {
                    let shared = books.key(0, &mut self.dice);
                    request(&[b"GET", shared.as_bytes()], out);
                    self.on_key(books, shared, Act::Get);
                }
            }
        }
    }

    /// What is known of its own key says nothing of what it will read.
    fn forsake_own_key(&mut self) {
        self.own_generation += 1;
        self.own_value = None;
        // Replies still on their way are about the key before.
        for waiting in &mut self.waiting {
            if matches!(waiting, Waiting::OwnGet | Waiting::OwnSet(_)) {
                *waiting = Waiting::PairSet;
            }
        }
    }

    fn ask_expiring(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        let key = books.key(2, &mut self.dice);
        let act = match self.dice.below(6) {
            0 | 1 => Act::SetExpiring(books.value()),
            2 => Act::Set(books.value()),
            _ => Act::Get,
        };
        match act {
            Act::SetExpiring(value) => {
                let (value, wait) = (value.to_string(), self.dice.between(1, 60).to_string());
                request(
                    &[
                        b"SET",
                        key.as_bytes(),
                        value.as_bytes(),
                        b"PX",
                        wait.as_bytes(),
                    ],
                    out,
                );
            }
            Act::Set(value) => {
                request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out)
            }
            _ => request(&[b"GET", key.as_bytes()], out),
        }
        self.on_key(books, key, act);
    }

    fn ask_pair(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        let value = books.value().to_string();
        match self.dice.below(4) {
            0 => {
                request(
                    &[b"MSET", b"pa", value.as_bytes(), b"pb", value.as_bytes()],
                    out,
                );
                self.waiting.push_back(Waiting::PairSet);
            }
            1 => {
                request(&[b"MULTI"], out);
                request(&[b"SET", b"pa", value.as_bytes()], out);
                request(&[b"SET", b"pb", value.as_bytes()], out);
                request(&[b"EXEC"], out);
                self.waiting.extend([
                    Waiting::Word,
                    Waiting::Word,
                    Waiting::Word,
                    Waiting::PairSet,
                ]);
            }
            _ => {
                request(&[b"MGET", b"pa", b"pb"], out);
                self.waiting.push_back(Waiting::PairGet);
            }
        }
    }

    fn ask_audit(&mut self, out: &mut Vec<u8>) {
        if let Some(key) = self.audits.front().cloned() {
            request(&[b"GET", key.as_bytes()], out);
            self.waiting.push_back(Waiting::Audit(key));
        }
    }

    fn ask_visit(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        if !self.welcomed {
            let (key, value) = (format!("v{}", self.index), books.value());
            request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out);
            self.on_key(books, key, Act::Set(value));
        }
    }

    /// Bytes came from the node.
    ///
    /// # Errors
    /// They contradict what the cluster promised.
    pub fn heard(&mut self, bytes: &[u8], books: &mut Books) -> Verdict {
        self.input.extend_from_slice(bytes);
        loop {
            let parsed = crate::resp::parse(&self.input)
                .map_err(|why| Violation::new("client", format!("client {}: {why}", self.index)))?;
            let Some((reply, used)) = parsed else {
                return Ok(());
            };
            self.input.drain(..used);
            let Some(waiting) = self.waiting.pop_front() else {
                if self.kind == Kind::Script {
                    // A message on a channel.
                    self.replies.push_back(Some(reply));
                    continue;
                }
                return Err(self.surprised("a reply to nothing", &reply));
            };
            self.replied(waiting, reply, books)?;
        }
    }

    fn surprised(&self, what: &str, reply: &Reply) -> Violation {
        let detail = format!(
            "client {} ({:?}) got {reply:?} for {what}",
            self.index, self.kind
        );
        Violation::new("client", detail)
    }

    fn replied(&mut self, waiting: Waiting, reply: Reply, books: &mut Books) -> Verdict {
        if matches!(waiting, Waiting::Script) {
            self.replies.push_back(Some(reply));
            return Ok(());
        }
        if let Reply::Error(text) = &reply {
            return self.failed(waiting, text.clone(), books);
        }
        books.answered += 1;
        match (waiting, reply) {
            (Waiting::Key { key, act, called }, reply) => {
                let Some(answer) = answer_of(act, &reply) else {
                    return Err(self.surprised(&format!("{act:?} of {key}"), &reply));
                };
                books.history.ended(self.index, &key, act, called, answer);
                self.welcomed = true;
                match answer {
                    Answer::Number(number) => books.exactly_once.acknowledged(&key, number),
                    _ => Ok(()),
                }
            }
            (Waiting::Look { key, called }, Reply::Bulk(value)) => {
                let value = number(value.as_deref());
                books
                    .history
                    .ended(self.index, &key, Act::Get, called, Answer::Value(value));
                self.seen = Some((key, value));
                Ok(())
            }
            (Waiting::Exec { .. }, Reply::Array(None)) => Ok(()),
            (
                Waiting::Exec {
                    key,
                    seen,
                    new,
                    called,
                },
                Reply::Array(Some(replies)),
            ) => {
                if replies != [Reply::Simple("OK".into())] {
                    return Err(self.surprised("EXEC", &Reply::Array(Some(replies))));
                }
                books.history.ended(
                    self.index,
                    &key,
                    Act::Swap { seen, new },
                    called,
                    Answer::Ok,
                );
                Ok(())
            }
            (Waiting::OwnSet(value), Reply::Simple(_)) => {
                self.own_value = Some(value);
                Ok(())
            }
            (Waiting::OwnGet, Reply::Bulk(value)) => {
                let got = number(value.as_deref());
                if got == self.own_value {
                    return Ok(());
                }
                let detail = format!(
                    "client {} read {got:?} from {} after its own write of {:?}",
                    self.index,
                    self.own_key(),
                    self.own_value
                );
                Err(Violation::new("read_your_writes", detail))
            }
            (Waiting::PairGet, Reply::Array(Some(both))) => {
                if both.len() == 2 && both[0] == both[1] {
                    return Ok(());
                }
                Err(Violation::new(
                    "atomicity",
                    format!("the pair is torn apart: {both:?}"),
                ))
            }
            (Waiting::Session, Reply::Simple(id)) => {
                (self.session, self.attached) = (Some(id), true);
                Ok(())
            }
            (Waiting::Session, Reply::Bulk(Some(id))) => {
                self.session = Some(String::from_utf8_lossy(&id).into_owned());
                self.attached = true;
                Ok(())
            }
            (Waiting::Sequence(sequence), Reply::Integer(number)) => {
                if sequence == self.sequence {
                    self.sequence += 1;
                }
                books
                    .exactly_once
                    .sequence(&self.session_key(), sequence, number)
            }
            (Waiting::Audit(key), Reply::Bulk(value)) => {
                self.audits.pop_front();
                let called = books.history.moment();
                let value = number(value.as_deref());
                // What sessions did is not in the history: their replies tell more than times do.
                if !key.starts_with('s') {
                    books
                        .history
                        .ended(self.index, &key, Act::Get, called, Answer::Value(value));
                }
                books.exactly_once.ended(&key, value.unwrap_or(0))
            }
            (Waiting::Word, Reply::Simple(_)) | (Waiting::PairSet, _) => Ok(()),
            (waiting, reply) => Err(self.surprised(&format!("{waiting:?}"), &reply)),
        }
    }

    fn failed(&mut self, waiting: Waiting, text: String, books: &mut Books) -> Verdict {
        let code = text.split(' ').next().unwrap_or_default();
        match code {
            "UNKNOWN" => {
                books.unknown += 1;
                self.left_open(waiting, books);
                Ok(())
            }
            "BUSY" | "NOQUORUM" | "EXECABORT" => {
                books.refused += 1;
                Ok(())
            }
            "TOOBIG" if matches!(waiting, Waiting::TooBig) => Ok(()),
            // In a group whose quorum forgot, a registration that nobody remembers.
            _ => Err(self.surprised(&format!("{waiting:?}"), &Reply::Error(text))),
        }
    }

    /// It may have been executed, or may yet be.
    fn left_open(&mut self, waiting: Waiting, books: &mut Books) {
        match waiting {
            Waiting::Key { key, act, called } => {
                if act == Act::Increment {
                    books.exactly_once.unknown(&key);
                }
                books
                    .history
                    .ended(self.index, &key, act, called, Answer::Unknown);
            }
            Waiting::Exec {
                key,
                seen,
                new,
                called,
            } => {
                let act = Act::Swap { seen, new };
                books
                    .history
                    .ended(self.index, &key, act, called, Answer::Unknown);
            }
            Waiting::OwnSet(_) => self.forsake_own_key(),
            Waiting::Word
            | Waiting::Look { .. }
            | Waiting::OwnGet
            | Waiting::PairSet
            | Waiting::PairGet
            | Waiting::Session
            | Waiting::Sequence(_)
            | Waiting::TooBig
            | Waiting::Audit(_) => {}
            Waiting::Script => self.replies.push_back(None),
        }
    }

    /// The connection is gone, and with it the replies.
    pub fn disconnected(&mut self, books: &mut Books) {
        self.connection = None;
        (self.patience_at, self.asks_at) = (None, None);
        self.attached = false;
        self.seen = None;
        if self.stale {
            // The next node may not have heard of what this one was told.
            self.forsake_own_key();
        }
        self.input.clear();
        while let Some(waiting) = self.waiting.pop_front() {
            books.unknown += 1;
            self.left_open(waiting, books);
        }
    }

    /// A request of a scenario, as bytes.
    pub fn say(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        request(words, &mut out);
        self.waiting.push_back(Waiting::Script);
        out
    }

    /// Chooses a node among `nodes`, unless it has one.
    pub fn choose(&mut self, nodes: usize) -> usize {
        self.home.unwrap_or_else(|| self.dice.index(nodes))
    }

    /// How long it thinks.
    pub fn think(&mut self, most_us: u64) -> u64 {
        self.dice.between(1, most_us.max(1))
    }
}

fn number(bytes: Option<&[u8]>) -> Option<i64> {
    // A value that no client wrote is caught as one that no operation explains.
    bytes.map(|bytes| {
        std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(-1)
    })
}

fn answer_of(act: Act, reply: &Reply) -> Option<Answer> {
    match (act, reply) {
        (Act::Set(_) | Act::SetExpiring(_), Reply::Simple(_)) => Some(Answer::Ok),
        (Act::Delete, Reply::Integer(count @ 0..=1)) => Some(Answer::Removed(*count == 1)),
        (Act::Get, Reply::Bulk(value)) => Some(Answer::Value(number(value.as_deref()))),
        (Act::Increment, Reply::Integer(number)) => Some(Answer::Number(*number)),
        _ => None,
    }
}
