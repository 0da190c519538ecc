//! Choice of the next step of a random run: a single event drawn by the rates of the plan, or a
//! short sequence of events.

use quorate_core::{
    configuration::Change,
    laying::Route,
    message::Message,
    slot::Slot,
    time::Time,
    value::{BatchName, StreamName, Value},
};

use super::{Run, RunOutcome};
use crate::{event::Event, observer::Violation, world::site_index};

impl Run {
    pub(super) fn apply_random_event(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let r = self.plan.rates;
        let site = self.dice.below(self.world.sites.len());
        let peer = self.dice.below(self.world.sites.len());
        let kinds = [
            r.deliver,
            r.persist,
            r.campaign,
            r.tick,
            r.propose,
            r.change,
            r.crash,
            r.stop,
            r.start,
            r.read,
            r.fetch,
            r.serve,
            r.connect,
            r.transfer,
            r.fail,
            r.isolation,
            r.late_confirmation,
            r.rot,
            r.trim,
            r.install_snapshot,
            r.wipe,
            r.lease,
            r.forget,
            r.absence,
            r.stream_event,
            r.route,
            r.device_event,
            r.device_isolation,
            r.await_durable,
            r.lie,
            r.await_in_memory,
        ];
        let mut roll = self.dice.next() % kinds.iter().sum::<u64>();
        let kind = kinds.iter().position(|rate| {
            let here = roll < *rate;
            roll = roll.saturating_sub(*rate);
            here
        });
        let event = match kind {
            Some(0) => self.choose_delivery(),
            Some(1) => self.choose_persist(site),
            Some(2) => return self.campaign(site, shared),
            Some(15) => return self.isolate_some_nodes(site, shared),
            Some(16) => return self.confirm_read_late(shared),
            Some(17) => self.choose_damage(),
            Some(21) => return self.lease_then_usurp(shared),
            Some(3) => self.choose_tick(site),
            Some(4) => self.choose_propose(),
            Some(5) => self.choose_change(),
            Some(6) => {
                let waiting = self.world.sites[site].disk.unpersisted_count();
                let kept = self.dice.below(waiting + 1);
                Some(Event::Crash { site, kept_count: kept })
            }
            Some(7) => Some(Event::Stop { site }),
            Some(8) => self.start(),
            Some(9) => {
                self.read_count += 1;
                let token = self.read_count;
                Some(Event::Read { site, token })
            }
            Some(10) => self.choose_fetch(),
            Some(11) => {
                let sites = &self.world.sites;
                let asked = (0..sites.len()).filter(|at| !sites[*at].queued_catchups.is_empty());
                let asked: Vec<_> = asked.collect();
                (!asked.is_empty())
                    .then(|| Event::ServeCatchUp { site: self.dice.pick_from(&asked) })
            }
            Some(12) if site != peer => Some(if self.dice.chance_percent(60) {
                Event::Connect { site, peer }
            } else {
                Event::Disconnect { site, peer }
            }),
            Some(13) => {
                let to = self.world.sites[peer].member.node;
                let to = self.dice.chance_percent(60).then_some(to);
                let site = self.world.leader_site().unwrap_or(site);
                Some(Event::Transfer { site, new_leader: to })
            }
            Some(14) => Some(Event::StorageFails { site }),
            Some(18) => self.choose_trim(site),
            Some(19) => self.choose_install(),
            Some(20) => Some(Event::ReplaceDisk { site }),
            Some(22) => self.choose_forget(),
            Some(23) => return self.take_replica_away(shared),
            Some(24) => return self.apply_stream_event(shared),
            Some(25) => return self.set_random_route(shared),
            Some(26) => self.choose_device_event(site),
            Some(27) => return self.isolate_some_devices(shared),
            Some(28) => Some(Event::AwaitDurable { site }),
            Some(29) => return self.power_cycle_lying_disk(shared),
            Some(30) => Some(Event::AwaitInMemory { site }),
            _ => None,
        };
        match event {
            Some(event) => self.apply_event(&event, shared),
            None => Ok(()),
        }
    }

    /// Sets up any ring, sensible or not, because safety must not depend on the ring. In most cases
    /// votes then travel along it.
    fn set_random_route(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let Some(site) = self.pick_leader() else {
            return Ok(());
        };
        let wish = match self.dice.below(10) {
            0 => Route::Star,
            1..=3 => Route::Ring,
            _ => {
                let mut members = self.world.members();
                let mut through = Vec::new();
                for _ in 0..1 + self.dice.below(3) {
                    if !members.is_empty() {
                        let mut member = members.swap_remove(self.dice.below(members.len()));
                        member.incarnation.0 += u32::from(self.dice.chance_percent(10));
                        through.push(member);
                    }
                }
                Route::Through(through)
            }
        };
        let next = self.world.soup.len();
        self.apply_event(&Event::SetRoute { site, route: wish }, shared)?;
        if self.dice.chance_percent(30) {
            return Ok(());
        }
        if let Some(event) = self.choose_propose() {
            self.apply_event(&event, shared)?;
        }
        let inside: Vec<bool> = (0..self.world.sites.len())
            .map(|at| at == site || self.dice.chance_percent(80))
            .collect();
        self.deliver_among(&inside, next, shared)
    }

    fn choose_delivery(&mut self) -> Option<Event> {
        let count = self.world.soup.len();
        if count == 0 {
            return None;
        }
        self.is_delivered.resize(count, false);
        let recent = self.dice.chance_percent(self.plan.rates.recent_percent);
        let mut at = 0;
        // Prefer a message that was not delivered before.
        for _ in 0..3 {
            at = if recent {
                count - 1 - self.dice.below(count.min(10))
            } else {
                self.dice.below(count)
            };
            if !self.is_delivered[at] {
                break;
            }
        }
        self.is_delivered[at] = true;
        let bytes = !self.dice.chance_percent(self.plan.rates.lose_bytes_percent);
        Some(Event::Deliver { message_index: at, bytes })
    }

    fn choose_persist(&mut self, site: usize) -> Option<Event> {
        let sites = &self.world.sites;
        let busy =
            |at: &usize| sites[*at].disk.unpersisted_count() > 0 && sites[*at].node.is_some();
        let site = (0..sites.len()).map(|step| (site + step) % sites.len()).find(busy)?;
        self.choose_persist_at(site)
    }

    fn choose_persist_at(&mut self, site: usize) -> Option<Event> {
        let waiting = self.world.sites[site].disk.unpersisted_count();
        if waiting == 0 {
            return None;
        }
        let count = if self.dice.chance_percent(self.plan.rates.persist_all_percent) {
            waiting
        } else {
            1 + self.dice.below(waiting)
        };
        Some(Event::Persist { site, count })
    }

    /// Lets a node's election timeout pass, and lets the other nodes reply.
    fn campaign(
        &mut self,
        site: usize,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        if self.world.sites[site].node.is_none() || self.world.is_leader(site) {
            return Ok(());
        }
        let mut seen = self.world.soup.len();
        let at = self.world.next_wake_time(site);
        self.apply_event(&Event::Tick { site, at }, shared)?;
        while seen < self.world.soup.len() {
            let vote = matches!(
                self.world.soup[seen].message,
                Message::PreVote { .. } | Message::PreVoteReply { .. }
            );
            if vote && self.dice.chance_percent(85) {
                let at = seen;
                self.apply_event(&Event::Deliver { message_index: at, bytes: true }, shared)?;
            }
            seen += 1;
        }
        if self.dice.chance_percent(75) {
            let count = self.world.sites[site].disk.unpersisted_count();
            self.apply_event(&Event::Persist { site, count }, shared)?;
        }
        Ok(())
    }

    /// Lets some nodes communicate only with each other. Most messages among them arrive in order,
    /// and most records reach their disks, because decisions need that. A broken rule shows up when
    /// two such groups in sequence overlap too little.
    fn isolate_some_nodes(
        &mut self,
        site: usize,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let inside: Vec<bool> = (0..self.world.sites.len())
            .map(|at| at == site || self.dice.chance_percent(self.plan.isolated_percent))
            .collect();
        if self.dice.chance_percent(40) {
            self.campaign(site, shared)?;
        }
        let next = self.world.soup.len().saturating_sub(self.dice.below(12));
        self.deliver_among(&inside, next, shared)
    }

    /// Delivers the messages among these sites, starting at index `next` of the soup, and the
    /// messages that result from them.
    pub(super) fn deliver_among(
        &mut self,
        inside: &[bool],
        mut next: usize,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        for _ in 0..1 + self.dice.below(6) {
            let end = self.world.soup.len();
            self.is_delivered.resize(end, false);
            for at in next..end {
                let parcel = &self.world.soup[at];
                let among =
                    inside[site_index(parcel.from.node)] && inside[site_index(parcel.receiver)];
                if among && !self.is_delivered[at] && self.dice.chance_percent(95) {
                    self.is_delivered[at] = true;
                    self.apply_event(&Event::Deliver { message_index: at, bytes: true }, shared)?;
                }
            }
            next = end;
            for site in (0..inside.len()).filter(|at| inside[*at]) {
                if self.dice.chance_percent(80)
                    && let Some(event) = self.choose_persist_at(site)
                {
                    self.apply_event(&event, shared)?;
                }
            }
            self.run_streams_among(inside, shared)?;
            if self.dice.chance_percent(30)
                && let Some(event) = self.choose_propose()
            {
                self.apply_event(&event, shared)?;
            }
            if self.dice.chance_percent(15)
                && let Some(event) = self.choose_change()
            {
                self.apply_event(&event, shared)?;
            }
        }
        Ok(())
    }

    /// Lets a leader request leases. Then other nodes may elect another leader, and the old one
    /// reads.
    fn lease_then_usurp(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let leaders: Vec<usize> =
            (0..self.world.sites.len()).filter(|at| self.world.is_leader(*at)).collect();
        if leaders.is_empty() {
            return Ok(());
        }
        let site = self.dice.pick_from(&leaders);
        if self.dice.chance_percent(70) {
            self.exchange_heartbeats(site, shared)?;
        }
        if self.dice.chance_percent(50) {
            self.elect_other_leader(site, shared)?;
        }
        let later = self.dice.pick_from(&[0, 0, 0, 5_000, 20_000]);
        let at = self.world.now.plus_us(later);
        self.apply_event(&Event::LeasedRead { site, at }, shared)
    }

    /// Lets a leader send heartbeats and receive most of the replies.
    fn exchange_heartbeats(
        &mut self,
        site: usize,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let mut seen = self.world.soup.len();
        let at = self.world.next_wake_time(site);
        self.apply_event(&Event::Tick { site, at }, shared)?;
        while seen < self.world.soup.len() {
            let beats = matches!(
                self.world.soup[seen].message,
                Message::Heartbeat(_) | Message::HeartbeatReply(_)
            );
            if beats && self.dice.chance_percent(85) {
                let at = seen;
                self.apply_event(&Event::Deliver { message_index: at, bytes: true }, shared)?;
            }
            seen += 1;
        }
        Ok(())
    }

    /// Returns an event by which an auxiliary forgets the slots that it requested to forget.
    fn choose_forget(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let asked: Vec<usize> =
            (0..sites.len()).filter(|at| sites[*at].forget_request.is_some()).collect();
        (!asked.is_empty()).then(|| Event::ForgetSlots { site: self.dice.pick_from(&asked) })
    }

    /// Crashes or disconnects a full replica while a leader continues, for at least as long as it
    /// takes to be noticed. Sometimes the replica returns, so that auxiliaries are bypassed again.
    fn take_replica_away(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let Some(leader) = self.pick_leader() else {
            return Ok(());
        };
        let count = self.world.sites.len();
        let gone = self.dice.below(count);
        let mut there: Vec<bool> = (0..count).map(|at| at != gone || at == leader).collect();
        if !there[gone] && self.dice.chance_percent(50) {
            let kept = self.world.sites[gone].disk.unpersisted_count();
            self.apply_event(&Event::Crash { site: gone, kept_count: kept }, shared)?;
        }
        if !there[gone] && self.dice.chance_percent(70) {
            let (site, peer) = (leader, gone);
            self.apply_event(&Event::Disconnect { site, peer }, shared)?;
        }
        let (turns, back) = (6 + self.dice.below(14), 5 + self.dice.below(20));
        let mut next = self.world.soup.len();
        for turn in 0..turns {
            if turn == back {
                there[gone] = true;
                let (site, forget) = (gone, false);
                self.apply_event(&Event::Start { site, forgets_votes: forget }, shared)?;
                let peer = gone;
                self.apply_event(&Event::Connect { site: leader, peer }, shared)?;
            }
            if self.dice.chance_percent(25)
                && let Some(event) = self.choose_propose()
            {
                self.apply_event(&event, shared)?;
            }
            let at = self.world.next_wake_time(leader);
            self.apply_event(&Event::Tick { site: leader, at }, shared)?;
            for _ in 0..2 {
                let end = self.world.soup.len();
                self.is_delivered.resize(end, false);
                for at in next..end {
                    let parcel = &self.world.soup[at];
                    let among =
                        there[site_index(parcel.from.node)] && there[site_index(parcel.receiver)];
                    if among && self.dice.chance_percent(95) {
                        self.is_delivered[at] = true;
                        self.apply_event(
                            &Event::Deliver { message_index: at, bytes: true },
                            shared,
                        )?;
                    }
                }
                next = end;
                for site in (0..count).filter(|at| there[*at]) {
                    if self.dice.chance_percent(85)
                        && let Some(event) = self.choose_persist_at(site)
                    {
                        self.apply_event(&event, shared)?;
                    }
                }
            }
            if self.dice.chance_percent(40)
                && let Some(event) = self.choose_forget()
            {
                self.apply_event(&event, shared)?;
            }
        }
        Ok(())
    }

    /// Isolates this leader from the other nodes, which elect another leader.
    fn elect_other_leader(
        &mut self,
        leader: usize,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let nodes = self.world.sites.len();
        let site = (leader + 1 + self.dice.below(nodes - 1)) % nodes;
        if self.dice.chance_percent(25) {
            // The new process has forgotten the leases that it granted.
            let kept = self.world.sites[site].disk.unpersisted_count();
            self.apply_event(&Event::Crash { site, kept_count: kept }, shared)?;
            let forget = false;
            self.apply_event(&Event::Start { site, forgets_votes: forget }, shared)?;
        }
        let next = self.world.soup.len();
        for _ in 0..1 + self.dice.below(4) {
            self.campaign(site, shared)?;
        }
        let inside: Vec<bool> = (0..nodes).map(|at| at != leader).collect();
        self.deliver_among(&inside, next, shared)
    }

    /// Requests a read from a leader, preferably from one that has been replaced. The replies that
    /// confirm the read answer heartbeats that were sent before the request.
    fn confirm_read_late(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let newest = self.world.leader_site();
        let mut leaders: Vec<usize> =
            (0..self.world.sites.len()).filter(|at| self.world.is_leader(*at)).collect();
        if leaders.len() > 1 {
            leaders.retain(|at| Some(*at) != newest);
        }
        if leaders.is_empty() {
            return Ok(());
        }
        let site = self.dice.pick_from(&leaders);
        self.read_count += 1;
        let token = self.read_count;
        self.apply_event(&Event::Read { site, token }, shared)?;
        let node = self.world.sites[site].member.node;
        let answer = |at: &usize| {
            let parcel = &self.world.soup[*at];
            parcel.receiver == node && matches!(parcel.message, Message::HeartbeatReply(_))
        };
        let answers: Vec<usize> = (0..self.world.soup.len()).filter(answer).collect();
        for _ in 0..self.dice.below(4) {
            if !answers.is_empty() {
                let at = self.dice.pick_from(&answers);
                self.apply_event(&Event::Deliver { message_index: at, bytes: true }, shared)?;
            }
        }
        Ok(())
    }

    /// Damages records of node 1, the only one whose log may be damaged.
    fn choose_damage(&mut self) -> Option<Event> {
        let entries = self.world.sites[0].disk.persisted_count();
        (entries > 1).then(|| Event::DamageRecords {
            site: 0,
            from: self.dice.below(entries),
            count: 1 + self.dice.below(3),
        })
    }

    /// Cuts and restores the power of the only machine whose disk lies.
    fn power_cycle_lying_disk(
        &mut self,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        let (site, kept) = (0, 0);
        self.apply_event(&Event::Crash { site, kept_count: kept }, shared)?;
        let lost = 1 + self.dice.below(6) as u64;
        // In half of the cases the address book is outdated and lists only some of the sites.
        let old =
            self.dice.chance_percent(50).then(|| self.dice.below(1 << self.world.sites.len()));
        let book = old.map_or(u32::MAX, |book| book as u32);
        self.apply_event(
            &Event::StartRolledBack { site, lost_count: lost, address_book: book },
            shared,
        )
    }

    fn choose_tick(&mut self, site: usize) -> Option<Event> {
        if self.dice.chance_percent(2) {
            let us = self.dice.pick_from(&[10_000, 150_000, 400_000, 5_000_000]);
            return Some(Event::DelayTurn { site, delay_us: us });
        }
        let now = self.world.now;
        let at = match self.dice.below(3) {
            0 => Time(now.0 + 1),
            1 => now.plus_ms(self.plan.setup.heartbeat_ms),
            _ => self.world.next_wake_time(site),
        };
        Some(Event::Tick { site, at })
    }

    /// Returns a site that leads, preferring the newest leader.
    pub(super) fn pick_leader(&mut self) -> Option<usize> {
        if self.dice.chance_percent(60) {
            return self.world.leader_site();
        }
        let leaders = (0..self.world.sites.len()).filter(|at| self.world.is_leader(*at));
        let leaders: Vec<_> = leaders.collect();
        (!leaders.is_empty()).then(|| self.dice.pick_from(&leaders))
    }

    pub(super) fn choose_propose(&mut self) -> Option<Event> {
        if self.value_count >= self.plan.values_max {
            return None;
        }
        let site = self.pick_leader()?;
        self.value_count += 1;
        let origin = self.world.sites[site].member.node;
        let number = self.value_count;
        let spans = self.dice.chance_percent(self.plan.multi_slot_percent);
        let slots = if spans { 1 + self.dice.next() % 3 } else { 1 };
        let again = self.world.held_batches(site);
        let value = match self.dice.below(8) {
            0 if spans => Value::NoOp,
            1..=4 if spans => {
                let stream = StreamName { owner: origin, boot: 1, number: 1 };
                Value::Content { stream, offset: number }
            }
            5 => Value::RegisterSession { origin, boot: 1, number },
            6 if !again.is_empty() => self.dice.pick_from(&again),
            7 if let Some(ms) = self.proposal_time(site, number) => Value::Now { ms },
            _ => {
                Value::Batch(BatchName { origin, boot: 1, counter: number, length: 1, checksum: 0 })
            }
        };
        let slots = if value.may_span() { slots } else { 1 };
        Some(Event::Propose { site, value, slot_count: slots })
    }

    /// [time-1] Returns the time that a leader proposes, as if a deadline had been reached. The
    /// clocks of leaders differ by more than the time between two values.
    fn proposal_time(&self, site: usize, number: u64) -> Option<u64> {
        let clock_ms = 10 * number + 100 * site as u64;
        self.world.sites[site].group_time.stamp(clock_ms, Some(clock_ms))
    }

    fn choose_change(&mut self) -> Option<Event> {
        if self.change_count >= self.plan.changes_max {
            return None;
        }
        let site = self.pick_leader()?;
        let node = self.world.sites[site].node.as_ref()?;
        let (era, current) = (node.era(), node.configuration().clone());
        let members = self.world.members();
        let member = self.dice.pick_from(&members);
        let change = match self.dice.below(10) {
            0..=4 => Change::Increment(member),
            5..=7 => {
                let inside = current.members();
                Change::Decrement(inside[self.dice.below(inside.len())].member)
            }
            8 => Change::Multiply(2),
            _ => Change::Divide(2),
        };
        let roles = self.plan.rates.absence > 0 && self.dice.chance_percent(40);
        let change = if roles {
            let auxiliary = !current.is_auxiliary(member);
            Change::Role { member, auxiliary }
        } else {
            change
        };
        let removes = self.plan.rates.wipe > 0 && self.dice.chance_percent(15);
        let change = if removes { Change::Remove(member.node) } else { change };
        let light = current
            .after_change(change)
            .is_ok_and(|next| next.members().iter().all(|voter| voter.weight <= 4));
        if !light {
            return None;
        }
        self.change_count += 1;
        let value = Value::Reconfigure { era, change };
        Some(Event::Propose { site, value, slot_count: 1 })
    }

    fn choose_trim(&mut self, site: usize) -> Option<Event> {
        let (from, to) = {
            let node = self.world.sites[site].node.as_ref()?;
            (node.log_start().0, node.decided_to().0)
        };
        let some = usize::try_from(to - from).ok().filter(|some| *some > 0)?;
        let to = Slot(from + 1 + self.dice.below(some) as u64);
        Some(Event::Trim { site, log_start: to })
    }

    /// Installs a snapshot, usually on a node that needs one.
    fn choose_install(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let up = |at: &usize| sites[*at].node.is_some();
        let wanting: Vec<usize> =
            (0..sites.len()).filter(|at| up(at) && sites[*at].snapshot_source.is_some()).collect();
        let having: Vec<usize> = (0..sites.len())
            .filter(|at| up(at) && sites[*at].disk.start_snapshot().is_some())
            .collect();
        if having.is_empty() {
            return None;
        }
        let site = if wanting.is_empty() || self.dice.chance_percent(30) {
            self.dice.below(self.world.sites.len())
        } else {
            self.dice.pick_from(&wanting)
        };
        let from = self.dice.pick_from(&having);
        Some(Event::Install { site, from })
    }

    fn start(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let down: Vec<_> = (0..sites.len()).filter(|at| sites[*at].node.is_none()).collect();
        if down.is_empty() {
            return None;
        }
        Some(Event::Start {
            site: self.dice.pick_from(&down),
            forgets_votes: self.dice.chance_percent(70),
        })
    }

    fn choose_fetch(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let asked = (0..sites.len()).filter(|at| !sites[*at].queued_fetches.is_empty());
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return None;
        }
        Some(Event::Fetch {
            site: self.dice.pick_from(&asked),
            succeeds: self.dice.chance_percent(70),
        })
    }
}
