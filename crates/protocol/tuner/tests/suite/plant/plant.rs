//! The plant: a leader, its followers, clients, links and disks in virtual time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use quorate_tuner::{Anticipation, Moment};

use crate::plant::{
    dice::Dice,
    laws::{Disk, Link, Processor, jitter},
    scenario::{Demand, Scenario},
};

/// Decides the size of batches and their number in flight, from the events that the reactor of a
/// real node would report to the tuner.
pub(crate) trait Policy {
    /// Returns the batch size in bytes and the window.
    fn setting(&self) -> (usize, usize);
    fn turn(&mut self, _turn: &Turn) {}
    fn sent(&mut self, _now: u64, _peer: usize, _slot: u64, _bytes: usize) {}
    /// Handles a follower's vote for everything below `_to`.
    fn voted(&mut self, _now: u64, _peer: usize, _to: u64) {}
    fn asked(&mut self, _now: u64, _peer: usize) {}
    fn answered(&mut self, _now: u64, _peer: usize) {}
    fn flushed(&mut self, _began: u64, _now: u64, _bytes: usize) {}
    fn done(&mut self, _now: u64, _done: &Done) {}
}

/// Work done in one turn of the leader.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Latest time at which the reactor would have woken.
    pub(crate) wake_by: u64,
    pub(crate) taken: u32,
    pub(crate) taken_bytes: usize,
    pub(crate) batches: u32,
    pub(crate) batch_bytes: usize,
    pub(crate) batch_commands: u32,
    /// Number of commands that wait for a batch at the end of the turn.
    pub(crate) waiting: u32,
    pub(crate) waiting_bytes: usize,
    pub(crate) in_flight: usize,
}

/// A completed batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) accepted_first: u64,
    pub(crate) accepted_last: u64,
    pub(crate) formed: u64,
    pub(crate) commands: u32,
    pub(crate) bytes: usize,
}

/// Size of a batch's header in the product, and overhead per command, in bytes.
const HEADER: usize = 17;
const ENTRY: usize = 5;
/// Maximum number of bytes that are read from sockets in one turn, and maximum number of bytes that
/// wait for a batch.
const TURN_BYTES: usize = 2 << 20;
const PENDING_BYTES: usize = 32 << 20;
const HEARTBEAT: u64 = 20_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive {
        count: u32,
    },
    Open,
    LeaderEnd,
    LeaderWake,
    /// The maximum wait for more commands has elapsed.
    Late,
    Reach {
        to: usize,
        slot: u64,
        bytes: usize,
        commands: u32,
    },
    Ping {
        to: usize,
    },
    FollowerEnd {
        node: usize,
    },
    Written {
        node: usize,
    },
    Flushed {
        node: usize,
    },
    Vote {
        from: usize,
        to: u64,
    },
    Pong {
        from: usize,
    },
}

#[derive(Clone, Debug)]
struct InFlight {
    slot: u64,
    done: Done,
}

#[derive(Clone, Debug, Default)]
struct Follower {
    busy: bool,
    proposals: VecDeque<(u64, usize, u32)>,
    pings: u32,
    flushed: bool,
    voted_to: u64,
    /// Proposals that were received in this turn and are to be written at its end.
    taken: Vec<(u64, usize)>,
    pongs: u32,
}

/// Measurements over a span of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) commands: u64,
    pub(crate) batches: u64,
    pub(crate) ns: u64,
    /// Latencies from acceptance to reply, each with its number of commands.
    latencies: Vec<(u64, u32)>,
}

impl Measured {
    /// Returns the throughput in commands per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.commands as f64 * 1e9 / self.ns.max(1) as f64
    }

    /// Adds the measurements of another span.
    pub(crate) fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.batches += other.batches;
        self.ns += other.ns;
        self.latencies.extend(other.latencies);
    }

    /// Returns a percentile of the latency in milliseconds.
    pub(crate) fn latency_ms(&self, part: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let total: u64 = sorted.iter().map(|(_, count)| u64::from(*count)).sum();
        let mut left = (total as f64 * part) as u64;
        for (latency, count) in sorted {
            if left <= u64::from(count) {
                return latency as f64 / 1e6;
            }
            left -= u64::from(count);
        }
        0.0
    }
}

pub(crate) struct Plant<P> {
    pub(crate) policy: P,
    pub(crate) scenario: Scenario,
    pub(crate) now: u64,
    dice: Dice,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    processor: Processor,
    links: Vec<Link>,
    back: Vec<Link>,
    disks: Vec<Disk>,
    followers: Vec<Follower>,
    // State of the leader.
    busy: bool,
    heartbeat_at: u64,
    /// End of a pause; no turn begins before it.
    frozen_to: u64,
    inbox: VecDeque<(u32, u64)>,
    votes: Vec<u64>,
    votes_waiting: u32,
    pongs: u32,
    own_flushed: bool,
    wake_due: bool,
    gathered: VecDeque<(u32, u64)>,
    waiting: u32,
    in_flight: VecDeque<InFlight>,
    flights_bytes: usize,
    /// Anticipation, used as a node of the product uses it.
    anticipation: Anticipation,
    next_slot: u64,
    turn: Turn,
    outgoing: Vec<(u64, usize, u32)>,
    ended: Vec<Done>,
    heartbeats: bool,
    pub(crate) refused: u64,
    measured: Measured,
    measured_from: u64,
    pub(crate) most_in_flight: usize,
    pub(crate) most_waiting_bytes: usize,
}

impl<P: Policy> Plant<P> {
    pub(crate) fn new(scenario: &Scenario, policy: P) -> Self {
        let followers = scenario.nodes - 1;
        let mut plant = Self {
            policy,
            now: 0,
            dice: Dice::new(scenario.seed),
            events: BinaryHeap::new(),
            number: 0,
            processor: Processor { slowness: scenario.slowness },
            links: Vec::new(),
            back: Vec::new(),
            disks: Vec::new(),
            followers: vec![Follower::default(); followers],
            busy: false,
            heartbeat_at: 0,
            frozen_to: 0,
            inbox: VecDeque::new(),
            votes: vec![0; followers],
            votes_waiting: 0,
            pongs: 0,
            own_flushed: false,
            wake_due: false,
            gathered: VecDeque::new(),
            waiting: 0,
            in_flight: VecDeque::new(),
            flights_bytes: 0,
            anticipation: Anticipation::default(),
            next_slot: 0,
            turn: Turn::default(),
            outgoing: Vec::new(),
            ended: Vec::new(),
            heartbeats: false,
            refused: 0,
            measured: Measured::default(),
            measured_from: 0,
            most_in_flight: 0,
            most_waiting_bytes: 0,
            scenario: scenario.clone(),
        };
        plant.build();
        match scenario.demand {
            Demand::Closed(outstanding) => plant.arrive_all(outstanding),
            Demand::Open(_) => plant.at(0, Event::Open),
        }
        plant.at(0, Event::LeaderWake);
        plant
    }

    /// Sets up links, processors and disks for the scenario. Anything in flight is kept.
    fn build(&mut self) {
        let s = &self.scenario;
        let rate = s.mbit * 125e3 / 1e9;
        let one_way = s.round_trip_ms * 0.5e6;
        let link = Link::new(rate, s.buffer, one_way);
        let count = if s.shared_link { 1 } else { s.nodes - 1 };
        self.links = vec![link.clone(); count];
        self.back = vec![Link::new(f64::INFINITY, f64::INFINITY, one_way); s.nodes - 1];
        self.processor.slowness = s.slowness;
        let disk = Disk::new(s.flush_ms * 1e6, s.disk_mb_per_s * 1e6 / 1e9);
        if self.disks.is_empty() {
            self.disks = vec![disk; s.nodes];
        } else {
            for old in &mut self.disks {
                (old.flush, old.rate) = (disk.flush, disk.rate);
            }
        }
    }

    /// Switches to another scenario. A closed demand remains closed, and an open one open.
    pub(crate) fn change(&mut self, scenario: &Scenario) {
        let before = self.scenario.demand;
        self.scenario = Scenario { nodes: self.scenario.nodes, ..scenario.clone() };
        self.build();
        if let (Demand::Closed(before), Demand::Closed(now)) = (before, scenario.demand) {
            self.arrive_all(now.saturating_sub(before));
        }
    }

    fn arrive_all(&mut self, count: u32) {
        let now = self.now;
        for _ in 0..count.min(32) {
            let at = now + self.dice.between(0.0, 50e3) as u64;
            self.at(at, Event::Arrive { count: 1 });
        }
        if count > 32 {
            self.at(now + 60_000, Event::Arrive { count: count - 32 });
        }
    }

    /// Pauses the leader's process for `ns`.
    pub(crate) fn pause(&mut self, ns: u64) {
        self.frozen_to = self.now + ns;
    }

    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// Runs until time `to`, or until `batches` have completed. Returns the measurements.
    pub(crate) fn run(&mut self, to: u64, batches: u64) -> Measured {
        self.measured = Measured::default();
        self.measured_from = self.now;
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > to {
                self.now = to;
                break;
            }
            self.events.pop();
            self.now = at;
            self.on(event);
            if self.measured.batches >= batches {
                break;
            }
        }
        self.measured.ns = self.now - self.measured_from;
        std::mem::take(&mut self.measured)
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Arrive { count } => {
                self.inbox.push_back((count, self.now));
                self.wake_leader();
            }
            Event::Open => self.on_open(),
            Event::LeaderEnd => self.end_leader(),
            Event::LeaderWake => {
                self.wake_due = true;
                self.heartbeat_at = self.now + HEARTBEAT;
                self.at(self.heartbeat_at, Event::LeaderWake);
                self.wake_leader();
            }
            Event::Late => self.wake_leader(),
            Event::Reach { to, slot, bytes, commands } => {
                self.followers[to].proposals.push_back((slot, bytes, commands));
                self.wake_follower(to);
            }
            Event::Ping { to } => {
                self.followers[to].pings += 1;
                self.wake_follower(to);
            }
            Event::FollowerEnd { node } => self.end_follower(node),
            Event::Written { node } => {
                if let Some(at) = self.disks[node].written(self.now, &mut self.dice) {
                    self.at(at, Event::Flushed { node });
                }
            }
            Event::Flushed { node } => self.on_flushed(node),
            Event::Vote { from, to } => {
                self.votes[from] = self.votes[from].max(to);
                self.votes_waiting += 1;
                self.policy_voted(from, to);
                self.wake_leader();
            }
            Event::Pong { from } => {
                self.pongs += 1;
                let now = self.now.max(self.frozen_to);
                self.policy.answered(now, from);
                self.wake_leader();
            }
        }
    }

    /// Reports a vote. A paused process sees the vote when it continues.
    fn policy_voted(&mut self, from: usize, to: u64) {
        let now = self.now.max(self.frozen_to);
        self.policy.voted(now, from, to);
    }

    fn on_open(&mut self) {
        let Demand::Open(rate) = self.scenario.demand else {
            return;
        };
        // Bursts are small, because clients send packets, not single commands.
        let mean = (rate * 20e-6).clamp(1.0, 64.0);
        let count = self.dice.interval(mean).ceil().clamp(1.0, 400.0);
        let next = self.now + self.dice.interval(count / rate * 1e9).max(1.0) as u64;
        let backlog: u32 = self.inbox.iter().map(|(count, _)| *count).sum();
        if backlog < 20_000 {
            self.inbox.push_back((count as u32, self.now));
            self.wake_leader();
        } else {
            // Back-pressure, because the sockets of clients are full.
            self.refused += count as u64;
        }
        self.at(next, Event::Open);
    }

    fn on_flushed(&mut self, node: usize) {
        let now = self.now;
        let mut done = Vec::new();
        let next = self.disks[node].flushed(now, &mut self.dice, |write| done.push(write));
        if let Some(at) = next {
            self.at(at, Event::Flushed { node });
        }
        if node == 0 {
            let seen = now.max(self.frozen_to);
            for write in done {
                self.policy.flushed(write.began, seen, write.bytes as usize);
            }
            self.own_flushed = true;
            self.wake_leader();
        } else {
            self.followers[node - 1].flushed = true;
            self.wake_follower(node - 1);
        }
    }

    // Turns of the leader.

    fn wake_leader(&mut self) {
        if !self.busy {
            self.begin_leader(true);
        }
    }

    fn decided_to(&self) -> u64 {
        let mut voted: Vec<u64> = self.votes.clone();
        voted.push(self.disks[0].durable_to);
        voted.sort_unstable_by_key(|to| Reverse(*to));
        voted[self.scenario.nodes / 2]
    }

    fn begin_leader(&mut self, woken: bool) {
        self.busy = true;
        let began = self.now.max(self.frozen_to);
        self.turn = Turn { began, ..Turn::default() };
        let mut cost = self.processor.turn(woken);
        cost += self.processor.vote() * f64::from(self.votes_waiting + self.pongs);
        self.votes_waiting = 0;
        self.pongs = 0;
        self.own_flushed = false;
        self.heartbeats = std::mem::take(&mut self.wake_due);
        cost += self.take_commands();
        cost += self.apply(began);
        cost += self.form(began);
        let took = jitter(&mut self.dice, cost);
        self.at(began + took, Event::LeaderEnd);
    }

    fn take_commands(&mut self) -> f64 {
        let size = self.scenario.size as usize + ENTRY;
        let mut cost = 0.0;
        while self.turn.taken_bytes < TURN_BYTES && self.waiting as usize * size < PENDING_BYTES {
            let Some((count, at)) = self.inbox.pop_front() else {
                break;
            };
            let room = (TURN_BYTES - self.turn.taken_bytes) / size + 1;
            let taken = count.min(room as u32);
            if taken < count {
                self.inbox.push_front((count - taken, at));
            }
            let bytes = taken as usize * size;
            self.gathered.push_back((taken, at));
            self.waiting += taken;
            self.turn.taken += taken;
            self.turn.taken_bytes += bytes;
            let gathered = self.waiting as usize * size;
            cost += self.processor.take(f64::from(taken), bytes as f64, gathered as f64);
        }
        cost
    }

    fn apply(&mut self, began: u64) -> f64 {
        let decided = self.decided_to();
        let mut cost = 0.0;
        while let Some(batch) = self.in_flight.pop_front_if(|batch| batch.slot < decided) {
            let done = batch.done;
            cost += self.processor.apply(f64::from(done.commands), done.bytes as f64);
            self.flights_bytes -= done.bytes;
            if self.in_flight.is_empty() && self.policy.setting().1 == 1 {
                let (completed, formed) = (Moment(began), Moment(done.formed));
                self.anticipation.on_batch_completed(
                    completed,
                    formed,
                    done.commands as usize,
                    self.waiting as usize,
                );
                if let Some(until) = self.anticipation.wait_until() {
                    self.at(until.0, Event::Late);
                }
            }
            self.ended.push(done);
        }
        cost
    }

    fn form(&mut self, began: u64) -> f64 {
        let (batch, window) = self.policy.setting();
        assert!(window >= 1 && batch >= 1, "the policy's bounds");
        let size = self.scenario.size as usize + ENTRY;
        let most = (batch / size).max(1) as u32;
        let peers = self.followers.len() as f64;
        let full = self.waiting as usize * size >= batch;
        self.anticipation.end_wait_if_over(Moment(began), self.waiting as usize, full);
        if window > 1 {
            self.anticipation.cancel();
        }
        let mut cost = 0.0;
        while self.in_flight.len() < window
            && self.waiting > 0
            && self.anticipation.wait_until().is_none()
        {
            let count = self.waiting.min(most);
            let (first, last) = self.take_gathered(count);
            let bytes = HEADER + count as usize * size;
            self.flights_bytes += bytes;
            cost += self.processor.batch(
                bytes as f64,
                peers,
                self.in_flight.len() as f64,
                self.flights_bytes as f64,
            );
            let done = Done {
                accepted_first: first,
                accepted_last: last,
                formed: began,
                commands: count,
                bytes,
            };
            let slot = self.next_slot;
            self.next_slot += 1;
            self.in_flight.push_back(InFlight { slot, done });
            self.outgoing.push((slot, bytes, count));
            self.turn.batches += 1;
            self.turn.batch_bytes += bytes;
            self.turn.batch_commands += count;
        }
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
        self.most_waiting_bytes = self.most_waiting_bytes.max(self.waiting as usize * size);
        cost
    }

    fn take_gathered(&mut self, count: u32) -> (u64, u64) {
        self.waiting -= count;
        let first = self.gathered.front().expect("something waits").1;
        let mut last = first;
        let mut left = count;
        while left > 0 {
            let front = self.gathered.front_mut().expect("as many as were counted");
            last = front.1;
            if front.0 > left {
                front.0 -= left;
                left = 0;
            } else {
                left -= front.0;
                self.gathered.pop_front();
            }
        }
        (first, last)
    }

    fn end_leader(&mut self) {
        let now = self.now;
        for (slot, bytes, commands) in std::mem::take(&mut self.outgoing) {
            for to in 0..self.followers.len() {
                let link = if self.scenario.shared_link { 0 } else { to };
                let at = self.links[link].send(now, bytes as f64 + 128.0, &mut self.dice);
                self.at(at, Event::Reach { to, slot, bytes, commands });
                self.policy.sent(now, to, slot, bytes);
            }
            self.disks[0].append(slot + 1, bytes as f64);
        }
        if std::mem::take(&mut self.heartbeats) {
            for to in 0..self.followers.len() {
                let link = if self.scenario.shared_link { 0 } else { to };
                let at = self.links[link].send(now, 128.0, &mut self.dice);
                self.at(at, Event::Ping { to });
                self.policy.asked(now, to);
            }
        }
        self.submit(0);
        for done in std::mem::take(&mut self.ended) {
            self.end_batch(done);
        }
        self.turn.ended = now;
        self.turn.wake_by = self.heartbeat_at;
        self.turn.waiting = self.waiting;
        self.turn.waiting_bytes = self.waiting as usize * (self.scenario.size as usize + ENTRY);
        self.turn.in_flight = self.in_flight.len();
        let turn = self.turn;
        self.policy.turn(&turn);
        let more = !self.inbox.is_empty() && self.turn.taken_bytes >= TURN_BYTES
            || (!self.inbox.is_empty() && self.turn.waiting_bytes < PENDING_BYTES);
        if more || self.votes_waiting + self.pongs > 0 || self.own_flushed || self.wake_due {
            self.begin_leader(false);
        } else {
            self.busy = false;
        }
    }

    fn end_batch(&mut self, done: Done) {
        let now = self.now;
        self.policy.done(now, &done);
        self.measured.batches += 1;
        self.measured.commands += u64::from(done.commands);
        let ends = [
            (done.accepted_first, done.commands.div_ceil(2)),
            (done.accepted_last, done.commands / 2),
        ];
        for (accepted, count) in ends {
            self.measured.latencies.push((now.saturating_sub(accepted), count));
        }
        if self.scenario.shared_link {
            self.links[0].occupy(now, f64::from(done.commands) * 8.0);
        }
        let Demand::Closed(_) = self.scenario.demand else {
            return;
        };
        // The clients differ, so their next commands arrive in a few groups.
        let groups = (1 + done.commands / 16).min(4);
        let mut left = done.commands;
        for group in 0..groups {
            let count = if group + 1 == groups { left } else { done.commands / groups };
            left -= count;
            let think = self.scenario.client_us * 1e3;
            let spread = think * 0.3 + f64::from(count) * 150.0;
            let at = now + (think + self.dice.interval(spread)) as u64;
            self.at(at, Event::Arrive { count });
        }
    }

    fn submit(&mut self, node: usize) {
        while let Some(at) = self.disks[node].submit(self.now) {
            self.at(at, Event::Written { node });
        }
    }

    // Turns of the followers.

    fn wake_follower(&mut self, node: usize) {
        if !self.followers[node].busy {
            self.begin_follower(node, true);
        }
    }

    fn begin_follower(&mut self, node: usize, woken: bool) {
        let follower = &mut self.followers[node];
        follower.busy = true;
        follower.flushed = false;
        let mut cost = self.processor.turn(woken);
        while let Some((slot, bytes, commands)) = follower.proposals.pop_front() {
            cost += self.processor.receive(bytes as f64);
            // A follower applies the same commands later, without replying to clients.
            cost += self.processor.apply(f64::from(commands), bytes as f64) * 0.7;
            follower.taken.push((slot + 1, bytes));
        }
        follower.pongs += std::mem::take(&mut follower.pings);
        let took = jitter(&mut self.dice, cost);
        self.at(self.now + took, Event::FollowerEnd { node });
    }

    fn end_follower(&mut self, node: usize) {
        let now = self.now;
        for (to, bytes) in std::mem::take(&mut self.followers[node].taken) {
            self.disks[node + 1].append(to, bytes as f64);
        }
        self.submit(node + 1);
        for _ in 0..std::mem::take(&mut self.followers[node].pongs) {
            let at = self.back[node].send(now, 128.0, &mut self.dice);
            self.at(at, Event::Pong { from: node });
        }
        let durable = self.disks[node + 1].durable_to;
        if durable > self.followers[node].voted_to {
            self.followers[node].voted_to = durable;
            let at = self.back[node].send(now, 128.0, &mut self.dice);
            self.at(at, Event::Vote { from: node, to: durable });
        }
        let follower = &mut self.followers[node];
        if !follower.proposals.is_empty() || follower.pings > 0 || follower.flushed {
            self.begin_follower(node, false);
        } else {
            follower.busy = false;
        }
    }
}
