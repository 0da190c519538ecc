//! What the replica says.

use quorate_access::Role;
use quorate_core::value::StreamName;
use quorate_replica::{
    front::Failure,
    stream_front::{StreamEvent, StreamTag},
};
use quorate_stream::{Done, Info};
use quorate_wire::streams::{self as wire, Answer, BYTES_MAX};

use super::{Asked, Connection, LIST_BYTES_SOFT, State, Writing};
use crate::streams::{
    reading::{Next, Step},
    refusal::Refusal,
    shared::{Cx, Owner},
};

// One read is one frame.
const _: () = assert!(super::FETCH_BYTES_MAX <= BYTES_MAX);

impl Connection {
    /// A request of this connection ended; it was answered under `tag`.
    pub(crate) fn answered(&mut self, tag: StreamTag, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match &self.state {
            State::Reading(reading) if reading.step.tag() == Some(tag) => self.read_on(event, cx),
            State::Writing(writing) if writing.closing == Some(tag) => {
                let piece = writing.piece;
                self.closed(piece, event, cx);
            }
            State::Asked(asked, _) if *asked == tag => self.on_answer(event, cx),
            // It was for something that is over.
            _ => {}
        }
    }

    fn on_answer(&mut self, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let State::Asked(_, asked) = std::mem::replace(&mut self.state, State::Strange) else {
            return;
        };
        self.rest();
        match (asked, event) {
            (_, StreamEvent::Refused(_, denied)) => self.refuse(denied),
            (_, StreamEvent::Failed(_, failure)) => self.refuse(failure),
            (Asked::Open, StreamEvent::Done(_, Done::Opened { stream, at })) => {
                self.opened(stream, at, cx);
            }
            (Asked::Trim, StreamEvent::Done(_, Done::Trimmed { start })) => {
                self.answer(&Answer::Done { position: start });
            }
            (Asked::Retain(name), StreamEvent::Done(_, Done::Retained)) => {
                let info = cx.streams().ok().and_then(|streams| streams.info(&name));
                let position = info.map_or(0, |info| info.start);
                self.answer(&Answer::Done { position });
            }
            (Asked::Remove, StreamEvent::Done(_, Done::Removed)) => {
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
            // An answer to another question. Not known to be done is all that can be said.
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
            StreamEvent::Done(_, Done::Closed { at }) => {
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

    /// All below is durable.
    pub(crate) fn durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        if let State::Writing(writing) = &mut self.state {
            // A client relies on it that positions never go back.
            writing.is_untold |= position > writing.durable;
            writing.durable = writing.durable.max(position);
        }
        self.look_for_room(cx);
    }

    /// Whether there is room for what was not taken.
    pub(crate) fn look_for_room(&mut self, cx: &mut Cx<'_>) {
        if let State::Writing(writing) = &mut self.state
            && writing.full
            && let Ok(streams) = cx.streams()
        {
            writing.full = streams.room(writing.piece) == 0;
        }
    }

    pub(crate) const fn is_full(&self) -> bool {
        matches!(&self.state, State::Writing(writing) if writing.full)
    }

    /// Somebody else ended the piece.
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
        // A close that was taken is answered by this.
        self.become_idle(closing.is_none());
    }

    /// There is room in the output.
    pub(crate) fn feed(&mut self, cx: &mut Cx<'_>) {
        self.hungry = false;
        match &self.state {
            State::Listing(_) => self.list(cx),
            State::Reading(reading) if reading.is_sending() => self.go_on(cx),
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
                Answer::Info(shown(&info)).encode(output);
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

    fn read_on(&mut self, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        let info = cx.streams().map(|streams| streams.info(&reading.name));
        let info = match info {
            Ok(info) => info,
            Err(failure) => return self.refuse(failure),
        };
        let is_same = info.as_ref().is_some_and(|info| reading.is_of(info));
        let next = match (reading.step, event) {
            (_, StreamEvent::Failed(_, failure)) => return self.refuse(failure),
            (Step::Looking(_), StreamEvent::Looked(_)) => match reading.begin(info.as_ref()) {
                Ok(()) => return self.go_on(cx),
                Err(refusal) => return self.refuse(refusal),
            },
            (Step::Waiting(_), StreamEvent::Looked(_)) => return self.go_on(cx),
            _ if !is_same => Next::Refuse(Refusal::replaced()),
            (Step::Fetching(..), StreamEvent::Bytes(_, bytes)) if !bytes.is_empty() => {
                let position = reading.position;
                reading.position += bytes.len() as u64;
                Answer::Bytes { position, bytes }.encode(&mut self.output);
                return self.go_on(cx);
            }
            (Step::Fetching(..), StreamEvent::Nowhere(_, nowhere)) => reading.nowhere(nowhere),
            _ => return self.refuse(Failure::Unknown),
        };
        self.step(next, cx);
    }

    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if let Err(refusal) = cx.check(&self.login, Role::Reader) {
            return self.refuse(refusal);
        }
        let room = self.room(cx.shared);
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        match cx.streams().map(|streams| streams.info(&reading.name)) {
            Ok(info) => {
                let next = reading.next(info.as_ref(), room);
                self.step(next, cx);
            }
            Err(failure) => self.refuse(failure),
        }
    }

    fn step(&mut self, next: Next, cx: &mut Cx<'_>) {
        let State::Reading(reading) = &mut self.state else {
            return;
        };
        let (name, position) = (&reading.name, reading.position);
        let step = match next {
            Next::Send => Ok(Step::Sending),
            Next::Fetch(most) => cx
                .ask(Owner::Connection(self.id), |streams, tag| {
                    streams.read(tag, name, position, most)
                })
                .map(|tag| Step::Fetching(tag, most)),
            Next::Wait => cx
                .ask(Owner::Follower(self.id), |streams, tag| {
                    streams.wait(tag, name, position)
                })
                .map(Step::Waiting),
            Next::End { finished } => return self.answer(&Answer::End { position, finished }),
            Next::Refuse(refusal) => return self.refuse(refusal),
        };
        match step {
            Ok(step) => reading.step = step,
            Err(failure) => self.refuse(failure),
        }
    }
}

/// As a client is told.
fn shown(info: &Info) -> wire::Info<'_> {
    wire::Info {
        id: info.id,
        finished: info.finished,
        writing: info.writing,
        start: info.start,
        end: info.end,
        pieces: u32::try_from(info.pieces).unwrap_or(u32::MAX),
        created_ms: info.created_ms,
        keep: wire::Keep {
            bytes: info.keep.bytes,
            age_ms: info.keep.age_ms,
        },
        name: info.name.as_str(),
    }
}
