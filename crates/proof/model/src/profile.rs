//! Profiles of random runs: number of nodes, initial state, and rates of events.

use quorate_core::{
    configuration::{Configuration, Voter},
    laying::Route,
    lease::LeaseRules,
    node_id::Member,
    quorum::QuorumRule,
    record::Class,
};

use crate::{
    dice::Dice,
    setup::{LostMessages, WorldSetup},
    world::EXACT_CLOCK_PPM,
};

/// A kind of random run. Within a profile, each seed draws its own rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// A mixture of all events, mostly in durable groups.
    Mixed,
    /// Few slots, with many leaders and many crashes.
    Duel,
    /// Early and frequent reconfigurations.
    Eras,
    /// Like `Eras`, but with few leaders, and with weights that allow a casting vote.
    Casting,
    /// Votes in memory only, so that a crash results in a new member.
    Volatile,
    /// Reads and catch-up under changing leaders.
    Reads,
    /// Bytes that arrive late or never.
    Bytes,
    /// One damaged log, with reconfigurations.
    Damage,
    /// Trimmed logs, installed snapshots, and members that join and leave permanently.
    Lifecycle,
    /// Reads under leases, with clocks that differ by the permitted maximum.
    Leases,
    /// Like `Lifecycle`, with auxiliaries that are activated and bypassed. Some groups have
    /// flexible quorums, and some leaders are thrifty.
    Auxiliary,
    /// Events of years in the life of a cluster: reconfigurations, scaled weights, trims,
    /// snapshots, machines that return as new nodes, transfers back and forth, and an auxiliary.
    Years,
    /// Byte streams: owners crash and return, bytes arrive late, partially, out of order or never,
    /// and leaders change in the middle of a run.
    Streams,
    /// Votes that travel along any ring. The ring may be rebuilt at any moment, through members,
    /// learners or unknown nodes, or replaced by a star.
    Ring,
    /// Devices that vote, assign slots and count votes. Steps are in flight when devices are fenced
    /// or withdrawn; devices lose power, owners crash, and old frames arrive.
    Devices,
    /// Clients of a volatile group that request notifications when decided values are on disks.
    Lasting,
    /// A disk that loses the end of a log that its node has reported to others.
    Liars,
    /// Clients of a durable group that request notifications when proposed values are in memory at
    /// a quorum.
    Early,
    /// The spine alone: Multi-Paxos with reconfiguration, trims and snapshots. No wing may be used.
    Spine,
}

/// Relative rates of events.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Rate at which a message arrives.
    pub deliver: u64,
    /// Percentage of deliveries that pick one of the most recent messages.
    pub recent_percent: u64,
    pub persist: u64,
    /// Percentage of disk events in which all records reach the disk at once.
    pub persist_all_percent: u64,
    /// Rate at which a node tries to become leader.
    pub campaign: u64,
    /// Rate at which some nodes temporarily communicate only with each other.
    pub isolation: u64,
    /// Rate at which time passes for one node.
    pub tick: u64,
    pub propose: u64,
    /// Rate at which a reconfiguration is submitted to a leader.
    pub change: u64,
    pub crash: u64,
    pub stop: u64,
    /// Rate at which a node that is down starts.
    pub start: u64,
    /// Rate at which a read is requested.
    pub read: u64,
    /// Rate at which a leader receives a read request followed by replies to old heartbeats.
    pub late_confirmation: u64,
    /// Rate at which a fetch of bytes succeeds or fails.
    pub fetch: u64,
    /// Rate at which decided values are sent in response to a request.
    pub serve: u64,
    /// Rate at which a connection is set up or lost.
    pub connect: u64,
    pub transfer: u64,
    /// Rate at which a disk fails.
    pub fail: u64,
    /// Rate at which records become unreadable in the only log that may be damaged.
    pub rot: u64,
    /// Rate at which the only lying disk loses the end of its log.
    pub lie: u64,
    pub trim: u64,
    /// Rate at which a node installs the snapshot of another, whether or not it needs one.
    pub install_snapshot: u64,
    /// Rate at which the machine of a removed node returns as a new node.
    pub wipe: u64,
    /// Rate at which a leader obtains leases, another leader may be elected, and the first one
    /// reads.
    pub lease: u64,
    /// Rate at which an auxiliary's log is trimmed to the slot that it requested.
    pub forget: u64,
    /// Rate at which a full replica goes down for some time while a leader continues without it.
    pub absence: u64,
    pub stream_event: u64,
    /// Rate at which the route of a leader's votes changes.
    pub route: u64,
    /// Rate of events that concern one device.
    pub device_event: u64,
    /// Rate at which the devices of some nodes carry out all orders and receive all frames, for a
    /// while.
    pub device_isolation: u64,
    /// Rate at which a client waits until everything that its node has decided is on disks.
    pub await_durable: u64,
    /// Rate at which a client waits until everything that its node has voted for is in memory at a
    /// quorum.
    pub await_in_memory: u64,
    /// Percentage of messages that lose their bytes.
    pub lose_bytes_percent: u64,
}

/// Everything that a seed determines before the first event.
#[derive(Clone, Debug)]
pub struct Plan {
    pub setup: WorldSetup,
    pub rates: Rates,
    /// Number of events in the first act.
    pub first_act_events: usize,
    /// Maximum number of values that are submitted.
    pub values_max: u64,
    /// Maximum number of reconfigurations that are submitted.
    pub changes_max: u64,
    /// Percentage of values that cover more than one slot.
    pub multi_slot_percent: u64,
    /// Probability, in percent, that a node belongs to a group that communicates only within
    /// itself.
    pub isolated_percent: u64,
}

impl Profile {
    pub const ALL: [Self; 19] = [
        Self::Mixed,
        Self::Duel,
        Self::Eras,
        Self::Casting,
        Self::Volatile,
        Self::Reads,
        Self::Bytes,
        Self::Damage,
        Self::Lifecycle,
        Self::Leases,
        Self::Auxiliary,
        Self::Years,
        Self::Streams,
        Self::Ring,
        Self::Devices,
        Self::Lasting,
        Self::Liars,
        Self::Early,
        Self::Spine,
    ];

    /// Returns the name used on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Duel => "duel",
            Self::Eras => "eras",
            Self::Casting => "casting",
            Self::Volatile => "volatile",
            Self::Reads => "reads",
            Self::Bytes => "bytes",
            Self::Damage => "damage",
            Self::Lifecycle => "lifecycle",
            Self::Leases => "leases",
            Self::Auxiliary => "auxiliary",
            Self::Years => "years",
            Self::Streams => "streams",
            Self::Ring => "ring",
            Self::Devices => "devices",
            Self::Lasting => "lasting",
            Self::Liars => "liars",
            Self::Early => "early",
            Self::Spine => "spine",
        }
    }

    /// Returns the profile named `name`; `None` if there is no such profile.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Returns the plan that this seed determines.
    pub fn plan(self, seed: u64) -> Plan {
        let mut dice = Dice::new(seed, self as u64 + 1);
        let mut rates = self.rates();
        vary_rates(&mut rates, &mut dice);
        let class = match self {
            Self::Volatile | Self::Lasting => Class::Volatile,
            Self::Lifecycle
            | Self::Auxiliary
            | Self::Years
            | Self::Streams
            | Self::Liars
            | Self::Early => Class::Durable,
            Self::Ring if dice.chance_percent(40) => Class::Volatile,
            Self::Devices if dice.chance_percent(65) => Class::Volatile,
            _ if dice.chance_percent(12) => Class::Volatile,
            _ => Class::Durable,
        };
        let nodes = match self {
            Self::Duel => 2 + dice.below(2),
            Self::Casting | Self::Reads | Self::Damage | Self::Liars => 3 + dice.below(2),
            Self::Lifecycle | Self::Years => 5,
            Self::Leases | Self::Streams => 3 + dice.below(2),
            Self::Auxiliary | Self::Ring => 3 + dice.below(3),
            Self::Devices => 3 + dice.below(2),
            _ => 2 + dice.below(3),
        };
        let (values, changes) = match self {
            Self::Duel => (2 + dice.next() % 3, 0),
            Self::Eras | Self::Casting | Self::Damage | Self::Spine => {
                (2 + dice.next() % 4, 2 + dice.next() % 5)
            }
            Self::Lifecycle => (2 + dice.next() % 3, 2 + dice.next() % 6),
            Self::Years => (3 + dice.next() % 5, 3 + dice.next() % 8),
            Self::Auxiliary => (3 + dice.next() % 5, dice.next() % 4),
            Self::Early => (4 + dice.next() % 6, dice.next() % 4),
            Self::Ring => (4 + dice.next() % 8, dice.next() % 3),
            Self::Devices => (6 + dice.next() % 10, dice.next() % 3),
            _ => (2 + dice.next() % 5, dice.next() % 3),
        };
        let events = match self {
            Self::Duel => 40 + dice.below(160),
            Self::Lifecycle => 100 + dice.below(400),
            Self::Years => 100 + dice.below(500),
            Self::Auxiliary => 60 + dice.below(250),
            Self::Streams | Self::Devices => 100 + dice.below(400),
            _ => 60 + dice.below(340),
        };
        let setup = WorldSetup {
            node_count: nodes,
            founding_configuration: self.founding_configuration(nodes, class, &mut dice),
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 200,
            inflight_max: dice.pick_from(&[2, 3, 4, 8]),
            window_slots: dice.pick_from(&[4, 8, 64]),
            seed: dice.next(),
            sorts_soup: false,
            lost_messages: LostMessages {
                // A leader learns from heartbeats what other nodes hold ([era-12]).
                heartbeats: !matches!(
                    self,
                    Self::Reads
                        | Self::Lifecycle
                        | Self::Leases
                        | Self::Auxiliary
                        | Self::Years
                        | Self::Streams
                        | Self::Ring
                        | Self::Devices
                ) && dice.chance_percent(50),
                preempted: dice.chance_percent(50),
                decided: dice.chance_percent(25),
                catchup: false,
            },
            lease_rules: None,
            clock_rates_ppm: Vec::new(),
            checks_holders: matches!(
                self,
                Self::Lifecycle | Self::Auxiliary | Self::Years | Self::Streams
            ),
            notifies_in_memory: self == Self::Early,
            is_thrifty: matches!(self, Self::Auxiliary | Self::Years) && dice.chance_percent(25),
            delays_apply: self == Self::Streams && dice.chance_percent(40),
            learns_without_bytes: self == Self::Streams && dice.chance_percent(60),
            detects_rollback: self == Self::Liars,
            device_cells: if self == Self::Devices { dice.pick_from(&[2, 4, 8]) } else { 0 },
            spine_only: self == Self::Spine,
            route: if self == Self::Ring && dice.chance_percent(70) {
                Route::Ring
            } else {
                Route::Star
            },
        };
        let setup = if self == Self::Leases { with_leases(setup, &mut dice) } else { setup };
        Plan {
            setup,
            rates,
            first_act_events: events,
            values_max: values,
            changes_max: changes,
            multi_slot_percent: match self {
                // All content comes from the clients of streams.
                Self::Streams | Self::Spine => 0,
                _ => dice.pick_from(&[0, 10, 40]),
            },
            isolated_percent: match self {
                Self::Lifecycle | Self::Auxiliary | Self::Years | Self::Streams => 60,
                _ => 45,
            },
        }
    }

    /// Returns a configuration in which full replicas form a phase-2 quorum, with additional
    /// auxiliaries.
    fn with_auxiliaries(nodes: usize, class: Class, dice: &mut Dice) -> Configuration {
        let members = if nodes == 5 && dice.chance_percent(50) { 5 } else { 3 };
        let (rule, full) = match members {
            3 if dice.chance_percent(25) => {
                (QuorumRule::Flexible { phase1: 3, phase2: 1 }, 1 + dice.below(2))
            }
            5 if dice.chance_percent(40) => {
                (QuorumRule::Flexible { phase1: 4, phase2: 2 }, 2 + dice.below(2))
            }
            _ => (QuorumRule::Majority, members / 2 + 1),
        };
        let voter = |node: usize| Voter {
            member: Member::first(u32::try_from(node).expect("few") + 1),
            weight: 1,
            auxiliary: node >= full,
        };
        let voters = (0..members).map(voter).collect();
        Configuration::new(voters, rule, class).expect("quorums meet, of full replicas too")
    }

    fn founding_configuration(self, nodes: usize, class: Class, dice: &mut Dice) -> Configuration {
        if matches!(self, Self::Auxiliary | Self::Years) {
            return Self::with_auxiliaries(nodes, class, dice);
        }
        let members = match self {
            Self::Duel => nodes,
            Self::Casting | Self::Damage | Self::Lifecycle | Self::Streams | Self::Liars => {
                nodes.min(3)
            }
            Self::Leases => 2 + dice.below(2),
            Self::Ring => 3 + dice.below(nodes - 2),
            Self::Devices => 3,
            _ => 1 + dice.below(nodes),
        };
        let heavy = match self {
            Self::Duel | Self::Devices => 0,
            Self::Casting => 80,
            _ => 30,
        };
        let first = 1 + u32::from(self == Self::Lifecycle && dice.chance_percent(50));
        let voter = |node: usize| Voter {
            member: Member::first(u32::try_from(node).expect("few") + 1),
            weight: if self == Self::Lifecycle {
                if node == 0 { first } else { 1 }
            } else if dice.chance_percent(heavy) {
                1 + u32::try_from(dice.below(3)).expect("few")
            } else {
                1
            },
            auxiliary: false,
        };
        let voters: Vec<Voter> = (0..members).map(voter).collect();
        let weight = voters.iter().map(|voter| voter.weight).sum();
        let rule = match self {
            // [read-4] Members that meet every phase-1 quorum need not meet every phase-2 quorum.
            Self::Leases if dice.chance_percent(30) => {
                QuorumRule::Flexible { phase1: weight, phase2: 1 }
            }
            _ => QuorumRule::Majority,
        };
        Configuration::new(voters, rule, class).expect("weights are 1 to 3")
    }

    const fn rates(self) -> Rates {
        let base = Rates {
            deliver: 600,
            recent_percent: 65,
            persist: 150,
            persist_all_percent: 60,
            campaign: 30,
            isolation: 60,
            tick: 20,
            propose: 60,
            change: 10,
            crash: 10,
            stop: 2,
            start: 40,
            read: 5,
            late_confirmation: 2,
            fetch: 60,
            serve: 40,
            connect: 8,
            transfer: 3,
            fail: 1,
            rot: 0,
            lie: 0,
            trim: 0,
            install_snapshot: 0,
            wipe: 0,
            lease: 0,
            forget: 0,
            absence: 0,
            stream_event: 0,
            route: 0,
            device_event: 0,
            device_isolation: 0,
            await_durable: 0,
            await_in_memory: 0,
            lose_bytes_percent: 10,
        };
        match self {
            Self::Mixed => base,
            Self::Duel => Rates { campaign: 60, crash: 25, change: 0, ..base },
            Self::Eras => Rates { change: 60, ..base },
            Self::Casting => Rates { change: 60, campaign: 15, crash: 5, ..base },
            Self::Volatile => Rates { crash: 20, stop: 6, change: 40, ..base },
            Self::Reads => {
                Rates { read: 60, late_confirmation: 30, campaign: 40, tick: 80, ..base }
            }
            Self::Lifecycle => Rates {
                change: 50,
                trim: 30,
                install_snapshot: 15,
                wipe: 8,
                isolation: 90,
                tick: 40,
                rot: 2,
                crash: 15,
                ..base
            },
            Self::Auxiliary => Rates {
                change: 15,
                trim: 20,
                install_snapshot: 10,
                isolation: 90,
                tick: 40,
                crash: 12,
                forget: 40,
                absence: 30,
                ..base
            },
            Self::Years => Rates {
                change: 60,
                campaign: 40,
                transfer: 12,
                trim: 30,
                install_snapshot: 15,
                wipe: 8,
                isolation: 90,
                tick: 40,
                crash: 15,
                forget: 40,
                absence: 30,
                ..base
            },
            Self::Damage => Rates { rot: 15, crash: 20, change: 30, ..base },
            Self::Liars => {
                Rates { lie: 30, crash: 20, campaign: 45, trim: 6, install_snapshot: 4, ..base }
            }
            Self::Leases => {
                Rates { lease: 120, change: 20, crash: 15, start: 80, transfer: 10, ..base }
            }
            Self::Streams => Rates {
                stream_event: 300,
                propose: 15,
                change: 15,
                crash: 15,
                isolation: 90,
                ..base
            },
            Self::Ring => Rates {
                route: 60,
                isolation: 120,
                tick: 60,
                campaign: 20,
                crash: 15,
                change: 15,
                ..base
            },
            Self::Devices => Rates {
                device_event: 400,
                device_isolation: 120,
                isolation: 120,
                tick: 60,
                campaign: 25,
                crash: 12,
                stop: 4,
                change: 10,
                read: 20,
                ..base
            },
            Self::Lasting => Rates {
                await_durable: 60,
                isolation: 90,
                campaign: 40,
                crash: 15,
                change: 20,
                trim: 10,
                install_snapshot: 8,
                ..base
            },
            Self::Early => Rates {
                await_in_memory: 120,
                persist: 60,
                isolation: 40,
                campaign: 40,
                crash: 15,
                change: 20,
                fail: 2,
                ..base
            },
            Self::Bytes => Rates { lose_bytes_percent: 60, fetch: 40, crash: 15, ..base },
            // Reads, transfers and failing logs, which hand over, belong to wings.
            Self::Spine => Rates {
                change: 40,
                campaign: 40,
                crash: 15,
                trim: 10,
                install_snapshot: 8,
                read: 0,
                late_confirmation: 0,
                transfer: 0,
                fail: 0,
                ..base
            },
        }
    }
}

/// Returns the setup with leases, most of which outlast the election timeout, so that only they
/// keep other nodes from leading. Clocks run at the limits of the permitted drift.
fn with_leases(setup: WorldSetup, dice: &mut Dice) -> WorldSetup {
    const DRIFT_PPM: u64 = 100_000;
    let rate = |_| {
        dice.pick_from(&[EXACT_CLOCK_PPM - DRIFT_PPM, EXACT_CLOCK_PPM, EXACT_CLOCK_PPM + DRIFT_PPM])
    };
    let rates_ppm = (0..setup.node_count).map(rate).collect();
    WorldSetup {
        clock_rates_ppm: rates_ppm,
        lease_rules: Some(LeaseRules {
            duration_us: dice.pick_from(&[60_000, 150_000, 150_000]),
            drift_ppm: DRIFT_PPM,
            promises: dice.chance_percent(75),
        }),
        election_max_ms: setup.election_min_ms,
        ..setup
    }
}

/// Varies the rates per seed (swarm testing).
fn vary_rates(rates: &mut Rates, dice: &mut Dice) {
    let mut turn = |rate: &mut u64, may_vanish: bool| match dice.below(8) {
        0 if may_vanish => *rate = 0,
        1 => *rate = (*rate).div_ceil(4),
        2 => *rate *= 3,
        _ => {}
    };
    turn(&mut rates.persist, false);
    turn(&mut rates.campaign, false);
    turn(&mut rates.isolation, true);
    turn(&mut rates.tick, true);
    turn(&mut rates.propose, false);
    turn(&mut rates.change, true);
    turn(&mut rates.crash, true);
    turn(&mut rates.stop, true);
    turn(&mut rates.start, false);
    turn(&mut rates.read, true);
    turn(&mut rates.late_confirmation, true);
    turn(&mut rates.fetch, true);
    turn(&mut rates.serve, true);
    turn(&mut rates.connect, true);
    turn(&mut rates.transfer, true);
    turn(&mut rates.fail, true);
    if rates.trim > 0 {
        turn(&mut rates.trim, false);
        turn(&mut rates.install_snapshot, true);
        turn(&mut rates.wipe, true);
        turn(&mut rates.rot, true);
    }
    if rates.lease > 0 {
        turn(&mut rates.lease, false);
    }
    if rates.stream_event > 0 {
        turn(&mut rates.stream_event, false);
    }
    if rates.route > 0 {
        turn(&mut rates.route, false);
    }
    if rates.device_event > 0 {
        turn(&mut rates.device_event, false);
        turn(&mut rates.device_isolation, false);
    }
    if rates.await_durable > 0 {
        turn(&mut rates.await_durable, false);
        rates.rot = 0;
        rates.wipe = 0;
    }
    if rates.await_in_memory > 0 {
        turn(&mut rates.await_in_memory, false);
    }
    if rates.absence > 0 {
        turn(&mut rates.forget, false);
        turn(&mut rates.absence, false);
    }
    if rates.lie > 0 {
        turn(&mut rates.lie, false);
        rates.rot = 0;
        rates.wipe = 0;
    }
    rates.recent_percent = dice.pick_from(&[30, 65, 85, 95]);
    rates.persist_all_percent = dice.pick_from(&[30, 60, 95]);
}
