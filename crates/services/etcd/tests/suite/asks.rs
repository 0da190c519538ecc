//! Every response of the service compared with a model, across snapshots and compactions.

use quorate::StateMachine as _;
use quorate_etcd::{
    check,
    command::{
        Command, Events, EventsRequest, Figures, KeepAliveTtls, LeaseGrant, LeaseKeepAlives,
        LeasesPage, LeasesRequest, Query,
    },
    proto::{
        etcdserverpb::{
            CompactionRequest, CompactionResponse, LeaseGrantResponse, LeaseRevokeRequest,
            LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest,
        },
        mvccpb::Event,
    },
    refusal::Refusal,
    service::Service,
};

use crate::{
    common::{Home, apply, apply_bytes, ask, image, load, range, range_while, service},
    dice::Dice,
    model::Model,
    random,
    sizes::summed,
};

/// Returns a request for all keys at a revision.
fn all(revision: i64) -> RangeRequest {
    RangeRequest { key: "\0".into(), range_end: "\0".into(), revision, ..RangeRequest::default() }
}

fn step(dice: &mut Dice, service: &mut Service, model: &mut Model) {
    let revision = model.revision;
    match dice.below(12) {
        10 => lease(dice, service, model),
        11 => {
            model.time += u64::try_from(dice.between(0, 900)).unwrap();
            service.set_time(model.time);
            assert_eq!(service.next_deadline(u64::MAX), model.next_deadline());
            let mut due = Vec::new();
            service.due(&mut |command| due.push(command.to_vec()));
            let expire = Command::Expire.encode();
            assert_eq!(model.expire(), due.contains(&expire));
            if due.contains(&expire) {
                apply_bytes(service, &expire);
            }
        }
        0..3 => {
            let request = random::put(dice);
            if check::check_put(&request).is_ok() {
                let expected = model.put(&request);
                assert_eq!(apply(service, &Command::Put(request.clone())), expected, "{request:?}");
            }
        }
        3 => {
            let request = random::delete(dice);
            let expected = model.delete(&request);
            let command = Command::Delete(request.clone());
            assert_eq!(apply(service, &command), expected, "{request:?}");
        }
        4..7 => {
            let request = random::txn(dice, revision, 2);
            if check::check_txn(&request).is_ok() {
                let expected = model.txn(&request);
                assert_eq!(apply(service, &Command::Txn(request.clone())), expected, "{request:?}");
            }
        }
        7 if dice.one_in(6) => {
            let revision = dice.between(model.compacted.max(revision - 8), revision + 1);
            let request = CompactionRequest { revision, physical: false };
            let expected = model.compact(revision);
            let answer = apply::<CompactionResponse>(service, &Command::Compact(request));
            assert_eq!(answer.map(|answer| answer.header.unwrap().revision), expected);
        }
        7 => {
            // Commands that the leader would propose.
            let mut due = Vec::new();
            service.due(&mut |command| due.push(command.to_vec()));
            for command in due {
                apply_bytes(service, &command);
            }
            model.expire();
        }
        _ => {
            let request = random::range(dice, revision);
            let expected = model.range(&request, revision);
            assert_eq!(
                range(service, request.clone(), 1 + dice.next() % 9),
                expected,
                "{request:?}"
            );
        }
    }
    let figures: Figures = ask(service, &Query::Figures).unwrap();
    assert_eq!((figures.revision, figures.compacted_revision), (model.revision, model.compacted));
}

fn lease(dice: &mut Dice, service: &mut Service, model: &mut Model) {
    let id = dice.between(1, 4);
    // Clocks of nodes differ.
    let now_ms = (model.time + u64::try_from(dice.between(0, 300)).unwrap()).saturating_sub(150);
    match dice.below(4) {
        0 | 1 => {
            let ttl = dice.between(-1, 4);
            let command = Command::Grant(LeaseGrant { id, ttl, now_ms });
            let answer = apply::<LeaseGrantResponse>(service, &command);
            assert_eq!(answer.map(|answer| answer.ttl), model.grant(id, ttl, now_ms));
        }
        2 => {
            // Several leases in one command, some of which do not exist.
            let ids: Vec<i64> = (0..1 + dice.below(3)).map(|_| dice.between(1, 5)).collect();
            let expected: Vec<i64> =
                ids.iter().map(|id| model.keep_alive(*id, now_ms).unwrap_or(0)).collect();
            let command = Command::KeepAlive(LeaseKeepAlives { ids, now_ms, auth_revision: 0 });
            let answer = apply::<KeepAliveTtls>(service, &command).unwrap();
            assert_eq!((answer.ttls, answer.revision), (expected, model.revision));
        }
        _ => {
            let command = Command::Revoke(LeaseRevokeRequest { id });
            let answer = apply::<LeaseRevokeResponse>(service, &command);
            let answer = answer.map(|answer| answer.header.unwrap().revision);
            assert_eq!(answer, model.revoke(id));
        }
    }
}

fn all_events(service: &Service, from: i64) -> Result<Vec<Event>, Refusal> {
    let (mut events, mut next) = (Vec::new(), from);
    loop {
        let request = EventsRequest { from: next, prev_kv: true, ..EventsRequest::default() };
        let page: Events = ask(service, &Query::Events(request))?;
        assert!(page.next > next || page.next > page.revision);
        events.extend(page.events);
        next = page.next;
        if next > page.revision {
            return Ok(events);
        }
    }
}

fn compare_leases_and_events(service: &Service, model: &Model) {
    let query = Query::Leases(LeasesRequest { from: 0 });
    let page: LeasesPage = ask(service, &query).unwrap();
    assert_eq!((page.revision, page.next), (model.revision, None));
    let mut leases = std::collections::BTreeMap::new();
    for id in page.ids {
        let request = LeaseTimeToLiveRequest { id, keys: true };
        let lease: LeaseTimeToLiveResponse = ask(service, &Query::Lease(request)).unwrap();
        let counted = service.mvcc().live_lease(id).unwrap().key_count;
        assert_eq!(counted, lease.keys.len() as u64);
        leases.insert(id, lease.keys);
    }
    assert_eq!(leases, model.leases());
    let first = model.compacted.max(1);
    for from in [first - 1, first, i64::midpoint(first, model.revision), model.revision + 1] {
        assert_eq!(all_events(service, from), model.events(from), "{from}");
    }
    // Events of some keys.
    let request =
        EventsRequest { from: first, prev_kv: true, key: "a".into(), range_end: "b".into() };
    let page: Events = ask(service, &Query::Events(request)).unwrap();
    let mut expected = model.events(first).unwrap();
    expected.retain(|event| {
        let key = &event.kv.as_ref().unwrap().key[..];
        (&b"a"[..]..&b"b"[..]).contains(&key)
    });
    assert_eq!(page.events, expected);
}

/// Checks that the readable history is exactly the model's.
fn compare_history(service: &Service, model: &Model) {
    let first = model.compacted.max(1);
    for revision in first..=model.revision {
        let request = all(revision);
        let expected = model.range(&request, model.revision);
        assert_eq!(range(service, request, 3), expected);
        for key in model.keys() {
            let request = RangeRequest { key: key.into(), revision, ..RangeRequest::default() };
            let expected = model.range(&request, model.revision);
            assert_eq!(range(service, request, 1), expected);
        }
    }
    if !service.mvcc().has_unscrubbed() {
        let mut kept = 0;
        service.mvcc().store().scan(b"r", b"s", &mut |_, _| {
            kept += 1;
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(kept, model.kept());
    }
}

fn answers_are_those_of_the_model(home: fn() -> Home, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let (mut service, mut model) = (home(), Model::new());
        for turn in 0..150 {
            step(&mut dice, &mut service, &mut model);
            assert_eq!(service.mvcc().bytes(), summed(&service));
            if dice.one_in(20) {
                service.restart();
                service.set_time(model.time);
            }
            if turn % 50 == 49 {
                compare_history(&service, &model);
                compare_leases_and_events(&service, &model);
                let items = image(&mut service, 1 + dice.below(500));
                let mut copy = home();
                load(&mut copy, &items);
                assert_eq!(copy.digest(), service.digest());
                // Continues with the service loaded from the image.
                service = copy;
                service.set_time(model.time);
            }
        }
    }
}

#[test]
fn answers_are_those_of_a_plain_list_of_revisions() {
    answers_are_those_of_the_model(Home::in_memory, 0..60);
}

/// The service with the store on disk gives the same responses as the model, across restarts too.
#[test]
fn answers_on_disk_are_those_of_a_plain_list_of_revisions() {
    answers_are_those_of_the_model(Home::on_disk, 1000..1010);
}

/// A compaction of more than a thousand steps removes exactly the unreadable history.
#[test]
fn compaction_removes_what_nobody_can_see_in_small_steps() {
    let (mut service, mut model) = (service(), Model::new());
    let mut dice = Dice::new(7);
    for _ in 0..3000 {
        let request = random::put(&mut dice);
        if check::check_put(&request).is_ok() {
            let expected = model.put(&request);
            assert_eq!(apply(&mut service, &Command::Put(request)), expected);
        }
    }
    let revision = model.revision - 5;
    model.compact(revision).unwrap();
    let request = CompactionRequest { revision, physical: true };
    apply::<CompactionResponse>(&mut service, &Command::Compact(request)).unwrap();
    let mut steps = 0;
    while service.mvcc().has_unscrubbed() {
        let mut due = Vec::new();
        service.due(&mut |command| due.push(command.to_vec()));
        assert_eq!(due.len(), 1);
        apply_bytes(&mut service, &due[0]);
        steps += 1;
    }
    assert_eq!(steps, 3, "at most a thousand changes each");
    service.due(&mut |_| panic!("there is nothing left to do"));
    compare_history(&service, &model);
}

/// A paged range is consistent, whatever is written between its pages.
#[test]
fn a_range_in_pages_is_of_the_moment_at_which_it_began() {
    for seed in 100..130 {
        let mut dice = Dice::new(seed);
        let (mut service, mut model) = (service(), Model::new());
        for _ in 0..40 {
            step(&mut dice, &mut service, &mut model);
        }
        for _ in 0..30 {
            let request = random::range(&mut dice, model.revision);
            let expected = model.range(&request, model.revision);
            let visits = 1 + dice.next() % 4;
            let answer = range_while(&mut service, request.clone(), visits, |service| {
                let put = random::put(&mut dice);
                if check::check_put(&put).is_ok() {
                    let expected = model.put(&put);
                    assert_eq!(apply(service, &Command::Put(put)), expected);
                }
                let delete = random::delete(&mut dice);
                let expected = Ok(model.delete(&delete).unwrap());
                assert_eq!(apply(service, &Command::Delete(delete)), expected);
            });
            assert_eq!(answer, expected, "{request:?}");
        }
    }
}
