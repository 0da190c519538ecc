//! Comparison of the store with a plain map. After any operations in any order, both have the same
//! contents. After a crash, the store has those of the map when the last checkpoint began.

use quorate_core::dice::Dice;
use quorate_core::slot::Slot;

use super::shop::{B, Plain, Shop, bytes, name};

const POSITIONS: u64 = 24 * B;

struct Model {
    shop: Shop,
    plain: Plain,
    /// Contents at the last checkpoint known to be complete, and at the one in progress.
    checkpoints: (Slot, Plain),
    in_progress: Option<(Slot, Plain)>,
    next: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            shop: Shop::new(),
            plain: Plain::default(),
            checkpoints: (Slot::FIRST, Plain::default()),
            in_progress: None,
            next: 2,
        }
    }

    fn put(&mut self, dice: &mut Dice) {
        let stream = name(dice.below(3) as u32);
        let length = match dice.below(7) {
            0 => 0,
            1 => 1,
            2 => dice.below(300),
            3 => B,
            4 => 2 * B,
            5 => dice.below(3 * B),
            _ => 5 * B + dice.below(4),
        };
        let position = match dice.below(3) {
            0 => dice.below(POSITIONS),
            1 => dice.below(POSITIONS / B) * B,
            _ => self.shop.store.held_contiguous_to(stream, 0),
        };
        self.shop.put(stream, position, length);
        self.plain.put(stream, position, length);
    }

    fn read(&mut self, dice: &mut Dice) {
        let stream = name(dice.below(3) as u32);
        let position = dice.below(POSITIONS);
        let most = 1 + dice.index(5 * B as usize);
        match self.shop.read(stream, position, most) {
            Ok(read) => {
                assert!(!read.is_empty() && read.len() <= most);
                assert_eq!(read, bytes(stream, position, read.len() as u64));
                let held = position..position + read.len() as u64;
                assert!(held.into_iter().all(|at| self.plain.has(stream, at)));
            }
            Err(error) => assert!(!self.plain.has(stream, position), "{error}"),
        }
    }

    /// Loses bytes, along with those that share their unit.
    fn lose(&mut self, dice: &mut Dice) {
        let stream = name(dice.below(3) as u32);
        let from = dice.below(POSITIONS);
        let to = from + 1 + dice.below(B);
        self.shop.store.drop_damaged(stream, from..to);
        let Some((kept_from, held)) = self.plain.streams.get_mut(&stream) else {
            return;
        };
        let end = held.len() as u64;
        for gap in self.shop.store.missing(stream, *kept_from..end) {
            for at in gap {
                let unit = 2 * B;
                let near = at / unit >= from / unit && at / unit <= (to - 1) / unit;
                assert!(near || !held[at as usize], "{at} of {from}..{to}");
                held[at as usize] = false;
            }
        }
    }

    fn look_at_checkpoint(&mut self) {
        if let Some((at, plain)) = self.in_progress.take() {
            if self.shop.store.checkpointed_to() == at {
                self.checkpoints = (at, plain);
            } else {
                self.in_progress = Some((at, plain));
            }
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        match dice.below(40) {
            0..15 => self.put(dice),
            15..20 => self.read(dice),
            20..32 => {
                for _ in 0..dice.below(6) {
                    self.shop.turn();
                }
            }
            32 => {
                let (stream, to) = (name(dice.below(3) as u32), dice.below(POSITIONS));
                self.shop.store.drop_below(stream, to);
                self.plain.drop_below(stream, to);
            }
            33 if dice.below(4) == 0 => {
                let stream = name(dice.below(3) as u32);
                self.shop.store.remove_stream(stream);
                self.plain.streams.remove(&stream);
            }
            34 => self.lose(dice),
            35..38 => {
                let at = Slot(self.next);
                if self.shop.store.start_checkpoint(at, &mut self.shop.disk) {
                    self.next += 1;
                    assert_eq!(self.in_progress, None, "one at a time");
                    self.in_progress = Some((at, self.plain.clone()));
                }
            }
            38 if dice.below(3) == 0 => self.crash(dice),
            39 if dice.below(3) == 0 => {
                assert_eq!(self.shop.held_contents(), self.plain.trimmed());
            }
            _ => {}
        }
        self.look_at_checkpoint();
        assert_eq!(self.shop.store.failure(), None);
    }

    fn crash(&mut self, dice: &mut Dice) {
        self.shop.crash(dice.word());
        let at = self.shop.store.checkpointed_to();
        if let Some((begun, plain)) = self.in_progress.take()
            && begun == at
        {
            self.checkpoints = (begun, plain);
        }
        assert_eq!(self.checkpoints.0, at, "no checkpoint is lost");
        self.plain = self.checkpoints.1.clone();
        assert_eq!(self.shop.held_contents(), self.plain.trimmed());
    }
}

#[test]
fn the_store_is_a_map_that_survives_from_checkpoint_to_checkpoint() {
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut model = Model::new();
        for _ in 0..120 {
            model.step(&mut dice);
        }
        model.shop.settle();
        model.look_at_checkpoint();
        assert_eq!(model.shop.held_contents(), model.plain.trimmed(), "seed {seed}");
        assert_eq!(model.in_progress, None, "seed {seed}: a checkpoint ends");
    }
}
