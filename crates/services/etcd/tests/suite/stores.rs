//! Both stores have the same contents, whatever happens to the one on disk: it returns to any
//! commit, its disk fails, and each loads images of the other.

mod failing;

use std::ops::Range;

use quorate::{CommandId, Health, Slot, StateMachine as _};
use quorate_etcd::{
    check,
    command::{Command, LeaseGrant, LeaseKeepAlives},
    proto::etcdserverpb::{CompactionRequest, LeaseRevokeRequest},
    service::Service,
};

use crate::{
    common::{Home, image, load},
    dice::Dice,
    hashes::hash,
    random,
    sizes::summed,
};

/// Returns a command that a client or the leader may propose.
fn command(dice: &mut Dice, revision: i64) -> Command {
    let id = dice.between(1, 4);
    match dice.below(12) {
        0..4 => Command::Put(random::put(dice)),
        4 => Command::Delete(random::delete(dice)),
        5..8 => Command::Txn(random::txn(dice, revision, 2)),
        8 => Command::Compact(CompactionRequest {
            revision: dice.between((revision - 8).max(0), revision + 1),
            physical: false,
        }),
        9 => Command::Scrub,
        10 => Command::Grant(LeaseGrant { id, ttl: dice.between(1, 3), now_ms: 0 }),
        _ => match dice.below(3) {
            0 => Command::Revoke(LeaseRevokeRequest { id }),
            1 => Command::Expire,
            _ => Command::KeepAlive(LeaseKeepAlives { ids: vec![id], now_ms: 0, auth_revision: 0 }),
        },
    }
}

fn is_let_in(command: &Command) -> bool {
    match command {
        Command::Put(put) => check::check_put(put).is_ok(),
        Command::Txn(txn) => check::check_txn(txn).is_ok(),
        _ => true,
    }
}

/// Commands, with the group's time and the response of the service in memory.
#[derive(Default)]
struct Log(Vec<(u64, Vec<u8>, Vec<u8>)>);

impl Log {
    /// Appends up to `most` commands, executed by this service.
    fn grow(&mut self, service: &mut Service, dice: &mut Dice, most: usize) {
        for _ in 0..most {
            let time = self.0.last().map_or(0, |(time, ..)| *time) + dice.next() % 300;
            let command = command(dice, service.mvcc().revision());
            if is_let_in(&command) {
                self.0.push((time, command.encode(), Vec::new()));
                let last = self.0.len() - 1;
                let (at, _) = self.apply(service, last..last + 1).unwrap();
                assert_eq!(at, last + 1);
            }
        }
    }

    /// Executes commands and commits. Returns the position reached and whether all responses equal
    /// the earlier ones; `None` if the service failed.
    fn apply(&mut self, service: &mut Service, range: Range<usize>) -> Option<(usize, bool)> {
        let mut same = true;
        for at in range.clone() {
            let (time, command, expected) = &mut self.0[at];
            let id = CommandId { slot: slot(at), index: 0 };
            service.set_time(*time);
            let mut reply = Vec::new();
            service.apply(id, command, &mut reply);
            if service.has_failed() {
                return None;
            }
            if expected.is_empty() {
                *expected = reply;
            } else {
                same &= *expected == reply;
            }
        }
        service.commit(slot(range.end), &[]);
        Some((range.end, same))
    }
}

fn slot(at: usize) -> Slot {
    Slot(Slot::FIRST.0 + at as u64)
}

fn commands_before(slot: Slot) -> usize {
    usize::try_from(slot.0 - Slot::FIRST.0).unwrap()
}

fn compare(one: &mut Service, other: &mut Service, log: &Log) {
    let time = log.0.last().map_or(0, |(time, ..)| *time);
    for service in [&mut *one, &mut *other] {
        service.set_time(time);
        assert_eq!(service.mvcc().bytes(), summed(service));
    }
    assert_eq!(one.digest(), other.digest());
    assert_eq!(hash(one, 0), hash(other, 0));
    assert_eq!(one.next_deadline(u64::MAX), other.next_deadline(u64::MAX));
    assert_eq!(image(one, 300), image(other, 700));
}

/// A store on disk that executes the log in batches and returns to earlier commits ends in the same
/// state.
#[test]
fn a_store_that_goes_back_to_any_commit_comes_to_the_same() {
    let mut returns = 0;
    for seed in 0..8 {
        let mut dice = Dice::new(seed);
        let (mut model, mut disk) = (Home::in_memory(), Home::on_disk());
        let (mut log, mut at) = (Log::default(), 0);
        for _ in 0..4 {
            log.grow(&mut model, &mut dice, 100);
            while at < log.0.len() {
                let to = (at + 1 + dice.below(5)).min(log.0.len());
                let goes_back = dice.one_in(25);
                if goes_back {
                    // Later data stays in memory and is lost.
                    disk.logged(slot(at));
                }
                let (now, same) = log.apply(&mut disk, at..to).unwrap();
                assert!(same, "{at}");
                if goes_back {
                    let back = commands_before(disk.restart());
                    assert!(back <= at, "{back}");
                    (at, returns) = (back, returns + 1);
                } else {
                    at = now;
                }
            }
            compare(&mut model, &mut disk, &log);
        }
    }
    assert!(returns > 10, "{returns}");
}

#[test]
fn an_image_of_either_store_goes_into_the_other() {
    for seed in 50..56 {
        let mut dice = Dice::new(seed);
        let (mut model, mut log) = (Home::in_memory(), Log::default());
        log.grow(&mut model, &mut dice, 150);
        let items = image(&mut model, 500);
        let mut disk = Home::on_disk();
        // The store had other contents before.
        let mut other = Log::default();
        other.grow(&mut disk, &mut dice, 30);
        load(&mut disk, &items);
        compare(&mut model, &mut disk, &log);
        if dice.one_in(2) {
            disk.restart();
        }
        let from = log.0.len();
        log.grow(&mut model, &mut dice, 50);
        let to = log.0.len();
        assert_eq!(log.apply(&mut disk, from..to), Some((to, true)));
        compare(&mut model, &mut disk, &log);
        let mut back = Home::in_memory();
        load(&mut back, &image(&mut disk, 200));
        compare(&mut back, &mut model, &log);
    }
}

/// An image does not contain commands that arrive while it is taken.
#[test]
fn an_image_of_the_store_on_disk_is_of_one_moment() {
    let mut dice = Dice::new(77);
    let (mut disk, mut log) = (Home::on_disk(), Log::default());
    log.grow(&mut disk, &mut dice, 150);
    let before = image(&mut disk, 100);
    assert!(disk.begin_image());
    let mut items = Vec::new();
    while disk.next_image(100, &mut |item| items.push(item.to_vec())) == quorate::Imaged::More {
        log.grow(&mut disk, &mut dice, 3);
    }
    assert_eq!(items, before);
    assert_ne!(image(&mut disk, 100), before);
    assert_eq!(disk.health(), Health::Well);
}
