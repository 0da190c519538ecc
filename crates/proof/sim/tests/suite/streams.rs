//! Byte streams under realistic failures: each scenario is played out step by step, with G numbers
//! for failures of earlier systems. The stream checker is active throughout ([stream-4] to
//! [stream-10]).

use quorate_core::record::Class;
use quorate_replica::{
    counters::Counters,
    group::{
        MemberRole,
        asking::{GroupAnswer, GroupRequest as GroupAsk},
    },
    testing::DeliveredEvent,
};
use quorate_sim::{
    check::Violation,
    faults::{Fault, RunSettings},
    front::StreamRequest,
    node::id,
    resp::Reply,
    workload::streams::StreamLoad,
    world::World,
};
use quorate_stream::{Denied, Name, OpenMode, StreamOutcome, Writer, table::LocateError};

type Outcome = Result<(), Violation>;

/// Returns settings with small logs. They are trimmed early, and are not retained for nodes that
/// lag further behind.
fn settings(seed: u64, spares: usize) -> RunSettings {
    let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
    settings.stream_load = Some(StreamLoad::scripted_only());
    settings.spare_node_count = spares;
    settings.window_slots = 32 << 20;
    settings.segment_bytes = 128 << 10;
    settings.snapshot_options.ratio = 0;
    settings.snapshot_options.log_bytes_min = 128 << 10;
    settings.snapshot_options.log_bytes_max = 256 << 10;
    settings.snapshot_options = settings.snapshot_options.in_files_of(4 << 10, 2);
    settings
}

fn world(seed: u64) -> Result<(World, usize), Violation> {
    let mut world = World::with_leader(settings(seed, 0))?;
    let leader = world.wait_for_leader()?;
    Ok((world, leader))
}

fn name() -> Name {
    "s".parse().expect("a name")
}

fn counters(world: &World, node: usize) -> Counters {
    let running = world.nodes[node].running.as_ref();
    running.map(|running| running.replica().counters()).unwrap_or_default()
}

/// Returns the stream's end according to a node.
fn end(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref();
    let info = running.and_then(|running| running.replica().stream_table().info(&name()));
    info.map_or(0, |info| info.end)
}

/// Opens the stream for a client through this node and returns the exact position.
fn open(world: &mut World, client: usize, node: usize, how: OpenMode) -> Result<u64, Violation> {
    let writer = world.stream_clients[client].current_writer();
    for _ in 0..100 {
        world.connect_stream_client(client, node);
        match world.run_stream_request(client, StreamRequest::Open(name(), how, writer))? {
            Some(DeliveredEvent::Executed(_, StreamOutcome::Opened { start_position: at, .. })) => {
                return Ok(at);
            }
            Some(DeliveredEvent::Failed(..)) | None => world.run_for(50_000)?,
            other => panic!("{other:?}"),
        }
    }
    panic!("the stream cannot be opened");
}

/// Returns why an attempt to open the stream is refused.
fn refused(world: &mut World, client: usize, node: usize, how: OpenMode, writer: Writer) -> Denied {
    world.connect_stream_client(client, node);
    match world.run_stream_request(client, StreamRequest::Open(name(), how, writer)) {
        Ok(Some(DeliveredEvent::Refused(_, denied))) => denied,
        other => panic!("{other:?}"),
    }
}

/// Returns the position acknowledged to a client; `None` if the client has no piece.
fn durable(world: &World, client: usize) -> Option<u64> {
    world.stream_clients[client].piece.map(|piece| piece.acknowledged_to)
}

/// Writes bytes of a client and waits until they are acknowledged.
fn write(world: &mut World, client: usize, bytes: u64) -> Outcome {
    world.write_stream(client, bytes);
    let piece = world.stream_clients[client].piece.expect("it is open");
    world.run_until("what was given is durable", |world| {
        durable(world, client) == Some(piece.written_to)
    })
}

fn finish(world: &mut World, client: usize) -> Result<u64, Violation> {
    let piece = world.stream_clients[client].piece.expect("it is open");
    match world.run_stream_request(client, StreamRequest::Close(piece.stream, true))? {
        Some(DeliveredEvent::Executed(_, StreamOutcome::Closed { end_position: at })) => Ok(at),
        other => panic!("{other:?}"),
    }
}

/// Reads the stream on a node from position `from` to the end. The checker verifies the bytes.
fn read(world: &mut World, node: usize, from: u64) -> Result<Result<u64, LocateError>, Violation> {
    let reader = world.add_scripted_stream_client(node);
    let mut position = from;
    loop {
        match world.run_stream_request(reader, StreamRequest::Read(name(), position, 100_000))? {
            Some(DeliveredEvent::Bytes(_, bytes)) => position += bytes.len() as u64,
            Some(DeliveredEvent::NoBytes(_, LocateError::PastEnd { end, .. }))
                if end == position =>
            {
                return Ok(Ok(position));
            }
            Some(DeliveredEvent::NoBytes(_, nowhere)) => return Ok(Err(nowhere)),
            Some(DeliveredEvent::Failed(..)) => world.run_for(10_000)?,
            other => panic!("{other:?}"),
        }
    }
}

/// Checks that every running node has exactly the correct bytes up to `to`.
fn check_all(world: &mut World, to: u64) -> Outcome {
    world.run_until("every node has every byte", |world| {
        (0..world.nodes.len()).all(|node| {
            let running = world.nodes[node].running.as_ref();
            running.is_none_or(|running| running.replica().stream_bytes_missing() == Some(0))
                && (running.is_none() || end(world, node) >= to)
        })
    })?;
    for node in 0..world.nodes.len() {
        if world.nodes[node].running.is_some() {
            assert_eq!(read(world, node, 0)?, Ok(to), "node {node}");
        }
    }
    Ok(())
}

fn log_start(world: &World, node: usize) -> u64 {
    let running = world.nodes[node].running.as_ref().expect("it runs");
    running.replica().log().start().0
}

/// G10 All nodes are killed repeatedly while a client writes, on disks that tear writes and lose
/// unflushed ones. The stream continues where the decided bytes end, and no acknowledged byte is
/// lost ([disk-5]).
#[test]
fn g10_everybody_is_killed_while_a_client_writes() -> Outcome {
    for seed in 0..6 {
        let (mut world, leader) = world(seed)?;
        let client = world.add_scripted_stream_client(leader);
        let mut acknowledged = 0;
        for round in 0..6 {
            let how = if round == 0 { OpenMode::Create } else { OpenMode::Continue };
            let at = open(&mut world, client, (leader + round) % 3, how)?;
            assert!(at >= acknowledged, "seed {seed}: {at} of {acknowledged}");
            write(&mut world, client, 20_000)?;
            world.write_stream(client, 150_000);
            world.run_for(seed * 400 + 200)?;
            acknowledged = durable(&world, client).expect("no other client writes");
            world.apply_fault(Fault::CrashAll);
            world.wait_for_leader()?;
        }
        let at = open(&mut world, client, leader, OpenMode::Continue)?;
        assert!(at >= acknowledged);
        assert_eq!(finish(&mut world, client)?, at);
        check_all(&mut world, at)?;
    }
    Ok(())
}

/// Whole units are written once. Records only reference them, so the log hardly grows, and
/// acknowledged bytes survive a crash of all nodes at any moment ([disk-5], [value-3]).
#[test]
fn units_are_written_once_and_outlive_everybodys_crash() -> Outcome {
    for seed in 0..8 {
        let (mut world, leader) = world(40 + seed)?;
        let owner = (leader + seed as usize) % 3;
        let client = world.add_scripted_stream_client(owner);
        open(&mut world, client, owner, OpenMode::Create)?;
        write(&mut world, client, 10_000)?;
        let before: Vec<Counters> = (0..3).map(|node| counters(&world, node)).collect();
        for _ in 0..5 {
            world.write_stream(client, 200_000);
            world.run_for(20_000 + seed * 700)?;
        }
        world.run_until("much is durable", |world| {
            durable(world, client).is_some_and(|to| to > 700_000)
        })?;
        for (node, before) in before.iter().enumerate() {
            let now = counters(&world, node);
            let placed = now.stream_bytes_placed - before.stream_bytes_placed;
            let recorded = now.stream_bytes_recorded - before.stream_bytes_recorded;
            assert!(placed > 4 * recorded, "node {node}: {placed}, {recorded}");
        }
        let acknowledged = durable(&world, client).expect("no other client writes");
        world.apply_fault(Fault::CrashAll);
        world.wait_for_leader()?;
        let at = open(&mut world, client, leader, OpenMode::Continue)?;
        assert!(at >= acknowledged, "seed {seed}: {at} of {acknowledged}");
        assert_eq!(finish(&mut world, client)?, at);
        check_all(&mut world, at)?;
    }
    Ok(())
}

/// [aux-5] Seeds in which a leader needs an auxiliary's vote for content after the close of a
/// stream. Full replicas have dropped these bytes, which no node needs. The auxiliary, which has no
/// stream table, used to request them forever.
#[test]
fn content_behind_a_close_is_settled_for_an_auxiliary() {
    for seed in [147_839, 134_257] {
        let report = quorate_sim::run(seed, 6_000);
        assert!(report.has_no_violation(), "\n{report}\n");
    }
}

/// G9 G10 The log is trimmed below the position of the store, and all nodes restart: from a
/// snapshot with the table, from the store's checkpoint, and from the log after both ([trim-2]).
#[test]
fn bytes_outlive_the_log_and_a_restart() -> Outcome {
    let (mut world, leader) = world(9)?;
    let client = world.add_scripted_stream_client(leader);
    open(&mut world, client, leader, OpenMode::Create)?;
    for _ in 0..40 {
        write(&mut world, client, 50_000)?;
    }
    world.run_for(500_000)?;
    for node in 0..3 {
        let start = log_start(&world, node);
        assert!(start > 1_000_000, "node {node} has its log from {start} on");
    }
    let written = durable(&world, client).expect("no other client writes");
    let starts: Vec<u64> = (0..3).map(|node| log_start(&world, node)).collect();
    assert!(written < 3_000_000, "{starts:?} of {written}");
    world.apply_fault(Fault::CrashAll);
    world.wait_for_leader()?;
    check_all(&mut world, written)?;
    let at = open(&mut world, client, (leader + 1) % 3, OpenMode::Continue)?;
    assert_eq!(at, written);
    write(&mut world, client, 50_000)?;
    finish(&mut world, client)?;
    check_all(&mut world, written + 50_000)
}

/// G11 A follower is away while the other nodes trim. It gets a snapshot that contains the table
/// but no stream bytes, and fetches these by position. Until it has the bytes, it does not count as
/// a holder of them ([snap-5], [catch-1]).
#[test]
fn g11_who_was_away_gets_the_bytes_by_position() -> Outcome {
    let (mut world, leader) = world(11)?;
    let (late, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let client = world.add_scripted_stream_client(leader);
    open(&mut world, client, leader, OpenMode::Create)?;
    write(&mut world, client, 10_000)?;
    world.set_isolated(late, true);
    while log_start(&world, leader) < 300_000 || log_start(&world, other) < 300_000 {
        write(&mut world, client, 100_000)?;
    }
    let written = durable(&world, client).expect("no other client writes");
    world.set_isolated(late, false);
    world.run_until("it has the table", |world| end(world, late) >= written)?;
    assert_eq!(counters(&world, late).snapshots_installed, 1);
    let running = world.nodes[late].running.as_ref().expect("it runs");
    assert_ne!(running.replica().stream_bytes_missing(), Some(0), "it has none of the bytes yet");
    // The node reports bytes that it lacks as missing, unless it has fetched them by now.
    let reader = world.add_scripted_stream_client(late);
    let asked = world.run_stream_request(reader, StreamRequest::Read(name(), 50_000, 1000))?;
    assert!(
        matches!(asked, Some(DeliveredEvent::Failed(..) | DeliveredEvent::Bytes(..))),
        "{asked:?}"
    );
    check_all(&mut world, written)?;
    // The node now counts as a holder: the stream continues with it and without the other follower.
    world.kill_now(other);
    write(&mut world, client, 70_000)?;
    world.start_now(other);
    finish(&mut world, client)?;
    check_all(&mut world, written + 70_000)
}

/// G11 G24 Reading trimmed positions fails on every node, including nodes that learned of the trim
/// from a snapshot.
#[test]
fn g24_trimmed_positions_are_gone_everywhere() -> Outcome {
    let (mut world, leader) = world(24)?;
    let late = (leader + 1) % 3;
    let client = world.add_scripted_stream_client(leader);
    open(&mut world, client, leader, OpenMode::Create)?;
    write(&mut world, client, 100_000)?;
    world.set_isolated(late, true);
    write(&mut world, client, 100_000)?;
    let trimmed = world.run_stream_request(client, StreamRequest::Trim(name(), 150_001))?;
    assert!(matches!(
        trimmed,
        Some(DeliveredEvent::Executed(_, StreamOutcome::Trimmed { start: 150_001 }))
    ));
    while log_start(&world, leader) < 300_000 {
        write(&mut world, client, 100_000)?;
    }
    world.set_isolated(late, false);
    let written = finish(&mut world, client)?;
    world.run_until("it has every byte", |world| {
        let running = world.nodes[late].running.as_ref().expect("it runs");
        end(world, late) == written && running.replica().stream_bytes_missing() == Some(0)
    })?;
    for node in 0..3 {
        let gone = LocateError::Trimmed { start: 150_001 };
        assert_eq!(read(&mut world, node, 150_000)?, Err(gone), "node {node}");
        assert_eq!(read(&mut world, node, 150_001)?, Ok(written), "node {node}");
    }
    Ok(())
}

/// G12 All three machines are replaced, and leadership is transferred back and forth, while a
/// client writes through a node that remains. The piece does not end, and the client is not
/// affected ([stream-3]).
#[test]
fn g12_members_and_leaders_change_inside_a_piece() -> Outcome {
    for seed in 0..3 {
        let mut world = World::with_leader(settings(seed, 2))?;
        let leader = world.wait_for_leader()?;
        let owner = (leader + 1) % 3;
        let client = world.add_scripted_stream_client(owner);
        open(&mut world, client, owner, OpenMode::Create)?;
        let piece = world.stream_clients[client].piece.expect("just opened").stream;
        write(&mut world, client, 10_000)?;
        let olds = (0..3).filter(|node| *node != owner);
        for (new, old) in (3..5).zip(olds) {
            let through = world.wait_for_leader()?;
            let join = GroupAsk::Join {
                nonce: new as u64 + 1,
                node: None,
                peer: format!("n{}:1", new + 1),
                role: MemberRole::Learner,
            };
            assert_eq!(world.ask_group(through, join)?, Ok(GroupAnswer::Node(id(new))));
            let plan = GroupAsk::Replace { old: id(old), new: id(new) };
            let mut begun = false;
            for _ in 0..200 {
                world.write_stream(client, 5_000);
                world.run_for(10_000)?;
                let now = world.wait_for_leader()?;
                begun = begun || world.ask_group(now, plan.clone())?.is_ok();
                if begun && world.has_no_plan() {
                    break;
                }
            }
            assert!(begun && world.has_no_plan(), "seed {seed}: {plan:?}");
            let now = world.wait_for_leader()?;
            world.transfer_now(now, if now == owner { new } else { owner });
            world.write_stream(client, 60_000);
        }
        let given = world.stream_clients[client].piece.expect("it goes on");
        assert_eq!(given.stream, piece, "seed {seed}: it is the same piece");
        assert_eq!(finish(&mut world, client)?, given.written_to, "seed {seed}");
        for node in [owner, 3, 4] {
            world.run_until("it has every byte", |world| {
                let running = world.nodes[node].running.as_ref().expect("it runs");
                end(world, node) == given.written_to
                    && running.replica().stream_bytes_missing() == Some(0)
            })?;
            assert_eq!(read(&mut world, node, 0)?, Ok(given.written_to), "seed {seed}");
        }
    }
    Ok(())
}

/// G12 The leader dies in the middle of a piece owned by another node. The next leader proposes the
/// inherited bytes, and continues the same piece exactly after them ([p1-6], [stream-3]).
#[test]
fn piece_goes_on_at_the_next_leader() -> Outcome {
    for seed in 0..8 {
        let (mut world, leader) = world(100 + seed)?;
        let owner = (leader + 1) % 3;
        let client = world.add_scripted_stream_client(owner);
        open(&mut world, client, owner, OpenMode::Create)?;
        write(&mut world, client, 10_000)?;
        let piece = world.stream_clients[client].piece.expect("open").stream;
        for part in 0..20 {
            world.write_stream(client, 10_000 + part);
            world.run_for(100 + seed * 20)?;
        }
        world.kill_now(leader);
        world.write_stream(client, 100_000);
        world.wait_for_leader()?;
        let given = world.stream_clients[client].piece.expect("it goes on");
        assert_eq!(given.stream, piece);
        assert_eq!(finish(&mut world, client)?, given.written_to, "seed {seed}");
        world.start_now(leader);
        world.run_until("it is back", World::is_caught_up)?;
        check_all(&mut world, given.written_to)?;
    }
    Ok(())
}

/// G13 The link from the owner to the leader is blocked for a while in the middle of a piece. The
/// bytes are sent again, and no node buffers more than its window ([stream-8]).
#[test]
fn g13_bytes_that_were_lost_are_sent_again() -> Outcome {
    let (mut world, leader) = world(13)?;
    let owner = (leader + 1) % 3;
    let client = world.add_scripted_stream_client(owner);
    open(&mut world, client, owner, OpenMode::Create)?;
    write(&mut world, client, 10_000)?;
    for _ in 0..5 {
        world.block_now(owner, leader, true);
        world.write_stream(client, 100_000);
        world.run_for(30_000)?;
        world.break_now(owner, leader);
        world.block_now(owner, leader, false);
        let given = world.stream_clients[client].piece.expect("open").written_to;
        world.run_until("what was given is durable", |world| {
            durable(world, client) == Some(given)
        })?;
    }
    let at = finish(&mut world, client)?;
    assert_eq!(at, 510_000);
    check_all(&mut world, at)
}

/// [stream-10] Two writers act as owners of a name: the second one took over while the node of the
/// first one was cut off, and the first one continued to write. None of its later bytes are
/// retained, and it is notified once its node is reachable again.
#[test]
fn first_of_two_owners_is_fenced() -> Outcome {
    for seed in 0..5 {
        let (mut world, leader) = world(200 + seed)?;
        let (old, new) = ((leader + 1) % 3, leader);
        let first = world.add_scripted_stream_client(old);
        open(&mut world, first, old, OpenMode::Create)?;
        write(&mut world, first, 30_000)?;
        world.write_stream(first, 50_000);
        world.run_for(seed * 300)?;
        world.set_isolated(old, true);
        let second = world.add_scripted_stream_client(new);
        let someone = world.stream_clients[second].current_writer();
        let mut denied = refused(&mut world, second, new, OpenMode::Append, someone);
        assert_eq!(denied, Denied::InUse);
        let fence = open(&mut world, second, new, OpenMode::Takeover)?;
        assert!((30_000..=80_000).contains(&fence), "seed {seed}: {fence}");
        write(&mut world, second, 40_000)?;
        world.write_stream(first, 100_000);
        world.run_for(1_000_000)?;
        let told = durable(&world, first);
        assert!(told <= Some(fence), "seed {seed}: {told:?} beyond {fence}");
        world.set_isolated(old, false);
        world.run_until("it is told", |world| durable(world, first).is_none())?;
        let writer = world.stream_clients[first].current_writer();
        denied = refused(&mut world, first, new, OpenMode::Continue, writer);
        assert_eq!(denied, Denied::Fenced);
        assert_eq!(finish(&mut world, second)?, fence + 40_000);
        check_all(&mut world, fence + 40_000)?;
    }
    Ok(())
}

/// [stream-5], [stream-10] The reply to an open request is lost with the connection. The client
/// reconnects and gets another piece, and no position is bound to two bytes.
#[test]
fn lost_answer_to_an_opening_is_asked_for_again() -> Outcome {
    let (mut world, leader) = world(300)?;
    let owner = (leader + 1) % 3;
    let client = world.add_scripted_stream_client(owner);
    let writer = world.stream_clients[client].current_writer();
    let mut pieces = Vec::new();
    for _ in 0..3 {
        world.send_stream_request(client, StreamRequest::Open(name(), OpenMode::Create, writer));
        world.run_for(400)?;
        let at = open(&mut world, client, owner, OpenMode::Create)?;
        let piece = world.stream_clients[client].piece.expect("open");
        assert!(!pieces.contains(&piece.stream), "{piece:?} of {pieces:?}");
        pieces.push(piece.stream);
        assert_eq!(at, 1000 * (pieces.len() as u64 - 1));
        write(&mut world, client, 1000)?;
    }
    assert_eq!(finish(&mut world, client)?, 3000);
    check_all(&mut world, 3000)
}

/// [stream-6] The owner has failed permanently. The leader closes the piece at the exact position,
/// and other writers can append.
#[test]
fn stream_of_a_lost_owner_is_free_again() -> Outcome {
    let (mut world, leader) = world(400)?;
    let owner = (leader + 1) % 3;
    let client = world.add_scripted_stream_client(owner);
    open(&mut world, client, owner, OpenMode::Create)?;
    write(&mut world, client, 30_000)?;
    world.write_stream(client, 100_000);
    world.run_for(1_500)?;
    let acknowledged = durable(&world, client).expect("open");
    world.kill_now(owner);
    world.run_until("its piece is closed", |world| {
        let running = world.nodes[leader].running.as_ref().expect("it runs");
        let info = running.replica().stream_table().info(&name());
        info.is_some_and(|info| info.open_stream.is_none())
    })?;
    let second = world.add_scripted_stream_client(leader);
    let at = open(&mut world, second, leader, OpenMode::Append)?;
    assert!((acknowledged..=130_000).contains(&at));
    write(&mut world, second, 10_000)?;
    world.start_now(owner);
    assert_eq!(finish(&mut world, second)?, at + 10_000);
    check_all(&mut world, at + 10_000)
}

/// [disk-8] Damaged blocks of the store are not served. They are fetched from another node.
#[test]
fn bytes_that_rotted_come_from_another_node() -> Outcome {
    let (mut world, leader) = world(500)?;
    let client = world.add_scripted_stream_client(leader);
    open(&mut world, client, leader, OpenMode::Create)?;
    write(&mut world, client, 200_000)?;
    finish(&mut world, client)?;
    check_all(&mut world, 200_000)?;
    let late = (leader + 1) % 3;
    rot_streams(&world, late);
    check_all(&mut world, 200_000)?;
    Ok(())
}

/// G9 G10 A single node is killed at many moments during its snapshots and checkpoints, and has
/// every byte each time, because the log contains everything after the store's checkpoint, even
/// below the snapshot ([trim-2], [disk-5]).
#[test]
fn g9_node_alone_has_its_bytes_whenever_it_is_killed() -> Outcome {
    let mut settings = settings(90, 0);
    settings.founding_member_count = 1;
    settings.disk_us = (50, 3000);
    let mut world = World::with_leader(settings)?;
    let client = world.add_scripted_stream_client(0);
    let mut end = open(&mut world, client, 0, OpenMode::Create)?;
    for moment in 0..60 {
        write(&mut world, client, 40_000)?;
        world.write_stream(client, 30_000);
        world.run_for(moment * 101)?;
        let acknowledged = durable(&world, client).expect("no other client writes");
        assert!(acknowledged >= end + 40_000);
        world.kill_now(0);
        world.start_now(0);
        world.wait_for_leader()?;
        end = open(&mut world, client, 0, OpenMode::Continue)?;
        assert!(end >= acknowledged, "{moment}: {end} of {acknowledged}");
        check_all(&mut world, end)?;
    }
    let snapshots = world.counts.snapshots_taken;
    assert!(snapshots > 10, "{snapshots} snapshots");
    assert!(log_start(&world, 0) > 1_000_000);
    Ok(())
}

/// [here-1] Restarts a node alone and checks that it can find and read every byte that counted as
/// present.
fn find_again(world: &mut World, node: usize) -> Outcome {
    world.check_restart_alone(node)?;
    let to = end(world, node);
    assert_eq!(read(world, node, 0)?, Ok(to), "node {node}");
    assert!(to > 0);
    world.set_isolated(node, false);
    Ok(())
}

fn rot_streams(world: &World, node: usize) {
    let mut blocks = world.nodes[node].disk.written_blocks();
    blocks.retain(|at| at.file.family == quorate_log::disk::Family::Stream);
    assert!(blocks.len() > 20, "{} blocks", blocks.len());
    for at in &blocks {
        world.nodes[node].disk.flip_bit(*at, 77);
    }
}

/// [here-1] [here-2] Bytes count as present regardless of how they arrived: with their records,
/// without them, after a snapshot, and again after damage.
#[test]
fn start_finds_what_counts_as_here_however_it_came() -> Outcome {
    for (seed, by_snapshot) in [(60, false), (61, true)] {
        let mut settings = settings(seed, 0);
        if !by_snapshot {
            settings.snapshot_options.log_bytes_min = 64 << 20;
            settings.snapshot_options.log_bytes_max = 64 << 20;
        }
        let mut world = World::with_leader(settings)?;
        let leader = world.wait_for_leader()?;
        let (late, other) = ((leader + 1) % 3, (leader + 2) % 3);
        let client = world.add_scripted_stream_client(leader);
        open(&mut world, client, leader, OpenMode::Create)?;
        write(&mut world, client, 100_000)?;
        find_again(&mut world, late)?;
        world.set_isolated(late, true);
        let trimmed = |world: &World| [leader, other].map(|node| log_start(world, node) > 300_000);
        while end(&world, leader) < 500_000 || by_snapshot && trimmed(&world) != [true; 2] {
            write(&mut world, client, 100_000)?;
        }
        let written = durable(&world, client).expect("no other client writes");
        world.set_isolated(late, false);
        world.run_until("it has the table", |world| end(world, late) >= written)?;
        let installed = counters(&world, late).snapshots_installed;
        assert_eq!(installed > 0, by_snapshot, "{installed}");
        find_again(&mut world, late)?;
        rot_streams(&world, late);
        assert_eq!(read(&mut world, late, 0)?, Ok(written));
        find_again(&mut world, late)?;
        check_all(&mut world, written)?;
    }
    Ok(())
}

/// [here-1] [era-12] A group grows from one node to three, all nodes report that nothing is
/// missing, all stop, and the first node's disk is lost. The other two elect a leader and have
/// every byte and key. In 0.2.0 they had neither.
#[test]
fn founder_is_lost_after_the_others_have_its_bytes() -> Outcome {
    let mut settings = settings(62, 2);
    settings.founding_member_count = 1;
    let mut world = World::with_leader(settings)?;
    let client = world.add_scripted_stream_client(0);
    open(&mut world, client, 0, OpenMode::Create)?;
    for _ in 0..9 {
        write(&mut world, client, 100_000)?;
    }
    assert_eq!(finish(&mut world, client)?, 900_000);
    world.run_command(0, "SET key value")?;
    for new in [1, 2] {
        let join = GroupAsk::Join {
            nonce: new as u64 + 1,
            node: None,
            peer: format!("n{}:1", new + 1),
            role: MemberRole::Voter,
        };
        assert_eq!(world.ask_group(0, join)?, Ok(GroupAnswer::Node(id(new))));
        while world.ask_group(0, GroupAsk::Promote(id(new)))?.is_err() {
            world.run_for(10_000)?;
        }
        world.run_until("it votes", |world| {
            let configuration = world.configuration();
            configuration.is_some_and(|now| now.members().len() == new + 1)
        })?;
    }
    check_all(&mut world, 900_000)?;
    for node in 0..3 {
        world.kill_now(node);
    }
    for node in [1, 2] {
        world.start_now(node);
    }
    let leader = world.wait_for_leader()?;
    check_all(&mut world, 900_000)?;
    assert_eq!(world.run_command(leader, "GET key")?, Reply::Bulk(Some(b"value".to_vec())));
    Ok(())
}

/// [here-3] Bytes that are lost on every node block only their readers. Nodes that know the bytes
/// to be missing elect a leader and execute commands.
#[test]
fn lacking_bytes_hold_up_neither_elections_nor_keys() -> Outcome {
    let (mut world, leader) = world(63)?;
    let client = world.add_scripted_stream_client(leader);
    open(&mut world, client, leader, OpenMode::Create)?;
    write(&mut world, client, 200_000)?;
    finish(&mut world, client)?;
    check_all(&mut world, 200_000)?;
    world.kill_now(leader);
    let second = world.wait_for_leader()?;
    let third = 3 - leader - second;
    rot_streams(&world, second);
    rot_streams(&world, third);
    for node in [second, third] {
        let reader = world.add_scripted_stream_client(node);
        let asked = world.run_stream_request(reader, StreamRequest::Read(name(), 0, 100_000))?;
        assert!(matches!(asked, Some(DeliveredEvent::Failed(..))), "{asked:?}");
    }
    world.kill_now(second);
    world.start_now(second);
    let now = world.wait_for_leader()?;
    world.run_command(now, "SET key value")?;
    assert_eq!(world.run_command(now, "GET key")?, Reply::Bulk(Some(b"value".to_vec())));
    let running = world.nodes[third].running.as_ref().expect("it runs");
    assert_ne!(running.replica().stream_bytes_missing(), Some(0));
    Ok(())
}
