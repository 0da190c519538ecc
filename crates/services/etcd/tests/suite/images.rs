//! State images: consistent at one point in time, identical on every node, refused if inconsistent.

use quorate::{Imaged, LoadError, Slot, StateMachine as _};
use quorate_etcd::{
    check,
    command::Command,
    image,
    proto::etcdserverpb::{PutRequest, PutResponse, RangeRequest},
    refusal::Refusal,
    service::Service,
};

use crate::{
    common::{apply, apply_bytes, image, loaded, range, service},
    dice::Dice,
    random,
};

fn filled(seed: u64, puts: usize) -> Service {
    let mut service = service();
    change(&mut service, &mut Dice::new(seed), puts);
    service
}

fn change(service: &mut Service, dice: &mut Dice, puts: usize) {
    for _ in 0..puts {
        let request = random::put(dice);
        if check::check_put(&request).is_ok() {
            let _ = apply::<PutResponse>(service, &Command::Put(request));
        }
    }
}

#[test]
fn an_image_is_of_the_moment_at_which_it_began() {
    let mut service = filled(1, 300);
    let (before, digest) = (image(&mut service, 100), service.digest());
    assert!(service.begin_image());
    let (mut items, mut dice) = (Vec::new(), Dice::new(2));
    while service.next_image(100, &mut |item| items.push(item.to_vec())) == Imaged::More {
        change(&mut service, &mut dice, 3);
    }
    assert_eq!(items, before);
    assert_eq!(loaded(&items).digest(), digest);
    assert_ne!(service.digest(), digest);
}

#[test]
fn an_image_is_not_begun_in_the_middle_of_a_batch() {
    let mut service = filled(1, 3);
    let command = Command::Scrub.encode();
    let id = quorate::CommandId { slot: Slot(9), index: 0 };
    service.apply(id, &command, &mut Vec::new());
    assert!(!service.begin_image());
    service.commit(Slot(10), &[]);
    assert!(service.begin_image());
}

/// An image with a raised revision, as after `etcdutl snapshot restore --bump-revision
/// --mark-compacted`: revisions seen since the image are never reused, and clients that saw them
/// learn of the compaction.
#[test]
fn an_image_whose_revision_is_raised_goes_on_above_it() {
    let mut service = service();
    let put = |service: &mut Service| {
        let request = PutRequest { key: b"a".as_slice().into(), ..<_>::default() };
        let reply: PutResponse = apply(service, &Command::Put(request)).unwrap();
        reply.header.unwrap().revision
    };
    let last = (0..50).map(|_| put(&mut service)).last().unwrap();
    let mut items = image(&mut service, 100);
    let at = items.iter().position(|item| image::item_revision(item).is_some()).unwrap();
    assert_eq!(image::item_revision(&items[at]), Some(last));
    assert_eq!(image::raise_revision(&items[at], u64::MAX), None);
    assert_eq!(image::raise_revision(&items[at], i64::MAX.unsigned_abs() - 100), None);
    items[at] = image::raise_revision(&items[at], 1000).unwrap();
    let mut service = loaded(&items);
    let get = |service: &Service, revision| {
        range(
            service,
            RangeRequest { key: b"a".as_slice().into(), revision, ..<_>::default() },
            100,
        )
    };
    for seen in [last, last + 1, last + 999] {
        assert_eq!(get(&service, seen), Err(Refusal::Compacted));
    }
    let now = get(&service, 0).unwrap();
    assert_eq!(now.header.unwrap().revision, last + 1000);
    assert_eq!((now.kvs[0].mod_revision, now.kvs[0].version), (last, 50));
    // Compaction removes the discarded history, as always.
    apply_bytes(&mut service, &Command::Scrub.encode());
    assert_eq!(put(&mut service), last + 1001);
    assert_eq!(get(&service, last + 1000).unwrap().kvs[0].mod_revision, last);
}

#[test]
fn an_empty_service_has_an_image() {
    let mut empty = service();
    let items = image(&mut empty, 100);
    assert_eq!(items.len(), 1);
    assert_eq!(loaded(&items).digest(), empty.digest());
    // Before the first slot there is no state.
    empty.begin_load().unwrap();
    assert_eq!(empty.finish_load(Slot::FIRST, &[]), Ok(()));
}

#[test]
fn what_is_no_image_is_refused() {
    let items = image(&mut filled(1, 20), 100);
    let load = |items: &[Vec<u8>]| {
        let mut service = service();
        service.begin_load()?;
        for item in items {
            service.load(item)?;
        }
        service.finish_load(Slot(2), &[])
    };
    assert_eq!(load(&items), Ok(()));
    let refused = |items: &[Vec<u8>]| matches!(load(items), Err(LoadError::Malformed(_)));
    assert!(refused(&[]), "there is no head");
    assert!(refused(&items[1..]), "nor here");
    let mut swapped = items.clone();
    swapped.swap(1, 2);
    assert!(refused(&swapped));
    for at in 1..items.len() {
        let mut cut = items.clone();
        cut[at].truncate(5);
        assert!(refused(&cut), "{at}");
    }
    let mut service = service();
    assert_eq!(service.load(&items[0]), Err(LoadError::NotLoading));
}

/// An image is refused if its revisions would overflow in later arithmetic.
#[test]
fn an_image_with_revisions_without_end_is_refused() {
    let items = image(&mut filled(1, 20), 100);
    let begins = |item: &[u8], kind: u8| item.get(4) == Some(&kind);
    // The state, a current record, and a change.
    for kind in *b"scr" {
        let mut items = items.clone();
        let item = items.iter_mut().skip(1).find(|item| begins(item, kind)).unwrap();
        let length = usize::try_from(u32::from_le_bytes(item[..4].try_into().unwrap())).unwrap();
        // In the place of a change, at the start of the other values.
        let at = if kind == b'r' { 5 } else { 4 + length };
        item[at..at + 8].copy_from_slice(&i64::MAX.to_be_bytes());
        if kind == b'r' {
            let changed = items.iter().position(|item| begins(item, kind)).unwrap();
            items.truncate(changed + 1);
        }
        let mut service = service();
        service.begin_load().unwrap();
        let load = items.iter().try_for_each(|item| service.load(item));
        let done = load.and_then(|()| service.finish_load(Slot(2), &[]));
        assert!(matches!(done, Err(LoadError::Malformed(_))), "{kind}: {done:?}");
    }
}
