//! The world that surrounds production nodes: messages in flight, logs, bytes, and time.
//!
//! This file applies events to nodes. Their effects, which are checked at every step, are in
//! `effects`.

mod devices;
mod effects;
mod flow;

use quorate_core::{
    ballot::{Ballot, Era},
    effect::Role,
    input::{Input, ReadToken},
    invariants,
    message::Message,
    node::{Node, Options},
    node_id::{Member, NodeId},
    reconfigure,
    record::{Class, Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
    witness::Memory,
};

use crate::{
    device::{Device, Frame},
    event::Event,
    observer::{Observer, Property, Violation, Watched},
    seen::Seen,
    setup::Setup,
    site::Site,
    streams::{clients::Clients, judge::Judge},
};

pub const NEVER: Time = Time(u64::MAX);

/// Rate of an exact clock, in parts per million.
pub const RIGHT_PPM: u64 = 1_000_000;

fn scaled(time: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(time) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A message in the soup, where it remains permanently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parcel {
    /// Sender of the message in its incarnation at that time.
    pub from: Member,
    pub to: NodeId,
    pub message: Message,
    /// The bytes of the message's value travel with it.
    pub bytes: bool,
    /// The sending process, and the end of its log when it sent the message ([lie-1]).
    pub said: Option<(u64, u64)>,
}

/// Complete state of a model run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub setup: Setup,
    /// The nodes' machines. Initially, node n is at index n − 1.
    pub sites: Vec<Site>,
    /// All frames that devices ever sent.
    pub frames: Vec<Frame>,
    /// All messages ever sent.
    pub soup: Vec<Parcel>,
    pub observer: Observer,
    /// The current time by an exact clock.
    pub now: Time,
    /// Every message is added to the soup, even a repeated one. Used in the second act.
    pub in_order: bool,
    /// Era and end of the chosen slots at the time when holders were last checked.
    judged: (Era, Slot),
    processes: u64,
    /// Number of reads answered under a lease.
    pub leased: u64,
    /// Commands of clients about streams, and the bytes that clients have handed over.
    pub clients: Clients,
    /// Checker of the bytes that streams deliver.
    streams: Judge,
    /// Counters of the situations that occur on machines.
    pub(crate) seen: Seen,
}

/// Distance between the ids of successive nodes on one machine.
const MACHINES_MAX: u32 = 16;

/// Returns the index of the machine on which this node runs, possibly after predecessors.
pub const fn site_of(node: NodeId) -> usize {
    ((node.0 - 1) % MACHINES_MAX) as usize
}

impl World {
    /// Creates a world in which all nodes are started and connected.
    pub fn new(setup: Setup, watched: Watched) -> Result<Self, Violation> {
        let mut observer = Observer::new(&setup.founding, watched);
        if setup.early {
            observer.expect_claims();
        }
        let number = |at: usize| u32::try_from(at).expect("few") + 1;
        let site = |at: usize| Site::new(Member::first(number(at)));
        let mut world = Self {
            sites: (0..setup.nodes).map(site).collect(),
            setup,
            soup: Vec::new(),
            frames: Vec::new(),
            observer,
            now: Time(1),
            in_order: false,
            judged: (Era(0), Slot::FIRST),
            processes: 0,
            leased: 0,
            clients: Clients::default(),
            streams: Judge::default(),
            seen: Seen::default(),
        };
        for at in 0..world.sites.len() {
            world.sites[at].device = Device::new(world.setup.cells);
            world.start(at, false)?;
        }
        Ok(world)
    }

    pub fn seen(&self) -> Seen {
        let seen = self.seen.plus(self.observer.seen());
        seen.plus(self.streams.seen())
    }

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
            leases: self.setup.leases,
            silent_us: self.setup.leases.map_or(0, |leases| leases.duration_us),
            // [lie-6] Reminders arrive first, as every running node connects before another event.
            alone_us: u64::from(self.setup.witness),
            thrifty: self.setup.thrifty,
            route: self.setup.route.clone(),
            seed: self
                .setup
                .seed
                .wrapping_add(self.sites[at].process.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Applies one event. An event that is impossible in the current state changes nothing.
    pub fn apply(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Deliver { at, bytes } => self.deliver(at, bytes),
            Event::Persist { site, count } => self.persist(site, count),
            Event::Crash { site, kept } => self.crash(site, kept),
            Event::Stop { site } => {
                if self.sites[site].node.is_some() && !self.sites[site].failed {
                    // [offload-8] The use of the device ends before the log is marked as cleanly
                    // stopped.
                    self.use_device(site, false)?;
                    self.obey_all(site)?;
                    // A persisted record may cause another record.
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
                        let member = self.sites[site].member;
                        let amid = self.observer.has_open_change()
                            && self.observer.configuration().position(member).is_some();
                        self.seen.forgot_amid_a_change += u64::from(amid && forget);
                        self.sites[site].member.incarnation.0 += 1;
                    }
                    self.start(site, forget && self.class() == Class::Volatile)?;
                }
                Ok(())
            }
            Event::Tick { site, at } => {
                self.now = self.now.max(at);
                // As in the replica, a node that does not request a new time is never woken again.
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
            Event::Late { site, us } => self.step(site, Input::Late { us }),
            Event::Propose { site, value, slots } => self.propose(site, value, slots),
            Event::Read { site, token } => {
                let known = self.observer.known_to();
                let token = ReadToken(token);
                self.sites[site].asks(token, known);
                self.step(site, Input::Read(token))
            }
            Event::LeasedRead { site, at } => {
                self.now = self.now.max(at);
                self.read_by_lease(site)
            }
            Event::Last { site } => {
                let to = self.sites[site].decided_to();
                self.step(site, Input::Last { to })
            }
            Event::Early { site } => {
                let run = self.sites[site].node.as_ref().map(|node| *node.newest_run());
                let Some(run) = run.filter(|run| run.from < run.to) else {
                    return Ok(());
                };
                let (ballot, to) = (run.ballot, run.to);
                self.step(site, Input::Early { ballot, to })
            }
            Event::Fetch { site, found } => self.fetch(site, found),
            Event::Look { site } => self.fetch_missing(site),
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
                self.forget_memory(site, true);
                self.step(site, Input::StorageFailed)
            }
            Event::Rot { site, from, count } => {
                self.sites[site].disk.rot(from, count);
                Ok(())
            }
            Event::Lie { site, lost, book } => self.lie(site, lost, book),
            Event::Transfer { site, to } => self.step(site, Input::Transfer { to }),
            Event::Route { site, ref wish } => self.step(site, Input::Route(wish.clone())),
            Event::Trim { site, to } => self.trim(site, to),
            Event::Install { site, from } => self.install(site, from),
            Event::Forget { site } => self.forget(site),
            Event::Wipe { site } => self.wipe(site),
            Event::Obey { site, whole } => self.obey(site, whole),
            Event::Hear { site, frame, whole } => self.receive_frame(site, frame, whole),
            Event::StepEnds { site } => self.step_ends(site),
            Event::GiveSlot { site, whole, hole } => self.give_slot(site, whole, hole),
            Event::Told { site } => self.tell_given(site),
            Event::Tap { site, which, lost } => self.tap(site, which, lost),
            Event::Reset { site } => self.reset_device(site),
            Event::Use { site, yes } => self.use_device(site, yes),
            Event::Open { site, name, how, writer } => {
                self.open(site, name, how, writer);
                Ok(())
            }
            Event::Close { stream, finish } => {
                self.clients.close(stream, finish);
                Ok(())
            }
            Event::Give { site, stream, count } => self.give(site, stream, count),
            Event::Carry { site, stream, from, to } => self.carry(site, stream, from, to),
            Event::Offer { site, stream, most } => self.offer(site, stream, most),
            Event::Apply { site } if self.sites[site].node.is_some() => self.apply_decided(site),
            Event::Apply { .. } => Ok(()),
        }?;
        self.judge_streams()?;
        for site in 0..self.sites.len() {
            if !self.setup.lag && self.sites[site].node.is_some() {
                self.apply_decided(site)?;
            }
            if self.setup.bare {
                self.tell(site)?;
            }
        }
        self.judge_holders()
    }

    /// Trims a log. A snapshot of the node's own covers everything below `to`, which the node must
    /// have decided and must hold.
    fn trim(&mut self, at: usize, to: Slot) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        let Some(node) = site.node.as_ref().filter(|_| !site.failed) else {
            return Ok(());
        };
        // A node that has forgotten the slots below has no snapshot of them.
        let news = to > node.log_start() && to <= node.decided_to() && !node.is_hollow();
        let Some(history) = site.history(to).filter(|_| news) else {
            return Ok(());
        };
        let eras = reconfigure::replay(site.disk.base(&self.setup.founding), &history);
        site.rebase(to, eras);
        let members = self.observer.configuration();
        let behind =
            |site: &Site| site.decided_to() < to && members.position(site.member).is_some();
        self.seen.trimmed_beyond_a_member += u64::from(self.sites.iter().any(behind));
        self.step(at, Input::Trimmed(to))
    }

    /// Installs, at one node, the snapshot that covers the slots below another node's log.
    fn install(&mut self, at: usize, from: usize) -> Result<(), Violation> {
        let source = &self.sites[from];
        let snapshot = source.disk.snapshot().filter(|_| source.node.is_some());
        let Some((to, eras)) = snapshot.cloned() else {
            return Ok(());
        };
        let site = &mut self.sites[at];
        let usable = |node: &Node| node.may_install(to, &eras);
        if site.failed || !site.node.as_ref().is_some_and(usable) {
            return Ok(());
        }
        site.rebase(to, eras.clone());
        self.seen.installed += 1;
        self.step(at, Input::Installed { to, eras })
    }

    /// [trim-1] Moves the start of an auxiliary's log to the slot that it requested.
    fn forget(&mut self, at: usize) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        let Some(to) = site.forgets.take().filter(|_| !site.failed) else {
            return Ok(());
        };
        let Some(node) = &site.node else {
            return Ok(());
        };
        if to <= site.disk.log_start() {
            return Ok(());
        }
        let known = node.eras().clone();
        site.forget(to, known);
        // Holders must be checked again.
        self.judged = (Era(u32::MAX), Slot(0));
        self.step(at, Input::Forgotten(to))
    }

    /// [join-2] Replaces a removed node on its machine with a new one. The machine is emptied and
    /// joins as a new node, just as a folder without an identity is assigned an unused id.
    fn wipe(&mut self, at: usize) -> Result<(), Violation> {
        let node = self.sites[at].member.node;
        let eras = self.observer.eras();
        let removed = eras.current().member_of(node).is_none();
        if !removed || !eras.identity(node).is_some_and(|id| id.is_removed) {
            return Ok(());
        }
        self.crash(at, 0)?;
        for peer in 0..self.sites.len() {
            if self.sites[peer].connected.contains(&at) {
                self.disconnect(peer, at)?;
            }
        }
        self.sites[at].wipe(NodeId(node.0 + MACHINES_MAX));
        self.seen.replaced += 1;
        self.start(at, false)
    }

    /// [era-12], [trim-1] Checks that every phase-1 quorum of the members that may promise includes
    /// a holder of every chosen value. A node that has noticed damage makes no promise for slots
    /// that it lost ([disk-8]).
    fn judge_holders(&mut self) -> Result<(), Violation> {
        let now = (self.observer.era(), self.observer.chosen_to());
        if !self.setup.holders || self.judged == now {
            return Ok(());
        }
        self.judged = now;
        let configuration = self.observer.configuration();
        for slot in (Slot::FIRST.0..now.1.0).map(Slot) {
            let value = self.observer.chosen(slot).expect("below what is chosen");
            // [stream-4] The bytes of a no-op are not needed.
            let content = matches!(value, Value::Content { .. });
            let bytes = !content || self.streams.appended(slot).is_some();
            let lacks =
                |site: &&Site| !site.disk.is_damaged() && !site.disk.holds(slot, value, bytes);
            let without: Vec<Member> =
                self.sites.iter().filter(lacks).map(|site| site.member).collect();
            let verdict = invariants::quorum_has_holder(configuration, slot, &without);
            self.observer.judge(Property::Holders, verdict)?;
        }
        Ok(())
    }

    /// Returns the current time by the clock of node `at`.
    pub(crate) fn time(&self, at: usize) -> Time {
        let rate = self.setup.rates_ppm.get(at).copied().unwrap_or(RIGHT_PPM);
        Time(scaled(self.now.0, rate, RIGHT_PPM))
    }

    /// Returns the time at which this node's clock first shows at least `time`.
    fn moment(&self, at: usize, time: Time) -> Time {
        let rate = self.setup.rates_ppm.get(at).copied().unwrap_or(RIGHT_PPM);
        match (time, rate) {
            (NEVER, _) | (_, RIGHT_PPM) => time,
            _ => Time(scaled(time.0, RIGHT_PPM, rate) + 1),
        }
    }

    /// [read-4] Checks that a lease read at this moment sees every slot known to be decided by any
    /// node.
    fn read_by_lease(&mut self, at: usize) -> Result<(), Violation> {
        let now = self.time(at);
        let leased = self.sites[at].node.as_ref().and_then(|node| node.leased_read(now));
        let Some(leased) = leased else { return Ok(()) };
        self.leased += 1;
        let verdict = invariants::read_is_fresh(self.observer.known_to(), leased.slot);
        self.observer.judge(Property::LeasedReads, verdict)
    }

    fn deliver(&mut self, at: usize, bytes: bool) -> Result<(), Violation> {
        let Parcel { from, to, message, bytes: carried, said } = self.soup[at].clone();
        let site = &mut self.sites[site_of(to)];
        if site.node.is_none() || site.member.node != to {
            return Ok(());
        }
        if let Some(said) = said
            && !self.accepts_message(site_of(to), from, said)?
        {
            return Ok(());
        }
        let site = &mut self.sites[site_of(to)];
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
        let learned = matches!(
            (&message, &content),
            (Message::Learn { .. }, Some((Value::Content { .. }, _)))
        );
        if learned && !held && self.setup.bare {
            return self.learn_bare(site_of(to), from, message);
        }
        let message = match message {
            // The part of a decided run that needs no bytes is learned and recorded separately. The
            // rest is requested again.
            Message::Learn { range, value } if !held => {
                Message::Learn { range: site.held_of(&value, range), value }
            }
            message => message,
        };
        let held = match &message {
            Message::Learn { range, .. } => held || !range.is_empty(),
            _ => held,
        };
        self.step(site_of(to), Input::Message { from, message, held })?;
        match content {
            Some((value, _)) => self.found(site_of(to), &value),
            None => Ok(()),
        }
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

    /// Reports the votes among records that are now on stable storage to the observer, if only such
    /// votes count in this group.
    fn on_stable(&mut self, at: usize, records: &[Record]) -> Result<(), Violation> {
        if self.class() == Class::Volatile {
            return Ok(());
        }
        let member = self.sites[at].member;
        for record in records {
            if let Record::Vote { ballot, range, value } = *record {
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
        site.device.orphan();
        let records = site.disk.crash(kept);
        site.forget_process();
        self.forget_memory(at, false);
        self.on_stable(at, &records)
    }

    /// [less-4] Marks this node's votes as forgotten, except those in its log. With `written`, only
    /// votes on stable storage count as being in its log.
    fn forget_memory(&mut self, at: usize, written: bool) {
        let site = &self.sites[at];
        let has = |ballot, slot| site.disk.has_vote(ballot, slot, written);
        self.observer.record_loss(site.member, has);
    }

    fn start(&mut self, at: usize, forget: bool) -> Result<(), Violation> {
        self.start_asking(at, forget, u32::MAX)
    }

    /// Starts a node that queries only the sites in the address book `book`. Other sites remind it
    /// later.
    fn start_asking(&mut self, at: usize, forget: bool, book: u32) -> Result<(), Violation> {
        self.processes += 1;
        let recalled = self.recalled(at, book);
        let recalled = Some(recalled).filter(|memory| self.sites[at].memory().fell_behind(*memory));
        let lied = std::mem::take(&mut self.sites[at].lied) || self.sites[at].owes;
        self.tell_behind(at, recalled, lied)?;
        // [lie-5] Before the node sends a message, a node that was not queried reminds it.
        let reminded = lied
            && recalled.is_none()
            && self.sites[at].memory().fell_behind(self.recalled(at, u32::MAX));
        let site = &mut self.sites[at];
        site.process = self.processes;
        let found = site.disk.recover(&self.setup.founding);
        let mut recovered = found.recovered;
        if forget {
            site.memory_from = site.disk.entries().len();
            recovered.votes.clear();
            recovered.hard.promised = Ballot::ZERO;
        } else if found.forgotten || recalled.is_some() || site.owes {
            // [disk-8], [lie-4], [volatile-1] The node acknowledges the loss with a new
            // incarnation.
            let heard = recalled.map_or(0, |memory| memory.log_end.incarnation.0);
            site.owes = false;
            site.memory_from = site.disk.entries().len();
            site.member.incarnation.0 = site.member.incarnation.0.max(heard) + 1;
            site.disk.own_up();
        }
        site.read_back(found.decided, recovered.decided_to);
        if let Some(slot) = found.hole {
            let verdict = Err(format!("slot {slot}: decided, and nowhere in the log"));
            self.observer.judge(Property::Recovery, verdict)?;
        }
        for (range, value) in self.sites[at].decided() {
            self.observer.recovered(range.from, value)?;
        }
        if !self.setup.lag {
            self.judge_streams()?;
            self.apply_decided(at)?;
        }
        let node = Node::new(self.options(at), recovered);
        let (member, promised) = (self.sites[at].member, node.acceptor().promised());
        if !reminded {
            self.observer.restarted(member, promised)?;
        }
        self.sites[at].wake = self.now;
        self.leave_device(at)?;
        if self.sites[at].device_of != member {
            self.sites[at].device_of = member;
            self.sites[at].device_cast.clear();
        }
        self.sites[at].node = Some(node);
        self.tell(at)?;
        self.step(at, Input::Tick)?;
        self.use_device(at, true)?;
        for peer in 0..self.sites.len() {
            if peer != at && self.sites[peer].node.is_some() {
                let (own, member) = (self.sites[at].memory(), self.sites[at].member);
                let memory = self.sites[peer].witness.record_connection(member, 0);
                let reminded = Some(memory).filter(|memory| own.fell_behind(*memory));
                self.tell_behind(at, reminded, lied)?;
                if reminded.is_some() && !self.sites[at].failed {
                    // [lie-5] The reminder precedes any other message on this connection.
                    self.seen.reminded += 1;
                    (self.sites[at].failed, self.sites[at].owes) = (true, true);
                    self.step(at, Input::StorageFailed)?;
                }
                self.connect(at, peer)?;
                self.disconnect(peer, at)?;
                self.connect(peer, at)?;
            }
        }
        Ok(())
    }

    /// [lie-3] Returns the most advanced state of a node's log that running nodes in the address
    /// book `book` remember.
    fn recalled(&self, at: usize, book: u32) -> Memory {
        let node = self.sites[at].member.node;
        let sites = self.sites.iter().enumerate();
        let asked = sites.filter(|(at, site)| book & 1 << at != 0 && site.node.is_some());
        let asked = asked.map(|(_, site)| site.witness.memory_of(node));
        asked.fold(Memory::default(), Memory::max)
    }

    /// Checks that a node is notified of a rollback only if it lost records.
    fn tell_behind(
        &mut self,
        at: usize,
        memory: Option<Memory>,
        lied: bool,
    ) -> Result<(), Violation> {
        let told = memory.filter(|_| !lied);
        let verdict = told.map_or(Ok(()), |memory| {
            Err(format!("node {} lost nothing, and is told {memory:?}", at + 1))
        });
        self.observer.judge(Property::Durable, verdict)
    }

    /// [lie-2], [lie-5] Returns whether a message counts, given the log end of the process that
    /// sent it. Messages from earlier processes count, because they were true when sent.
    fn accepts_message(
        &mut self,
        at: usize,
        from: Member,
        (process, to): (u64, u64),
    ) -> Result<bool, Violation> {
        let sender = site_of(from.node);
        if self.sites[sender].process != process || self.sites[sender].member != from {
            return Ok(true);
        }
        match self.sites[at].witness.record_log_end(from, to) {
            Ok(()) => Ok(true),
            Err(remembered) => {
                // A node whose log is less advanced was notified before it sent a message. A node
                // that has only been reminded, by this node or another, cannot record the loss. It
                // responds until its process ends, but its messages do not count.
                if self.sites[sender].owes {
                    return Ok(false);
                }
                let verdict = Err(format!(
                    "node {from} runs with write {to}, and said {remembered:?} before"
                ));
                self.observer.judge(Property::Durable, verdict)?;
                Ok(false)
            }
        }
    }

    /// Starts a node that was down. If other nodes remember its log, the disk loses the end of that
    /// log first.
    fn lie(&mut self, at: usize, lost: u64, book: u32) -> Result<(), Violation> {
        let remembered = self.recalled(at, u32::MAX).log_end;
        let same = remembered.last_write > 0
            && remembered.incarnation == self.sites[at].member.incarnation;
        if self.sites[at].node.is_some() || !same {
            return Ok(());
        }
        let from = remembered.last_write.saturating_sub(lost.max(1));
        if from < remembered.last_write {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            self.sites[at].disk.lose_from(from);
            self.sites[at].lied = true;
            self.seen.lies += 1;
        }
        self.start_asking(at, false, book)
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
        // The bytes are present, whatever slots the value is assigned to.
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
        if let (value @ Value::Content { .. }, range) = self.sites[at].fetches[0] {
            self.sites[at].fetches.rotate_left(1);
            if found {
                self.fetch_content(at, &value, range);
            }
            return self.found(at, &value);
        }
        let (value, range) = self.sites[at].fetches.remove(0);
        if !found {
            return Ok(());
        }
        // Any running node that has some of the bytes supplies them.
        let news: Vec<(Value, Slot)> = self
            .sites
            .iter()
            .filter(|site| site.node.is_some())
            .flat_map(|site| site.bytes_of(value))
            .collect();
        self.sites[at].take_bytes(news);
        let held = self.sites[at].held_of(&value, range);
        if held.to < range.to {
            // No node has the remaining bytes at the moment.
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
        // [snap-3] A node that wrongly served slots below the start of its log would find these
        // values there.
        let below = SlotRange::new(Slot::FIRST, site.disk.log_start()).intersect(wanted);
        let stale = (below.from.0..below.to.0).map(Slot);
        let stale =
            stale.filter_map(|slot| Some((SlotRange::one(slot), site.disk.last_word(slot)?)));
        let decided = site.decided().iter();
        let decided = decided.map(|(range, value)| (range.intersect(wanted), *value));
        let parts: Vec<(SlotRange, Value, bool)> = stale
            .chain(decided)
            .filter(|(range, _)| !range.is_empty())
            .flat_map(|(range, value)| site.parts(range, value))
            .collect();
        for (range, value, bytes) in parts {
            let message = Message::Learn { range, value };
            // [snap-5] Bytes outside the log are not sent along.
            let content = matches!(value, Value::Content { .. });
            let lacks_bytes = self.setup.bare && content && !range.from.0.is_multiple_of(3);
            self.post(at, to, message, bytes && !lacks_bytes);
        }
        Ok(())
    }

    /// Returns the index of the site that leads in the highest ballot; `None` if no node leads.
    pub fn leader(&self) -> Option<usize> {
        let ballot = |at: &usize| {
            let leading = self.sites[*at].node.as_ref().and_then(Node::leading);
            leading.map(quorate_core::leader::Leading::ballot)
        };
        (0..self.sites.len()).filter(|at| ballot(at).is_some()).max_by_key(|at| ballot(at))
    }

    pub fn leads(&self, at: usize) -> bool {
        let node = self.sites[at].node.as_ref();
        node.is_some_and(|node| node.role() == Role::Leader)
    }

    /// Returns the end of the slots that this node has decided.
    pub fn decided_to(&self, at: usize) -> Slot {
        self.sites[at].decided_to()
    }

    pub fn era(&self, at: usize) -> Option<Era> {
        self.sites[at].node.as_ref().map(Node::era)
    }

    /// Returns the time at which this node requested to be woken, or the current time if that time
    /// has passed or is unknown.
    pub fn due(&self, at: usize) -> Time {
        match self.sites[at].wake {
            NEVER => self.now,
            wake => wake.max(self.now),
        }
    }

    /// Returns the current members on all sites, whether or not they run.
    pub fn members(&self) -> Vec<Member> {
        self.sites.iter().map(|site| site.member).collect()
    }

    /// Returns the batches whose bytes this node has.
    pub fn batches_at(&self, at: usize) -> Vec<Value> {
        self.sites[at].batches()
    }
}
