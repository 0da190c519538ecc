//! Events that the replica reports to a connection.

use quorate_access::Role;
use quorate_core::value::StreamName;
use quorate_log::disk::Blocks;
use quorate_replica::{
    front::{ConnectionId, Failure},
    stream_front::{StreamEvent, StreamTag},
};
use quorate_stream::{StreamInfo, StreamOutcome};
use quorate_wire::streams::{self as wire, Answer};

use super::{Asked, Connection, LIST_BYTES_SOFT, State, Writing};
use crate::streams::{
    reading::{AnswerPurpose, Next, Reading},
    refusal::Refusal,
    shared::{Cx, Owner},
};

impl Connection {
    pub(crate) fn answered(&mut self, tag: StreamTag, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match &self.state {
            State::Reading(reading) => {
                if let Some(asked) = reading.asked(tag) {
                    self.read_on(asked, event, cx);
                }
            }
            State::Writing(writing) if writing.closing == Some(tag) => {
                let piece = writing.piece;
                self.closed(piece, event, cx);
            }
            State::Asked(asked, _) if *asked == tag => self.on_answer(event, cx),
            // The answer belongs to an abandoned request.
            _ => {}
        }
    }

    fn on_answer(&mut self, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let State::Asked(_, asked) = std::mem::replace(&mut self.state, State::AwaitingHello)
        else {
            return;
        };
        self.rest();
        match (asked, event) {
            (_, StreamEvent::Refused(_, denied)) => self.refuse(denied),
            (_, StreamEvent::Failed(_, failure)) => self.refuse(failure),
            (Asked::Open, StreamEvent::Done(_, StreamOutcome::Opened { stream, at })) => {
                self.opened(stream, at, cx);
            }
            (Asked::Trim, StreamEvent::Done(_, StreamOutcome::Trimmed { start })) => {
                self.answer(&Answer::Done { position: start });
            }
            (Asked::Retain(name), StreamEvent::Done(_, StreamOutcome::Retained)) => {
                let info = cx.streams().ok().and_then(|streams| streams.info(&name));
                let position = info.map_or(0, |info| info.start);
                self.answer(&Answer::Done { position });
            }
            (Asked::Remove, StreamEvent::Done(_, StreamOutcome::Removed)) => {
                self.answer(&Answer::Done { position: 0 });
            }
            (Asked::Stat(name), StreamEvent::Looked(_)) => {
                match cx.streams().map(|streams| streams.info(&name)) {
                    Ok(Some(info)) => self.answer(&Answer::Info(shown(&info))),
                    Ok(None) => self.refuse(Refusal::unknown()),
                    Err(failure) => self.refuse(failure),
                }
            }
            (Asked::List(after), StreamEvent::Looked(_)) => {
                self.state = State::Listing(after);
                self.list(cx);
            }
            // The answer is of the wrong kind, so the outcome is unknown.
            _ => self.refuse(Failure::Unknown),
        }
    }

    fn opened(&mut self, piece: StreamName, position: u64, cx: &mut Cx<'_>) {
        cx.shared.pieces.insert(piece, self.id);
        self.say(&Answer::Opened { position });
        self.state = State::Writing(Writing {
            piece,
            durable: position,
            is_untold: false,
            full: false,
            closing: None,
        });
    }

    fn closed(&mut self, piece: StreamName, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        cx.shared.pieces.remove(&piece);
        match event {
            StreamEvent::Done(_, StreamOutcome::Closed { at }) => {
                self.answer(&Answer::Closed { position: at });
            }
            StreamEvent::Refused(_, denied) => self.refuse(denied),
            other => {
                cx.abandon(piece);
                self.refuse(match other {
                    StreamEvent::Failed(_, failure) => failure,
                    _ => Failure::Unknown,
                });
            }
        }
    }

    /// Records that all bytes before `position` are durable.
    pub(crate) fn durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        if let State::Writing(writing) = &mut self.state {
            // Clients rely on positions that never decrease.
            writing.is_untold |= position > writing.durable;
            writing.durable = writing.durable.max(position);
        }
        self.look_for_room(cx);
    }

    pub(crate) fn look_for_room(&mut self, cx: &mut Cx<'_>) -> usize {
        let State::Writing(writing) = &mut self.state else {
            return 0;
        };
        if !writing.full {
            return 0;
        }
        let room = cx.streams().map_or(0, |streams| streams.room(writing.piece));
        writing.full = room == 0;
        room
    }

    pub(crate) const fn is_full(&self) -> bool {
        matches!(&self.state, State::Writing(writing) if writing.full)
    }

    /// Handles the end of the client's piece by another writer or an operator.
    pub(crate) fn ended(&mut self, position: u64, cx: &mut Cx<'_>) {
        let State::Writing(writing) = &self.state else {
            return;
        };
        cx.shared.pieces.remove(&writing.piece);
        let closing = writing.closing;
        if let Some(tag) = closing {
            cx.forget(tag);
        }
        self.say(&Answer::Ended { position });
        // This also answers a close in flight.
        self.become_idle(closing.is_none());
    }

    pub(crate) fn feed(&mut self, cx: &mut Cx<'_>) {
        self.hungry = false;
        match &self.state {
            State::Listing(_) => self.list(cx),
            State::Reading(reading) if reading.is_hungry() => self.go_on(cx),
            _ => {}
        }
    }

    fn list(&mut self, cx: &mut Cx<'_>) {
        let State::Listing(after) = &mut self.state else {
            return;
        };
        let streams = match cx.streams() {
            Ok(streams) => streams,
            Err(failure) => return self.refuse(failure),
        };
        let (output, mut last, mut more) = (&mut self.output, None, false);
        streams.infos(after.as_ref(), &mut |info| {
            more = output.len() > LIST_BYTES_SOFT;
            if !more {
                output.say(&Answer::Info(shown(&info)));
                last = Some(info.name);
            }
            !more
        });
        if last.is_some() {
            *after = last;
        }
        if !more {
            self.answer(&Answer::ListEnd);
        }
    }

    fn read_on(&mut self, asked: AnswerPurpose, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        let info = cx.streams().map(|streams| streams.info(&reading.name));
        let info = match info {
            Ok(info) => info,
            Err(failure) => return self.refuse(failure),
        };
        let is_same = info.as_ref().is_some_and(|info| reading.is_of(info));
        let next = match (asked, event) {
            (_, StreamEvent::Failed(_, failure)) => return self.refuse(failure),
            (AnswerPurpose::Look, StreamEvent::Looked(_)) => {
                if let Err(refusal) = reading.begin(info.as_ref()) {
                    return self.refuse(refusal);
                }
                reading.go();
                return self.go_on(cx);
            }
            (AnswerPurpose::Wait, StreamEvent::Looked(_)) => {
                reading.go();
                return self.go_on(cx);
            }
            _ if !is_same => Next::Refuse(Refusal::replaced()),
            (AnswerPurpose::Fetch(number), StreamEvent::Bytes(_, bytes)) if !bytes.is_empty() => {
                return self.fetched(number, bytes, cx);
            }
            (AnswerPurpose::Fetch(_), StreamEvent::Nowhere(_, nowhere)) => reading.nowhere(nowhere),
            _ => return self.refuse(Failure::Unknown),
        };
        self.step(next, cx);
    }

    /// Handles the bytes returned by a read. Requests the bytes that it did not return, and sends
    /// the bytes that are next in order.
    fn fetched(&mut self, number: usize, bytes: &Blocks, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        if let Some((from, bytes)) = reading.came(number, bytes) {
            match ask_to_read(self.id, reading, (from, bytes), cx) {
                Ok(tag) => reading.fetch_missing(number, tag, bytes),
                Err(failure) => return self.refuse(failure),
            }
        }
        while let Some((position, bytes)) = reading.next_bytes() {
            self.output.say_bytes(position, &bytes);
        }
        self.go_on(cx);
    }

    /// Requests further bytes while there is space for them.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if let Err(refusal) = cx.check(&self.login, Role::Reader) {
            return self.refuse(refusal);
        }
        loop {
            let room = self.room(cx.shared);
            let State::Reading(reading) = &mut self.state else {
                return;
            };
            let next = match cx.streams().map(|streams| streams.info(&reading.name)) {
                Ok(info) => reading.next(info.as_ref(), room),
                Err(failure) => return self.refuse(failure),
            };
            let asks = matches!(next, Next::Fetch { .. });
            self.step(next, cx);
            if !asks {
                return;
            }
        }
    }

    fn step(&mut self, next: Next, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        let asked = match next {
            Next::Send => return,
            Next::Fetch { from, bytes } => ask_to_read(self.id, reading, (from, bytes), cx)
                .map(|tag| reading.fetch(tag, bytes)),
            Next::Wait(position) => {
                let name = &reading.name;
                cx.ask(Owner::Follower(self.id), |streams, tag| streams.wait(tag, name, position))
                    .map(|tag| reading.wait(tag))
            }
            Next::End { position, finished } => {
                return self.answer(&Answer::End { position, finished });
            }
            Next::Refuse(refusal) => return self.refuse(refusal),
        };
        if let Err(failure) = asked {
            self.refuse(failure);
        }
    }
}

fn ask_to_read(
    id: ConnectionId,
    reading: &Reading,
    (from, bytes): (u64, usize),
    cx: &mut Cx<'_>,
) -> Result<StreamTag, Failure> {
    cx.ask(Owner::Connection(id), |streams, tag| streams.read(tag, &reading.name, from, bytes))
}

/// Converts a stream's description to its wire form.
fn shown(info: &StreamInfo) -> wire::Info<'_> {
    wire::Info {
        id: info.id,
        finished: info.finished,
        writing: info.writing,
        start: info.start,
        end: info.end,
        pieces: u32::try_from(info.pieces).unwrap_or(u32::MAX),
        created_ms: info.created_ms,
        keep: wire::Keep { bytes: info.keep.bytes, age_ms: info.keep.age_ms },
        name: info.name.as_str(),
    }
}
