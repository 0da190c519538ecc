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

use super::{Connection, LIST_BYTES_SOFT, PendingRequest, State, Writing};
use crate::streams::{
    reading::{AnswerPurpose, ClientRead, NextAction},
    refusal::Refusal,
    shared::{Cx, Owner},
};

impl Connection {
    pub(crate) fn answered(&mut self, tag: StreamTag, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match &self.state {
            State::Reading(reading) => {
                if let Some(asked) = reading.answer_purpose(tag) {
                    self.read_on(asked, event, cx);
                }
            }
            State::Writing(writing) if writing.closing == Some(tag) => {
                let piece = writing.piece;
                self.handle_closed_piece(piece, event, cx);
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
        self.become_ready();
        match (asked, event) {
            (_, StreamEvent::Refused(_, denied)) => self.refuse_pending(denied),
            (_, StreamEvent::Failed(_, failure)) => self.refuse_pending(failure),
            (PendingRequest::Open, StreamEvent::Done(_, StreamOutcome::Opened { stream, at })) => {
                self.opened(stream, at, cx);
            }
            (PendingRequest::Trim, StreamEvent::Done(_, StreamOutcome::Trimmed { start })) => {
                self.answer_pending(&Answer::Done { position: start });
            }
            (PendingRequest::Retain(name), StreamEvent::Done(_, StreamOutcome::Retained)) => {
                let info = cx.streams().ok().and_then(|streams| streams.info(&name));
                let position = info.map_or(0, |info| info.start);
                self.answer_pending(&Answer::Done { position });
            }
            (PendingRequest::Remove, StreamEvent::Done(_, StreamOutcome::Removed)) => {
                self.answer_pending(&Answer::Done { position: 0 });
            }
            (PendingRequest::Stat(name), StreamEvent::UpToDate(_)) => {
                match cx.streams().map(|streams| streams.info(&name)) {
                    Ok(Some(info)) => self.answer_pending(&Answer::Info(shown(&info))),
                    Ok(None) => self.refuse_pending(Refusal::unknown()),
                    Err(failure) => self.refuse_pending(failure),
                }
            }
            (PendingRequest::List(after), StreamEvent::UpToDate(_)) => {
                self.state = State::Listing(after);
                self.list(cx);
            }
            // The answer is of the wrong kind, so the outcome is unknown.
            _ => self.refuse_pending(Failure::Unknown),
        }
    }

    fn opened(&mut self, piece: StreamName, position: u64, cx: &mut Cx<'_>) {
        cx.shared.pieces.insert(piece, self.id);
        self.queue_answer(&Answer::Opened { position });
        self.state = State::Writing(Writing {
            piece,
            durable: position,
            is_untold: false,
            full: false,
            closing: None,
        });
    }

    fn handle_closed_piece(&mut self, piece: StreamName, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        cx.shared.pieces.remove(&piece);
        match event {
            StreamEvent::Done(_, StreamOutcome::Closed { at }) => {
                self.answer_pending(&Answer::Closed { position: at });
            }
            StreamEvent::Refused(_, denied) => self.refuse_pending(denied),
            other => {
                cx.abandon(piece);
                self.refuse_pending(match other {
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
        let room = cx.streams().map_or(0, |streams| streams.available_bytes(writing.piece));
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
            cx.drop_request(tag);
        }
        self.queue_answer(&Answer::Ended { position });
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
            Err(failure) => return self.refuse_pending(failure),
        };
        let (output, mut last, mut more) = (&mut self.output, None, false);
        streams.visit_infos(after.as_ref(), &mut |info| {
            more = output.len() > LIST_BYTES_SOFT;
            if !more {
                output.queue_answer(&Answer::Info(shown(&info)));
                last = Some(info.name);
            }
            !more
        });
        if last.is_some() {
            *after = last;
        }
        if !more {
            self.answer_pending(&Answer::ListEnd);
        }
    }

    fn read_on(&mut self, asked: AnswerPurpose, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        let info = cx.streams().map(|streams| streams.info(&reading.name));
        let info = match info {
            Ok(info) => info,
            Err(failure) => return self.refuse_pending(failure),
        };
        let is_same = info.as_ref().is_some_and(|info| reading.is_of(info));
        let next = match (asked, event) {
            (_, StreamEvent::Failed(_, failure)) => return self.refuse_pending(failure),
            (AnswerPurpose::Look, StreamEvent::UpToDate(_)) => {
                if let Err(refusal) = reading.start_reading(info.as_ref()) {
                    return self.refuse_pending(refusal);
                }
                reading.end_wait();
                return self.go_on(cx);
            }
            (AnswerPurpose::Wait, StreamEvent::UpToDate(_)) => {
                reading.end_wait();
                return self.go_on(cx);
            }
            _ if !is_same => NextAction::Refuse(Refusal::replaced()),
            (AnswerPurpose::Fetch(number), StreamEvent::Bytes(_, bytes)) if !bytes.is_empty() => {
                return self.fetched(number, bytes, cx);
            }
            (AnswerPurpose::Fetch(_), StreamEvent::NoBytes(_, nowhere)) => reading.nowhere(nowhere),
            _ => return self.refuse_pending(Failure::Unknown),
        };
        self.take_action(next, cx);
    }

    /// Handles the bytes returned by a read. Requests the bytes that it did not return, and sends
    /// the bytes that are next in order.
    fn fetched(&mut self, number: usize, bytes: &Blocks, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        if let Some((from, bytes)) = reading.record_arrived(number, bytes) {
            match ask_to_read(self.id, reading, (from, bytes), cx) {
                Ok(tag) => reading.fetch_missing(number, tag, bytes),
                Err(failure) => return self.refuse_pending(failure),
            }
        }
        while let Some((position, bytes)) = reading.next_bytes() {
            self.output.say_bytes(position, &bytes);
        }
        self.go_on(cx);
    }

    /// Requests further bytes while there is space for them.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if let Err(refusal) = cx.check_role(&self.login, Role::Reader) {
            return self.refuse_pending(refusal);
        }
        loop {
            let room = self.room(cx.shared);
            let State::Reading(reading) = &mut self.state else {
                return;
            };
            let next = match cx.streams().map(|streams| streams.info(&reading.name)) {
                Ok(info) => reading.next_action(info.as_ref(), room),
                Err(failure) => return self.refuse_pending(failure),
            };
            let asks = matches!(next, NextAction::Fetch { .. });
            self.take_action(next, cx);
            if !asks {
                return;
            }
        }
    }

    fn take_action(&mut self, next: NextAction, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        let asked = match next {
            NextAction::Send => return,
            NextAction::Fetch { from, bytes } => ask_to_read(self.id, reading, (from, bytes), cx)
                .map(|tag| reading.record_fetch(tag, bytes)),
            NextAction::Wait(position) => {
                let name = &reading.name;
                cx.make_request(Owner::Follower(self.id), |streams, tag| {
                    streams.wait_for_bytes(tag, name, position)
                })
                .map(|tag| reading.record_wait(tag))
            }
            NextAction::End { position, finished } => {
                return self.answer_pending(&Answer::End { position, finished });
            }
            NextAction::Refuse(refusal) => return self.refuse_pending(refusal),
        };
        if let Err(failure) = asked {
            self.refuse_pending(failure);
        }
    }
}

fn ask_to_read(
    id: ConnectionId,
    reading: &ClientRead,
    (from, bytes): (u64, usize),
    cx: &mut Cx<'_>,
) -> Result<StreamTag, Failure> {
    cx.make_request(Owner::Connection(id), |streams, tag| {
        streams.read(tag, &reading.name, from, bytes)
    })
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
