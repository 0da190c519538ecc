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
    observer::{Violation, WatchedProperties},
    setup::{LostMessages, WorldSetup},
    world::World,
};

/// Limits within which every schedule is explored.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Name of the exploration in reports.
    pub name: &'static str,
    pub node_count: u32,
    /// Number of founding members.
    pub member_count: u32,
    pub class: Class,
    pub campaigns_max: u8,
    pub crashes_max: u8,
    pub values_max: u8,
    /// A reconfiguration that adds the last node may be submitted once.
    pub allows_change: bool,
    /// Number of stream bytes that a client has handed to the last node; 0 for no stream. With a
    /// stream, node 1 is leader from the start.
    pub bytes: u64,
    /// Maximum number of actions in a schedule.
    pub depth_max: usize,
    /// Maximum number of states to visit.
    pub states_max: usize,
    /// Number of threads. With one thread, the order does not depend on timing. A search that is
    /// cut off by depth alone then visits the same number of states whenever the behaviour is the
    /// same.
    pub thread_count: usize,
}

/// A world, and the used part of each bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    world: World,
    campaign_count: u8,
    crash_count: u8,
    value_count: u8,
    change_submitted: bool,
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
    fn apply_action(&self, state: &mut State, action: Action) -> Result<(), Violation> {
        match action {
            Action::Campaign(site) => {
                state.campaign_count += 1;
                run_campaign(&mut state.world, site)
            }
            Action::Restart(site, kept) => {
                state.crash_count += 1;
                state.world.apply_event(&Event::Crash { site, kept_count: kept })?;
                let forget = true;
                state.world.apply_event(&Event::Start { site, forgets_votes: forget })
            }
            Action::Event(event) => {
                if let Event::Propose { value, .. } = event {
                    match value {
                        Value::Reconfigure { .. } => state.change_submitted = true,
                        _ => state.value_count += 1,
                    }
                }
                state.world.apply_event(&event)
            }
        }
    }

    /// Adds the possible actions of the stream, if there is one.
    fn add_stream_actions(&self, state: &State, site: usize, actions: &mut Vec<Action>) {
        let world = &state.world;
        for (stream, end) in world.clients.given_streams() {
            let next = world.sites[site].applied_streams.table().next_position(stream);
            let Some(next) = next.filter(|_| world.sites[site].node.is_some()) else {
                continue;
            };
            let held_to = world.sites[site].contiguous_bytes_end(stream, next, end);
            // The bytes up to any position are delivered in order. In addition, the last byte may
            // arrive alone.
            let mut carry = |from, to| {
                actions.push(Action::Event(Event::DeliverStreamBytes {
                    site,
                    stream,
                    from,
                    end: to,
                }));
            };
            (held_to + 1..=end).for_each(|to| carry(held_to, to));
            if held_to + 1 < end {
                carry(end - 1, end);
            }
            for most in 1..=end - next {
                if world.has_bytes_to_offer(site, stream) {
                    actions.push(Action::Event(Event::ProposeStreamBytes {
                        site,
                        stream,
                        bytes_max: most,
                    }));
                }
            }
        }
    }

    /// Sets up the stream, with node 1 as leader and the bytes of a client at the last node.
    fn set_up_stream(&self, mut world: World) -> Result<World, Violation> {
        run_campaign(&mut world, 0)?;
        deliver_everything(&mut world)?;
        let site = self.node_count as usize - 1;
        let (name, how, writer) = (0, OpenMode::Create, 0);
        world.apply_event(&Event::OpenStream { site, name, mode: how, writer })?;
        let value = *world.clients.commands().next().expect("just asked for");
        let slots = 1;
        world.apply_event(&Event::Propose { site: 0, value, slot_count: slots })?;
        deliver_everything(&mut world)?;
        let stream = world.owned_streams(site)[0];
        let count = self.bytes;
        world.apply_event(&Event::GiveStreamBytes { site, stream, byte_count: count })?;
        Ok(world)
    }

    /// Adds the possible submissions at a leader.
    fn add_propose_actions(&self, state: &State, site: usize, actions: &mut Vec<Action>) {
        let Some(node) = state.world.sites[site].node.as_ref() else {
            return;
        };
        let slots = 1;
        if state.value_count < self.values_max {
            let value = Value::Batch(BatchName {
                origin: state.world.sites[site].member.node,
                boot: 1,
                counter: u64::from(state.value_count),
                length: 1,
                checksum: 0,
            });
            actions.push(Action::Event(Event::Propose { site, value, slot_count: slots }));
        }
        if self.allows_change && !state.change_submitted {
            let change = Change::Increment(Member::first(self.node_count));
            let era = node.era();
            let value = Value::Reconfigure { era, change };
            actions.push(Action::Event(Event::Propose { site, value, slot_count: slots }));
        }
    }

    /// Explores the bounds. Panics with the path to a violation if there is one.
    pub fn explore(self) -> ExplorationReport {
        let name = self.name;
        let (depth, states, threads) = (self.depth_max, self.states_max, self.thread_count);
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
        ExplorationReport {
            name,
            state_count: checker.unique_state_count(),
            depth_reached: checker.max_depth(),
            is_complete: checker.is_done() && checker.state_count() < states,
            any_decided: checker.discovery("a value is decided").is_some(),
        }
    }
}

/// Result of an exploration without a violation.
#[derive(Clone, Debug)]
pub struct ExplorationReport {
    pub name: &'static str,
    /// Number of distinct states visited.
    pub state_count: usize,
    /// Maximum number of actions in an explored schedule.
    pub depth_reached: usize,
    /// The search ended before the maximum number of states.
    pub is_complete: bool,
    /// At least one schedule decided a value.
    pub any_decided: bool,
}

fn run_campaign(world: &mut World, site: usize) -> Result<(), Violation> {
    let at = world.now;
    world.apply_event(&Event::Tick { site, at })?;
    let is_vote = |message: &Message| {
        matches!(message, Message::PreVote { .. } | Message::PreVoteReply { .. })
    };
    while let Some(at) = world.soup.iter().position(|p| is_vote(&p.message)) {
        let parcel = world.soup[at].clone();
        world.apply_event(&Event::Deliver { message_index: at, bytes: true })?;
        // A reply may have been sorted in before the message.
        world.soup.retain(|other| *other != parcel);
    }
    Ok(())
}

/// Delivers every message once, and persists all records.
fn deliver_everything(world: &mut World) -> Result<(), Violation> {
    loop {
        for site in 0..world.sites.len() {
            let count = world.sites[site].disk.unpersisted_count();
            world.apply_event(&Event::Persist { site, count })?;
        }
        let Some(parcel) = world.soup.first().cloned() else {
            return Ok(());
        };
        world.apply_event(&Event::Deliver { message_index: 0, bytes: true })?;
        world.soup.retain(|other| *other != parcel);
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let members = (1..=self.member_count).map(Member::first);
        let founding = Configuration::majority_of(members, self.class).expect("there are members");
        let setup = WorldSetup {
            detects_rollback: false,
            node_count: self.node_count as usize,
            founding_configuration: founding,
            heartbeat_ms: 20,
            election_min_ms: 0,
            election_max_ms: 0,
            inflight_max: 4,
            window_slots: 16,
            is_thrifty: false,
            route: Route::Star,
            seed: 0,
            sorts_soup: true,
            lost_messages: LostMessages {
                heartbeats: true,
                preempted: true,
                decided: false,
                catchup: true,
            },
            lease_rules: None,
            clock_rates_ppm: Vec::new(),
            checks_holders: false,
            notifies_in_memory: false,
            delays_apply: false,
            device_cells: 0,
            learns_without_bytes: false,
            spine_only: true,
        };
        let world = World::new(setup, WatchedProperties::ALL).expect("nothing has happened yet");
        let world = match self.bytes {
            0 => world,
            _ => self.set_up_stream(world).expect("nothing goes wrong"),
        };
        vec![State {
            world,
            campaign_count: 0,
            crash_count: 0,
            value_count: 0,
            change_submitted: false,
            violation: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        let world = &state.world;
        for (site, here) in world.sites.iter().enumerate() {
            let waiting = here.disk.unpersisted_count();
            let leads = here.node.as_ref().is_some_and(|node| node.phase2().is_some());
            if waiting > 0 {
                let count = waiting;
                actions.push(Action::Event(Event::Persist { site, count }));
            }
            if waiting > 1 {
                actions.push(Action::Event(Event::Persist { site, count: 1 }));
            }
            let idle = here.node.as_ref().is_some_and(|node| node.phase1().is_none());
            if state.campaign_count < self.campaigns_max && !leads && idle {
                actions.push(Action::Campaign(site));
            }
            if state.crash_count < self.crashes_max {
                actions.extend((0..=waiting).map(|kept| Action::Restart(site, kept)));
            }
            if here.node.as_ref().is_some_and(Node::can_propose) {
                self.add_propose_actions(state, site, actions);
            }
            self.add_stream_actions(state, site, actions);
            if !here.queued_fetches.is_empty() {
                actions.push(Action::Event(Event::Fetch { site, succeeds: true }));
            }
        }
        let deliver = |at| Action::Event(Event::Deliver { message_index: at, bytes: true });
        actions.extend((0..world.soup.len()).map(deliver));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        if let Err(violation) = self.apply_action(&mut next, action) {
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
                0 => state.world.observer.known_decided_to().0 > 1,
                all => state.world.situations().confirmed_appends >= all,
            }),
        ]
    }
}

/// Returns the bounds that `cargo test` explores, which takes seconds.
pub fn small_bounds() -> Vec<Bounds> {
    let base = Bounds {
        name: "",
        node_count: 2,
        member_count: 2,
        class: Class::Durable,
        campaigns_max: 2,
        crashes_max: 0,
        values_max: 1,
        allows_change: false,
        bytes: 0,
        depth_max: 64,
        states_max: 200_000,
        thread_count: 2,
    };
    vec![
        Bounds { name: "two nodes, two leaders, one crash", crashes_max: 1, ..base.clone() },
        Bounds {
            name: "two nodes, volatile, one crash",
            class: Class::Volatile,
            crashes_max: 1,
            ..base.clone()
        },
        Bounds {
            name: "three nodes, two leaders, two values",
            node_count: 3,
            member_count: 3,
            values_max: 2,
            ..base.clone()
        },
        Bounds {
            name: "three nodes, two leaders, one crash, one change",
            node_count: 3,
            member_count: 3,
            crashes_max: 1,
            allows_change: true,
            // The reconfiguration is the only proposal. Both phases must be durable before they are
            // reported, so a decision takes many actions, and another value would put it out of
            // reach.
            values_max: 0,
            states_max: 600_000,
            ..base.clone()
        },
        Bounds {
            name: "three nodes, volatile, two leaders, one crash, one change",
            node_count: 3,
            member_count: 3,
            class: Class::Volatile,
            crashes_max: 1,
            allows_change: true,
            ..base.clone()
        },
        Bounds {
            name: "a second node joins",
            member_count: 1,
            allows_change: true,
            ..base.clone()
        },
        Bounds {
            name: "two nodes, a stream of two bytes, another leader",
            campaigns_max: 1,
            values_max: 0,
            bytes: 2,
            ..base.clone()
        },
        Bounds {
            name: "two nodes, a stream of two bytes, another leader, one crash",
            campaigns_max: 1,
            crashes_max: 1,
            values_max: 0,
            bytes: 2,
            states_max: 400_000,
            ..base
        },
    ]
}

/// Returns the small bounds, cut off only by the number of actions, for comparing the number of
/// states.
pub fn small_bounds_to_depth(depth: usize) -> Vec<Bounds> {
    let cut =
        |bounds| Bounds { depth_max: depth, states_max: usize::MAX, thread_count: 1, ..bounds };
    small_bounds().into_iter().map(cut).collect()
}

/// Returns the small bounds and larger ones, whose exploration takes minutes and gigabytes.
pub fn deep_bounds() -> Vec<Bounds> {
    let deeper = |bounds: Bounds| Bounds {
        states_max: 2_000_000,
        campaigns_max: bounds.campaigns_max + 1,
        values_max: 2,
        ..bounds
    };
    let mut list: Vec<Bounds> = small_bounds()
        .into_iter()
        .map(|bounds| Bounds { states_max: 2_000_000, ..bounds })
        .collect();
    list.extend(small_bounds().into_iter().map(deeper));
    list
}
