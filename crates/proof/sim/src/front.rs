//! Fronts between a simulated node and its clients: the Redis front of production, one of commands
//! whose clients ask for another class than the group's, and a front of byte streams without a
//! protocol, which passes requests of clients to the replica and records the replies.

use std::collections::BTreeMap;

use quorate_core::{slot::Slot, value::StreamName};
use quorate_kv::front::RespFront;
use quorate_replica::{
    front::{Completion, ConnectionId, Endpoints, Failure, Front, Requests, State, Tag},
    stream_front::{StreamEvent, StreamRequests, StreamTag},
    testing::Heard,
};
use quorate_stream::{Done, How, Name, Writer};

use crate::workload::{content, frame_client::increment};

/// Request of a client of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A piece for writing.
    Open(Name, How, Writer),
    /// This many more bytes of a piece, as [`content`] generates them.
    Give(StreamName, u64),
    /// The end of a piece, and with `true` of the stream.
    Close(StreamName, bool),
    /// The stream is to start here.
    Trim(Name, u64),
    /// The stream is to be forgotten.
    Remove(Name),
    /// Asks whether the table has all that was acknowledged.
    Look,
    /// At most this many bytes from this position on.
    Read(Name, u64, usize),
    /// Waits for data at this position.
    Wait(Name, u64),
    /// Nothing any more: the connection is closed.
    Leave,
}

/// Note for the checkers, in order.
#[derive(Clone, Debug)]
pub enum Note {
    /// A piece was opened, with this key of its content.
    Keyed(StreamName, u64),
    /// Bytes of a piece below this position were handed to its owner.
    Given(StreamName, u64),
    /// A client asks for something that can be checked.
    Asked(StreamTag, Question),
    /// A client asks that this stream is removed.
    Removing(Name),
    /// The replica said this about a request, of this piece if it has one; for a client that is
    /// there or not.
    Heard(Option<ConnectionId>, Option<StreamName>, Heard),
}

/// Question of a client, on the stream of this name that was created in this slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The table has all that was acknowledged.
    Look,
    /// Bytes from this position on.
    Read(Option<(Name, u64)>, u64),
    /// There is data at this position.
    Wait(Option<(Name, u64)>, u64),
}

/// A piece that a client writes through this node.
#[derive(Debug)]
struct Feed {
    connection: ConnectionId,
    key: u64,
    /// Positions below were handed to the replica, and are to be.
    given: u64,
    wanted: u64,
    /// End of the piece once all is handed over.
    close: Option<(StreamTag, bool)>,
}

/// Origin of a request.
#[derive(Debug)]
struct Asked {
    connection: Option<ConnectionId>,
    piece: Option<StreamName>,
    key: u64,
}

/// The front of byte streams.
#[derive(Debug, Default)]
pub struct StreamSide {
    asked: BTreeMap<StreamTag, Asked>,
    feeds: BTreeMap<StreamName, Feed>,
    notes: Vec<Note>,
}

impl StreamSide {
    /// Takes the notes for the checkers since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Handles a request of a client.
    pub fn ask(
        &mut self,
        connection: ConnectionId,
        tag: StreamTag,
        ask: Ask,
        requests: &mut dyn Requests,
    ) {
        let Some(streams) = requests.streams() else {
            return;
        };
        let mut asked = Asked { connection: Some(connection), piece: None, key: 0 };
        if let Ask::Open(name, _, writer) = &ask {
            asked.key = content::key(name, *writer);
        }
        if let Ask::Close(piece, _) = ask {
            asked.piece = Some(piece);
        }
        if !matches!(ask, Ask::Give(..) | Ask::Leave) {
            self.asked.insert(tag, asked);
        }
        let outcome = match ask {
            Ask::Open(name, how, writer) => streams.open(tag, &name, how, writer),
            Ask::Give(piece, bytes) => {
                if let Some(feed) = self.feeds.get_mut(&piece) {
                    feed.wanted += bytes;
                }
                self.feed(piece, streams);
                Ok(())
            }
            Ask::Close(piece, finish) => match self.feeds.get_mut(&piece) {
                Some(feed) => {
                    feed.close = Some((tag, finish));
                    self.feed(piece, streams);
                    Ok(())
                }
                None => Err(Failure::Unknown),
            },
            Ask::Trim(name, before) => streams.trim(tag, &name, before),
            Ask::Remove(name) => {
                self.notes.push(Note::Removing(name.clone()));
                streams.remove(tag, &name)
            }
            Ask::Look => {
                self.notes.push(Note::Asked(tag, Question::Look));
                streams.look(tag)
            }
            Ask::Read(name, position, bytes_max) => {
                let id = streams.info(&name).map(|info| (info.name, info.id));
                let question = Question::Read(id, position);
                self.notes.push(Note::Asked(tag, question));
                streams.read(tag, &name, position, bytes_max)
            }
            Ask::Wait(name, position) => {
                let id = streams.info(&name).map(|info| (info.name, info.id));
                let question = Question::Wait(id, position);
                self.notes.push(Note::Asked(tag, question));
                streams.wait(tag, &name, position)
            }
            Ask::Leave => {
                self.leave(connection, streams);
                Ok(())
            }
        };
        if let Err(failure) = outcome {
            self.hear(Heard::Failed(tag, failure), streams);
        }
    }

    /// Handles the end of a connection: its pieces are given up, and its pending requests are
    /// forgotten.
    fn leave(&mut self, connection: ConnectionId, streams: &mut dyn StreamRequests) {
        for (tag, asked) in &mut self.asked {
            if asked.connection == Some(connection) {
                asked.connection = None;
                streams.forget(*tag);
            }
        }
        let feeds = &mut self.feeds;
        feeds.retain(|piece, feed| {
            let stays = feed.connection != connection;
            if !stays {
                streams.abandon(*piece);
            }
            stays
        });
    }

    /// Hands over what there is room for.
    fn feed(&mut self, piece: StreamName, streams: &mut dyn StreamRequests) {
        let Some(feed) = self.feeds.get_mut(&piece) else {
            return;
        };
        let room = streams.room(piece) as u64;
        let most = (feed.wanted - feed.given).min(room);
        if most > 0 {
            let bytes = content::bytes(feed.key, piece, feed.given..feed.given + most);
            // By both ways.
            let taken = match feed.given % 2 {
                0 => streams.put(piece, &bytes),
                _ => streams.fill(piece, bytes.len(), &mut |room| {
                    let count = room.len().min(bytes.len());
                    room[..count].copy_from_slice(&bytes[..count]);
                    count
                }),
            };
            feed.given += taken as u64;
            self.notes.push(Note::Given(piece, feed.given));
        }
        if feed.given == feed.wanted
            && let Some((tag, finish)) = feed.close.take()
        {
            self.feeds.remove(&piece);
            if let Err(failure) = streams.close(tag, piece, finish) {
                self.hear(Heard::Failed(tag, failure), streams);
            }
        }
    }

    fn hear(&mut self, heard: Heard, streams: &mut dyn StreamRequests) {
        let tag = match heard {
            Heard::Done(tag, _)
            | Heard::Refused(tag, _)
            | Heard::Failed(tag, _)
            | Heard::Looked(tag)
            | Heard::Bytes(tag, _)
            | Heard::Nowhere(tag, _) => tag,
            Heard::Durable(piece, _) => {
                let feed = self.feeds.get(&piece);
                let connection = feed.map(|feed| feed.connection);
                self.notes.push(Note::Heard(connection, Some(piece), heard));
                return self.feed(piece, streams);
            }
            Heard::Ended(piece, _) => {
                let feed = self.feeds.remove(&piece);
                if let Some((tag, _)) = feed.as_ref().and_then(|feed| feed.close) {
                    self.hear(Heard::Failed(tag, Failure::Unknown), streams);
                }
                let connection = feed.map(|feed| feed.connection);
                self.notes.push(Note::Heard(connection, Some(piece), heard));
                return;
            }
        };
        let Some(asked) = self.asked.remove(&tag) else {
            // The client left, or it is answered twice, of which the checkers are to learn.
            self.notes.push(Note::Heard(None, None, heard));
            return;
        };
        let mut piece = asked.piece;
        if let Heard::Done(_, Done::Opened { stream, .. }) = heard {
            piece = Some(stream);
            self.notes.push(Note::Keyed(stream, asked.key));
            match asked.connection {
                Some(connection) => {
                    let feed =
                        Feed { connection, key: asked.key, given: 0, wanted: 0, close: None };
                    self.feeds.insert(stream, feed);
                }
                None => streams.abandon(stream),
            }
        }
        self.notes.push(Note::Heard(asked.connection, piece, heard));
    }

    fn streamed(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        let heard = match event {
            StreamEvent::Done(tag, done) => Heard::Done(tag, done),
            StreamEvent::Refused(tag, denied) => Heard::Refused(tag, denied),
            StreamEvent::Failed(tag, failure) => Heard::Failed(tag, failure),
            StreamEvent::Looked(tag) => Heard::Looked(tag),
            StreamEvent::Bytes(tag, bytes) => Heard::Bytes(tag, bytes.to_vec()),
            StreamEvent::Nowhere(tag, nowhere) => Heard::Nowhere(tag, nowhere),
            StreamEvent::Durable(piece, position) => Heard::Durable(piece, position),
            StreamEvent::Ended(piece, position) => Heard::Ended(piece, position),
        };
        if let Some(streams) = requests.streams() {
            self.hear(heard, streams);
        }
    }
}

/// Returns the command of a client that asks for another class.
pub(crate) fn class_command(number: u64) -> Vec<u8> {
    increment(&format!("class.{number}"))
}

/// Notification of clients of [`ClassSide`] about their commands, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// A quorum has it in memory, in this slot.
    InMemory(u64, Slot),
    /// The command was executed, and is as safe as requested.
    Executed(u64),
}

/// The front of commands whose clients ask for another class than the group's.
#[derive(Debug, Default)]
pub(crate) struct ClassSide {
    told: Vec<Told>,
}

impl ClassSide {
    /// Tags of others are below.
    const TAGS: u64 = 1 << 63;

    /// Requests to be notified `early`, or when it lasts.
    pub(crate) fn ask(&mut self, number: u64, early: bool, requests: &mut dyn Requests) {
        let (tag, command) = (Tag(Self::TAGS | number), class_command(number));
        // A refused client gets no notification.
        let _ = match early {
            true => requests.write_early(tag, &command),
            false => requests.write_lasting(tag, None, &command),
        };
    }

    /// Takes the notifications since the last call.
    pub(crate) fn take_told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Records a completion. Returns whether it is for one of these clients.
    fn hear(&mut self, completion: &Completion<'_>) -> bool {
        let (tag, told) = match completion {
            Completion::InMemory(tag, slot) => {
                (tag, Some(Told::InMemory(tag.0 ^ Self::TAGS, *slot)))
            }
            Completion::Written(tag, _) => (tag, Some(Told::Executed(tag.0 ^ Self::TAGS))),
            Completion::Failed(tag, _) => (tag, None),
            _ => return false,
        };
        let own = tag.0 >= Self::TAGS;
        self.told.extend(told.filter(|_| own));
        own
    }
}

/// All fronts of a node.
pub struct Fronts {
    commands: RespFront,
    /// Front of other classes than the group's.
    pub(crate) classes: ClassSide,
    /// The one of byte streams.
    pub streams: StreamSide,
}

impl Fronts {
    /// Combines this front of commands with the others.
    pub fn new(commands: RespFront) -> Self {
        Self { commands, classes: ClassSide::default(), streams: StreamSide::default() }
    }
}

impl Front for Fronts {
    fn opened(&mut self, connection: ConnectionId, ends: Endpoints, requests: &mut dyn Requests) {
        self.commands.opened(connection, ends, requests);
    }

    fn received(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize {
        self.commands.received(connection, bytes, requests)
    }

    fn ready(&self, connection: ConnectionId) -> bool {
        self.commands.ready(connection)
    }

    fn completed(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        if !self.classes.hear(&completion) {
            self.commands.completed(completion, requests);
        }
    }

    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        self.commands.read_now(tag, state);
    }

    fn streamed(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        self.streams.streamed(event, requests);
    }

    fn notice(&mut self, subject: &[u8], message: &[u8]) {
        self.commands.notice(subject, message);
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        self.commands.next_dirty()
    }

    fn output(&mut self, connection: ConnectionId) -> &[u8] {
        self.commands.output(connection)
    }

    fn sent(&mut self, connection: ConnectionId, count: usize) {
        self.commands.sent(connection, count);
    }

    fn held_bytes(&self) -> usize {
        self.commands.held_bytes()
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        self.commands.held_bytes_of(connection)
    }

    fn closing(&self, connection: ConnectionId) -> bool {
        self.commands.closing(connection)
    }

    fn closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.commands.closed(connection, requests);
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        self.commands.is_busy(connection)
    }

    fn open_requests(&self) -> usize {
        self.commands.open_requests()
    }

    fn connections(&self) -> usize {
        self.commands.connections()
    }

    fn poll(&mut self, requests: &mut dyn Requests) {
        self.commands.poll(requests);
    }
}
