//! Stories: calm runs of a few replicas that show a procedure line by line. Tests compare them with
//! `testdata`, `docs/stories/` lists them, and `quorate sim --page` shows one of them.

use quorate_core::{ballot::Ballot, slot::Slot};

use crate::{check::Violation, faults::RunSettings, resp::Reply, trace::RunTrace, world::World};

/// Maximum number of retained trace lines, far more than a story has.
const LINES_MAX: usize = 10_000;

/// Returns a cluster in which all sessions are registered and every frame is traced from now on.
pub fn start_cluster(settings: RunSettings) -> Result<World, Violation> {
    let mut world = World::with_leader(settings)?;
    for node in 0..world.nodes.len() {
        world.run_command(node, &format!("SET warm{node} 1"))?;
    }
    world.run_for(25_000)?;
    world.trace = RunTrace::new(LINES_MAX);
    world.trace.traces_frames = true;
    Ok(world)
}

/// Returns the lines of the trace, except for heartbeats, because these are all alike.
pub fn lines_without_heartbeats(world: &World) -> impl Iterator<Item = &str> {
    let dull = |line: &&str| line.contains("heartbeat ballot") || line.contains(": heard ballot");
    world.trace.lines().filter(move |line| !dull(line))
}

/// Kills the leader, sends a write to a follower, and restarts the old leader.
pub fn leader_death_story(world: &mut World) -> Result<(), Violation> {
    let leader = world.wait_for_leader()?;
    let follower = (leader + 1) % world.nodes.len();
    world.kill_now(leader);
    expect_ok(world.run_command(follower, "SET greeting hello")?)?;
    world.start_now(leader);
    world.run_until("all have applied it", World::is_caught_up)
}

/// Sends a write to a follower while the cluster is healthy.
pub fn write_story(world: &mut World) -> Result<(), Violation> {
    let follower = (world.wait_for_leader()? + 1) % world.nodes.len();
    expect_ok(world.run_command(follower, "SET greeting hi")?)?;
    world.run_until("all have applied it", World::is_caught_up)
}

fn expect_ok(reply: Reply) -> Result<(), Violation> {
    match reply == Reply::Simple("OK".into()) {
        true => Ok(()),
        false => Err(Violation::new("story", format!("a write was answered {reply:?}"))),
    }
}

/// State at the beginning of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoryStart {
    /// Node id of the leader.
    pub leader: u32,
    pub ballot: Ballot,
    /// End of the decided prefix, known to all nodes.
    pub decided_to: Slot,
}

impl StoryStart {
    /// Waits for a leader and returns the state of the cluster.
    pub fn await_leader(world: &mut World) -> Result<Self, Violation> {
        let leader = world.wait_for_leader()?;
        let running = world.nodes[leader].running.as_ref();
        let node = running.expect("it leads").replica().node();
        Ok(Self {
            leader: world.nodes[leader].id().0,
            ballot: node.ballot(),
            decided_to: node.decided_to(),
        })
    }
}
