//! The stories of `docs/stories/`: calm runs told line by line, compared on every test run.
//! `REWRITE=1 cargo test -p quorate-sim` tells them again.

use std::{env, fs, path::Path};

use quorate_core::record::Class;
use quorate_sim::{check::Violation, faults::Settings, resp::Reply, trace::Trace, world::World};

/// A calm group of three whose clocks, disks and wires always take equally long.
fn begin(seed: u64, client_timeout_ms: u64) -> Result<World, Violation> {
    let mut settings = Settings::calm(seed, 3, Class::Durable);
    settings.client_timeout_ms = client_timeout_ms;
    let mut world = World::elected(settings)?;
    // The sessions of all nodes are registered before the story begins.
    for node in 0..3 {
        world.ask(node, &format!("SET warm{node} 1"))?;
    }
    world.run_for(25_000)?;
    world.trace = Trace::new(10_000);
    world.trace.frames = true;
    Ok(world)
}

/// Heartbeats are the same all the time; `title` says what to look for.
fn check(name: &str, title: &str, world: &World) {
    let mut story = String::new();
    for line in title.lines() {
        story += &format!("# {line}\n");
    }
    story += "# The columns: seconds, who, what, detail. Heartbeats are left out.\n\n";
    let dull = |line: &&str| line.contains("heartbeat ballot") || line.contains(": heard ballot");
    for line in world.trace.lines().filter(|line| !dull(line)) {
        story += line;
        story.push('\n');
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &story).expect("testdata can be written");
    }
    let told = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        told == story,
        "{name} is told differently now; REWRITE=1 tells it again:\n{story}"
    );
}

#[test]
fn life_of_a_command() -> Result<(), Violation> {
    let mut world = begin(1, 3000)?;
    let leader = world.wait_for_leader()?;
    let follower = (leader + 1) % 3;
    assert_eq!(
        world.ask(follower, "SET greeting hello")?,
        Reply::Simple("OK".into())
    );
    world.run_until("all have applied it", World::is_level)?;
    let title = "Life of a command: a client sets a key at a follower. The follower forwards its batch, the leader\n\
                 proposes it and sends before it writes, votes leave when they are on stable storage, two of\n\
                 three decide, every node applies, and the follower replies.";
    check("life_of_a_command.txt", title, &world);
    Ok(())
}

#[test]
fn a_leader_dies() -> Result<(), Violation> {
    let mut world = begin(2, 3000)?;
    let leader = world.wait_for_leader()?;
    let follower = (leader + 1) % 3;
    world.kill_now(leader);
    assert_eq!(
        world.ask(follower, "SET greeting hello")?,
        Reply::Simple("OK".into())
    );
    world.start_now(leader);
    world.run_until("all have applied it", World::is_level)?;
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
    world.isolate(late, true);
    for number in 0..3 {
        let set = world.ask(leader, &format!("SET greeting {number}"))?;
        assert_eq!(set, Reply::Simple("OK".into()));
    }
    world.isolate(late, false);
    world.run_until("it has caught up", World::is_level)?;
    let title = "A replica falls behind: nothing passes between it and the others, who go on without it. When it\n\
                 is back it does not compete; it is told what is decided, and fetches the data ([catch-1]).";
    check("a_replica_falls_behind.txt", title, &world);
    Ok(())
}
