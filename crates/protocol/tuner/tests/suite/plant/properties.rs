//! Properties that hold for any stream of samples, however odd.

use quorate_tuner::{
    CompletedBatch, Moment, ReactorTurn, Setting, SettingBounds, SettingChange, Settings, Tuner,
};

use crate::plant::{dice::Dice, plant::Plant, scenario, tuned::Tuned};

/// Feeds meaningless samples with jumping times to the tuner. The bounds must hold, and nothing may
/// panic.
fn nonsense(seed: u64, settings: Settings) -> Vec<SettingChange> {
    let mut dice = Dice::new(seed);
    let mut tuner = Tuner::new(settings);
    let mut now = 1_000_000_000_u64;
    let mut changes = Vec::new();
    let span = dice.scale(1e3, 1e7);
    for _ in 0..20_000 {
        now += dice.interval(span) as u64;
        if dice.chance(0.0005) {
            now = now.saturating_sub(dice.scale(1e3, 1e10) as u64);
        }
        if dice.chance(0.0005) {
            now += dice.scale(1e6, 1e11) as u64;
        }
        let at = Moment(now);
        let ago = |dice: &mut Dice| Moment(now.saturating_sub(dice.scale(1.0, 1e9) as u64));
        let peer = (dice.word() % 20) as usize;
        let slot = dice.word() % 1_000;
        let bytes = dice.scale(1.0, 1e7) as usize;
        let strange = dice.chance(0.01);
        match dice.word() % 8 {
            0 => tuner.on_sent(at, peer, slot, bytes),
            1 => tuner.on_voted(at, peer, slot),
            2 => tuner.on_heartbeat_sent(at, peer, slot),
            3 => tuner.on_heartbeat_reply(at, peer, slot),
            4 => tuner.on_flush(ago(&mut dice), at, bytes),
            5 | 6 => tuner.on_done(
                at,
                &CompletedBatch {
                    first_accepted_at: ago(&mut dice),
                    last_accepted_at: ago(&mut dice),
                    formed_at: if strange {
                        Moment(u64::MAX)
                    } else {
                        Moment(now.saturating_sub(span as u64))
                    },
                    commands: if strange { u32::MAX } else { (dice.word() % 1_000) as u32 },
                    bytes: if strange { usize::MAX / 4 } else { bytes },
                },
            ),
            _ => {
                let turn = ReactorTurn {
                    woke_at: ago(&mut dice),
                    ended: at,
                    next_wake_by: dice.chance(0.5).then_some(Moment(now + 20_000_000)),
                    commands: (dice.word() % 1_000) as u32,
                    batches: (dice.word() % 10) as u32,
                    batch_bytes: bytes,
                    batch_commands: (dice.word() % 1_000) as u32,
                    waiting_commands: (dice.word() % 1_000) as usize,
                    in_flight: (dice.word() % 100) as usize,
                };
                let turn = if dice.chance(0.9) {
                    ReactorTurn { woke_at: Moment(now - now.min(1_000)), ..turn }
                } else {
                    turn
                };
                changes.extend(tuner.on_turn(&turn));
            }
        }
        let setting = tuner.setting();
        assert_eq!(settings.bounds.clamp(setting), setting, "seed {seed}: {setting}");
    }
    let report = tuner.report();
    assert!(!report.reason.is_empty());
    changes
}

#[test]
fn bounds_hold_for_any_samples_and_equal_samples_give_equal_decisions() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let mut settings = Settings::new(dice.pick(&[1, 3, 5, 7]));
        settings.bounds = SettingBounds {
            batch_bytes_max: dice.scale(1.0, 4e6) as usize,
            window_max: dice.scale(1.0, 200.0) as usize,
        };
        settings.start = Setting {
            batch_bytes: dice.scale(1.0, 4e6) as usize,
            window: dice.scale(1.0, 100.0) as usize,
        };
        settings.latency_goal_ns = dice.chance(0.3).then_some(5_000_000);
        assert_eq!(nonsense(seed, settings), nonsense(seed, settings));
    }
}

/// Bounds of zero count as one, because an empty batch or window would stop a replica.
#[test]
fn a_window_or_batch_of_nothing_is_impossible() {
    let mut settings = Settings::new(3);
    settings.bounds = SettingBounds { batch_bytes_max: 0, window_max: 0 };
    assert_eq!(Tuner::new(settings).setting(), Setting { batch_bytes: 1, window: 1 });
}

/// In a constant environment the tuner converges, and no command waits forever.
#[test]
fn it_comes_to_rest_and_nobody_starves() {
    for scenario in scenario::drawn(99, 12) {
        let mut plant = Plant::new(&scenario, Tuned::new(Settings::new(scenario.nodes)));
        plant.run(4_000_000_000, u64::MAX);
        let moves = plant.policy.tuner.permanent_changes();
        let changes = plant.policy.changes.len();
        let measured = plant.run(12_000_000_000, u64::MAX);
        let moved = plant.policy.tuner.permanent_changes() - moves;
        let probed = plant.policy.changes.len() - changes;
        assert!(moved <= 4, "{}: {moved} moves", scenario.name);
        assert!(probed <= 60, "{}: {probed} changes", scenario.name);
        assert!(measured.commands > 0, "{}", scenario.name);
        let (typical, worst) = (measured.latency_ms(0.5), measured.latency_ms(1.0));
        let most = typical * 12.0 + 2_500.0;
        assert!(worst <= most, "{}: {worst} ms against {typical} ms", scenario.name);
    }
}
