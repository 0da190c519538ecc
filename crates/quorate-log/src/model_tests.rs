//! Random lives of a log on a disk that tears and loses what is in flight (`protocol.md` §17).
//!
//! A run appends records, submits, lets writes complete in any order, crashes, recovers, four times
//! over. What recovery gives back must be a beginning of what was appended in this history, and
//! must hold everything that was ever released or recovered. The rules are then left out one by
//! one: each time some run must notice.

use quorate_core::{
    ballot::Ballot,
    node_id::{Incarnation, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};
use quorate_disk::MemoryDisk;

use crate::{
    Log, LogOptions,
    mutant::{Mutant, with},
};

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct Run {
    disk: MemoryDisk,
    dice: Dice,
    options: LogOptions,
    /// The round of the vote in each slot, from the first slot on.
    history: Vec<u32>,
    /// How many of them must never be lost.
    kept: usize,
    next_round: u32,
    /// Most runs have writes of all sizes; some have equal ones, so that stale ones fit.
    sizes: u64,
}

impl Run {
    fn new(seed: u64, segment_bytes: u64) -> Self {
        let disk = MemoryDisk::new();
        disk.set_manual(true);
        let options = LogOptions {
            segment_bytes,
            write_bytes_max: 8 << 10,
            depth: 1 + (seed % 3) as usize,
            ..LogOptions::new(7, NodeId(1), Incarnation(0))
        };
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self {
            disk,
            dice,
            options,
            history: Vec::new(),
            kept: 0,
            next_round: 1,
            sizes: [5, 5, 3][(seed / 3 % 3) as usize],
        }
    }

    fn life(&mut self) -> Result<(), String> {
        let opened = Log::open(self.disk.attach(), self.options).map_err(|e| e.to_string())?;
        let (mut log, recovery) = opened;
        if let Some(damage) = recovery.damage {
            return Err(format!("false damage: {damage:?}"));
        }
        let found: Vec<_> = recovery
            .votes
            .iter()
            .map(|vote| vote.ballot.round)
            .collect();
        if found.len() < self.kept {
            return Err(format!(
                "{} of {} released records are there",
                found.len(),
                self.kept
            ));
        }
        if found[..] != self.history[..found.len().min(self.history.len())] {
            return Err(format!("recovered {found:?}, appended {:?}", self.history));
        }
        let hard = recovery.hard;
        let promised = found.last().copied().unwrap_or(0);
        if hard.voted_to != Slot(found.len() as u64 + 1) || hard.promised.round != promised {
            return Err(format!("hard state {hard:?} after {} records", found.len()));
        }
        // From here on the node acts on what it remembers.
        self.history = found;
        self.kept = self.history.len();
        let base = self.kept;
        for _ in 0..self.dice.below(50) {
            self.event(&mut log, base)?;
        }
        Ok(())
    }

    fn event(&mut self, log: &mut Log<MemoryDisk>, base: usize) -> Result<(), String> {
        match self.dice.below(7) {
            0 | 1 => {
                for _ in 0..=self.dice.below(2) {
                    self.append(log, base);
                }
            }
            2..=4 => log.submit(),
            5 => {
                let pending = self.disk.pending();
                if !pending.is_empty() {
                    let choice = self.dice.below(pending.len() as u64);
                    self.disk.complete(pending[choice as usize].id);
                }
            }
            _ => {
                let released = log.poll().map_err(|error| error.to_string())?;
                self.kept = self.kept.max(base + released.0 as usize);
            }
        }
        Ok(())
    }

    fn append(&mut self, log: &mut Log<MemoryDisk>, base: usize) {
        let ballot = Ballot {
            round: self.next_round,
            node: NodeId(1),
            ..Ballot::ZERO
        };
        self.history.push(self.next_round);
        self.next_round += 1;
        let slot = Slot(self.history.len() as u64);
        let record = Record::Vote {
            ballot,
            range: SlotRange::one(slot),
            value: Value::NoOp,
        };
        let hard = HardState {
            promised: ballot,
            voted_to: slot.next(),
            decided_to: Slot::FIRST,
            ..HardState::default()
        };
        let length = [0, 0, 0, 5000, 9000][self.dice.below(self.sizes) as usize];
        let bytes = vec![self.next_round as u8 | 1; length];
        log.append(
            RecordSeq((self.history.len() - base) as u64),
            &record,
            &bytes,
            hard,
        )
        .unwrap();
    }

    fn all(&mut self) -> Result<(), String> {
        for _ in 0..4 {
            self.life()?;
            let seed = self.dice.below(u64::MAX);
            self.disk.crash(seed);
        }
        self.life()
    }
}

/// How many of the runs break, and the first that does.
fn broken(runs: u64, segment_bytes: u64, mutants: &[Mutant]) -> (u64, Option<(u64, String)>) {
    with(mutants, || {
        let (mut count, mut first) = (0, None);
        for seed in 0..runs {
            if let Err(why) = Run::new(seed, segment_bytes).all() {
                count += 1;
                first.get_or_insert((seed, why));
            }
        }
        (count, first)
    })
}

/// One or two writes fill a segment; five or so; all of them fit.
const SEGMENTS: [u64; 3] = [16 << 10, 32 << 10, 128 << 10];

#[test]
fn no_released_record_is_ever_lost_and_no_damage_is_made_up() {
    for segment_bytes in SEGMENTS {
        assert_eq!(
            broken(3_000, segment_bytes, &[]).1,
            None,
            "segments of {segment_bytes}"
        );
    }
}

/// [disk-2]
#[test]
fn releasing_out_of_order_loses_records() {
    for segment_bytes in SEGMENTS {
        let (count, _) = broken(300, segment_bytes, &[Mutant::ReleaseOutOfOrder]);
        assert!(count > 2, "{count} runs break");
    }
}

/// [disk-3] In one segment that is written on behind a cut, the chain alone keeps stale writes
/// out: with it no run breaks, without it stale writes come back.
#[test]
fn without_the_chain_stale_writes_come_back() {
    let kept = Mutant::SegmentKeptAfterCut;
    assert_eq!(broken(300, 512 << 10, &[kept]).1, None);
    let (count, _) = broken(300, 512 << 10, &[kept, Mutant::ChainIgnored]);
    assert!(count > 2, "{count} runs break");
}

/// [disk-4] What later segments say of their beginning is a second guard, and it relies on fresh
/// segments behind a cut: with them, stale writes stay out even without the chain.
#[test]
fn writing_on_behind_a_cut_loses_records() {
    for segment_bytes in SEGMENTS {
        assert_eq!(broken(400, segment_bytes, &[Mutant::ChainIgnored]).1, None);
    }
    let (count, _) = broken(1_000, 16 << 10, &[Mutant::SegmentKeptAfterCut]);
    assert!(count > 2, "{count} runs break");
}

/// A write that was in flight at one crash, and was read, may be gone after the next.
#[test]
fn what_recovery_read_is_synced_before_it_is_built_on() {
    for segment_bytes in SEGMENTS {
        let (count, _) = broken(300, segment_bytes, &[Mutant::RecoveryUnsynced]);
        assert!(count > 2, "{count} runs break");
    }
}
