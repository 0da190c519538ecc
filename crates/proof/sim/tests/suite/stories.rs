//! The stories that `docs/stories/` lists: calm runs line by line, compared with `testdata` on
//! every test run. `REWRITE=1 cargo test -p quorate-sim` rewrites them.

use std::{env, fs, path::Path};

use quorate_core::record::Class;
use quorate_sim::{
    check::Violation, faults::RunSettings, front::StreamRequest, resp::Reply, story,
    trace::RunTrace, workload::streams::StreamLoad, world::World,
};
use quorate_stream::OpenMode;

/// Returns a calm group of three with exact clocks and constant disk and network delays.
fn begin(seed: u64, client_timeout_ms: u64) -> Result<World, Violation> {
    let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
    settings.client_timeout_ms = client_timeout_ms;
    begin_with(settings)
}

fn begin_with(settings: RunSettings) -> Result<World, Violation> {
    story::start_cluster(settings)
}

/// Compares the trace without heartbeats, which are all alike, with the story. `title` is the
/// heading of the page.
fn check(name: &str, title: &str, world: &World) {
    let mut story = String::new();
    for line in title.lines() {
        story += &format!("# {line}\n");
    }
    story += "# The columns: seconds, who, what, detail. Heartbeats are left out.\n\n";
    for line in story::lines_without_heartbeats(world) {
        story += line;
        story.push('\n');
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &story).expect("testdata can be written");
    }
    let told = fs::read_to_string(&file).unwrap_or_default();
    assert!(told == story, "{name} is told differently now; REWRITE=1 tells it again:\n{story}");
}

#[test]
fn life_of_a_command() -> Result<(), Violation> {
    let mut world = begin(1, 3000)?;
    let leader = world.wait_for_leader()?;
    let follower = (leader + 1) % 3;
    assert_eq!(world.run_command(follower, "SET greeting hello")?, Reply::Simple("OK".into()));
    world.run_until("all have applied it", World::is_caught_up)?;
    let title = "Life of a command: a client sets a key at a follower. The follower forwards its batch, the leader\n\
                 proposes it and sends before it writes, votes leave when they are on stable storage, two of\n\
                 three decide, every node applies, and the follower replies.";
    check("life_of_a_command.txt", title, &world);
    Ok(())
}

#[test]
fn a_leader_dies() -> Result<(), Violation> {
    let mut world = begin(2, 3000)?;
    story::leader_death_story(&mut world)?;
    let title = "A leader dies. The others hear that the connection broke, ask around before they campaign\n\
                 ([live-1]), finish what may be chosen ([p1-6]) and serve. The dead node comes back, and\n\
                 follows.";
    check("a_leader_dies.txt", title, &world);
    Ok(())
}

#[test]
fn a_replica_falls_behind() -> Result<(), Violation> {
    let mut world = begin(3, 3000)?;
    let leader = world.wait_for_leader()?;
    let late = (leader + 1) % 3;
    world.set_isolated(late, true);
    for number in 0..3 {
        let set = world.run_command(leader, &format!("SET greeting {number}"))?;
        assert_eq!(set, Reply::Simple("OK".into()));
    }
    world.set_isolated(late, false);
    world.run_until("it has caught up", World::is_caught_up)?;
    let title = "A replica falls behind: nothing passes between it and the others, who go on without it. When it\n\
                 is back it does not compete; it is told what is decided, and fetches the data ([catch-1]).";
    check("a_replica_falls_behind.txt", title, &world);
    Ok(())
}

/// Returns a group in which a client has opened a stream through a follower and written 1000 bytes.
/// Also returns the leader and the client.
fn begin_stream(seed: u64) -> Result<(World, usize, usize), Violation> {
    let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
    settings.stream_load = Some(StreamLoad::scripted_only());
    settings.window_slots = 32 << 20;
    settings.segment_bytes = 128 << 10;
    let mut world = begin_with(settings)?;
    let leader = world.wait_for_leader()?;
    let client = world.add_scripted_stream_client((leader + 1) % 3);
    let writer = world.stream_clients[client].current_writer();
    let name = "log".parse().expect("a name");
    world.run_stream_request(client, StreamRequest::Open(name, OpenMode::Create, writer))?;
    write_bytes(&mut world, client, 1000)?;
    world.run_for(25_000)?;
    world.trace = RunTrace::new(10_000);
    world.trace.traces_frames = true;
    Ok((world, leader, client))
}

fn write_bytes(world: &mut World, client: usize, bytes: u64) -> Result<(), Violation> {
    world.write_stream(client, bytes);
    let to = world.stream_clients[client].piece.expect("it is open").written_to;
    world.run_until("it is durable", |world| {
        let piece = world.stream_clients[client].piece;
        piece.is_some_and(|piece| piece.acknowledged_to == to)
    })
}

#[test]
fn a_stream_outlives_its_leader() -> Result<(), Violation> {
    let (mut world, leader, client) = begin_stream(4)?;
    world.write_stream(client, 2000);
    world.run_for(450)?;
    world.kill_now(leader);
    write_bytes(&mut world, client, 3000)?;
    let title = "A stream outlives a leader that is not its owner. The owner sends bytes to all, the leader gives them\n\
                 slots and dies. The next one proposes what may be chosen again ([p1-6]), and gives slots to the\n\
                 rest: the piece goes on, for bytes are bound to their stream and not to a ballot ([stream-3]).";
    check("a_stream_outlives_its_leader.txt", title, &world);
    Ok(())
}

#[test]
fn a_stream_is_taken_over() -> Result<(), Violation> {
    let (mut world, leader, client) = begin_stream(5)?;
    world.write_stream(client, 2000);
    world.run_for(300)?;
    let second = world.add_scripted_stream_client(leader);
    let writer = world.stream_clients[second].current_writer();
    let name = "log".parse().expect("a name");
    world.run_stream_request(second, StreamRequest::Open(name, OpenMode::Takeover, writer))?;
    write_bytes(&mut world, second, 500)?;
    world.run_until("the first is told", |world| world.stream_clients[client].piece.is_none())?;
    let title = "A stream is taken over while its first writer has bytes on their way. One value ends the old piece and\n\
                 begins the next at the exact position ([stream-10]); the owner of the old one is told where it\n\
                 ended, and what is decided of it later is a no-op ([stream-4]).";
    check("a_stream_is_taken_over.txt", title, &world);
    Ok(())
}
