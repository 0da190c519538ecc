//! The Lock and Election services as used by clients.

use std::time::Duration;

use quorate_etcd::proto::{
    etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, lease_client::LeaseClient},
    v3electionpb::{
        CampaignRequest, LeaderRequest, ProclaimRequest, ResignRequest,
        election_client::ElectionClient,
    },
    v3lockpb::{LockRequest, UnlockRequest, lock_client::LockClient},
};
use tokio::time::timeout;
use tonic::Code;

use super::{Node, check, get, runtime, three};

const SHORTLY: Duration = Duration::from_millis(300);
const WAIT: Duration = Duration::from_secs(60);

async fn grant(node: &Node, id: i64) {
    let request = LeaseGrantRequest { ttl: 60, id };
    LeaseClient::new(node.channel()).lease_grant(request).await.unwrap();
}

async fn revoke(node: &Node, id: i64) {
    let request = LeaseRevokeRequest { id };
    LeaseClient::new(node.channel()).lease_revoke(request).await.unwrap();
}

fn lock(lease: i64) -> LockRequest {
    LockRequest { name: "l".into(), lease }
}

/// One client holds the lock; the others wait in the order of their requests, at any node.
#[test]
fn a_lock_goes_from_one_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        for id in [17, 18, 19, 20] {
            grant(&nodes[0], id).await;
        }
        let mut first = LockClient::new(nodes[0].channel());
        let held = first.lock(lock(17)).await.unwrap().into_inner();
        assert_eq!(held.key, &b"l/11"[..], "as clients that lock by themselves name it");
        // The holder gets the lock again.
        assert_eq!(first.lock(lock(17)).await.unwrap().into_inner().key, held.key);
        let mut waits = Vec::new();
        for (node, lease) in [(1, 18), (2, 19), (0, 20)] {
            let mut client = LockClient::new(nodes[node].channel());
            let mut wait = Box::pin(async move { client.lock(lock(lease)).await });
            assert!(timeout(SHORTLY, &mut wait).await.is_err(), "{lease} has to wait");
            waits.push(wait);
        }
        // The second client gives up, so its key is deleted, and the third is next.
        let third = waits.remove(1);
        drop(third);
        let unlock = UnlockRequest { key: held.key };
        first.unlock(unlock).await.unwrap();
        let second = timeout(WAIT, waits.remove(0)).await.expect("it is its turn");
        assert_eq!(second.unwrap().into_inner().key, &b"l/12"[..]);
        let mut last = waits.remove(0);
        assert!(timeout(SHORTLY, &mut last).await.is_err());
        // The holder's lease ends, and with it the lock.
        revoke(&nodes[1], 18).await;
        let last = timeout(WAIT, last).await.expect("it is its turn").unwrap();
        assert_eq!(last.into_inner().key, &b"l/14"[..]);
        assert_eq!(nodes[0].kv().range(get("l/13")).await.unwrap().into_inner().count, 0);
    });
}

#[test]
fn who_names_no_lease_gets_one_and_who_loses_its_place_hears_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        grant(&node, 5).await;
        let mut client = LockClient::new(node.channel());
        let held = client.lock(lock(0)).await.unwrap().into_inner();
        let mut other = client.clone();
        let mut wait = Box::pin(async move { other.lock(lock(5)).await });
        assert!(timeout(SHORTLY, &mut wait).await.is_err());
        revoke(&node, 5).await;
        client.unlock(UnlockRequest { key: held.key }).await.unwrap();
        let lost = timeout(WAIT, wait).await.expect("it is answered");
        check(lost, Code::Unknown, "mutex: session is expired");
        let text = "etcdserver: requested lease not found";
        check(client.lock(lock(99)).await, Code::NotFound, text);
        let unlock = client.unlock(UnlockRequest::default()).await;
        check(unlock, Code::InvalidArgument, "etcdserver: key is not provided");
    });
}

#[test]
fn the_first_leads_until_it_resigns() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        for id in [1, 2] {
            grant(&nodes[0], id).await;
        }
        let campaign = |lease: i64, value: &'static str| CampaignRequest {
            name: "e".into(),
            lease,
            value: value.into(),
        };
        let of = || LeaderRequest { name: "e".into() };
        let mut one = ElectionClient::new(nodes[0].channel());
        let mut other = ElectionClient::new(nodes[1].channel());
        check(other.leader(of()).await, Code::Unknown, "election: no leader");
        let mut observed = other.observe(of()).await.unwrap().into_inner();
        let won = one.campaign(campaign(1, "x")).await.unwrap().into_inner();
        let leader = won.leader.unwrap();
        assert_eq!((&leader.key[..], leader.lease), (&b"e/1"[..], 1));
        let mut waiting = other.clone();
        let mut wait = Box::pin(async move { waiting.campaign(campaign(2, "z")).await });
        assert!(timeout(SHORTLY, &mut wait).await.is_err());
        let proclaim =
            |leader, value: &'static str| ProclaimRequest { leader, value: value.into() };
        let text = "\"leader\" field must be provided";
        check(one.proclaim(proclaim(None, "")).await, Code::InvalidArgument, text);
        let value = |kv: Option<quorate_etcd::proto::mvccpb::KeyValue>| kv.unwrap().value;
        let first = observed.message().await.unwrap().unwrap();
        assert_eq!(value(first.kv), &b"x"[..]);
        one.proclaim(proclaim(Some(leader.clone()), "y")).await.unwrap();
        let told = other.leader(of()).await.unwrap().into_inner();
        assert_eq!(value(told.kv), &b"y"[..]);
        let next = observed.message().await.unwrap().unwrap();
        assert_eq!(value(next.kv), &b"y"[..]);
        let resign = ResignRequest { leader: Some(leader.clone()) };
        one.resign(resign).await.unwrap();
        let won = timeout(WAIT, wait).await.expect("it is its turn");
        assert_eq!(won.unwrap().into_inner().leader.unwrap().key, &b"e/2"[..]);
        let next = observed.message().await.unwrap().unwrap();
        assert_eq!(value(next.kv), &b"z"[..]);
        let late = one.proclaim(proclaim(Some(leader), "late")).await;
        check(late, Code::Unknown, "election: not leader");
    });
}
