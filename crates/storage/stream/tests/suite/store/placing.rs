//! Placed units and the records that name them. After a crash, the store has the contents of the
//! last checkpoint and of the units named in records since.

use quorate_core::dice::Dice;
use quorate_core::{slot::Slot, value::StreamName};
use quorate_log::disk::BlockPool;
use quorate_stream::store::{StoredPlace, UnitBytes};

use super::shop::{B, Plain, Shop, bytes, name};

const UNIT: u64 = 2 * B;
const UNITS: u64 = 12;

/// An entry of the log, with the last checkpoint begun before it.
#[derive(Clone, Debug)]
enum Logged {
    Placed(StreamName, u64, Vec<u8>),
    DroppedBelow(StreamName, u64),
    Closed(StreamName, u64),
    Removed(StreamName),
}

struct Model {
    shop: Shop,
    pool: BlockPool,
    plain: Plain,
    log: Vec<(Slot, Logged)>,
    /// Bytes that are placed and not yet named by a record.
    unsaid: Vec<(StreamName, u64)>,
    /// Streams that accept more bytes. The numbers of removed ones are not reused.
    open: Vec<StreamName>,
    closed: Vec<(StreamName, u64)>,
    numbers: u32,
    checkpoints: (Slot, Plain),
    in_progress: Option<(Slot, Plain)>,
    last_begun: Slot,
    placed: u64,
    claimed: u64,
}

impl Model {
    fn new() -> Self {
        let mut model = Self {
            shop: Shop::new(),
            pool: BlockPool::new(UNIT as usize, 2),
            plain: Plain::default(),
            log: Vec::new(),
            unsaid: Vec::new(),
            open: Vec::new(),
            closed: Vec::new(),
            numbers: 0,
            checkpoints: (Slot::FIRST, Plain::default()),
            in_progress: None,
            last_begun: Slot::FIRST,
            placed: 0,
            claimed: 0,
        };
        model.open_streams();
        model
    }

    fn open_streams(&mut self) {
        while self.open.len() < 3 {
            self.numbers += 1;
            self.open.push(name(self.numbers));
        }
    }

    fn log(&mut self, what: Logged) {
        self.log.push((self.last_begun, what));
    }

    fn place(&mut self, dice: &mut Dice) {
        let stream = self.open[dice.index(3)];
        let position = dice.below(UNITS) * UNIT;
        let length = UNIT * (1 + dice.below(2));
        // The memory that contains them may begin earlier, and not at a block boundary.
        let before = dice.below(2) * dice.below(position.min(3 * B) + 1);
        let from = position - before;
        let bytes = bytes(stream, from, before + length);
        let mut filling = self.pool.start_filling(from, bytes.len());
        filling.append_bytes(&bytes);
        let blocks = filling.into_blocks();
        let units = before as usize..bytes.len();
        let bulk = match dice.below(2) {
            0 => UnitBytes::to_copy(&bytes[units]),
            _ => UnitBytes::shared(&blocks, units),
        };
        let Shop { store, disk } = &mut self.shop;
        if store.place_units(stream, position, bulk, disk) {
            assert!((position..position + length).all(|at| !self.plain.has(stream, at)));
            self.plain.put(stream, position, length);
            self.placed += length / UNIT;
        }
    }

    /// Names bytes on stable storage in records: at once, much later, or never.
    fn name_bytes(&mut self, dice: &mut Dice) {
        while let Some((stream, range)) = self.shop.store.next_durable_placed() {
            assert!((range.end - range.start).is_multiple_of(UNIT));
            let units = range.step_by(UNIT as usize);
            self.unsaid.extend(units.map(|unit| (stream, unit)));
        }
        if self.unsaid.is_empty() || dice.below(3) == 0 {
            return;
        }
        let (stream, position) = self.unsaid.remove(dice.index(self.unsaid.len()));
        let range = position..position + UNIT;
        if let Some(places) = self.shop.store.places(stream, range) {
            let said = Logged::Placed(stream, position, StoredPlace::encode_all(&places));
            self.log(said);
        }
    }

    fn end(&mut self, dice: &mut Dice) {
        let at = dice.index(3);
        let stream = self.open[at];
        match dice.below(3) {
            0 => {
                let to = dice.below(UNITS * UNIT);
                self.shop.store.drop_below(stream, to);
                self.plain.drop_below(stream, to);
                self.log(Logged::DroppedBelow(stream, to));
                return;
            }
            1 => {
                let end = dice.below(UNITS * UNIT);
                self.shop.store.drop_above(stream, end);
                drop_above(&mut self.plain, stream, end);
                self.log(Logged::Closed(stream, end));
            }
            _ => {
                self.shop.store.remove_stream(stream);
                self.plain.streams.remove(&stream);
                self.log(Logged::Removed(stream));
            }
        }
        self.unsaid.retain(|(of, _)| *of != stream);
        self.open.remove(at);
        self.open_streams();
    }

    fn compare(&mut self) {
        let (held, plain) = (self.shop.held_contents(), self.plain.trimmed());
        let same = held == plain;
        assert!(same, "held:\n{}but:\n{}", held.ranges(), plain.ranges());
    }

    fn look_at_checkpoint(&mut self) {
        let at = self.shop.store.checkpointed_to();
        if let Some(kept) = self.in_progress.take_if(|(begun, _)| *begun == at) {
            self.checkpoints = kept;
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        match dice.below(40) {
            0..14 => self.place(dice),
            14..17 => {
                // Puts to the same chunks. After a crash only those in a checkpoint remain.
                let stream = self.open[dice.index(3)];
                let (position, length) = (dice.below(UNITS * UNIT), dice.below(3 * B));
                self.shop.put(stream, position, length);
                self.plain.put(stream, position, length);
            }
            17..30 => {
                for _ in 0..dice.below(6) {
                    self.shop.turn();
                }
            }
            30..34 => self.name_bytes(dice),
            34 => self.end(dice),
            35..38 => {
                let at = self.last_begun.next();
                if self.shop.store.start_checkpoint(at, &mut self.shop.disk) {
                    self.last_begun = at;
                    self.in_progress = Some((at, self.plain.clone()));
                }
            }
            38 if dice.below(3) == 0 => self.crash(dice),
            39 => self.compare(),
            _ => {}
        }
        self.look_at_checkpoint();
        assert_eq!(self.shop.store.failure(), None);
    }

    fn crash(&mut self, dice: &mut Dice) {
        self.shop.crash(dice.word());
        self.look_at_checkpoint();
        let at = self.shop.store.checkpointed_to();
        assert_eq!(self.checkpoints.0, at, "no checkpoint is lost");
        // Log entries older than the checkpoint are not needed, but a catalogue does not record
        // where a stream ends within a block.
        for (_, logged) in self.log.extract_if(.., |(slot, _)| *slot < at) {
            if let Logged::Closed(stream, end) = logged {
                self.closed.push((stream, end));
            }
        }
        for (stream, end) in &self.closed {
            self.shop.store.drop_above(*stream, *end);
        }
        (self.last_begun, self.in_progress) = (at, None);
        self.unsaid.clear();
        self.plain = self.checkpoints.1.clone();
        let said = self.log.iter().filter_map(|(_, logged)| match logged {
            Logged::Placed(stream, _, places) => {
                Some((*stream, StoredPlace::decode_all(places).expect("as encoded")))
            }
            _ => None,
        });
        let said: Vec<_> = said.collect();
        self.claimed += said.len() as u64;
        self.shop.store.claim_recorded_places(said, &mut self.shop.disk);
        for (_, logged) in &mut self.log {
            // The entry follows the checkpoint in force.
            match *logged {
                Logged::Placed(stream, position, _) => self.plain.put(stream, position, UNIT),
                Logged::DroppedBelow(stream, to) => {
                    self.shop.store.drop_below(stream, to);
                    self.plain.drop_below(stream, to);
                }
                Logged::Closed(stream, end) => {
                    self.shop.store.drop_above(stream, end);
                    drop_above(&mut self.plain, stream, end);
                }
                Logged::Removed(stream) => {
                    self.shop.store.remove_stream(stream);
                    self.plain.streams.remove(&stream);
                }
            }
        }
        for (slot, _) in &mut self.log {
            *slot = at;
        }
        // Nothing may be written before this point.
        self.compare();
    }
}

fn drop_above(plain: &mut Plain, stream: StreamName, end: u64) {
    if let Some((_, held)) = plain.streams.get_mut(&stream) {
        held.truncate(end as usize);
    }
}

#[test]
fn what_records_say_survives_beside_what_checkpoints_hold() {
    let (mut placed, mut claimed) = (0, 0);
    for seed in 0..600 {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let mut model = Model::new();
        for _ in 0..150 {
            model.step(&mut dice);
        }
        model.shop.settle();
        model.compare();
        placed += model.placed;
        claimed += model.claimed;
    }
    assert!(placed > 5_000 && claimed > 500, "{placed} {claimed}");
}
