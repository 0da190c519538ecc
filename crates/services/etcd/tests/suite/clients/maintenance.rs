//! The Maintenance service as used by clients: hashes, snapshots, alarms; automatic compaction.

use std::time::Duration;

use quorate::StateMachine as _;
use quorate_etcd::{
    front::Retention,
    proto::etcdserverpb::{
        AlarmRequest, AlarmType, DefragmentRequest, DeleteRangeRequest, DowngradeRequest,
        HashKvRequest, HashRequest, PutRequest, RangeRequest, SnapshotRequest, SnapshotResponse,
        StatusRequest, alarm_request::AlarmAction, maintenance_client::MaintenanceClient,
    },
    service::Service,
    store::memory::MemoryStore,
};
use quorate_replica::backup;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tonic::Code;

use super::{Node, check, get, page, put, runtime, three};

const WAIT: Duration = Duration::from_secs(60);

#[test]
fn equal_nodes_have_equal_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        for (node, key) in nodes.iter().zip(["a", "b", "c"]) {
            node.kv().put(put(key, "1")).await.unwrap();
        }
        let mut hashes = Vec::new();
        for node in &nodes {
            // The node has caught up with the others once it answers.
            node.kv().range(get("a")).await.unwrap();
            let mut client = MaintenanceClient::new(node.channel());
            let request = HashKvRequest { revision: 3 };
            let answer = client.hash_kv(request).await.unwrap().into_inner();
            assert_eq!((answer.compact_revision, answer.hash_revision), (-1, 3));
            let whole = client.hash(HashRequest {}).await.unwrap().into_inner().hash;
            hashes.push((answer.hash, whole));
            let text = "etcdserver: mvcc: required revision is a future revision";
            let future = client.hash_kv(HashKvRequest { revision: 9 }).await;
            check(future, Code::OutOfRange, text);
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
        assert_ne!(hashes[0].0, hashes[0].1);
    });
}

/// The output of `etcdctl snapshot save` is a backup that `quorate restore` reads.
#[test]
fn a_snapshot_is_a_backup_in_an_envelope() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    let file = runtime().block_on(async {
        for key in ["a", "b"] {
            let large = PutRequest { value: vec![7; 700_000].into(), ..put(key, "") };
            node.kv().put(large).await.unwrap();
        }
        let mut client = MaintenanceClient::new(node.channel());
        let stream = client.snapshot(SnapshotRequest {}).await.unwrap();
        let (mut stream, mut file) = (stream.into_inner(), Vec::new());
        while let Some(SnapshotResponse { blob, version, .. }) = stream.message().await.unwrap() {
            assert!(blob.len() <= 256 << 10);
            assert_eq!(version, "3.6.0");
            file.extend_from_slice(&blob);
        }
        file
    });
    assert_eq!(file.len() % 512, 32);
    let (file, sum) = file.split_last_chunk::<32>().unwrap();
    assert_eq!(sum[..], Sha256::digest(file)[..]);
    let (file, word) = file.split_last_chunk::<8>().unwrap();
    let (file, length) = file.split_last_chunk::<8>().unwrap();
    assert_eq!(word, b"QUORATE1");
    let length = usize::try_from(u64::from_be_bytes(*length)).unwrap();
    let mut service = Service::new(Box::new(MemoryStore::new()));
    service.begin_load().unwrap();
    let mut load = |_: &backup::BackupHeader, item: &[u8]| {
        let loaded = service.load(item);
        loaded.map_err(|error| error.to_string())
    };
    let checked =
        backup::check_backup(&file[..length], &mut load, &mut |_, _| {}).expect("it is whole");
    service.finish_load(checked.header.slot, &[]).unwrap();
    assert_eq!(service.mvcc().revision(), 3);
}

/// The data grows up to the quota. Only deletions and compactions are accepted until the alarm is
/// disarmed.
#[test]
fn data_grow_up_to_the_quota() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::within(folder.path(), 100_000);
    runtime().block_on(async {
        let (mut kv, mut client) = (node.kv(), MaintenanceClient::new(node.channel()));
        let large = PutRequest { value: vec![7; 20_000].into(), ..put("a", "") };
        let mut puts = 0;
        let refused = loop {
            match kv.put(large.clone()).await {
                Ok(_) => puts += 1,
                Err(refused) => break refused,
            }
            assert!(puts < 5);
        };
        assert!(puts >= 3, "{puts}");
        let text = "etcdserver: mvcc: database space exceeded";
        check::<()>(Err(refused), Code::ResourceExhausted, text);
        let alarms = client.alarm(AlarmRequest::default()).await.unwrap().into_inner().alarms;
        assert_eq!(
            (alarms.len(), alarms[0].member_id, alarms[0].alarm()),
            (1, 1, AlarmType::Nospace)
        );
        let status = client.status(StatusRequest {}).await.unwrap().into_inner();
        assert_eq!(status.db_size_quota, 100_000);
        assert!(status.errors.contains(&"memberID:1 alarm:NOSPACE ".to_owned()));
        let health = page(&node.address, "/health");
        assert!(health.starts_with("HTTP/1.1 503"), "{health}");
        assert!(health.ends_with(r#"{"health":"false","reason":"ALARM NOSPACE"}"#));
        let health = page(&node.address, "/health?exclude=NOSPACE");
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        // Also a small write.
        check(kv.put(put("b", "1")).await, Code::ResourceExhausted, text);
        let delete = DeleteRangeRequest { key: "a".into(), ..DeleteRangeRequest::default() };
        let deleted = kv.delete_range(delete).await.unwrap().into_inner();
        let compaction = quorate_etcd::proto::etcdserverpb::CompactionRequest {
            revision: deleted.header.unwrap().revision,
            physical: true,
        };
        kv.compact(compaction).await.unwrap();
        client.defragment(DefragmentRequest {}).await.unwrap();
        let disarm = AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id: 1,
            alarm: AlarmType::Nospace.into(),
        };
        assert_eq!(client.alarm(disarm).await.unwrap().into_inner().alarms.len(), 1);
        kv.put(put("b", "1")).await.unwrap();
        let downgrade = client.downgrade(DowngradeRequest::default()).await;
        let downgrade = downgrade.expect_err("refused");
        assert_eq!(downgrade.code(), Code::FailedPrecondition);
        assert!(downgrade.message().contains("not supported"));
    });
}

#[test]
fn history_older_than_the_retention_is_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let service = || Service::new(Box::new(MemoryStore::new()));
    let node = Node::start_as(folder.path(), 1, &[], service, |settings| {
        settings.retention = Retention::Time(Duration::from_secs(1));
    });
    runtime().block_on(async {
        let mut kv = node.kv();
        for value in ["1", "2"] {
            kv.put(put("a", value)).await.unwrap();
        }
        let past = RangeRequest { revision: 2, ..get("a") };
        let found = kv.range(past.clone()).await.unwrap().into_inner();
        assert_eq!(&found.kvs[0].value[..], b"1", "younger than a second");
        let refused = timeout(WAIT, async {
            loop {
                if let Err(status) = kv.range(past.clone()).await {
                    break status;
                }
            }
        });
        assert_eq!(refused.await.expect("compacted").code(), Code::OutOfRange);
        let found = kv.range(get("a")).await.unwrap().into_inner();
        assert_eq!(&found.kvs[0].value[..], b"2");
    });
}
