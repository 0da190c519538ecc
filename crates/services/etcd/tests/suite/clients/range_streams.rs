//! Ranges that are streamed.

use prost::Message as _;
use quorate_etcd::proto::etcdserverpb::{
    CompactionRequest, PutRequest, RangeRequest, RangeResponse, RangeStreamResponse,
    kv_client::KvClient,
};
use tonic::{Code, Status, Streaming, transport::Channel};

use super::{MEMORY_BYTES, Node, check, get, put, runtime};

fn all() -> RangeRequest {
    RangeRequest { range_end: vec![0].into(), ..get("a") }
}

/// Merges the responses, as Protobuf defines it.
async fn merged(mut stream: Streaming<RangeStreamResponse>) -> Result<RangeResponse, Status> {
    let mut merged = RangeStreamResponse::default();
    while let Some(next) = stream.message().await? {
        merged.merge(&next.encode_to_vec()[..]).expect("it is valid");
    }
    Ok(merged.range_response.expect("there is a response"))
}

async fn streamed(
    kv: &mut KvClient<Channel>,
    range: RangeRequest,
) -> Result<RangeResponse, Status> {
    merged(kv.range_stream(range).await?.into_inner()).await
}

async fn fill(kv: &mut KvClient<Channel>, keys: usize, bytes: usize) {
    for key in 0..keys {
        let key = format!("k{key:04}").into();
        let value = vec![7; bytes].into();
        kv.put(PutRequest { key, value, ..PutRequest::default() }).await.unwrap();
    }
}

#[test]
fn a_streamed_range_is_the_range_in_pieces() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        // A dozen pages.
        fill(&mut kv, 12, 1 << 20).await;
        let ranges = [
            all(),
            get("a"),
            get("k0003"),
            RangeRequest { limit: 5, ..all() },
            RangeRequest { limit: 12, ..all() },
            RangeRequest { keys_only: true, ..all() },
            RangeRequest { count_only: true, serializable: true, ..all() },
            RangeRequest { revision: 4, sort_order: 1, ..all() },
        ];
        for range in ranges {
            let whole = kv.range(range.clone()).await.unwrap().into_inner();
            assert_eq!(streamed(&mut kv, range).await.unwrap(), whole);
        }
        let mut stream = kv.range_stream(all()).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().and_then(|first| first.range_response);
        let first = first.expect("there is a response");
        assert_eq!((first.kvs.len(), first.header, first.count), (1, None, 0));
    });
}

/// A stream needs room for a few pages only, and shows one revision.
#[test]
fn more_than_the_memory_is_streamed_at_one_revision() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let keys = MEMORY_BYTES / (1 << 20) + 8;
        fill(&mut kv, keys, 1 << 20).await;
        let refused = kv.range(all()).await;
        check(refused, Code::ResourceExhausted, "etcdserver: too many requests");
        let stream = kv.range_stream(all()).await.unwrap().into_inner();
        kv.put(put("k0001", "later")).await.unwrap();
        kv.put(put("z", "later")).await.unwrap();
        let range = merged(stream).await.unwrap();
        assert_eq!((range.kvs.len(), range.count, range.more), (keys, keys as i64, false));
        let revision = range.header.expect("the last response has it").revision;
        assert!(range.kvs.iter().all(|kv| kv.mod_revision <= revision));
        assert!(range.kvs.iter().all(|kv| kv.value.len() == 1 << 20));
    });
}

#[test]
fn a_stream_whose_revision_is_compacted_ends_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        fill(&mut kv, 32, 1 << 20).await;
        let mut stream = kv.range_stream(all()).await.unwrap().into_inner();
        stream.message().await.unwrap().expect("the first page");
        let header = kv.put(put("a", "1")).await.unwrap().into_inner().header.unwrap();
        let compaction = CompactionRequest { revision: header.revision, physical: false };
        kv.compact(compaction).await.unwrap();
        let text = "etcdserver: mvcc: required revision has been compacted";
        check(merged(stream).await, Code::OutOfRange, text);
    });
}

#[test]
fn ranges_that_cannot_be_streamed_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        let orders = [(2, 0), (1, 3), (0, 4)];
        for (sort_order, sort_target) in orders {
            let sorted = RangeRequest { sort_order, sort_target, ..all() };
            let text = "RangeStream does not support custom sort orders";
            check(kv.range_stream(sorted).await, Code::Unimplemented, text);
        }
        let filtered = RangeRequest { max_create_revision: 3, ..all() };
        let text = "RangeStream does not support revision filters";
        check(kv.range_stream(filtered).await, Code::Unimplemented, text);
        let text = "etcdserver: key is not provided";
        check(kv.range_stream(get("")).await, Code::InvalidArgument, text);
        let future = RangeRequest { revision: 9, ..all() };
        let text = "etcdserver: mvcc: required revision is a future revision";
        check(streamed(&mut kv, future).await, Code::OutOfRange, text);
    });
}
