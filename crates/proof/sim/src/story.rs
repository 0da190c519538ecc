//! Calm runs of a few replicas that show a procedure, line by line: compared by `docs/stories/`,
//! and shown by `quorate sim --page`.

use quorate_core::{ballot::Ballot, slot::Slot};

use crate::{check::Violation, faults::Settings, resp::Reply, trace::Trace, world::World};

/// Lines that are remembered: far more than a story has.
const LINES_MAX: usize = 10_000;

/// Returns a cluster whose sessions are all registered, and which traces every frame from now on.
///
/// # Errors
/// A rule was broken.
pub fn begin(settings: Settings) -> Result<World, Violation> {
    let mut world = World::elected(settings)?;
    for node in 0..world.nodes.len() {
        world.ask(node, &format!("SET warm{node} 1"))?;
    }
    world.run_for(25_000)?;
    world.trace = Trace::new(LINES_MAX);
    world.trace.frames = true;
    Ok(world)
}

/// Returns the lines of the trace without heartbeats, which never change.
pub fn lines(world: &World) -> impl Iterator<Item = &str> {
    let dull = |line: &&str| line.contains("heartbeat ballot") || line.contains(": heard ballot");
    world.trace.lines().filter(move |line| !dull(line))
}

/// The leader is killed, a client writes at a follower, and the dead one comes back.
///
/// # Errors
/// A rule was broken.
pub fn a_leader_dies(world: &mut World) -> Result<(), Violation> {
    let leader = world.wait_for_leader()?;
    let follower = (leader + 1) % world.nodes.len();
    world.kill_now(leader);
    expect_ok(world.ask(follower, "SET greeting hello")?)?;
    world.start_now(leader);
    world.run_until("all have applied it", World::is_level)
}

/// A follower's client writes while all is well.
///
/// # Errors
/// A rule was broken.
pub fn a_write(world: &mut World) -> Result<(), Violation> {
    let follower = (world.wait_for_leader()? + 1) % world.nodes.len();
    expect_ok(world.ask(follower, "SET greeting hi")?)?;
    world.run_until("all have applied it", World::is_level)
}

fn expect_ok(reply: Reply) -> Result<(), Violation> {
    match reply == Reply::Simple("OK".into()) {
        true => Ok(()),
        false => Err(Violation::new("story", format!("a write was answered {reply:?}"))),
    }
}

/// Opening state of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The id of the node that leads.
    pub leader: u32,
    /// In which ballot.
    pub ballot: Ballot,
    /// Every slot below is decided, and known to be everywhere.
    pub decided_to: Slot,
}

impl Opening {
    /// Returns the present state.
    ///
    /// # Errors
    /// No leader is elected.
    pub fn of(world: &mut World) -> Result<Self, Violation> {
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
