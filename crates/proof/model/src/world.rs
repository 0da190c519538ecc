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
    observer::{Observer, Property, Violation, WatchedProperties},
    seen::SituationCounts,
    setup::WorldSetup,
    site::Site,
    streams::{clients::StreamClients, judge::StreamJudge},
};

pub const NEVER: Time = Time(u64::MAX);

/// Rate of an exact clock, in parts per million.
pub const EXACT_CLOCK_PPM: u64 = 1_000_000;

fn scale_time(time: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(time) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A message in the soup, where it remains permanently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SentMessage {
    /// Sender of the message in its incarnation at that time.
    pub from: Member,
    pub receiver: NodeId,
    pub message: Message,
    /// The bytes of the message's value travel with it.
    pub bytes: bool,
    /// The sending process, and the end of its log when it sent the message ([lie-1]).
    pub sender_log_end: Option<(u64, u64)>,
}

/// Complete state of a model run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub setup: WorldSetup,
    /// The nodes' machines. Initially, node n is at index n − 1.
    pub sites: Vec<Site>,
    /// All frames that devices ever sent.
    pub frames: Vec<Frame>,
    /// All messages ever sent.
    pub soup: Vec<SentMessage>,
    pub observer: Observer,
    /// The current time by an exact clock.
    pub now: Time,
    /// Every message is added to the soup, even a repeated one. Used in the second act.
    pub keeps_duplicates: bool,
    /// Era and end of the chosen slots at the time when holders were last checked.
    holders_checked_at: (Era, Slot),
    process_count: u64,
    /// Number of reads answered under a lease.
    pub lease_reads: u64,
    /// Commands of clients about streams, and the bytes that clients have handed over.
    pub clients: StreamClients,
    /// Checker of the bytes that streams deliver.
    stream_judge: StreamJudge,
    /// Counters of the situations that occur on machines.
    pub(crate) situations: SituationCounts,
}

/// Distance between the ids of successive nodes on one machine.
const NODE_ID_STRIDE: u32 = 16;

/// Returns the index of the machine on which this node runs, possibly after predecessors.
pub const fn site_index(node: NodeId) -> usize {
    ((node.0 - 1) % NODE_ID_STRIDE) as usize
}

impl World {
    /// Creates a world in which all nodes are started and connected.
    pub fn new(setup: WorldSetup, watched: WatchedProperties) -> Result<Self, Violation> {
        let mut observer = Observer::new(&setup.founding_configuration, watched);
        if setup.notifies_in_memory {
            observer.expect_claims();
        }
        let number = |at: usize| u32::try_from(at).expect("few") + 1;
        let site = |at: usize| Site::new(Member::first(number(at)));
        let mut world = Self {
            sites: (0..setup.node_count).map(site).collect(),
            setup,
            soup: Vec::new(),
            frames: Vec::new(),
            observer,
            now: Time(1),
            keeps_duplicates: false,
            holders_checked_at: (Era(0), Slot::FIRST),
            process_count: 0,
            lease_reads: 0,
            clients: StreamClients::default(),
            stream_judge: StreamJudge::default(),
            situations: SituationCounts::default(),
        };
        for at in 0..world.sites.len() {
            world.sites[at].device = Device::new(world.setup.device_cells);
            world.start(at, false)?;
        }
        Ok(world)
    }

    pub fn situations(&self) -> SituationCounts {
        let seen = self.situations.sum(self.observer.situations());
        seen.sum(self.stream_judge.situations())
    }

    pub fn storage_class(&self) -> Class {
        self.setup.founding_configuration.class()
    }

    fn node_options(&self, at: usize) -> Options {
        Options {
            member: self.sites[at].member,
            heartbeat_ms: self.setup.heartbeat_ms,
            election_min_ms: self.setup.election_min_ms,
            election_max_ms: self.setup.election_max_ms,
            inflight_max: self.setup.inflight_max,
            window_slots: self.setup.window_slots,
            leases: self.setup.lease_rules,
            earlier_lease_us: self.setup.lease_rules.map_or(0, |leases| leases.duration_us),
            // [lie-6] Reminders arrive first, as every running node connects before another event.
            lead_alone_wait_us: u64::from(self.setup.detects_rollback),
            thrifty: self.setup.is_thrifty,
            route: self.setup.route.clone(),
            seed: self
                .setup
                .seed
                .wrapping_add(self.sites[at].process_number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Applies one event. An event that is impossible in the current state changes nothing.
    pub fn apply_event(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Deliver { message_index: at, bytes } => self.deliver_message(at, bytes),
            Event::Persist { site, count } => self.persist_records(site, count),
            Event::Crash { site, kept_count: kept } => self.crash_process(site, kept),
            Event::Stop { site } => {
                if self.sites[site].node.is_some() && !self.sites[site].storage_failed {
                    // [offload-8] The use of the device ends before the log is marked as cleanly
                    // stopped.
                    self.use_device(site, false)?;
                    self.carry_out_all_orders(site)?;
                    // A persisted record may cause another record.
                    while self.sites[site].disk.unpersisted_count() > 0 {
                        self.persist_records(site, usize::MAX / 2)?;
                    }
                    self.crash_process(site, 0)?;
                    self.start(site, false)?;
                }
                Ok(())
            }
            Event::Start { site, forgets_votes: forget } => {
                if self.sites[site].node.is_none() {
                    if self.storage_class() == Class::Volatile {
                        let member = self.sites[site].member;
                        let amid = self.observer.has_open_change()
                            && self.observer.configuration().position(member).is_some();
                        self.situations.forgot_amid_a_change += u64::from(amid && forget);
                        self.sites[site].member.incarnation.0 += 1;
                    }
                    self.start(site, forget && self.storage_class() == Class::Volatile)?;
                }
                Ok(())
            }
            Event::Tick { site, at } => {
                self.now = self.now.max(at);
                // As in the replica, a node that does not request a new time is never woken again.
                self.sites[site].wake_time = NEVER;
                self.step_node(site, Input::Tick)?;
                let asleep = self.sites[site].node.is_some() && self.sites[site].wake_time == NEVER;
                let verdict = if asleep {
                    Err(format!("node {} says no more when to wake it", site + 1))
                } else {
                    Ok(())
                };
                self.observer.to_violation(Property::Liveness, verdict)
            }
            Event::DelayTurn { site, delay_us: us } => {
                self.step_node(site, Input::LateTurn { delay_us: us })
            }
            Event::Propose { site, value, slot_count: slots } => self.propose(site, value, slots),
            Event::Read { site, token } => {
                let known = self.observer.known_decided_to();
                let token = ReadToken(token);
                self.sites[site].record_read(token, known);
                self.step_node(site, Input::Read(token))
            }
            Event::LeasedRead { site, at } => {
                self.now = self.now.max(at);
                self.check_lease_read(site)
            }
            Event::AwaitDurable { site } => {
                let to = self.sites[site].decided_to();
                self.step_node(site, Input::AwaitDurable { to })
            }
            Event::AwaitInMemory { site } => {
                let run = self.sites[site].node.as_ref().map(|node| *node.newest_run());
                let Some(run) = run.filter(|run| run.from < run.to) else {
                    return Ok(());
                };
                let (ballot, to) = (run.ballot, run.to);
                self.step_node(site, Input::AwaitEarlyVotes { ballot, to })
            }
            Event::Fetch { site, succeeds: found } => self.complete_fetch(site, found),
            Event::FetchMissing { site } => self.fetch_missing_bytes(site),
            Event::ServeCatchUp { site } => self.serve_catchup(site),
            Event::Connect { site, peer } => {
                if self.sites[peer].node.is_none() {
                    return Ok(());
                }
                self.connect(site, peer)
            }
            Event::Disconnect { site, peer } => self.disconnect(site, peer),
            Event::StorageFails { site } => {
                self.sites[site].storage_failed = self.sites[site].node.is_some();
                self.mark_votes_forgotten(site, true);
                self.step_node(site, Input::StorageFailed)
            }
            Event::DamageRecords { site, from, count } => {
                self.sites[site].disk.damage_entries(from, count);
                Ok(())
            }
            Event::StartRolledBack { site, lost_count: lost, address_book: book } => {
                self.start_rolled_back(site, lost, book)
            }
            Event::Transfer { site, new_leader: to } => {
                self.step_node(site, Input::Transfer { to })
            }
            Event::SetRoute { site, route: ref wish } => {
                self.step_node(site, Input::Route(wish.clone()))
            }
            Event::Trim { site, log_start: to } => self.trim_log(site, to),
            Event::Install { site, from } => self.install_snapshot(site, from),
            Event::ForgetSlots { site } => self.forget_below(site),
            Event::ReplaceDisk { site } => self.replace_machine(site),
            Event::CarryOutOrder { site, at_once: whole } => self.carry_out_order(site, whole),
            Event::DeliverFrame { site, frame_index: frame, at_once: whole } => {
                self.receive_frame(site, frame, whole)
            }
            Event::EndDeviceSteps { site } => self.end_device_steps(site),
            Event::AssignSlot { site, at_once: whole, leaves_hole: hole } => {
                self.assign_device_slot(site, whole, hole)
            }
            Event::DeliverDeviceReport { site } => self.deliver_device_report(site),
            Event::DeliverVoteReport { site, report_index: which, is_lost: lost } => {
                self.deliver_vote_report(site, which, lost)
            }
            Event::ResetDevice { site } => self.reset_device(site),
            Event::UseDevice { site, is_used: yes } => self.use_device(site, yes),
            Event::OpenStream { site, name, mode: how, writer } => {
                self.open(site, name, how, writer);
                Ok(())
            }
            Event::CloseStream { stream, is_finished: finish } => {
                self.clients.close(stream, finish);
                Ok(())
            }
            Event::GiveStreamBytes { site, stream, byte_count: count } => {
                self.give_stream_bytes(site, stream, count)
            }
            Event::DeliverStreamBytes { site, stream, from, end: to } => {
                self.deliver_stream_bytes(site, stream, from, to)
            }
            Event::ProposeStreamBytes { site, stream, bytes_max: most } => {
                self.propose_stream_bytes(site, stream, most)
            }
            Event::ApplyDecided { site } if self.sites[site].node.is_some() => {
                self.apply_decided(site)
            }
            Event::ApplyDecided { .. } => Ok(()),
        }?;
        self.judge_streams()?;
        for site in 0..self.sites.len() {
            if !self.setup.delays_apply && self.sites[site].node.is_some() {
                self.apply_decided(site)?;
            }
            if self.setup.learns_without_bytes {
                self.notify_missing_bytes(site)?;
            }
        }
        self.judge_holders()
    }

    /// Trims a log. A snapshot of the node's own covers everything below `to`, which the node must
    /// have decided and must hold.
    fn trim_log(&mut self, at: usize, to: Slot) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        let Some(node) = site.node.as_ref().filter(|_| !site.storage_failed) else {
            return Ok(());
        };
        // A node that has forgotten the slots below has no snapshot of them.
        let news = to > node.log_start() && to <= node.decided_to() && !node.is_hollow();
        let Some(history) = site.decided_history(to).filter(|_| news) else {
            return Ok(());
        };
        let eras = reconfigure::replay(
            site.disk.eras_at_start(&self.setup.founding_configuration),
            &history,
        );
        site.move_to_snapshot(to, eras);
        let members = self.observer.configuration();
        let behind =
            |site: &Site| site.decided_to() < to && members.position(site.member).is_some();
        self.situations.trimmed_beyond_a_member += u64::from(self.sites.iter().any(behind));
        self.step_node(at, Input::Trimmed(to))
    }

    /// Installs, at one node, the snapshot that covers the slots below another node's log.
    fn install_snapshot(&mut self, at: usize, from: usize) -> Result<(), Violation> {
        let source = &self.sites[from];
        let snapshot = source.disk.start_snapshot().filter(|_| source.node.is_some());
        let Some((to, eras)) = snapshot.cloned() else {
            return Ok(());
        };
        let site = &mut self.sites[at];
        let usable = |node: &Node| node.may_install(to, &eras);
        if site.storage_failed || !site.node.as_ref().is_some_and(usable) {
            return Ok(());
        }
        site.move_to_snapshot(to, eras.clone());
        self.situations.snapshots_installed += 1;
        self.step_node(at, Input::Installed { to, eras })
    }

    /// [trim-1] Moves the start of an auxiliary's log to the slot that it requested.
    fn forget_below(&mut self, at: usize) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        let Some(to) = site.forget_request.take().filter(|_| !site.storage_failed) else {
            return Ok(());
        };
        let Some(node) = &site.node else {
            return Ok(());
        };
        if to <= site.disk.log_start() {
            return Ok(());
        }
        let known = node.eras().clone();
        site.forget_below(to, known);
        // Holders must be checked again.
        self.holders_checked_at = (Era(u32::MAX), Slot(0));
        self.step_node(at, Input::Forgotten(to))
    }

    /// [join-2] Replaces a removed node on its machine with a new one. The machine is emptied and
    /// joins as a new node, just as a folder without an identity is assigned an unused id.
    fn replace_machine(&mut self, at: usize) -> Result<(), Violation> {
        let node = self.sites[at].member.node;
        let eras = self.observer.eras();
        let removed = eras.current().member_of(node).is_none();
        if !removed || !eras.identity(node).is_some_and(|id| id.is_removed) {
            return Ok(());
        }
        self.crash_process(at, 0)?;
        for peer in 0..self.sites.len() {
            if self.sites[peer].connected_sites.contains(&at) {
                self.disconnect(peer, at)?;
            }
        }
        self.sites[at].wipe(NodeId(node.0 + NODE_ID_STRIDE));
        self.situations.replaced_machines += 1;
        self.start(at, false)
    }

    /// [era-12], [trim-1] Checks that every phase-1 quorum of the members that may promise includes
    /// a holder of every chosen value. A node that has noticed damage makes no promise for slots
    /// that it lost ([disk-8]).
    fn judge_holders(&mut self) -> Result<(), Violation> {
        let now = (self.observer.era(), self.observer.chosen_to());
        if !self.setup.checks_holders || self.holders_checked_at == now {
            return Ok(());
        }
        self.holders_checked_at = now;
        let configuration = self.observer.configuration();
        for slot in (Slot::FIRST.0..now.1.0).map(Slot) {
            let value = self.observer.chosen_value(slot).expect("below what is chosen");
            // [stream-4] The bytes of a no-op are not needed.
            let content = matches!(value, Value::Content { .. });
            let bytes = !content || self.stream_judge.appended_byte(slot).is_some();
            let lacks =
                |site: &&Site| !site.disk.is_damaged() && !site.disk.is_durable(slot, value, bytes);
            let without: Vec<Member> =
                self.sites.iter().filter(lacks).map(|site| site.member).collect();
            let verdict = invariants::quorum_has_holder(configuration, slot, &without);
            self.observer.to_violation(Property::Holders, verdict)?;
        }
        Ok(())
    }

    /// Returns the current time by the clock of node `at`.
    pub(crate) fn clock_time(&self, at: usize) -> Time {
        let rate = self.setup.clock_rates_ppm.get(at).copied().unwrap_or(EXACT_CLOCK_PPM);
        Time(scale_time(self.now.0, rate, EXACT_CLOCK_PPM))
    }

    /// Returns the time at which this node's clock first shows at least `time`.
    fn when_clock_shows(&self, at: usize, time: Time) -> Time {
        let rate = self.setup.clock_rates_ppm.get(at).copied().unwrap_or(EXACT_CLOCK_PPM);
        match (time, rate) {
            (NEVER, _) | (_, EXACT_CLOCK_PPM) => time,
            _ => Time(scale_time(time.0, EXACT_CLOCK_PPM, rate) + 1),
        }
    }

    /// [read-4] Checks that a lease read at this moment sees every slot known to be decided by any
    /// node.
    fn check_lease_read(&mut self, at: usize) -> Result<(), Violation> {
        let now = self.clock_time(at);
        let leased = self.sites[at].node.as_ref().and_then(|node| node.leased_read(now));
        let Some(leased) = leased else { return Ok(()) };
        self.lease_reads += 1;
        let verdict = invariants::read_is_fresh(self.observer.known_decided_to(), leased.slot);
        self.observer.to_violation(Property::LeasedReads, verdict)
    }

    fn deliver_message(&mut self, at: usize, bytes: bool) -> Result<(), Violation> {
        let SentMessage { from, receiver: to, message, bytes: carried, sender_log_end: said } =
            self.soup[at].clone();
        let site = &mut self.sites[site_index(to)];
        if site.node.is_none() || site.member.node != to {
            return Ok(());
        }
        if let Some(said) = said
            && !self.accepts_message(site_index(to), from, said)?
        {
            return Ok(());
        }
        let site = &mut self.sites[site_index(to)];
        let content = match &message {
            Message::Phase2a(m) => Some((m.value, m.range)),
            Message::Learn { range, value } => Some((*value, *range)),
            _ => None,
        };
        let held = content.is_none_or(|(value, range)| {
            if carried && bytes {
                site.hold_bytes(&value, range);
            }
            site.holds_bytes(&value, range)
        });
        let learned = matches!(
            (&message, &content),
            (Message::Learn { .. }, Some((Value::Content { .. }, _)))
        );
        if learned && !held && self.setup.learns_without_bytes {
            return self.learn_without_bytes(site_index(to), from, message);
        }
        let message = match message {
            // The part of a decided run that needs no bytes is learned and recorded separately. The
            // rest is requested again.
            Message::Learn { range, value } if !held => {
                Message::Learn { range: site.complete_prefix(&value, range), value }
            }
            message => message,
        };
        let held = match &message {
            Message::Learn { range, .. } => held || !range.is_empty(),
            _ => held,
        };
        self.step_node(site_index(to), Input::Message { from, message, bytes_held: held })?;
        match content {
            Some((value, _)) => self.notify_fetched(site_index(to), &value),
            None => Ok(()),
        }
    }

    fn persist_records(&mut self, at: usize, count: usize) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if site.node.is_none() || site.storage_failed || site.disk.unpersisted_count() == 0 {
            return Ok(());
        }
        let records = site.disk.persist(count);
        let seq = RecordSeq(site.disk.last_persisted_seq());
        self.observe_stable_votes(at, &records)?;
        self.step_node(at, Input::Persisted(seq))
    }

    /// Reports the votes among records that are now on stable storage to the observer, if only such
    /// votes count in this group.
    fn observe_stable_votes(&mut self, at: usize, records: &[Record]) -> Result<(), Violation> {
        if self.storage_class() == Class::Volatile {
            return Ok(());
        }
        let member = self.sites[at].member;
        for record in records {
            if let Record::Vote { ballot, range, value } = *record {
                self.observer.record_vote(member, ballot, range, value)?;
            }
        }
        Ok(())
    }

    fn crash_process(&mut self, at: usize, kept: usize) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if site.node.take().is_none() {
            return Ok(());
        }
        let kept = if site.storage_failed { 0 } else { kept };
        site.device.end_owner_process();
        let records = site.disk.crash(kept);
        site.drop_process();
        self.mark_votes_forgotten(at, false);
        self.observe_stable_votes(at, &records)
    }

    /// [less-4] Marks this node's votes as forgotten, except those in its log. With `written`, only
    /// votes on stable storage count as being in its log.
    fn mark_votes_forgotten(&mut self, at: usize, written: bool) {
        let site = &self.sites[at];
        let has = |ballot, slot| site.disk.has_vote(ballot, slot, written);
        self.observer.record_loss(site.member, has);
    }

    fn start(&mut self, at: usize, forget: bool) -> Result<(), Violation> {
        self.start_and_query(at, forget, u32::MAX)
    }

    /// Starts a node that queries only the sites in the address book `book`. Other sites remind it
    /// later.
    fn start_and_query(&mut self, at: usize, forget: bool, book: u32) -> Result<(), Violation> {
        self.process_count += 1;
        let recalled = self.remembered_log_end(at, book);
        let recalled =
            Some(recalled).filter(|memory| self.sites[at].log_end().fell_behind(*memory));
        let lied = std::mem::take(&mut self.sites[at].was_rolled_back)
            || self.sites[at].needs_new_incarnation;
        self.notify_rollback(at, recalled, lied)?;
        // [lie-5] Before the node sends a message, a node that was not queried reminds it.
        let reminded = lied
            && recalled.is_none()
            && self.sites[at].log_end().fell_behind(self.remembered_log_end(at, u32::MAX));
        let site = &mut self.sites[at];
        site.process_number = self.process_count;
        let found = site.disk.recover(&self.setup.founding_configuration);
        let mut recovered = found.log_state;
        if forget {
            site.memory_from = site.disk.entries().len();
            recovered.votes.clear();
            recovered.hard_state.promised = Ballot::ZERO;
        } else if found.may_have_forgotten || recalled.is_some() || site.needs_new_incarnation {
            // [disk-8], [lie-4], [volatile-1] The node acknowledges the loss with a new
            // incarnation.
            let heard = recalled.map_or(0, |memory| memory.log_end.incarnation.0);
            site.needs_new_incarnation = false;
            site.memory_from = site.disk.entries().len();
            site.member.incarnation.0 = site.member.incarnation.0.max(heard) + 1;
            site.disk.acknowledge_losses();
        }
        site.rebuild_memory(found.decided_values, recovered.decided_to);
        if let Some(slot) = found.first_hole {
            let verdict = Err(format!("slot {slot}: decided, and nowhere in the log"));
            self.observer.to_violation(Property::Recovery, verdict)?;
        }
        for (range, value) in self.sites[at].decided_values() {
            self.observer.check_recovered(range.from, value)?;
        }
        if !self.setup.delays_apply {
            self.judge_streams()?;
            self.apply_decided(at)?;
        }
        let node = Node::new(self.node_options(at), recovered);
        let (member, promised) = (self.sites[at].member, node.acceptor().promised());
        if !reminded {
            self.observer.check_restarted(member, promised)?;
        }
        self.sites[at].wake_time = self.now;
        self.detach_device(at)?;
        if self.sites[at].device_member != member {
            self.sites[at].device_member = member;
            self.sites[at].device_votes.clear();
        }
        self.sites[at].node = Some(node);
        self.notify_missing_bytes(at)?;
        self.step_node(at, Input::Tick)?;
        self.use_device(at, true)?;
        for peer in 0..self.sites.len() {
            if peer != at && self.sites[peer].node.is_some() {
                let (own, member) = (self.sites[at].log_end(), self.sites[at].member);
                let memory = self.sites[peer].rollback_detector.record_connection(member, 0);
                let reminded = Some(memory).filter(|memory| own.fell_behind(*memory));
                self.notify_rollback(at, reminded, lied)?;
                if reminded.is_some() && !self.sites[at].storage_failed {
                    // [lie-5] The reminder precedes any other message on this connection.
                    self.situations.rollback_reminders += 1;
                    (self.sites[at].storage_failed, self.sites[at].needs_new_incarnation) =
                        (true, true);
                    self.step_node(at, Input::StorageFailed)?;
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
    fn remembered_log_end(&self, at: usize, book: u32) -> Memory {
        let node = self.sites[at].member.node;
        let sites = self.sites.iter().enumerate();
        let asked = sites.filter(|(at, site)| book & 1 << at != 0 && site.node.is_some());
        let asked = asked.map(|(_, site)| site.rollback_detector.memory_of(node));
        asked.fold(Memory::default(), Memory::max)
    }

    /// Checks that a node is notified of a rollback only if it lost records.
    fn notify_rollback(
        &mut self,
        at: usize,
        memory: Option<Memory>,
        lied: bool,
    ) -> Result<(), Violation> {
        let told = memory.filter(|_| !lied);
        let verdict = told.map_or(Ok(()), |memory| {
            Err(format!("node {} lost nothing, and is told {memory:?}", at + 1))
        });
        self.observer.to_violation(Property::Durable, verdict)
    }

    /// [lie-2], [lie-5] Returns whether a message counts, given the log end of the process that
    /// sent it. Messages from earlier processes count, because they were true when sent.
    fn accepts_message(
        &mut self,
        at: usize,
        from: Member,
        (process, to): (u64, u64),
    ) -> Result<bool, Violation> {
        let sender = site_index(from.node);
        if self.sites[sender].process_number != process || self.sites[sender].member != from {
            return Ok(true);
        }
        match self.sites[at].rollback_detector.record_log_end(from, to) {
            Ok(()) => Ok(true),
            Err(remembered) => {
                // A node whose log is less advanced was notified before it sent a message. A node
                // that has only been reminded, by this node or another, cannot record the loss. It
                // responds until its process ends, but its messages do not count.
                if self.sites[sender].needs_new_incarnation {
                    return Ok(false);
                }
                let verdict = Err(format!(
                    "node {from} runs with write {to}, and said {remembered:?} before"
                ));
                self.observer.to_violation(Property::Durable, verdict)?;
                Ok(false)
            }
        }
    }

    /// Starts a node that was down. If other nodes remember its log, the disk loses the end of that
    /// log first.
    fn start_rolled_back(&mut self, at: usize, lost: u64, book: u32) -> Result<(), Violation> {
        let remembered = self.remembered_log_end(at, u32::MAX).log_end;
        let same = remembered.last_write > 0
            && remembered.incarnation == self.sites[at].member.incarnation;
        if self.sites[at].node.is_some() || !same {
            return Ok(());
        }
        let from = remembered.last_write.saturating_sub(lost.max(1));
        if from < remembered.last_write {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            self.sites[at].disk.lose_entries_from(from);
            self.sites[at].was_rolled_back = true;
            self.situations.disk_rollbacks += 1;
        }
        self.start_and_query(at, false, book)
    }

    fn connect(&mut self, at: usize, peer: usize) -> Result<(), Violation> {
        self.sites[at].connected_sites.insert(peer);
        let member = self.sites[peer].member;
        self.step_node(at, Input::Connected(member))
    }

    fn disconnect(&mut self, at: usize, peer: usize) -> Result<(), Violation> {
        self.sites[at].connected_sites.remove(&peer);
        let node = self.sites[peer].member.node;
        self.step_node(at, Input::Disconnected(node))
    }

    fn propose(&mut self, at: usize, value: Value, slots: u64) -> Result<(), Violation> {
        // The bytes are present, whatever slots the value is assigned to.
        let site = &mut self.sites[at];
        if let Some(leading) = site.node.as_ref().and_then(Node::phase2) {
            let next = leading.tally.next();
            site.hold_bytes(&value, SlotRange::new(next, next.plus(slots)));
        }
        self.step_node(at, Input::Propose { value, slots })
    }

    fn complete_fetch(&mut self, at: usize, found: bool) -> Result<(), Violation> {
        if self.sites[at].queued_fetches.is_empty() || self.sites[at].node.is_none() {
            return Ok(());
        }
        if let (value @ Value::Content { .. }, range) = self.sites[at].queued_fetches[0] {
            self.sites[at].queued_fetches.rotate_left(1);
            if found {
                self.fetch_content(at, &value, range);
            }
            return self.notify_fetched(at, &value);
        }
        let (value, range) = self.sites[at].queued_fetches.remove(0);
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
        self.sites[at].store_batch_bytes(news);
        let held = self.sites[at].complete_prefix(&value, range);
        if held.to < range.to {
            // No node has the remaining bytes at the moment.
            self.sites[at].queued_fetches.push((value, range));
        }
        if held.is_empty() {
            return Ok(());
        }
        self.step_node(at, Input::BytesHeld { value, range: held })
    }

    fn serve_catchup(&mut self, at: usize) -> Result<(), Violation> {
        if self.sites[at].queued_catchups.is_empty() || self.sites[at].node.is_none() {
            return Ok(());
        }
        let (to, wanted) = self.sites[at].queued_catchups.remove(0);
        let site = &self.sites[at];
        // [snap-3] A node that wrongly served slots below the start of its log would find these
        // values there.
        let below = SlotRange::new(Slot::FIRST, site.disk.log_start()).intersect(wanted);
        let stale = (below.from.0..below.to.0).map(Slot);
        let stale =
            stale.filter_map(|slot| Some((SlotRange::one(slot), site.disk.last_value(slot)?)));
        let decided = site.decided_values().iter();
        let decided = decided.map(|(range, value)| (range.intersect(wanted), *value));
        let parts: Vec<(SlotRange, Value, bool)> = stale
            .chain(decided)
            .filter(|(range, _)| !range.is_empty())
            .flat_map(|(range, value)| site.split_by_availability(range, value))
            .collect();
        for (range, value, bytes) in parts {
            let message = Message::Learn { range, value };
            // [snap-5] Bytes outside the log are not sent along.
            let content = matches!(value, Value::Content { .. });
            let lacks_bytes =
                self.setup.learns_without_bytes && content && !range.from.0.is_multiple_of(3);
            self.add_to_soup(at, to, message, bytes && !lacks_bytes);
        }
        Ok(())
    }

    /// Returns the index of the site that leads in the highest ballot; `None` if no node leads.
    pub fn leader_site(&self) -> Option<usize> {
        let ballot = |at: &usize| {
            let leading = self.sites[*at].node.as_ref().and_then(Node::phase2);
            leading.map(quorate_core::leader::Phase2::ballot)
        };
        (0..self.sites.len()).filter(|at| ballot(at).is_some()).max_by_key(|at| ballot(at))
    }

    pub fn is_leader(&self, at: usize) -> bool {
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
    pub fn next_wake_time(&self, at: usize) -> Time {
        match self.sites[at].wake_time {
            NEVER => self.now,
            wake => wake.max(self.now),
        }
    }

    /// Returns the current members on all sites, whether or not they run.
    pub fn members(&self) -> Vec<Member> {
        self.sites.iter().map(|site| site.member).collect()
    }

    /// Returns the batches whose bytes this node has.
    pub fn held_batches(&self, at: usize) -> Vec<Value> {
        self.sites[at].held_batches()
    }
}
