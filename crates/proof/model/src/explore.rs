//! Random explorer: one run per seed. `choose` draws the next event.

mod choose;
mod devices;
mod flow;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    dice::Dice,
    event::Event,
    heal,
    observer::{Property, Violation, Watched},
    profile::{Plan, Profile},
    seen::Seen,
    world::World,
};

/// Mode in which a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Properties that are checked.
    pub watched: Watched,
    /// The run continues with the second act, in which all faults end.
    pub heal: bool,
    /// Events are recorded for printing.
    pub trace: bool,
}

impl Mode {
    /// Mode that checks all properties and plays both acts.
    pub const FULL: Self = Self { watched: Watched::ALL, heal: true, trace: false };
}

/// Outcome of a random run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub violation: Option<Violation>,
    /// Number of events in the first act.
    pub events: usize,
    /// Number of slots that have a chosen value.
    pub chosen: u64,
    /// Number of reads answered under a lease.
    pub leased: u64,
    pub seen: Seen,
    /// Era of the chosen prefix at the end of the run.
    pub era: u32,
    /// The second act was completed.
    pub healed: bool,
    /// Descriptions of the events, if requested.
    pub trace: Vec<String>,
}

struct Run {
    plan: Plan,
    dice: Dice,
    world: World,
    mode: Mode,
    outcome: Outcome,
    delivered: Vec<bool>,
    values: u64,
    changes: u64,
    reads: u64,
    /// Number of streams that clients tried to open.
    opens: u64,
}

/// Runs one seed. A panic in the core counts as a violation.
pub fn run(profile: Profile, seed: u64, mode: Mode) -> Outcome {
    let shared = std::cell::RefCell::new(Outcome::default());
    let played = catch_unwind(AssertUnwindSafe(|| play(profile, seed, mode, &shared)));
    let mut outcome = shared.into_inner();
    match played {
        Ok(Ok(())) => {}
        Ok(Err(violation)) => outcome.violation = Some(violation),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_else(|| "a panic without a message".to_owned());
            if mode.watched.has(Property::Assertion) {
                outcome.violation = Some(Violation { property: Property::Assertion, seen: text });
            }
        }
    }
    outcome
}

fn play(
    profile: Profile,
    seed: u64,
    mode: Mode,
    shared: &std::cell::RefCell<Outcome>,
) -> Result<(), Violation> {
    let plan = profile.plan(seed);
    let world = World::new(plan.setup.clone(), mode.watched)?;
    let mut run = Run {
        dice: Dice::new(seed, 0),
        plan,
        world,
        mode,
        outcome: Outcome::default(),
        delivered: Vec::new(),
        values: 0,
        changes: 0,
        reads: 0,
        opens: 0,
    };
    if mode.trace {
        let founding = &run.plan.setup.founding;
        let line = format!(
            "{} nodes, founded by {founding}, {:?}; in flight {}, window {}, {:?}",
            run.plan.setup.nodes,
            founding.class(),
            run.plan.setup.inflight_max,
            run.plan.setup.window_slots,
            run.plan.setup.silent,
        );
        shared.borrow_mut().trace.push(line);
    }
    let result = run.first_act(shared);
    {
        let mut outcome = shared.borrow_mut();
        outcome.events = run.outcome.events;
        outcome.chosen = run.world.observer.chosen_to().0 - 1;
        outcome.leased = run.world.leased;
        outcome.seen = run.world.seen();
        outcome.era = run.world.observer.era().0;
    }
    result?;
    if mode.heal {
        let healed = heal::heal(&mut run.world, |line| {
            if mode.trace {
                shared.borrow_mut().trace.push(line());
            }
        })?;
        shared.borrow_mut().healed = healed;
    }
    Ok(())
}

impl Run {
    fn first_act(&mut self, shared: &std::cell::RefCell<Outcome>) -> Result<(), Violation> {
        while self.outcome.events < self.plan.events {
            self.choose(shared)?;
            self.outcome.events += 1;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        event: &Event,
        shared: &std::cell::RefCell<Outcome>,
    ) -> Result<(), Violation> {
        if self.mode.trace {
            let line = heal::describe(&self.world, event);
            shared.borrow_mut().trace.push(line);
        }
        self.world.apply(event)
    }
}
