//! Simulated replica that executes a front end's requests at once or in any order.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use quorate_access::{Users, Who};
use quorate_core::dice::Dice;
use quorate_core::{
    ballot::{Ballot, Era},
    effect::Role,
    level::Level,
    node_id::{Member, NodeId},
    record::Class,
    slot::Slot,
};
use quorate_kv::{
    front::{RespFront, Settings},
    service::Service,
    store::{
        Store,
        lsm::{Limits, LsmStore},
        memory::MemoryStore,
    },
};
use quorate_replica::{
    front::{
        Completion, ConnectionId, Endpoints, Failure, Front, ListenerKind, Requests, Sequenced,
        SessionId, State, Tag,
    },
    service::{CommandId, StateMachine, Weight},
    status::{Addresses, DiskUse, Peer, Status},
};

pub(crate) struct Random(Dice);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.word()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Request from the front end that has not been answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Write(Tag, Option<Sequenced>, Vec<u8>),
    Register(Tag),
    Read(Tag),
    /// Read with a staleness bound in milliseconds.
    ReadWithin(Tag, u64),
    ReadInOrder(Tag),
}

/// Completion that the front end has not received yet.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Written(Tag, Vec<u8>),
    Registered(Tag, SessionId),
    Readable(Tag),
    Read(Tag),
    Failed(Tag, Failure),
}

pub(crate) struct World {
    pub(crate) service: Service,
    pub(crate) slot: u64,
    pub(crate) wall_ms: u64,
    pub(crate) command_bytes_max: usize,
    pub(crate) asked: VecDeque<Asked>,
    pub(crate) told: Vec<Told>,
    pub(crate) forgotten: Vec<Tag>,
    /// Commands whose replies wait for stable storage.
    pub(crate) lasting: Vec<Vec<u8>>,
    /// True if the group is volatile.
    pub(crate) volatile: bool,
    /// Applied commands, to replay them.
    pub(crate) log: Vec<(CommandId, Vec<u8>)>,
    /// Replies stored for the commands of sessions.
    pub(crate) sessions: BTreeMap<SessionId, BTreeMap<u64, Vec<u8>>>,
    /// Failure with which all requests are refused.
    pub(crate) refuse: Option<Failure>,
    /// Number of answers after which the confirmation of the next run expires. Applies once.
    pub(crate) overtaken: Option<usize>,
    /// Latest queries. Each command is checked against them ([read-9]).
    pub(crate) queries: VecDeque<Vec<u8>>,
    /// User table; `None` if this node does not have it yet.
    pub(crate) users: Option<Users>,
    pub(crate) users_version: u64,
    pub(crate) node: u32,
    /// Number of the leader; `None` during an election.
    pub(crate) leader: Option<u32>,
    /// Feature level of the group.
    pub(crate) level: Level,
    /// Number of a node that is not connected.
    pub(crate) away: u32,
}

impl World {
    pub(crate) fn new(store: Box<dyn Store>) -> Self {
        let mut service = Service::new(store);
        let (applied_to, _) = service.recovered();
        Self {
            service,
            slot: applied_to.0,
            wall_ms: 1_000_000,
            command_bytes_max: 8 << 20,
            asked: VecDeque::new(),
            told: Vec::new(),
            forgotten: Vec::new(),
            lasting: Vec::new(),
            volatile: false,
            log: Vec::new(),
            sessions: BTreeMap::new(),
            refuse: None,
            overtaken: None,
            queries: VecDeque::new(),
            users: Some(Users::NONE),
            users_version: 0,
            node: 1,
            leader: Some(1),
            level: Level::BASE,
            away: 3,
        }
    }

    pub(crate) fn memory() -> Self {
        Self::new(Box::new(MemoryStore::new()))
    }

    /// Applies a command in a separate slot and commits it.
    pub(crate) fn apply(&mut self, command: &[u8]) -> Vec<u8> {
        let id = CommandId { slot: Slot(self.slot), index: 0 };
        self.log.push((id, command.to_vec()));
        let mut reply = Vec::new();
        self.service.prefetch(&mut std::iter::once(command));
        // [read-9] A command classified as unable to change an answer must not change it.
        let unrelated = |query: &&Vec<u8>| !self.service.may_change(command, query);
        let queries: Vec<Vec<u8>> = self.queries.iter().filter(unrelated).cloned().collect();
        let before: Vec<Vec<u8>> = queries.iter().map(|query| self.answer_to(query)).collect();
        // [visit-1] An upper bound of the visits is known in advance.
        let bound = self.service.visits(command) + 16_384 + 16 * command.len() as u64;
        self.service.store().meter().allow(Some(bound));
        self.service.apply(id, command, &mut reply);
        assert!(
            !self.service.store().meter().is_limit_exceeded(),
            "more than {bound}: {command:?}"
        );
        self.service.store().meter().allow(None);
        self.slot += 1;
        self.service.commit(Slot(self.slot), &[]);
        for (query, before) in queries.iter().zip(before) {
            assert_eq!(before, self.answer_to(query), "{command:?} changes {query:?}");
        }
        reply
    }

    fn answer_to(&self, query: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        self.service.query(query, self.wall_ms, &mut answer);
        answer
    }

    /// Executes a request other than an in-order read.
    fn execute(&mut self, index: usize) {
        let Some(asked) = self.asked.remove(index) else {
            return;
        };
        let told = match asked {
            Asked::Write(tag, None, command) => Told::Written(tag, self.apply(&command)),
            Asked::Write(tag, Some(at), command) => self.apply_once(tag, at, &command),
            Asked::Register(tag) => {
                let session = SessionId { slot: self.slot, index: 0 };
                self.slot += 1;
                self.sessions.insert(session, BTreeMap::new());
                Told::Registered(tag, session)
            }
            Asked::Read(tag) | Asked::ReadWithin(tag, _) => Told::Readable(tag),
            Asked::ReadInOrder(_) => unreachable!("the front runs it"),
        };
        self.told.push(told);
    }

    fn apply_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Told {
        let Some(session) = self.sessions.get_mut(&at.session) else {
            return Told::Failed(tag, Failure::NoSession);
        };
        session.retain(|&sequence, _| sequence >= at.acknowledged_below);
        if at.sequence < at.acknowledged_below {
            return Told::Failed(tag, Failure::ReplyForgotten);
        }
        if let Some(reply) = session.get(&at.sequence) {
            return Told::Written(tag, reply.clone());
        }
        let reply = self.apply(command);
        self.sessions.get_mut(&at.session).unwrap().insert(at.sequence, reply.clone());
        Told::Written(tag, reply)
    }

    fn ask(&mut self, asked: Asked) -> Result<(), Failure> {
        match self.refuse {
            Some(failure) => Err(failure),
            None => {
                self.asked.push_back(asked);
                Ok(())
            }
        }
    }

    fn check(&self, command: &[u8]) -> Result<(), Failure> {
        assert!(self.service.level_of(command) <= self.level);
        let too_heavy = self.service.weigh(command) == Weight::TooHeavy;
        let too_big = command.len() > self.command_bytes_max + 64;
        if too_heavy || too_big { Err(Failure::TooBig) } else { Ok(()) }
    }
}

struct Present<'a>(&'a World);

impl State for Present<'_> {
    fn query(&self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        self.0.service.query(query, self.0.wall_ms, reply);
        Ok(())
    }
}

impl Requests for World {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.check(command)?;
        self.ask(Asked::Write(tag, None, command.to_vec()))
    }

    fn write_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Result<(), Failure> {
        self.check(command)?;
        self.ask(Asked::Write(tag, Some(at), command.to_vec()))
    }

    fn write_lasting(
        &mut self,
        tag: Tag,
        at: Option<Sequenced>,
        command: &[u8],
    ) -> Result<(), Failure> {
        self.lasting.push(command.to_vec());
        self.ask(Asked::Write(tag, at, command.to_vec()))
    }

    fn register(&mut self, tag: Tag) -> Result<(), Failure> {
        self.ask(Asked::Register(tag))
    }

    fn read(&mut self, tag: Tag) -> Result<(), Failure> {
        self.ask(Asked::Read(tag))
    }

    fn read_within(&mut self, tag: Tag, most_ms: u64) -> Result<(), Failure> {
        self.ask(Asked::ReadWithin(tag, most_ms))
    }

    fn run_query(&mut self, _: Tag, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        match self.overtaken {
            Some(0) => {
                self.overtaken = None;
                return Err(Failure::Overtaken);
            }
            Some(left) => self.overtaken = Some(left - 1),
            None => {}
        }
        self.query(query, reply)
    }

    fn queue_read(&mut self, tag: Tag) -> Result<(), Failure> {
        self.ask(Asked::ReadInOrder(tag))
    }

    fn drop_requests(&mut self, tag: Tag) {
        self.forgotten.push(tag);
    }

    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        if self.refuse == Some(Failure::Unavailable) {
            return Err(Failure::Unavailable);
        }
        self.queries.truncate(7);
        self.queries.push_front(query.to_vec());
        self.service.query(query, self.wall_ms, reply);
        Ok(())
    }

    fn status(&self) -> Status {
        let peer = |node| Peer {
            member: Member::first(node),
            weight: 1,
            auxiliary: false,
            connected: node != self.away,
            lag: Some(u64::from(node - 1)),
            payload_bytes_sent: 0,
            engaged: None,
            addresses: Addresses {
                client: format!("[fd00::{node}]:700{node}"),
                ..Addresses::default()
            },
            plane: quorate_replica::status::PeerPlane::default(),
        };
        Status {
            cluster: 7,
            member: Member::first(self.node),
            role: if self.leader == Some(self.node) { Role::Leader } else { Role::Follower },
            leader: self.leader.map(NodeId),
            era: Era(0),
            level: quorate_replica::status::LevelStatus::default(),
            plan: None,
            removed: false,
            ballot: Ballot::ZERO,
            decided_to: Slot(self.slot),
            applied_to: Slot(self.slot),
            durable_to: Slot(self.slot),
            class: match self.volatile {
                true => Class::Volatile,
                false => Class::Durable,
            },
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
            peers: (1..=3).map(peer).collect(),
        }
    }

    fn level(&self) -> Level {
        self.level
    }

    fn users(&self) -> Option<&Users> {
        self.users.as_ref()
    }

    fn users_version(&self) -> u64 {
        self.users_version
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    fn command_bytes_max(&self) -> usize {
        self.command_bytes_max
    }
}

/// Front with its replica and unconsumed input.
pub(crate) struct Node {
    pub(crate) front: RespFront,
    pub(crate) world: World,
    pub(crate) input: BTreeMap<ConnectionId, Vec<u8>>,
    pub(crate) output: BTreeMap<ConnectionId, Vec<u8>>,
    last: u64,
}

impl Node {
    pub(crate) fn new(world: World) -> Self {
        Self::with(world, Settings::default().client_bytes_max)
    }

    /// Creates a node with a memory limit of `bytes` bytes for all connections.
    pub(crate) fn with_client_bytes(bytes: usize) -> Self {
        Self::with(World::memory(), bytes)
    }

    fn with(world: World, client_bytes_max: usize) -> Self {
        let settings = Settings {
            version: "0.0.0".into(),
            store: "memory".into(),
            client_bytes_max,
            ..Settings::default()
        };
        Self {
            front: RespFront::new(settings).with_events(world.service.events()),
            world,
            input: BTreeMap::new(),
            output: BTreeMap::new(),
            last: 0,
        }
    }

    pub(crate) fn memory() -> Self {
        Self::new(World::memory())
    }

    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.connect_as(Who::Anonymous)
    }

    pub(crate) fn connect_as(&mut self, who: Who) -> ConnectionId {
        self.last += 1;
        let id = ConnectionId(self.last);
        let ends = Endpoints {
            door: ListenerKind::Commands,
            peer: format!("10.0.0.{}:5000", self.last),
            local: "10.0.0.1:7450".into(),
            identity: who,
        };
        self.front.handle_opened(id, ends, &mut self.world);
        self.input.insert(id, Vec::new());
        self.output.insert(id, Vec::new());
        id
    }

    /// Passes a client's bytes to the front, which consumes those that it accepts.
    pub(crate) fn feed(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.input.get_mut(&id).unwrap().extend_from_slice(bytes);
        self.pump();
    }

    /// Sends output, and passes unconsumed input to the front again, as the reactor does.
    pub(crate) fn pump(&mut self) {
        loop {
            let mut moved = false;
            while let Some(id) = self.front.next_dirty() {
                let sent = self.front.take_output(id);
                moved |= !sent.is_empty();
                self.output.get_mut(&id).unwrap().extend_from_slice(&sent);
            }
            for (&id, input) in &mut self.input {
                if !input.is_empty() && self.front.accepts_input(id) {
                    let used = self.front.receive_bytes(id, input, &mut self.world);
                    input.drain(..used);
                    moved |= used > 0;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Executes one request. Tests keep writes and in-order reads in sequence.
    pub(crate) fn execute(&mut self, index: usize) {
        if let Some(Asked::ReadInOrder(tag)) = self.world.asked.get(index) {
            let tag = *tag;
            self.world.asked.remove(index);
            self.front.read_now(tag, &Present(&self.world));
            self.world.told.push(Told::Read(tag));
        } else {
            self.world.execute(index);
            let front = &mut self.front;
            let service = &mut self.world.service;
            service.take_notices(&mut |subject, message| front.deliver_notice(subject, message));
        }
    }

    /// Passes one completion to the front.
    pub(crate) fn tell(&mut self, index: usize) {
        self.tell_silently(index);
        self.pump();
    }

    /// Passes one completion to the front without sending output.
    pub(crate) fn tell_silently(&mut self, index: usize) {
        let told = self.world.told.remove(index);
        let completion = match &told {
            Told::Written(tag, reply) => Completion::Written(*tag, reply),
            Told::Registered(tag, session) => Completion::Registered(*tag, *session),
            Told::Readable(tag) => Completion::Readable(*tag),
            Told::Read(tag) => Completion::Read(*tag),
            Told::Failed(tag, failure) => Completion::Failed(*tag, *failure),
        };
        self.front.handle_completion(completion, &mut self.world);
    }

    /// Executes all requests in order and delivers their completions.
    pub(crate) fn settle(&mut self) {
        self.pump();
        while !self.world.asked.is_empty() || !self.world.told.is_empty() {
            self.execute(0);
            while !self.world.told.is_empty() {
                self.tell(0);
            }
        }
    }

    /// Executes all requests, writes and in-order reads in sequence. Completions come in any order.
    pub(crate) fn settle_randomly(&mut self, random: &mut Random) {
        self.pump();
        while !self.world.asked.is_empty() || !self.world.told.is_empty() {
            self.step_randomly(random);
        }
    }

    pub(crate) fn step_randomly(&mut self, random: &mut Random) {
        let choices = self.world.asked.len() + self.world.told.len();
        if choices == 0 {
            return;
        }
        let choice = random.below(choices);
        if choice < self.world.told.len() {
            self.tell(choice);
        } else {
            let index = choice - self.world.told.len();
            let index = match self.world.asked[index] {
                Asked::Read(_) | Asked::ReadWithin(..) => index,
                Asked::Write(..) | Asked::Register(_) | Asked::ReadInOrder(_) => {
                    let first =
                        |asked: &Asked| !matches!(asked, Asked::Read(_) | Asked::ReadWithin(..));
                    self.world.asked.iter().position(first).unwrap()
                }
            };
            self.execute(index);
        }
    }

    /// Sends a request, executes everything, and returns the reply with `|` for line ends.
    pub(crate) fn ask(&mut self, id: ConnectionId, words: &[&str]) -> String {
        self.feed(id, &request(words));
        self.settle();
        self.take(id)
    }

    /// Sends a request and executes everything, without sending output.
    pub(crate) fn feed_only(&mut self, id: ConnectionId, words: &[&str]) {
        self.front.receive_bytes(id, &request(words), &mut self.world);
        while !self.world.asked.is_empty() || !self.world.told.is_empty() {
            self.execute(0);
            while !self.world.told.is_empty() {
                self.tell_silently(0);
            }
        }
    }

    /// Splits `text` into words and sends them as [`Self::ask`] does.
    pub(crate) fn say(&mut self, id: ConnectionId, text: &str) -> String {
        self.ask(id, &text.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn take(&mut self, id: ConnectionId) -> String {
        let bytes = std::mem::take(self.output.get_mut(&id).unwrap());
        String::from_utf8_lossy(&bytes).replace("\r\n", "|")
    }

    /// [time-1] Advances the group's time to the clock if a deadline is due. Returns whether one
    /// was.
    pub(crate) fn pass(&mut self) -> bool {
        let World { service, wall_ms, .. } = &mut self.world;
        let due = service.next_deadline(*wall_ms).is_some();
        if due {
            service.set_time(*wall_ms);
        }
        due
    }

    /// Executes the housekeeping that a leader would propose. Returns the number of removed keys.
    pub(crate) fn sweep(&mut self) -> usize {
        let mut commands = Vec::new();
        self.world.service.due(&mut |command| commands.push(command.to_vec()));
        let removed = commands.iter().map(|command| {
            let reply = String::from_utf8(self.world.apply(command)).unwrap();
            let count = reply.strip_prefix(':').and_then(|rest| rest.strip_suffix("\r\n"));
            count.unwrap().parse::<usize>().unwrap()
        });
        removed.sum()
    }
}

pub(crate) fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub(crate) fn on_both_stores(test: impl Fn(&mut Node)) {
    test(&mut Node::memory());
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { held_bytes: 200, ..Limits::default() };
    let (store, damage) = LsmStore::open_with(&folder.path().join("kv"), limits).unwrap();
    assert_eq!(damage, None);
    test(&mut Node::new(World::new(Box::new(store))));
}

/// Runs a script of lines `command => reply` on one connection. `#` starts a comment.
pub(crate) fn check(script: &str) {
    check_at(Level::BASE, script);
}

/// Like [`check`], in a group that uses a feature level.
pub(crate) fn check_at(level: Level, script: &str) {
    on_both_stores(|node| {
        node.world.level = level;
        let client = node.connect();
        for line in script.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (command, expected) = line.split_once("=>").expect("command => reply");
            let words: Vec<String> =
                command.split_whitespace().map(|word| word.replace("''", "")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let reply = node.ask(client, &words).replace('\n', "^");
            assert_eq!(reply, expected.trim(), "{command}");
        }
    });
}

/// Copies a folder as a killed process leaves it. For speed, preallocated zeros become a hole.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        std::fs::write(&target, &bytes[..used]).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(target).unwrap();
        file.set_len(bytes.len().try_into().unwrap()).unwrap();
    }
}
