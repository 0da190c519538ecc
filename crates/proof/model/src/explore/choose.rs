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

use super::{Outcome, Run};
use crate::{event::Event, observer::Violation, world::site_of};

impl Run {
    pub(super) fn choose(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let r = self.plan.rates;
        let site = self.dice.below(self.world.sites.len());
        let peer = self.dice.below(self.world.sites.len());
        let kinds = [
            r.deliver, r.persist, r.campaign, r.tick, r.propose, r.change, r.crash, r.stop,
            r.start, r.read, r.fetch, r.serve, r.connect, r.transfer, r.fail, r.burst, r.late,
            r.rot, r.trim, r.install, r.wipe, r.lease, r.forget, r.absence, r.stream, r.route,
            r.device, r.devices, r.last, r.lie, r.early,
        ];
        let mut roll = self.dice.next() % kinds.iter().sum::<u64>();
        let kind = kinds.iter().position(|rate| {
            let here = roll < *rate;
            roll = roll.saturating_sub(*rate);
            here
        });
        let event = match kind {
            Some(0) => self.deliver(),
            Some(1) => self.persist(site),
            Some(2) => return self.campaign(site, shared),
            Some(15) => return self.burst(site, shared),
            Some(16) => return self.late_answers(shared),
            Some(17) => self.rot(),
            Some(21) => return self.leased(shared),
            Some(3) => self.tick(site),
            Some(4) => self.propose(),
            Some(5) => self.change(),
            Some(6) => {
                let waiting = self.world.sites[site].disk.waiting();
                let kept = self.dice.below(waiting + 1);
                Some(Event::Crash { site, kept })
            }
            Some(7) => Some(Event::Stop { site }),
            Some(8) => self.start(),
            Some(9) => {
                self.reads += 1;
                let token = self.reads;
                Some(Event::Read { site, token })
            }
            Some(10) => self.fetch(),
            Some(11) => {
                let sites = &self.world.sites;
                let asked = (0..sites.len()).filter(|at| !sites[*at].serves.is_empty());
                let asked: Vec<_> = asked.collect();
                (!asked.is_empty()).then(|| Event::Serve { site: self.dice.pick(&asked) })
            }
            Some(12) if site != peer => Some(if self.dice.percent(60) {
                Event::Connect { site, peer }
            } else {
                Event::Disconnect { site, peer }
            }),
            Some(13) => {
                let to = self.world.sites[peer].member.node;
                let to = self.dice.percent(60).then_some(to);
                let site = self.world.leader().unwrap_or(site);
                Some(Event::Transfer { site, to })
            }
            Some(14) => Some(Event::StorageFails { site }),
            Some(18) => self.trim(site),
            Some(19) => self.install(),
            Some(20) => Some(Event::Wipe { site }),
            Some(22) => self.forget(),
            Some(23) => return self.absence(shared),
            Some(24) => return self.stream(shared),
            Some(25) => return self.route(shared),
            Some(26) => self.device(site),
            Some(27) => return self.devices(shared),
            Some(28) => Some(Event::Last { site }),
            Some(29) => return self.lie(shared),
            Some(30) => Some(Event::Early { site }),
            _ => None,
        };
        match event {
            Some(event) => self.apply(&event, shared),
            None => Ok(()),
        }
    }

    /// Sets up any ring, sensible or not, because safety must not depend on the ring. In most cases
    /// votes then travel along it.
    fn route(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let Some(site) = self.some_leader() else {
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
                        member.incarnation.0 += u32::from(self.dice.percent(10));
                        through.push(member);
                    }
                }
                Route::Through(through)
            }
        };
        let next = self.world.soup.len();
        self.apply(&Event::Route { site, wish }, shared)?;
        if self.dice.percent(30) {
            return Ok(());
        }
        if let Some(event) = self.propose() {
            self.apply(&event, shared)?;
        }
        let inside: Vec<bool> =
            (0..self.world.sites.len()).map(|at| at == site || self.dice.percent(80)).collect();
        self.among(&inside, next, shared)
    }

    fn deliver(&mut self) -> Option<Event> {
        let count = self.world.soup.len();
        if count == 0 {
            return None;
        }
        self.delivered.resize(count, false);
        let recent = self.dice.percent(self.plan.rates.recent);
        let mut at = 0;
        // Prefer a message that was not delivered before.
        for _ in 0..3 {
            at = if recent {
                count - 1 - self.dice.below(count.min(10))
            } else {
                self.dice.below(count)
            };
            if !self.delivered[at] {
                break;
            }
        }
        self.delivered[at] = true;
        let bytes = !self.dice.percent(self.plan.rates.lose_bytes);
        Some(Event::Deliver { at, bytes })
    }

    fn persist(&mut self, site: usize) -> Option<Event> {
        let sites = &self.world.sites;
        let busy = |at: &usize| sites[*at].disk.waiting() > 0 && sites[*at].node.is_some();
        let site = (0..sites.len()).map(|step| (site + step) % sites.len()).find(busy)?;
        self.persist_at(site)
    }

    fn persist_at(&mut self, site: usize) -> Option<Event> {
        let waiting = self.world.sites[site].disk.waiting();
        if waiting == 0 {
            return None;
        }
        let count = if self.dice.percent(self.plan.rates.persist_all) {
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
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        if self.world.sites[site].node.is_none() || self.world.leads(site) {
            return Ok(());
        }
        let mut seen = self.world.soup.len();
        let at = self.world.due(site);
        self.apply(&Event::Tick { site, at }, shared)?;
        while seen < self.world.soup.len() {
            let vote = matches!(
                self.world.soup[seen].message,
                Message::PreVote { .. } | Message::PreVoteReply { .. }
            );
            if vote && self.dice.percent(85) {
                let at = seen;
                self.apply(&Event::Deliver { at, bytes: true }, shared)?;
            }
            seen += 1;
        }
        if self.dice.percent(75) {
            let count = self.world.sites[site].disk.waiting();
            self.apply(&Event::Persist { site, count }, shared)?;
        }
        Ok(())
    }

    /// Lets some nodes communicate only with each other. Most messages among them arrive in order,
    /// and most records reach their disks, because decisions need that. A broken rule shows up when
    /// two such groups in sequence overlap too little.
    fn burst(
        &mut self,
        site: usize,
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        let inside: Vec<bool> = (0..self.world.sites.len())
            .map(|at| at == site || self.dice.percent(self.plan.inside))
            .collect();
        if self.dice.percent(40) {
            self.campaign(site, shared)?;
        }
        let next = self.world.soup.len().saturating_sub(self.dice.below(12));
        self.among(&inside, next, shared)
    }

    /// Delivers the messages among these sites, starting at index `next` of the soup, and the
    /// messages that result from them.
    pub(super) fn among(
        &mut self,
        inside: &[bool],
        mut next: usize,
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        for _ in 0..1 + self.dice.below(6) {
            let end = self.world.soup.len();
            self.delivered.resize(end, false);
            for at in next..end {
                let parcel = &self.world.soup[at];
                let among = inside[site_of(parcel.from.node)] && inside[site_of(parcel.to)];
                if among && !self.delivered[at] && self.dice.percent(95) {
                    self.delivered[at] = true;
                    self.apply(&Event::Deliver { at, bytes: true }, shared)?;
                }
            }
            next = end;
            for site in (0..inside.len()).filter(|at| inside[*at]) {
                if self.dice.percent(80)
                    && let Some(event) = self.persist_at(site)
                {
                    self.apply(&event, shared)?;
                }
            }
            self.flow(inside, shared)?;
            if self.dice.percent(30)
                && let Some(event) = self.propose()
            {
                self.apply(&event, shared)?;
            }
            if self.dice.percent(15)
                && let Some(event) = self.change()
            {
                self.apply(&event, shared)?;
            }
        }
        Ok(())
    }

    /// Lets a leader request leases. Then other nodes may elect another leader, and the old one
    /// reads.
    fn leased(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let leaders: Vec<usize> =
            (0..self.world.sites.len()).filter(|at| self.world.leads(*at)).collect();
        if leaders.is_empty() {
            return Ok(());
        }
        let site = self.dice.pick(&leaders);
        if self.dice.percent(70) {
            self.beat(site, shared)?;
        }
        if self.dice.percent(50) {
            self.usurp(site, shared)?;
        }
        let later = self.dice.pick(&[0, 0, 0, 5_000, 20_000]);
        let at = self.world.now.plus_us(later);
        self.apply(&Event::LeasedRead { site, at }, shared)
    }

    /// Lets a leader send heartbeats and receive most of the replies.
    fn beat(&mut self, site: usize, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let mut seen = self.world.soup.len();
        let at = self.world.due(site);
        self.apply(&Event::Tick { site, at }, shared)?;
        while seen < self.world.soup.len() {
            let beats = matches!(
                self.world.soup[seen].message,
                Message::Heartbeat(_) | Message::HeartbeatReply(_)
            );
            if beats && self.dice.percent(85) {
                let at = seen;
                self.apply(&Event::Deliver { at, bytes: true }, shared)?;
            }
            seen += 1;
        }
        Ok(())
    }

    /// Returns an event by which an auxiliary forgets the slots that it requested to forget.
    fn forget(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let asked: Vec<usize> =
            (0..sites.len()).filter(|at| sites[*at].forgets.is_some()).collect();
        (!asked.is_empty()).then(|| Event::Forget { site: self.dice.pick(&asked) })
    }

    /// Crashes or disconnects a full replica while a leader continues, for at least as long as it
    /// takes to be noticed. Sometimes the replica returns, so that auxiliaries are bypassed again.
    fn absence(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let Some(leader) = self.some_leader() else {
            return Ok(());
        };
        let count = self.world.sites.len();
        let gone = self.dice.below(count);
        let mut there: Vec<bool> = (0..count).map(|at| at != gone || at == leader).collect();
        if !there[gone] && self.dice.percent(50) {
            let kept = self.world.sites[gone].disk.waiting();
            self.apply(&Event::Crash { site: gone, kept }, shared)?;
        }
        if !there[gone] && self.dice.percent(70) {
            let (site, peer) = (leader, gone);
            self.apply(&Event::Disconnect { site, peer }, shared)?;
        }
        let (turns, back) = (6 + self.dice.below(14), 5 + self.dice.below(20));
        let mut next = self.world.soup.len();
        for turn in 0..turns {
            if turn == back {
                there[gone] = true;
                let (site, forget) = (gone, false);
                self.apply(&Event::Start { site, forget }, shared)?;
                let peer = gone;
                self.apply(&Event::Connect { site: leader, peer }, shared)?;
            }
            if self.dice.percent(25)
                && let Some(event) = self.propose()
            {
                self.apply(&event, shared)?;
            }
            let at = self.world.due(leader);
            self.apply(&Event::Tick { site: leader, at }, shared)?;
            for _ in 0..2 {
                let end = self.world.soup.len();
                self.delivered.resize(end, false);
                for at in next..end {
                    let parcel = &self.world.soup[at];
                    let among = there[site_of(parcel.from.node)] && there[site_of(parcel.to)];
                    if among && self.dice.percent(95) {
                        self.delivered[at] = true;
                        self.apply(&Event::Deliver { at, bytes: true }, shared)?;
                    }
                }
                next = end;
                for site in (0..count).filter(|at| there[*at]) {
                    if self.dice.percent(85)
                        && let Some(event) = self.persist_at(site)
                    {
                        self.apply(&event, shared)?;
                    }
                }
            }
            if self.dice.percent(40)
                && let Some(event) = self.forget()
            {
                self.apply(&event, shared)?;
            }
        }
        Ok(())
    }

    /// Isolates this leader from the other nodes, which elect another leader.
    fn usurp(
        &mut self,
        leader: usize,
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        let nodes = self.world.sites.len();
        let site = (leader + 1 + self.dice.below(nodes - 1)) % nodes;
        if self.dice.percent(25) {
            // The new process has forgotten the leases that it granted.
            let kept = self.world.sites[site].disk.waiting();
            self.apply(&Event::Crash { site, kept }, shared)?;
            let forget = false;
            self.apply(&Event::Start { site, forget }, shared)?;
        }
        let next = self.world.soup.len();
        for _ in 0..1 + self.dice.below(4) {
            self.campaign(site, shared)?;
        }
        let inside: Vec<bool> = (0..nodes).map(|at| at != leader).collect();
        self.among(&inside, next, shared)
    }

    /// Requests a read from a leader, preferably from one that has been replaced. The replies that
    /// confirm the read answer heartbeats that were sent before the request.
    fn late_answers(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let newest = self.world.leader();
        let mut leaders: Vec<usize> =
            (0..self.world.sites.len()).filter(|at| self.world.leads(*at)).collect();
        if leaders.len() > 1 {
            leaders.retain(|at| Some(*at) != newest);
        }
        if leaders.is_empty() {
            return Ok(());
        }
        let site = self.dice.pick(&leaders);
        self.reads += 1;
        let token = self.reads;
        self.apply(&Event::Read { site, token }, shared)?;
        let node = self.world.sites[site].member.node;
        let answer = |at: &usize| {
            let parcel = &self.world.soup[*at];
            parcel.to == node && matches!(parcel.message, Message::HeartbeatReply(_))
        };
        let answers: Vec<usize> = (0..self.world.soup.len()).filter(answer).collect();
        for _ in 0..self.dice.below(4) {
            if !answers.is_empty() {
                let at = self.dice.pick(&answers);
                self.apply(&Event::Deliver { at, bytes: true }, shared)?;
            }
        }
        Ok(())
    }

    /// Damages records of node 1, the only one whose log may be damaged.
    fn rot(&mut self) -> Option<Event> {
        let entries = self.world.sites[0].disk.persisted();
        (entries > 1).then(|| Event::Rot {
            site: 0,
            from: self.dice.below(entries),
            count: 1 + self.dice.below(3),
        })
    }

    /// Cuts and restores the power of the only machine whose disk lies.
    fn lie(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        let (site, kept) = (0, 0);
        self.apply(&Event::Crash { site, kept }, shared)?;
        let lost = 1 + self.dice.below(6) as u64;
        // In half of the cases the address book is outdated and lists only some of the sites.
        let old = self.dice.percent(50).then(|| self.dice.below(1 << self.world.sites.len()));
        let book = old.map_or(u32::MAX, |book| book as u32);
        self.apply(&Event::Lie { site, lost, book }, shared)
    }

    fn tick(&mut self, site: usize) -> Option<Event> {
        if self.dice.percent(2) {
            let us = self.dice.pick(&[10_000, 150_000, 400_000, 5_000_000]);
            return Some(Event::Late { site, us });
        }
        let now = self.world.now;
        let at = match self.dice.below(3) {
            0 => Time(now.0 + 1),
            1 => now.plus_ms(self.plan.setup.heartbeat_ms),
            _ => self.world.due(site),
        };
        Some(Event::Tick { site, at })
    }

    /// Returns a site that leads, preferring the newest leader.
    pub(super) fn some_leader(&mut self) -> Option<usize> {
        if self.dice.percent(60) {
            return self.world.leader();
        }
        let leaders = (0..self.world.sites.len()).filter(|at| self.world.leads(*at));
        let leaders: Vec<_> = leaders.collect();
        (!leaders.is_empty()).then(|| self.dice.pick(&leaders))
    }

    pub(super) fn propose(&mut self) -> Option<Event> {
        if self.values >= self.plan.values {
            return None;
        }
        let site = self.some_leader()?;
        self.values += 1;
        let origin = self.world.sites[site].member.node;
        let number = self.values;
        let spans = self.dice.percent(self.plan.spans);
        let slots = if spans { 1 + self.dice.next() % 3 } else { 1 };
        let again = self.world.batches_at(site);
        let value = match self.dice.below(8) {
            0 if spans => Value::NoOp,
            1..=4 if spans => {
                let stream = StreamName { owner: origin, boot: 1, number: 1 };
                Value::Content { stream, offset: number }
            }
            5 => Value::RegisterSession { origin, boot: 1, number },
            6 if !again.is_empty() => self.dice.pick(&again),
            7 if let Some(ms) = self.stamp(site, number) => Value::Now { ms },
            _ => {
                Value::Batch(BatchName { origin, boot: 1, counter: number, length: 1, checksum: 0 })
            }
        };
        let slots = if value.may_span() { slots } else { 1 };
        Some(Event::Propose { site, value, slots })
    }

    /// [time-1] Returns the time that a leader proposes, as if a deadline had been reached. The
    /// clocks of leaders differ by more than the time between two values.
    fn stamp(&self, site: usize, number: u64) -> Option<u64> {
        let clock_ms = 10 * number + 100 * site as u64;
        self.world.sites[site].time.stamp(clock_ms, Some(clock_ms))
    }

    fn change(&mut self) -> Option<Event> {
        if self.changes >= self.plan.changes {
            return None;
        }
        let site = self.some_leader()?;
        let node = self.world.sites[site].node.as_ref()?;
        let (era, current) = (node.era(), node.configuration().clone());
        let members = self.world.members();
        let member = self.dice.pick(&members);
        let change = match self.dice.below(10) {
            0..=4 => Change::Increment(member),
            5..=7 => {
                let inside = current.members();
                Change::Decrement(inside[self.dice.below(inside.len())].member)
            }
            8 => Change::Multiply(2),
            _ => Change::Divide(2),
        };
        let roles = self.plan.rates.absence > 0 && self.dice.percent(40);
        let change = if roles {
            let auxiliary = !current.is_auxiliary(member);
            Change::Role { member, auxiliary }
        } else {
            change
        };
        let removes = self.plan.rates.wipe > 0 && self.dice.percent(15);
        let change = if removes { Change::Remove(member.node) } else { change };
        let light = current
            .changed(change)
            .is_ok_and(|next| next.members().iter().all(|voter| voter.weight <= 4));
        if !light {
            return None;
        }
        self.changes += 1;
        let value = Value::Reconfigure { era, change };
        Some(Event::Propose { site, value, slots: 1 })
    }

    fn trim(&mut self, site: usize) -> Option<Event> {
        let (from, to) = {
            let node = self.world.sites[site].node.as_ref()?;
            (node.log_start().0, node.decided_to().0)
        };
        let some = usize::try_from(to - from).ok().filter(|some| *some > 0)?;
        let to = Slot(from + 1 + self.dice.below(some) as u64);
        Some(Event::Trim { site, to })
    }

    /// Installs a snapshot, usually on a node that needs one.
    fn install(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let up = |at: &usize| sites[*at].node.is_some();
        let wanting: Vec<usize> =
            (0..sites.len()).filter(|at| up(at) && sites[*at].needs.is_some()).collect();
        let having: Vec<usize> =
            (0..sites.len()).filter(|at| up(at) && sites[*at].disk.snapshot().is_some()).collect();
        if having.is_empty() {
            return None;
        }
        let site = if wanting.is_empty() || self.dice.percent(30) {
            self.dice.below(self.world.sites.len())
        } else {
            self.dice.pick(&wanting)
        };
        let from = self.dice.pick(&having);
        Some(Event::Install { site, from })
    }

    fn start(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let down: Vec<_> = (0..sites.len()).filter(|at| sites[*at].node.is_none()).collect();
        if down.is_empty() {
            return None;
        }
        Some(Event::Start { site: self.dice.pick(&down), forget: self.dice.percent(70) })
    }

    fn fetch(&mut self) -> Option<Event> {
        let sites = &self.world.sites;
        let asked = (0..sites.len()).filter(|at| !sites[*at].fetches.is_empty());
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return None;
        }
        Some(Event::Fetch { site: self.dice.pick(&asked), found: self.dice.percent(70) })
    }
}
