//! Permissions compared with a model: after changes, after enabling auth, and after loading images.

use bytes::Bytes;
use prost::Message;
use quorate::StateMachine as _;
use quorate_etcd::{
    auth::{
        AuthChange, AuthQuery, Credentials, NewPassword, NewUser, Ranges, Sender,
        auth_ask::AuthQueryKind as Ask, auth_change::AuthChangeKind,
    },
    command::{
        Command, EventsRequest, HashRequest, KeepAliveTtls, LeaseGrant, LeaseKeepAlives,
        LeasesRequest, PageRequest, Query, decode_reply,
    },
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::{
            AlarmRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest,
            AuthRoleRevokePermissionRequest, AuthStatusResponse, AuthUserGetResponse,
            AuthUserGrantRoleRequest, AuthUserListResponse, AuthUserRevokeRoleRequest,
            CompactionRequest, Compare, DeleteRangeRequest, LeaseRevokeRequest,
            LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
            WatchCreateRequest, request_op::Request,
        },
    },
    refusal::Refusal,
    service::Service,
};

use crate::{
    common::{self, apply_bytes, image, loaded},
    dice::Dice,
};

/// Returns the outcome of a request without its response.
fn done(reply: &[u8]) -> Result<(), Refusal> {
    match *reply {
        [0, ..] => Ok(()),
        [1, refusal] => Err(Refusal::from_byte(refusal).expect("one of them")),
        _ => panic!("{reply:?}"),
    }
}

fn apply(service: &mut Service, by: &Sender, command: &Command) -> Result<(), Refusal> {
    done(&apply_bytes(service, &by.prepend_to(command.encode())))
}

fn ask<M: Message + Default>(service: &Service, by: &Sender, query: &Query) -> Result<M, Refusal> {
    let mut reply = Vec::new();
    service.query(&by.prepend_to(query.encode()), 1000, &mut reply);
    decode_reply(reply).expect("it makes sense")
}

fn asked(service: &Service, by: &Sender, query: &Query) -> Result<(), Refusal> {
    let mut reply = Vec::new();
    service.query(&by.prepend_to(query.encode()), 1000, &mut reply);
    done(&reply)
}

fn auth(what: Ask) -> Query {
    Query::Auth(AuthQuery { kind: Some(what) })
}

fn credentials(service: &Service, name: &str) -> Credentials {
    ask(service, &Sender::Member, &auth(Ask::Credentials(name.to_owned()))).unwrap()
}

/// Returns a user under the current auth revision.
fn user(service: &Service, name: &str) -> Sender {
    Sender::User { name: name.to_owned(), auth_revision: credentials(service, "").revision }
}

fn change_by(service: &mut Service, by: &Sender, what: AuthChangeKind) -> Result<(), Refusal> {
    apply(service, by, &Command::Auth(AuthChange { kind: Some(what) }))
}

fn change(service: &mut Service, what: AuthChangeKind) -> Result<(), Refusal> {
    change_by(service, &Sender::Member, what)
}

fn user_add(name: &str, hash: &str) -> AuthChangeKind {
    AuthChangeKind::UserAdd(NewUser { name: name.to_owned(), hash: hash.to_owned() })
}

fn grant(user: &str, role: &str) -> AuthChangeKind {
    AuthChangeKind::UserGrant(AuthUserGrantRoleRequest {
        user: user.to_owned(),
        role: role.to_owned(),
    })
}

fn revoke(name: &str, role: &str) -> AuthChangeKind {
    AuthChangeKind::UserRevoke(AuthUserRevokeRoleRequest {
        name: name.to_owned(),
        role: role.to_owned(),
    })
}

fn permit(role: &str, perm_type: Type, key: &[u8], range_end: &[u8]) -> AuthChangeKind {
    AuthChangeKind::RoleGrant(AuthRoleGrantPermissionRequest {
        name: role.to_owned(),
        perm: Some(Permission {
            perm_type: perm_type.into(),
            key: Bytes::copy_from_slice(key),
            range_end: Bytes::copy_from_slice(range_end),
        }),
    })
}

fn enable() -> AuthChangeKind {
    AuthChangeKind::Enable(vec![7; 32].into())
}

fn with_root() -> Service {
    let mut service = common::service();
    service.set_time(1000);
    for what in [user_add("root", "h"), grant("root", "root"), enable()] {
        change(&mut service, what).unwrap();
    }
    service
}

/// Creates a service with the user ann, who may read `a` up to `c` and write `b` up to `d`.
fn with_ann() -> Service {
    let mut service = with_root();
    let whats = [
        user_add("ann", "h"),
        AuthChangeKind::RoleAdd("some".to_owned()),
        permit("some", Type::Read, b"a", b"c"),
        permit("some", Type::Write, b"b", b"d"),
        grant("ann", "some"),
    ];
    for what in whats {
        change(&mut service, what).unwrap();
    }
    service
}

fn put(key: &str) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value: "v".into(), ..PutRequest::default() }
}

fn get(key: &str, end: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        ..RangeRequest::default()
    }
}

fn page(key: &str, end: &str) -> Query {
    Query::Page(PageRequest {
        request: Some(get(key, end)),
        key_limit: 10,
        visit_limit: 10,
        ..PageRequest::default()
    })
}

fn delete(key: &str, end: &str, prev_kv: bool) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.to_owned().into(), range_end: end.to_owned().into(), prev_kv }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn then(request: Request) -> TxnRequest {
    TxnRequest { success: vec![op(request)], ..TxnRequest::default() }
}

fn otherwise(request: Request) -> TxnRequest {
    TxnRequest { failure: vec![op(request)], ..TxnRequest::default() }
}

fn compares(key: &str, end: &str) -> TxnRequest {
    TxnRequest {
        compare: vec![Compare {
            key: key.to_owned().into(),
            range_end: end.to_owned().into(),
            ..Compare::default()
        }],
        ..TxnRequest::default()
    }
}

#[test]
fn requests_need_the_ranges_that_they_touch() {
    const NO: Result<(), Refusal> = Err(Refusal::PermissionDenied);
    let mut service = with_ann();
    let ann = user(&service, "ann");
    // A lease of a key that ann may not write, one of a key that she may write, and one without
    // keys.
    for (id, key) in [(1, Some("a")), (2, Some("c")), (3, None)] {
        let granted = Command::Grant(LeaseGrant { id, ttl: 100, now_ms: 1000 });
        apply(&mut service, &Sender::Member, &granted).unwrap();
        if let Some(key) = key {
            let put = PutRequest { lease: id, ..put(key) };
            apply(&mut service, &Sender::Member, &Command::Put(put)).unwrap();
        }
    }
    let leased = |key, lease| PutRequest { lease, ..put(key) };
    let prev = |key| PutRequest { prev_kv: true, ..put(key) };
    let commands = [
        (Command::Put(put("b")), Ok(())),
        (Command::Put(put("c")), Ok(())),
        (Command::Put(put("a")), NO),
        (Command::Put(put("d")), NO),
        (Command::Put(prev("b")), Ok(())),
        (Command::Put(prev("c")), NO),
        (Command::Put(leased("b", 3)), Ok(())),
        (Command::Put(leased("b", 2)), Ok(())),
        (Command::Put(leased("b", 1)), NO),
        (Command::Delete(delete("b", "", true)), Ok(())),
        (Command::Delete(delete("b", "d", false)), Ok(())),
        (Command::Delete(delete("b", "d", true)), NO),
        (Command::Delete(delete("b", "e", false)), NO),
        (Command::Delete(delete("b", "\0", false)), NO),
        (Command::Txn(then(Request::RequestPut(put("b")))), Ok(())),
        (Command::Txn(then(Request::RequestPut(put("a")))), NO),
        (Command::Txn(otherwise(Request::RequestPut(put("a")))), NO),
        (Command::Txn(then(Request::RequestPut(prev("c")))), NO),
        (Command::Txn(then(Request::RequestPut(leased("b", 1)))), NO),
        (Command::Txn(otherwise(Request::RequestRange(get("c", "")))), NO),
        (Command::Txn(then(Request::RequestRange(get("a", "\0")))), NO),
        (Command::Txn(then(Request::RequestDeleteRange(delete("b", "\0", false)))), NO),
        (Command::Txn(then(Request::RequestDeleteRange(delete("b", "d", true)))), NO),
        (Command::Txn(compares("a", "c")), Ok(())),
        (Command::Txn(compares("a", "\0")), NO),
        (Command::Txn(compares("c", "")), NO),
        (Command::Txn(then(Request::RequestTxn(otherwise(Request::RequestPut(put("a")))))), NO),
        (Command::Txn(then(Request::RequestTxn(then(Request::RequestPut(put("b")))))), Ok(())),
        (Command::Compact(CompactionRequest::default()), NO),
        (Command::Alarm(AlarmRequest { action: 1, alarm: 1, member_id: 1 }), NO),
        (Command::Auth(AuthChange { kind: Some(AuthChangeKind::RoleAdd("mine".to_owned())) }), NO),
        (Command::Auth(AuthChange { kind: Some(grant("ann", "root")) }), NO),
        (Command::Grant(LeaseGrant { id: 9, ttl: 10, now_ms: 1000 }), Ok(())),
        (Command::Revoke(LeaseRevokeRequest { id: 1 }), NO),
        (Command::Revoke(LeaseRevokeRequest { id: 2 }), Ok(())),
        (Command::Scrub, Ok(())),
        (Command::Expire, Ok(())),
    ];
    for (command, expected) in commands {
        // Anonymous clients are refused, and a user without roles may only grant leases.
        if !matches!(command, Command::Scrub | Command::Expire) {
            assert_eq!(apply(&mut service, &Sender::Anonymous, &command), Err(Refusal::UserEmpty));
            let eve = user(&service, "eve");
            let unknown = apply(&mut service, &eve, &command);
            if !matches!(command, Command::Grant(_)) {
                assert!(unknown.is_err(), "{command:?}");
            } else {
                apply(
                    &mut service,
                    &Sender::Member,
                    &Command::Revoke(LeaseRevokeRequest { id: 9 }),
                )
                .unwrap();
            }
        }
        assert_eq!(apply(&mut service, &ann, &command), expected, "{command:?}");
    }
    let lease = |id, keys| Query::Lease(LeaseTimeToLiveRequest { id, keys });
    let queries = [
        (page("a", "c"), Ok(())),
        (page("a", "b\0"), Ok(())),
        (page("a", "c\0"), NO),
        (page("a", "\0"), NO),
        (page("c", ""), NO),
        (Query::Txn(then(Request::RequestRange(get("a", "")))), Ok(())),
        (Query::Txn(then(Request::RequestRange(get("c", "")))), NO),
        (Query::Txn(compares("c", "")), NO),
        (Query::Figures, Ok(())),
        (Query::Events(EventsRequest::default()), NO),
        (Query::Hash(HashRequest::default()), NO),
        (Query::Alarms(AlarmRequest::default()), Ok(())),
        (lease(1, true), Ok(())),
        (lease(1, false), Ok(())),
        (Query::Leases(LeasesRequest::default()), Ok(())),
        (auth(Ask::Credentials("root".to_owned())), NO),
        (auth(Ask::Root(true)), NO),
        (auth(Ask::MayKeepAlive(1)), NO),
        (auth(Ask::MayKeepAlive(3)), Ok(())),
        (auth(Ask::Status(true)), NO),
        (auth(Ask::Users(true)), NO),
        (auth(Ask::Roles(true)), NO),
        (auth(Ask::User("root".to_owned())), NO),
        (auth(Ask::User("ann".to_owned())), Ok(())),
        (auth(Ask::Role("root".to_owned())), NO),
        (auth(Ask::Role("some".to_owned())), Ok(())),
    ];
    let root = user(&service, "root");
    for (query, expected) in queries {
        assert_eq!(asked(&service, &ann, &query), expected, "{query:?}");
        if query != Query::Figures {
            assert!(asked(&service, &Sender::Anonymous, &query).is_err(), "{query:?}");
        }
        let of_node =
            [auth(Ask::Credentials("root".to_owned())), Query::Events(EventsRequest::default())];
        if !of_node.contains(&query) && query != auth(Ask::Role("root".to_owned())) {
            assert_ne!(asked(&service, &root, &query), NO, "{query:?}");
        }
    }
    // A key with a lease that she may not read.
    let put = PutRequest { lease: 3, ..put("x") };
    apply(&mut service, &Sender::Member, &Command::Put(put)).unwrap();
    assert_eq!(asked(&service, &ann, &lease(3, true)), NO);
    assert_eq!(asked(&service, &ann, &lease(3, false)), Ok(()));
    assert_eq!(asked(&service, &ann, &Query::Leases(LeasesRequest::default())), NO);
}

/// A range is allowed exactly if all its keys are, for any permissions for single keys.
#[test]
fn ranges_are_allowed_as_their_keys_are() {
    let mut dice = Dice::new(3);
    for _ in 0..150 {
        let mut service = with_root();
        change(&mut service, user_add("ann", "h")).unwrap();
        let key = |dice: &mut Dice| vec![b'a' + u8::try_from(dice.below(6)).unwrap()];
        let end = |dice: &mut Dice, from: &[u8]| match dice.below(4) {
            0 => Vec::new(),
            1 => vec![0],
            _ => vec![from[0] + 1 + u8::try_from(dice.below(4)).unwrap()],
        };
        let holds = |from: &[u8], to: &[u8], key: u8| match to {
            [] => [key] == *from,
            [0] => key >= from[0],
            to => key >= from[0] && key < to[0],
        };
        let mut all = Vec::new();
        for role in 0..1 + dice.below(3) {
            let role = role.to_string();
            change(&mut service, AuthChangeKind::RoleAdd(role.clone())).unwrap();
            change(&mut service, grant("ann", &role)).unwrap();
            for _ in 0..dice.below(3) {
                let from = key(&mut dice);
                let to = end(&mut dice, &from);
                let kind = [Type::Read, Type::Write, Type::Readwrite][dice.below(3)];
                let again = all.iter_mut().find(|(of, f, t, _)| (of, f, t) == (&role, &from, &to));
                match again {
                    Some((.., there)) => *there = kind,
                    None => all.push((role.clone(), from.clone(), to.clone(), kind)),
                }
                change(&mut service, permit(&role, kind, &from, &to)).unwrap();
            }
        }
        let ann = user(&service, "ann");
        // A single key is the range up to right after it, and nothing is between letters here.
        let expected = |from: &[u8], to: &[u8], no: Type| {
            let asked = b'a'..=b'z';
            let mut asked = asked.filter(|key| holds(from, to, *key));
            // Longer keys are between letters, and permissions for single keys do not cover them.
            let wide = !to.is_empty();
            asked.all(|key| {
                all.iter().any(|(_, f, t, kind)| {
                    *kind != no && holds(f, t, key) && !(wide && t.is_empty())
                })
            })
        };
        for _ in 0..40 {
            let from = key(&mut dice);
            let to = end(&mut dice, &from);
            let delete = Command::Delete(DeleteRangeRequest {
                key: from.clone().into(),
                range_end: to.clone().into(),
                prev_kv: false,
            });
            let may_write = apply(&mut service, &ann, &delete).is_ok();
            assert_eq!(may_write, expected(&from, &to, Type::Read), "{from:?} {to:?} {all:?}");
            let range = WatchCreateRequest {
                key: from.clone().into(),
                range_end: to.clone().into(),
                ..WatchCreateRequest::default()
            };
            let read = auth(Ask::Read(Ranges { ranges: vec![range] }));
            let may_read = asked(&service, &ann, &read).is_ok();
            assert_eq!(may_read, expected(&from, &to, Type::Write), "{from:?} {to:?} {all:?}");
        }
    }
}

#[test]
fn a_request_of_an_older_auth_revision_is_refused() {
    let mut service = with_ann();
    let ann = user(&service, "ann");
    let put = Command::Put(put("b"));
    assert_eq!(apply(&mut service, &ann, &put), Ok(()));
    // Any change of users and roles counts.
    change(&mut service, AuthChangeKind::RoleAdd("other".to_owned())).unwrap();
    assert_eq!(apply(&mut service, &ann, &put), Err(Refusal::AuthOldRevision));
    assert_eq!(asked(&service, &ann, &page("a", "")), Err(Refusal::AuthOldRevision));
    let ann = user(&service, "ann");
    assert_eq!(apply(&mut service, &ann, &put), Ok(()));
    // Also for root's requests.
    let root = user(&service, "root");
    change(&mut service, revoke("ann", "some")).unwrap();
    let compact = Command::Compact(CompactionRequest::default());
    assert_eq!(apply(&mut service, &root, &compact), Err(Refusal::AuthOldRevision));
    let ann = user(&service, "ann");
    assert_eq!(apply(&mut service, &ann, &put), Err(Refusal::PermissionDenied));
    // Admitted under a later revision than this node's.
    let early = Sender::User {
        name: "root".to_owned(),
        auth_revision: credentials(&service, "").revision + 1,
    };
    assert_eq!(asked(&service, &early, &page("a", "")), Err(Refusal::AuthOutdated));
    // Admitted where auth was already enabled.
    let mut before = common::service();
    for what in [user_add("root", "h"), grant("root", "root")] {
        change(&mut before, what).unwrap();
    }
    let root = user(&before, "root");
    assert_eq!(asked(&before, &root, &page("a", "")), Err(Refusal::AuthOutdated));
    assert_eq!(asked(&before, &Sender::Anonymous, &page("a", "")), Ok(()));
    change(&mut before, enable()).unwrap();
    assert_eq!(asked(&before, &root, &page("a", "")), Ok(()));
    assert_eq!(asked(&before, &Sender::Anonymous, &page("a", "")), Err(Refusal::UserEmpty));
    change(&mut before, AuthChangeKind::Disable(true)).unwrap();
    assert_eq!(asked(&before, &root, &page("a", "")), Ok(()), "it was let in before that");
}

#[test]
fn keep_alives_name_the_auth_revision() {
    let mut service = with_ann();
    let granted = LeaseGrant { id: 5, ttl: 10, now_ms: 1000 };
    apply(&mut service, &Sender::Member, &Command::Grant(granted)).unwrap();
    let now = credentials(&service, "").revision;
    let mut keep = |auth_revision| {
        let kept = LeaseKeepAlives { ids: vec![5], now_ms: 1000, auth_revision };
        let bytes = Sender::Member.prepend_to(Command::KeepAlive(kept).encode());
        decode_reply::<KeepAliveTtls>(apply_bytes(&mut service, &bytes)).unwrap()
    };
    assert_eq!(keep(now).unwrap().ttls, [10]);
    for old in [0, now - 1] {
        assert_eq!(keep(old), Err(Refusal::AuthOldRevision));
    }
}

#[test]
fn changes_are_refused_as_etcd_refuses_them() {
    let mut service = common::service();
    let revision = |service: &Service| credentials(service, "").revision;
    assert_eq!(revision(&service), 1);
    let role_delete = |name: &str| AuthChangeKind::RoleDelete(name.to_owned());
    let user_delete = |name: &str| AuthChangeKind::UserDelete(name.to_owned());
    let role_add = |name: &str| AuthChangeKind::RoleAdd(name.to_owned());
    let unpermit = |key: &'static str, end: &'static str| {
        AuthChangeKind::RoleRevoke(AuthRoleRevokePermissionRequest {
            role: "r".to_owned(),
            key: key.into(),
            range_end: end.into(),
        })
    };
    let no_permission = AuthChangeKind::RoleGrant(AuthRoleGrantPermissionRequest {
        name: "r".to_owned(),
        perm: None,
    });
    let password = |name: &str| {
        AuthChangeKind::Password(NewPassword { name: name.to_owned(), hash: "new".to_owned() })
    };
    // Change, outcome, and increment of the revision.
    let steps: Vec<(AuthChangeKind, Result<(), Refusal>, u64)> = vec![
        (enable(), Err(Refusal::RootUserNotExist), 0),
        (user_add("", "h"), Err(Refusal::UserEmpty), 0),
        (user_add("root", "h"), Ok(()), 1),
        (user_add("root", "h"), Err(Refusal::UserAlreadyExists), 0),
        (enable(), Err(Refusal::RootRoleNotExist), 0),
        (grant("root", "root"), Ok(()), 1),
        (grant("root", "root"), Ok(()), 0),
        (grant("eve", "root"), Err(Refusal::UserNotFound), 0),
        (grant("root", "r"), Err(Refusal::RoleNotFound), 0),
        (role_add(""), Err(Refusal::RoleEmpty), 0),
        (role_add("r"), Ok(()), 1),
        (role_add("r"), Err(Refusal::RoleAlreadyExists), 0),
        (role_delete("s"), Err(Refusal::RoleNotFound), 0),
        (no_permission, Err(Refusal::PermissionNotGiven), 0),
        (permit("s", Type::Read, b"a", b""), Err(Refusal::RoleNotFound), 0),
        (permit("r", Type::Read, b"", b""), Err(Refusal::InvalidAuthManagement), 0),
        (permit("r", Type::Read, b"b", b"a"), Err(Refusal::InvalidAuthManagement), 0),
        (permit("r", Type::Read, b"a", b"\0"), Ok(()), 1),
        (unpermit("a", ""), Err(Refusal::PermissionNotGranted), 0),
        (unpermit("a", "\0"), Ok(()), 1),
        (password("eve"), Err(Refusal::UserNotFound), 0),
        (password("root"), Ok(()), 1),
        (user_add("ann", ""), Ok(()), 1),
        (password("ann"), Ok(()), 1),
        (revoke("ann", "r"), Err(Refusal::RoleNotGranted), 0),
        (revoke("eve", "r"), Err(Refusal::UserNotFound), 0),
        (AuthChangeKind::Enable(vec![1; 31].into()), Err(Refusal::Malformed), 0),
        (enable(), Ok(()), 0),
        (enable(), Ok(()), 0),
        (user_delete("root"), Err(Refusal::InvalidAuthManagement), 0),
        (revoke("root", "root"), Err(Refusal::InvalidAuthManagement), 0),
        (role_delete("root"), Err(Refusal::InvalidAuthManagement), 0),
        (user_delete("eve"), Err(Refusal::UserNotFound), 0),
        (grant("ann", "r"), Ok(()), 1),
        (role_delete("r"), Ok(()), 1),
        (AuthChangeKind::Disable(true), Ok(()), 1),
        (AuthChangeKind::Disable(true), Ok(()), 0),
        (user_delete("root"), Ok(()), 1),
        (user_add(&"x".repeat(257), "h"), Err(Refusal::AuthLimitReached), 0),
        (user_add(&"x".repeat(256), "h"), Ok(()), 1),
    ];
    for (what, expected, moved) in steps {
        let before = revision(&service);
        assert_eq!(change(&mut service, what.clone()), expected, "{what:?}");
        assert_eq!(revision(&service), before + moved, "{what:?}");
    }
    assert_eq!(credentials(&service, "ann").hash, "", "who has no password gets none");
    let roles: AuthUserGetResponse =
        ask(&service, &Sender::Member, &auth(Ask::User("ann".to_owned()))).unwrap();
    assert!(roles.roles.is_empty(), "the role was deleted");
    let status: AuthStatusResponse =
        ask(&service, &Sender::Member, &auth(Ask::Status(true))).unwrap();
    assert_eq!((status.enabled, status.auth_revision), (false, revision(&service)));
}

#[test]
fn the_role_root_is_told_as_everything() {
    let mut service = with_root();
    change(&mut service, AuthChangeKind::RoleAdd("root".to_owned())).unwrap();
    let root = user(&service, "root");
    let role: AuthRoleGetResponse =
        ask(&service, &root, &auth(Ask::Role("root".to_owned()))).unwrap();
    let all = &role.perm[0];
    assert_eq!(
        (all.perm_type(), &all.key[..], &all.range_end[..]),
        (Type::Readwrite, &b""[..], &b"\0"[..])
    );
    let users: AuthUserListResponse = ask(&service, &root, &auth(Ask::Users(true))).unwrap();
    assert_eq!(users.users, ["root"]);
}

/// A token becomes invalid when the password changes, the user is replaced by one with the same
/// name, or auth is enabled again.
#[test]
fn credentials_are_of_one_password_and_one_enabling() {
    let mut service = with_ann();
    let first = credentials(&service, "ann");
    assert_eq!(
        (first.password_revision > 0, first.now_ms, &first.secret[..]),
        (true, 1000, &[7; 32][..])
    );
    change(&mut service, AuthChangeKind::RoleAdd("other".to_owned())).unwrap();
    assert_eq!(credentials(&service, "ann").password_revision, first.password_revision);
    change(&mut service, grant("ann", "other")).unwrap();
    assert_eq!(credentials(&service, "ann").password_revision, first.password_revision);
    let password = NewPassword { name: "ann".to_owned(), hash: "new".to_owned() };
    change(&mut service, AuthChangeKind::Password(password)).unwrap();
    let second = credentials(&service, "ann");
    assert_ne!(second.password_revision, first.password_revision);
    change(&mut service, AuthChangeKind::UserDelete("ann".to_owned())).unwrap();
    assert_eq!(
        (credentials(&service, "ann").password_revision, &*credentials(&service, "ann").hash),
        (0, "")
    );
    change(&mut service, user_add("ann", "new")).unwrap();
    assert_ne!(credentials(&service, "ann").password_revision, second.password_revision);
    change(&mut service, AuthChangeKind::Disable(true)).unwrap();
    change(&mut service, AuthChangeKind::Enable(vec![8; 32].into())).unwrap();
    let third = credentials(&service, "ann");
    assert_ne!((third.enabled_revision, &third.secret), (first.enabled_revision, &first.secret));
}

#[test]
fn an_image_has_users_and_roles() {
    let mut service = with_ann();
    apply(&mut service, &Sender::Member, &Command::Put(put("a"))).unwrap();
    let (items, digest) = (image(&mut service, 50), service.digest());
    let mut copy = loaded(&items);
    assert_eq!(copy.digest(), digest);
    let ann = user(&copy, "ann");
    assert_eq!(ann, user(&service, "ann"));
    assert_eq!(apply(&mut copy, &ann, &Command::Put(put("b"))), Ok(()));
    assert_eq!(apply(&mut copy, &ann, &Command::Put(put("a"))), Err(Refusal::PermissionDenied));
    assert_eq!(asked(&copy, &Sender::Anonymous, &page("a", "")), Err(Refusal::UserEmpty));
    assert_eq!(credentials(&copy, "ann"), credentials(&service, "ann"));
    // Another password is another state.
    let password = NewPassword { name: "ann".to_owned(), hash: "new".to_owned() };
    change(&mut service, AuthChangeKind::Password(password)).unwrap();
    assert_ne!(service.digest(), digest);
    let cut = |kind: u8| {
        let mut items = items.clone();
        let at = items.iter().position(|item| item.get(4) == Some(&kind)).unwrap();
        items[at].push(0xff);
        let mut service = common::service();
        service.begin_load().unwrap();
        items.iter().try_for_each(|item| service.load(item)).is_err()
    };
    assert!(b"AUR".iter().all(|kind| cut(*kind)), "what makes no sense is refused");
}

/// The tables are bounded, however much root adds.
#[test]
fn tables_are_bounded() {
    let mut service = with_root();
    for at in 0..1000_u32 {
        let key = at.to_be_bytes();
        if at == 0 {
            change(&mut service, AuthChangeKind::RoleAdd("r".to_owned())).unwrap();
        }
        change(&mut service, permit("r", Type::Read, &key, b"")).unwrap();
    }
    let more = permit("r", Type::Read, b"more", b"");
    assert_eq!(change(&mut service, more), Err(Refusal::AuthLimitReached));
    for at in 0..128 {
        let role = format!("role{at}");
        change(&mut service, AuthChangeKind::RoleAdd(role.clone())).unwrap();
        change(&mut service, grant("root", &role)).unwrap_or_else(|refusal| {
            assert_eq!((refusal, at), (Refusal::AuthLimitReached, 127), "root is one of them");
        });
    }
    let huge = permit("role0", Type::Read, &vec![b'x'; 16 << 20], b"");
    let before = service.digest();
    assert_eq!(change(&mut service, huge), Err(Refusal::AuthLimitReached));
    assert_eq!(service.digest(), before);
}
