//! Enumerates all outcomes of a crash for the operations in flight, for exhaustive tests.

use super::Fates;

#[derive(Debug, Default)]
pub struct EveryFate {
    /// Choices made so far, each with the number of alternatives.
    choices: Vec<(usize, usize)>,
    at: usize,
    pattern: usize,
}

impl EveryFate {
    /// Advances to the next outcome. Returns `false` when all have been tried.
    pub fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.choices.pop() {
            if chosen + 1 < of {
                self.choices.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

impl Fates for EveryFate {
    fn choose(&mut self, of: usize) -> usize {
        if self.at == self.choices.len() {
            self.choices.push((0, of));
        }
        self.at += 1;
        self.choices[self.at - 1].0
    }

    /// A torn write takes one of three forms: without its header, without its last sector, or with
    /// only every other sector.
    fn arrives(&mut self, sector: usize, of: usize) -> bool {
        if sector == 0 {
            self.pattern = self.choose(3);
        }
        match self.pattern {
            0 => sector > 0,
            1 => sector + 1 < of,
            _ => sector.is_multiple_of(2),
        }
    }
}
