//! Client requests, by kind of workload.

use super::{Books, Client, Kind, PendingRequest};
use crate::{history::Act, node::COMMAND_BYTES_MAX, resp::request};

/// INCR as a script. Its random numbers, fractions and table order expose differences between
/// nodes.
const INCREMENT: &[u8] = b"local n = redis.call('incr', KEYS[1]) \
    local t = {n, x = math.random(1000), [KEYS[1]] = n % 7.3, y = tostring(n / 3)} \
    for k, v in pairs(t) do redis.call('hset', 'h' .. n % 5, k, v) end \
    redis.call('set', 'j', cjson.encode(t), 'px', 500) \
    return n";

impl Client {
    /// Returns the client's next requests as bytes. The client must be connected. Unless it
    /// pipelines, it must not have outstanding requests.
    pub fn next_requests(&mut self, books: &mut Books) -> Vec<u8> {
        let mut out = Vec::new();
        if !matches!(self.kind, Kind::Auditor | Kind::Visitor | Kind::Script)
            && self.dice.chance(1, 200)
        {
            let big = vec![b'x'; COMMAND_BYTES_MAX * 2];
            request(&[b"SET", b"big", &big], &mut out);
            self.pending.push_back(PendingRequest::TooBig);
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
        self.pending.push_back(PendingRequest::Key { key, act, called });
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
        let act = if self.dice.chance(3, 4) { Act::Increment } else { Act::Get };
        match act {
            // In a group below the level of scripts, they are refused and not executed.
            Act::Increment if self.dice.chance(1, 3) => {
                request(&[b"EVAL", INCREMENT, b"1", key.as_bytes()], out);
            }
            Act::Increment => request(&[b"INCR", key.as_bytes()], out),
            _ => request(&[b"GET", key.as_bytes()], out),
        }
        self.on_key(books, key, act);
    }

    pub(super) fn session_key(&self) -> String {
        format!("s{}", self.index)
    }

    fn ask_session(&mut self, out: &mut Vec<u8>) {
        let Some(session) = self.session.clone() else {
            request(&[b"QUORATE", b"SESSION"], out);
            self.pending.push_back(PendingRequest::Session);
            return;
        };
        if !self.ready {
            request(&[b"QUORATE", b"SESSION", session.as_bytes()], out);
            self.pending.push_back(PendingRequest::Ready);
            self.ready = true;
        }
        if self.dice.chance(1, 4) && self.sequence > 1 {
            request(&[b"QUORATE", b"ACK", self.sequence.to_string().as_bytes()], out);
            self.pending.push_back(PendingRequest::Word);
        }
        let (key, number) = (self.session_key(), self.sequence.to_string());
        for _ in 0..self.dice.pick(&[1, 1, 1, 2]) {
            request(&[b"QUORATE", b"SEQ", number.as_bytes(), b"INCR", key.as_bytes()], out);
            self.pending.push_back(PendingRequest::Sequence(self.sequence));
        }
    }

    fn ask_swap(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        if let Some((key, seen)) = self.swap_read.take() {
            let new = books.value();
            request(&[b"MULTI"], out);
            request(&[b"SET", key.as_bytes(), new.to_string().as_bytes()], out);
            request(&[b"EXEC"], out);
            self.pending.extend([PendingRequest::Word, PendingRequest::Word]);
            let called = books.history.moment();
            self.pending.push_back(PendingRequest::Exec { key, seen, new, called });
            return;
        }
        let key = match self.watched.take() {
            Some(key) => key,
            None => {
                let key = books.key(3, &mut self.dice);
                if self.dice.chance(1, 4) {
                    request(&[b"DEL", key.as_bytes()], out);
                    return self.on_key(books, key, Act::Delete);
                }
                request(&[b"UNWATCH"], out);
                request(&[b"WATCH", key.as_bytes()], out);
                self.pending.extend([PendingRequest::Word, PendingRequest::Word]);
                if self.dice.chance(1, 2) {
                    // Other clients may write the key before the client reads it.
                    self.watched = Some(key);
                    return;
                }
                key
            }
        };
        request(&[b"GET", key.as_bytes()], out);
        let called = books.history.moment();
        self.pending.push_back(PendingRequest::Look { key, called });
    }

    pub(super) fn own_key(&self) -> String {
        format!("y{}.{}", self.index, self.own_generation)
    }

    fn ask_own(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        if self.stale && !self.ready {
            request(&[b"READONLY"], out);
            self.pending.push_back(PendingRequest::Ready);
            self.ready = true;
        }
        let key = self.own_key();
        for _ in 0..self.dice.between(1, 4) {
            let value = books.value();
            let bytes = value.to_string();
            match self.dice.below(if self.stale { 6 } else { 9 }) {
                0..3 => {
                    request(&[b"SET", key.as_bytes(), bytes.as_bytes()], out);
                    self.pending.push_back(PendingRequest::OwnSet(value));
                }
                3..6 => {
                    request(&[b"GET", key.as_bytes()], out);
                    self.pending.push_back(PendingRequest::OwnGet);
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

    /// Discards the expected value of the client's own key, because it no longer predicts what a
    /// read returns.
    pub(super) fn forsake_own_key(&mut self) {
        self.own_generation += 1;
        self.own_value = None;
        // Outstanding replies concern the previous key.
        for waiting in &mut self.pending {
            if matches!(waiting, PendingRequest::OwnGet | PendingRequest::OwnSet(_)) {
                *waiting = PendingRequest::PairSet;
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
                request(&[b"SET", key.as_bytes(), value.as_bytes(), b"PX", wait.as_bytes()], out);
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
                request(&[b"MSET", b"pa", value.as_bytes(), b"pb", value.as_bytes()], out);
                self.pending.push_back(PendingRequest::PairSet);
            }
            1 => {
                request(&[b"MULTI"], out);
                request(&[b"SET", b"pa", value.as_bytes()], out);
                request(&[b"SET", b"pb", value.as_bytes()], out);
                request(&[b"EXEC"], out);
                self.pending.extend([
                    PendingRequest::Word,
                    PendingRequest::Word,
                    PendingRequest::Word,
                    PendingRequest::PairSet,
                ]);
            }
            _ => {
                request(&[b"MGET", b"pa", b"pb"], out);
                self.pending.push_back(PendingRequest::PairGet);
            }
        }
    }

    fn ask_audit(&mut self, out: &mut Vec<u8>) {
        if let Some(key) = self.audits.front().cloned() {
            request(&[b"GET", key.as_bytes()], out);
            self.pending.push_back(PendingRequest::Audit(key));
        }
    }

    fn ask_visit(&mut self, books: &mut Books, out: &mut Vec<u8>) {
        if !self.welcomed {
            let (key, value) = (format!("v{}", self.index), books.value());
            request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out);
            self.on_key(books, key, Act::Set(value));
        }
    }
}
