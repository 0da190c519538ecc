//! Enumerates all outcomes of a crash for the operations in flight, for exhaustive tests.

use super::CrashFates;

#[derive(Debug, Default)]
pub struct EveryFate {
    /// Choices made so far, each with the number of alternatives.
    choices_made: Vec<(usize, usize)>,
    next_choice: usize,
    torn_pattern: usize,
}

impl EveryFate {
    /// Advances to the next outcome. Returns `false` when all have been tried.
    pub fn next_outcome(&mut self) -> bool {
        self.next_choice = 0;
        while let Some((chosen, of)) = self.choices_made.pop() {
            if chosen + 1 < of {
                self.choices_made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

impl CrashFates for EveryFate {
    fn choose(&mut self, of: usize) -> usize {
        if self.next_choice == self.choices_made.len() {
            self.choices_made.push((0, of));
        }
        self.next_choice += 1;
        self.choices_made[self.next_choice - 1].0
    }

    /// A torn write takes one of three forms: without its header, without its last sector, or with
    /// only every other sector.
    fn is_sector_stored(&mut self, sector: usize, of: usize) -> bool {
        if sector == 0 {
            self.torn_pattern = self.choose(3);
        }
        match self.torn_pattern {
            0 => sector > 0,
            1 => sector + 1 < of,
            _ => sector.is_multiple_of(2),
        }
    }
}
