//! Exploration of every schedule within small bounds, by stateright, with the production node.
//!
//! Time does not pass, so that states differ only by the order of events. A campaign, with its
//! pre-votes, is one action. Messages remain in the soup permanently. Each may arrive at any later
//! point, repeatedly, or never, which covers loss, repetition and reordering.

use quorate_core::{
    configuration::{Change, Configuration},
    laying::Route,
    message::Message,
    node::Node,
    node_id::Member,
    record::Class,
    value::{BatchName, Value},
};
use quorate_stream::OpenMode;
use stateright::{Checker, Model, Property};

use crate::{
    event::Event,
    observer::{Violation, Watched},
    setup::{Setup, Silent},
    world::World,
};

/// Limits within which every schedule is explored.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Name of the exploration in reports.
    pub name: &'static str,
    pub nodes: u32,
    /// Number of founding members.
    pub members: u32,
    pub class: Class,
    pub campaigns: u8,
    pub crashes: u8,
    pub values: u8,
    /// A reconfiguration that adds the last node may be submitted once.
    pub change: bool,
    /// Number of stream bytes that a client has handed to the last node; 0 for no stream. With a
    /// stream, node 1 is leader from the start.
    pub bytes: u64,
    /// Maximum number of actions in a schedule.
    pub depth: usize,
    /// Maximum number of states to visit.
    pub states: usize,
    /// Number of threads. With one thread, the order does not depend on timing. A search that is
    /// cut off by depth alone then visits the same number of states whenever the behaviour is the
    /// same.
    pub threads: usize,
}

/// A world, and the used part of each bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    world: World,
    campaigns: u8,
    crashes: u8,
    values: u8,
    changed: bool,
    violation: Option<String>,
}

/// A step from one explored state to the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A node runs a pre-vote, receives all replies, and starts a ballot.
    Campaign(usize),
    /// A node crashes, and restarts with this many of its unpersisted records.
    Restart(usize, usize),
    /// Any other event of the world.
    Event(Event),
}

impl Bounds {
    fn act(&self, state: &mut State, action: Action) -> Result<(), Violation> {
        match action {
            Action::Campaign(site) => {
                state.campaigns += 1;
                campaign(&mut state.world, site)
            }
            Action::Restart(site, kept) => {
                state.crashes += 1;
                state.world.apply(&Event::Crash { site, kept })?;
                let forget = true;
                state.world.apply(&Event::Start { site, forget })
            }
            Action::Event(event) => {
                if let Event::Propose { value, .. } = event {
                    match value {
                        Value::Reconfigure { .. } => state.changed = true,
                        _ => state.values += 1,
                    }
                }
                state.world.apply(&event)
            }
        }
    }

    /// Adds the possible actions of the stream, if there is one.
    fn flow(&self, state: &State, site: usize, actions: &mut Vec<Action>) {
        let world = &state.world;
        for (stream, end) in world.clients.streams() {
            let next = world.sites[site].applied.table().next_position(stream);
            let Some(next) = next.filter(|_| world.sites[site].node.is_some()) else {
                continue;
            };
            let held_to = world.sites[site].held_to(stream, next, end);
            // The bytes up to any position are delivered in order. In addition, the last byte may
            // arrive alone.
            let mut carry = |from, to| {
                actions.push(Action::Event(Event::Carry { site, stream, from, to }));
            };
            (held_to + 1..=end).for_each(|to| carry(held_to, to));
            if held_to + 1 < end {
                carry(end - 1, end);
            }
            for most in 1..=end - next {
                if world.may_offer(site, stream) {
                    actions.push(Action::Event(Event::Offer { site, stream, most }));
                }
            }
        }
    }

    /// Sets up the stream, with node 1 as leader and the bytes of a client at the last node.
    fn with_stream(&self, mut world: World) -> Result<World, Violation> {
        campaign(&mut world, 0)?;
        settle(&mut world)?;
        let site = self.nodes as usize - 1;
        let (name, how, writer) = (0, OpenMode::Create, 0);
        world.apply(&Event::Open { site, name, how, writer })?;
        let value = *world.clients.commands().next().expect("just asked for");
        let slots = 1;
        world.apply(&Event::Propose { site: 0, value, slots })?;
        settle(&mut world)?;
        let stream = world.owned(site)[0];
        let count = self.bytes;
        world.apply(&Event::Give { site, stream, count })?;
        Ok(world)
    }

    /// Adds the possible submissions at a leader.
    fn offers(&self, state: &State, site: usize, actions: &mut Vec<Action>) {
        let Some(node) = state.world.sites[site].node.as_ref() else {
            return;
        };
        let slots = 1;
        if state.values < self.values {
            let value = Value::Batch(BatchName {
                origin: state.world.sites[site].member.node,
                boot: 1,
                counter: u64::from(state.values),
                length: 1,
                checksum: 0,
            });
            actions.push(Action::Event(Event::Propose { site, value, slots }));
        }
        if self.change && !state.changed {
            let change = Change::Increment(Member::first(self.nodes));
            let era = node.era();
            let value = Value::Reconfigure { era, change };
            actions.push(Action::Event(Event::Propose { site, value, slots }));
        }
    }

    /// Explores the bounds. Panics with the path to a violation if there is one.
    pub fn check(self) -> Report {
        let name = self.name;
        let (depth, states, threads) = (self.depth, self.states, self.threads);
        let checker = self
            .checker()
            .target_max_depth(depth)
            .target_state_count(states)
            .threads(threads)
            .spawn_bfs()
            .join();
        if let Some(path) = checker.discovery("nothing breaks") {
            let seen = path.last_state().violation.clone().unwrap_or_default();
            let actions = path.into_actions();
            panic!("{name}: {seen}\nafter {actions:#?}");
        }
        Report {
            name,
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            complete: checker.is_done() && checker.state_count() < states,
            decided: checker.discovery("a value is decided").is_some(),
        }
    }
}

/// Result of an exploration without a violation.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: &'static str,
    /// Number of distinct states visited.
    pub states: usize,
    /// Maximum number of actions in an explored schedule.
    pub depth: usize,
    /// The search ended before the maximum number of states.
    pub complete: bool,
    /// At least one schedule decided a value.
    pub decided: bool,
}

fn campaign(world: &mut World, site: usize) -> Result<(), Violation> {
    let at = world.now;
    world.apply(&Event::Tick { site, at })?;
    let is_vote = |message: &Message| {
        matches!(message, Message::PreVote { .. } | Message::PreVoteReply { .. })
    };
    while let Some(at) = world.soup.iter().position(|p| is_vote(&p.message)) {
        let parcel = world.soup[at].clone();
        world.apply(&Event::Deliver { at, bytes: true })?;
        // A reply may have been sorted in before the message.
        world.soup.retain(|other| *other != parcel);
    }
    Ok(())
}

/// Delivers every message once, and persists all records.
fn settle(world: &mut World) -> Result<(), Violation> {
    loop {
        for site in 0..world.sites.len() {
            let count = world.sites[site].disk.waiting();
            world.apply(&Event::Persist { site, count })?;
        }
        let Some(parcel) = world.soup.first().cloned() else {
            return Ok(());
        };
        world.apply(&Event::Deliver { at: 0, bytes: true })?;
        world.soup.retain(|other| *other != parcel);
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let members = (1..=self.members).map(Member::first);
        let founding = Configuration::simple(members, self.class).expect("there are members");
        let setup = Setup {
            witness: false,
            nodes: self.nodes as usize,
            founding,
            heartbeat_ms: 20,
            election_min_ms: 0,
            election_max_ms: 0,
            inflight_max: 4,
            window_slots: 16,
            thrifty: false,
            route: Route::Star,
            seed: 0,
            sorted: true,
            silent: Silent { heartbeats: true, preempted: true, decided: false, catchup: true },
            leases: None,
            rates_ppm: Vec::new(),
            holders: false,
            early: false,
            lag: false,
            cells: 0,
            bare: false,
            spine: true,
        };
        let world = World::new(setup, Watched::ALL).expect("nothing has happened yet");
        let world = match self.bytes {
            0 => world,
            _ => self.with_stream(world).expect("nothing goes wrong"),
        };
        vec![State { world, campaigns: 0, crashes: 0, values: 0, changed: false, violation: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        let world = &state.world;
        for (site, here) in world.sites.iter().enumerate() {
            let waiting = here.disk.waiting();
            let leads = here.node.as_ref().is_some_and(|node| node.leading().is_some());
            if waiting > 0 {
                let count = waiting;
                actions.push(Action::Event(Event::Persist { site, count }));
            }
            if waiting > 1 {
                actions.push(Action::Event(Event::Persist { site, count: 1 }));
            }
            let idle = here.node.as_ref().is_some_and(|node| node.phase1().is_none());
            if state.campaigns < self.campaigns && !leads && idle {
                actions.push(Action::Campaign(site));
            }
            if state.crashes < self.crashes {
                actions.extend((0..=waiting).map(|kept| Action::Restart(site, kept)));
            }
            if here.node.as_ref().is_some_and(Node::can_propose) {
                self.offers(state, site, actions);
            }
            self.flow(state, site, actions);
            if !here.fetches.is_empty() {
                actions.push(Action::Event(Event::Fetch { site, found: true }));
            }
        }
        let deliver = |at| Action::Event(Event::Deliver { at, bytes: true });
        actions.extend((0..world.soup.len()).map(deliver));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        if let Err(violation) = self.act(&mut next, action) {
            next.violation = Some(violation.to_string());
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing breaks", |_, state: &State| state.violation.is_none()),
            Property::sometimes("a value is decided", |bounds: &Self, state: &State| match bounds
                .bytes
            {
                0 => state.world.observer.known_to().0 > 1,
                all => state.world.seen().acknowledged >= all,
            }),
        ]
    }
}

/// Returns the bounds that `cargo test` explores, which takes seconds.
pub fn small() -> Vec<Bounds> {
    let base = Bounds {
        name: "",
        nodes: 2,
        members: 2,
        class: Class::Durable,
        campaigns: 2,
        crashes: 0,
        values: 1,
        change: false,
        bytes: 0,
        depth: 64,
        states: 200_000,
        threads: 2,
    };
    vec![
        Bounds { name: "two nodes, two leaders, one crash", crashes: 1, ..base.clone() },
        Bounds {
            name: "two nodes, volatile, one crash",
            class: Class::Volatile,
            crashes: 1,
            ..base.clone()
        },
        Bounds {
            name: "three nodes, two leaders, two values",
            nodes: 3,
            members: 3,
            values: 2,
            ..base.clone()
        },
        Bounds {
            name: "three nodes, two leaders, one crash, one change",
            nodes: 3,
            members: 3,
            crashes: 1,
            change: true,
            // The reconfiguration is the only proposal. Both phases must be durable before they are
            // reported, so a decision takes many actions, and another value would put it out of
            // reach.
            values: 0,
            states: 600_000,
            ..base.clone()
        },
        Bounds {
            name: "three nodes, volatile, two leaders, one crash, one change",
            nodes: 3,
            members: 3,
            class: Class::Volatile,
            crashes: 1,
            change: true,
            ..base.clone()
        },
        Bounds { name: "a second node joins", members: 1, change: true, ..base.clone() },
        Bounds {
            name: "two nodes, a stream of two bytes, another leader",
            campaigns: 1,
            values: 0,
            bytes: 2,
            ..base.clone()
        },
        Bounds {
            name: "two nodes, a stream of two bytes, another leader, one crash",
            campaigns: 1,
            crashes: 1,
            values: 0,
            bytes: 2,
            states: 400_000,
            ..base
        },
    ]
}

/// Returns the small bounds, cut off only by the number of actions, for comparing the number of
/// states.
pub fn to_depth(depth: usize) -> Vec<Bounds> {
    let cut = |bounds| Bounds { depth, states: usize::MAX, threads: 1, ..bounds };
    small().into_iter().map(cut).collect()
}

/// Returns the small bounds and larger ones, whose exploration takes minutes and gigabytes.
pub fn deep() -> Vec<Bounds> {
    let deeper = |bounds: Bounds| Bounds {
        states: 2_000_000,
        campaigns: bounds.campaigns + 1,
        values: 2,
        ..bounds
    };
    let mut list: Vec<Bounds> =
        small().into_iter().map(|bounds| Bounds { states: 2_000_000, ..bounds }).collect();
    list.extend(small().into_iter().map(deeper));
    list
}
