//! Hostile catalogues: the corpus of the fuzz target `catalogue`, and mutations of it.

mod catalogues;

use crate::driver::{self, Seed};
use quorate_core::{node_id::NodeId, slot::Slot, value::StreamName};
use quorate_log::disk::{Disk as _, MemoryDisk};
use quorate_stream::store::Store;

/// Stream, position and length of a put, and the position below which to drop afterwards.
type Put = (u32, u64, usize, u64);

/// Returns the catalogue that a store writes after `puts`.
fn catalogue(puts: &[Put], flags: u8) -> Vec<u8> {
    let mut disk = MemoryDisk::new();
    let mut store =
        Store::open(&mut disk, catalogues::LIMITS, catalogues::TINY).expect("an empty disk");
    let settle = |store: &mut Store, disk: &mut MemoryDisk| {
        loop {
            store.advance(disk);
            match disk.poll() {
                Some(completed) => store.on_completed(completed, disk),
                None if disk.pending().is_empty() => return,
                None => {}
            }
        }
    };
    for (number, position, length, below) in puts {
        let stream = StreamName { owner: NodeId(1), boot: 2, number: *number };
        store.put_bytes(stream, *position, &vec![b'x'; *length], &mut disk);
        settle(&mut store, &mut disk);
        store.drop_below(stream, *below);
    }
    assert!(store.start_checkpoint(Slot(9), &mut disk));
    settle(&mut store, &mut disk);
    let mut packed = vec![flags];
    packed.extend(catalogues::current(&mut disk));
    packed
}

fn seeds() -> Vec<Seed> {
    let block = 4096;
    let all: [(&str, &[Put]); 6] = [
        ("nothing", &[]),
        ("a-tail", &[(1, 0, 100, 0)]),
        ("blocks", &[(1, 0, 3 * block + 5, 0)]),
        ("gaps", &[(1, 9, 5000, 0), (1, 20_000, 9000, 0)]),
        ("dropped", &[(1, 0, 40_000, 9_000), (2, 10, 10, 100)]),
        ("many", &[(1, 0, 50, 0), (2, 0, 5000, 1), (7, 3, 9, 0)]),
    ];
    let mut seeds = Vec::new();
    for flags in [0, catalogues::SEALED] {
        for (name, puts) in all {
            seeds.push(Seed { name: format!("{name}-{flags}"), bytes: catalogue(puts, flags) });
        }
    }
    seeds
}

#[test]
fn no_bytes_of_a_catalogue_break_the_store() {
    driver::run("catalogue", &seeds(), 40_000, catalogues::check);
}

/// The seeds can be opened; otherwise all mutations would be refused at once.
#[test]
fn the_seeds_can_be_opened() {
    for seed in seeds() {
        let sealed = seed.bytes[0] == catalogues::SEALED;
        let opened = catalogues::open(&seed.bytes).is_some();
        assert_eq!(opened, sealed, "{}", seed.name);
    }
}
