//! Blocked disks: one node's disk accepts no writes. The group continues without it: a leader hands
//! over, a follower delays no other node, and a node that cannot write is not elected.

use quorate_core::{effect::Role, laying::Route, record::Class};
use quorate_replica::{group::asking::GroupRequest as GroupAsk, testing::DeliveredEvent};
use quorate_sim::{
    check::Violation,
    faults::RunSettings,
    front::StreamRequest,
    node::{StoreDisk, id},
    resp::Reply,
    workload::streams::StreamLoad,
    world::World,
};
use quorate_stream::{Name, OpenMode, StreamOutcome};

type Outcome = Result<(), Violation>;

/// Longest permitted time in µs without a successful write, which includes detection and either the
/// hand-over or an election.
const LONGEST_US: u64 = 1_000_000;

/// Fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Full,
    NoDescriptors,
    ReadOnly,
    WriteFails,
    WriteHangs,
    StoreFull,
    StoreGone,
}

impl Trouble {
    const ALL: [Self; 7] = [
        Self::Full,
        Self::NoDescriptors,
        Self::ReadOnly,
        Self::WriteFails,
        Self::WriteHangs,
        Self::StoreFull,
        Self::StoreGone,
    ];

    fn begin(self, world: &mut World, node: usize) {
        let process = &mut world.nodes[node];
        match self {
            Self::Full => process.disk.set_capacity(Some(0)),
            Self::NoDescriptors => process.disk.set_out_of_descriptors(true),
            Self::ReadOnly => process.disk.set_read_only(true),
            Self::WriteFails => process.next_write_fails = true,
            // Five seconds per write.
            Self::WriteHangs => process.disk_slowdown = 100_000,
            Self::StoreFull => {
                process.store_disk.set(StoreDisk { is_full: true, ..StoreDisk::default() })
            }
            Self::StoreGone => {
                process.store_disk.set(StoreDisk { is_missing: true, ..StoreDisk::default() })
            }
        }
    }

    /// Returns the text with which the node reports the fault.
    const fn word(self) -> &'static str {
        match self {
            Self::Full => "no room for the log: ",
            Self::NoDescriptors => "no descriptor for the log: ",
            Self::ReadOnly | Self::WriteFails => "the log failed: ",
            Self::WriteHangs => "a write to the log does not end",
            Self::StoreFull => "its disk is full",
            Self::StoreGone => "its disk is gone",
        }
    }

    /// Returns whether the fault can end without a restart.
    const fn ends(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::WriteFails)
    }

    fn end(self, world: &mut World, node: usize) {
        let process = &mut world.nodes[node];
        process.disk.set_capacity(None);
        process.disk.set_out_of_descriptors(false);
        process.disk.set_read_only(false);
        process.disk_slowdown = 1;
        process.store_disk.set(StoreDisk::default());
        if !self.ends() {
            world.kill_now(node);
            world.start_now(node);
        }
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn role(world: &World, node: usize) -> Option<Role> {
    let running = world.nodes[node].running.as_ref()?;
    Some(running.replica().node().role())
}

fn error(world: &World, node: usize) -> String {
    let running = world.nodes[node].running.as_ref();
    running.and_then(|running| running.replica().error()).unwrap_or_default()
}

fn settings(seed: u64, class: Class) -> RunSettings {
    let mut settings = RunSettings::without_faults(seed, 3, class);
    settings.segment_bytes = 32 << 10;
    // The write queue soon exceeds its limit.
    settings.has_tiny_queues = true;
    settings.client_timeout_ms = 300;
    settings
}

/// Writes through a node for `us` microseconds. Returns the longest time without a successful
/// write, and the number of writes.
fn write_for(world: &mut World, node: usize, us: u64) -> Result<(u64, u32), Violation> {
    let (begun, mut last, mut longest, mut done) = (world.now, world.now, 0, 0);
    let words = format!("SET key {}", "x".repeat(150));
    while world.now.since_us(begun) < us {
        if world.run_command(node, &words)? == ok() {
            longest = longest.max(world.now.since_us(last));
            (last, done) = (world.now, done + 1);
        }
        world.run_for(2_000)?;
    }
    Ok((longest.max(world.now.since_us(last)), done))
}

/// If the leader's disk accepts no writes for much longer than an election takes, another node
/// takes over, because the other nodes form a quorum.
#[test]
fn a_leader_that_cannot_write_does_not_keep_the_group() -> Outcome {
    for class in [Class::Durable, Class::Volatile] {
        for (seed, trouble) in (0..).zip(Trouble::ALL) {
            let mut world = World::with_leader(settings(seed, class))?;
            let leader = world.wait_for_leader()?;
            let writer = (leader + 1) % 3;
            let what = format!("{trouble:?}, {class:?}");
            write_for(&mut world, writer, 50_000)?;
            trouble.begin(&mut world, leader);
            let (longest, _) = write_for(&mut world, writer, 3_000_000)?;
            assert!(longest <= LONGEST_US, "{what}: {longest} us without a write");
            assert_ne!(role(&world, leader), Some(Role::Leader), "{what}");
            let why = error(&world, leader);
            assert!(why.contains(trouble.word()), "{what}: it says why: {why}");
            if class == Class::Volatile && !trouble.ends() {
                // The node has forgotten its votes and returns as another member.
                continue;
            }
            trouble.end(&mut world, leader);
            world.run_for(2_000_000)?;
            world.run_until_settled()?;
            assert_eq!(error(&world, leader), "", "{what}");
            assert_eq!(world.run_command(leader, "SET after 1")?, ok(), "{what}");
        }
    }
    Ok(())
}

/// A follower that cannot write delays no other node, even where votes pass through it.
#[test]
fn a_follower_that_cannot_write_is_not_waited_for() -> Outcome {
    for votes in [Route::Star, Route::Ring] {
        for (seed, trouble) in (100..).zip(Trouble::ALL) {
            let mut settings = settings(seed, Class::Durable);
            settings.vote_route = votes.clone();
            let mut world = World::with_leader(settings)?;
            let leader = world.wait_for_leader()?;
            for follower in [(leader + 1) % 3, (leader + 2) % 3] {
                let what = format!("{trouble:?} at {follower} of {leader}, {votes:?}");
                write_for(&mut world, leader, 50_000)?;
                trouble.begin(&mut world, follower);
                let (longest, _) = write_for(&mut world, leader, 1_500_000)?;
                assert!(longest <= LONGEST_US, "{what}: {longest} us without a write");
                assert_eq!(role(&world, leader), Some(Role::Leader), "{what}: it stays");
                trouble.end(&mut world, follower);
                world.run_for(2_000_000)?;
                world.run_until_settled()?;
            }
        }
    }
    Ok(())
}

/// If two disks fail, including the leader's, a node that can write becomes leader. If that leader
/// dies, the next leader can also write.
#[test]
fn leadership_goes_to_who_can_write() -> Outcome {
    for (seed, trouble) in (200..).zip([Trouble::Full, Trouble::NoDescriptors, Trouble::WriteHangs])
    {
        let mut settings = settings(seed, Class::Durable);
        settings.founding_member_count = 7;
        let mut world = World::with_leader(settings)?;
        let first = world.wait_for_leader()?;
        let broken = [first, (first + 1) % 7];
        let writer = (first + 2) % 7;
        for node in broken {
            trouble.begin(&mut world, node);
        }
        let (longest, _) = write_for(&mut world, writer, 4_000_000)?;
        assert!(longest <= LONGEST_US, "{trouble:?}: {longest} us without a write");
        let second = world.wait_for_leader()?;
        assert!(!broken.contains(&second), "{trouble:?}: node {second} leads");
        world.kill_now(second);
        let writer = if writer == second { (first + 3) % 7 } else { writer };
        let (longest, _) = write_for(&mut world, writer, 4_000_000)?;
        assert!(longest <= LONGEST_US, "{trouble:?}: {longest} us without a write");
        let third = world.wait_for_leader()?;
        assert!(!broken.contains(&third), "{trouble:?}: node {third} leads");
    }
    Ok(())
}

/// If all disks stall at once for longer than a write may take, as the disks of a single machine
/// do, no election follows, because no other leader would be better.
#[test]
fn disks_that_all_stand_still_cause_no_election() -> Outcome {
    for class in [Class::Durable, Class::Volatile] {
        let mut world = World::with_leader(settings(300, class))?;
        let leader = world.wait_for_leader()?;
        write_for(&mut world, leader, 50_000)?;
        let before = world.counts.elections;
        for _ in 0..3 {
            for node in &mut world.nodes {
                // Eight tenths of a second per write.
                node.disk_slowdown = 16_000;
            }
            write_for(&mut world, leader, 1_000_000)?;
            for node in &mut world.nodes {
                node.disk_slowdown = 1;
            }
            write_for(&mut world, leader, 1_500_000)?;
        }
        assert_eq!(world.counts.elections, before, "{class:?}");
        assert_eq!(world.wait_for_leader()?, leader, "{class:?}");
        world.run_until_settled()?;
    }
    Ok(())
}

/// A writer of a byte stream continues when the leader cannot write.
#[test]
fn a_stream_goes_on_when_the_leader_cannot_write() -> Outcome {
    for (seed, trouble) in (400..).zip([Trouble::Full, Trouble::NoDescriptors, Trouble::WriteHangs])
    {
        let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
        settings.stream_load = Some(StreamLoad::scripted_only());
        settings.window_slots = 32 << 20;
        settings.segment_bytes = 128 << 10;
        let mut world = World::with_leader(settings)?;
        let leader = world.wait_for_leader()?;
        let owner = (leader + 1) % 3;
        let client = world.add_scripted_stream_client(owner);
        world.connect_stream_client(client, owner);
        let name: Name = "s".parse().expect("a name");
        let writer = world.stream_clients[client].current_writer();
        let opened = world
            .run_stream_request(client, StreamRequest::Open(name, OpenMode::Create, writer))?;
        assert!(
            matches!(opened, Some(DeliveredEvent::Executed(_, StreamOutcome::Opened { .. }))),
            "{opened:?}"
        );
        trouble.begin(&mut world, leader);
        let (begun, mut last, mut longest) = (world.now, world.now, 0);
        while world.now.since_us(begun) < 4_000_000 {
            world.write_stream(client, 20_000);
            let given = world.stream_clients[client].piece.expect("open").written_to;
            world.run_until("what was given is durable", |world| {
                let piece = world.stream_clients[client].piece;
                piece.is_some_and(|piece| piece.acknowledged_to == given)
            })?;
            longest = longest.max(world.now.since_us(last));
            last = world.now;
            world.run_for(20_000)?;
        }
        assert!(longest <= LONGEST_US, "{trouble:?}: {longest} us without a byte");
        assert_ne!(role(&world, leader), Some(Role::Leader), "{trouble:?}");
        trouble.end(&mut world, leader);
        world.run_for(2_000_000)?;
        world.run_until_settled()?;
    }
    Ok(())
}

/// Operators give priority to node 1, whose disk hangs. The node votes in memory as fast as any
/// other node and is caught up, but it is not repeatedly made leader.
#[test]
fn priority_brings_leadership_to_nobody_who_cannot_write() -> Outcome {
    let mut world = World::with_leader(settings(500, Class::Volatile))?;
    let leader = world.wait_for_leader()?;
    let asked = world.ask_group(leader, GroupAsk::Priority(id(0), 1))?;
    assert!(asked.is_ok());
    world.run_until("it leads", |world| world.majority_leader() == Some(0))?;
    Trouble::WriteHangs.begin(&mut world, 0);
    // The number of writes is so low that the queue never exceeds its limit.
    for _ in 0..4 {
        write_for(&mut world, 1, 1)?;
        world.run_for(500_000)?;
    }
    let next = world.wait_for_leader()?;
    assert_ne!(next, 0);
    let before = world.counts.elections;
    for _ in 0..60 {
        write_for(&mut world, 1, 1)?;
        world.run_for(500_000)?;
    }
    assert_eq!(world.counts.elections, before);
    assert_eq!(world.wait_for_leader()?, next);
    Trouble::WriteHangs.end(&mut world, 0);
    world.run_until("it leads again", |world| world.majority_leader() == Some(0))?;
    world.run_until_settled()
}
