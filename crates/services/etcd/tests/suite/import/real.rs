//! A snapshot from etcd 3.7.3, and the output of its `etcdctl` for the keys. It has leases, one
//! revoked; keys deleted individually, as a range and in a transaction; history compacted before
//! revision 40; users, one without a password; and auth enabled.

use base64ct::{Base64, Encoding as _};
use prost::Message;
use quorate::StateMachine as _;
use quorate_etcd::{
    auth::{AuthQuery, Sender, auth_ask::AuthQueryKind},
    command::{Figures, LeasesPage, LeasesRequest, Page, Query, decode_reply},
    import::{SnapshotContents, SnapshotStatus, verify_checksum},
    mvcc::Paging,
    proto::etcdserverpb::{
        AuthUserGetResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest,
        RangeResponse,
    },
    refusal::Refusal,
    service::Service,
};
use serde_json::Value;

use super::import_with;
use crate::common::loaded;

fn file() -> Vec<u8> {
    include_bytes!("etcd-3.7.3.db").to_vec()
}

/// Queries the service as a member, because clients would have to log in.
fn ask<M: Message + Default>(service: &Service, query: &Query) -> Result<M, Refusal> {
    let mut reply = Vec::new();
    service.query(&Sender::Member.prepend_to(query.encode()), 0, &mut reply);
    decode_reply(reply).unwrap()
}

fn range(service: &Service, request: RangeRequest) -> Result<RangeResponse, Refusal> {
    let mut paging = Paging::new(request);
    let page: Page = ask(service, &Query::Page(paging.next(1000)))?;
    assert!(paging.add_page(page)?, "one page is enough here");
    Ok(paging.finish())
}

fn all(revision: i64) -> RangeRequest {
    RangeRequest { key: "\0".into(), range_end: "\0".into(), revision, ..RangeRequest::default() }
}

#[test]
fn its_status_is_that_of_etcdutl() {
    let file = file();
    let (bytes, has_checksum) = verify_checksum(&file).unwrap();
    assert!(has_checksum);
    let contents = SnapshotContents::read(&file, bytes).unwrap();
    let expected = SnapshotStatus {
        hash: 770_626_409,
        revision: 46,
        total_keys: 29,
        total_size: 24_576,
        version: "3.7.0".to_owned(),
    };
    assert_eq!(*contents.status(), expected);
    assert_eq!(contents.compacted_revision(), 40);
    assert!(contents.auth().enabled);
}

#[test]
fn its_keys_are_what_etcdctl_said() {
    let service: Service = loaded(&import_with(&file(), Some("new")).unwrap());
    let figures: Figures = ask(&service, &Query::Figures).unwrap();
    assert_eq!((figures.revision, figures.compacted_revision), (46, 40));
    let said: Value = serde_json::from_str(include_str!("etcd-3.7.3.json")).unwrap();
    let said = said.as_array().unwrap();
    let found = range(&service, all(0)).unwrap();
    assert_eq!((found.kvs.len(), said.len()), (29, 29));
    for (kv, said) in found.kvs.iter().zip(said) {
        let bytes = |name| Base64::decode_vec(said[name].as_str().unwrap_or_default()).unwrap();
        let number = |name| said[name].as_i64().unwrap_or(0);
        assert_eq!((&kv.key[..], &kv.value[..]), (&*bytes("key"), &*bytes("value")));
        let has = (kv.create_revision, kv.mod_revision, kv.version, kv.lease);
        let had =
            (number("create_revision"), number("mod_revision"), number("version"), number("lease"));
        assert_eq!(has, had, "{said}");
    }
    assert_eq!(range(&service, all(39)), Err(Refusal::Compacted));
    assert!(range(&service, all(40)).is_ok());
}

#[test]
fn its_leases_and_users_are_there() {
    let service: Service = loaded(&import_with(&file(), Some("new")).unwrap());
    let list: LeasesPage = ask(&service, &Query::Leases(LeasesRequest::default())).unwrap();
    let mut leases = list.ids.iter().map(|id| {
        let request = LeaseTimeToLiveRequest { id: *id, keys: true };
        let of: LeaseTimeToLiveResponse = ask(&service, &Query::Lease(request)).unwrap();
        (of.granted_ttl, of.keys.concat())
    });
    let mut leases: Vec<_> = leases.by_ref().collect();
    leases.sort_unstable();
    let keys = |text: &str| text.as_bytes().to_vec();
    assert_eq!(leases, [(600, keys("leased/aleased/b")), (1200, keys("leased/c"))]);
    for (name, roles) in [("ann", &["app"][..]), ("bob", &[]), ("root", &["root"])] {
        let asked = AuthQuery { kind: Some(AuthQueryKind::User(name.to_owned())) };
        let user: AuthUserGetResponse = ask(&service, &Query::Auth(asked)).unwrap();
        assert_eq!(user.roles, roles, "{name}");
    }
}
