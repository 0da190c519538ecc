//! Random explorer: one run per seed. `choose` draws the next event.

mod choose;
mod devices;
mod flow;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    dice::Dice,
    event::Event,
    heal,
    observer::{Property, Violation, WatchedProperties},
    profile::{Plan, Profile},
    seen::SituationCounts,
    world::World,
};

/// Mode in which a run is made.
#[derive(Clone, Copy, Debug)]
pub struct RunMode {
    /// Properties that are checked.
    pub watched_properties: WatchedProperties,
    /// The run continues with the second act, in which all faults end.
    pub with_second_act: bool,
    /// Events are recorded for printing.
    pub record_trace: bool,
}

impl RunMode {
    /// Mode that checks all properties and plays both acts.
    pub const FULL: Self = Self {
        watched_properties: WatchedProperties::ALL,
        with_second_act: true,
        record_trace: false,
    };
}

/// Outcome of a random run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    pub violation: Option<Violation>,
    /// Number of events in the first act.
    pub first_act_events: usize,
    /// Number of slots that have a chosen value.
    pub chosen_slots: u64,
    /// Number of reads answered under a lease.
    pub lease_reads: u64,
    pub situations: SituationCounts,
    /// Era of the chosen prefix at the end of the run.
    pub final_era: u32,
    /// The second act was completed.
    pub second_act_completed: bool,
    /// Descriptions of the events, if requested.
    pub trace: Vec<String>,
}

struct Run {
    plan: Plan,
    dice: Dice,
    world: World,
    mode: RunMode,
    outcome: RunOutcome,
    is_delivered: Vec<bool>,
    value_count: u64,
    change_count: u64,
    read_count: u64,
    /// Number of streams that clients tried to open.
    open_count: u64,
}

/// Runs one seed. A panic in the core counts as a violation.
pub fn run(profile: Profile, seed: u64, mode: RunMode) -> RunOutcome {
    let shared = std::cell::RefCell::new(RunOutcome::default());
    let played = catch_unwind(AssertUnwindSafe(|| play_run(profile, seed, mode, &shared)));
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
            if mode.watched_properties.contains(Property::Assertion) {
                outcome.violation =
                    Some(Violation { property: Property::Assertion, observation: text });
            }
        }
    }
    outcome
}

fn play_run(
    profile: Profile,
    seed: u64,
    mode: RunMode,
    shared: &std::cell::RefCell<RunOutcome>,
) -> Result<(), Violation> {
    let plan = profile.plan(seed);
    let world = World::new(plan.setup.clone(), mode.watched_properties)?;
    let mut run = Run {
        dice: Dice::new(seed, 0),
        plan,
        world,
        mode,
        outcome: RunOutcome::default(),
        is_delivered: Vec::new(),
        value_count: 0,
        change_count: 0,
        read_count: 0,
        open_count: 0,
    };
    if mode.record_trace {
        let founding = &run.plan.setup.founding_configuration;
        let line = format!(
            "{} nodes, founded by {founding}, {:?}; in flight {}, window {}, {:?}",
            run.plan.setup.node_count,
            founding.class(),
            run.plan.setup.inflight_max,
            run.plan.setup.window_slots,
            run.plan.setup.lost_messages,
        );
        shared.borrow_mut().trace.push(line);
    }
    let result = run.play_first_act(shared);
    {
        let mut outcome = shared.borrow_mut();
        outcome.first_act_events = run.outcome.first_act_events;
        outcome.chosen_slots = run.world.observer.chosen_to().0 - 1;
        outcome.lease_reads = run.world.lease_reads;
        outcome.situations = run.world.situations();
        outcome.final_era = run.world.observer.era().0;
    }
    result?;
    if mode.with_second_act {
        let healed = heal::play_second_act(&mut run.world, |line| {
            if mode.record_trace {
                shared.borrow_mut().trace.push(line());
            }
        })?;
        shared.borrow_mut().second_act_completed = healed;
    }
    Ok(())
}

impl Run {
    fn play_first_act(&mut self, shared: &std::cell::RefCell<RunOutcome>) -> Result<(), Violation> {
        while self.outcome.first_act_events < self.plan.first_act_events {
            self.apply_random_event(shared)?;
            self.outcome.first_act_events += 1;
        }
        Ok(())
    }

    fn apply_event(
        &mut self,
        event: &Event,
        shared: &std::cell::RefCell<RunOutcome>,
    ) -> Result<(), Violation> {
        if self.mode.record_trace {
            let line = heal::describe_event(&self.world, event);
            shared.borrow_mut().trace.push(line);
        }
        self.world.apply_event(event)
    }
}
