//! A service imported from an etcd snapshot equals a service with the same history.

use quorate::StateMachine as _;
use quorate_etcd::{
    auth::{AuthQuery, Credentials, Sender, auth_ask::AuthQueryKind},
    check,
    command::{
        Command, Figures, HashPage, HashRequest, LeaseGrant, LeasesPage, LeasesRequest, Query,
        decode_reply,
    },
    import::{ImportError, SnapshotContents, SnapshotStatus},
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::{
            CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse,
            LeaseGrantResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, PutRequest,
            PutResponse, RangeRequest,
        },
    },
    service::Service,
};

use super::{
    NOW_MS,
    file::{Bucket, buckets, lease, role, saved, user, write},
    import, import_with,
};
use crate::{
    common::{apply, apply_bytes, ask, loaded, range, service},
    dice::Dice,
    random,
};

/// Applies a random change to all services and checks that the responses are equal.
fn change(services: &mut [&mut Service], dice: &mut Dice, revision: i64) {
    let command = match dice.below(4) {
        0 | 1 => {
            let request = random::put(dice);
            check::check_put(&request).is_ok().then_some(Command::Put(request))
        }
        2 => Some(Command::Delete(random::delete(dice))),
        _ => {
            let request = random::txn(dice, revision, 2);
            check::check_txn(&request).is_ok().then_some(Command::Txn(request))
        }
    };
    if let Some(command) = command {
        let bytes = command.encode();
        let replies = services.iter_mut().map(|one| apply_bytes(one, &bytes));
        let replies: Vec<_> = replies.collect();
        assert!(replies.windows(2).all(|pair| pair[0] == pair[1]), "{command:?}");
    }
}

fn figures(service: &Service) -> Figures {
    ask(service, &Query::Figures).unwrap()
}

fn filled(dice: &mut Dice, commands: usize) -> Service {
    let mut service = service();
    for _ in 0..commands {
        let revision = figures(&service).revision;
        change(&mut [&mut service], dice, revision);
    }
    service
}

fn compact(service: &mut Service, revision: i64) {
    let request = CompactionRequest { revision, physical: false };
    apply::<CompactionResponse>(service, &Command::Compact(request)).unwrap();
    while !figures(service).is_scrubbed {
        apply::<Figures>(service, &Command::Scrub).unwrap();
    }
}

fn hash(service: &Service) -> u64 {
    let page: HashPage = ask(service, &Query::Hash(HashRequest::default())).unwrap();
    assert!(page.next.is_empty(), "one page is enough here");
    page.hash
}

#[test]
fn a_history_comes_with_every_revision() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let commands = dice.below(300);
        let original = filled(&mut dice, commands);
        let mut file = write(&buckets(&original, None), [512, 1024, 4096][dice.below(3)]);
        if dice.one_in(2) {
            file = saved(file);
        }
        let brought = loaded(&import(&file).unwrap());
        assert_eq!(brought.digest(), original.digest(), "seed {seed}");
    }
}

#[test]
fn a_compacted_history_reads_alike_and_goes_on_alike() {
    for seed in 100..140 {
        let mut dice = Dice::new(seed);
        let mut original = filled(&mut dice, 150);
        let revision = figures(&original).revision;
        let at = dice.between(2, revision);
        let file = write(&buckets(&original, Some(at)), 1024);
        compact(&mut original, at);
        let mut brought = loaded(&import(&file).unwrap());
        let (has, had) = (figures(&brought), figures(&original));
        assert_eq!((has.revision, has.compacted_revision), (had.revision, had.compacted_revision));
        assert_eq!(hash(&brought), hash(&original), "seed {seed}");
        for revision in at - 1..=revision + 1 {
            let request = RangeRequest {
                key: "\0".into(),
                range_end: "\0".into(),
                revision,
                ..RangeRequest::default()
            };
            assert_eq!(range(&brought, request.clone(), 100), range(&original, request, 100));
        }
        for _ in 0..100 {
            let revision = figures(&original).revision;
            change(&mut [&mut original, &mut brought], &mut dice, revision);
        }
        // A key that is put now has no history at the revision below.
        for _ in 0..2 {
            let put = PutRequest { key: "last".into(), ..PutRequest::default() };
            for one in [&mut original, &mut brought] {
                apply::<PutResponse>(one, &Command::Put(put.clone())).unwrap();
            }
        }
        let revision = figures(&original).revision;
        compact(&mut original, revision);
        compact(&mut brought, revision);
        assert_eq!(brought.digest(), original.digest(), "seed {seed}");
    }
}

#[test]
fn leases_come_with_their_keys_and_begin_anew() {
    let mut original = service();
    for (id, ttl) in [(5, 60), (-3, 10), (9, 1)] {
        let now_ms = NOW_MS;
        let command = Command::Grant(LeaseGrant { id, ttl, now_ms });
        apply::<LeaseGrantResponse>(&mut original, &command).unwrap();
    }
    for (key, lease) in [("b", 5), ("a", 5), ("c", -3), ("b", 5), ("d", 5), ("d", 0)] {
        let put = PutRequest { key: key.into(), lease, ..PutRequest::default() };
        apply::<PutResponse>(&mut original, &Command::Put(put)).unwrap();
    }
    let mut held = buckets(&original, None);
    held.insert("lease", Bucket::from([lease(5, 60), lease(-3, 10), lease(9, 0)]));
    let mut brought = loaded(&import(&write(&held, 4096)).unwrap());
    let list: LeasesPage = ask(&brought, &Query::Leases(LeasesRequest::default())).unwrap();
    assert_eq!(list.ids, [5, 9, -3]);
    let of = |service: &Service, id| {
        let request = LeaseTimeToLiveRequest { id, keys: true };
        ask::<LeaseTimeToLiveResponse>(service, &Query::Lease(request)).unwrap()
    };
    for id in [5, 9, -3] {
        let (has, had) = (of(&brought, id), of(&original, id));
        assert_eq!((&has.keys, has.granted_ttl), (&had.keys, had.granted_ttl));
    }
    assert_eq!(of(&brought, 5).keys, ["a", "b"]);
    assert_eq!(figures(&brought).lease_count, 3);
    // Leases last for their granted time and five more minutes.
    let ends = |seconds: u64| NOW_MS + 300_000 + seconds * 1000;
    brought.set_time(NOW_MS);
    assert_eq!(brought.next_deadline(u64::MAX), Some(ends(1)));
    brought.set_time(ends(10));
    apply::<Figures>(&mut brought, &Command::Expire).unwrap();
    assert_eq!(figures(&brought).lease_count, 1);
    assert_eq!(of(&brought, 5).keys, ["a", "b"]);
    assert_eq!(of(&brought, -3).ttl, -1);
}

#[test]
fn a_status_is_that_of_etcdutl() {
    let mut original = service();
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
        let put = PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() };
        apply::<PutResponse>(&mut original, &Command::Put(put)).unwrap();
    }
    let delete = DeleteRangeRequest { key: "b".into(), ..DeleteRangeRequest::default() };
    apply::<DeleteRangeResponse>(&mut original, &Command::Delete(delete)).unwrap();
    let buckets = buckets(&original, None);
    let file = write(&buckets, 4096);
    let contents = SnapshotContents::read(&file, file.len() as u64).unwrap();
    let mut all = Vec::new();
    for (name, bucket) in &buckets {
        all.extend_from_slice(name.as_bytes());
        bucket.iter().for_each(|(key, value)| all.extend([&key[..], value].concat()));
    }
    let expected = SnapshotStatus {
        hash: crc32c::crc32c(&all),
        revision: 6,
        total_keys: 2,
        total_size: file.len() as u64,
        version: "3.6.0".to_owned(),
    };
    assert_eq!(*contents.status(), expected);
}

#[test]
fn users_come_with_their_rights() {
    let permission = |key: &str, range_end: &str| Permission {
        perm_type: Type::Readwrite.into(),
        key: key.to_owned().into(),
        range_end: range_end.to_owned().into(),
    };
    let mut held = buckets(&service(), None);
    let on = [
        (b"authEnabled".to_vec(), vec![1]),
        (b"authRevision".to_vec(), 9_u64.to_be_bytes().to_vec()),
    ];
    held.insert("auth", Bucket::from(on));
    let users = [
        user("root", "$2a$10$old", &["root"]),
        user("ann", "$2a$10$ann", &["app", "app"]),
        user("bob", "", &[]),
    ];
    held.insert("authUsers", Bucket::from(users));
    // Neither list is ordered.
    let permissions = vec![permission("/b", ""), permission("/a/", "/a0")];
    held.insert("authRoles", Bucket::from([role("app", permissions), role("root", vec![])]));
    let file = write(&held, 4096);
    let mut brought = loaded(&import_with(&file, Some("new")).unwrap());
    let hash = |name: &str| {
        let ask_for = AuthQuery { kind: Some(AuthQueryKind::Credentials(name.to_owned())) };
        let mut reply = Vec::new();
        let query = Sender::Member.prepend_to(Query::Auth(ask_for).encode());
        brought.query(&query, 0, &mut reply);
        decode_reply::<Credentials>(reply).unwrap().unwrap().hash
    };
    assert_eq!([hash("root"), hash("ann"), hash("bob")], ["new", "$2a$10$ann", ""]);
    let mut put = |name: &str, key: &str| {
        let request = PutRequest { key: key.to_owned().into(), ..PutRequest::default() };
        let by = Sender::User { name: name.to_owned(), auth_revision: 9 };
        let command = by.prepend_to(Command::Put(request).encode());
        decode_reply::<PutResponse>(apply_bytes(&mut brought, &command)).unwrap().is_ok()
    };
    let allowed = [("root", "x"), ("ann", "/a/x"), ("ann", "/b")].map(|(who, key)| put(who, key));
    assert_eq!(allowed, [true; 3]);
    let refused = [("ann", "/b/"), ("ann", "x"), ("bob", "/b")].map(|(who, key)| put(who, key));
    assert_eq!(refused, [false; 3]);
    // A permission that no request can concern.
    held.insert("authRoles", Bucket::from([role("app", vec![permission("", "")])]));
    assert!(matches!(import(&write(&held, 4096)), Err(ImportError::Unsupported(_))));
    held.insert("authRoles", Bucket::from([role("", vec![])]));
    assert!(import(&write(&held, 4096)).is_err());
}
