//! The world around production nodes: a soup of messages, logs, bytes, time; watched at every event.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::{Ballot, Era},
    configuration::Configuration,
    effect::{Effect, Effects, Role},
    input::{Input, ReadToken},
    invariants,
    message::Message,
    node::{Node, Options},
    node_id::{Incarnation, Member, NodeId},
    record::{Class, Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};

use crate::{
    disk::Disk,
    observer::{Observer, Property, Violation, Watched},
};

/// Nobody waits for this moment.
pub const NEVER: Time = Time(u64::MAX);

/// A message on its way, for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parcel {
    /// Who said it, in which incarnation.
    pub from: Member,
    /// To whom.
    pub to: NodeId,
    /// What.
    pub message: Message,
    /// Whether the bytes of its value travel along.
    pub bytes: bool,
}

/// How a world is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// Number of nodes, members or not.
    pub nodes: usize,
    /// The founding configuration.
    pub founding: Configuration,
    /// Shape of the options of every node.
    pub heartbeat_ms: u64,
    /// Shortest election time-out.
    pub election_min_ms: u64,
    /// Longest.
    pub election_max_ms: u64,
    /// Most proposals in flight.
    pub inflight_max: usize,
    /// Slots that an acceptor holds.
    pub window_slots: u64,
    /// Seeds the nodes' own dice.
    pub seed: u64,
    /// Whether messages are kept sorted, so that equal soups are equal states.
    pub sorted: bool,
    /// Message kinds that never reach the soup.
    pub silent: Silent,
}

/// Message kinds that a plane loses always, to keep a soup small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Silent {
    /// Heartbeats and their answers.
    pub heartbeats: bool,
    /// Refusals.
    pub preempted: bool,
    /// Announced decisions.
    pub decided: bool,
    /// Questions for, and answers with, decided values.
    pub catchup: bool,
}

impl Silent {
    fn loses(self, message: &Message) -> bool {
        match message {
            Message::Heartbeat(_) | Message::HeartbeatReply(_) => self.heartbeats,
            Message::Preempted { .. } => self.preempted,
            Message::Decided { .. } => self.decided,
            Message::CatchupRequest { .. } | Message::Learn { .. } => self.catchup,
            _ => false,
        }
    }
}

/// A node's machine: its process, its disk, its memory of bytes, what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Who it is.
    pub member: Member,
    /// The process; `None` while it is down.
    pub node: Option<Node>,
    /// Its log.
    pub disk: Disk,
    /// Which process this is, counted over all nodes.
    pub process: u64,
    /// Entries of the log before this were forgotten ([volatile-1]).
    pub memory_from: usize,
    /// Bytes at hand: of a batch (slot 0), or of a content value at a slot.
    held: BTreeSet<(Value, Slot)>,
    /// Decided values, in slot order.
    decided: Vec<(SlotRange, Value)>,
    decided_to: Slot,
    /// Bytes looked for.
    pub fetches: Vec<(Value, SlotRange)>,
    /// Decided values that a peer asked for.
    pub serves: Vec<(NodeId, SlotRange)>,
    /// Whether its log has failed.
    pub failed: bool,
    /// The sites that it can talk to, as it was told.
    pub connected: BTreeSet<usize>,
    /// When it wants to be woken.
    pub wake: Time,
    reads: BTreeMap<ReadToken, Slot>,
    /// The last read that was confirmed.
    pub confirmed: Option<ReadToken>,
}

impl Site {
    fn key(value: &Value, slot: Slot) -> (Value, Slot) {
        let anywhere = !matches!(value, Value::Content { .. });
        (*value, if anywhere { Slot(0) } else { slot })
    }

    /// Whether the bytes of `value` in these slots are at hand.
    pub fn holds(&self, value: &Value, range: SlotRange) -> bool {
        !value.has_bytes()
            || (range.from.0..range.to.0)
                .all(|slot| self.held.contains(&Self::key(value, Slot(slot))))
    }

    /// The first part of these slots of whose value this process has the bytes.
    fn held_of(&self, value: &Value, range: SlotRange) -> SlotRange {
        let slots = (range.from.0..range.to.0).map(Slot);
        let missing = |slot: &Slot| !self.holds(value, SlotRange::one(*slot));
        let to = slots.into_iter().find(missing).unwrap_or(range.to);
        SlotRange::new(range.from, to)
    }

    fn hold(&mut self, value: &Value, range: SlotRange) {
        if value.has_bytes() {
            for slot in range.from.0..range.to.0 {
                self.held.insert(Self::key(value, Slot(slot)));
            }
        }
    }

    /// Whether this slot is decided here, and its value known.
    fn knows(&self, slot: Slot) -> bool {
        self.decided.iter().any(|(range, _)| range.contains(slot))
    }

    /// Whether somebody could learn the chosen value of this slot from here.
    pub fn can_tell(&self, slot: Slot, value: &Value) -> bool {
        let Some(node) = &self.node else { return false };
        let vote = node.acceptor().vote(slot);
        let voted = vote.is_some_and(|vote| vote.value == *value);
        (voted || self.knows(slot)) && self.holds(value, SlotRange::one(slot))
    }

    fn voted_before(&self) -> Ballot {
        let promised = |record: &Record| match record {
            Record::Promise { ballot } | Record::Vote { ballot, .. } => *ballot,
            Record::Round { .. } | Record::Decided { .. } => Ballot::ZERO,
        };
        let entries = &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..];
        let ballots = entries.iter().map(|entry| promised(&entry.record));
        ballots.max().unwrap_or_default()
    }

    /// The highest vote per slot that this member remembers.
    fn cast(&self) -> BTreeMap<Slot, (Ballot, Value)> {
        let mut cast = BTreeMap::new();
        for entry in &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..] {
            if let Record::Vote {
                ballot,
                range,
                value,
            } = entry.record
            {
                for slot in range.from.0..range.to.0 {
                    cast.insert(Slot(slot), (ballot, value));
                }
            }
        }
        cast
    }
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The message at this place of the soup arrives, with its bytes or without.
    Deliver {
        /// Which.
        at: usize,
        /// Whether its bytes arrive too, if it has any.
        bytes: bool,
    },
    /// More records reach stable storage.
    Persist {
        /// Where.
        site: usize,
        /// How many.
        count: usize,
    },
    /// The process ends; of the records that waited, some are there all the same.
    Crash {
        /// Where.
        site: usize,
        /// How many of them.
        kept: usize,
    },
    /// The process ends after everything reached stable storage ([volatile-4]).
    Stop {
        /// Where.
        site: usize,
    },
    /// A new process.
    Start {
        /// Where.
        site: usize,
        /// In a volatile group, after a crash: whether it forgot its votes and promises.
        forget: bool,
    },
    /// Time passes, and a node notices.
    Tick {
        /// Where.
        site: usize,
        /// The time.
        at: Time,
    },
    /// A value is offered.
    Propose {
        /// Where.
        site: usize,
        /// Which.
        value: Value,
        /// For how many slots.
        slots: u64,
    },
    /// A read is asked.
    Read {
        /// Where.
        site: usize,
        /// By whom.
        token: u64,
    },
    /// The oldest bytes looked for are found, or given up.
    Fetch {
        /// Where.
        site: usize,
        /// Whether they are looked for at somebody who has them.
        found: bool,
    },
    /// The oldest question for decided values is answered.
    Serve {
        /// Where.
        site: usize,
    },
    /// Two nodes can talk.
    Connect {
        /// One,
        site: usize,
        /// and what it sees.
        peer: usize,
    },
    /// They cannot.
    Disconnect {
        /// One,
        site: usize,
        /// and what it loses.
        peer: usize,
    },
    /// The log of a node fails.
    StorageFails {
        /// Where.
        site: usize,
    },
    /// Records on stable storage cannot be read any more; the next process finds out.
    Rot {
        /// Where.
        site: usize,
        /// From which record on,
        from: usize,
        /// and how many.
        count: usize,
    },
    /// Somebody wants another leader.
    Transfer {
        /// Where.
        site: usize,
        /// To whom.
        to: Option<NodeId>,
    },
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// How it was set up.
    pub setup: Setup,
    /// The nodes' machines; node n at n − 1.
    pub sites: Vec<Site>,
    /// All messages ever sent.
    pub soup: Vec<Parcel>,
    /// Who watches.
    pub observer: Observer,
    /// The time.
    pub now: Time,
    /// Whether every message counts, repeats too: in the second act.
    pub in_order: bool,
    processes: u64,
}

/// The place of a node.
pub const fn site_of(node: NodeId) -> usize {
    (node.0 - 1) as usize
}

impl World {
    /// All nodes up, connected, and started.
    pub fn new(setup: Setup, watched: Watched) -> Result<Self, Violation> {
        let observer = Observer::new(&setup.founding, watched);
        let site = |at: usize| Site {
            member: Member::first(u32::try_from(at).expect("few") + 1),
            node: None,
            disk: Disk::default(),
            process: 0,
            memory_from: 0,
            held: BTreeSet::new(),
            decided: Vec::new(),
            decided_to: Slot::FIRST,
            fetches: Vec::new(),
            serves: Vec::new(),
            failed: false,
            connected: BTreeSet::new(),
            wake: Time(0),
            reads: BTreeMap::new(),
            confirmed: None,
        };
        let mut world = Self {
            sites: (0..setup.nodes).map(site).collect(),
            setup,
            soup: Vec::new(),
            observer,
            now: Time(1),
            in_order: false,
            processes: 0,
        };
        for at in 0..world.sites.len() {
            world.start(at, false)?;
        }
        Ok(world)
    }

    /// The class of the group.
    pub fn class(&self) -> Class {
        self.setup.founding.class()
    }

    fn options(&self, at: usize) -> Options {
        Options {
            member: self.sites[at].member,
            heartbeat_ms: self.setup.heartbeat_ms,
            election_min_ms: self.setup.election_min_ms,
            election_max_ms: self.setup.election_max_ms,
            inflight_max: self.setup.inflight_max,
            window_slots: self.setup.window_slots,
            seed: self
                .setup
                .seed
                .wrapping_add(self.sites[at].process.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Lets one thing happen. An event that makes no sense here and now changes nothing.
    pub fn apply(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Deliver { at, bytes } => self.deliver(at, bytes),
            Event::Persist { site, count } => self.persist(site, count),
            Event::Crash { site, kept } => self.crash(site, kept),
            Event::Stop { site } => {
                if self.sites[site].node.is_some() && !self.sites[site].failed {
                    // What follows from one record being safe may be another record.
                    while self.sites[site].disk.waiting() > 0 {
                        self.persist(site, usize::MAX / 2)?;
                    }
                    self.crash(site, 0)?;
                    self.start(site, false)?;
                }
                Ok(())
            }
            Event::Start { site, forget } => {
                if self.sites[site].node.is_none() {
                    if self.class() == Class::Volatile {
                        self.sites[site].member.incarnation.0 += 1;
                    }
                    self.start(site, forget && self.class() == Class::Volatile)?;
                }
                Ok(())
            }
            Event::Tick { site, at } => {
                self.now = self.now.max(at);
                // As the replica does: who is not told anew is never woken again.
                self.sites[site].wake = NEVER;
                self.step(site, Input::Tick)?;
                let asleep = self.sites[site].node.is_some() && self.sites[site].wake == NEVER;
                let verdict = if asleep {
                    Err(format!("node {} says no more when to wake it", site + 1))
                } else {
                    Ok(())
                };
                self.observer.judge(Property::Liveness, verdict)
            }
            Event::Propose { site, value, slots } => self.propose(site, value, slots),
            Event::Read { site, token } => {
                let known = self.observer.known_to();
                let token = ReadToken(token);
                self.sites[site].reads.insert(token, known);
                self.step(site, Input::Read(token))
            }
            Event::Fetch { site, found } => self.fetch(site, found),
            Event::Serve { site } => self.serve(site),
            Event::Connect { site, peer } => {
                if self.sites[peer].node.is_none() {
                    return Ok(());
                }
                self.connect(site, peer)
            }
            Event::Disconnect { site, peer } => self.disconnect(site, peer),
            Event::StorageFails { site } => {
                self.sites[site].failed = self.sites[site].node.is_some();
                self.step(site, Input::StorageFailed)
            }
            Event::Rot { site, from, count } => {
                self.sites[site].disk.rot(from, count);
                Ok(())
            }
            Event::Transfer { site, to } => self.step(site, Input::Transfer { to }),
        }
    }

    fn deliver(&mut self, at: usize, bytes: bool) -> Result<(), Violation> {
        let Parcel {
            from,
            to,
            message,
            bytes: carried,
        } = self.soup[at].clone();
        let site = &mut self.sites[site_of(to)];
        if site.node.is_none() {
            return Ok(());
        }
        let content = match &message {
            Message::Phase2a(m) => Some((m.value, m.range)),
            Message::Learn { range, value } => Some((*value, *range)),
            _ => None,
        };
        let held = content.is_none_or(|(value, range)| {
            if carried && bytes {
                site.hold(&value, range);
            }
            site.holds(&value, range)
        });
        self.step(
            site_of(to),
            Input::Message {
                from,
                message,
                held,
            },
        )
    }

    fn persist(&mut self, at: usize, count: usize) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if site.node.is_none() || site.failed || site.disk.waiting() == 0 {
            return Ok(());
        }
        let records = site.disk.persist(count);
        let seq = RecordSeq(site.disk.persisted_seq());
        self.on_stable(at, &records)?;
        self.step(at, Input::Persisted(seq))
    }

    /// These records are on stable storage now.
    fn on_stable(&mut self, at: usize, records: &[Record]) -> Result<(), Violation> {
        if self.class() == Class::Volatile {
            return Ok(());
        }
        let member = self.sites[at].member;
        for record in records {
            if let Record::Vote {
                ballot,
                range,
                value,
            } = *record
            {
                self.observer.voted(member, ballot, range, value)?;
            }
        }
        Ok(())
    }

    fn crash(&mut self, at: usize, kept: usize) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if site.node.take().is_none() {
            return Ok(());
        }
        let kept = if site.failed { 0 } else { kept };
        let records = site.disk.crash(kept);
        site.failed = false;
        site.connected.clear();
        site.fetches.clear();
        site.serves.clear();
        site.reads.clear();
        self.on_stable(at, &records)
    }

    fn start(&mut self, at: usize, forget: bool) -> Result<(), Violation> {
        self.processes += 1;
        let site = &mut self.sites[at];
        site.process = self.processes;
        let found = site.disk.recover(&self.setup.founding);
        let mut recovered = found.recovered;
        if forget {
            site.memory_from = site.disk.entries().len();
            recovered.votes.clear();
            recovered.hard.promised = Ballot::ZERO;
        } else if found.forgotten {
            // [disk-8], [volatile-1] It owns up to it, under a new name.
            site.memory_from = site.disk.entries().len();
            site.member.incarnation.0 += 1;
            site.disk.own_up();
        }
        // What is not in the log is gone.
        site.held.clear();
        let sound = site.disk.entries().iter().filter(|entry| !entry.lost);
        let records: Vec<Record> = sound.map(|entry| entry.record).collect();
        for record in records {
            if let Record::Vote { range, value, .. } | Record::Decided { range, value } = record {
                site.hold(&value, range);
            }
        }
        site.decided_to = recovered.decided_to;
        site.decided = found.decided;
        if let Some(slot) = found.hole {
            let verdict = Err(format!("slot {slot}: decided, and nowhere in the log"));
            self.observer.judge(Property::Recovery, verdict)?;
        }
        for (range, value) in &self.sites[at].decided {
            self.observer.recovered(range.from, value)?;
        }
        let node = Node::new(self.options(at), recovered);
        let (member, promised) = (self.sites[at].member, node.acceptor().promised());
        self.observer.restarted(member, promised)?;
        self.sites[at].wake = self.now;
        self.sites[at].node = Some(node);
        self.step(at, Input::Tick)?;
        for peer in 0..self.sites.len() {
            if peer != at && self.sites[peer].node.is_some() {
                self.connect(at, peer)?;
                self.disconnect(peer, at)?;
                self.connect(peer, at)?;
            }
        }
        Ok(())
    }

    fn connect(&mut self, at: usize, peer: usize) -> Result<(), Violation> {
        self.sites[at].connected.insert(peer);
        let member = self.sites[peer].member;
        self.step(at, Input::Connected(member))
    }

    fn disconnect(&mut self, at: usize, peer: usize) -> Result<(), Violation> {
        self.sites[at].connected.remove(&peer);
        let node = self.sites[peer].member.node;
        self.step(at, Input::Disconnected(node))
    }

    fn propose(&mut self, at: usize, value: Value, slots: u64) -> Result<(), Violation> {
        // The bytes are at hand, in whichever slots the value gets.
        let site = &mut self.sites[at];
        if let Some(leading) = site.node.as_ref().and_then(Node::leading) {
            let next = leading.tally.next();
            site.hold(&value, SlotRange::new(next, next.plus(slots)));
        }
        self.step(at, Input::Propose { value, slots })
    }

    fn fetch(&mut self, at: usize, found: bool) -> Result<(), Violation> {
        if self.sites[at].fetches.is_empty() || self.sites[at].node.is_none() {
            return Ok(());
        }
        let (value, range) = self.sites[at].fetches.remove(0);
        if !found {
            return Ok(());
        }
        // Whoever is up and has some of them gives them.
        let news: Vec<(Value, Slot)> = self
            .sites
            .iter()
            .filter(|site| site.node.is_some())
            .flat_map(|site| site.held.iter().copied().filter(|(held, _)| *held == value))
            .collect();
        let site = &mut self.sites[at];
        site.held.extend(news);
        // Of content, the node is told what part of it is here.
        let held = self.sites[at].held_of(&value, range);
        if held.to < range.to {
            // Nobody has the rest at the moment.
            self.sites[at].fetches.push((value, range));
        }
        if held.is_empty() {
            return Ok(());
        }
        self.step(at, Input::Held { value, range: held })
    }

    fn serve(&mut self, at: usize) -> Result<(), Violation> {
        if self.sites[at].serves.is_empty() || self.sites[at].node.is_none() {
            return Ok(());
        }
        let (to, wanted) = self.sites[at].serves.remove(0);
        let site = &self.sites[at];
        let parts: Vec<(SlotRange, Value, bool)> = site
            .decided
            .iter()
            .map(|(range, value)| (range.intersect(wanted), *value))
            .filter(|(range, _)| !range.is_empty())
            .map(|(range, value)| (range, value, site.holds(&value, range)))
            .collect();
        for (range, value, bytes) in parts {
            let message = Message::Learn { range, value };
            self.post(at, to, message, bytes);
        }
        Ok(())
    }

    fn post(&mut self, at: usize, to: NodeId, message: Message, bytes: bool) {
        let known = (to.0 as usize) <= self.sites.len() && to != self.sites[at].member.node;
        if self.setup.silent.loses(&message) || !known {
            return;
        }
        let parcel = Parcel {
            from: self.sites[at].member,
            to,
            message,
            bytes,
        };
        if self.setup.sorted {
            if let Err(place) = self.soup.binary_search(&parcel) {
                self.soup.insert(place, parcel);
            }
            return;
        }
        // A repeat of something recent is no news.
        let repeat = || self.soup.iter().rev().take(48).any(|old| *old == parcel);
        if self.in_order || !repeat() {
            self.soup.push(parcel);
        }
    }

    /// One input of one node, and everything that follows from it.
    fn step(&mut self, at: usize, input: Input) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        let Some(node) = site.node.as_mut() else {
            return Ok(());
        };
        let (era, promised) = (node.era(), node.acceptor().promised());
        let appended = site.disk.entries().len();
        let mut effects = Effects::default();
        node.step(self.now, input, &mut effects);
        let (era_after, promised_after) = (node.era(), node.acceptor().promised());
        let hard = node.hard_state();
        let list: Vec<Effect> = effects.drain().collect();
        for effect in list {
            self.carry_out(at, effect)?;
        }
        self.sites[at].disk.restate(appended, hard);
        let verdict = invariants::eras_in_order(era, era_after);
        self.observer.judge(Property::Eras, verdict)?;
        let verdict = invariants::promise_is_kept(promised, promised_after);
        self.observer.judge(Property::Promise, verdict)
    }

    fn carry_out(&mut self, at: usize, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::Send { to, message } => self.send(at, to, message),
            Effect::Persist { seq, record } => self.append(at, seq, record),
            Effect::Decided { range, value } => {
                let site = &mut self.sites[at];
                // [disk-8] What the log holds behind what it lost is not told again.
                while site.decided_to < range.from && site.knows(site.decided_to) {
                    site.decided_to = site.decided_to.next();
                }
                let verdict = invariants::decided_in_order(site.decided_to, range);
                self.observer.judge(Property::DecidedInOrder, verdict)?;
                site.decided.push((range, value));
                site.decided_to = range.to;
                let held = site.holds(&value, range);
                let verdict = invariants::bytes_are_held(range.from, &value, held);
                self.observer.decided(range, value)?;
                self.observer.judge(Property::Bytes, verdict)
            }
            Effect::Fetch { value, range, .. } => {
                let site = &mut self.sites[at];
                if !site.fetches.contains(&(value, range)) {
                    site.fetches.push((value, range));
                }
                Ok(())
            }
            Effect::Serve { to, range } => {
                let site = &mut self.sites[at];
                if !site.serves.contains(&(to, range)) {
                    site.serves.push((to, range));
                }
                Ok(())
            }
            Effect::ReadReady { token, slot } => {
                let asked = self.sites[at].reads.remove(&token);
                self.sites[at].confirmed = Some(token);
                let verdict = match asked {
                    Some(known) => invariants::read_is_fresh(known, slot),
                    None => Err(format!("read {} was not waiting", token.0)),
                };
                self.observer.judge(Property::Reads, verdict)
            }
            Effect::ReadFailed { token } => {
                self.sites[at].reads.remove(&token);
                Ok(())
            }
            Effect::WakeAt(time) => {
                self.sites[at].wake = time;
                Ok(())
            }
            Effect::Alarm(alarm) => self
                .observer
                .judge(Property::Alarm, Err(format!("{alarm:?}"))),
            Effect::Refused { .. }
            | Effect::TransferEnded(_)
            | Effect::Role { .. }
            | Effect::Explain(_) => Ok(()),
        }
    }

    fn append(&mut self, at: usize, seq: RecordSeq, record: Record) -> Result<(), Violation> {
        let class = self.class();
        let site = &mut self.sites[at];
        let member = site.member;
        if let Record::Vote {
            ballot,
            range,
            value,
        } = record
        {
            let held = site.holds(&value, range);
            let before = site.voted_before();
            let verdict = invariants::bytes_are_held(range.from, &value, held);
            self.observer.judge(Property::Bytes, verdict)?;
            self.observer.casts(member, before, ballot, range, value)?;
            if class == Class::Volatile {
                self.observer.voted(member, ballot, range, value)?;
            }
        }
        if let Record::Promise { ballot } = record {
            let verdict = invariants::promise_is_kept(site.voted_before(), ballot);
            self.observer.judge(Property::Promise, verdict)?;
        }
        let disk = &mut self.sites[at].disk;
        disk.append(record);
        assert_eq!(disk.appended_seq(), seq.0, "records are numbered in order");
        Ok(())
    }

    fn send(&mut self, at: usize, to: NodeId, message: Message) -> Result<(), Violation> {
        let site = &self.sites[at];
        let (member, process) = (site.member, site.process);
        let durable = self.class() == Class::Durable;
        let era = site.node.as_ref().map(Node::era).unwrap_or_default();
        match &message {
            Message::Phase1a { ballot, .. } if era < ballot.era => {
                let verdict = invariants::ballot_era_is_decided(era, *ballot);
                self.observer.judge(Property::Eras, verdict)?;
            }
            Message::Phase1a { ballot, .. } if !site.disk.has_round(*ballot) => {
                let seen = Err(format!("1A {ballot} before its round is durable"));
                self.observer.judge(Property::Durable, seen)?;
            }
            Message::Phase1b(promise) => {
                if durable && !site.disk.has_promise(promise.ballot) {
                    let seen = Err(format!("1B {} before it is durable", promise.ballot));
                    self.observer.judge(Property::Durable, seen)?;
                }
                let cast = site.cast();
                self.observer.promises(member, promise, &cast)?;
            }
            Message::Phase2b(vote) => {
                let verdict = invariants::vote_is_true(
                    vote,
                    |slot| site.disk.has_vote(vote.ballot, slot, false),
                    |slot| site.disk.has_vote(vote.ballot, slot, true),
                );
                self.observer.judge(Property::Durable, verdict)?;
            }
            _ => {}
        }
        self.observer.says(member, process, &message)?;
        let bytes = match &message {
            Message::Phase2a(m) => m.with_bytes && self.sites[at].holds(&m.value, m.range),
            _ => false,
        };
        self.post(at, to, message, bytes);
        Ok(())
    }

    /// The site that leads in the highest ballot, if any does.
    pub fn leader(&self) -> Option<usize> {
        let ballot = |at: &usize| {
            let leading = self.sites[*at].node.as_ref().and_then(Node::leading);
            leading.map(quorate_core::leader::Leading::ballot)
        };
        (0..self.sites.len())
            .filter(|at| ballot(at).is_some())
            .max_by_key(|at| ballot(at))
    }

    /// Whether the node here leads.
    pub fn leads(&self, at: usize) -> bool {
        let node = self.sites[at].node.as_ref();
        node.is_some_and(|node| node.role() == Role::Leader)
    }

    /// How far the node here has decided.
    pub fn decided_to(&self, at: usize) -> Slot {
        self.sites[at].decided_to
    }

    /// The era of the node here.
    pub fn era(&self, at: usize) -> Option<Era> {
        self.sites[at].node.as_ref().map(Node::era)
    }

    /// When the node here wants to be woken; now, if that is past or it did not say.
    pub fn due(&self, at: usize) -> Time {
        match self.sites[at].wake {
            NEVER => self.now,
            wake => wake.max(self.now),
        }
    }

    /// The current members of this world, whoever is up.
    pub fn members(&self) -> Vec<Member> {
        self.sites.iter().map(|site| site.member).collect()
    }

    /// Batches whose bytes the node here has.
    pub fn batches_at(&self, at: usize) -> Vec<Value> {
        let batch = |(value, _): &(Value, Slot)| matches!(value, Value::Batch(_));
        let held = self.sites[at].held.iter();
        held.filter(|entry| batch(entry)).map(|(v, _)| *v).collect()
    }
}

/// A member of these, by node and incarnation.
pub const fn member(node: u32, incarnation: u32) -> Member {
    Member {
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
    }
}
