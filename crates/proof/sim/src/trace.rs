//! Trace of a run, with one aligned line per event. The legend is in `docs/spec/simulator.md`.

use std::{collections::VecDeque, fmt};

use quorate_core::time::Time;

use crate::dice::mix;

/// Number of lines in a report.
pub const LINES_KEPT: usize = 50;

/// Trace of a run, consisting of its last lines and a hash over all lines.
#[derive(Debug)]
pub struct RunTrace {
    lines: VecDeque<String>,
    /// Maximum number of retained lines.
    pub retained_max: usize,
    running_hash: u64,
    line_count: u64,
    /// Set if every frame is traced with its contents.
    pub traces_frames: bool,
}

impl RunTrace {
    pub fn new(keep: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            retained_max: keep,
            running_hash: 0,
            line_count: 0,
            traces_frames: false,
        }
    }

    pub fn add_line(&mut self, now: Time, who: &str, what: &str, detail: fmt::Arguments<'_>) {
        let line = format!(
            "{:>4}.{:06} {who:<5} {what:<8} {detail}",
            now.0 / 1_000_000,
            now.0 % 1_000_000
        );
        for chunk in line.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.running_hash = mix(self.running_hash ^ u64::from_le_bytes(word)).wrapping_add(1);
        }
        self.line_count += 1;
        if self.lines.len() >= self.retained_max {
            self.lines.pop_front();
        }
        self.lines.push_back(line.trim_end().to_owned());
    }

    /// Returns the last lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Returns the hash over all lines. Identical runs have identical hashes.
    pub fn final_hash(&self) -> u64 {
        mix(self.running_hash ^ self.line_count)
    }
}
