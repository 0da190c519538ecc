//! Client requests, by kind of workload.

use super::{Client, ClientRecords, Kind, PendingRequest};
use crate::{history::KeyAction, node::COMMAND_BYTES_MAX, resp::encode_request};

/// INCR as a script. Its random numbers, fractions and table order expose differences between
/// nodes.
const INCREMENT_SCRIPT: &[u8] = b"local n = redis.call('incr', KEYS[1]) \
    local t = {n, x = math.random(1000), [KEYS[1]] = n % 7.3, y = tostring(n / 3)} \
    for k, v in pairs(t) do redis.call('hset', 'h' .. n % 5, k, v) end \
    redis.call('set', 'j', cjson.encode(t), 'px', 500) \
    return n";

impl Client {
    /// Returns the client's next requests as bytes. The client must be connected. Unless it
    /// pipelines, it must not have outstanding requests.
    pub fn next_requests(&mut self, books: &mut ClientRecords) -> Vec<u8> {
        let mut out = Vec::new();
        if !matches!(self.kind, Kind::FinalReader | Kind::OneWriter | Kind::Scripted)
            && self.dice.chance(1, 200)
        {
            let big = vec![b'x'; COMMAND_BYTES_MAX * 2];
            encode_request(&[b"SET", b"big", &big], &mut out);
            self.pending_requests.push_back(PendingRequest::TooLarge);
            return out;
        }
        match self.kind {
            Kind::Register => self.request_register(books, &mut out),
            Kind::Counter => self.request_counter(books, &mut out),
            Kind::Session => self.request_session(&mut out),
            Kind::Swap => self.request_swap(books, &mut out),
            Kind::OwnKey => self.request_own_key(books, &mut out),
            Kind::Expiring => self.request_expiring(books, &mut out),
            Kind::KeyPair => self.request_pair(books, &mut out),
            Kind::FinalReader => self.request_final_read(&mut out),
            Kind::OneWriter => self.request_one_write(books, &mut out),
            Kind::Scripted => {}
        }
        out
    }

    fn push_key_request(&mut self, books: &mut ClientRecords, key: String, act: KeyAction) {
        let called = books.history.next_moment();
        self.pending_requests.push_back(PendingRequest::KeyRequest {
            key,
            action: act,
            called_at: called,
        });
    }

    fn request_register(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        for _ in 0..self.dice.between(1, 3) {
            let key = books.key(0, &mut self.dice);
            let act = match self.dice.below(8) {
                0..3 => KeyAction::Set(books.value()),
                3 => KeyAction::Delete,
                _ => KeyAction::Get,
            };
            match act {
                KeyAction::Set(value) => {
                    encode_request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out)
                }
                KeyAction::Delete => encode_request(&[b"DEL", key.as_bytes()], out),
                _ => encode_request(&[b"GET", key.as_bytes()], out),
            }
            self.push_key_request(books, key, act);
        }
    }

    fn request_counter(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        let key = books.key(1, &mut self.dice);
        let act = if self.dice.chance(3, 4) { KeyAction::Increment } else { KeyAction::Get };
        match act {
            // In a group below the level of scripts, they are refused and not executed.
            KeyAction::Increment if self.dice.chance(1, 3) => {
                encode_request(&[b"EVAL", INCREMENT_SCRIPT, b"1", key.as_bytes()], out);
            }
            KeyAction::Increment => encode_request(&[b"INCR", key.as_bytes()], out),
            _ => encode_request(&[b"GET", key.as_bytes()], out),
        }
        self.push_key_request(books, key, act);
    }

    pub(super) fn session_key(&self) -> String {
        format!("s{}", self.index)
    }

    fn request_session(&mut self, out: &mut Vec<u8>) {
        let Some(session) = self.session_id.clone() else {
            encode_request(&[b"QUORATE", b"SESSION"], out);
            self.pending_requests.push_back(PendingRequest::RegisterSession);
            return;
        };
        if !self.is_prepared {
            encode_request(&[b"QUORATE", b"SESSION", session.as_bytes()], out);
            self.pending_requests.push_back(PendingRequest::PrepareConnection);
            self.is_prepared = true;
        }
        if self.dice.chance(1, 4) && self.next_sequence > 1 {
            encode_request(&[b"QUORATE", b"ACK", self.next_sequence.to_string().as_bytes()], out);
            self.pending_requests.push_back(PendingRequest::Ignored);
        }
        let (key, number) = (self.session_key(), self.next_sequence.to_string());
        for _ in 0..self.dice.pick(&[1, 1, 1, 2]) {
            encode_request(&[b"QUORATE", b"SEQ", number.as_bytes(), b"INCR", key.as_bytes()], out);
            self.pending_requests.push_back(PendingRequest::SessionIncrement(self.next_sequence));
        }
    }

    fn request_swap(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        if let Some((key, seen)) = self.swap_read.take() {
            let new = books.value();
            encode_request(&[b"MULTI"], out);
            encode_request(&[b"SET", key.as_bytes(), new.to_string().as_bytes()], out);
            encode_request(&[b"EXEC"], out);
            self.pending_requests.extend([PendingRequest::Ignored, PendingRequest::Ignored]);
            let called = books.history.next_moment();
            self.pending_requests.push_back(PendingRequest::Exec {
                key,
                seen_value: seen,
                new,
                called_at: called,
            });
            return;
        }
        let key = match self.watched_key.take() {
            Some(key) => key,
            None => {
                let key = books.key(3, &mut self.dice);
                if self.dice.chance(1, 4) {
                    encode_request(&[b"DEL", key.as_bytes()], out);
                    return self.push_key_request(books, key, KeyAction::Delete);
                }
                encode_request(&[b"UNWATCH"], out);
                encode_request(&[b"WATCH", key.as_bytes()], out);
                self.pending_requests.extend([PendingRequest::Ignored, PendingRequest::Ignored]);
                if self.dice.chance(1, 2) {
                    // Other clients may write the key before the client reads it.
                    self.watched_key = Some(key);
                    return;
                }
                key
            }
        };
        encode_request(&[b"GET", key.as_bytes()], out);
        let called = books.history.next_moment();
        self.pending_requests.push_back(PendingRequest::SwapRead { key, called_at: called });
    }

    pub(super) fn own_key(&self) -> String {
        format!("y{}.{}", self.index, self.own_generation)
    }

    fn request_own_key(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        if self.reads_stale && !self.is_prepared {
            encode_request(&[b"READONLY"], out);
            self.pending_requests.push_back(PendingRequest::PrepareConnection);
            self.is_prepared = true;
        }
        let key = self.own_key();
        for _ in 0..self.dice.between(1, 4) {
            let value = books.value();
            let bytes = value.to_string();
            match self.dice.below(if self.reads_stale { 6 } else { 9 }) {
                0..3 => {
                    encode_request(&[b"SET", key.as_bytes(), bytes.as_bytes()], out);
                    self.pending_requests.push_back(PendingRequest::OwnSet(value));
                }
                3..6 => {
                    encode_request(&[b"GET", key.as_bytes()], out);
                    self.pending_requests.push_back(PendingRequest::OwnGet);
                }
                6 => {
                    let shared = books.key(0, &mut self.dice);
                    encode_request(&[b"SET", shared.as_bytes(), bytes.as_bytes()], out);
                    self.push_key_request(books, shared, KeyAction::Set(value));
                }
                _ => {
                    let shared = books.key(0, &mut self.dice);
                    encode_request(&[b"GET", shared.as_bytes()], out);
                    self.push_key_request(books, shared, KeyAction::Get);
                }
            }
        }
    }

    /// Discards the expected value of the client's own key, because it no longer predicts what a
    /// read returns.
    pub(super) fn forget_own_value(&mut self) {
        self.own_generation += 1;
        self.own_value = None;
        // Outstanding replies concern the previous key.
        for waiting in &mut self.pending_requests {
            if matches!(waiting, PendingRequest::OwnGet | PendingRequest::OwnSet(_)) {
                *waiting = PendingRequest::PairSet;
            }
        }
    }

    fn request_expiring(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        let key = books.key(2, &mut self.dice);
        let act = match self.dice.below(6) {
            0 | 1 => KeyAction::SetExpiring(books.value()),
            2 => KeyAction::Set(books.value()),
            _ => KeyAction::Get,
        };
        match act {
            KeyAction::SetExpiring(value) => {
                let (value, wait) = (value.to_string(), self.dice.between(1, 60).to_string());
                encode_request(
                    &[b"SET", key.as_bytes(), value.as_bytes(), b"PX", wait.as_bytes()],
                    out,
                );
            }
            KeyAction::Set(value) => {
                encode_request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out)
            }
            _ => encode_request(&[b"GET", key.as_bytes()], out),
        }
        self.push_key_request(books, key, act);
    }

    fn request_pair(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        let value = books.value().to_string();
        match self.dice.below(4) {
            0 => {
                encode_request(&[b"MSET", b"pa", value.as_bytes(), b"pb", value.as_bytes()], out);
                self.pending_requests.push_back(PendingRequest::PairSet);
            }
            1 => {
                encode_request(&[b"MULTI"], out);
                encode_request(&[b"SET", b"pa", value.as_bytes()], out);
                encode_request(&[b"SET", b"pb", value.as_bytes()], out);
                encode_request(&[b"EXEC"], out);
                self.pending_requests.extend([
                    PendingRequest::Ignored,
                    PendingRequest::Ignored,
                    PendingRequest::Ignored,
                    PendingRequest::PairSet,
                ]);
            }
            _ => {
                encode_request(&[b"MGET", b"pa", b"pb"], out);
                self.pending_requests.push_back(PendingRequest::PairGet);
            }
        }
    }

    fn request_final_read(&mut self, out: &mut Vec<u8>) {
        if let Some(key) = self.keys_to_audit.front().cloned() {
            encode_request(&[b"GET", key.as_bytes()], out);
            self.pending_requests.push_back(PendingRequest::FinalRead(key));
        }
    }

    fn request_one_write(&mut self, books: &mut ClientRecords, out: &mut Vec<u8>) {
        if !self.has_written {
            let (key, value) = (format!("v{}", self.index), books.value());
            encode_request(&[b"SET", key.as_bytes(), value.to_string().as_bytes()], out);
            self.push_key_request(books, key, KeyAction::Set(value));
        }
    }
}
