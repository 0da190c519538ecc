//! Events that the replica reports to a connection.

use quorate_access::Role;
use quorate_core::value::StreamName;
use quorate_log::disk::Blocks;
use quorate_replica::{
    front::{ConnectionId, Failure},
    stream_front::{StreamEvent, StreamTag},
};
use quorate_stream::{StreamInfo, StreamOutcome};
use quorate_wire::streams::{self as wire, NodeFrame};

use super::{Connection, ConnectionState, LIST_BYTES_SOFT, PendingRequest, PieceWriter};
use crate::streams::{
    reading::{AnswerPurpose, ClientRead, NextAction},
    refusal::Refusal,
    shared::{Cx, RequestOwner},
};

impl Connection {
    pub(crate) fn on_stream_event(
        &mut self,
        tag: StreamTag,
        event: StreamEvent<'_>,
        cx: &mut Cx<'_>,
    ) {
        match &self.state {
            ConnectionState::Reading(reading) => {
                if let Some(asked) = reading.answer_purpose(tag) {
                    self.continue_read(asked, event, cx);
                }
            }
            ConnectionState::Writing(writing) if writing.close_tag == Some(tag) => {
                let piece = writing.piece;
                self.handle_closed_piece(piece, event, cx);
            }
            ConnectionState::AwaitingReplica(asked, _) if *asked == tag => {
                self.on_answer(event, cx)
            }
            // The answer belongs to an abandoned request.
            _ => {}
        }
    }

    fn on_answer(&mut self, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let ConnectionState::AwaitingReplica(_, asked) =
            std::mem::replace(&mut self.state, ConnectionState::AwaitingHello)
        else {
            return;
        };
        self.become_ready();
        match (asked, event) {
            (_, StreamEvent::Refused(_, denied)) => self.refuse_pending(denied),
            (_, StreamEvent::Failed(_, failure)) => self.refuse_pending(failure),
            (
                PendingRequest::Open,
                StreamEvent::Executed(_, StreamOutcome::Opened { stream, start_position: at }),
            ) => {
                self.on_opened(stream, at, cx);
            }
            (PendingRequest::Trim, StreamEvent::Executed(_, StreamOutcome::Trimmed { start })) => {
                self.answer_pending(&NodeFrame::Done { position: start });
            }
            (PendingRequest::Retain(name), StreamEvent::Executed(_, StreamOutcome::Retained)) => {
                let info = cx.stream_requests().ok().and_then(|streams| streams.stream_info(&name));
                let position = info.map_or(0, |info| info.start);
                self.answer_pending(&NodeFrame::Done { position });
            }
            (PendingRequest::Remove, StreamEvent::Executed(_, StreamOutcome::Removed)) => {
                self.answer_pending(&NodeFrame::Done { position: 0 });
            }
            (PendingRequest::Stat(name), StreamEvent::UpToDate(_)) => {
                match cx.stream_requests().map(|streams| streams.stream_info(&name)) {
                    Ok(Some(info)) => self.answer_pending(&NodeFrame::Info(to_wire_info(&info))),
                    Ok(None) => self.refuse_pending(Refusal::unknown_stream()),
                    Err(failure) => self.refuse_pending(failure),
                }
            }
            (PendingRequest::List(after), StreamEvent::UpToDate(_)) => {
                self.state = ConnectionState::Listing(after);
                self.send_list(cx);
            }
            // The answer is of the wrong kind, so the outcome is unknown.
            _ => self.refuse_pending(Failure::Unknown),
        }
    }

    fn on_opened(&mut self, piece: StreamName, position: u64, cx: &mut Cx<'_>) {
        cx.shared.piece_writers.insert(piece, self.id);
        self.queue_answer(&NodeFrame::Opened { position });
        self.state = ConnectionState::Writing(PieceWriter {
            piece,
            durable_to: position,
            has_unsent_durable: false,
            is_out_of_space: false,
            close_tag: None,
        });
    }

    fn handle_closed_piece(&mut self, piece: StreamName, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        cx.shared.piece_writers.remove(&piece);
        match event {
            StreamEvent::Executed(_, StreamOutcome::Closed { end_position: at }) => {
                self.answer_pending(&NodeFrame::Closed { position: at });
            }
            StreamEvent::Refused(_, denied) => self.refuse_pending(denied),
            other => {
                cx.abandon_piece(piece);
                self.refuse_pending(match other {
                    StreamEvent::Failed(_, failure) => failure,
                    _ => Failure::Unknown,
                });
            }
        }
    }

    /// Records that all bytes before `position` are durable.
    pub(crate) fn on_durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        if let ConnectionState::Writing(writing) = &mut self.state {
            // Clients rely on positions that never decrease.
            writing.has_unsent_durable |= position > writing.durable_to;
            writing.durable_to = writing.durable_to.max(position);
        }
        self.regained_space(cx);
    }

    pub(crate) fn regained_space(&mut self, cx: &mut Cx<'_>) -> usize {
        let ConnectionState::Writing(writing) = &mut self.state else {
            return 0;
        };
        if !writing.is_out_of_space {
            return 0;
        }
        let room = cx.stream_requests().map_or(0, |streams| streams.available_bytes(writing.piece));
        writing.is_out_of_space = room == 0;
        room
    }

    pub(crate) const fn is_full(&self) -> bool {
        matches!(&self.state, ConnectionState::Writing(writing) if writing.is_out_of_space)
    }

    /// Called when another writer or an operator has ended the piece that this client writes.
    pub(crate) fn on_piece_ended(&mut self, position: u64, cx: &mut Cx<'_>) {
        let ConnectionState::Writing(writing) = &self.state else {
            return;
        };
        cx.shared.piece_writers.remove(&writing.piece);
        let closing = writing.close_tag;
        if let Some(tag) = closing {
            cx.drop_request(tag);
        }
        self.queue_answer(&NodeFrame::Ended { position });
        // This also answers a close in flight.
        self.become_idle(closing.is_none());
    }

    pub(crate) fn continue_output(&mut self, cx: &mut Cx<'_>) {
        self.is_queued_to_fetch = false;
        match &self.state {
            ConnectionState::Listing(_) => self.send_list(cx),
            ConnectionState::Reading(reading) if reading.wants_to_fetch() => self.fetch_more(cx),
            _ => {}
        }
    }

    fn send_list(&mut self, cx: &mut Cx<'_>) {
        let ConnectionState::Listing(after) = &mut self.state else {
            return;
        };
        let streams = match cx.stream_requests() {
            Ok(streams) => streams,
            Err(failure) => return self.refuse_pending(failure),
        };
        let (output, mut last, mut more) = (&mut self.output, None, false);
        streams.visit_infos(after.as_ref(), &mut |info| {
            more = output.len() > LIST_BYTES_SOFT;
            if !more {
                output.queue_answer(&NodeFrame::Info(to_wire_info(&info)));
                last = Some(info.name);
            }
            !more
        });
        if last.is_some() {
            *after = last;
        }
        if !more {
            self.answer_pending(&NodeFrame::ListEnd);
        }
    }

    fn continue_read(&mut self, asked: AnswerPurpose, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        let ConnectionState::Reading(reading) = &mut self.state else {
            return;
        };
        let info = cx.stream_requests().map(|streams| streams.stream_info(&reading.name));
        let info = match info {
            Ok(info) => info,
            Err(failure) => return self.refuse_pending(failure),
        };
        let is_same = info.as_ref().is_some_and(|info| reading.reads_from(info));
        let next = match (asked, event) {
            (_, StreamEvent::Failed(_, failure)) => return self.refuse_pending(failure),
            (AnswerPurpose::TableUpdate, StreamEvent::UpToDate(_)) => {
                if let Err(refusal) = reading.start_reading(info.as_ref()) {
                    return self.refuse_pending(refusal);
                }
                reading.end_wait();
                return self.fetch_more(cx);
            }
            (AnswerPurpose::StreamGrowth, StreamEvent::UpToDate(_)) => {
                reading.end_wait();
                return self.fetch_more(cx);
            }
            _ if !is_same => NextAction::Refuse(Refusal::stream_deleted()),
            (AnswerPurpose::Fetch(number), StreamEvent::Bytes(_, bytes)) if !bytes.is_empty() => {
                return self.on_fetched(number, bytes, cx);
            }
            (AnswerPurpose::Fetch(_), StreamEvent::NoBytes(_, nowhere)) => {
                reading.action_without_bytes(nowhere)
            }
            _ => return self.refuse_pending(Failure::Unknown),
        };
        self.run_action(next, cx);
    }

    /// Handles the bytes returned by a read. Requests the bytes that it did not return, and sends
    /// the bytes that are next in order.
    fn on_fetched(&mut self, number: usize, bytes: &Blocks, cx: &mut Cx<'_>) {
        let ConnectionState::Reading(reading) = &mut self.state else {
            return;
        };
        if let Some((from, bytes)) = reading.record_arrived(number, bytes) {
            match request_read(self.id, reading, (from, bytes), cx) {
                Ok(tag) => reading.fetch_missing(number, tag, bytes),
                Err(failure) => return self.refuse_pending(failure),
            }
        }
        while let Some((position, bytes)) = reading.next_bytes() {
            self.output.queue_shared_bytes(position, &bytes);
        }
        self.fetch_more(cx);
    }

    /// Requests further bytes while there is space for them.
    fn fetch_more(&mut self, cx: &mut Cx<'_>) {
        if let Err(refusal) = cx.check_role(&self.login, Role::Reader) {
            return self.refuse_pending(refusal);
        }
        loop {
            let room = self.input_space(cx.shared);
            let ConnectionState::Reading(reading) = &mut self.state else {
                return;
            };
            let next = match cx.stream_requests().map(|streams| streams.stream_info(&reading.name))
            {
                Ok(info) => reading.next_action(info.as_ref(), room),
                Err(failure) => return self.refuse_pending(failure),
            };
            let asks = matches!(next, NextAction::Fetch { .. });
            self.run_action(next, cx);
            if !asks {
                return;
            }
        }
    }

    fn run_action(&mut self, next: NextAction, cx: &mut Cx<'_>) {
        let ConnectionState::Reading(reading) = &mut self.state else {
            return;
        };
        let asked = match next {
            NextAction::Send => return,
            NextAction::Fetch { from, bytes } => request_read(self.id, reading, (from, bytes), cx)
                .map(|tag| reading.record_fetch(tag, bytes)),
            NextAction::Wait(position) => {
                let name = &reading.name;
                cx.make_request(RequestOwner::Follower(self.id), |streams, tag| {
                    streams.wait_for_bytes(tag, name, position)
                })
                .map(|tag| reading.record_wait(tag))
            }
            NextAction::End { position, is_finished: finished } => {
                return self.answer_pending(&NodeFrame::End { position, finished });
            }
            NextAction::Refuse(refusal) => return self.refuse_pending(refusal),
        };
        if let Err(failure) = asked {
            self.refuse_pending(failure);
        }
    }
}

fn request_read(
    id: ConnectionId,
    reading: &ClientRead,
    (from, bytes): (u64, usize),
    cx: &mut Cx<'_>,
) -> Result<StreamTag, Failure> {
    cx.make_request(RequestOwner::Connection(id), |streams, tag| {
        streams.read(tag, &reading.name, from, bytes)
    })
}

/// Converts a stream's description to its wire form.
fn to_wire_info(info: &StreamInfo) -> wire::Info<'_> {
    wire::Info {
        id: info.id,
        finished: info.finished,
        open_stream: info.open_stream,
        start: info.start,
        next_position: info.end,
        piece_count: u32::try_from(info.pieces).unwrap_or(u32::MAX),
        created_ms: info.created_ms,
        retention: wire::Retention {
            bytes: info.retention.bytes,
            age_max_ms: info.retention.age_ms,
        },
        name: info.name.as_str(),
    }
}
