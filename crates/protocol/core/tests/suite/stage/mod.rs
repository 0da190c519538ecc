//! Test fixture: a few production nodes, a clock and a message queue, driven by one-line commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use quorate_core::{
    ballot::{Ballot, Era},
    configuration::{Change, Configuration, Voter},
    effect::{Alarm, Effect, Effects},
    explanation::Explanation,
    fitness::Fitness,
    input::{Input, ReadToken},
    laying::Route,
    message::{Extent, Message, RingEntry},
    node::{Node, Options, Recovered},
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
    reconfigure::{Eras, replay},
    record::{Class, HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::{BatchName, Value},
};

/// A message in transit.
struct Letter {
    from: Member,
    to: NodeId,
    message: Message,
}

/// A node with its disk, its bytes, and its decided values.
struct Actor {
    node: Option<Node>,
    member: Member,
    /// Records of all processes of the node, and the number of records on disk.
    records: Vec<(Record, HardState)>,
    persisted: usize,
    /// Number of records of earlier processes. The core counts from zero again after each start.
    base: usize,
    bytes: BTreeSet<Value>,
    decided: Vec<(SlotRange, Value)>,
    /// Start of the node's log, and the eras there, which are the founding ones or those of a
    /// snapshot.
    log_start: Slot,
    eras: Eras,
    /// No snapshot covers the slots below the start of the log. `forget` is the start that the node
    /// requested.
    hollow: bool,
    forget: Option<Slot>,
}

/// All nodes, messages and connections of a story.
pub(crate) struct Stage {
    now: Time,
    founding: Configuration,
    actors: BTreeMap<NodeId, Actor>,
    letters: Vec<Letter>,
    names: BTreeMap<Value, String>,
    effects: Effects,
    thrifty: bool,
    route: Route,
    /// Time at which each node last asked to be woken.
    wakes: BTreeMap<NodeId, Time>,
}

impl Default for Stage {
    fn default() -> Self {
        let founding =
            Configuration::majority_of([Member::first(1)], Class::Durable).expect("one node");
        Self {
            now: Time(0),
            founding,
            actors: BTreeMap::new(),
            letters: Vec::new(),
            names: BTreeMap::new(),
            effects: Effects::default(),
            thrifty: false,
            route: Route::Star,
            wakes: BTreeMap::new(),
        }
    }
}

fn describe_explanation(explanation: Explanation) -> String {
    match explanation {
        Explanation::LeaderSilent { leader, .. } => format!("(leader {leader} is silent)"),
        Explanation::LeaderUnreachable { leader } => format!("(leader {leader} is unreachable)"),
        Explanation::WaitsAlone { us } => format!("(waits {us} us for others)"),
        Explanation::Campaigns { ballot, why } => format!("(campaigns in {ballot}: {why})"),
        Explanation::Leads { ballot } => format!("(leads in {ballot})"),
        Explanation::NotElected { ballot, why } => format!("(not elected in {ballot}: {why})"),
        Explanation::RingLaid { nodes, .. } => {
            let nodes: Vec<String> = nodes.iter().map(|node| node.to_string()).collect();
            format!("(lays a ring through {})", nodes.join(", "))
        }
        Explanation::RingBreaks { slot, .. } => format!("(the ring breaks at slot {slot})"),
        Explanation::Engages { .. } => "(engages auxiliaries)".to_owned(),
        Explanation::Retires { .. } => "(retires auxiliaries)".to_owned(),
        Explanation::Offloads { ballot } => format!("(hands {ballot} to devices)"),
        Explanation::TakesBack { ballot } => format!("(takes {ballot} back from devices)"),
        Explanation::DeviceLate => "(its device is late)".to_owned(),
        Explanation::DeviceForgot => "(its device forgot)".to_owned(),
        Explanation::StepsDown { ballot, why } => format!("(steps down from {ballot}: {why})"),
    }
}

fn kind(message: &Message) -> &'static str {
    match message {
        Message::Phase1a { .. } => "1a",
        Message::Phase1b(_) => "1b",
        Message::Preempted { .. } => "preempted",
        Message::Phase2a(_) => "2a",
        Message::Phase2b(_) => "2b",
        Message::Lay { .. } => "lay",
        Message::RingVote(_) => "ring-vote",
        Message::Arm { .. } => "arm",
        Message::Armed { .. } => "armed",
        Message::Decided { .. } => "decided",
        Message::Heartbeat(_) => "heartbeat",
        Message::HeartbeatReply(_) => "heartbeat-reply",
        Message::PreVote { .. } => "pre-vote",
        Message::PreVoteReply { .. } => "pre-vote-reply",
        Message::Transfer { .. } => "transfer",
        Message::CatchupRequest { .. } => "catch-up",
        Message::Learn { .. } => "learn",
        Message::BelowStart { .. } => "below-start",
        Message::ReadRequest { .. } => "read",
        Message::ReadReply { .. } => "read-reply",
        Message::LastingRequest { .. } => "lasting?",
        Message::LastingReply { .. } => "lasting",
        Message::EarlyRequest(_) => "early?",
        Message::EarlyReply { .. } => "early",
    }
}

/// Parses a flexible rule such as `3,2`.
fn flexible(word: &str) -> QuorumRule {
    let (phase1, phase2) = word.split_once(',').expect("two thresholds");
    QuorumRule::Flexible {
        phase1: phase1.parse().expect("a threshold"),
        phase2: phase2.parse().expect("a threshold"),
    }
}

fn node_id(word: &str) -> NodeId {
    NodeId(word.parse().unwrap_or_else(|_| panic!("{word} is no node id")))
}

impl Stage {
    /// Runs one command and returns its output lines.
    pub(crate) fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut out = String::new();
        match words.as_slice() {
            // nodes 1 2:2 3 4a [durable|volatile] [flexible:3,2] [thrifty] [ring] — founding
            // members with weights, 4 as an auxiliary; all start and are connected
            ["nodes", rest @ ..] => self.nodes(rest),
            // join 4 — starts a node that is not a member and knows the founding configuration
            ["join", node] => self.join(node_id(node), &mut out),
            // timeout 1 — advances the time to the moment at which the node asked to be woken
            ["timeout", node] => self.timeout(node_id(node), &mut out),
            // beats 1 9 — delivers nine heartbeats of leader 1 and their replies, and nothing else
            ["beats", node, count] => {
                let (node, quiet) = (node_id(node), &mut String::new());
                for _ in 0..count.parse().expect("a number") {
                    self.timeout(node, quiet);
                    self.deliver_letters(&format!("{node}->*"), &["heartbeat"], quiet);
                    self.deliver_letters(&format!("*->{node}"), &["heartbeat-reply"], quiet);
                }
            }
            // reads 1 40 10 — 40 times: 10 ms pass, the node reads, is woken if due, and receives
            // the replies to its heartbeats
            ["reads", node, count, ms] => {
                let (node, quiet) = (node_id(node), &mut String::new());
                for read in 0..count.parse().expect("a number") {
                    self.now = self.now.plus_ms(ms.parse().expect("milliseconds"));
                    if self.wakes.get(&node).is_some_and(|at| *at <= self.now) {
                        self.step(node, Input::Tick, quiet);
                    }
                    self.step(node, Input::Read(ReadToken(read)), quiet);
                    self.deliver_letters(&format!("{node}->*"), &["heartbeat"], quiet);
                    self.deliver_letters(&format!("*->{node}"), &["heartbeat-reply"], quiet);
                }
            }
            // route 1 2 3 — votes reach the node, when it leads, through nodes 2 and 3; without
            // those, directly
            ["route", node, through @ ..] => {
                let through = through.iter().map(|word| Member::first(node_id(word).0));
                let wish = match through.collect::<Vec<_>>() {
                    none if none.is_empty() => Route::Star,
                    members => Route::Through(members),
                };
                self.step(node_id(node), Input::Route(wish), &mut out);
            }
            // elect 1 — timeouts of the node until it leads, with everything delivered and
            // persisted
            ["elect", node] => self.elect(node_id(node), &mut out),
            // propose 1 x — proposes a value of any name; `no-op*5` for a range
            ["propose", node, name] => self.propose(node_id(node), name, &mut out),
            // change 1 +4 | -4 | *2 | /2 | !4 | a4 | f4 | q3,2 [era 0] — proposes a reconfiguration
            // of the node's era, or of another; `!` removes, `a` makes an auxiliary, `f` a full
            // replica, `q` a flexible rule
            ["change", node, change] => self.change(node_id(node), change, None, &mut out),
            ["change", node, change, "era", era] => {
                let era = Era(era.parse().expect("an era"));
                self.change(node_id(node), change, Some(era), &mut out);
            }
            // trim 1 7 — a snapshot of the node's own covers everything below slot 7, where the log
            // now starts
            ["trim", node, slot] => {
                let slot = Slot(slot.parse().expect("a slot"));
                self.trim(node_id(node), slot, &mut out);
            }
            // forget 3 — starts the auxiliary's log where it requested
            ["forget", node] => {
                let node = node_id(node);
                let actor = self.actors.get_mut(&node).expect("on stage");
                let Some(to) = actor.forget.take() else {
                    let _ = writeln!(out, "{node}: has nothing to forget");
                    return out;
                };
                actor.log_start = to;
                actor.decided.retain(|(range, _)| range.from >= to);
                actor.hollow = true;
                self.step(node, Input::Forgotten(to), &mut out);
            }
            // install 3 1 — installs on node 3 the snapshot that covers the slots below node 1's
            // log
            ["install", node, from] => self.install(node_id(node), node_id(from), &mut out),
            // held — prints what each node knows about the slots that the others hold
            ["held"] => {
                for (id, actor) in &self.actors {
                    let held = actor.node.as_ref().map(Node::held_slots).unwrap_or_default();
                    let _ = writeln!(out, "{id}: all {}, quorum {}", held.all, held.quorum);
                }
            }
            // persist 1 — puts all records of the node on stable storage
            ["persist", node] => self.persist(node_id(node), &mut out),
            // deliver 1->2 [kind] — delivers messages in order; `*` stands for all nodes
            ["deliver", route, kinds @ ..] => self.deliver_letters(route, kinds, &mut out),
            // drop 1->2 [kind]
            ["drop", route, kinds @ ..] => {
                let lost = self.take_letters(route, kinds);
                let _ = writeln!(out, "lost: {}", lost.len());
            }
            // bytes 2 x — gives the node the bytes of a value
            ["bytes", node, name] => self.bytes(node_id(node), name, &mut out),
            // stabilize [quietly] — deliver and persist everything until nothing happens
            ["stabilize"] => self.stabilize(&mut out),
            ["stabilize", "quietly"] => self.stabilize(&mut String::new()),
            // crash 1 / restart 1 [forgetful] — loses the memory, but not what was persisted
            ["crash", node] => self.crash(node_id(node)),
            ["restart", node] => self.restart(node_id(node), false, &mut out),
            ["restart", node, "forgetful"] => self.restart(node_id(node), true, &mut out),
            // rot 1 5 — makes the records of slot 5 unreadable; the next start finds out
            ["rot", node, slot] => {
                let slot = Slot(slot.parse().expect("a slot"));
                let actor = self.actors.get_mut(&node_id(node)).expect("on stage");
                for (record, _) in &mut actor.records {
                    if let Record::Vote { range, .. } | Record::Decided { range, .. } = record
                        && range.contains(slot)
                    {
                        // The restated hard state is also in the headers of other log writes.
                        let ballot = Ballot::ZERO;
                        *record = Record::Round { ballot };
                    }
                }
            }
            // missing 1 5 / missing 1 — slot 5 cannot be read back in this process; it can again
            ["missing", node, slot @ ..] => {
                let first = slot.first().map(|slot| Slot(slot.parse().expect("a slot")));
                let actor = self.actors.get_mut(&node_id(node)).expect("on stage");
                actor.decided.retain(|(range, _)| Some(range.from) != first);
                self.step(node_id(node), Input::FirstUnreadable(first), &mut out);
            }
            // lacking 1 / lacking 1 no — bytes of streams are missing; they are present again
            ["lacking", node, no @ ..] => {
                self.step(node_id(node), Input::StreamBytesLacking(no.is_empty()), &mut out);
            }
            // nowhere 1 — all nodes were asked for the missing value, and none had it
            ["nowhere", node] => self.step(node_id(node), Input::FoundNowhere, &mut out),
            // disk-fails 1
            ["disk-fails", node] => self.step(node_id(node), Input::StorageFailed, &mut out),
            // fitness 1 fit|settling|far-behind|cannot-apply|cannot-write
            ["fitness", node, how] => {
                let fitness = match *how {
                    "fit" => Fitness::Fit,
                    "settling" => Fitness::Settling,
                    "far-behind" => Fitness::FarBehind,
                    "cannot-apply" => Fitness::CannotApply,
                    "cannot-write" => Fitness::CannotWrite,
                    other => panic!("unknown fitness: {other}"),
                };
                self.step(node_id(node), Input::Fitness(fitness), &mut out);
            }
            // read 1 7 — starts a read with any number
            ["read", node, token] => {
                let token = ReadToken(token.parse().expect("a number"));
                self.step(node_id(node), Input::Read(token), &mut out);
            }
            // transfer 1 [2]
            ["transfer", node, to @ ..] => {
                let to = to.first().map(|to| node_id(to));
                self.step(node_id(node), Input::Transfer { to }, &mut out);
            }
            // disconnect 1 2 / connect 1 2 — as seen from the first
            ["disconnect", node, peer] => {
                self.step(node_id(node), Input::Disconnected(node_id(peer)), &mut out);
            }
            ["connect", node, peer] => {
                let member = self.actors[&node_id(peer)].member;
                self.step(node_id(node), Input::Connected(member), &mut out);
            }
            // forge 2->1 2b BALLOT 1..3 check — a vote with a wrong sum
            ["forge", route, "2b"] => self.forge(route, &mut out),
            // late 2 0.1.1 2 — delivers "decided to 2" of an old leader
            ["late", node, ballot, slot] => self.late(node_id(node), ballot, slot, &mut out),
            // state [1] — prints one line per node
            ["state"] => self.state(&mut out),
            // decided — prints the decided log of every node
            ["decided"] => self.show_decided(&mut out),
            _ => panic!("unknown command: {line}"),
        }
        out
    }

    fn options(&self, member: Member) -> Options {
        let node = u64::from(member.node.0);
        Options {
            member,
            heartbeat_ms: 20,
            // Equal bounds make timeouts deterministic; lower ids have shorter ones.
            election_min_ms: 100 + 10 * node,
            election_max_ms: 100 + 10 * node,
            inflight_max: 16,
            window_slots: 1 << 20,
            leases: None,
            earlier_lease_us: 0,
            lead_alone_wait_us: 0,
            thrifty: self.thrifty,
            route: self.route.clone(),
            seed: node,
        }
    }

    fn nodes(&mut self, words: &[&str]) {
        let class = if words.contains(&"volatile") { Class::Volatile } else { Class::Durable };
        let mut voters = Vec::new();
        for word in words.iter().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            let auxiliary = word.ends_with('a');
            let word = word.trim_end_matches('a');
            let (node, weight) = word.split_once(':').unwrap_or((word, "1"));
            let member = Member::first(node_id(node).0);
            let weight = weight.parse().expect("a weight");
            voters.push(Voter { member, weight, auxiliary });
        }
        self.thrifty = words.contains(&"thrifty");
        self.route = if words.contains(&"ring") { Route::Ring } else { Route::Star };
        let rule = words.iter().find_map(|word| word.strip_prefix("flexible:"));
        let rule = rule.map_or(QuorumRule::Majority, flexible);
        self.founding = Configuration::new(voters.clone(), rule, class).expect("valid");
        for voter in voters {
            self.join(voter.member.node, &mut String::new());
        }
    }

    fn join(&mut self, node: NodeId, out: &mut String) {
        let member = Member { node, incarnation: Incarnation(0) };
        let actor = Actor {
            node: None,
            member,
            records: Vec::new(),
            persisted: 0,
            base: 0,
            bytes: BTreeSet::new(),
            decided: Vec::new(),
            log_start: Slot::FIRST,
            eras: Eras::founded(self.founding.clone()),
            hollow: false,
            forget: None,
        };
        self.actors.insert(node, actor);
        self.restart(node, false, out);
    }

    fn crash(&mut self, node: NodeId) {
        let actor = self.actors.get_mut(&node).expect("on stage");
        actor.node = None;
        actor.records.truncate(actor.persisted);
        actor.base = actor.persisted;
        actor.decided.clear();
        self.letters.retain(|letter| letter.to != node);
    }

    /// Recovers a node as quorate-log does. The last record of a slot is final.
    fn recover(&self, actor: &Actor) -> (Recovered, Vec<(SlotRange, Value)>) {
        let mut slots: BTreeMap<u64, (Option<Ballot>, Value)> = BTreeMap::new();
        let mut hard = Recovered::for_new_node(self.founding.clone()).hard_state;
        for (record, restated) in &actor.records {
            hard.decided_to = hard.decided_to.max(restated.decided_to);
            match *record {
                Record::Round { ballot } => {
                    hard.last_used_ballot = hard.last_used_ballot.max(ballot)
                }
                Record::Promise { ballot } => hard.promised = hard.promised.max(ballot),
                Record::Vote { ballot, range, value } => {
                    hard.promised = hard.promised.max(ballot);
                    hard.voted_to = hard.voted_to.max(range.to);
                    slots.extend((range.from.0..range.to.0).map(|s| (s, (Some(ballot), value))));
                }
                Record::Decided { range, value } => {
                    slots.extend((range.from.0..range.to.0).map(|s| (s, (None, value))));
                }
            }
        }
        let below = |slot: u64| slot < hard.decided_to.0;
        let decided: Vec<(Slot, Value)> = slots
            .iter()
            .filter(|(slot, _)| below(**slot) && **slot >= actor.log_start.0)
            .map(|(slot, (_, value))| (Slot(*slot), *value))
            .collect();
        let votes = slots.iter().filter(|(slot, _)| !below(**slot));
        let votes = votes.filter_map(|(slot, (ballot, value))| {
            let range = SlotRange::one(Slot(*slot));
            ballot.map(|ballot| Extent { range, ballot, value: *value, class: Class::Durable })
        });
        let votes = votes.collect();
        let changes = decided.iter().copied();
        let changes = changes.filter(|(_, value)| matches!(value, Value::Reconfigure { .. }));
        let lost = (actor.log_start.0..hard.decided_to.0).filter(|slot| !slots.contains_key(slot));
        let recovered = Recovered::replayed(
            hard,
            actor.log_start,
            actor.eras.clone(),
            changes.collect(),
            lost.map(|slot| SlotRange::one(Slot(slot))).collect(),
            votes,
        );
        let recovered = if actor.hollow { recovered.hollow(actor.eras.clone()) } else { recovered };
        let decided = decided.into_iter().map(|(slot, value)| (SlotRange::one(slot), value));
        (recovered, decided.collect())
    }

    fn restart(&mut self, node: NodeId, forgetful: bool, out: &mut String) {
        let actor = self.actors.get_mut(&node).expect("on stage");
        if forgetful {
            // [volatile-1] The node may have forgotten votes, so it restarts under a new
            // incarnation.
            actor.member.incarnation.0 += 1;
        }
        let member = actor.member;
        let (recovered, decided) = self.recover(&self.actors[&node]);
        let fresh = Node::new(self.options(member), recovered);
        let actor = self.actors.get_mut(&node).expect("on stage");
        actor.node = Some(fresh);
        actor.decided = decided;
        self.step(node, Input::Tick, out);
        let others: Vec<Member> = self.actors.values().map(|actor| actor.member).collect();
        for other in others.into_iter().filter(|other| other.node != node) {
            if self.actors[&other.node].node.is_some() {
                self.step(node, Input::Connected(other), out);
                self.step(other.node, Input::Connected(member), out);
            }
        }
    }

    fn timeout(&mut self, node: NodeId, out: &mut String) {
        let wake = self.wakes.get(&node).copied().unwrap_or(self.now);
        self.now = self.now.max(wake);
        self.step(node, Input::Tick, out);
    }

    fn elect(&mut self, node: NodeId, out: &mut String) {
        for _ in 0..4 {
            self.timeout(node, &mut String::new());
            self.stabilize(&mut String::new());
            let actor = self.actors[&node].node.as_ref().expect("running");
            if let Some(leading) = actor.phase2() {
                let _ = writeln!(out, "{node} leads in ballot {}", leading.ballot());
                return;
            }
        }
        let _ = writeln!(out, "{node} does not lead");
    }

    fn value(&mut self, name: &str) -> Value {
        if let Some((value, _)) = self.names.iter().find(|(_, known)| *known == name) {
            return *value;
        }
        let counter = self.names.len() as u64 + 1;
        let value = Value::Batch(BatchName { counter, ..BatchName::default() });
        self.names.insert(value, name.to_owned());
        value
    }

    fn propose(&mut self, node: NodeId, name: &str, out: &mut String) {
        let (value, slots) = match name.split_once('*') {
            Some((_, count)) => (Value::NoOp, count.parse().expect("a count")),
            None => (self.value(name), 1),
        };
        self.actors.get_mut(&node).expect("on stage").bytes.insert(value);
        self.step(node, Input::Propose { value, slots }, out);
    }

    /// Returns the decided values of a node from the start of its log to `to`, and the eras there.
    fn eras_at(&self, node: NodeId, to: Slot) -> Eras {
        let actor = &self.actors[&node];
        let slots = actor.decided.iter().map(|(range, value)| (range.from, *value));
        let below: Vec<(Slot, Value)> = slots.filter(|(slot, _)| *slot < to).collect();
        replay(actor.eras.clone(), &below)
    }

    /// Moves the start of the log to `to`, durably. A snapshot covers the slots below.
    fn rebase(&mut self, node: NodeId, to: Slot, eras: Eras) {
        let actor = self.actors.get_mut(&node).expect("on stage");
        actor.log_start = to;
        actor.hollow = false;
        actor.eras = eras;
        actor.decided.retain(|(range, _)| range.from >= to);
    }

    fn trim(&mut self, node: NodeId, to: Slot, out: &mut String) {
        let eras = self.eras_at(node, to);
        self.rebase(node, to, eras);
        self.step(node, Input::Trimmed(to), out);
    }

    fn install(&mut self, node: NodeId, from: NodeId, out: &mut String) {
        let source = &self.actors[&from];
        let (to, eras) = (source.log_start, source.eras.clone());
        self.rebase(node, to, eras.clone());
        self.step(node, Input::Installed { to, eras }, out);
    }

    fn change(&mut self, node: NodeId, change: &str, era: Option<Era>, out: &mut String) {
        let (sign, amount) = change.split_at(1);
        let number: u32 = amount.parse().unwrap_or_default();
        let member = || self.actors[&NodeId(number)].member;
        let change = match sign {
            "+" => Change::Increment(member()),
            "-" => Change::Decrement(member()),
            "*" => Change::Multiply(number),
            "!" => Change::Remove(NodeId(number)),
            "a" | "f" => Change::Role { member: member(), auxiliary: sign == "a" },
            "q" => Change::Rule(flexible(amount)),
            _ => Change::Divide(number),
        };
        let own = self.actors[&node].node.as_ref().expect("running").era();
        let era = era.unwrap_or(own);
        self.step(
            node,
            Input::Propose { value: Value::Reconfigure { era, change }, slots: 1 },
            out,
        );
    }

    fn persist(&mut self, node: NodeId, out: &mut String) {
        let actor = self.actors.get_mut(&node).expect("on stage");
        let fresh = actor.records.len() - actor.base;
        actor.persisted = actor.records.len();
        if fresh > 0 {
            self.step(node, Input::Persisted(RecordSeq(fresh as u64)), out);
        }
    }

    fn bytes(&mut self, node: NodeId, name: &str, out: &mut String) {
        let value = self.value(name);
        self.actors.get_mut(&node).expect("on stage").bytes.insert(value);
        let range = SlotRange::new(Slot(0), Slot(u64::MAX));
        self.step(node, Input::BytesHeld { value, range }, out);
    }

    fn take_letters(&mut self, route: &str, kinds: &[&str]) -> Vec<Letter> {
        let (from, to) = route.split_once("->").expect("a route like 1->2");
        let matches = |word: &str, node: NodeId| word == "*" || node_id(word) == node;
        let wanted = |letter: &mut Letter| {
            matches(from, letter.from.node)
                && matches(to, letter.to)
                && (kinds.is_empty() || kinds.contains(&kind(&letter.message)))
        };
        self.letters.extract_if(.., wanted).collect()
    }

    fn deliver_letters(&mut self, route: &str, kinds: &[&str], out: &mut String) {
        for letter in self.take_letters(route, kinds) {
            self.hand_letter(letter, out);
        }
    }

    fn hand_letter(&mut self, letter: Letter, out: &mut String) {
        let Letter { from, to, message } = letter;
        let Some(actor) = self.actors.get_mut(&to).filter(|actor| actor.node.is_some()) else {
            return;
        };
        let value = match &message {
            Message::Phase2a(m) if m.with_bytes => {
                actor.bytes.insert(m.value);
                m.value
            }
            Message::Phase2a(m) => m.value,
            Message::Learn { value, .. } => {
                actor.bytes.insert(*value);
                *value
            }
            _ => Value::NoOp,
        };
        let held = actor.bytes.contains(&value);
        self.step(to, Input::Message { from, message, bytes_held: held }, out);
    }

    fn stabilize(&mut self, out: &mut String) {
        for _ in 0..200 {
            let nodes: Vec<NodeId> = self.actors.keys().copied().collect();
            let mut quiet = self.letters.is_empty();
            for letter in std::mem::take(&mut self.letters) {
                self.hand_letter(letter, out);
            }
            for node in nodes {
                let actor = &self.actors[&node];
                if actor.node.is_some() && actor.persisted < actor.records.len() {
                    quiet = false;
                    self.persist(node, out);
                }
            }
            if quiet {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    fn forge(&mut self, route: &str, out: &mut String) {
        let forged = |letter: Letter| match letter.message {
            Message::Phase2b(mut vote) => {
                vote.check ^= 1;
                Letter { message: Message::Phase2b(vote), ..letter }
            }
            _ => letter,
        };
        for letter in self.take_letters(route, &["2b"]) {
            self.hand_letter(forged(letter), out);
        }
    }

    fn late(&mut self, node: NodeId, ballot: &str, slot: &str, out: &mut String) {
        let parts: Vec<u32> =
            ballot.split('.').map(|part| part.parse().expect("a number")).collect();
        let ballot = Ballot { era: Era(parts[0]), round: parts[1], node: NodeId(parts[2]) };
        let decided_to = Slot(slot.parse().expect("a slot"));
        let message = Message::Decided { ballot, decided_to };
        self.hand_letter(Letter { from: Member::first(parts[2]), to: node, message }, out);
    }

    fn step(&mut self, node: NodeId, input: Input, out: &mut String) {
        let actor = self.actors.get_mut(&node).expect("on stage");
        let Some(core) = actor.node.as_mut() else {
            return;
        };
        core.step(self.now, input, &mut self.effects);
        let hard = core.hard_state();
        let from = actor.member;
        let effects: Vec<Effect> = self.effects.drain().collect();
        for effect in effects {
            let actor = self.actors.get_mut(&node).expect("on stage");
            match &effect {
                Effect::Persist { record, .. } => actor.records.push((*record, hard)),
                Effect::Decided { range, value } => actor.decided.push((*range, *value)),
                Effect::WakeAt(at) => {
                    self.wakes.insert(node, *at);
                }
                Effect::Send { to, message } => {
                    // One message and one line for each receiver.
                    for to in to.iter() {
                        let message = message.clone();
                        let _ =
                            writeln!(out, "{node}: -> {to} {}", self.describe_message(&message));
                        self.letters.push(Letter { from, to, message });
                    }
                }
                Effect::ServeDecided { to, range } => {
                    let decided = actor.decided.clone();
                    for (held, value) in decided {
                        let range = held.intersect(*range);
                        if !range.is_empty() {
                            let message = Message::Learn { range, value };
                            self.letters.push(Letter { from, to: *to, message });
                        }
                    }
                }
                Effect::Forget { to } => actor.forget = Some(*to),
                _ => {}
            }
            if let Some(line) = self.describe(&effect) {
                let _ = writeln!(out, "{node}: {line}");
            }
        }
    }

    fn name(&self, value: &Value) -> String {
        self.names.get(value).cloned().unwrap_or_else(|| value.to_string())
    }

    fn describe(&self, effect: &Effect) -> Option<String> {
        Some(match effect {
            Effect::Send { .. } => return None,
            Effect::Persist { record, .. } => match record {
                Record::Round { ballot } => format!("record round {ballot}"),
                Record::Promise { ballot } => format!("record promise {ballot}"),
                Record::Vote { ballot, range, value } => {
                    format!("record vote {range} = {} in {ballot}", self.name(value))
                }
                Record::Decided { range, value } => {
                    format!("record decided {range} = {}", self.name(value))
                }
            },
            Effect::Decided { range, value } => format!("decided {range} = {}", self.name(value)),
            Effect::Fetch { from, value, range } => {
                format!("fetch {} of slot {range}, first from {from}", self.name(value))
            }
            Effect::ServeDecided { to, range } => format!("serve {range} to {to}"),
            Effect::NeedSnapshot { from, log_start } => {
                format!("needs a snapshot: the log of {from} starts at {log_start}")
            }
            Effect::Forget { to } => format!("forgets what is below {to}"),
            Effect::ReadReady { token, slot } => {
                format!("read {} waits for everything below {slot}", token.0)
            }
            Effect::DurableInGroup { to } => format!("lasts below {to}"),
            Effect::VotedInMemory { ballot, to } => {
                format!("in memory below {to}, ballot {ballot}")
            }
            Effect::ReadFailed { token } => format!("read {} failed", token.0),
            Effect::Device(order) => format!("device: {order:?}"),
            Effect::Refused { value, why } => format!("refused {}: {why:?}", self.name(value)),
            Effect::TransferEnded(Ok(node)) => format!("transfer ended: {node} leads"),
            Effect::TransferEnded(Err(why)) => format!("transfer ended: {why:?}"),
            Effect::Role { role, leader } => match leader {
                Some(ballot) => format!("is {role:?}, leader {} in {ballot}", ballot.node),
                None => format!("is {role:?}, no leader"),
            },
            Effect::Explain(explanation) => describe_explanation(*explanation),
            Effect::Alarm(alarm) => match alarm {
                Alarm::ConflictingVotes { from, ballot, to } => {
                    format!("ALARM conflicting votes of {from} in {ballot} below {to}")
                }
                other => format!("ALARM {other:?}"),
            },
            Effect::WakeAt(_) => return None,
        })
    }

    fn describe_message(&self, message: &Message) -> String {
        let kind = kind(message);
        match message {
            Message::Phase1a { ballot, from } => format!("{kind} {ballot} from slot {from}"),
            Message::Phase1b(m) => {
                let mut line = format!("{kind} {}", m.ballot);
                if m.floor > m.from {
                    let _ = write!(line, ", decided below {}", m.floor);
                }
                if m.log_start > Slot::FIRST {
                    let _ = write!(line, ", log from {}", m.log_start);
                }
                for extent in &m.extents {
                    let name = self.name(&extent.value);
                    let _ = write!(line, ", {} = {name} in {}", extent.range, extent.ballot);
                }
                line
            }
            Message::Preempted { ballot, promised } => format!("{kind} {ballot} by {promised}"),
            Message::Phase2a(m) => {
                let bytes = if m.with_bytes { "" } else { ", no bytes" };
                let name = self.name(&m.value);
                format!(
                    "{kind} {} {} = {name}, decided to {}{bytes}",
                    m.ballot, m.range, m.decided_to
                )
            }
            Message::Phase2b(m) => format!(
                "{kind} {} {} volatile to {}, durable to {}",
                m.ballot, m.from, m.volatile_to, m.durable_to
            ),
            Message::Lay { ballot, number, members } => {
                let members: Vec<String> = members.iter().map(|m| m.node.to_string()).collect();
                let members = match members.as_slice() {
                    [] => "none".to_owned(),
                    members => members.join(" → "),
                };
                format!("{kind} {ballot} ring {number}: {members}")
            }
            Message::RingVote(m) => {
                let entries = m.entries.iter().map(|entry| {
                    let RingEntry { member, from, volatile_to, durable_to, .. } = entry;
                    format!("{member} {from} volatile to {volatile_to}, durable to {durable_to}")
                });
                let entries: Vec<String> = entries.collect();
                format!("{kind} {}: {}", m.ballot, entries.join("; "))
            }
            Message::Arm { ballot, slot, .. } => format!("{kind} {ballot} from slot {slot}"),
            Message::Armed { ballot, floor } => format!("{kind} {ballot} from slot {floor}"),
            Message::Decided { ballot, decided_to } => {
                format!("{kind} to {decided_to} in {ballot}")
            }
            Message::Heartbeat(m) => {
                let round = if m.read_round > 0 {
                    format!(", read round {}", m.read_round)
                } else {
                    String::new()
                };
                format!(
                    "{kind} {}, decided to {}, sent to {}{round}",
                    m.ballot, m.decided_to, m.sent_to
                )
            }
            Message::HeartbeatReply(m) => {
                format!(
                    "{kind} {}, promised {}, voted to {}{}",
                    m.ballot,
                    m.promised,
                    m.voted_to,
                    if m.unfit { ", unfit" } else { "" }
                )
            }
            Message::PreVote { ballot } => format!("{kind} {ballot}"),
            Message::PreVoteReply { ballot, granted, .. } => {
                format!("{kind} {ballot} {}", if *granted { "granted" } else { "refused" })
            }
            Message::Transfer { ballot } => format!("{kind} of {ballot}"),
            Message::CatchupRequest { range } => format!("{kind} {range}"),
            Message::Learn { range, value } => format!("{kind} {range} = {}", self.name(value)),
            Message::BelowStart { log_start } => format!("{kind} {log_start}"),
            Message::ReadRequest { id } => format!("{kind} {id}"),
            Message::ReadReply { id, slot } => format!("{kind} {id}, slot {slot}"),
            Message::EarlyRequest(question) => {
                format!("{kind} below {}, ballot {}", question.to, question.ballot)
            }
            Message::EarlyReply { ballot, from, to } => {
                format!("{kind} {from} to {to}, ballot {ballot}")
            }
            Message::LastingRequest { to } | Message::LastingReply { to } => {
                format!("{kind} below {to}")
            }
        }
    }

    fn state(&self, out: &mut String) {
        for (id, actor) in &self.actors {
            let Some(node) = &actor.node else {
                let _ = writeln!(out, "{id}: down");
                continue;
            };
            let leader = node.leader().map_or("none".to_owned(), |leader| leader.to_string());
            let _ = writeln!(
                out,
                "{id}: {:?} leader {leader} era {} ({}) promised {} decided to {} durable to {}",
                node.role(),
                node.era(),
                node.configuration(),
                node.acceptor().promised(),
                node.decided_to(),
                node.durable_to(),
            );
        }
    }

    fn show_decided(&self, out: &mut String) {
        for (id, actor) in &self.actors {
            let runs =
                actor.decided.iter().map(|(range, value)| format!("{range}={}", self.name(value)));
            let _ = writeln!(out, "{id}: {}", runs.collect::<Vec<_>>().join(" "));
        }
    }
}
