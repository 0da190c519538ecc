//! Clocks that drift and jump. Each node has its own time, which differs from world time.

use quorate_core::time::Time;

use crate::dice::Dice;

/// Unix time at the start of every run, in milliseconds.
const WALL_START_MS: u64 = 1_700_000_000_000;

/// Monotonic clock and wall clock of one node.
#[derive(Clone, Debug)]
pub struct NodeClock {
    /// Rate of the monotonic clock, in microseconds per second of world time.
    rate_ppm: u64,
    /// World time at which the process started and the monotonic clock read zero.
    started_at: Time,
    /// Offset of the wall clock from world time, in milliseconds.
    wall_offset_ms: i64,
}

impl NodeClock {
    /// Returns a clock without drift or offset.
    pub const fn exact() -> Self {
        Self { rate_ppm: 1_000_000, started_at: Time(0), wall_offset_ms: 0 }
    }

    /// Draws a clock that drifts by up to `drift_ppm` and is wrong by up to `skew_ms`.
    pub fn draw(dice: &mut Dice, drift_ppm: u64, skew_ms: u64) -> Self {
        let rate_ppm = 1_000_000 - drift_ppm + dice.below(2 * drift_ppm + 1);
        let mut clock = Self { rate_ppm, ..Self::exact() };
        clock.jump_wall_clock(dice, skew_ms);
        clock
    }

    /// Restarts the monotonic clock at zero, because the reactor's clock restarts with the process.
    pub fn restart(&mut self, world: Time) {
        self.started_at = world;
    }

    /// Returns the reading of the node's monotonic clock.
    pub fn monotonic_time(&self, world: Time) -> Time {
        let passed =
            u128::from(world.since_us(self.started_at)) * u128::from(self.rate_ppm) / 1_000_000;
        Time(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Returns the world time at which the node's monotonic clock shows `node`. Rounds up, so that
    /// a timer is never early.
    pub fn world_time(&self, node: Time) -> Time {
        let passed = (u128::from(node.0) * 1_000_000).div_ceil(u128::from(self.rate_ppm));
        self.started_at.plus_us(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Returns the reading of the wall clock as Unix time in milliseconds.
    pub fn wall_ms(&self, world: Time) -> u64 {
        (WALL_START_MS + world.0 / 1000).saturating_add_signed(self.wall_offset_ms)
    }

    /// Makes the wall clock wrong by a random amount of up to `skew_ms`.
    pub fn jump_wall_clock(&mut self, dice: &mut Dice, skew_ms: u64) {
        let skew = i64::try_from(skew_ms).unwrap_or(0);
        let drawn = i64::try_from(dice.below(2 * skew_ms + 1)).unwrap_or(0);
        self.wall_offset_ms = drawn - skew;
    }

    /// Makes the wall clock wrong by `ms` milliseconds.
    pub fn set_wall_offset(&mut self, ms: i64) {
        self.wall_offset_ms = ms;
    }

    pub fn clear_wall_offset(&mut self) {
        self.wall_offset_ms = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the time the world wakes a node for a timer, the timer has expired on the node's own
    /// clock.
    #[test]
    fn world_time_of_a_timer_is_never_early() {
        let mut dice = Dice::new(1);
        for _ in 0..1000 {
            let mut clock = NodeClock::draw(&mut dice, 50_000, 10_000);
            clock.restart(Time(dice.below(1 << 40)));
            let timer = Time(dice.below(1 << 40));
            assert!(clock.monotonic_time(clock.world_time(timer)) >= timer);
        }
    }
}
