//! Access rights: every node applies the same table, and never an older one than before, whichever
//! nodes are killed ([access-2], [access-4]).

use quorate_access::{Command, Password, Role, Users, name::DEFAULT};
use quorate_core::record::Class;
use quorate_replica::group::{
    MemberRole,
    asking::{GroupAnswer, GroupRequest},
};
use quorate_sim::{
    check::Violation, dice::Dice, faults::RunSettings, node::id, resp::Reply, world::World,
};

type Outcome = Result<(), Violation>;

fn set(name: &str, role: Role) -> GroupRequest {
    GroupRequest::Users(Command::Set {
        name: name.to_owned(),
        role: Some(role),
        password: Password::None,
    })
}

/// Returns the user table that a node applies; `None` if it applies none.
fn users(world: &World, node: usize) -> Option<&Users> {
    world.nodes[node].running.as_ref()?.replica().users()
}

/// Size of the largest table that each node has applied up to now.
#[derive(Default)]
struct LargestTables([usize; 3]);

impl LargestTables {
    /// Checks that no table has become smaller. Users are only added, so a smaller table is an
    /// older one.
    fn check_tables(&mut self, world: &World) {
        for node in 0..3 {
            let Some(users) = users(world, node) else {
                continue;
            };
            let count = users.iter().count();
            assert!(
                count >= self.0[node],
                "seed {}: node {node} goes by {count} users, and went by {} before",
                world.settings.seed,
                self.0[node]
            );
            self.0[node] = count;
        }
    }

    /// Runs until every node applies a table of this size, checking after each step.
    fn run_until(&mut self, world: &mut World, count: usize) -> Outcome {
        let deadline = world.now.plus_ms(60_000);
        loop {
            self.check_tables(world);
            let has = |node| users(world, node).is_some_and(|users| users.iter().count() == count);
            if (0..3).all(has) {
                return Ok(());
            }
            assert!(world.now < deadline, "seed {}: {:?}", world.settings.seed, self.0);
            world.step_event()?;
        }
    }
}

#[test]
fn no_node_goes_by_an_older_table_than_before() -> Outcome {
    for seed in 0..40 {
        let mut world = World::with_leader(RunSettings::without_faults(seed, 3, Class::Durable))?;
        let mut dice = Dice::new(seed);
        let mut seen = LargestTables::default();
        let leader = world.wait_for_leader()?;
        assert_eq!(world.ask_group(leader, set("ops", Role::Admin))?, Ok(GroupAnswer::Done));
        // The run's own clients, which never authenticate, may write.
        assert_eq!(world.ask_group(leader, set(DEFAULT, Role::Writer))?, Ok(GroupAnswer::Done));
        seen.run_until(&mut world, 2)?;
        for round in 0..6 {
            let victim = dice.index(3);
            if dice.chance(1, 3) {
                // No remaining node knows which slots are decided, so a new leader has to find out.
                (0..3).for_each(|node| world.kill_now(node));
                (0..3).for_each(|node| world.start_now(node));
                for _ in 0..dice.below(400) {
                    seen.check_tables(&world);
                    world.step_event()?;
                }
            }
            world.kill_now(victim);
            if dice.chance(1, 2) {
                let other = (victim + 1) % 3;
                world.run_until("a node leads", |world| {
                    world.majority_leader().is_some_and(|leader| leader != victim)
                })?;
                let leader = world.majority_leader().unwrap_or(other);
                let reply = world.run_command(leader, &format!("SET k{round} {round}"))?;
                assert_eq!(reply, Reply::Simple("OK".into()));
            }
            world.start_now(victim);
            let seen_steps = dice.below(200);
            for _ in 0..seen_steps {
                seen.check_tables(&world);
                world.step_event()?;
            }
            world.run_until("a node leads", |world| world.majority_leader().is_some())?;
            let leader = world.wait_for_leader()?;
            let name = format!("u{round}");
            // The request may have reached no node. Repeating it is harmless.
            while world.ask_group(leader, set(&name, Role::Reader))?.is_err() {
                seen.check_tables(&world);
            }
            seen.run_until(&mut world, 3 + round)?;
        }
    }
    Ok(())
}

/// All nodes refuse the same requests, and refused requests change nothing.
#[test]
fn what_is_refused_is_refused_by_the_log() -> Outcome {
    let mut world = World::with_leader(RunSettings::without_faults(7, 3, Class::Durable))?;
    let leader = world.wait_for_leader()?;
    let refused = world.ask_group(leader, set("bob", Role::Reader))?.unwrap_err();
    assert_eq!(refused.code, "last_admin");
    // A follower forwards the request to the leader.
    let follower = (leader + 1) % 3;
    assert_eq!(world.ask_group(follower, set("ann", Role::Admin))?, Ok(GroupAnswer::Done));
    let reply = world.run_command(follower, "SET k v")?;
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("NOAUTH")), "{reply:?}");
    let open = GroupRequest::Users(Command::Open);
    assert_eq!(world.ask_group(leader, open)?, Ok(GroupAnswer::Done));
    assert_eq!(world.run_command(leader, "SET k v")?, Reply::Simple("OK".into()));
    world.run_until_settled()
}

/// [access-4] A joining node has an empty table, which would admit every client. The node applies
/// no table until it has caught up, even if it is killed before.
#[test]
fn a_node_that_joins_lets_nobody_in_before_it_knows_who_may() -> Outcome {
    for seed in 0..20 {
        let mut settings = RunSettings::without_faults(seed, 3, Class::Durable);
        settings.spare_node_count = 1;
        let mut world = World::with_leader(settings)?;
        let mut dice = Dice::new(seed);
        let leader = world.wait_for_leader()?;
        // The node applies this change of the group before it reaches the users.
        assert_eq!(
            world.ask_group(leader, GroupRequest::Priority(id(0), 1))?,
            Ok(GroupAnswer::Done)
        );
        assert_eq!(world.ask_group(leader, set("ops", Role::Admin))?, Ok(GroupAnswer::Done));
        let join = GroupRequest::Join {
            nonce: 4,
            node: None,
            peer: "n4:1".to_owned(),
            role: dice.pick(&[MemberRole::Voter, MemberRole::Learner]),
        };
        while world.ask_group(leader, join.clone())?.is_err() {}
        let (mut kills, deadline) = (0, world.now.plus_ms(60_000));
        while users(&world, 3).is_none_or(Users::is_unrestricted) {
            assert_eq!(users(&world, 3), None, "seed {seed}: every client is let in");
            assert!(world.now < deadline, "seed {seed}");
            if kills < 3 && dice.chance(1, 30) && world.nodes[3].running.is_some() {
                world.kill_now(3);
                world.start_now(3);
                kills += 1;
            }
            world.step_event()?;
        }
    }
    Ok(())
}
