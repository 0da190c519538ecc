//! Fake replica with a real table of streams. Bytes are decided when the test allows it.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
};

use quorate_access::Users;
use quorate_core::{
    ballot::{Ballot, Era},
    effect::Role,
    node_id::{Member, NodeId},
    record::Class,
    slot::{Slot, SlotRange},
    value::StreamName,
};
use quorate_log::disk::{BlockPool, Blocks};
use quorate_replica::{
    front::{Failure, Requests, Sequenced, Tag},
    status::{DiskUse, Status},
    stream_front::{StreamEvent, StreamRequests, StreamTag},
};
use quorate_stream::{
    Command, Denied, Name, OpenMode, Retention, StreamInfo, StreamOutcome, Table, Writer,
    table::{InnerPosition, LocateError},
};

/// First slot. Slots are far above positions, so that the two cannot be confused.
const FIRST_SLOT: u64 = 1 << 40;
/// Maximum number of bytes offered for a direct read.
const FILL_BYTES: usize = 100_000;
/// Id of the fake replica's node.
const OWN: NodeId = NodeId(1);

/// A [`StreamEvent`] in owned form.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Done(StreamTag, StreamOutcome),
    Refused(StreamTag, Denied),
    Failed(StreamTag, Failure),
    Looked(StreamTag),
    Bytes(StreamTag, Blocks),
    Nowhere(StreamTag, LocateError),
    Durable(StreamName, u64),
    Ended(StreamName, u64),
}

impl Event {
    pub(crate) fn lent(&self) -> StreamEvent<'_> {
        match self {
            Self::Done(tag, done) => StreamEvent::Executed(*tag, *done),
            Self::Refused(tag, denied) => StreamEvent::Refused(*tag, *denied),
            Self::Failed(tag, failure) => StreamEvent::Failed(*tag, *failure),
            Self::Looked(tag) => StreamEvent::UpToDate(*tag),
            Self::Bytes(tag, bytes) => StreamEvent::Bytes(*tag, bytes),
            Self::Nowhere(tag, nowhere) => StreamEvent::NoBytes(*tag, *nowhere),
            Self::Durable(piece, position) => StreamEvent::Durable(*piece, *position),
            Self::Ended(piece, position) => StreamEvent::Ended(*piece, *position),
        }
    }
}

/// Requests that wait until the test executes them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum QueuedRequest {
    Command(StreamTag, Command),
    Look(StreamTag),
    Read(StreamTag, Name, u64, usize),
}

/// An open piece owned by this node.
#[derive(Debug)]
struct Piece {
    name: Name,
    /// Number of decided bytes.
    decided: usize,
}

/// The fake replica.
#[derive(Debug)]
pub(crate) struct Played {
    table: Table,
    slot: u64,
    pieces: BTreeMap<StreamName, Piece>,
    /// All bytes ever put into each piece.
    store: BTreeMap<StreamName, Vec<u8>>,
    number: u32,
    queued_requests: VecDeque<QueuedRequest>,
    position_waits: Vec<(StreamTag, Name, u64)>,
    events: VecDeque<Event>,
    /// Maximum number of undecided bytes of a piece.
    pub(crate) room: usize,
    /// Maximum number of undecided bytes of all pieces; `None` for that of one piece.
    pub(crate) shared_room: Option<usize>,
    /// Number of queries for the space of a piece.
    pub(crate) room_queries: Cell<usize>,
    /// Failure with which every call fails, if set.
    pub(crate) refuse: Option<Failure>,
    /// The replica has no streams, so there is no access to them.
    pub(crate) none: bool,
    pub(crate) leader: Option<String>,
    /// Access rights; `None` until they are known.
    pub(crate) users: Option<Users>,
    pub(crate) wall_ms: u64,
    pub(crate) dropped_tags: Vec<StreamTag>,
    pub(crate) abandoned: Vec<StreamName>,
    /// Pool of memory for reads.
    pool: BlockPool,
}

impl Default for Played {
    fn default() -> Self {
        Self {
            table: Table::default(),
            slot: FIRST_SLOT,
            pieces: BTreeMap::new(),
            store: BTreeMap::new(),
            number: 0,
            queued_requests: VecDeque::new(),
            position_waits: Vec::new(),
            events: VecDeque::new(),
            room: 64 << 10,
            shared_room: None,
            room_queries: Cell::new(0),
            refuse: None,
            none: false,
            leader: None,
            users: Some(Users::NONE),
            wall_ms: 1_000,
            dropped_tags: Vec::new(),
            abandoned: Vec::new(),
            pool: BlockPool::new(1 << 20, 2),
        }
    }
}

impl Played {
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Queues an event that has no cause.
    pub(crate) fn queue_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Removes the oldest request, which is never answered.
    pub(crate) fn swallow(&mut self) -> Option<StreamTag> {
        self.queued_requests.pop_front().map(|asked| match asked {
            QueuedRequest::Command(tag, _)
            | QueuedRequest::Look(tag)
            | QueuedRequest::Read(tag, ..) => tag,
        })
    }

    pub(crate) fn is_asked(&self) -> bool {
        !self.queued_requests.is_empty()
    }

    /// Returns the number of undecided bytes.
    pub(crate) fn undecided(&self) -> usize {
        let left =
            |(stream, piece): (&StreamName, &Piece)| self.store[stream].len() - piece.decided;
        self.pieces.iter().map(left).sum()
    }

    pub(crate) fn info(&self, name: &str) -> Option<StreamInfo> {
        self.table.info(&name.parse().unwrap())
    }

    /// Executes all requests, in order. A close takes effect after all bytes.
    pub(crate) fn execute_all(&mut self) {
        while let Some(asked) = self.queued_requests.pop_front() {
            match asked {
                QueuedRequest::Command(tag, command) => {
                    if let Command::Close { stream, .. } = &command {
                        self.decide_of(*stream, usize::MAX);
                    }
                    let event = match self.execute(&command) {
                        Ok(done) => Event::Done(tag, done),
                        Err(denied) => Event::Refused(tag, denied),
                    };
                    self.events.push_back(event);
                }
                QueuedRequest::Look(tag) => self.events.push_back(Event::Looked(tag)),
                QueuedRequest::Read(tag, name, position, most) => {
                    let event = self.read_at(tag, &name, position, most);
                    self.events.push_back(event);
                }
            }
        }
        self.answer_waits();
    }

    /// Decides the next bytes of every piece, at most `most` of each.
    pub(crate) fn decide(&mut self, most: usize) {
        for piece in self.pieces.keys().copied().collect::<Vec<_>>() {
            self.decide_of(piece, most);
        }
        self.answer_waits();
    }

    /// Executes a command as if another node had proposed it.
    pub(crate) fn elsewhere(&mut self, command: &Command) -> Result<StreamOutcome, Denied> {
        let done = self.execute(command);
        self.answer_waits();
        done
    }

    pub(crate) fn take_over(&mut self, name: &str, writer: u128) -> Result<StreamOutcome, Denied> {
        let stream = StreamName { owner: NodeId(9), boot: 1, number: self.number };
        self.number += 1;
        self.elsewhere(&Command::Open {
            name: name.parse().unwrap(),
            mode: OpenMode::Takeover,
            writer: Writer(writer),
            stream,
            now_ms: 0,
        })
    }

    fn execute(&mut self, command: &Command) -> Result<StreamOutcome, Denied> {
        self.slot += 1;
        let done = self.table.execute(Slot(self.slot), &command.encode());
        let closed = match command {
            Command::Close { stream, .. } => Some(*stream),
            _ => None,
        };
        if let (Command::Open { name, .. }, Ok(StreamOutcome::Opened { stream, .. })) =
            (command, &done)
            && stream.owner == OWN
        {
            let piece = Piece { name: name.clone(), decided: 0 };
            self.pieces.insert(*stream, piece);
            self.store.insert(*stream, Vec::new());
        }
        let (table, events) = (&self.table, &mut self.events);
        self.pieces.retain(|stream, piece| {
            let is_open = table.next_position(*stream).is_some();
            if !is_open && closed != Some(*stream) {
                // The end of the piece: the next piece begins there, or nothing is left.
                let end = table.info(&piece.name).map_or(0, |info| info.end);
                events.push_back(Event::Ended(*stream, end));
            }
            is_open
        });
        done
    }

    fn decide_of(&mut self, stream: StreamName, most: usize) {
        let Some(piece) = self.pieces.get_mut(&stream) else {
            return;
        };
        let count = most.min(self.store[&stream].len() - piece.decided) as u64;
        if count == 0 {
            return;
        }
        let offset = self.slot - piece.decided as u64;
        let range = SlotRange::new(Slot(self.slot), Slot(self.slot + count));
        let appended = self.table.append(stream, offset, range);
        assert_eq!(appended.end - appended.start, count);
        self.slot += count;
        piece.decided += usize::try_from(count).unwrap();
        let end = self.table.info(&piece.name).expect("it is open").end;
        self.events.push_back(Event::Durable(stream, end));
    }

    fn read_at(&self, tag: StreamTag, name: &Name, position: u64, most: usize) -> Event {
        match self.table.locate(name, position) {
            Ok(InnerPosition { stream, position, bytes }) => {
                let bytes = most.min(usize::try_from(bytes).unwrap());
                let from = usize::try_from(position).unwrap();
                Event::Bytes(tag, self.pool.copy_bytes(&self.store[&stream][from..from + bytes]))
            }
            Err(nowhere) => Event::Nowhere(tag, nowhere),
        }
    }

    /// Answers the requests that wait at a position at which there are bytes now.
    fn answer_waits(&mut self) {
        let (table, events) = (&self.table, &mut self.events);
        self.position_waits.retain(|(tag, name, position)| {
            let nothing = matches!(
                table.locate(name, *position),
                Err(LocateError::PastEnd { finished: false, .. })
            );
            if !nothing {
                events.push_back(Event::Looked(*tag));
            }
            nothing
        });
    }

    fn admit(&self) -> Result<(), Failure> {
        self.refuse.map_or(Ok(()), Err)
    }
}

impl StreamRequests for Played {
    fn open(
        &mut self,
        tag: StreamTag,
        name: &Name,
        how: OpenMode,
        writer: Writer,
    ) -> Result<(), Failure> {
        self.admit()?;
        self.number += 1;
        let stream = StreamName { owner: OWN, boot: 1, number: self.number };
        let open = Command::Open { name: name.clone(), mode: how, writer, stream, now_ms: 1_000 };
        self.queued_requests.push_back(QueuedRequest::Command(tag, open));
        Ok(())
    }

    fn available_bytes(&self, piece: StreamName) -> usize {
        self.room_queries.update(|asked| asked + 1);
        let Some(open) = self.pieces.get(&piece) else {
            return 0;
        };
        let undecided = self.store[&piece].len() - open.decided;
        self.room.saturating_sub(undecided)
    }

    fn shared_available_bytes(&self) -> usize {
        self.shared_room.unwrap_or(self.room)
    }

    fn put_bytes(&mut self, piece: StreamName, bytes: &[u8]) -> usize {
        assert!(bytes.len() <= self.available_bytes(piece), "more than there is room for");
        if let Some(store) = self.store.get_mut(&piece) {
            store.extend_from_slice(bytes);
        }
        bytes.len()
    }

    fn fill_from_reader(
        &mut self,
        piece: StreamName,
        bytes_max: usize,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize {
        assert!(bytes_max <= self.available_bytes(piece), "more than there is room for");
        // Less space than requested, as at the end of a piece.
        let mut memory = vec![0; bytes_max.min(FILL_BYTES)];
        let count = read(&mut memory);
        self.put_bytes(piece, &memory[..count])
    }

    fn close(&mut self, tag: StreamTag, piece: StreamName, finish: bool) -> Result<(), Failure> {
        self.admit()?;
        let close = Command::Close { stream: piece, finish };
        self.queued_requests.push_back(QueuedRequest::Command(tag, close));
        Ok(())
    }

    fn abandon_piece(&mut self, piece: StreamName) {
        self.abandoned.push(piece);
        self.decide_of(piece, usize::MAX);
        // This close was not requested by a front, so its outcome is not reported.
        self.pieces.remove(&piece);
        let _ = self.execute(&Command::Close { stream: piece, finish: false });
    }

    fn trim(&mut self, tag: StreamTag, name: &Name, before: u64) -> Result<(), Failure> {
        self.admit()?;
        let name = name.clone();
        let trim = Command::Trim { name, retain_from: before };
        self.queued_requests.push_back(QueuedRequest::Command(tag, trim));
        Ok(())
    }

    fn set_retention(
        &mut self,
        tag: StreamTag,
        name: &Name,
        keep: Retention,
    ) -> Result<(), Failure> {
        self.admit()?;
        let name = name.clone();
        let retain = Command::Retain { name, retention: keep };
        self.queued_requests.push_back(QueuedRequest::Command(tag, retain));
        Ok(())
    }

    fn remove(&mut self, tag: StreamTag, name: &Name) -> Result<(), Failure> {
        self.admit()?;
        let remove = Command::Remove { name: name.clone() };
        self.queued_requests.push_back(QueuedRequest::Command(tag, remove));
        Ok(())
    }

    fn request_table_read(&mut self, tag: StreamTag) -> Result<(), Failure> {
        self.admit()?;
        self.queued_requests.push_back(QueuedRequest::Look(tag));
        Ok(())
    }

    fn stream_info(&self, name: &Name) -> Option<StreamInfo> {
        self.table.info(name)
    }

    fn visit_infos(&self, after: Option<&Name>, each: &mut dyn FnMut(StreamInfo) -> bool) {
        let mut infos = self.table.infos(after);
        while infos.next().is_some_and(&mut *each) {}
    }

    fn read(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure> {
        self.admit()?;
        assert!(bytes_max > 0, "a read of nothing");
        let read = QueuedRequest::Read(tag, name.clone(), position, bytes_max);
        self.queued_requests.push_back(read);
        Ok(())
    }

    fn wait_for_bytes(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
    ) -> Result<(), Failure> {
        self.admit()?;
        self.position_waits.push((tag, name.clone(), position));
        self.answer_waits();
        Ok(())
    }

    fn drop_request(&mut self, tag: StreamTag) {
        self.dropped_tags.push(tag);
        self.position_waits.retain(|(waiting, ..)| *waiting != tag);
    }

    fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }
}

impl Requests for Played {
    fn write(&mut self, _: Tag, _: &[u8]) -> Result<(), Failure> {
        unreachable!("clients of streams give no commands")
    }

    fn write_once(&mut self, _: Tag, _: Sequenced, _: &[u8]) -> Result<(), Failure> {
        unreachable!("clients of streams give no commands")
    }

    fn register(&mut self, _: Tag) -> Result<(), Failure> {
        unreachable!("clients of streams have no sessions")
    }

    fn read(&mut self, _: Tag) -> Result<(), Failure> {
        unreachable!("clients of streams do not ask the service")
    }

    fn queue_read(&mut self, _: Tag) -> Result<(), Failure> {
        unreachable!("clients of streams do not ask the service")
    }

    fn drop_requests(&mut self, _: Tag) {}

    fn query(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Failure> {
        unreachable!("clients of streams do not ask the service")
    }

    fn status(&self) -> Status {
        Status {
            cluster: 7,
            member: Member::first(OWN.0),
            role: Role::Leader,
            leader: Some(OWN),
            era: Era(0),
            level: quorate_replica::status::LevelStatus::default(),
            plan: None,
            removed: false,
            ballot: Ballot::ZERO,
            decided_to: Slot(self.slot),
            applied_to: Slot(self.slot),
            durable_to: Slot(self.slot),
            class: Class::Durable,
            log_bytes: 0,
            log_start: Slot::FIRST,
            snapshot: None,
            snapshot_taking: None,
            ring: Vec::new(),
            choices: Vec::new(),
            scrub: quorate_replica::ScrubStatus::default(),
            device: None,
            disk: DiskUse::default(),
            streams: quorate_replica::status::Streams::default(),
            traffic: quorate_replica::status::Traffic::default(),
            reigns: Vec::new(),
            quorum: quorate_core::quorum::QuorumRule::Majority,
            progress: None,
            error: None,
            notices: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn users(&self) -> Option<&Users> {
        self.users.as_ref()
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    fn command_bytes_max(&self) -> usize {
        1 << 20
    }

    fn streams(&mut self) -> Option<&mut dyn StreamRequests> {
        if self.none { None } else { Some(self) }
    }
}
